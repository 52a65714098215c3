//! Appends that belong to a transaction: its coordinator is asked first, unless the partition is part of it already.
//!
//! Clients send several batches before the first is answered, and their sequences only fit in order. So while the coordinator is
//! asked about one batch, those that follow it from the same producer in the same epoch to the same partition wait behind it.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::groups::{GroupAnswer, GroupCommand};
use riverlog_core::transactions::{
    Place, TransactionAnswer, TransactionCommand, TransactionVersion,
};
use riverlog_log::LogKey;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::batch::BatchHeader;
use riverlog_wire::{ErrorCode, Offset, ProducerEpoch, ProducerId};

use crate::append::{Rule, Together};
use crate::command::{AppendAnswer, AppendCommand, AppendFailure, AppendTo, Reply};
use crate::errors::{RETRY_AFTER, batch_code};
use crate::node::{Node, PartitionRef};

type AppendReply = Reply<Result<AppendAnswer, AppendFailure>>;

/// A partition and a producer that writes there, in one of its epochs: when a batch that came late from the epoch before is
/// refused, what the next transaction has sent is not to go with it.
type Lane = (LogKey, ProducerId, ProducerEpoch);

/// Batches that wait for a coordinator, in the order in which they came.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<Lane, VecDeque<Pending>>>);

struct Pending {
    partition: PartitionRef,
    id: String,
    adds: bool,
    command: AppendCommand,
    reply: AppendReply,
}

/// What to do with the batch at the front of a lane.
enum Front {
    Append(Rule),
    Ask(Question),
    Refuse(ErrorCode),
}

/// What the coordinator has to be asked before the batch at the front of a lane can be appended.
struct Question {
    lane: Lane,
    id: String,
    adds: bool,
    place: Place,
    /// Where the partition ended when it was looked at.
    seen: Offset,
}

/// Lanes that wait for one answer, each with where its partition ended before, and the places that are asked about.
#[derive(Default)]
struct Asking {
    lanes: Vec<(Lane, Offset)>,
    places: Vec<Place>,
}

impl Node {
    /// [`Node::append`] of a batch of the transactional producer `id`. `adds`: the partition becomes part of the transaction on the
    /// way (KIP-890); else the client must have added it.
    ///
    /// Besides the errors of an append: what the coordinator says, as INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    /// CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE (the partition isn't part of an open transaction), or that it
    /// can't be asked now.
    pub fn append_in_transaction(
        &self,
        partition: &PartitionRef,
        id: &str,
        adds: bool,
        command: AppendCommand,
        now: Now,
        reply: AppendReply,
    ) {
        let one = AppendTo {
            partition: partition.clone(),
            command,
            reply,
        };
        self.append_all_in_transaction(id, adds, vec![one], now);
    }

    /// [`Node::append_in_transaction`] of batches to several partitions: the coordinator is asked about all of them at once, and one
    /// group commit takes them along.
    pub fn append_all_in_transaction(
        &self,
        id: &str,
        adds: bool,
        batches: Vec<AppendTo>,
        now: Now,
    ) {
        self.saw(now);
        let mut questions = Vec::new();
        let mut together = Together::default();
        for to in batches {
            let AppendTo {
                partition,
                command,
                reply,
            } = to;
            let header = match BatchHeader::parse(&command.batch) {
                Ok(header) => header,
                Err(e) => {
                    let failure = AppendFailure::new(batch_code(&e), e.to_string());
                    reply.send(Err(failure));
                    continue;
                }
            };
            let lane = (partition.0.key, header.producer_id, header.producer_epoch);
            let pending = Pending {
                partition,
                id: id.to_owned(),
                adds,
                command,
                reply,
            };
            if self.enter(lane, pending, now, &mut together) {
                questions.extend(self.go_along(lane, None, now, &mut together));
            }
        }
        self.settle_all(together, now);
        self.ask(questions, now);
    }

