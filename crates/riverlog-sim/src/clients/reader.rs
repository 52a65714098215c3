//! Reads what transactors have committed, and asks for their groups' offsets.

use std::time::Duration;

use riverlog_checker::What;
use riverlog_core::metadata::TopicRef;
use riverlog_node::Isolation;
use riverlog_wire::{ErrorCode, Offset};

use super::transactor::{group_of, offset_place};
use crate::history::{nanos, transactional};
use crate::model::Violation;
use crate::transactions::{PARTITIONS, TOPIC, committed_of, is_managed};
use crate::world::{Core, Outcome, fetch_one};

/// Its name in the history.
const NAME: &str = "reader";

/// What is under way.
#[derive(Debug)]
enum Asked {
    Poll(i32),
    /// Whose offset, and what was committed when it was asked for.
    Offset(usize, Option<i64>),
}

#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) waits: bool,
    pub(crate) progress: u64,
    transactors: usize,
    next: Vec<Offset>,
    /// When it was asked.
    since: Duration,
    asked: Option<Asked>,
}

impl Reader {
    pub(crate) fn new(transactors: usize) -> Reader {
        Reader {
            waits: false,
            progress: 0,
            transactors,
            next: vec![Offset::ZERO; PARTITIONS as usize],
            since: Duration::ZERO,
            asked: None,
        }
    }

    /// What the history has to know of it first.
    pub(crate) fn open(&self, core: &mut Core) {
        let open = What::Open {
            idempotent: false,
            retries: false,
            group: None,
            read_committed: true,
        };
        let places = (0..PARTITIONS).map(transactional).collect();
        core.history.note(core.clock, NAME, open);
        core.history.note(core.clock, NAME, What::Assign { places });
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        if self.transactors > 0 && core.random.chance(1, 4) {
            let whose = core.random.below(self.transactors as u64) as usize;
            let known = core.transactions.last_offset(whose);
            let asked = Some(vec![offset_place()]);
            let stable = core.random.chance(1, 2);
            let Some((node, now)) = core.operate() else {
                return;
            };
            self.waits = true;
            self.asked = Some(Asked::Offset(whose, known));
            let group = group_of(whose);
            return match stable {
                true => {
                    let reply = core.reply(me, Outcome::Stable);
                    node.committed_stable(&group, asked, None, now, reply);
                }
                false => {
                    let reply = core.reply(me, Outcome::Committed);
                    node.committed(&group, asked, None, now, reply);
                }
            };
        }
        let partition = core.random.below(PARTITIONS as u64) as i32;
        let from = self.next[partition as usize];
        let max_bytes = 1 + core.random.below(2_000) as usize;
        let topic = TopicRef::Name(TOPIC.to_owned());
        let wait = Duration::from_millis(core.random.below(100));
        let mut command = fetch_one(topic, partition, from, max_bytes, wait);
        command.isolation = Isolation::ReadCommitted;
        if let Some((node, now)) = core.operate() {
            self.waits = true;
            self.since = now.mono;
            self.asked = Some(Asked::Poll(partition));
            node.fetch(command, now, core.reply(me, Outcome::Fetch));
        }
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        let Some(asked) = self.asked.take() else {
            return Ok(());
        };
        match (asked, outcome) {
            (Asked::Poll(partition), Outcome::Fetch(answer)) => {
                let Some(part) = answer.partitions.into_iter().next() else {
                    return Ok(());
                };
                if part.error != ErrorCode::NONE {
                    return Ok(());
                }
                let from = self.next[partition as usize];
                let (values, next) = committed_of(part, from)?;
                let there = transactional(partition);
                if core.history.is_on() {
                    let records = values
                        .iter()
                        .filter(|(_, v)| !is_managed(v))
                        .map(|(o, v)| (there.clone(), o.0, v.clone()))
                        .collect();
                    let since = nanos(self.since);
                    let what = What::Poll {
                        since,
                        records,
                        txn: None,
                    };
                    core.history.note(core.clock, NAME, what);
                }
                for (_, value) in &values {
                    core.note(format_args!("reads committed {value} in {partition}"));
                    core.model.checked += 1;
                    core.transactions.seen(value)?;
                }
                self.next[partition as usize] = next;
                self.progress += 1;
            }
            (Asked::Offset(whose, at_least), Outcome::Stable(Ok(found))) => {
                if let Some((_, Ok(found))) = found.into_iter().next() {
                    let seen = found.map(|c| c.offset.0);
                    core.transactions.offset_seen(whose, at_least, seen)?;
                }
            }
            (Asked::Offset(whose, at_least), Outcome::Committed(Ok(found))) => {
                let found = found.into_iter().next().and_then(|(_, found)| found);
                let seen = found.map(|c| c.offset.0);
                core.transactions.offset_seen(whose, at_least, seen)?;
            }
            _ => {}
        }
        Ok(())
    }
}
