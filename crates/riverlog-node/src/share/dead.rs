//! Dead letters of share groups (KIP-1191): what was rejected, or tried as often as it may be, is put into a topic of its own before
//! it is archived.
//!
//! That it is to become a dead letter is kept first, so that the next leader goes on with it; it may then be there twice. A
//! record that can't be put there for long is archived without, as in Kafka: nothing else would ever be done with after it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::config::BrokerValues;
use riverlog_core::groups::Topics;
use riverlog_core::metadata::{AdminCommand, NewTopic, TopicImage, TopicRef};
use riverlog_core::share::{Dead, DeathCause, ShareKey};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};

use super::asks::{ShareQuestion, ShareSaid};
use super::held::{Held, Stage};
use crate::append::Rule;
use crate::command::{
    AppendCommand, AppendFailure, FetchAnswer, FetchCommand, FetchPartition, Isolation, Reply,
};
use crate::controller::AdminReply;
use crate::node::Node;
use crate::partition::Partition;
use crate::timers::Timer;

/// Records of one batch of dead letters.
const BATCH: i64 = 500;

/// Bytes of one batch, unless a record alone has more.
const BATCH_BYTES: usize = 512 << 10;

/// Bytes that a batch may open to whose records are copied.
const OPENED_LIMIT: usize = 64 << 20;

/// How long the topic may be missing, or unable to take them, before records are archived without.
const PATIENCE: Duration = Duration::from_secs(30);

/// A pause before the topic is looked for again.
const PAUSE: Duration = Duration::from_millis(200);

/// How long one append may take.
const APPEND: Duration = Duration::from_secs(5);

/// Dead letters that are under way.
pub(crate) struct Burial {
    held: Arc<Held>,
    dead: Dead,
    deadline: Duration,
}

/// Where dead letters of a group go.
enum Grave {
    /// The topic, and whether records are copied.
    Topic(Arc<TopicImage>, bool),
    /// It is being made, or nobody can be asked for it now.
    Soon,
    /// There is none, or it must not be used.
    None,
}

impl Node {
    /// `errors.deadletterqueue.topic.name` of a group, when it has one.
    pub(super) fn has_dead_letters(&self, group: &str) -> bool {
        let image = self.image.load();
        let configs = image.configs_of_group(group);
        let name = configs.get("errors.deadletterqueue.topic.name");
        name.is_some_and(|name| !name.trim().is_empty())
    }

    /// Makes dead letters of what is to become such.
    pub(super) fn bury_dead(&self, held: &Arc<Held>, now: Now) {
        let dead = match &mut held.state.lock().stage {
            Stage::Ready { machine, .. } => machine.take_dead(),
            _ => return,
        };
        for range in dead {
            let mut first = range.first;
            while first <= range.last {
                let last = range.last.min(first.plus(BATCH - 1));
                let burial = Burial {
                    held: held.clone(),
                    dead: Dead {
                        first,
                        last,
                        ..range
                    },
                    deadline: now.mono + PATIENCE,
                };
                self.bury(burial, now);
                first = last.plus(1);
            }
        }
    }

    /// Goes on with a burial that had to wait.
    pub(crate) fn bury_again(&self, burial: &Arc<Burial>, now: Now) {
        let burial = Burial {
            held: burial.held.clone(),
            ..**burial
        };
        self.bury(burial, now);
    }

    fn bury(&self, burial: Burial, now: Now) {
        if !matches!(burial.held.state.lock().stage, Stage::Ready { .. }) {
            // Whoever leads now does it.
            return;
        }
        let over = now.mono >= burial.deadline;
        match self.grave(&burial.held.key.group, now) {
            Grave::Soon if !over && !self.is_closing() => self.bury_later(burial, now),
            Grave::Soon | Grave::None => self.buried(&burial, burial.dead.last, false, now),
            Grave::Topic(topic, true) => self.read_dead(burial, topic, now),
            Grave::Topic(topic, false) => {
                let batch = self.epitaphs(&burial, &Bytes::new(), false, now);
                self.send_dead(burial, &topic, batch, now);
            }
        }
    }

    fn bury_later(&self, burial: Burial, now: Now) {
        let timer = Timer::Burial(Arc::new(burial));
        let (_, first) = self.timers.add(now.mono + PAUSE, timer);
        if first {
            self.host.deadline_changed();
        }
    }

