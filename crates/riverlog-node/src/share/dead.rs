//! Dead letters of share groups (KIP-1191): what was rejected, or tried as often as it may be, is put into a topic of its own before
//! it is archived. What the letters say is in [`letters`](super::letters).
//!
//! That it is to become a dead letter is kept first, so that the next leader goes on with it; it may then be there twice. A
//! record that can't be put there for long is archived without, as in Kafka: nothing else would ever be done with after it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::config::{BrokerValues, TopicConfig};
use riverlog_core::groups::Topics;
use riverlog_core::metadata::{AdminCommand, NewTopic, TopicImage, TopicRef};
use riverlog_core::share::{Dead, ShareKey};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};

use super::asks::{ShareQuestion, ShareSaid};
use super::held::{Held, Stage};
use super::letters::{BATCH_BYTES, Letters, Written};
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
    /// Copies can't be had, or aren't taken there: letters go without.
    bare: bool,
}

/// A topic for dead letters.
struct Place {
    topic: Arc<TopicImage>,
    /// Whether records are copied.
    copies: bool,
    /// Its `max.message.bytes`.
    limit: usize,
}

/// Where dead letters of a group go.
enum Grave {
    Topic(Place),
    /// It is being made, or nobody can be asked for it now.
    Soon,
    /// There is none, or it must not be used.
    None,
}

impl Burial {
    fn letters<'a>(&'a self, place: &Place, now: Now) -> Letters<'a> {
        let Held { key, partition, .. } = &*self.held;
        let limit = place.limit;
        Letters::new(self.dead, key, &partition.topic.name, limit, now.wall_ms)
    }

    /// The same with letters that only say which records they were, and time for those.
    fn without_copies(self, now: Now) -> Burial {
        Burial {
            bare: true,
            deadline: now.mono + PATIENCE,
            ..self
        }
    }
}

/// Whether the same batch will be refused again.
fn will_not_be_taken(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE | ErrorCode::INVALID_RECORD
    )
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
                    bare: false,
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
        let led = matches!(burial.held.state.lock().stage, Stage::Ready { .. });
        if !led || self.is_closing() {
            // Whoever leads next does it.
            return;
        }
        match self.grave(&burial.held.key.group, now) {
            Grave::Soon if now.mono < burial.deadline => self.bury_later(burial, now),
            Grave::Soon | Grave::None => self.forsake(&burial, now),
            Grave::Topic(place) if place.copies && !burial.bare => {
                self.read_dead(burial, place, now);
            }
            Grave::Topic(place) => {
                let written = burial.letters(&place, now).bare(burial.dead.last);
                self.send_dead(burial, &place, written, now);
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
                let limit = TopicConfig::new(&topic.configs, &configs).max_message_bytes;
                match allowed {
                    true => Grave::Topic(Place {
                        topic: topic.clone(),
                        copies,
                        limit: usize::try_from(limit).unwrap_or(0),
                    }),
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
    fn read_dead(&self, burial: Burial, place: Place, now: Now) {
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
            let letters = burial.letters(&place, now);
            let written = part.and_then(|part| {
                // Retention was faster: what is gone can't be copied.
                if part.log_start_offset > burial.dead.first {
                    return Some(letters.bare(part.log_start_offset.plus(-1)));
                }
                match (part.error, part.records.into_bytes()) {
                    (ErrorCode::NONE, Ok(bytes)) => letters.copies(&bytes),
                    _ => None,
                }
            });
            match written {
                Some(written) => node.send_dead(burial, &place, written, now),
                // A new leader doesn't know yet how far it may read, or a disk is slow.
                None => node.bury_unread(burial, now),
            }
        });
        self.fetch_partitions(read, now, reply);
    }

    /// The records can't be read now. When that lasts they are told of without copies.
    fn bury_unread(&self, burial: Burial, now: Now) {
        if now.mono < burial.deadline {
            return self.bury_later(burial, now);
        }
        self.bury(burial.without_copies(now), now);
    }

    fn send_dead(&self, burial: Burial, place: &Place, written: Written, now: Now) {
        let Written { batch, count, told } = written;
        let Some(batch) = batch else {
            return self.buried(&burial, told, now);
        };
        let partitions = i32::try_from(place.topic.partitions.len());
        let partitions = partitions.unwrap_or(1).max(1);
        let grave = ShareKey {
            group: burial.held.key.group.clone(),
            topic: place.topic.id,
            partition: burial.held.key.partition.rem_euclid(partitions),
        };
        let node = self.this.clone();
        let reply = Reply::new(move |answer: Result<ShareSaid, ErrorCode>| {
            let Some(node) = node.upgrade() else { return };
            let now = node.as_of(now);
            match answer {
                Ok(_) => {
                    let letters = &node.metrics.dead_letters;
                    letters.fetch_add(count, Ordering::Relaxed);
                    node.buried(&burial, told, now);
                }
                Err(error) if will_not_be_taken(error) => match burial.bare {
                    true => node.forsake(&burial, now),
                    false => node.bury(burial.without_copies(now), now),
                },
                Err(_) if now.mono < burial.deadline => node.bury_later(burial, now),
                Err(_) if node.is_closing() => {}
                Err(_) => node.forsake(&burial, now),
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

    /// They can't become dead letters.
    fn forsake(&self, burial: &Burial, now: Now) {
        let Dead { first, last, .. } = burial.dead;
        let number = u64::try_from(last.0 - first.0 + 1).unwrap_or(0);
        let failures = &self.metrics.dead_letter_failures;
        failures.fetch_add(number, Ordering::Relaxed);
        self.buried(burial, last, now);
    }

    /// What was to become dead letters up to `last` is archived, and the rest comes next.
    fn buried(&self, burial: &Burial, last: Offset, now: Now) {
        let Burial { held, dead, .. } = burial;
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
                deadline: now.mono + PATIENCE,
                bare: burial.bare,
            };
            self.bury(rest, now);
        }
    }
}
