//! What must be true: what clients were told, and what is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::metadata::PartitionImage;
use riverlog_node::{Node, PartitionDescription};
use riverlog_wire::{BrokerId, LeaderEpoch, Offset, ProducerId, TopicId};

use super::clients::records_of;
use super::compacted;
use super::copies::{open_folder, read_copy};
use super::world::World;
use crate::model::Violation;

pub(super) const TOPIC: &str = "t";

pub(super) fn topic_id() -> TopicId {
    TopicId(*b"topic of cluster")
}

#[derive(Default)]
pub(super) struct Model {
    partitions: BTreeMap<i32, Partition>,
    /// As metadata has them.
    placed: BTreeMap<(TopicId, i32), PartitionImage>,
    /// Of each node's present life, and partition: epoch and high watermark.
    watermarks: BTreeMap<(usize, i32), (LeaderEpoch, Offset)>,
    /// Fingerprints of images by their position.
    images: BTreeMap<i64, u64>,
    producers: BTreeSet<ProducerId>,
    /// Of each partition: the highest watermark that a leader has had.
    tops: BTreeMap<i32, Offset>,
    /// Of each partition: when which end was told, where it was more than before.
    ends: BTreeMap<i32, Vec<(Duration, Offset)>>,
    pub(super) acknowledged: u64,
    pub(super) read: u64,
    pub(super) leaders: u64,
    pub(super) checked: u64,
}

#[derive(Default)]
struct Partition {
    /// Acknowledged or read.
    contents: BTreeMap<i64, String>,
    places: BTreeMap<String, i64>,
    /// By producer and count.
    sent: BTreeMap<(usize, u64), i64>,
    acknowledged: BTreeMap<i64, String>,
    /// By epoch: which life of which node leads in it, and where its log ended when that began.
    leaderships: BTreeMap<i32, ((usize, u64), i64)>,
    /// Clients have asked to delete what is before it.
    trimmed: i64,
}

impl Partition {
    fn end_of_acknowledged(&self) -> i64 {
        let last = self.acknowledged.last_key_value();
        last.map_or(0, |(at, _)| at + 1)
    }

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
        self.in_order(at, value, index)
    }

    /// What a producer has sent before it lies before it.
    fn in_order(&mut self, at: i64, value: &str, index: i32) -> Result<(), Violation> {
        let Some((producer, count)) = number_of(value) else {
            return Ok(());
        };
        self.sent.insert((producer, count), at);
        let before = self.sent.range((producer, 0)..(producer, count));
        let after = self.sent.range((producer, count + 1)..(producer + 1, 0));
        let passed = |other: Option<(&(usize, u64), &i64)>, is: fn(&i64, &i64) -> bool| {
            other.filter(|(_, o)| is(o, &at)).map(|(k, o)| (*k, *o))
        };
        let wrong = passed({ before }.next_back(), |o, at| o > at)
            .or_else(|| passed({ after }.next(), |o, at| o < at));
        match wrong {
            None => Ok(()),
            Some(((_, other), o)) => Err(Violation::new(
                "a producer's records lie in order",
                format!("partition {index}: {value} at {at}, number {other} at {o}"),
            )),
        }
    }
}

/// Of a value: which producer's, and its how manieth.
fn number_of(value: &str) -> Option<(usize, u64)> {
    let (producer, count) = value.strip_prefix('p')?.split_once('-')?;
    Some((producer.parse().ok()?, count.parse().ok()?))
}

impl Model {
    pub(super) fn began(&mut self, at: usize) {
        self.watermarks.retain(|(node, _), _| *node != at);
    }

    /// Metadata has a partition so from now on. A copy that was there before the move goes when all that stay are in sync, so that
    /// acknowledged records are never on fewer of them (RC-16); and what it has said counts no more, should it come back with nothing.
    pub(super) fn becomes(
        &mut self,
        which: (TopicId, i32),
        now: PartitionImage,
    ) -> Result<(), Violation> {
        self.checked += 1;
        let Some(before) = self.placed.insert(which, now.clone()) else {
            return Ok(());
        };
        let what = || format!("partition {}: {before:?}, then {now:?}", which.1);
        let is_gone = |b: &BrokerId| !now.replicas.contains(b);
        let in_sync = |b: &BrokerId| now.isr.contains(b);
        if before.original().iter().any(is_gone) && !now.replicas.iter().all(in_sync) {
            return Err(Violation::new(
                "no copy goes before the new ones are in sync",
                what(),
            ));
        }
        Ok(())
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
        // It may acknowledge what the others took before they followed another one, and nothing else.
        if let Some(LeaderEpoch(epoch)) = epoch {
            let end = base.0 + values.len() as i64;
            let mut newer = partition.leaderships.range(epoch + 1..);
            if let Some((later, (_, began))) = newer.find(|(_, (_, began))| *began < end) {
                let what = format!(
                    "partition {index}: {base}..{end} by epoch {epoch}, when {later} had begun at {began}"
                );
                return Err(Violation::new(
                    "a superseded leader doesn't acknowledge",
                    what,
                ));
            }
        }
        Ok(())
    }