    fn grave(&self, group: &str, now: Now) -> Grave {
        let image = self.image.load_full();
        let configs = image.configs_of_group(group);
        let own = |key| configs.get(key).map(str::trim);
        let Some(name) = own("errors.deadletterqueue.topic.name").filter(|n| !n.is_empty()) else {
            return Grave::None;
        };
        let configs = self.node_configs(&image);
        let values = BrokerValues(&configs);
        let prefix = values.text("errors.deadletterqueue.topic.name.prefix");
        if name.starts_with("__") || !name.starts_with(prefix.unwrap_or("dlq.")) {
            return Grave::None;
        }
        let is_true = |value: &str| value.trim().eq_ignore_ascii_case("true");
        let allows = "errors.deadletterqueue.group.enable";
        match image.topic(name) {
            Some(topic) => {
                let allowed = topic.configs.get(allows).is_some_and(|v| is_true(v));
                let copies = own("errors.deadletterqueue.copy.record.enable").is_some_and(is_true);
                match allowed {
                    true => Grave::Topic(topic.clone(), copies),
                    false => Grave::None,
                }
            }
            None if values.is_true("errors.deadletterqueue.auto.create.topics.enable") => {
                let topic = NewTopic {
                    name: name.to_owned(),
                    partitions: -1,
                    replication_factor: -1,
                    configs: vec![(allows.to_owned(), Some("true".to_owned()))],
                    id: self.new_topic_id(),
                    ..NewTopic::default()
                };
                // Asking again while it is being made is answered TOPIC_ALREADY_EXISTS, and harmless.
                let command = AdminCommand::CreateTopics {
                    topics: vec![topic],
                    validate_only: false,
                };
                self.submit(command, AdminReply::Nobody, now);
                Grave::Soon
            }
            None => Grave::None,
        }
    }

    /// Reads the records that are to be copied.
    fn read_dead(&self, burial: Burial, topic: Arc<TopicImage>, now: Now) {
        let key = &burial.held.key;
        let read = FetchCommand {
            partitions: vec![FetchPartition {
                topic: TopicRef::Id(key.topic),
                partition: key.partition,
                from: burial.dead.first,
                max_bytes: BATCH_BYTES,
                current_leader_epoch: LeaderEpoch::NONE,
                last_fetched_epoch: LeaderEpoch::NONE,
            }],
            max_wait: Duration::ZERO,
            min_bytes: 0,
            max_bytes: BATCH_BYTES,
            isolation: Isolation::ReadUncommitted,
            replica: None,
        };
        let node = self.this.clone();
        let reply = Reply::new(move |answer: FetchAnswer| {
            let Some(node) = node.upgrade() else { return };
            let now = node.as_of(now);
            let part = answer.partitions.into_iter().next();
            let bytes = part.map(|part| (part.error, part.records.into_bytes()));
            match bytes {
                Some((ErrorCode::NONE, Ok(bytes))) => {
                    let batch = node.epitaphs(&burial, &bytes, true, now);
                    node.send_dead(burial, &topic, batch, now);
                }
                // Retention was faster: what is gone can't be copied.
                Some((ErrorCode::OFFSET_OUT_OF_RANGE, _)) => {
                    let batch = node.epitaphs(&burial, &Bytes::new(), false, now);
                    node.send_dead(burial, &topic, batch, now);
                }
                _ if now.mono < burial.deadline => node.bury_later(burial, now),
                _ => {
                    let last = burial.dead.last;
                    node.buried(&burial, last, false, now);
                }
            }
        });
        self.fetch_partitions(read, now, reply);
    }

