//! Which copies are to be where: plans that an operator looks at, and a controller follows.
//!
//! - [`rebalance`]: as many copies and as many preferred leaders on each node as on any other, give or take one; copies of a partition in as many racks as
//!   can be. Only what must move moves.
//! - [`drain`]: what a node has goes to others.
//!
//! A plan is a function of what it is given: the same question gives the same plan.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use riverlog_wire::BrokerId;

#[cfg(test)]
mod tests;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its id.
    pub id: BrokerId,
    /// Rack; nodes without one are in a rack of their own together.
    pub rack: Option<String>,
    /// It is up, and may get copies. What others have stays where it is.
    pub takes: bool,
}

/// The copies of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub index: i32,
    /// Where they are, the preferred leader first.
    pub replicas: Vec<BrokerId>,
}

/// What changes for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub index: i32,
    /// Where its copies are.
    pub from: Vec<BrokerId>,
    /// Where they are to be, the preferred leader first.
    pub to: Vec<BrokerId>,
}

impl Move {
    /// Whether something has to be copied; otherwise only the order changes, or copies go.
    pub fn copies(&self) -> bool {
        self.to.iter().any(|b| !self.from.contains(b))
    }
}

/// Spreads copies and preferred leaders evenly, with as few moves as that takes. In order of topic and partition.
pub fn rebalance(places: &[Place], copies: &[Copies]) -> Vec<Move> {
    let mut plan = Plan::new(places, copies);
    plan.spread_racks();
    plan.even_copies();
    plan.even_leaders();
    plan.moves()
}

/// Empties a node. `fewer`: a partition for whose copy there is no other node has one copy less afterwards.
///
/// An error holds the partitions for which there is none.
pub fn drain(
    places: &[Place],
    copies: &[Copies],
    node: BrokerId,
    fewer: bool,
) -> Result<Vec<Move>, Vec<(String, i32)>> {
    let mut without = places.to_vec();
    for place in without.iter_mut().filter(|p| p.id == node) {
        place.takes = false;
    }
    let mut plan = Plan::new(&without, copies);
    let mut stuck = Vec::new();
    for at in 0..copies.len() {
        if !plan.now.get(at).is_some_and(|r| r.contains(&node)) {
            continue;
        }
        match plan.best_for(at, Some(node)) {
            Some(to) => plan.replace(at, node, to),
            None if fewer && plan.now.get(at).is_some_and(|r| r.len() > 1) => {
                plan.drop_copy(at, node)
            }
            None => stuck.extend(copies.get(at).map(|c| (c.topic.clone(), c.index))),
        }
    }
    if !stuck.is_empty() {
        return Err(stuck);
    }
    plan.lead_elsewhere(node);
    Ok(plan.moves())
}

/// A plan in the making.
struct Plan<'a> {
    copies: &'a [Copies],
    /// Where the copies of each partition are by now.
    now: Vec<Vec<BrokerId>>,
    /// Those that may get copies.
    takes: BTreeSet<BrokerId>,
    racks: BTreeMap<BrokerId, Option<&'a str>>,
    held: BTreeMap<BrokerId, usize>,
    /// Of each topic, since copies of one topic are often used alike.
    held_of: BTreeMap<(&'a str, BrokerId), usize>,
    led: BTreeMap<BrokerId, usize>,
}

