//! Replicas that move while all else goes on: to other nodes, to more or fewer of them, and back.

use std::time::Duration;

use riverlog_core::metadata::{AdminCommand, MetadataImage, PartitionImage, Reassignment};
use riverlog_log::disk::Random;
use riverlog_node::Reply;
use riverlog_wire::BrokerId;

use super::clients::Client;
use super::model::TOPIC;
use super::swarm::Swarm;
use super::world::{Event, World};
use crate::model::Violation;

/// How long what moves may take once all is healed.
const SOON: Duration = Duration::from_secs(30);
/// How soon at most a copy is back that went for a moment only.
const BACK_US: u64 = 40_000;
/// How often it is asked for again then: whoever took the request may have died with it.
const AGAIN: Duration = Duration::from_secs(2);

/// A partition of a topic, and its replicas; `None`: what moves is taken back.
pub(super) type Wanted = (&'static str, i32, Option<Vec<BrokerId>>);

/// Who asks for it. Draws from a source of its own, so that a seed in which nothing moves is what it would be without this.
pub(super) struct Mover {
    random: Random,
    /// Of 1,000 steps of clients; 0: nothing moves.
    often: u64,
}

impl Mover {
    /// Every other seed. Some bound what catching up may take, in some the controller moves things by itself.
    pub(super) fn draw(seed: u64, swarm: &mut Swarm) -> Mover {
        let mut random = Random::new(seed ^ 0x6d_6f_76_65);
        let often = match random.chance(1, 2) {
            true => 5 + random.below(40),
            false => 0,
        };
        if often > 0 {
            let mut set = |key: &str, value: &str| {
                let configs = &mut swarm.settings.configs;
                configs.insert(key.to_owned(), value.to_owned());
            };
            match random.below(6) {
                0 => set("leader.replication.throttled.rate", "20000"),
                1 => set("follower.replication.throttled.rate", "20000"),
                2 => set("riverlog.rebalance", "true"),
                _ => {}
            }
        }
        Mover { random, often }
    }

    fn id_of(&mut self, nodes: usize) -> i32 {
        self.random.below(nodes as u64) as i32 + 1
    }

    /// Whether partitions move in this seed.
    pub(super) fn moves(&self) -> bool {
        self.often > 0
    }
}

/// Two of the nodes or more, in any order.
pub(super) fn some_replicas(random: &mut Random, nodes: usize) -> Vec<BrokerId> {
    let count = 2 + random.below(nodes.min(4) as u64 - 1) as usize;
    let mut replicas = Vec::new();
    while replicas.len() < count {
        let id = BrokerId(random.below(nodes as u64) as i32 + 1);
        if !replicas.contains(&id) {
            replicas.push(id);
        }
    }
    replicas
}

impl World {
    /// Now and then a partition is to be elsewhere, or what moves is taken back.
    pub(super) fn perhaps_move(&mut self) {
        if self.healing
            || self.mover.often == 0
            || self.mover.random.below(1_000) >= self.mover.often
        {
            return;
        }
        let nodes = self.machines.len();
        let index = self.mover.random.below(self.swarm.partitions as u64) as i32;
        if self.mover.random.chance(1, 3) {
            return self.send_away(index);
        }
        let replicas = match self.mover.random.chance(1, 5) {
            true => None,
            false => Some(some_replicas(&mut self.mover.random, nodes)),
        };
        let at = self.mover.id_of(nodes) as usize - 1;
        self.ask_to_move(at, vec![(TOPIC, index, replicas)]);
    }

    /// A copy goes, and is back before everybody has heard of that: with nothing, while what it has said before may still be on its way.
    fn send_away(&mut self, index: i32) {
        let image = self.newest_image();
        let topic = image.as_ref().and_then(|i| i.topic(TOPIC));
        let Some(partition) = topic.and_then(|t| t.partitions.get(index as usize)) else {
            return;
        };
        let replicas = partition.replicas.clone();
        let may_go = |b: &&BrokerId| partition.leader != Some(**b);
        let followers: Vec<BrokerId> = replicas.iter().filter(may_go).copied().collect();
        if partition.is_moving() || replicas.len() < 3 || followers.is_empty() {
            return;
        }
        let goes = followers[self.mover.random.below(followers.len() as u64) as usize];
        let mut rest = replicas.clone();
        rest.retain(|b| *b != goes);
        self.place(index, rest);
        let later = Duration::from_micros(1 + self.mover.random.below(BACK_US));
        self.schedule(self.clock + later, Event::Place { index, replicas });
    }

    /// Asks whoever controls, so that it is decided at once.
    pub(super) fn place(&mut self, index: i32, replicas: Vec<BrokerId>) {
        if let Some(at) = self.controller() {
            self.ask_to_move(at, vec![(TOPIC, index, Some(replicas))]);
        }
    }

    pub(super) fn ask_to_move(&mut self, at: usize, wanted: Vec<Wanted>) {
        let Some((node, now)) = self.node(at) else {
            return;
        };
        self.note(format_args!("at {at}: to be moved {wanted:?}"));
        let partitions = wanted
            .into_iter()
            .map(|(topic, index, replicas)| Reassignment {
                topic: topic.to_owned(),
                index,
                replicas,
            });
        let command = AdminCommand::Reassign {
            partitions: partitions.collect(),
            factor_may_change: true,
        };
        node.admin(command, now, Reply::new(|_| {}));
    }

    /// All is healed: what moves arrives, and each partition has as many copies as at first again.
    pub(super) fn end_moves(&mut self) -> Result<(), Violation> {
        if !self.mover.moves() {
            return Ok(());
        }
        let bounded = |key: &String| key.ends_with(".throttled.rate");
        if self.swarm.settings.configs.keys().any(bounded) {
            // What is written meanwhile may be more than the rate allows for.
            self.rest_producers();
        }
        let (until, mut next) = (self.clock + SOON, self.clock);
        loop {
            let image = self.whole_image();
            let wanted = image.as_ref().and_then(|image| self.misplaced(image));
            if wanted.as_ref().is_some_and(Vec::is_empty) {
                return Ok(());
            }
            if self.clock > until {
                let all = 0..self.machines.len();
                let copies: Vec<_> = all.map(|at| self.copies_of(at)).collect();
                let topics: Vec<_> = image.iter().flat_map(|i| i.topics.values()).collect();
                let what = format!("{topics:?}, {copies:?}");
                return Err(Violation::new(
                    "what moves arrives once all is healed",
                    what,
                ));
            }
            if self.clock >= next {
                next = self.clock + AGAIN;
                let at = self.mover.id_of(self.machines.len()) as usize - 1;
                self.ask_to_move(at, wanted.unwrap_or_default());
            }
            self.step()?;
        }
    }

    /// What is not where it is to be in the end, and where that is. Nothing is known of topics that this image doesn't have.
    fn misplaced(&self, image: &MetadataImage) -> Option<Vec<Wanted>> {
        let nodes = self.machines.len();
        let mut wanted = Vec::new();
        for (name, copies) in self.copied_topics() {
            let done = |p: &PartitionImage| !p.is_moving() && p.replicas.len() == copies;
            let partitions = &image.topic(name)?.partitions;
            for (index, _) in (0..).zip(partitions).filter(|(_, p)| !done(p)) {
                let place = |n: usize| BrokerId(((index as usize + n) % nodes) as i32 + 1);
                wanted.push((name, index, Some((0..copies).map(place).collect())));
            }
        }
        Some(wanted)
    }

    /// What producers have under way is the last for now.
    fn rest_producers(&mut self) {
        for client in &mut self.clients {
            if let Client::Producer(producer) = client {
                producer.enough = Some(producer.progress);
            }
        }
        self.compacted.rest();
    }

    /// Copies are where metadata says, and nowhere else.
    pub(super) fn check_places(&self) -> Result<(), Violation> {
        let image = self.newest_image();
        let topics = self.copied_topics();
        let topics = topics.into_iter().filter_map(|(name, _)| {
            let topic = image.as_ref()?.topic(name)?;
            Some((name, topic))
        });
        let topics: Vec<_> = topics.collect();
        for (at, machine) in self.machines.iter().enumerate() {
            let Some(node) = &machine.node else { continue };
            let all = topics.iter().flat_map(|(name, topic)| {
                let each = (0..).zip(&topic.partitions);
                each.map(move |(index, partition)| (name, topic, index, partition))
            });
            for (name, topic, index, partition) in all {
                let is_here = node.describe_copy(topic.id, index).is_some();
                if is_here != partition.replicas.contains(&BrokerId(at as i32 + 1)) {
                    let what = format!("{name} {index} at {at}: {is_here}, {partition:?}");
                    return Err(Violation::new("copies are where metadata says", what));
                }
            }
        }
        Ok(())
    }
}