    /// A batch of dead letters and the last offset that it speaks of; `None` as a batch: none of them is a record.
    fn epitaphs(
        &self,
        burial: &Burial,
        bytes: &Bytes,
        copies: bool,
        now: Now,
    ) -> (Option<Vec<u8>>, Offset) {
        let dead = &burial.dead;
        let held = &burial.held;
        let mut out = BatchBuilder::new(Compression::None);
        let add = |out: &mut BatchBuilder, at: i64, key: Option<&[u8]>, value: Option<&[u8]>| {
            let (partition, offset) = (held.key.partition.to_string(), at.to_string());
            let count = dead.delivery_count.to_string();
            let cause = match dead.cause {
                DeathCause::Rejected => "Offset rejected by client.",
                DeathCause::TooOften => "Offset delivery count exceeded the threshold.",
            };
            let headers = [
                ("__dlq.errors.topic", held.partition.topic.name.as_str()),
                ("__dlq.errors.partition", &partition),
                ("__dlq.errors.offset", &offset),
                ("__dlq.errors.group", &held.key.group),
                ("__dlq.errors.delivery.count", &count),
                ("__dlq.errors.message", cause),
            ];
            let headers = headers.map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())));
            out.push(now.wall_ms, key, value, &headers);
        };
        if !copies {
            for at in dead.first.0..=dead.last.0 {
                add(&mut out, at, None, None);
            }
            return (Some(out.build()), dead.last);
        }
        let mut told = dead.first.plus(-1);
        for batch in batches(bytes).map_while(Result::ok) {
            let first = batch.header.base_offset;
            if first > dead.last || out.size() >= BATCH_BYTES {
                break;
            }
            let last = dead.last.min(batch.header.last_offset());
            match batch.records(OPENED_LIMIT) {
                Ok(records) if !batch.header.attributes.is_control() => {
                    for record in records.iter_refs().map_while(Result::ok) {
                        if (dead.first..=last).contains(&record.offset) {
                            add(&mut out, record.offset.0, record.key, record.value);
                        }
                    }
                }
                _ => {
                    for at in first.max(dead.first).0..=last.0 {
                        add(&mut out, at, None, None);
                    }
                }
            }
            told = told.max(last);
        }
        // Offsets behind all batches hold no records any more.
        if bytes.is_empty() {
            told = dead.last;
        }
        ((!out.is_empty()).then(|| out.build()), told)
    }

    fn send_dead(
        &self,
        burial: Burial,
        topic: &TopicImage,
        (batch, last): (Option<Vec<u8>>, Offset),
        now: Now,
    ) {
        let Some(batch) = batch else {
            return self.buried(&burial, last, true, now);
        };
        let count = i32::try_from(topic.partitions.len()).unwrap_or(1).max(1);
        let grave = ShareKey {
            group: burial.held.key.group.clone(),
            topic: topic.id,
            partition: burial.held.key.partition.rem_euclid(count),
        };
        let node = self.this.clone();
        let reply = Reply::new(move |answer: Result<ShareSaid, ErrorCode>| {
            let Some(node) = node.upgrade() else { return };
            let now = node.as_of(now);
            match answer {
                Ok(_) => node.buried(&burial, last, true, now),
                Err(_) if now.mono < burial.deadline && !node.is_closing() => {
                    node.bury_later(burial, now);
                }
                Err(_) => node.buried(&burial, last, false, now),
            }
        });
        let question = ShareQuestion::Bury(grave, Bytes::from(batch));
        self.ask_share(question, now, reply);
    }

    /// Appends dead letters to a partition that is led here.
    pub(super) fn take_dead(
        &self,
        partition: &Arc<Partition>,
        batch: &Bytes,
        now: Now,
        reply: Reply<Result<ShareSaid, ErrorCode>>,
    ) {
        let command = AppendCommand {
            batch: batch.to_vec(),
            acks: -1,
            timeout: APPEND,
        };
        let reply = Reply::new(move |answer: Result<_, AppendFailure>| {
            reply.send(match answer {
                Ok(_) => Ok(ShareSaid::Done),
                Err(failure) => Err(failure.error),
            });
        });
        self.append_one(partition, command, Rule::Plain, now, reply);
    }

    /// They are dead letters up to `last`, or can't become such.
    fn buried(&self, burial: &Burial, last: Offset, done: bool, now: Now) {
        let Burial {
            held,
            dead,
            deadline,
        } = burial;
        let counter = match done {
            true => &self.metrics.dead_letters,
            false => &self.metrics.dead_letter_failures,
        };
        let number = u64::try_from(last.0 - dead.first.0 + 1).unwrap_or(0);
        counter.fetch_add(number, Ordering::Relaxed);
        if let Stage::Ready { machine, .. } = &mut held.state.lock().stage {
            machine.bury(dead.first, last);
        }
        self.write_held(held, now);
        self.wake_held(held, now);
        if last < dead.last {
            let rest = Burial {
                held: held.clone(),
                dead: Dead {
                    first: last.plus(1),
                    ..*dead
                },
                deadline: *deadline,
            };
            self.bury(rest, now);
        }
    }
}
