//! The end of a run: no more faults, and everyone must move; then all that was acknowledged is read; then the disk is damaged,
//! and whatever is still shown must be right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_checker::What;
use riverlog_core::groups::FetchedOffsets;
use riverlog_core::metadata::TopicRef;
use riverlog_log::disk::CrashDisk;
use riverlog_log::{Disk, OpenMode};
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::{FetchAnswer, FetchCommand, FetchedPartition, Isolation, Reply, StableAnswer};
use riverlog_wire::{ErrorCode, Offset};

use crate::clients::transactor::offset_place;
use crate::clients::{GROUP, managed, records_of};
use crate::files;
use crate::history::{place_of, transactional};
use crate::model::{Place, Violation};
use crate::swarm::Ending;
use crate::transactions::{self, committed_of};
use crate::world::{Event, World, fetch_one};

/// How long transactions may take to end once nobody begins one: the longest time-out, and then some.
const PATIENCE: Duration = Duration::from_secs(120);

impl World {
    /// No more faults: within 60 s every producer sends and every consumer reaches the end.
    pub(crate) fn heal_and_progress(&mut self) -> Result<(), Violation> {
        self.core.note("all faults are healed");
        self.core.healing = true;
        self.core.history.healed(self.core.clock);
        self.core.disk.heal();
        self.core.disk.set_capacity(None);
        self.core.slow_until = Duration::ZERO;
        self.core.thaw();
        // From a full disk alone a node recovers by itself.
        let lives_on = self.core.swarm.full_clean > 0;
        if self.core.erred || (!lives_on && self.core.random.chance(1, 2)) {
            self.die("to begin anew after all faults")?;
        }
        self.progress()
    }

    fn progress(&mut self) -> Result<(), Violation> {
        let (mut goals, mut cuts) = (BTreeMap::new(), self.core.power_cuts);
        for client in &mut self.clients {
            client.heal(&mut self.core);
        }
        let deadline = self.core.clock + Duration::from_secs(60);
        let mut look = self.core.clock;
        loop {
            // Now and then: to look costs more than most steps.
            if self.core.clock >= look {
                // One that had begun before: what it took of a topic that opted out of syncing can't be read.
                if std::mem::replace(&mut cuts, self.core.power_cuts) != self.core.power_cuts {
                    goals.clear();
                }
                let moved = self.clients.iter().all(|c| c.has_progressed());
                // What there is now is to be read, not what there will be when the last one has moved.
                if self.all_read(&mut goals) && moved {
                    // Producers have gone on: perhaps there is more by now.
                    if !self.all_read(&mut BTreeMap::new()) {
                        return Ok(());
                    }
                    let what = What::Drained {
                        group: GROUP.to_owned(),
                    };
                    self.core.history.note(self.core.clock, GROUP, what);
                    return Ok(());
                }
                look = self.core.clock + Duration::from_millis(2);
            }
            self.step()?;
            if self.core.clock > deadline {
                let mut stuck: Vec<_> = self
                    .clients
                    .iter()
                    .filter(|c| !c.has_progressed())
                    .collect();
                if stuck.is_empty() {
                    stuck = self
                        .clients
                        .iter()
                        .filter(|c| c.holds().is_some())
                        .collect();
                }
                let group = self.group();
                return Err(Violation::new(
                    "everyone progresses after healing",
                    format!("{stuck:?}; the group is {group}"),
                ));
            }
        }
    }

    /// What the coordinator says of the group.
    fn group(&self) -> String {
        let answer = Arc::new(Mutex::new(None));
        let out = Arc::clone(&answer);
        if let Some((node, now)) = self.core.node() {
            let reply = Reply::new(move |group| *out.lock() = Some(group));
            node.describe_group(GROUP, now, reply);
        }
        let answer = answer.lock();
        format!("{answer:?}")
    }

