//! The server's assignors (KIP-848): which member shall hold which partitions.
//!
//! Pure functions of the members' subscriptions and of what they were to hold before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use riverlog_wire::TopicId;

#[cfg(test)]
mod tests;

/// A partition of a topic, by id.
pub(super) type Part = (TopicId, i32);

/// What may be given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Topic {
    pub(super) id: TopicId,
    pub(super) partitions: i32,
}

/// Who may get it.
#[derive(Clone, Debug)]
pub(super) struct Subscriber<'a> {
    /// Static name, or else member id: the order for `range`.
    pub(super) rank: (bool, &'a str),
    /// Indices into the topics, in ascending order.
    pub(super) topics: Vec<usize>,
    /// What it was to hold before.
    pub(super) current: Option<&'a BTreeSet<Part>>,
}

/// The assignors by Kafka's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Assignor {
    /// As even as subscriptions allow; moves only what must move.
    Uniform,
    /// Neighbouring partitions of each topic together; equal partition numbers of several topics meet at one member.
    Range,
}

impl Assignor {
    pub(super) const DEFAULT: Assignor = Assignor::Uniform;

    pub(super) fn by_name(name: &str) -> Option<Assignor> {
        match name {
            "uniform" => Some(Assignor::Uniform),
            "range" => Some(Assignor::Range),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    /// For each member what it shall hold. Every partition of a topic that anybody subscribes to has exactly one holder.
    pub(super) fn assign(
        self,
        topics: &[Topic],
        members: &[Subscriber<'_>],
    ) -> Vec<BTreeSet<Part>> {
        match self {
            Assignor::Uniform => uniform(topics, members),
            Assignor::Range => range(topics, members),
        }
    }
}

fn range(topics: &[Topic], members: &[Subscriber<'_>]) -> Vec<BTreeSet<Part>> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|m| members[*m].rank);
    let mut assigned = vec![BTreeSet::new(); members.len()];
    for (t, topic) in topics.iter().enumerate() {
        let subscribers: Vec<usize> = order
            .iter()
            .copied()
            .filter(|m| members[*m].topics.binary_search(&t).is_ok())
            .collect();
        let count = subscribers.len() as i32;
        if count == 0 {
            continue;
        }
        let (each, more) = (topic.partitions / count, topic.partitions % count);
        let mut next = 0;
        for (i, m) in subscribers.into_iter().enumerate() {
            let end = next + each + i32::from((i as i32) < more);
            assigned[m].extend((next..end).map(|p| (topic.id, p)));
            next = end;
        }
    }
    assigned
}

/// Keeps what members have, gives what is free to the least loaded, then evens out.
///
/// An assignment is as even as can be when no member can pass a partition on, directly or through others, to one that has
/// at least two fewer; so that is what is looked for until there is none. Each pass lowers the sum of squared loads.
fn uniform(topics: &[Topic], members: &[Subscriber<'_>]) -> Vec<BTreeSet<Part>> {
    let mut draft = Draft::new(topics, members);
    draft.keep();
    draft.give_out();
    while draft.even_out() {}
    draft.into_assignment()
}

struct Draft<'a> {
    topics: &'a [Topic],
    members: &'a [Subscriber<'a>],
    /// Members by topic, in order.
    subscribers: Vec<Vec<usize>>,
    /// Member → topic → partitions.
    held: Vec<BTreeMap<usize, BTreeSet<i32>>>,
    /// (partitions, member), least loaded first.
    loads: BTreeSet<(usize, usize)>,
    load: Vec<usize>,
}

impl<'a> Draft<'a> {
    fn new(topics: &'a [Topic], members: &'a [Subscriber<'a>]) -> Draft<'a> {
        let mut subscribers = vec![Vec::new(); topics.len()];
        for (m, member) in members.iter().enumerate() {
            for t in &member.topics {
                subscribers[*t].push(m);
            }
        }
        Draft {
            topics,
            members,
            subscribers,
            held: vec![BTreeMap::new(); members.len()],
            loads: (0..members.len()).map(|m| (0, m)).collect(),
            load: vec![0; members.len()],
        }
    }

    fn add(&mut self, member: usize, topic: usize, partition: i32) {
        if self.held[member]
            .entry(topic)
            .or_default()
            .insert(partition)
        {
            self.set_load(member, self.load[member] + 1);
        }
    }

    fn set_load(&mut self, member: usize, load: usize) {
        self.loads.remove(&(self.load[member], member));
        self.load[member] = load;
        self.loads.insert((load, member));
    }

    fn keep(&mut self) {
        let by_id: BTreeMap<TopicId, usize> = self
            .topics
            .iter()
            .enumerate()
            .map(|(t, topic)| (topic.id, t))
            .collect();
        let mut taken = BTreeSet::new();
        for (m, member) in self.members.iter().enumerate() {
            for (id, partition) in member.current.into_iter().flatten() {
                let Some(t) = by_id.get(id) else { continue };
                let exists = (0..self.topics[*t].partitions).contains(partition);
                let subscribed = member.topics.binary_search(t).is_ok();
                if exists && subscribed && taken.insert((*t, *partition)) {
                    self.add(m, *t, *partition);
                }
            }
        }
    }

    fn give_out(&mut self) {
        let mut taken = vec![BTreeSet::new(); self.topics.len()];
        for held in &self.held {
            for (t, partitions) in held {
                taken[*t].extend(partitions.iter().copied());
            }
        }
        // Topics with few takers first, while their takers still have room.
        let mut order: Vec<usize> = (0..self.topics.len())
            .filter(|t| !self.subscribers[*t].is_empty())
            .collect();
        order.sort_by_key(|t| self.subscribers[*t].len());
        for t in order {
            for partition in 0..self.topics[t].partitions {
                if taken[t].contains(&partition) {
                    continue;
                }
                let least = self
                    .loads
                    .iter()
                    .map(|(_, m)| *m)
                    .find(|m| self.members[*m].topics.binary_search(&t).is_ok());
                if let Some(member) = least {
                    self.add(member, t, partition);
                }
            }
        }
    }

    /// Moves one partition along a path from a loaded member to one with at least two fewer; false when there is none.
    fn even_out(&mut self) -> bool {
        let least = self.loads.first().map_or(0, |(load, _)| *load);
        let loaded: Vec<usize> = self
            .loads
            .iter()
            .rev()
            .take_while(|(load, _)| *load >= least + 2)
            .map(|(_, m)| *m)
            .collect();
        // Whom a loaded member reaches has at best one fewer when it found nobody, so those reached need no search of
        // their own.
        let mut settled = vec![false; self.members.len()];
        for from in loaded {
            if settled[from] {
                continue;
            }
            let reached = self.reach(from);
            let best = reached
                .order
                .iter()
                .copied()
                .min_by_key(|m| self.load[*m])
                .filter(|m| self.load[*m] + 2 <= self.load[from]);
            if let Some(to) = best {
                self.shift(from, to, &reached);
                return true;
            }
            settled[from] = true;
            for m in reached.order {
                settled[m] = true;
            }
        }
        false
    }

    /// Breadth first, so that ties go to the shorter path: fewer partitions move.
    fn reach(&self, from: usize) -> Reached {
        let mut reached = Reached {
            by: vec![None; self.members.len()],
            order: Vec::new(),
        };
        let mut topic_seen = vec![false; self.topics.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(giver) = queue.pop_front() {
            // From where most is held, so that topics stay spread.
            let mut topics: Vec<usize> = self.held[giver].keys().copied().collect();
            topics.sort_by_key(|t| {
                std::cmp::Reverse(self.held[giver].get(t).map_or(0, BTreeSet::len))
            });
            for t in topics {
                if std::mem::replace(&mut topic_seen[t], true) {
                    continue;
                }
                for taker in &self.subscribers[t] {
                    if *taker != from && reached.by[*taker].is_none() {
                        reached.by[*taker] = Some((giver, t));
                        reached.order.push(*taker);
                        queue.push_back(*taker);
                    }
                }
            }
        }
        reached
    }

    fn shift(&mut self, from: usize, to: usize, reached: &Reached) {
        let mut taker = to;
        while taker != from {
            let Some((giver, topic)) = reached.by[taker] else {
                return;
            };
            if let Some(partition) = self.to_give(giver, topic) {
                if let Some(partitions) = self.held[giver].get_mut(&topic) {
                    partitions.remove(&partition);
                    if partitions.is_empty() {
                        self.held[giver].remove(&topic);
                    }
                }
                self.held[taker].entry(topic).or_default().insert(partition);
            }
            taker = giver;
        }
        self.set_load(from, self.load[from] - 1);
        self.set_load(to, self.load[to] + 1);
    }

    /// Rather one that it didn't have before: that moves anyway.
    fn to_give(&self, member: usize, topic: usize) -> Option<i32> {
        let id = self.topics[topic].id;
        let held = self.held[member].get(&topic)?;
        let current = self.members[member].current;
        held.iter()
            .rev()
            .find(|p| current.is_none_or(|c| !c.contains(&(id, **p))))
            .or_else(|| held.last())
            .copied()
    }

    fn into_assignment(self) -> Vec<BTreeSet<Part>> {
        let topics = self.topics;
        self.held
            .into_iter()
            .map(|held| {
                held.into_iter()
                    .flat_map(|(t, partitions)| {
                        partitions.into_iter().map(move |p| (topics[t].id, p))
                    })
                    .collect()
            })
            .collect()
    }
}

struct Reached {
    /// From whom a member would get a partition, and of which topic.
    by: Vec<Option<(usize, usize)>>,
    /// In the order found.
    order: Vec<usize>,
}