    /// A producer id was handed out.
    pub(super) fn producer(&mut self, id: ProducerId) -> Result<(), Violation> {
        match self.producers.insert(id) {
            true => Ok(()),
            false => Err(Violation::new(
                "a producer id is handed out once",
                format!("{id} came again"),
            )),
        }
    }

    /// A life of a node leads in an epoch, with a log that ends at `end`.
    fn leads(
        &mut self,
        index: i32,
        epoch: LeaderEpoch,
        who: (usize, u64),
        end: Offset,
    ) -> Result<(), Violation> {
        let partition = self.partitions.entry(index).or_default();
        let acknowledged = partition.end_of_acknowledged();
        let known = partition.leaderships.get(&epoch.0).map(|(who, _)| *who);
        if known.is_some_and(|known| known != who) {
            let what = format!("partition {index}, epoch {epoch}: {known:?} and {who:?}");
            return Err(Violation::new("an epoch has one leader", what));
        }
        if known.is_none() {
            partition.leaderships.insert(epoch.0, (who, end.0));
            // One that hears of its leadership when that is over lacks what came since.
            let newest = partition.leaderships.range(epoch.0 + 1..).next().is_none();
            if newest && end.0 < acknowledged {
                let what = format!(
                    "partition {index}, epoch {epoch}: {who:?} ends at {end}, acknowledged to {acknowledged}"
                );
                return Err(Violation::new("who leads has what was acknowledged", what));
            }
        }
        Ok(())
    }

    /// A reader has seen a record.
    pub(super) fn seen(&mut self, index: i32, at: Offset, value: &str) -> Result<(), Violation> {
        let partition = self.partitions.entry(index).or_default();
        partition.content(at.0, value, index)
    }

    /// The highest watermark that a leader of it has had.
    pub(super) fn top(&self, index: i32) -> Offset {
        self.tops.get(&index).copied().unwrap_or_default()
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
        let first = from.0.max(partition.trimmed);
        let missed = partition
            .acknowledged
            .range(first..next.0.max(first))
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
        self.reaches(index, start, end, whose)?;
        self.read(index, start, records, end)
    }

    /// A copy goes from `start` to the high watermark.
    pub(super) fn reaches(
        &mut self,
        index: i32,
        start: Offset,
        end: Offset,
        whose: usize,
    ) -> Result<(), Violation> {
        let partition = self.partitions.entry(index).or_default();
        let last = partition.end_of_acknowledged();
        if end.0 < last || start.0 > partition.trimmed {
            let what =
                format!("partition {index} on {whose}: {start}..{end}, acknowledged to {last}");
            return Err(Violation::new("what was acknowledged is there", what));
        }
        Ok(())
    }

    /// A node has told where a partition ends. It may be superseded and not know it, for a while.
    pub(super) fn end_told(
        &mut self,
        who: usize,
        index: i32,
        end: Offset,
        now: Duration,
        oldest: Duration,
    ) -> Result<(), Violation> {
        self.checked += 1;
        let told = self.ends.entry(index).or_default();
        let known = told.iter().rfind(|(at, _)| *at + oldest < now);
        if let Some((at, known)) = known.filter(|(_, known)| *known > end) {
            let what = format!(
                "partition {index}: {known} was told at {at:?}, {end} at {now:?} by node {who}"
            );
            return Err(Violation::new("an end that is told isn't old", what));
        }
        if told.last().is_none_or(|(_, last)| *last < end) {
            told.push((now, end));
        }
        Ok(())
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
        let top = self.tops.entry(index).or_default();
        if leads {
            *top = high_watermark.max(*top);
        } else if high_watermark > *top {
            let what = format!("partition {index} on {at}: {high_watermark}, leaders had {top}");
            return Err(Violation::new(
                "nobody takes for acknowledged what no leader did",
                what,
            ));
        }
        Ok(())
    }
}

impl World {
    /// Positions of all copies that are here.
    pub(super) fn check_positions(&mut self) -> Result<(), Violation> {
        let nodes = self.machines.iter().map(|m| m.node.as_ref());
        let leads = |number, node: &Arc<Node>| {
            let (topic, index) = self.log_of(number);
            let copy = node.describe_copy(topic, index);
            copy.is_some_and(|c| c.leads)
        };
        // Leaders first: the others have it from them.
        let mut order: Vec<(bool, i32, usize)> = Vec::new();
        for (at, node) in nodes.enumerate() {
            let Some(node) = node else { continue };
            let each = self.numbers().map(|n| (!leads(n, node), n, at));
            order.extend(each);
        }
        order.sort_unstable();
        for (_, index, at) in order {
            let Some(node) = &self.machines[at].node else {
                continue;
            };
            {
                let (topic, of) = self.log_of(index);
                let Some(copy) = node.describe_copy(topic, of) else {
                    // Should it come back, it begins anew.
                    self.model.watermarks.remove(&(at, index));
                    continue;
                };
                let p = &copy.partition;
                let ordered =
                    p.log_start_offset <= p.log_end_offset && p.high_watermark <= p.log_end_offset;
                // One whose disk has failed shows what is left of it until it is started anew.
                if !ordered && p.failed.is_none() {
                    let what = format!("{at}: {p:?}");
                    return Err(Violation::new(
                        "start, watermark and end are in order",
                        what,
                    ));
                }
                let (epoch, high_watermark) = (p.leader_epoch, p.high_watermark);
                self.model.checked += 1;
                self.model
                    .watermark(at, index, epoch, copy.leads, high_watermark)?;
                if copy.leads {
                    let who = (at, self.machines[at].life);
                    self.model.leads(index, epoch, who, p.log_end_offset)?;
                }
            }
        }
        Ok(())
    }

