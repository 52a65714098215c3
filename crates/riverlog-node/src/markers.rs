//! Transactions as a partition's leader sees them: batches that may begin one, and the markers that end them.

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::groups::{GroupShard, InTransaction};
use riverlog_log::{Appended, Marker};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::append::{Ack, Rule, Together};
use crate::command::{AppendAnswer, AppendCommand, AppendFailure, Reply};
use crate::errors::append_failure;
use crate::node::{Node, PartitionRef};
use crate::partition::{Owed, Partition, Role, State};

/// How long a marker waits for the in-sync replicas before its coordinator is told to try again.
const PATIENCE: Duration = Duration::from_secs(30);

/// What [`Node::open_transaction`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The producer has a transaction open there, of that epoch: a batch may go on with it without asking its coordinator.
    pub open: bool,
    /// Where the partition ended when it was looked at. Goes along with [`Node::append_transactional`], so that a batch
    /// isn't appended when the transaction has ended between the coordinator's answer and the append.
    pub seen: Offset,
}

impl Node {
    /// The partition of `__consumer_offsets` that keeps a group's offsets: the one that a producer's transaction must know of
    /// before it commits offsets of the group ([`Node::open_transaction`]). COORDINATOR_LOAD_IN_PROGRESS while the topic is
    /// being made, COORDINATOR_NOT_AVAILABLE.
    pub fn group_partition(&self, group: &str, now: Now) -> Result<PartitionRef, ErrorCode> {
        self.saw(now);
        self.partition_of_group(group, now).map(PartitionRef)
    }

    /// Whether a producer has a transaction open in a partition, so that the coordinator need not be asked whether the
    /// partition is part of it. To be asked before the coordinator is. UNKNOWN_TOPIC_OR_PARTITION when the topic was deleted,
    /// KAFKA_STORAGE_ERROR when the log can't be read.
    pub fn open_transaction(
        &self,
        partition: &PartitionRef,
        producer: ProducerId,
        epoch: ProducerEpoch,
    ) -> Result<OpenTransaction, ErrorCode> {
        let state = partition.0.state.lock();
        state.check_epoch(LeaderEpoch::NONE)?;
        let log = state
            .log
            .as_ref()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        Ok(OpenTransaction {
            open: log
                .is_in_transaction(producer, epoch)
                .map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR)?,
            seen: log.log_end_offset(),
        })
    }

    /// [`Node::append`] of a batch that may begin a transaction here: its coordinator has answered that the partition is part
    /// of the transaction, and was asked after [`Node::open_transaction`] had answered `seen`. With a plain
    /// [`Node::append`] a transactional batch can only go on with a transaction that is open.
    ///
    /// INVALID_TXN_STATE when the transaction was ended here since `seen`, or when one of an earlier epoch is still open.
    pub fn append_transactional(
        &self,
        partition: &PartitionRef,
        command: AppendCommand,
        seen: Offset,
        now: Now,
        reply: Reply<Result<AppendAnswer, AppendFailure>>,
    ) {
        self.append_one(&partition.0, command, Rule::Begins(seen), now, reply);
    }

    /// Ends a producer's transaction in a partition; answers once the marker is as durable as acks=all asks for. To be
    /// repeated until it is answered NONE: a marker that is here already is not written again.
    ///
    /// - INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: a later one was here; repeating changes nothing.
    /// - UNKNOWN_TOPIC_OR_PARTITION: the topic was deleted, and the transaction with it.
    /// - NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR, COORDINATOR_LOAD_IN_PROGRESS
    ///   (of a partition of `__consumer_offsets`), THROTTLING_QUOTA_EXCEEDED: to be tried again.
    pub fn write_marker(
        &self,
        partition: &PartitionRef,
        marker: Marker,
        now: Now,
        reply: Reply<Result<(), ErrorCode>>,
    ) {
        self.saw(now);
        let mut together = Together::default();
        self.append_marker(&partition.0, &marker, now, reply, &mut together);
        self.settle_all(together, now);
    }

    /// [`Node::write_marker`] as one of several; the rest is for [`Node::settle_all`].
    pub(crate) fn append_marker(
        &self,
        partition: &Arc<Partition>,
        marker: &Marker,
        now: Now,
        reply: Reply<Result<(), ErrorCode>>,
        together: &mut Together,
    ) {
        if self.is_closing() {
            return reply.send(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
        if !self.is_registered() {
            return reply.send(Err(ErrorCode::KAFKA_STORAGE_ERROR));
        }
        let ack = marker_ack(reply);
        if let Role::Offsets(index) = partition.role
            && let Some(shard) = self.shard::<GroupShard>(index)
        {
            return self.shard_marker(&shard, marker, ack, now);
        }
        let mut owed = Owed::default();
        partition
            .state
            .lock()
            .append_marker(marker, ack, now, &mut owed);
        together.push(partition, owed);
    }
}

/// The other end of a marker. It counts nothing in the budget: what it ends must not wait for what it frees.
fn marker_ack(reply: Reply<Result<(), ErrorCode>>) -> Ack {
    Ack::free(Reply::new(
        move |answer: Result<AppendAnswer, AppendFailure>| {
            reply.send(answer.map(|_| ()).map_err(|failure| failure.error));
        },
    ))
}

impl State {
    /// Appends a marker, and answers when the high watermark has passed it. Also where a bound says that the partition is
    /// full: a transaction that can't end would keep it so.
    ///
    /// Returns what was appended, unless it was there already.
    pub(crate) fn append_marker(
        &mut self,
        marker: &Marker,
        ack: Ack,
        now: Now,
        owed: &mut Owed,
    ) -> Option<Appended> {
        if let Err(failure) = self.may_append(-1) {
            owed.acks.push((ack, Err(failure)));
            return None;
        }
        let epoch = self.leader.epoch;
        match self.log.as_mut()?.append_marker(marker, epoch, now.wall_ms) {
            Err(error) => {
                owed.acks.push((ack, Err(append_failure(&error))));
                None
            }
            Ok(appended) => {
                let deadline = now.mono.saturating_add(PATIENCE);
                let acks = if active(Mutant::MarkerNotSynced) {
                    0
                } else {
                    -1
                };
                self.appended(appended, MARKER_BYTES, true, acks, deadline, ack, owed);
                (!appended.duplicate).then_some(appended)
            }
        }
    }

    /// Whether records of the node's own may be appended as part of a transaction.
    pub(crate) fn may_go_on(&self, transaction: &InTransaction) -> Result<(), ErrorCode> {
        let log = self.log.as_ref().filter(|_| self.leads());
        let log = log.ok_or(ErrorCode::NOT_COORDINATOR)?;
        log.may_append_in_transaction(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.verified,
        )
        .map_err(|error| append_failure(&error).error)
    }
}

/// Bytes of a control batch.
const MARKER_BYTES: usize = 78;
