//! The transaction coordinator, on the shards of `__transaction_state`.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::metadata::MetadataImage;
use riverlog_core::transactions::{
    Decision, Place, Soft, Token, TransactionAnswer, TransactionCommand, TransactionDescription,
    TransactionFilter, TransactionShard, TransactionVersion, WriteMarkers,
};
use riverlog_log::Marker;
use riverlog_wire::{ErrorCode, Offset, ProducerEpoch, ProducerId};

use crate::append::Together;
use crate::command::Reply;
use crate::node::Node;
use crate::partition::State;
use crate::quorum::Quorum;
use crate::shards::{Coordinator, Shard, Shards};
use crate::timers::Timer;

/// The topic that keeps transactional ids.
pub(crate) const TRANSACTIONS_TOPIC: &str = "__transaction_state";

/// How long an answer waits for its decision to become durable, at the least: Kafka's `request.timeout.ms` of brokers. Who is sent to ask again before
/// that is told of the end only when all markers are written.
const PATIENCE: Duration = Duration::from_secs(30);

/// The feature that says which protocol of transactions the cluster speaks.
const FEATURE: &str = "transaction.version";

/// Whether a client gives up, or its transaction, when it is told so.
fn is_final(answer: &TransactionAnswer) -> bool {
    let is_final = |error: &ErrorCode| {
        let all = [
            ErrorCode::PRODUCER_FENCED,
            ErrorCode::INVALID_PRODUCER_ID_MAPPING,
            ErrorCode::INVALID_PRODUCER_EPOCH,
            ErrorCode::INVALID_TXN_STATE,
            ErrorCode::TRANSACTION_ABORTABLE,
        ];
        all.contains(error)
    };
    match answer {
        TransactionAnswer::NeedsProducerId => false,
        TransactionAnswer::Producer { error, .. } | TransactionAnswer::Error(error) => {
            is_final(error)
        }
        TransactionAnswer::Partitions(each) => each.iter().any(is_final),
    }
}

fn level(image: &MetadataImage) -> TransactionVersion {
    TransactionVersion(image.features.get(FEATURE).copied().unwrap_or(0))
}

impl Coordinator for TransactionShard {
    type Command = TransactionCommand;
    type Answer = TransactionAnswer;
    type Soft = Soft;
    type Effect = WriteMarkers;
    /// The command's refusal, with an error to be replaced.
    type Shape = TransactionAnswer;

    const TOPIC: &'static str = TRANSACTIONS_TOPIC;
    const SEGMENT_BYTES_KEY: &'static str = "transaction.state.log.segment.bytes";
    // Half-finished transactions are finished, and those that ran out aborted, whether anybody asks or not.
    const LOADS_AT_ONCE: bool = true;

    fn new(node: &Node) -> Self {
        TransactionShard::new(node.settings.transactions.clone())
    }
    fn shards(node: &Node) -> &ArcSwapOption<Shards<Self>> {
        &node.transactions
    }
    fn partitions(node: &Node) -> i32 {
        node.settings.transactions_partitions
    }
    fn timer(index: i32) -> Timer {
        Timer::Transactions(index)
    }
    fn patience(node: &Node) -> Duration {
        node.settings.commit_timeout.max(PATIENCE)
    }
    fn apply(&mut self, key: &[u8], value: Option<&[u8]>, at: Offset, now: Now) {
        TransactionShard::apply(self, key, value, at, now);
    }
    fn loaded(&mut self, now: Now) {
        TransactionShard::loaded(self, now);
    }
    fn decide(
        &self,
        command: TransactionCommand,
        token: Token,
        image: &MetadataImage,
        now: Now,
    ) -> Decision {
        TransactionShard::decide(self, command, token, level(image), now)
    }
    fn soft(&mut self, change: Soft, now: Now) {
        TransactionShard::soft(self, change, now);
    }
    fn decide_timers(&self, image: &MetadataImage, now: Now) -> Decision {
        TransactionShard::decide_timers(self, level(image), now)
    }
    fn decide_topics_changed(&self, _image: &MetadataImage, _now: Now) -> Decision {
        // What a deleted topic means for a transaction is found out when its markers are written.
        Decision::default()
    }
    fn next_deadline(&self) -> Option<Duration> {
        TransactionShard::next_deadline(self)
    }
    fn hold(&mut self, until: Duration) {
        TransactionShard::hold(self, until);
    }
    fn refuse(shape: TransactionAnswer, error: ErrorCode) -> TransactionAnswer {
        shape.with_error(error)
    }
    fn perform(node: &Node, shard: &Arc<Shard<Self>>, markers: WriteMarkers, now: Now) {
        node.write_markers(shard, markers, now);
    }
}

/// Markers of one transaction that are under way.
struct Writing {
    id: String,
    prepared_at: Offset,
    state: Mutex<Progress>,
}

struct Progress {
    /// Partitions that haven't answered, and one for whoever still asks them.
    open: usize,
    done: Vec<Place>,
}

impl Node {
    /// A command to the coordinator of a transactional id; loads its shard (and makes `__transaction_state`) when needed. While it
    /// loads: COORDINATOR_LOAD_IN_PROGRESS. Never answered with [`TransactionAnswer::NeedsProducerId`].
    pub fn transaction(
        &self,
        mut command: TransactionCommand,
        now: Now,
        reply: Reply<TransactionAnswer>,
    ) {
        self.saw(now);
        let node = self.this.clone();
        let again = command.clone();
        let shape = command.refused(ErrorCode::NONE);
        let first = Reply::new(move |answer| {
            let Some(node) = node.upgrade() else { return };
            if answer != TransactionAnswer::NeedsProducerId {
                return reply.send(node.unless_in_doubt(answer, &command));
            }
            let this = node.clone();
            let fresh = Reply::new(
                move |made: Result<(ProducerId, ProducerEpoch), _>| match made {
                    Ok((id, _)) => {
                        command.set_fresh(id);
                        let shape = command.refused(ErrorCode::NONE);
                        let id = command.id().to_owned();
                        let now = this.as_of(now);
                        let (node, again) = (this.clone(), command.clone());
                        let reply = Reply::new(move |answer| {
                            reply.send(node.unless_in_doubt(answer, &again));
                        });
                        this.coordinate::<TransactionShard>(&id, command, shape, now, reply);
                    }
                    Err(error) => reply.send(command.refused(error)),
                },
            );
            node.new_producer(node.as_of(now), fresh);
        });
        let id = again.id().to_owned();
        self.coordinate::<TransactionShard>(&id, again, shape, now, first);
    }

