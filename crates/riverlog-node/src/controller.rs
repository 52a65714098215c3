//! The controller: commands are decided in order, their records committed as one entry, and answered once that is applied here.
//! One entry is in flight at a time.
//!
//! A node alone appends them to its own metadata log, as one batch, which is committed once it is durable. Behind a shared
//! quorum they go out as a proposal, see [`crate::quorum`]; where the quorum isn't led, commands go to the node where it is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::metadata::{
    AdminAnswer, AdminCommand, BrokerImage, ControllerSettings, MetadataImage, MetadataRecord,
    Sessions, decide,
};
use riverlog_log::{Log, LogKey};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{BrokerId, ErrorCode, Offset};

use crate::command::Reply;
use crate::node::Node;
use crate::partition::{Owed, Partition};
use crate::quorum::{Quorum, Seat};
use crate::rebalance::Looked;

/// Commands that may wait for the batch in flight.
const QUEUED: usize = 10_000;

/// Bytes of records after which a batch ends. One decision stays in one batch, unless it may be cut into several: a registration,
/// whose records say the same when they are written again.
const BATCH_BYTES: usize = 1 << 20;

/// Bytes of the records of one decision: more would not come through to the other voters in one message, ever.
const DECISION_BYTES: usize = 32 << 20;

/// Records that the metadata log may have in excess of those that are needed (and of twice as many as are needed).
const SNAPSHOT_AFTER: i64 = 10_000;

/// Who gets the answer.
pub(crate) enum AdminReply {
    Client(Reply<Result<AdminAnswer, ErrorCode>>),
    /// The pool of producer ids.
    ProducerIds,
    /// This node's registration.
    Registered,
    /// This node's heartbeat.
    Heartbeat,
    /// In-sync sets that this node has asked for.
    InSync(Vec<LogKey>),
    /// Another node, which has given it a number.
    Peer {
        from: BrokerId,
        number: i64,
    },
    Nobody,
}

pub(crate) struct Controller {
    /// The metadata log.
    pub(crate) partition: Arc<Partition>,
    settings: ControllerSettings,
    pub(crate) state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    queue: VecDeque<(AdminCommand, AdminReply)>,
    pub(crate) proposal: Option<Proposal>,
    /// A committed proposal is being applied; the next one is decided against what it makes.
    pub(crate) applying: bool,
    /// In a shared quorum.
    pub(crate) seat: Seat,
    /// Who was heard of, where the quorum is led.
    pub(crate) sessions: Sessions,
    /// When it last looked whether everything is spread evenly.
    pub(crate) balance: Looked,
}

impl State {
    /// What waits and what is in flight will not be answered by what comes of it.
    pub(crate) fn drop_everything(&mut self) -> Vec<AdminReply> {
        let in_flight = self.proposal.take().map(|p| p.answers).unwrap_or_default();
        let waiting = std::mem::take(&mut self.queue);
        let replies = in_flight.into_iter().map(|(reply, _)| reply);
        replies.chain(waiting.into_iter().map(|(_, r)| r)).collect()
    }
}

/// What is in flight.
pub(crate) struct Proposal {
    image: MetadataImage,
    records: Vec<MetadataRecord>,
    pub(crate) answers: Vec<(AdminReply, AdminAnswer)>,
    until: Offset,
    /// Behind a shared quorum: the number under which it went out.
    pub(crate) number: u64,
    /// A snapshot: everything before it isn't needed any more.
    trim: Option<Offset>,
}

impl Controller {
    pub(crate) fn new(partition: Arc<Partition>, settings: ControllerSettings) -> Controller {
        Controller {
            partition,
            settings,
            state: Mutex::new(State::default()),
        }
    }
}

impl Node {
    /// A command to the controller.
    pub(crate) fn submit(&self, command: AdminCommand, reply: AdminReply, now: Now) {
        if !self.is_controller() {
            return self.forward(command, reply, now);
        }
        let refused = {
            let mut state = self.controller.state.lock();
            if let AdminCommand::Heartbeat { broker, epoch, .. } = &command {
                state.sessions.heard(*broker, *epoch, now);
            }
            if state.queue.len() >= QUEUED {
                Some((reply, ErrorCode::THROTTLING_QUOTA_EXCEEDED))
            } else {
                state.queue.push_back((command, reply));
                None
            }
        };
        match refused {
            Some((reply, error)) => self.answer_admin(reply, Err(error), now),
            None => self.propose(now),
        }
    }

