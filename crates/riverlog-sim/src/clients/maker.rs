//! Makes a topic, writes to it, deletes it, and makes it anew under the same name: nothing of the earlier one is ever seen.

use std::time::Duration;

use riverlog_core::metadata::{AdminAnswer, AdminCommand, NewTopic, TopicRef};
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::AppendCommand;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, Offset, TopicId};

use super::records_of;
use crate::model::Violation;
use crate::world::{Core, Outcome, fetch_one};

const NAME: &str = "made-anew";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Make,
    /// So many batches.
    Write(u64),
    Read,
    Delete,
}

#[derive(Debug, Default)]
pub(crate) struct Maker {
    pub(crate) waits: bool,
    pub(crate) progress: u64,
    next: Next,
    /// Counts the topics of that name.
    generation: u64,
    /// What was asked last may have happened though no answer came.
    unsure: bool,
}

impl Maker {
    pub(crate) fn step(&mut self, core: &mut Core, me: usize) -> Result<(), Violation> {
        let Some((node, now)) = core.node() else {
            return Ok(());
        };
        // A change of metadata is durable when it is answered.
        let exists = node.image().topic(NAME).is_some();
        let expected = self.next != Next::Make;
        if exists != expected && !self.unsure {
            let what = format!("{NAME}, generation {}, exists: {exists}", self.generation);
            return Err(Violation::new("topics are made and deleted for good", what));
        }
        // In the end it has done enough some time.
        if core.healing && self.progress >= 3 {
            return Ok(());
        }
        match self.next {
            Next::Make => {
                self.waits = true;
                let topic = NewTopic {
                    name: NAME.to_owned(),
                    partitions: 1 + core.random.below(2) as i32,
                    replication_factor: 1,
                    id: TopicId(u128::from(core.random.next_u64()).to_be_bytes()),
                    ..NewTopic::default()
                };
                let command = AdminCommand::CreateTopics {
                    topics: vec![topic],
                    validate_only: false,
                };
                core.note("a topic is made");
                core.ask(me, Outcome::Admin, move |node, now, reply| {
                    node.admin(command, now, reply);
                });
            }
            Next::Write(left) => {
                let Ok(reference) = node.partition(&TopicRef::Name(NAME.to_owned()), 0) else {
                    return Ok(());
                };
                self.waits = true;
                let mut batch = BatchBuilder::new(Compression::None);
                let value = format!("{}-{left}", self.generation);
                batch.push(now.wall_ms, None, Some(value.as_bytes()), &[]);
                let command = AppendCommand {
                    batch: batch.build(),
                    acks: -1,
                    timeout: Duration::from_secs(5),
                };
                core.ask(me, Outcome::Append, move |node, now, reply| {
                    node.append(&reference, command, now, reply);
                });
            }
            Next::Read => {
                self.waits = true;
                let topic = TopicRef::Name(NAME.to_owned());
                let command = fetch_one(topic, 0, Offset(0), 1 << 20, Duration::ZERO);
                core.ask(me, Outcome::Fetch, move |node, now, reply| {
                    node.fetch(command, now, reply);
                });
            }
            Next::Delete => {
                self.waits = true;
                let topics = vec![TopicRef::Name(NAME.to_owned())];
                core.note("the topic is deleted");
                core.ask(me, Outcome::Admin, move |node, now, reply| {
                    node.admin(AdminCommand::DeleteTopics { topics }, now, reply);
                });
            }
        }
        Ok(())
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        match (self.next, outcome) {
            (Next::Make | Next::Delete, Outcome::Admin(answer)) => self.changed(core, answer),
            (Next::Write(left), Outcome::Append(Ok(_))) => {
                self.next = match left {
                    0 => Next::Read,
                    left => Next::Write(left - 1),
                };
            }
            (Next::Read, Outcome::Fetch(answer)) => {
                for part in answer.partitions {
                    if part.error != ErrorCode::NONE {
                        continue;
                    }
                    for (offset, value) in records_of(part.records, Offset(0))? {
                        if value.split('-').next() != Some(&self.generation.to_string()) {
                            let what = format!(
                                "{NAME}, generation {}, shows {value:?} at {offset}",
                                self.generation
                            );
                            return Err(Violation::new("deleted topics don't come back", what));
                        }
                    }
                    self.next = Next::Delete;
                }
            }
            (Next::Make | Next::Delete, _) => self.unsure = true,
            _ => core.back_off = true,
        }
        Ok(())
    }

    fn changed(&mut self, core: &mut Core, answer: Result<AdminAnswer, ErrorCode>) {
        let error = match answer {
            Ok(AdminAnswer::Results(results)) => results.first().map(|r| r.error),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        let done = match (self.next, error) {
            (_, Some(ErrorCode::NONE)) => true,
            // What was sent before had happened.
            (Next::Make, Some(ErrorCode::TOPIC_ALREADY_EXISTS)) => self.unsure,
            (Next::Delete, Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)) => self.unsure,
            _ => false,
        };
        if !done {
            self.unsure = true;
            core.back_off = true;
            return;
        }
        self.unsure = false;
        self.progress += 1;
        match self.next {
            Next::Delete => {
                self.generation += 1;
                self.next = Next::Make;
                sometimes(Mark::TopicDeleted);
            }
            _ => self.next = Next::Write(core.random.below(4)),
        }
    }
}