    /// Whether each partition is held by one consumer, who has read what was there when all was healed.
    fn all_read(&mut self, goals: &mut BTreeMap<Place, Offset>) -> bool {
        let Some((node, _)) = self.core.node() else {
            return false;
        };
        if goals.is_empty() {
            for place in self.core.places() {
                let Some(reference) = self.core.partition(place) else {
                    goals.clear();
                    return false;
                };
                let end = node.describe_partition(&reference).high_watermark;
                goals.insert(place, end);
            }
        }
        for (place, goal) in goals {
            let positions = self.clients.iter().filter_map(|c| c.holds()?.get(place));
            if !positions.clone().any(|position| position >= &*goal) {
                return false;
            }
        }
        true
    }

    /// Reads all partitions from their start, once after a restart.
    pub(crate) fn check_everything(&mut self) -> Result<(), Violation> {
        self.core.stopped = true;
        self.die("before the last check")?;
        while self.core.node.is_none() {
            self.step()?;
        }
        for place in self.core.places() {
            let (start, found) = self.read_whole(place)?;
            if self.core.history.keeps(place) {
                let records = found.iter().map(|(o, v)| (o.0, v.clone())).collect();
                let at = self.core.clock;
                let name = place_of(&self.core.swarm, place);
                self.core.history.whole(at, name, start, records, false);
            }
            self.core.model.read_whole(place, start, &found)?;
        }
        if self.core.swarm.has_transactions() {
            self.check_transactions()?;
        }
        Ok(())
    }

    fn check_transactions(&mut self) -> Result<(), Violation> {
        self.wait_for_markers()?;
        let mut all = BTreeSet::new();
        for partition in 0..transactions::PARTITIONS {
            let found = self.read_committed(partition)?;
            let values: Vec<String> = found.iter().map(|(_, v)| v.clone()).collect();
            if self.core.history.is_on() {
                let (at, place) = (self.core.clock, transactional(partition));
                let records = found.into_iter().map(|(o, v)| (o.0, v));
                let records = records
                    .filter(|(_, v)| !transactions::is_managed(v))
                    .collect();
                let start = Offset::ZERO;
                self.core.history.whole(at, place, start, records, true);
            }
            self.core.transactions.read_whole(partition, &values)?;
            all.extend(values);
        }
        let mut offsets = BTreeMap::new();
        for number in managed::numbers(self.core.swarm.managed) {
            let seen = self.committed_of(&managed::group_of(number))?;
            let at_least = self.core.transactions.last_offset(number);
            self.core.transactions.offset_seen(number, at_least, seen)?;
            offsets.insert(number, seen);
        }
        self.core.transactions.all_or_nothing(&all, &offsets)
    }

    /// What was decided is written, and what nobody ends is aborted when its time is over.
    fn wait_for_markers(&mut self) -> Result<(), Violation> {
        let deadline = self.core.clock + PATIENCE;
        loop {
            let mut open = None;
            for partition in 0..transactions::PARTITIONS {
                // Who reads learns it; of a log that nobody has used since the start nothing is known.
                let topic = TopicRef::Name(transactions::TOPIC.to_owned());
                let command = fetch_one(topic, partition, Offset::ZERO, 1, Duration::ZERO);
                let part = self.fetch_now(command)?;
                let stable = part.is_some_and(|p| p.last_stable_offset == p.high_watermark);
                if !stable {
                    open = Some(partition);
                }
            }
            let groups = managed::numbers(self.core.swarm.managed);
            let pending = groups
                .map(managed::group_of)
                .find(|group| !self.is_stable(group));
            if open.is_none() && pending.is_none() {
                return Ok(());
            }
            if self.core.clock > deadline {
                return Err(Violation::new(
                    "transactions that have ended hold nothing up",
                    format!("partition {open:?}, group {pending:?} after {PATIENCE:?}"),
                ));
            }
            self.step()?;
        }
    }

    /// Whether no transaction may still change what a group has committed.
    fn is_stable(&self, group: &str) -> bool {
        let answer: Arc<Mutex<Option<StableAnswer>>> = Arc::default();
        let out = Arc::clone(&answer);
        if let Some((node, now)) = self.core.node() {
            let reply = Reply::new(move |answer| *out.lock() = Some(answer));
            node.committed_stable(group, Some(vec![offset_place()]), None, now, reply);
        }
        let answer = answer.lock().take();
        matches!(answer, Some(Ok(each)) if each.iter().all(|(_, found)| found.is_ok()))
    }

