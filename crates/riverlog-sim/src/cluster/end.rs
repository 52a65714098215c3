//! The end: all is healed, everyone moves, the in-sync sets are whole, all copies are equal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::metadata::{MetadataImage, TopicImage};
use riverlog_mutants::{Mark, sometimes};
use riverlog_wire::Offset;

use super::clients::{Client, records_of};
use super::compacted;
use super::copies::{open_folder, read_copy};
use super::model::{TOPIC, topic_id};
use super::world::{Event, World};
use crate::keyed;
use crate::model::Violation;

/// How long after the last fault everyone has to move.
const SOON: Duration = Duration::from_secs(30);

/// How long the others have when one is gone: clients may ask it in vain for as long as they are patient, again and again.
const LATER: Duration = Duration::from_secs(90);

/// How long what was asked for before all was healed may take.
const UNDER_WAY: Duration = Duration::from_millis(1_500);

/// Batches of each producer that are acknowledged then.
const ENOUGH: u64 = 5;

impl World {
    /// The newest metadata that a node knows of.
    pub(super) fn newest_image(&self) -> Option<Arc<MetadataImage>> {
        let nodes = self.machines.iter().filter_map(|m| m.node.as_ref());
        nodes.map(|n| n.image()).max_by_key(|i| i.position)
    }

    /// Metadata as it is, where a node knows all of it.
    pub(super) fn whole_image(&self) -> Option<Arc<MetadataImage>> {
        let all = self.quorum.entries.len();
        let mut knows = self.machines.iter().filter(|m| m.told.knows(all));
        Some(knows.find_map(|m| m.node.as_ref())?.image())
    }

    /// Whether every partition has all its replicas in sync, and a leader.
    pub(super) fn all_in_sync(&self) -> bool {
        let Some(image) = self.whole_image() else {
            return false;
        };
        let is_whole = |t: &TopicImage| {
            let mut all = t.partitions.iter();
            all.all(|p| p.leader.is_some() && p.isr.len() == p.replicas.len())
        };
        let topic = image.topic(TOPIC);
        let compacted = image.topic(keyed::TOPIC);
        topic.is_some_and(|t| t.partitions.len() == self.swarm.partitions as usize && is_whole(t))
            && (!self.compacted.is_played() || compacted.is_some_and(|t| is_whole(t)))
            && (self.groups.is_empty() || image.topics.values().all(|t| is_whole(t)))
    }

    pub(super) fn heal_and_progress(&mut self) -> Result<(), Violation> {
        self.note("all is healed");
        self.healing = true;
        self.cuts.clear();
        for at in 0..self.machines.len() {
            let machine = &mut self.machines[at];
            let until = std::mem::take(&mut machine.frozen_until);
            self.hasten(until);
            let machine = &mut self.machines[at];
            machine.slow_until = Duration::ZERO;
            machine.disk.set_capacity(None);
            // What was to be done at the end of a stand-still is due then.
            if machine.ill {
                self.down(at, false);
            }
            self.start(at)?;
        }
        self.hasten_disks();
        self.end_moves()?;
        self.everyone_moves(SOON, true)
    }

    /// What a node was to do at that time, when it would have gone on, it does now.
    fn hasten(&mut self, until: Duration) {
        if until <= self.clock {
            return;
        }
        let late: Vec<(Duration, u64)> = self
            .queue
            .range((until, 0)..=(until, u64::MAX))
            .map(|(due, _)| *due)
            .collect();
        for due in late {
            if let Some(event) = self.queue.remove(&due) {
                // A tick knows when it is due.
                let when = match event {
                    Event::Tick { .. } => until,
                    _ => self.clock,
                };
                self.schedule(when, event);
            }
        }
    }

    /// One node is gone for good, its disk is full, or two don't hear each other: the others go on. Then all is healed again.
    pub(super) fn go_on_without_one(&mut self) -> Result<(), Violation> {
        // What was asked for before may still be under way.
        let until = self.clock + UNDER_WAY;
        while self.clock < until {
            self.step()?;
        }
        self.end_moves()?;
        let all = self.machines.len() as u64;
        let at = self.random.below(all) as usize;
        let across = match self.groups.has_transactors() && self.groups.random.chance(2, 3) {
            true => self.across_transactions(),
            false => None,
        };
        match self.random.below(4) {
            // Transactions need these two, and end all the same; one direction may be lost, or both.
            _ if let Some((one, other)) = across => {
                let lost = self.groups.random.below(3);
                self.cuts.extend((lost != 0).then_some((one, other)));
                self.cuts.extend((lost != 1).then_some((other, one)));
            }
            0 => self.down(at, false),
            1 => self.cut_off(at, true, true),
            2 => self.machines[at].disk.fill_up(),
            _ => {
                let other = (at + 1 + self.random.below(all - 1) as usize) % all as usize;
                self.cuts.extend([(at, other), (other, at)]);
            }
        }
        self.note(format!(
            "the others go on without {at}, cut: {:?}",
            self.cuts
        ));
        self.everyone_moves(LATER, false)?;
        sometimes(Mark::WentOnWithout);
        self.note("it comes back");
        self.cuts.clear();
        self.machines[at].disk.set_capacity(None);
        self.start(at)?;
        self.everyone_moves(SOON, true)
    }

