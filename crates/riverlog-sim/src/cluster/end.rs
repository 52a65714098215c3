//! The end: all is healed, everyone moves, the in-sync sets are whole, all copies are equal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_log::disk::CrashDisk;
use riverlog_log::{LogKey, LogSettings, Read, Volume};
use riverlog_wire::{Offset, PartitionIndex};

use super::clients::{Client, records_of};
use super::model::{TOPIC, topic_id};
use super::world::World;
use crate::model::Violation;

/// How long after the last fault everyone has to move.
const SOON: Duration = Duration::from_secs(30);

/// Batches of each producer that are acknowledged then.
const ENOUGH: u64 = 5;

impl World {
    /// Whether every partition has all its replicas in sync, and a leader.
    pub(super) fn all_in_sync(&self) -> bool {
        let newest = self.machines.iter().filter_map(|m| m.node.as_ref());
        let Some(image) = newest.map(|n| n.image()).max_by_key(|i| i.position) else {
            return false;
        };
        let topic = image.topic(TOPIC);
        topic.is_some_and(|t| {
            t.partitions.len() == self.swarm.partitions as usize
                && t.partitions
                    .iter()
                    .all(|p| p.leader.is_some() && p.isr.len() == p.replicas.len())
        })
    }

    pub(super) fn heal_and_progress(&mut self) -> Result<(), Violation> {
        self.note("all is healed");
        self.healing = true;
        self.cuts.clear();
        for at in 0..self.machines.len() {
            let machine = &mut self.machines[at];
            machine.frozen_until = Duration::ZERO;
            machine.slow_until = Duration::ZERO;
            // What was to be done at the end of a stand-still is due then.
            self.start(at)?;
        }
        let until = self.clock + SOON;
        for client in &mut self.clients {
            if let Client::Producer(producer) = client {
                producer.enough = Some(producer.progress + ENOUGH);
            }
        }
        let goals: Vec<u64> = self.progress().collect();
        loop {
            self.step()?;
            let moved = self
                .progress()
                .zip(&goals)
                .all(|(now, then)| now >= then + ENOUGH);
            if moved && self.all_in_sync() && self.readers_are_through() {
                return Ok(());
            }
            if self.clock > until {
                let image = self.machines[0].node.as_ref().map(|n| n.image());
                let partitions = image.and_then(|i| Some(i.topic(TOPIC)?.partitions.clone()));
                let moved: Vec<u64> = self.progress().collect();
                let what = format!(
                    "producers {goals:?} to {moved:?}, readers through: {}, {partitions:?}",
                    self.readers_are_through()
                );
                return Err(Violation::new("everyone moves once all is healed", what));
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

    /// Clients stop; when followers know what their leaders know, all processes die, and their folders are read.
    pub(super) fn compare_copies(&mut self) -> Result<(), Violation> {
        self.stopped = true;
        let settle = self.clock + Duration::from_secs(3);
        while self.clock < settle {
            self.step()?;
        }
        for at in 0..self.machines.len() {
            self.check_image(at)?;
        }
        let mut known = Vec::new();
        for at in 0..self.machines.len() {
            for index in 0..self.swarm.partitions {
                let node = self.machines[at].node.as_ref();
                let copy = node.and_then(|n| n.describe_copy(topic_id(), index));
                known.extend(copy.map(|copy| (at, index, copy)));
            }
        }
        let mut contents = BTreeMap::new();
        for at in 0..self.machines.len() {
            self.down(at, false);
        }
        for (at, index, copy) in known {
            let (start, end) = (
                copy.partition.log_start_offset,
                copy.partition.high_watermark,
            );
            let disk = self.machines[at].disk.clone();
            let records = read_copy(&disk, index, start, end)?;
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

fn read_copy(
    disk: &CrashDisk,
    index: i32,
    start: Offset,
    end: Offset,
) -> Result<Vec<(Offset, String)>, Violation> {
    let broken = |what: String| Violation::new("a copy can be read", what);
    let volume = Volume::open(
        Arc::new(disk.kill()),
        riverlog_log::VolumeSettings::default(),
    )
    .map_err(|e| broken(e.to_string()))?;
    let key = LogKey {
        topic: topic_id(),
        partition: PartitionIndex(index),
    };
    let mut log = volume
        .open_log(key, LogSettings::default())
        .map_err(|e| broken(e.to_string()))?;
    let (mut at, mut found) = (start, Vec::new());
    while at < end {
        let read = log
            .read(at, end, 1 << 20)
            .map_err(|e| broken(e.to_string()))?;
        let slices = match read {
            Read::Ready(slices) => slices,
            Read::Plan(plan) => plan.run().map_err(|e| broken(e.to_string()))?,
        };
        if slices.next <= at {
            break;
        }
        let next = slices.next;
        found.extend(records_of(slices, at)?);
        at = next;
    }
    Ok(found)
}
