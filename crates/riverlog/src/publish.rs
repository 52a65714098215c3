//! Publishing: which partition, which batch, and the wait for its answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use riverlog_core::config::TopicConfig;
use riverlog_core::metadata::TopicImage;
use riverlog_host::{Driver, Pending};
use riverlog_node::{AppendAnswer, AppendCommand, AppendFailure, PartitionRef};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::partitioner::partition_for_key;
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId, Sequence, TopicId};

use crate::{Error, Result};

/// How long an append may take before it counts as unanswered, besides what it waits for room.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a record went.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// let id = broker.publish("t", None, b"x")?;
/// assert_eq!((id.partition, id.offset), (0, 0));
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// Partition.
    pub partition: i32,
    /// Its position there.
    pub offset: i64,
}

/// A record to be published.
///
/// ```
/// use riverlog::Message;
/// let plain = Message::new(Some(b"key"), b"value");
/// let deletion = Message::tombstone(b"key");
/// let placed = Message::new(None, b"value").partition(2).header("source", Some(b"test"));
/// # let _ = (plain, deletion, placed);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Message<'a> {
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
    timestamp: Option<i64>,
    partition: Option<i32>,
}

impl<'a> Message<'a> {
    /// A key (or none) and a value.
    ///
    /// ```
    /// let message = riverlog::Message::new(Some(b"customer-7"), b"two apples");
    /// # let _ = message;
    /// ```
    pub fn new(key: Option<&'a [u8]>, value: &'a [u8]) -> Message<'a> {
        Message {
            key,
            value: Some(value),
            ..Message::default()
        }
    }
    /// A key whose value is gone.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// let id = broker.publish_message("t", &riverlog::Message::tombstone(b"customer-7"))?;
    /// assert_eq!(id.offset, 0);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn tombstone(key: &'a [u8]) -> Message<'a> {
        Message {
            key: Some(key),
            ..Message::default()
        }
    }
    /// Adds a header; order and duplicates are kept, null and empty differ.
    ///
    /// ```
    /// let message = riverlog::Message::new(None, b"v").header("trace", Some(b"7")).header("empty", None);
    /// # let _ = message;
    /// ```
    pub fn header(mut self, key: &'a str, value: Option<&'a [u8]>) -> Self {
        self.headers.push((key.as_bytes(), value));
        self
    }
    /// When it happened, in ms since the epoch. Default: now.
    ///
    /// ```
    /// let message = riverlog::Message::new(None, b"v").timestamp(1_700_000_000_000);
    /// # let _ = message;
    /// ```
    pub fn timestamp(mut self, timestamp_ms: i64) -> Self {
        self.timestamp = Some(timestamp_ms);
        self
    }
    /// The partition, whatever the key.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 3)?;
    /// let id = broker.publish_message("t", &riverlog::Message::new(None, b"v").partition(2))?;
    /// assert_eq!(id.partition, 2);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }
}

/// What publishing needs of a topic, looked up once.
struct Target {
    image: Arc<TopicImage>,
    partitions: Vec<PartitionRef>,
    /// Whose turn it is among records without a key.
    turn: AtomicU32,
    /// How long the answer of an append is waited for.
    append_timeout: Duration,
}

/// The publishing side of a broker.
pub(crate) struct Publisher {
    driver: Arc<Driver>,
    targets: RwLock<BTreeMap<String, Arc<Target>>>,
}

impl Publisher {
    pub(crate) fn new(driver: Arc<Driver>) -> Publisher {
        Publisher {
            driver,
            targets: RwLock::default(),
        }
    }

    fn target(&self, name: &str) -> Result<Arc<Target>> {
        let image = self.driver.node.image();
        let Some(topic) = image.topic(name) else {
            self.targets.write().remove(name);
            return Err(Error::UnknownTopic(name.to_owned()));
        };
        if let Some(target) = self.targets.read().get(name)
            && Arc::ptr_eq(&target.image, topic)
        {
            return Ok(Arc::clone(target));
        }
        let reference = riverlog_core::metadata::TopicRef::Id(topic.id);
        let partitions = (0..topic.partitions.len())
            .map(|p| {
                self.driver
                    .node
                    .partition(&reference, p as i32)
                    .map_err(Error::refused)
            })
            .collect::<Result<Vec<_>>>()?;
        let config = TopicConfig::new(&topic.configs, &self.driver.node.settings().configs);
        let target = Arc::new(Target {
            image: Arc::clone(topic),
            partitions,
            turn: AtomicU32::new(0),
            append_timeout: append_timeout(&config),
        });
        self.targets
            .write()
            .insert(name.to_owned(), Arc::clone(&target));
        Ok(target)
    }

    pub(crate) fn publish(&self, topic: &str, message: &Message<'_>) -> Result<RecordId> {
        let target = self.target(topic)?;
        let partition = target.choose(message, None)?;
        let mut batch = BatchBuilder::new(Compression::None);
        push(&mut batch, message, self.driver.now().wall_ms);
        self.begin(&target, partition, batch.build()).wait(&target)
    }