    /// Decides what is queued, unless a batch is in flight.
    pub(crate) fn propose(&self, now: Now) {
        let mut owed = Owed::default();
        let mut answers = Vec::new();
        let mut goes_out = false;
        {
            let mut state = self.controller.state.lock();
            if state.proposal.is_some() || state.applying || state.queue.is_empty() {
                return;
            }
            let mut proposal = Proposal {
                image: MetadataImage::clone(&self.image.load()),
                records: Vec::new(),
                answers: Vec::new(),
                until: Offset::ZERO,
                number: 0,
                trim: None,
            };
            let shared = self.settings.quorum == Quorum::Shared;
            if shared && state.seat.leader != Some(self.settings.broker) {
                // Its leadership ended while they came.
                let waiting = std::mem::take(&mut state.queue);
                drop(state);
                for (_, reply) in waiting {
                    self.answer_admin(reply, Err(ErrorCode::NOT_CONTROLLER), now);
                }
                return;
            }
            let mut position = match shared {
                true => proposal.image.position,
                // The log may hold parts of a registration that was lost; what they say is said again.
                false => self.metadata_end(),
            };
            let mut bytes = 0;
            while bytes < BATCH_BYTES
                && let Some((command, reply)) = state.queue.pop_front()
            {
                let (records, mut answer) =
                    decide(&proposal.image, &self.controller.settings, &command, now);
                let size: usize = records.iter().map(|record| record.encode().len()).sum();
                if size > DECISION_BYTES {
                    answers.push((reply, Err(ErrorCode::POLICY_VIOLATION)));
                    continue;
                }
                bytes += size;
                if let AdminAnswer::Heartbeat { silent, .. } = &mut answer {
                    *silent = state.seat.silent(now.mono);
                }
                for record in &records {
                    position = position + 1;
                    proposal.image.apply(record, position);
                }
                if proposal.records.is_empty() && records.is_empty() {
                    // It changes nothing and has seen nothing that isn't committed.
                    answers.push((reply, Ok(answer)));
                } else {
                    proposal.records.extend(records);
                    proposal.answers.push((reply, answer));
                }
            }
            if shared && !proposal.records.is_empty() {
                proposal.number = state.seat.propose(&proposal.records);
                state.proposal = Some(proposal);
                goes_out = true;
            } else if !proposal.records.is_empty() {
                let cut = proposal.records.iter().all(may_be_cut);
                match self.append_records(&proposal.records, cut, now, &mut owed) {
                    Ok(until) => {
                        assert_eq!(until, position, "the metadata log has one writer");
                        proposal.until = until;
                        state.proposal = Some(proposal);
                    }
                    Err(error) => {
                        answers.extend(proposal.answers.into_iter().map(|(r, _)| (r, Err(error))));
                    }
                }
            }
        }
        if goes_out {
            self.host.proposals_ready();
        }
        let partition = self.controller.partition.clone();
        self.settle(&partition, owed, now);
        for (reply, answer) in answers {
            self.answer_admin(reply, answer, now);
        }
    }

    /// Appends records to the metadata log, as one batch unless they may be cut; returns the offset after them.
    fn append_records(
        &self,
        records: &[MetadataRecord],
        cut: bool,
        now: Now,
        owed: &mut Owed,
    ) -> Result<Offset, ErrorCode> {
        if !self.takes_own(&self.controller.partition) {
            return Err(ErrorCode::KAFKA_STORAGE_ERROR);
        }
        let mut until = Offset::ZERO;
        let mut batch = BatchBuilder::new(Compression::None);
        for (i, record) in records.iter().enumerate() {
            batch.push(now.wall_ms, None, Some(&record.encode()), &[]);
            let last = i + 1 == records.len();
            if last || (cut && batch.size() >= BATCH_BYTES) {
                let appended = self
                    .append_own(&self.controller.partition, batch.build(), None, now, owed)
                    .map_err(|_| ErrorCode::KAFKA_STORAGE_ERROR)?;
                until = appended.next;
            }
        }
        Ok(until)
    }

