//! What must be true: what clients were told, and what is read.

use std::collections::BTreeMap;

use riverlog_wire::{LeaderEpoch, Offset, TopicId};

use super::world::World;
use crate::model::Violation;

pub(super) const TOPIC: &str = "t";

pub(super) fn topic_id() -> TopicId {
    TopicId(*b"topic of cluster")
}

#[derive(Default)]
pub(super) struct Model {
    partitions: BTreeMap<i32, Partition>,
    /// Of each node's present life, and partition: epoch and high watermark.
    watermarks: BTreeMap<(usize, i32), (LeaderEpoch, Offset)>,
    /// Fingerprints of images by their position.
    images: BTreeMap<i64, u64>,
    pub(super) acknowledged: u64,
    pub(super) read: u64,
    pub(super) leaders: u64,
}

#[derive(Default)]
struct Partition {
    /// Acknowledged or read.
    contents: BTreeMap<i64, String>,
    places: BTreeMap<String, i64>,
    acknowledged: BTreeMap<i64, String>,
    /// The newest leadership that has acknowledged with acks=all.
    epoch: i32,
    /// Clients have asked to delete what is before it.
    trimmed: i64,
}

impl Partition {
    fn content(&mut self, at: i64, value: &str, index: i32) -> Result<(), Violation> {
        let known = self.contents.entry(at).or_insert_with(|| value.to_owned());
        if known != value {
            let what = format!("partition {index} at {at}: {known} and {value}");
            return Err(Violation::new("one offset has one content", what));
        }
        let place = *self.places.entry(value.to_owned()).or_insert(at);
        if place != at {
            let what = format!("partition {index}: {value} at {place} and at {at}");
            return Err(Violation::new("idempotent writes are stored once", what));
        }
        Ok(())
    }
}

impl Model {
    pub(super) fn began(&mut self, at: usize) {
        self.watermarks.retain(|(node, _), _| *node != at);
    }

    pub(super) fn trims(&mut self, index: i32, before: Offset) {
        let partition = self.partitions.entry(index).or_default();
        partition.trimmed = partition.trimmed.max(before.0);
    }

    /// Where clients have asked to delete up to.
    pub(super) fn trimmed(&self, index: i32) -> Offset {
        Offset(self.partitions.get(&index).map_or(0, |p| p.trimmed))
    }

    pub(super) fn acknowledged(
        &mut self,
        index: i32,
        base: Offset,
        values: &[String],
        epoch: Option<LeaderEpoch>,
    ) -> Result<(), Violation> {
        let partition = self.partitions.entry(index).or_default();
        for (at, value) in (base.0..).zip(values) {
            partition.content(at, value, index)?;
            partition.acknowledged.insert(at, value.clone());
        }
        self.acknowledged += 1;
        if let Some(LeaderEpoch(epoch)) = epoch {
            if epoch < partition.epoch {
                let what = format!("partition {index}: epoch {epoch} after {}", partition.epoch);
                return Err(Violation::new(
                    "a superseded leader doesn't acknowledge",
                    what,
                ));
            }
            partition.epoch = epoch;
        }
        Ok(())
    }

    /// A reader has seen records, and none in the gaps between them.
    pub(super) fn read(
        &mut self,
        index: i32,
        from: Offset,
        records: &[(Offset, String)],
        next: Offset,
    ) -> Result<(), Violation> {
        let partition = self.partitions.entry(index).or_default();
        for (at, value) in records {
            partition.content(at.0, value, index)?;
        }
        self.read += 1;
        let seen: BTreeMap<i64, &String> = records.iter().map(|(at, v)| (at.0, v)).collect();
        let missed = partition
            .acknowledged
            .range(from.0.max(partition.trimmed)..next.0)
            .find(|(at, _)| !seen.contains_key(at));
        match missed {
            Some((at, value)) => Err(Violation::new(
                "what was acknowledged is there",
                format!("partition {index}: {value} at {at} was passed over"),
            )),
            None => Ok(()),
        }
    }

    /// All that a copy holds below the high watermark.
    pub(super) fn whole(
        &mut self,
        index: i32,
        start: Offset,
        end: Offset,
        records: &[(Offset, String)],
        whose: usize,
    ) -> Result<(), Violation> {
        let partition = self.partitions.entry(index).or_default();
        let last = partition
            .acknowledged
            .last_key_value()
            .map_or(0, |(at, _)| at + 1);
        if end.0 < last || start.0 > partition.trimmed {
            let what =
                format!("partition {index} on {whose}: {start}..{end}, acknowledged to {last}");
            return Err(Violation::new("what was acknowledged is there", what));
        }
        self.read(index, start, records, end)
    }

    pub(super) fn watermark(
        &mut self,
        at: usize,
        index: i32,
        epoch: LeaderEpoch,
        leads: bool,
        high_watermark: Offset,
    ) -> Result<(), Violation> {
        let seen = self
            .watermarks
            .entry((at, index))
            .or_insert((epoch, high_watermark));
        if high_watermark < seen.1 {
            let what = format!(
                "partition {index} on {at}: {} in {} to {high_watermark} in {epoch}, leads {leads}",
                seen.1, seen.0
            );
            return Err(Violation::new("high watermarks never go back", what));
        }
        self.leaders += u64::from(leads && epoch > seen.0);
        *seen = (epoch, high_watermark);
        Ok(())
    }
}

impl World {
    /// Positions of all copies that are here.
    pub(super) fn check_positions(&mut self) -> Result<(), Violation> {
        for at in 0..self.machines.len() {
            let Some(node) = &self.machines[at].node else {
                continue;
            };
            for index in 0..self.swarm.partitions {
                let Some(copy) = node.describe_copy(topic_id(), index) else {
                    continue;
                };
                let p = &copy.partition;
                if p.high_watermark > p.log_end_offset || p.log_start_offset > p.log_end_offset {
                    let what = format!("{at}: {p:?}");
                    return Err(Violation::new(
                        "start, watermark and end are in order",
                        what,
                    ));
                }
                let (epoch, high_watermark) = (p.leader_epoch, p.high_watermark);
                self.model
                    .watermark(at, index, epoch, copy.leads, high_watermark)?;
            }
        }
        Ok(())
    }

    /// Images are equal at equal positions.
    pub(super) fn check_image(&mut self, at: usize) -> Result<(), Violation> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let Some(node) = &self.machines[at].node else {
            return Ok(());
        };
        let snapshot = node.metadata_snapshot();
        let mut hasher = DefaultHasher::new();
        for record in &snapshot.records {
            record.hash(&mut hasher);
        }
        let (position, hash) = (snapshot.position.0, hasher.finish());
        if *self.model.images.entry(position).or_insert(hash) != hash {
            let what = format!("node {at} at {position}");
            return Err(Violation::new("images are equal at equal positions", what));
        }
        Ok(())
    }
}