    /// What a group of a producer has committed.
    fn committed_of(&mut self, group: &str) -> Result<Option<i64>, Violation> {
        let done: Arc<Mutex<Option<Result<FetchedOffsets, ErrorCode>>>> = Arc::default();
        let out = Arc::clone(&done);
        if let Some((node, now)) = self.core.node() {
            let reply = Reply::new(move |answer| *out.lock() = Some(answer));
            node.committed(group, Some(vec![offset_place()]), None, now, reply);
        }
        while done.lock().is_none() {
            self.step()?;
        }
        let answer = done.lock().take();
        match answer {
            Some(Ok(found)) => {
                let found = found.into_iter().next().and_then(|(_, found)| found);
                Ok(found.map(|c| c.offset.0))
            }
            other => Err(Violation::new(
                "what was committed is there",
                format!("{group}: {other:?}"),
            )),
        }
    }

    /// All that a reader of committed records finds in a partition that transactors have written to.
    fn read_committed(&mut self, partition: i32) -> Result<Vec<(Offset, String)>, Violation> {
        let mut from = Offset::ZERO;
        let mut found = Vec::new();
        loop {
            let topic = TopicRef::Name(transactions::TOPIC.to_owned());
            let mut command = fetch_one(topic, partition, from, 64 << 10, Duration::ZERO);
            command.isolation = Isolation::ReadCommitted;
            let part = self.fetch_now(command)?;
            let Some(part) = part.filter(|p| p.error == ErrorCode::NONE) else {
                return Err(Violation::new(
                    "what was committed is there",
                    format!("partition {partition} at {from}"),
                ));
            };
            if part.last_stable_offset != part.high_watermark {
                let what = format!(
                    "partition {partition}: stable to {} of {}",
                    part.last_stable_offset, part.high_watermark
                );
                return Err(Violation::new(
                    "transactions that have ended hold nothing up",
                    what,
                ));
            }
            let end = part.high_watermark;
            let (values, next) = committed_of(part, from)?;
            found.extend(values);
            if next >= end {
                return Ok(found);
            }
            if next <= from {
                let what = format!("partition {partition} at {from} of {end}");
                return Err(Violation::new("what was committed is there", what));
            }
            from = next;
        }
    }

    /// What a fetch of one partition is answered.
    fn fetch_now(&mut self, command: FetchCommand) -> Result<Option<FetchedPartition>, Violation> {
        let done: Arc<Mutex<Option<FetchAnswer>>> = Arc::default();
        let out = Arc::clone(&done);
        if let Some((node, now)) = self.core.node() {
            node.fetch(
                command,
                now,
                Reply::new(move |answer| *out.lock() = Some(answer)),
            );
        }
        while done.lock().is_none() {
            self.step()?;
        }
        let answer = done.lock().take();
        Ok(answer.into_iter().flat_map(|a| a.partitions).next())
    }

    fn read_whole(&mut self, place: Place) -> Result<(Offset, Vec<(Offset, String)>), Violation> {
        let Some(reference) = self.core.partition(place) else {
            return Err(Violation::new("topics are kept", format!("{place:?}")));
        };
        let Some((node, _)) = self.core.node() else {
            return Ok((Offset::ZERO, Vec::new()));
        };
        let description = node.describe_partition(&reference);
        let mut from = description.log_start_offset;
        let mut found = Vec::new();
        while from < description.high_watermark {
            let Some((next, records)) = self.read_from(place, from)? else {
                return Err(Violation::new(
                    "what was acknowledged is there",
                    format!("{place:?} at {from}"),
                ));
            };
            from = next;
            found.extend(records);
        }
        Ok((description.log_start_offset, found))
    }