    fn metadata_end(&self) -> Offset {
        let state = self.controller.partition.state.lock();
        state.log.as_ref().map_or(Offset::ZERO, Log::log_end_offset)
    }

    /// Writes the whole image behind the metadata log once most of it is out of date, and lets go of what is before
    /// it. A crash in between finds both: the records say the same twice.
    pub(crate) fn snapshot_metadata(&self, now: Now) {
        if self.settings.quorum == Quorum::Shared {
            return;
        }
        let (start, end) = {
            let state = self.controller.partition.state.lock();
            let Some(log) = &state.log else { return };
            (log.log_start_offset(), log.log_end_offset())
        };
        if end - start < SNAPSHOT_AFTER + 2 * count_of(&self.image.load()) {
            return;
        }
        let mut owed = Owed::default();
        {
            let mut state = self.controller.state.lock();
            if state.proposal.is_some() || state.applying {
                return;
            }
            let mut image = MetadataImage::clone(&self.image.load());
            let records = records_of(&image);
            let first = self.metadata_end();
            if let Ok(until) = self.append_records(&records, true, now, &mut owed) {
                image.position = until;
                state.proposal = Some(Proposal {
                    image,
                    records: Vec::new(),
                    answers: Vec::new(),
                    until,
                    number: 0,
                    trim: Some(first),
                });
            }
        }
        let partition = self.controller.partition.clone();
        self.settle(&partition, owed, now);
    }

    fn trim_metadata(&self, before: Offset, now: Now) {
        let mut owed = Owed::default();
        {
            let mut state = self.controller.partition.state.lock();
            if let Some(log) = &mut state.log {
                // Refused: the log stays longer than it need be.
                let _refused = log.delete_records(before);
                owed.flush = true;
                owed.dirty |= !std::mem::replace(&mut state.upkeep.dirty, true);
            }
        }
        let partition = self.controller.partition.clone();
        self.settle(&partition, owed, now);
    }

    /// The metadata log's high watermark moved.
    pub(crate) fn metadata_moved(&self, now: Now) {
        let durable = self.controller.partition.state.lock().high_watermark();
        let committed = {
            let mut state = self.controller.state.lock();
            let committed = state.proposal.take_if(|p| p.until <= durable);
            state.applying |= committed.is_some();
            committed
        };
        if let Some(proposal) = committed {
            self.metrics
                .metadata_commits
                .fetch_add(1, Ordering::Relaxed);
            self.apply_metadata(Arc::new(proposal.image), &proposal.records, now);
            if let Some(trim) = proposal.trim {
                self.trim_metadata(trim, now);
            }
            self.controller.state.lock().applying = false;
            for (reply, answer) in proposal.answers {
                self.answer_admin(reply, Ok(answer), now);
            }
        }
        self.propose(now);
    }

    /// Records of the metadata log were lost, or can't become durable for now.
    pub(crate) fn metadata_lost(&self, now: Now) {
        let end = {
            let state = self.controller.partition.state.lock();
            let log = state.log.as_ref().filter(|log| log.failed().is_none());
            log.map_or(Offset::ZERO, Log::log_end_offset)
        };
        let mut answers = Vec::new();
        {
            let mut state = self.controller.state.lock();
            if let Some(proposal) = &mut state.proposal {
                answers = std::mem::take(&mut proposal.answers);
                // What is still queued may be committed yet, and is applied then.
                if proposal.until > end || self.has_failed() {
                    state.proposal = None;
                }
            }
        }
        for (reply, _) in answers {
            self.answer_admin(reply, Err(ErrorCode::KAFKA_STORAGE_ERROR), now);
        }
        self.propose(now);
    }

    /// The node stops: what waits gets no answer but this.
    pub(crate) fn stop_controller(&self, now: Now) {
        let waiting = {
            let mut state = self.controller.state.lock();
            let mut waiting = Vec::new();
            // What is in flight is applied all the same.
            if let Some(proposal) = &mut state.proposal {
                let answers = std::mem::take(&mut proposal.answers);
                waiting.extend(answers.into_iter().map(|(reply, _)| reply));
            }
            waiting.extend(std::mem::take(&mut state.queue).into_iter().map(|(_, r)| r));
            waiting
        };
        for reply in waiting {
            self.answer_admin(reply, Err(ErrorCode::NOT_CONTROLLER), now);
        }
    }

