//! In-sync sets that this node asks the controller for, for the partitions that it leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::metadata::{AdminAnswer, AdminCommand, IsrChange};
use riverlog_log::LogKey;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::ErrorCode;

use crate::controller::AdminReply;
use crate::node::Node;
use crate::partition::{Partition, Standing};
use crate::timers::Timer;

/// How soon a change that was refused is looked at again.
const AGAIN: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Changes {
    /// Partitions to look at.
    wanted: BTreeMap<LogKey, Arc<Partition>>,
    /// Something was asked for and not answered.
    asked: bool,
}

impl Node {
    /// A partition's in-sync set may have to change.
    pub(crate) fn change_isr(&self, partition: &Arc<Partition>, now: Now) {
        {
            let mut changes = self.replication.isr.lock();
            changes.wanted.insert(partition.key, partition.clone());
        }
        self.ask_for_isrs(now);
    }

    /// Looks for followers that lag, in all that is led here.
    pub(crate) fn look_after_isrs(&self, now: Now) {
        let max_lag = self.settings.cluster.max_lag;
        {
            let mut wanted = Vec::new();
            for topic in self.tables.all() {
                for partition in topic.led().into_iter().flatten() {
                    let state = partition.state.lock();
                    let replicated = state.replicas > 1;
                    if replicated && !state.leader.lagging(max_lag, now).is_empty() {
                        wanted.push((partition.key, partition.clone()));
                    }
                }
            }
            self.replication.isr.lock().wanted.extend(wanted);
        }
        self.ask_for_isrs(now);
        self.look_after_isrs_at(now.mono + max_lag / 2);
    }

    fn look_after_isrs_at(&self, at: Duration) {
        let (_, first) = self.timers.add(at, Timer::InSync);
        if first {
            self.host.deadline_changed();
        }
    }

    /// One ask at a time, for all that wait.
    pub(crate) fn ask_for_isrs(&self, now: Now) {
        let Some(epoch) = self.membership.broker_epoch() else {
            return;
        };
        let wanted = {
            let mut changes = self.replication.isr.lock();
            if changes.asked || changes.wanted.is_empty() {
                return;
            }
            std::mem::take(&mut changes.wanted)
        };
        let image = self.image.load_full();
        let me = self.settings.broker;
        let is_up = |id, needed| {
            let broker = image.brokers.get(&id)?;
            let takes_part = !broker.fenced && !broker.stopping;
            // An ailing disk holds the others up, which is better than nothing.
            (takes_part && (needed || !broker.ailing)).then_some(broker.epoch)
        };
        let mut changes = Vec::new();
        for (key, partition) in &wanted {
            let mut state = partition.state.lock();
            let state = &mut *state;
            let Standing::Leads(leading) = &mut state.standing else {
                continue;
            };
            if leading.asked || state.log.is_none() {
                continue;
            }
            let max_lag = self.settings.cluster.max_lag;
            let needed = state.leader.isr_len() < state.min_isr;
            let is_up = |id| is_up(id, needed);
            let isr = state.leader.propose_isr((me, epoch), max_lag, now, is_up);
            if let Some(isr) = isr {
                leading.asked = true;
                changes.push(IsrChange {
                    topic: key.topic,
                    index: key.partition.0,
                    leader_epoch: state.leader.epoch,
                    partition_epoch: leading.partition_epoch,
                    isr,
                });
            }
        }
        if changes.is_empty() {
            return;
        }
        self.replication.isr.lock().asked = true;
        let keys = changes.iter().map(|c| LogKey {
            topic: c.topic,
            partition: riverlog_wire::PartitionIndex(c.index),
        });
        let reply = AdminReply::InSync(keys.collect());
        let command = AdminCommand::AlterPartitions {
            broker: me,
            epoch,
            changes,
        };
        self.submit(command, reply, now);
    }

    /// The controller has answered, or hasn't. What it decided comes with metadata.
    pub(crate) fn isrs_answered(
        &self,
        keys: &[LogKey],
        answer: Result<AdminAnswer, ErrorCode>,
        now: Now,
    ) {
        let done = |at: usize| match &answer {
            Ok(AdminAnswer::Results(results)) => {
                results.get(at).is_some_and(|r| r.error == ErrorCode::NONE)
            }
            _ => false,
        };
        let mut again = false;
        for (at, key) in keys.iter().enumerate() {
            let Some(partition) = self.by_key(*key) else {
                continue;
            };
            let mut state = partition.state.lock();
            if let Standing::Leads(leading) = &mut state.standing {
                leading.asked = !done(at) && active(Mutant::AskedForEver);
            }
            drop(state);
            if !done(at) {
                again = true;
                let mut changes = self.replication.isr.lock();
                changes.wanted.insert(*key, partition);
            }
        }
        self.replication.isr.lock().asked = false;
        match again {
            true => {
                let (_, first) = self.timers.add(now.mono + AGAIN, Timer::InSyncAgain);
                if first {
                    self.host.deadline_changed();
                }
            }
            false => self.ask_for_isrs(now),
        }
    }
}