    pub(crate) fn publish_batch(
        &self,
        topic: &str,
        messages: &[Message<'_>],
    ) -> Result<Vec<RecordId>> {
        let target = self.target(topic)?;
        let now_ms = self.driver.now().wall_ms;
        // One batch for each partition, in order of first use; `places` remembers where each message went.
        let mut batches: Vec<(i32, BatchBuilder)> = Vec::new();
        let mut places = Vec::with_capacity(messages.len());
        let sticky = target.next_turn();
        for message in messages {
            let partition = target.choose(message, Some(sticky))?;
            let at = match batches.iter().position(|(p, _)| *p == partition) {
                Some(at) => at,
                None => {
                    batches.push((partition, BatchBuilder::new(Compression::None)));
                    batches.len() - 1
                }
            };
            let (_, batch) = &mut batches[at];
            places.push((at, batch.len() as i64));
            push(batch, message, now_ms);
        }
        // All batches are under way before the first wait, so that one group commit serves them.
        let pending: Vec<_> = batches
            .into_iter()
            .map(|(partition, mut b)| self.begin(&target, partition, b.build()))
            .collect();
        let bases = pending
            .into_iter()
            .map(|p| p.wait(&target))
            .collect::<Result<Vec<_>>>()?;
        Ok(places
            .into_iter()
            .map(|(at, index)| RecordId {
                partition: bases[at].partition,
                offset: bases[at].offset + index,
            })
            .collect())
    }

    /// A message that is to become part of a transaction: its place is chosen once, however often it is sent.
    pub(crate) fn in_transaction<'a>(
        &'a self,
        topic: &str,
        message: &'a Message<'a>,
    ) -> Result<InTransaction<'a>> {
        let target = self.target(topic)?;
        let partition = target.choose(message, None)?;
        Ok(InTransaction {
            publisher: self,
            target,
            partition,
            message,
            now_ms: self.driver.now().wall_ms,
        })
    }

    fn begin(&self, target: &Target, partition: i32, batch: Vec<u8>) -> PendingAppend<'_> {
        let command = AppendCommand {
            batch,
            acks: -1,
            timeout: target.append_timeout,
        };
        let reference = &target.partitions[partition as usize];
        let answer = self.driver.begin(true, |node, now, reply| {
            node.append(reference, command, now, reply)
        });
        PendingAppend { partition, answer }
    }
}

/// See [`Publisher::in_transaction`].
pub(crate) struct InTransaction<'a> {
    publisher: &'a Publisher,
    target: Arc<Target>,
    partition: i32,
    message: &'a Message<'a>,
    now_ms: i64,
}

impl InTransaction<'_> {
    /// Topic and partition.
    pub(crate) fn place(&self) -> (TopicId, i32) {
        (self.target.image.id, self.partition)
    }

    /// Sends it, and waits until it is stored.
    pub(crate) fn send(
        &self,
        id: &str,
        (producer, epoch): (ProducerId, ProducerEpoch),
        sequence: Sequence,
    ) -> Result<RecordId> {
        let mut batch = BatchBuilder::new(Compression::None);
        batch.producer(producer, epoch, sequence).transactional();
        push(&mut batch, self.message, self.now_ms);
        let command = AppendCommand {
            batch: batch.build(),
            acks: -1,
            timeout: self.target.append_timeout,
        };
        let to = &self.target.partitions[self.partition as usize];
        let answer = self.publisher.driver.begin(true, |node, now, reply| {
            node.append_in_transaction(to, id, true, command, now, reply);
        });
        let pending = PendingAppend {
            partition: self.partition,
            answer,
        };
        pending.wait(&self.target)
    }
}

/// An append whose answer may still be on its way.
struct PendingAppend<'a> {
    partition: i32,
    answer: Pending<'a, std::result::Result<AppendAnswer, AppendFailure>>,
}

impl PendingAppend<'_> {
    /// Waits for the answer: where the batch's first record went.
    fn wait(self, target: &Target) -> Result<RecordId> {
        let partition = self.partition;
        match self.answer.wait()? {
            Ok(answer) => Ok(RecordId {
                partition,
                offset: answer.base_offset.0,
            }),
            Err(failure) => Err(match failure.error {
                ErrorCode::THROTTLING_QUOTA_EXCEEDED | ErrorCode::POLICY_VIOLATION => Error::Full {
                    topic: target.image.name.clone(),
                    partition,
                },
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID => {
                    Error::UnknownTopic(target.image.name.clone())
                }
                ErrorCode::REQUEST_TIMED_OUT => Error::TimedOut(target.append_timeout),
                code => Error::Refused {
                    code,
                    message: failure.message,
                },
            }),
        }
    }
}

/// The time for room in a partition that is full comes before the time for the append: a short one says nothing about the disk, and
/// a long one must not be cut.
fn append_timeout(config: &TopicConfig) -> Duration {
    let bounded = config.max_records >= 0 || config.max_bytes >= 0;
    let room = match bounded && config.block_when_full {
        true => u64::try_from(config.when_full_timeout_ms).unwrap_or(0),
        false => 0,
    };
    ANSWER_TIMEOUT.saturating_add(Duration::from_millis(room))
}

fn push(batch: &mut BatchBuilder, message: &Message<'_>, now_ms: i64) {
    batch.push(
        message.timestamp.unwrap_or(now_ms),
        message.key,
        message.value,
        &message.headers,
    );
}

impl Target {
    fn count(&self) -> i32 {
        self.partitions.len() as i32
    }
    fn next_turn(&self) -> i32 {
        (self.turn.fetch_add(1, Ordering::Relaxed) % self.partitions.len().max(1) as u32) as i32
    }
    /// The partition of a message: the one it names, its key's, `sticky`, or the next in turn.
    fn choose(&self, message: &Message<'_>, sticky: Option<i32>) -> Result<i32> {
        match (message.partition, message.key) {
            (Some(p), _) if (0..self.count()).contains(&p) => Ok(p),
            (Some(partition), _) => Err(Error::UnknownPartition {
                topic: self.image.name.clone(),
                partition,
                count: self.count(),
            }),
            (None, Some(key)) => Ok(partition_for_key(key, self.count()).0),
            (None, None) => Ok(sticky.unwrap_or_else(|| self.next_turn())),
        }
    }
}