    /// What one fetch shows, and where the next one goes on; `None` after an error.
    #[allow(clippy::type_complexity)]
    fn read_from(
        &mut self,
        place: Place,
        from: Offset,
    ) -> Result<Option<(Offset, Vec<(Offset, String)>)>, Violation> {
        let topic = TopicRef::Name(self.core.swarm.topics[place.0].name.clone());
        let command = fetch_one(topic, place.1, from, 64 << 10, Duration::ZERO);
        let part = self.fetch_now(command)?;
        let Some(part) = part.filter(|p| p.error == ErrorCode::NONE && p.records.len > 0) else {
            return Ok(None);
        };
        let next = part.records.next;
        let records = records_of(part.records, from)?;
        let last = records.last().map_or(next, |(offset, _)| *offset + 1);
        Ok(Some((last.max(next), records)))
    }

    /// Damages the disk, then starts. What is damaged may be refused, by the whole node or for a range; it is never shown as
    /// something else.
    pub(crate) fn damage_and_read(&mut self) -> Result<(), Violation> {
        let ending = self.core.swarm.ending;
        if ending == Ending::Nothing {
            return Ok(());
        }
        self.die("to be damaged")?;
        match ending {
            Ending::Nothing => {}
            Ending::Flips => {
                for _ in 0..=self.core.random.below(3) {
                    self.flip();
                }
            }
            Ending::Older => self.put_older(),
            Ending::Replaced => {
                self.core.note("the disk is replaced");
                sometimes(Mark::DiskReplaced);
                self.core.disk = CrashDisk::new(self.core.random.next_u64());
            }
        }
        let places = self.core.watch_no_more();
        let start = |event: &Event| matches!(event, Event::Start);
        self.core.queue.retain(|_, event| !start(event));
        if let Err(refused) = self.core.start_node() {
            self.core.note(format!("refused: {}", refused.what));
            sometimes(Mark::DamageRefused);
            return Ok(());
        }
        let mut skipped = false;
        for place in places {
            let Some((reference, (node, _))) = self.core.partition(place).zip(self.core.node())
            else {
                continue;
            };
            if ending == Ending::Replaced {
                let what = format!("{place:?} is there on a disk that was empty");
                return Err(Violation::new("an empty disk holds nothing", what));
            }
            let seen = node.describe_partition(&reference);
            let mut from = seen.log_start_offset;
            while from < seen.high_watermark {
                match self.read_from(place, from)? {
                    Some((next, records)) => {
                        for (offset, value) in records {
                            self.core.model.read(place, offset, &value)?;
                        }
                        from = next;
                    }
                    None => {
                        skipped = true;
                        from = from + 1;
                    }
                }
            }
        }
        if skipped {
            sometimes(Mark::DamageSkipped);
        }
        Ok(())
    }

    /// One file is what it was earlier in the run, as if a backup of it had been put in its place.
    fn put_older(&mut self) {
        let core = &mut self.core;
        let now = files::contents(&core.disk, core.older.keys().cloned().collect());
        let older = std::mem::take(&mut core.older);
        let mut changed: Vec<_> = older
            .into_iter()
            .filter(|(path, bytes)| now.get(path).is_some_and(|now| now != bytes))
            .collect();
        if changed.is_empty() {
            return;
        }
        let at = core.random.below(changed.len() as u64) as usize;
        let (path, bytes) = changed.swap_remove(at);
        core.note(format_args!("{path} is what it was: {} bytes", bytes.len()));
        // What is there for reading can be written to: nothing fails at this point.
        let _failed = files::put_back(&core.disk, &path, &bytes);
        sometimes(Mark::OlderCopy);
    }

    fn flip(&mut self) {
        let core = &mut self.core;
        let mut all = match core.random.chance(1, 4) {
            true => files::of_volume(&core.disk),
            false => files::of_logs(&core.disk),
        };
        if all.is_empty() {
            return;
        }
        let path = all.swap_remove(core.random.below(all.len() as u64) as usize);
        let file = core.disk.open(&path, OpenMode::Read);
        let len = file.and_then(|file| file.len()).unwrap_or(0);
        let at = core.random.below(len.max(1));
        let mask = 1 << core.random.below(8);
        core.note(format!("byte {at} of {path} flips"));
        let _failed = core.disk.flip(&path, at, mask);
    }
}