    /// A refusal that is final for a client goes out when it must be the truth, see [`Doubts::may_refuse`](crate::doubts::Doubts::may_refuse).
    fn unless_in_doubt(
        &self,
        answer: TransactionAnswer,
        command: &TransactionCommand,
    ) -> TransactionAnswer {
        match is_final(&answer) && !self.is_sure(command) {
            true => command.refused(ErrorCode::NOT_COORDINATOR),
            false => answer,
        }
    }

    fn is_sure(&self, command: &TransactionCommand) -> bool {
        if self.settings.quorum == Quorum::Own {
            return true;
        }
        let shards = self.transactions.load_full();
        let Some(shard) = shards.as_ref().and_then(|s| s.of(command.id())) else {
            return true;
        };
        let now = self.latest();
        let mut state = shard.partition.state.lock();
        let State { doubts, leader, .. } = &mut *state;
        doubts.may_refuse(command, leader, now)
    }

    /// Transactions that fit a filter, in order of their ids; COORDINATOR_LOAD_IN_PROGRESS while some aren't known.
    pub fn transactions(
        &self,
        filter: &TransactionFilter,
        now: Now,
    ) -> Result<Vec<TransactionDescription>, ErrorCode> {
        self.saw(now);
        let Some(shards) = self.transactions.load_full() else {
            return Ok(Vec::new());
        };
        let mut missing = None;
        // In a cluster each node tells of those that it coordinates.
        let alone = self.settings.quorum == Quorum::Own;
        if alone && shards.shards.iter().any(Option::is_none) {
            missing = Some(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        let mut all = Vec::new();
        for shard in shards.open() {
            let looked = shard.state.lock().ready().map(|s| s.list(filter, now));
            match looked {
                Ok(some) => all.extend(some),
                Err(error) => {
                    missing = Some(error);
                    self.load_shard(shard, now);
                }
            }
        }
        if let Some(error) = missing {
            return Err(error);
        }
        all.sort_by(|a: &TransactionDescription, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// One transactional id; TRANSACTIONAL_ID_NOT_FOUND.
    pub fn describe_transaction(
        &self,
        id: &str,
        now: Now,
        reply: Reply<Result<TransactionDescription, ErrorCode>>,
    ) {
        self.saw(now);
        let Some(shards) = self.transactions.load_full() else {
            return reply.send(Err(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND));
        };
        match shards.of(id) {
            Some(shard) => self.shard_question(shard, now, reply, |s| s.describe(id)),
            None => reply.send(Err(self.coordinates_not())),
        }
    }

    /// Writes the markers of a decided transaction, and tells the shard once all partitions have answered.
    fn write_markers(&self, shard: &Arc<Shard<TransactionShard>>, markers: WriteMarkers, now: Now) {
        let coordinator_epoch = shard.partition.state.lock().leader.epoch.0;
        let writing = Arc::new(Writing {
            id: markers.id,
            prepared_at: markers.prepared_at,
            state: Mutex::new(Progress {
                open: 1 + markers.partitions.len(),
                done: Vec::new(),
            }),
        });
        let mut together = Together::default();
        for place in markers.partitions {
            let marker = Marker {
                producer_id: markers.producer_id,
                producer_epoch: markers.epoch,
                coordinator_epoch,
                transaction_version: markers.version.0,
                committed: markers.commit,
            };
            let (node, shard, writing) = (self.this.clone(), shard.clone(), writing.clone());
            let at = place.clone();
            let reply = Reply::new(move |answer| {
                if let Some(node) = node.upgrade() {
                    let now = node.as_of(now);
                    node.marker_answered(&shard, &writing, place, answer, now);
                }
            });
            self.write_marker_at_leader(&at, marker, now, reply, &mut together);
        }
        self.settle_all(together, now);
        self.markers_counted(shard, &writing, now);
    }

    fn marker_answered(
        &self,
        shard: &Arc<Shard<TransactionShard>>,
        writing: &Writing,
        place: Place,
        answer: Result<(), ErrorCode>,
        now: Now,
    ) {
        // With the topic its part of the transaction is gone; and where a later epoch was, nothing is open any more.
        let done = match answer {
            Ok(())
            | Err(
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                | ErrorCode::INVALID_PRODUCER_EPOCH
                | ErrorCode::TRANSACTION_COORDINATOR_FENCED,
            ) => true,
            Err(_) => false,
        };
        if done {
            writing.state.lock().done.push(place);
        }
        self.markers_counted(shard, writing, now);
    }

    fn markers_counted(&self, shard: &Arc<Shard<TransactionShard>>, writing: &Writing, now: Now) {
        let done = {
            let mut progress = writing.state.lock();
            progress.open -= 1;
            if progress.open > 0 {
                return;
            }
            std::mem::take(&mut progress.done)
        };
        let command = TransactionCommand::MarkersWritten {
            id: writing.id.clone(),
            prepared_at: writing.prepared_at,
            done,
        };
        self.shard_event(shard, command, now);
    }
}