    /// All producers are acknowledged what they send. `whole`: readers come to the end, and all replicas are in sync.
    fn everyone_moves(&mut self, time: Duration, whole: bool) -> Result<(), Violation> {
        let until = self.clock + time;
        for client in &mut self.clients {
            if let Client::Producer(producer) = client {
                producer.enough = Some(producer.progress + ENOUGH);
            }
        }
        self.groups.expect_progress();
        self.compacted.expect_progress();
        let goals: Vec<u64> = self.progress().collect();
        loop {
            self.step()?;
            let moved = self
                .progress()
                .zip(&goals)
                .all(|(now, then)| now >= then + ENOUGH)
                && self.groups.have_progressed()
                && self.compacted.have_progressed();
            let read = || self.readers_are_through() && self.compacted.are_read();
            if moved && (!whole || (self.all_in_sync() && read())) {
                return self.groups.check_transactions();
            }
            if self.clock > until {
                let image = self.newest_image();
                let topics = self.copied_topics().into_iter();
                let partitions: Vec<_> = topics
                    .filter_map(|(name, _)| Some(image.as_ref()?.topic(name)?.partitions.clone()))
                    .collect();
                let moved: Vec<u64> = self.progress().collect();
                let what = format!(
                    "producers {goals:?} to {moved:?}, readers through: {}, {partitions:?}, copies: {}, members: {}, keyed: {}",
                    self.readers_are_through(),
                    self.standings(),
                    self.groups.stuck(),
                    self.compacted.standings()
                );
                let invariant = match whole {
                    true => "everyone moves once all is healed",
                    false => "the others go on without one",
                };
                return Err(Violation::new(invariant, what));
            }
        }
    }

    fn progress(&self) -> impl Iterator<Item = u64> + '_ {
        self.clients.iter().filter_map(|client| match client {
            Client::Producer(producer) => Some(producer.progress),
            Client::Reader(_) => None,
        })
    }

    /// Whether readers have come as far as the leaders are.
    fn readers_are_through(&self) -> bool {
        let mut ends: BTreeMap<i32, Offset> = BTreeMap::new();
        for node in self.machines.iter().filter_map(|m| m.node.as_ref()) {
            for index in 0..self.swarm.partitions {
                if let Some(copy) = node.describe_copy(topic_id(), index)
                    && copy.leads
                {
                    ends.insert(index, copy.partition.high_watermark);
                }
            }
        }
        self.clients.iter().all(|client| match client {
            Client::Producer(_) => true,
            Client::Reader(reader) => (0..).zip(&reader.position).all(|(index, at)| {
                let end = ends.get(&index);
                end.is_some_and(|end| end <= at)
            }),
        })
    }

    /// All in sync are where their leaders are, and know it.
    fn all_know_the_end(&self) -> bool {
        let ends = |number| {
            let (topic, index) = self.log_of(number);
            let nodes = self.machines.iter().filter_map(|m| m.node.as_ref());
            let copies = nodes.filter_map(move |n| n.describe_copy(topic, index));
            copies.map(|c| (c.partition.high_watermark, c.partition.log_end_offset))
        };
        self.all_in_sync()
            && self.numbers().all(|index| {
                let first = ends(index).next();
                ends(index).all(|ends| Some(ends) == first && ends.0 == ends.1)
            })
    }

    /// Clients stop; when followers know what their leaders know, all processes die, and their folders are read.
    pub(super) fn compare_copies(&mut self) -> Result<(), Violation> {
        self.stopped = true;
        let until = self.clock + SOON;
        while !self.all_know_the_end() || self.check_places().is_err() {
            self.step()?;
            if self.clock > until {
                self.check_places()?;
                let all = 0..self.machines.len();
                let what = format!("{:?}", all.map(|at| self.copies_of(at)).collect::<Vec<_>>());
                return Err(Violation::new(
                    "followers hear of what is acknowledged",
                    what,
                ));
            }
        }
        for at in 0..self.machines.len() {
            self.check_image(at)?;
        }

        let mut contents = BTreeMap::new();
        let all = 0..self.machines.len();
        let known: Vec<_> = all.clone().map(|at| self.copies_of(at)).collect();
        for at in all.clone() {
            self.down(at, false);
        }
        self.look_at_what_is_left()?;
        let folders: Vec<_> = all
            .map(|at| {
                let disk = &self.machines[at].disk;
                open_folder(disk, self.swarm.settings.volume.clone())
            })
            .collect::<Result<_, _>>()?;
        let copies = (0..)
            .zip(known)
            .flat_map(|(at, c)| c.into_iter().map(move |c| (at, c)));
        for (at, (index, p)) in copies {
            let (start, end) = (p.log_start_offset, p.high_watermark);
            let (volume, which) = (&folders[at], self.log_of(index));
            if let Some(partition) = self.compacted_of(index) {
                let of = compacted::records_of;
                let (found, _) = read_copy(volume, which, (start, end), of)?;
                self.model.reaches(index, start, end, at)?;
                self.compacted_is_whole(partition, &found)?;
                continue;
            }
            let (records, _) = read_copy(volume, which, (start, end), records_of)?;
            self.model.whole(index, start, end, &records, at)?;
            let shared: BTreeMap<Offset, String> = records.into_iter().collect();
            let (first_start, first) = contents
                .entry(index)
                .or_insert_with(|| (start, shared.clone()));
            let from = start.max(*first_start);
            if first.range(from..).ne(shared.range(from..)) {
                let what = format!("partition {index}: {at} has {shared:?}, another {first:?}");
                return Err(Violation::new("copies are equal in the end", what));
            }
        }
        Ok(())
    }
}