    pub(crate) fn answer_admin(
        &self,
        reply: AdminReply,
        answer: Result<AdminAnswer, ErrorCode>,
        now: Now,
    ) {
        match reply {
            AdminReply::Client(reply) => reply.send(answer),
            AdminReply::ProducerIds => self.producer_ids_came(answer, now),
            AdminReply::Registered => self.registered(answer, now),
            AdminReply::Heartbeat => self.heartbeat_answered(answer, now),
            AdminReply::InSync(keys) => self.isrs_answered(&keys, answer, now),
            AdminReply::Peer { from, number } => self.answer_peer(from, number, answer),
            AdminReply::Nobody => {}
        }
    }

    /// Registers this node: a new broker epoch, and a new leader epoch for all that it leads.
    pub(crate) fn register(&self, now: Now) {
        let cluster_id = self.settings.cluster_id.clone().unwrap_or_else(|| {
            // Kafka's form of a cluster id is that of a topic id.
            self.new_topic_id().to_string()
        });
        let broker = BrokerImage {
            id: self.settings.broker,
            epoch: 0,
            listeners: self.settings.listeners.clone(),
            rack: self.settings.rack.clone(),
            fenced: self.settings.quorum == Quorum::Shared,
            stopping: false,
            ailing: false,
            incarnation: self.membership.incarnation(),
            disk: self.volume.disk_id(),
        };
        let command = AdminCommand::Register { broker, cluster_id };
        self.submit(command, AdminReply::Registered, now);
    }
}

/// Whether a decision of such records may be committed in parts.
fn may_be_cut(record: &MetadataRecord) -> bool {
    matches!(
        record,
        MetadataRecord::Cluster { .. }
            | MetadataRecord::Broker(_)
            | MetadataRecord::Partition { .. }
    )
}

/// All records that make an image, in an order in which they can be applied.
pub(crate) fn records_of(image: &MetadataImage) -> Vec<MetadataRecord> {
    use riverlog_core::metadata::Resource;
    let mut records = Vec::new();
    if !image.cluster_id.is_empty() {
        records.push(MetadataRecord::Cluster {
            cluster_id: image.cluster_id.clone(),
        });
    }
    records.extend(image.brokers.values().cloned().map(MetadataRecord::Broker));
    for topic in image.topics.values() {
        records.push(MetadataRecord::Topic {
            id: topic.id,
            tenant: topic.tenant,
            name: topic.name.clone(),
        });
        for (index, partition) in (0..).zip(&topic.partitions) {
            records.push(MetadataRecord::Partition {
                topic: topic.id,
                index,
                partition: partition.clone(),
            });
        }
        records.extend(configs_of(&Resource::Topic(topic.id), &topic.configs));
    }
    for (broker, configs) in &image.broker_configs {
        records.extend(configs_of(&Resource::Broker(*broker), configs));
    }
    for (group, configs) in &image.group_configs {
        records.extend(configs_of(&Resource::Group(group.clone()), configs));
    }
    records.extend(
        image
            .features
            .iter()
            .map(|(name, level)| MetadataRecord::Feature {
                name: name.clone(),
                level: *level,
            }),
    );
    if image.next_producer_id > 0 {
        records.push(MetadataRecord::ProducerIds {
            next: image.next_producer_id,
        });
    }
    records
}

/// How many records those are, about: all but what nodes and groups are configured with.
fn count_of(image: &MetadataImage) -> i64 {
    let topics = image.topics.values();
    let records: usize = topics
        .map(|t| 1 + t.partitions.len() + t.configs.len())
        .sum();
    i64::try_from(records).unwrap_or(i64::MAX / 4)
}

fn configs_of(
    resource: &riverlog_core::metadata::Resource,
    configs: &BTreeMap<String, String>,
) -> impl Iterator<Item = MetadataRecord> {
    configs.iter().map(|(key, value)| MetadataRecord::Config {
        resource: resource.clone(),
        key: key.clone(),
        value: Some(value.clone()),
    })
}