impl<'a> Plan<'a> {
    fn new(places: &'a [Place], copies: &'a [Copies]) -> Plan<'a> {
        let mut plan = Plan {
            copies,
            now: copies.iter().map(|c| c.replicas.clone()).collect(),
            takes: places.iter().filter(|p| p.takes).map(|p| p.id).collect(),
            racks: places.iter().map(|p| (p.id, p.rack.as_deref())).collect(),
            held: BTreeMap::new(),
            held_of: BTreeMap::new(),
            led: BTreeMap::new(),
        };
        for of in copies {
            for replica in &of.replicas {
                *plan.held.entry(*replica).or_default() += 1;
                *plan.held_of.entry((&of.topic, *replica)).or_default() += 1;
            }
            if let Some(first) = of.replicas.first() {
                *plan.led.entry(*first).or_default() += 1;
            }
        }
        plan
    }

    fn held(&self, node: BrokerId) -> usize {
        self.held.get(&node).copied().unwrap_or(0)
    }

    fn led(&self, node: BrokerId) -> usize {
        self.led.get(&node).copied().unwrap_or(0)
    }

    fn held_of(&self, at: usize, node: BrokerId) -> usize {
        let of = self
            .copies
            .get(at)
            .and_then(|c| self.held_of.get(&(&c.topic, node)));
        of.copied().unwrap_or(0)
    }

    /// In how many racks a partition would be with one copy in another place.
    fn racks_with(&self, at: usize, from: Option<BrokerId>, to: BrokerId) -> usize {
        let replicas = self.now.get(at).into_iter().flatten();
        let stay = replicas.filter(|b| Some(**b) != from).chain([&to]);
        let racks: BTreeSet<_> = stay.map(|b| self.racks.get(b)).collect();
        racks.len()
    }

    fn racks_now(&self, at: usize) -> usize {
        let replicas = self.now.get(at).into_iter().flatten();
        let racks: BTreeSet<_> = replicas.map(|b| self.racks.get(b)).collect();
        racks.len()
    }

    /// The node that should have a copy of a partition in place of `from`: in a rack without one, then with the fewest.
    fn best_for(&self, at: usize, from: Option<BrokerId>) -> Option<BrokerId> {
        let replicas = self.now.get(at)?;
        let free = self.takes.iter().filter(|b| !replicas.contains(b));
        free.copied().min_by_key(|b| {
            let racks = std::cmp::Reverse(self.racks_with(at, from, *b));
            (racks, self.held(*b), self.held_of(at, *b), *b)
        })
    }

    fn replace(&mut self, at: usize, from: BrokerId, to: BrokerId) {
        let (Some(of), Some(replicas)) = (self.copies.get(at), self.now.get_mut(at)) else {
            return;
        };
        let leads = replicas.first() == Some(&from);
        for replica in replicas.iter_mut().filter(|b| **b == from) {
            *replica = to;
        }
        one_less(self.held.get_mut(&from));
        one_less(self.held_of.get_mut(&(of.topic.as_str(), from)));
        *self.held.entry(to).or_default() += 1;
        *self.held_of.entry((&of.topic, to)).or_default() += 1;
        if leads {
            one_less(self.led.get_mut(&from));
            *self.led.entry(to).or_default() += 1;
        }
    }

    fn drop_copy(&mut self, at: usize, gone: BrokerId) {
        let (Some(of), Some(replicas)) = (self.copies.get(at), self.now.get_mut(at)) else {
            return;
        };
        let leads = replicas.first() == Some(&gone);
        replicas.retain(|b| *b != gone);
        one_less(self.held.get_mut(&gone));
        one_less(self.held_of.get_mut(&(of.topic.as_str(), gone)));
        if let (true, Some(next)) = (leads, replicas.first()) {
            one_less(self.led.get_mut(&gone));
            *self.led.entry(*next).or_default() += 1;
        }
    }

    /// Makes one of a partition's copies its first.
    fn lead(&mut self, at: usize, leader: BrokerId) {
        let Some(replicas) = self.now.get_mut(at) else {
            return;
        };
        let before = replicas.first().copied();
        if let (Some(place), Some(before)) = (replicas.iter().position(|b| *b == leader), before) {
            replicas.swap(0, place);
            one_less(self.led.get_mut(&before));
            *self.led.entry(leader).or_default() += 1;
        }
    }

    /// No two copies of a partition in one rack while another rack has none.
    fn spread_racks(&mut self) {
        for at in 0..self.copies.len() {
            loop {
                let now = self.racks_now(at);
                let better = |from: &BrokerId| {
                    let to = self.best_for(at, Some(*from))?;
                    (self.racks_with(at, Some(*from), to) > now).then_some((*from, to))
                };
                let replicas = self.now.get(at).into_iter().flatten();
                let movable = replicas.filter(|b| self.takes.contains(b));
                // The one that is where most are; the preferred leader last.
                let worst = movable.rev().filter_map(better);
                let Some((from, to)) = worst.max_by_key(|(from, _)| self.held(*from)) else {
                    break;
                };
                self.replace(at, from, to);
            }
        }
    }

    /// No node has two copies more than another one that could have one of them.
    fn even_copies(&mut self) {
        let all: usize = self.held.values().sum();
        // Each move brings two nodes closer together.
        for _ in 0..all {
            let Some((at, from, to)) = self.best_move() else {
                return;
            };
            self.replace(at, from, to);
        }
    }

    /// From the fullest node to the emptiest, of the topic of which that has most to gain; not the preferred leader if it can be helped.
    fn best_move(&self) -> Option<(usize, BrokerId, BrokerId)> {
        let mut pairs: Vec<(BrokerId, BrokerId)> = Vec::new();
        for from in &self.takes {
            let fuller = |to: &&BrokerId| self.held(*from) > self.held(**to) + 1;
            pairs.extend(self.takes.iter().filter(fuller).map(|to| (*from, *to)));
        }
        pairs.sort_by_key(|(from, to)| {
            (
                std::cmp::Reverse(self.held(*from) - self.held(*to)),
                *from,
                *to,
            )
        });
        pairs.into_iter().find_map(|(from, to)| {
            let can = |at: &usize| {
                let replicas = self.now.get(*at).map_or(&[][..], Vec::as_slice);
                replicas.contains(&from)
                    && !replicas.contains(&to)
                    && self.racks_with(*at, Some(from), to) >= self.racks_now(*at)
            };
            let movable = (0..self.now.len()).filter(can);
            let best = movable.max_by_key(|at| {
                let gain = self.held_of(*at, from) as i64 - self.held_of(*at, to) as i64;
                let first = self.now.get(*at).and_then(|r| r.first()) == Some(&from);
                // One that moves already need not move twice.
                let moves = self.now.get(*at) != self.copies.get(*at).map(|c| &c.replicas);
                (gain, !first, moves, std::cmp::Reverse(*at))
            })?;
            Some((best, from, to))
        })
    }

    /// No node is the first of two partitions more than another one that could take one over, perhaps by way of others.
    fn even_leaders(&mut self) {
        for _ in 0..self.copies.len() {
            let Some(way) = self.way_of_leaderships() else {
                return;
            };
            for (at, to) in way {
                self.lead(at, to);
            }
        }
    }

    /// Partitions that get another first replica, so that a node with too many leads one less, and one with too few one more.
    fn way_of_leaderships(&self) -> Option<Vec<(usize, BrokerId)>> {
        let mut by_most: Vec<BrokerId> = self.takes.iter().copied().collect();
        by_most.sort_by_key(|b| (std::cmp::Reverse(self.led(*b)), *b));
        for from in by_most {
            // Breadth first: the shortest way changes the fewest partitions.
            let mut came: BTreeMap<BrokerId, (BrokerId, usize)> = BTreeMap::new();
            let mut next = VecDeque::from([from]);
            let mut seen = BTreeSet::from([from]);
            while let Some(node) = next.pop_front() {
                if self.led(from) > self.led(node) + 1 {
                    let mut way = Vec::new();
                    let mut at = node;
                    while let Some((before, partition)) = came.get(&at) {
                        way.push((*partition, at));
                        at = *before;
                    }
                    return Some(way);
                }
                for (at, replicas) in self.now.iter().enumerate() {
                    if replicas.first() != Some(&node) {
                        continue;
                    }
                    for other in replicas.iter().filter(|b| self.takes.contains(b)) {
                        if seen.insert(*other) {
                            came.insert(*other, (node, at));
                            next.push_back(*other);
                        }
                    }
                }
            }
        }
        None
    }

    /// What a node led is led by those of the others that lead least.
    fn lead_elsewhere(&mut self, node: BrokerId) {
        for at in 0..self.copies.len() {
            let led = self.copies.get(at).and_then(|c| c.replicas.first()) == Some(&node);
            let replicas = self.now.get(at).into_iter().flatten();
            let can = replicas.filter(|b| self.takes.contains(b));
            // Whoever leads it by now is counted for it.
            let first = self.now.get(at).and_then(|r| r.first()).copied();
            let least = can.copied().min_by_key(|b| {
                let others = self.led(*b) - usize::from(Some(*b) == first);
                (others, Some(*b) != first, *b)
            });
            if let (true, Some(least)) = (led, least) {
                self.lead(at, least);
            }
        }
    }

    fn moves(self) -> Vec<Move> {
        let changed = self.copies.iter().zip(self.now);
        let changed = changed.filter(|(of, now)| of.replicas != *now);
        let mut moves: Vec<Move> = changed
            .map(|(of, to)| Move {
                topic: of.topic.clone(),
                index: of.index,
                from: of.replicas.clone(),
                to,
            })
            .collect();
        moves.sort_by(|a, b| (&a.topic, a.index).cmp(&(&b.topic, b.index)));
        moves
    }
}

fn one_less(count: Option<&mut usize>) {
    if let Some(count) = count {
        *count = count.saturating_sub(1);
    }
}