    /// Appends a batch that need not wait, or puts it into its lane. True: it is the first one there.
    fn enter(&self, lane: Lane, pending: Pending, now: Now, together: &mut Together) -> bool {
        let waits = self.lanes.0.lock().contains_key(&lane);
        if !waits && let Front::Append(rule) = self.look(&pending, lane) {
            self.append_pending(pending, rule, now, together);
            return false;
        }
        let mut lanes = self.lanes.0.lock();
        let waits = lanes.contains_key(&lane);
        if !self.append_bytes.take(pending.command.batch.len()) {
            drop(lanes);
            let failure = AppendFailure {
                retry_after: Some(RETRY_AFTER),
                ..AppendFailure::new(
                    ErrorCode::THROTTLING_QUOTA_EXCEEDED,
                    "too many bytes wait for transaction coordinators; send the batch again",
                )
            };
            let partition = &pending.partition.0;
            partition.refused(&pending.command.batch, failure.error, now);
            pending.reply.send(Err(failure));
            return false;
        }
        lanes.entry(lane).or_default().push_back(pending);
        !waits
    }

    /// [`Node::group`] with a [`GroupCommand::TxnCommit`] of the transactional producer `id`, whose `verified` this finds out. `adds`: the
    /// group's partition of `__consumer_offsets` becomes part of the transaction on the way (KIP-890); else the client must
    /// have added it. The coordinator's errors come as those of the whole commit.
    pub fn commit_in_transaction(
        &self,
        id: &str,
        adds: bool,
        mut command: GroupCommand,
        now: Now,
        reply: Reply<GroupAnswer>,
    ) {
        let refused =
            |reply: Reply<_>, error| reply.send(GroupAnswer::Partitions(error, Vec::new()));
        let group = command.group().to_owned();
        let GroupCommand::TxnCommit { transaction, .. } = &mut command else {
            return refused(reply, ErrorCode::INVALID_REQUEST);
        };
        let (producer, epoch) = (transaction.producer_id, transaction.producer_epoch);
        let found = self.group_partition(&group, now).and_then(|partition| {
            let open = self.open_transaction(&partition, producer, epoch)?;
            Ok((partition, open))
        });
        let (partition, open) = match found {
            Ok(found) => found,
            Err(error) => return refused(reply, error),
        };
        transaction.verified = open.seen;
        if open.open {
            return self.group(command, now, reply);
        }
        let places = vec![place(&partition)];
        let question = question(id.to_owned(), adds, (producer, epoch), places);
        let (node, id) = (self.this.clone(), id.to_owned());
        let asked = Reply::new(move |answer| match coordinators(&answer, 0) {
            ErrorCode::NONE => {
                let Some(node) = node.upgrade() else { return };
                let now = node.as_of(now);
                match node.ended_since(&partition, producer, open.seen) {
                    true => node.commit_in_transaction(&id, adds, command, now, reply),
                    false => node.group(command, now, reply),
                }
            }
            error => refused(reply, error),
        });
        self.ask_coordinator(question, now, asked);
    }

    /// Appends what can be appended, until the coordinator has to be asked or nothing waits. `asked`: what it said about the
    /// batch at the front, and where the partition ended before.
    fn go_along(
        &self,
        lane: Lane,
        asked: Option<(ErrorCode, Offset)>,
        now: Now,
        together: &mut Together,
    ) -> Option<Question> {
        let mut asked = asked;
        loop {
            let front = {
                let lanes = self.lanes.0.lock();
                let pending = lanes.get(&lane).and_then(VecDeque::front)?;
                match asked.take() {
                    Some((ErrorCode::NONE, seen))
                        if self.ended_since(&pending.partition, lane.1, seen) =>
                    {
                        self.look(pending, lane)
                    }
                    Some((ErrorCode::NONE, seen)) => Front::Append(Rule::Begins(seen)),
                    Some((error, _)) => Front::Refuse(error),
                    None => self.look(pending, lane),
                }
            };
            let decided = match front {
                Front::Ask(question) => return Some(question),
                Front::Append(rule) => Ok(rule),
                Front::Refuse(error) => Err(error),
            };
            let taken: Vec<Pending> = {
                let mut lanes = self.lanes.0.lock();
                let waiting = lanes.get_mut(&lane)?;
                // What follows a batch that was refused doesn't fit behind what is there.
                let count = if decided.is_ok() { 1 } else { waiting.len() };
                waiting.drain(..count).collect()
            };
            for pending in taken {
                self.append_bytes.give(pending.command.batch.len());
                match decided {
                    Ok(rule) => self.append_pending(pending, rule, now, together),
                    Err(error) => {
                        let failure = AppendFailure::new(error, error.message());
                        let partition = &pending.partition.0;
                        partition.refused(&pending.command.batch, error, now);
                        pending.reply.send(Err(failure));
                    }
                }
            }
            // Only now: who comes next must find the lane taken until this batch has its place.
            let mut lanes = self.lanes.0.lock();
            if lanes.get(&lane).is_some_and(VecDeque::is_empty) {
                lanes.remove(&lane);
                return None;
            }
        }
    }

