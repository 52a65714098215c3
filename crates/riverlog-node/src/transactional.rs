//! Appends that belong to a transaction: its coordinator is asked first, unless the partition is part of it already.
//!
//! Clients send several batches before the first is answered, and their sequences only fit in order. So while the coordinator is
//! asked about one batch, those that follow it from the same producer to the same partition wait behind it.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::groups::{GroupAnswer, GroupCommand};
use riverlog_core::transactions::{TransactionAnswer, TransactionCommand, TransactionVersion};
use riverlog_log::LogKey;
use riverlog_mutants::{Mutant, active};
use riverlog_wire::batch::BatchHeader;
use riverlog_wire::{ErrorCode, Offset, ProducerEpoch, ProducerId};

use crate::append::Rule;
use crate::command::{AppendAnswer, AppendCommand, AppendFailure, Reply};
use crate::errors::{RETRY_AFTER, batch_code};
use crate::node::{Node, PartitionRef};

type AppendReply = Reply<Result<AppendAnswer, AppendFailure>>;

/// A partition and a producer that writes there.
type Lane = (LogKey, ProducerId);

/// Batches that wait for a coordinator, in the order in which they came.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<Lane, VecDeque<Pending>>>);

struct Pending {
    partition: PartitionRef,
    id: String,
    adds: bool,
    epoch: ProducerEpoch,
    command: AppendCommand,
    reply: AppendReply,
}

/// What to do with the batch at the front of a lane.
enum Front {
    Append(Rule),
    Ask(TransactionCommand, Offset),
    Refuse(ErrorCode),
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
        self.saw(now);
        let header = match BatchHeader::parse(&command.batch) {
            Ok(header) => header,
            Err(e) => {
                let failure = AppendFailure::new(batch_code(&e), e.to_string());
                return reply.send(Err(failure));
            }
        };
        let bytes = command.batch.len();
        let lane = (partition.0.key, header.producer_id);
        let pending = Pending {
            partition: partition.clone(),
            id: id.to_owned(),
            adds,
            epoch: header.producer_epoch,
            command,
            reply,
        };
        let waits = self.lanes.0.lock().contains_key(&lane);
        if !waits && let Front::Append(rule) = self.look(&pending, lane.1) {
            return self.append_batch(&partition.0, pending.command, rule, now, pending.reply);
        }
        let is_first = {
            let mut lanes = self.lanes.0.lock();
            let waits = lanes.contains_key(&lane);
            if !self.append_bytes.take(bytes) {
                drop(lanes);
                return pending.reply.send(Err(AppendFailure {
                    retry_after: Some(RETRY_AFTER),
                    ..AppendFailure::new(
                        ErrorCode::THROTTLING_QUOTA_EXCEEDED,
                        "too many bytes wait for transaction coordinators; send the batch again",
                    )
                }));
            }
            lanes.entry(lane).or_default().push_back(pending);
            !waits
        };
        if is_first {
            self.go_along(lane, None, now);
        }
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
        let question = question(&partition, id, adds, producer, epoch);
        let (node, id) = (self.this.clone(), id.to_owned());
        let asked = Reply::new(move |answer| match coordinators(answer) {
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
    fn go_along(&self, lane: Lane, asked: Option<(ErrorCode, Offset)>, now: Now) {
        let mut asked = asked;
        loop {
            let front = {
                let lanes = self.lanes.0.lock();
                let Some(pending) = lanes.get(&lane).and_then(VecDeque::front) else {
                    return;
                };
                match asked.take() {
                    Some((ErrorCode::NONE, seen))
                        if self.ended_since(&pending.partition, lane.1, seen) =>
                    {
                        self.look(pending, lane.1)
                    }
                    Some((ErrorCode::NONE, seen)) => Front::Append(Rule::Begins(seen)),
                    Some((error, _)) => Front::Refuse(error),
                    None => self.look(pending, lane.1),
                }
            };
            if let Front::Ask(command, seen) = front {
                return self.ask(lane, command, seen, now);
            }
            let taken: Vec<Pending> = {
                let mut lanes = self.lanes.0.lock();
                let Some(waiting) = lanes.get_mut(&lane) else {
                    return;
                };
                // What follows a batch that was refused doesn't fit behind what is there.
                let count = match front {
                    Front::Refuse(_) => waiting.len(),
                    _ => 1,
                };
                waiting.drain(..count).collect()
            };
            for pending in taken {
                self.append_bytes.give(pending.command.batch.len());
                match front {
                    Front::Append(rule) => {
                        let (partition, command) = (&pending.partition.0, pending.command);
                        self.append_batch(partition, command, rule, now, pending.reply);
                    }
                    Front::Refuse(error) => {
                        let failure = AppendFailure::new(error, error.message());
                        pending.reply.send(Err(failure));
                    }
                    Front::Ask(..) => {}
                }
            }
            // Only now: who comes next must find the lane taken until this batch has its place.
            let mut lanes = self.lanes.0.lock();
            if lanes.get(&lane).is_some_and(VecDeque::is_empty) {
                lanes.remove(&lane);
                return;
            }
        }
    }

    /// Whether a transaction of the producer was ended in a partition since `seen`. The coordinator lets the next one wait for that
    /// end: its word then is newer than what was seen, and the partition is looked at again.
    fn ended_since(&self, partition: &PartitionRef, producer: ProducerId, seen: Offset) -> bool {
        let state = partition.0.state.lock();
        let log = state.log.as_ref();
        log.is_some_and(|log| log.ended_since(producer, seen).unwrap_or(false))
    }

    fn look(&self, pending: &Pending, producer: ProducerId) -> Front {
        match self.open_transaction(&pending.partition, producer, pending.epoch) {
            Err(error) => Front::Refuse(error),
            Ok(open) if open.open => Front::Append(Rule::Plain),
            Ok(open) if active(Mutant::CoordinatorNotAsked) => {
                Front::Append(Rule::Begins(open.seen))
            }
            Ok(open) => {
                let Pending {
                    partition,
                    id,
                    adds,
                    epoch,
                    ..
                } = pending;
                Front::Ask(question(partition, id, *adds, producer, *epoch), open.seen)
            }
        }
    }

    fn ask(&self, lane: Lane, command: TransactionCommand, seen: Offset, now: Now) {
        let node = self.this.clone();
        let reply = Reply::new(move |answer| {
            let error = coordinators(answer);
            if let Some(node) = node.upgrade() {
                node.go_along(lane, Some((error, seen)), node.as_of(now));
            }
        });
        self.ask_coordinator(command, now, reply);
    }
}

/// What the coordinator is asked.
fn question(
    partition: &PartitionRef,
    id: &str,
    adds: bool,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
) -> TransactionCommand {
    let partitions = vec![(partition.0.topic.name.clone(), partition.index())];
    let id = id.to_owned();
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

/// What it answered.
fn coordinators(answer: TransactionAnswer) -> ErrorCode {
    match answer {
        TransactionAnswer::Error(error) => error,
        TransactionAnswer::Partitions(each) => {
            let first = each.first().copied();
            first.unwrap_or(ErrorCode::UNKNOWN_SERVER_ERROR)
        }
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}
