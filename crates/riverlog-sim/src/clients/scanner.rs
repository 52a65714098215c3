//! Reads a partition of the compacted topic from its first record to its end, over and over.

use std::time::Duration;

use riverlog_core::metadata::TopicRef;
use riverlog_log::LogKey;
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::FetchedPartition;
use riverlog_wire::{ErrorCode, Offset, PartitionIndex};

use crate::files;
use crate::keyed::{ID, Keyed, PARTITIONS, Pass, TOPIC, entries_of};
use crate::model::Violation;
use crate::world::{Core, Outcome, fetch_one};

#[derive(Debug, Default)]
pub(crate) struct Scanner {
    pub(crate) waits: bool,
    pub(crate) progress: u64,
    partition: i32,
    /// Where it is; `None` before it begins.
    at: Option<Offset>,
    began: Duration,
    pass: Pass,
    /// The life of the node in which it last looked at the files.
    looked_in: u64,
}

impl Scanner {
    pub(crate) fn step(&mut self, core: &mut Core, me: usize) -> Result<(), Violation> {
        let from = match self.at {
            Some(at) => at,
            None => {
                let topic = TopicRef::Name(TOPIC.to_owned());
                let found = core.node().map(|(node, _)| {
                    let reference = node.partition(&topic, self.partition)?;
                    Ok::<_, ErrorCode>(node.describe_partition(&reference).log_start_offset)
                });
                let Some(Ok(start)) = found else {
                    return Ok(());
                };
                self.look_at_files(core)?;
                self.began = core.clock;
                self.pass = core.keyed.begin(self.partition);
                self.at = Some(start);
                start
            }
        };
        let bytes = match core.healing {
            true => 64 << 10,
            false => 1 + core.random.below(1_500) as usize,
        };
        let topic = TopicRef::Name(TOPIC.to_owned());
        let command = fetch_one(topic, self.partition, from, bytes, Duration::ZERO);
        self.waits = true;
        core.ask(me, Outcome::Fetch, move |node, now, reply| {
            node.fetch(command, now, reply);
        });
        Ok(())
    }

    /// Once in each life of the node, with the log open: recovery has done what a crash left of replacing segments.
    fn look_at_files(&mut self, core: &mut Core) -> Result<(), Violation> {
        // A fault that is to meet the node once is not for this.
        if core.faulty || self.looked_in == core.life {
            return Ok(());
        }
        self.looked_in = core.life;
        core.model.checked += 1;
        let log = |partition| LogKey {
            topic: ID,
            partition: PartitionIndex(partition),
        };
        let mut folders = (0..PARTITIONS).map(|partition| log(partition).folder());
        match folders.find_map(|dir| files::overlap(&core.disk, &dir)) {
            Some(what) => Err(Violation::new("no offset is in two segments", what)),
            None => Ok(()),
        }
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        let Outcome::Fetch(answer) = outcome else {
            return Ok(());
        };
        match answer.partitions.into_iter().next() {
            Some(part) if part.error == ErrorCode::NONE => self.fetched(core, part),
            // Retention was faster.
            Some(part) if part.error == ErrorCode::OFFSET_OUT_OF_RANGE => {
                self.at = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fetched(&mut self, core: &mut Core, part: FetchedPartition) -> Result<(), Violation> {
        let Some(from) = self.at else {
            return Ok(());
        };
        let (start, end) = (part.log_start_offset, part.high_watermark);
        let next = part.records.next;
        // The disk failed before the answer was out.
        let Ok(bytes) = part.records.into_bytes() else {
            return Ok(());
        };
        if from < end && next <= from {
            let what = format!("partition {}: at {from} of {end}", self.partition);
            return Err(Violation::new("readers always reach the end", what));
        }
        for (offset, entry) in entries_of(&bytes)? {
            if offset >= from.0 {
                core.model.checked += 1;
                core.keyed
                    .read(&mut self.pass, self.partition, offset, entry)?;
            }
        }
        let next = next.max(from);
        self.at = Some(next);
        if next < end {
            return Ok(());
        }
        let Some(plan) = core.swarm.keyed else {
            return Ok(());
        };
        let took = core.clock.saturating_sub(self.began);
        let quick = took < Duration::from_millis(plan.tombstones_ms) && core.swarm.clock == 0;
        core.note(format_args!(
            "scanned {} to {next}, {} records",
            self.partition,
            self.pass.len()
        ));
        core.show(format_args!("{:?}", self.pass));
        if core
            .keyed
            .ended(&self.pass, self.partition, start.0, plan, quick)?
        {
            sometimes(Mark::TombstoneGone);
        }
        // A log that recovery has cut is compacted from the next upkeep on, which may be as far away as the end.
        let soon = core.swarm.settings.retention_check_ms < 30_000;
        if !soon || Keyed::is_clean(&self.pass, plan) {
            self.progress += 1;
        } else if core.healing {
            // Until the cleaner has caught up there is no progress.
            self.progress = 0;
            core.back_off = true;
        }
        self.partition = (self.partition + 1) % PARTITIONS;
        self.at = None;
        Ok(())
    }
}