    fn append_pending(&self, pending: Pending, rule: Rule, now: Now, together: &mut Together) {
        let Pending {
            partition,
            command,
            reply,
            ..
        } = pending;
        self.append_batch(&partition.0, command, rule, now, reply, together);
    }

    /// Whether a transaction of the producer was ended in a partition since `seen`. The coordinator lets the next one wait for that
    /// end: its word then is newer than what was seen, and the partition is looked at again.
    fn ended_since(&self, partition: &PartitionRef, producer: ProducerId, seen: Offset) -> bool {
        let state = partition.0.state.lock();
        let log = state.log.as_ref();
        log.is_some_and(|log| log.ended_since(producer, seen).unwrap_or(false))
    }

    fn look(&self, pending: &Pending, lane: Lane) -> Front {
        match self.open_transaction(&pending.partition, lane.1, lane.2) {
            Err(error) => Front::Refuse(error),
            Ok(open) if open.open => Front::Append(Rule::Plain),
            Ok(open) if active(Mutant::CoordinatorNotAsked) => {
                Front::Append(Rule::Begins(open.seen))
            }
            Ok(open) => Front::Ask(Question {
                lane,
                id: pending.id.clone(),
                adds: pending.adds,
                place: place(&pending.partition),
                seen: open.seen,
            }),
        }
    }

    /// Asks coordinators, once for all questions about the same transaction; the lanes go on with what they answer.
    fn ask(&self, questions: Vec<Question>, now: Now) {
        let mut together: BTreeMap<_, Asking> = BTreeMap::new();
        for question in questions {
            let producer = (question.lane.1, question.lane.2);
            let about = (question.id, question.adds, producer);
            let asking = together.entry(about).or_default();
            asking.lanes.push((question.lane, question.seen));
            asking.places.push(question.place);
        }
        for ((id, adds, producer), Asking { lanes, places }) in together {
            let node = self.this.clone();
            let reply = Reply::new(move |answer| {
                let Some(node) = node.upgrade() else { return };
                let now = node.as_of(now);
                let mut together = Together::default();
                let each = lanes.into_iter().enumerate();
                let next = each.filter_map(|(index, (lane, seen))| {
                    let asked = (coordinators(&answer, index), seen);
                    node.go_along(lane, Some(asked), now, &mut together)
                });
                let next = next.collect();
                node.settle_all(together, now);
                node.ask(next, now);
            });
            self.ask_coordinator(question(id, adds, producer, places), now, reply);
        }
    }
}

fn place(partition: &PartitionRef) -> Place {
    (partition.0.topic.name.clone(), partition.index())
}

/// What the coordinator is asked.
fn question(
    id: String,
    adds: bool,
    (producer_id, epoch): (ProducerId, ProducerEpoch),
    partitions: Vec<Place>,
) -> TransactionCommand {
    match adds {
        true => TransactionCommand::Add {
            id,
            producer_id,
            epoch,
            partitions,
            version: TransactionVersion::TWO,
        },
        false => TransactionCommand::Verify {
            id,
            producer_id,
            epoch,
            partitions,
        },
    }
}

/// What it answered about the partition that was asked as number `index`.
fn coordinators(answer: &TransactionAnswer, index: usize) -> ErrorCode {
    match answer {
        TransactionAnswer::Error(error) => *error,
        TransactionAnswer::Partitions(each) => {
            let one = each.get(index).copied();
            one.unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR)
        }
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}