    /// Whoever the newest image takes for in sync has what was just acknowledged.
    pub(super) fn check_in_sync(&mut self, index: i32, end: Offset) -> Result<(), Violation> {
        let nodes = self.machines.iter().filter_map(|m| m.node.as_ref());
        let newest = nodes.map(|n| n.image()).max_by_key(|i| i.position);
        let (id, of) = self.log_of(index);
        let topic = newest.as_ref().and_then(|i| i.topics.get(&id));
        let Some(partition) = topic.and_then(|t| t.partitions.get(of as usize)) else {
            return Ok(());
        };
        let mut epochs = None;
        for member in &partition.isr {
            let at = member.0 as usize - 1;
            let node = self.machines[at].node.as_ref().filter(|n| n.is_let_in());
            let copy = node.and_then(|n| n.describe_copy(id, of));
            self.model.checked += 1;
            let last = end + -1;
            let epoch = node.and_then(|n| n.epoch_of_copy(id, of, last));
            // Two copies with one epoch at an offset have one content up to there.
            if let Some(epoch) = epoch
                && *epochs.get_or_insert(epoch) != epoch
            {
                let what = format!(
                    "partition {index}: {end} was acknowledged, {at} has {epoch} there, another {epochs:?}"
                );
                return Err(Violation::new(
                    "who is in sync has what was acknowledged",
                    what,
                ));
            }
            if let Some(copy) = copy.filter(|c| c.partition.log_end_offset < end) {
                let has = copy.partition.log_end_offset;
                let what = format!("partition {index}: {end} was acknowledged, {at} has {has}");
                return Err(Violation::new(
                    "who is in sync has what was acknowledged",
                    what,
                ));
            }
        }
        Ok(())
    }

    /// Where the copies of a node stand.
    pub(super) fn copies_of(&self, at: usize) -> Vec<(i32, PartitionDescription)> {
        let Some(node) = &self.machines[at].node else {
            return Vec::new();
        };
        let copies = self.numbers().filter_map(|number| {
            let (topic, index) = self.log_of(number);
            let copy = node.describe_copy(topic, index)?;
            Some((number, copy.partition))
        });
        copies.filter(|(_, p)| p.failed.is_none()).collect()
    }

    /// Where all copies stand, in words.
    pub(super) fn standings(&self) -> String {
        let mut all = Vec::new();
        for (at, machine) in self.machines.iter().enumerate() {
            let Some(node) = &machine.node else {
                all.push(format!("{at}: down"));
                continue;
            };
            for index in self.numbers() {
                let (topic, of) = self.log_of(index);
                if let Some(copy) = node.describe_copy(topic, of) {
                    let p = copy.partition;
                    all.push(format!(
                        "{at}/{index}: leads {}, epoch {}, {}..{} to {}, failed {:?}",
                        copy.leads,
                        p.leader_epoch,
                        p.log_start_offset,
                        p.log_end_offset,
                        p.high_watermark,
                        p.failed
                    ));
                }
            }
        }
        all.join("; ")
    }

    /// What a process has left below its high watermarks is what everybody has there, and all of it as far as it goes.
    pub(super) fn look_at_what_is_left(&mut self) -> Result<(), Violation> {
        for (at, disk, known) in std::mem::take(&mut self.left) {
            if known.is_empty() {
                continue;
            }
            let volume = open_folder(&disk, self.swarm.settings.volume.clone())?;
            for (index, p) in known {
                let (which, range) = (self.log_of(index), (p.log_start_offset, p.high_watermark));
                if let Some(partition) = self.compacted_of(index) {
                    let (found, end) = read_copy(&volume, which, range, compacted::records_of)?;
                    self.note(format_args!("node {at} leaves keyed {partition} to {end}"));
                    self.compacted_holds(partition, &found)?;
                    continue;
                }
                let (records, end) = read_copy(&volume, which, range, records_of)?;
                if !records.is_empty() {
                    self.note(format_args!("node {at} leaves partition {index} to {end}"));
                    self.model.read(index, p.log_start_offset, &records, end)?;
                }
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
        self.model.checked += 1;
        if *self.model.images.entry(position).or_insert(hash) != hash {
            let what = format!("node {at} at {position}");
            return Err(Violation::new("images are equal at equal positions", what));
        }
        Ok(())
    }
}
