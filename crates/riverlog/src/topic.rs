//! Topics and partitions: making them, and looking at them.

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::metadata::TopicRef;
use riverlog_core::metadata::{AdminCommand, NewTopic, TopicImage};
use riverlog_node::{FetchCommand, FetchPartition, Isolation, OffsetQuery, PartitionDescription};
use riverlog_wire::batch::batches;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset};

use crate::{Broker, Error, Result};

/// When a publish is answered.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// use riverlog::Durability;
/// broker.topic_builder("clicks").durability(Durability::PageCache).create()?;
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// When the record survives a power cut. The default on disk.
    #[default]
    Sync,
    /// When the record is in the operating system's hands: it survives the death of the process, and a power cut may take
    /// the last seconds. The default in memory.
    PageCache,
}

/// What happens to a publish when a bounded partition is full. Room is made by retention, by [`Partition::delete_records`], and by
/// itself: records that every group with offsets on the topic has committed are dropped when room is needed.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # use std::time::Duration;
/// use riverlog::{Error, Full};
/// broker.topic_builder("jobs").max_records(1, Full::Block(Duration::from_millis(20))).create()?;
/// broker.publish("jobs", None, b"1")?;
/// # broker.subscribe("jobs", "g", "c")?.commit_at(0, 0)?;
/// // Nobody has made room in time.
/// assert!(matches!(broker.publish("jobs", None, b"2"), Err(Error::Full { .. })));
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Wait for room, this long at most; then [`Error::Full`].
    Block(Duration),
    /// [`Error::Full`] at once.
    Error,
}

/// A topic to be made; start from [`Broker::topic_builder`].
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// let topic = broker.topic_builder("orders").partitions(3).retention_records(1_000).create()?;
/// assert_eq!(topic.name(), "orders");
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "call create()"]
pub struct TopicBuilder<'a> {
    broker: &'a Broker,
    name: String,
    partitions: i32,
    configs: Vec<(String, Option<String>)>,
}

impl<'a> TopicBuilder<'a> {
    pub(crate) fn new(broker: &'a Broker, name: &str) -> Self {
        TopicBuilder {
            broker,
            name: name.to_owned(),
            partitions: 1,
            configs: Vec::new(),
        }
    }
    /// Number of partitions. Default 1.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// assert_eq!(broker.topic_builder("t").partitions(4).create()?.partitions()?.len(), 4);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn partitions(mut self, partitions: i32) -> Self {
        self.partitions = partitions;
        self
    }
    /// Any topic setting by Kafka's name, for instance `max.message.bytes`.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// broker.topic_builder("t").config("max.message.bytes", "2000000").create()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.push((key.into(), Some(value.into())));
        self
    }
    /// Keep records this long (`retention.ms`). Default 7 days.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # use std::time::Duration;
    /// broker.topic_builder("t").retention_age(Duration::from_secs(3_600)).create()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn retention_age(self, age: Duration) -> Self {
        self.config("retention.ms", age.as_millis().to_string())
    }
    /// Keep about this many bytes in each partition (`retention.bytes`): whole segments are dropped. Default: all.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// broker.topic_builder("t").retention_bytes(100 << 20).create()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn retention_bytes(self, bytes: u64) -> Self {
        self.config("retention.bytes", bytes.to_string())
    }
    /// Keep the last this many records in each partition, exactly (`riverlog.retention.records`). Default: all.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// let topic = broker.topic_builder("t").retention_records(2).create()?;
    /// for value in [b"1", b"2", b"3"] {
    ///     broker.publish("t", None, value)?;
    /// }
    /// assert_eq!(topic.partition(0)?.log_end_offset(), 3);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn retention_records(self, records: u64) -> Self {
        self.config("riverlog.retention.records", records.to_string())
    }
    /// At most this many records in a partition (`riverlog.max.records`).
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// use riverlog::{Error, Full};
    /// broker.topic_builder("jobs").max_records(1, Full::Error).create()?;
    /// broker.publish("jobs", None, b"1")?;
    /// # broker.subscribe("jobs", "g", "c")?.commit_at(0, 0)?;
    /// assert!(matches!(broker.publish("jobs", None, b"2"), Err(Error::Full { .. })));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn max_records(self, records: u64, full: Full) -> Self {
        self.config("riverlog.max.records", records.to_string())
            .when_full(full)
    }
    /// At most this many bytes in a partition (`riverlog.max.bytes`).
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// use riverlog::Full;
    /// broker.topic_builder("jobs").max_bytes(1 << 20, Full::Error).create()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn max_bytes(self, bytes: u64, full: Full) -> Self {
        self.config("riverlog.max.bytes", bytes.to_string())
            .when_full(full)
    }
    fn when_full(self, full: Full) -> Self {
        match full {
            Full::Error => self.config("riverlog.when.full", "error"),
            Full::Block(timeout) => self.config("riverlog.when.full", "block").config(
                "riverlog.when.full.timeout.ms",
                timeout.as_millis().to_string(),
            ),
        }
    }
    /// When a publish is answered.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// use riverlog::Durability;
    /// broker.topic_builder("clicks").durability(Durability::PageCache).create()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn durability(self, durability: Durability) -> Self {
        let value = match durability {
            Durability::Sync => "sync",
            Durability::PageCache => "page-cache",
        };
        self.config("riverlog.durability", value)
    }
    /// Makes the topic.
    ///
    /// - Errors: as [`Broker::create_topic`], and `INVALID_CONFIG` naming key, value and range.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// broker.topic_builder("t").create()?;
    /// let twice = broker.topic_builder("t").create();
    /// assert!(matches!(twice, Err(riverlog::Error::Refused { .. })));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn create(self) -> Result<Topic> {
        let topic = NewTopic {
            name: self.name.clone(),
            partitions: self.partitions,
            replication_factor: -1,
            configs: self.configs,
            id: self.broker.driver.node.new_topic_id(),
            ..NewTopic::default()
        };
        let command = AdminCommand::CreateTopics {
            topics: vec![topic],
            validate_only: false,
        };
        self.broker.admin(command, &self.name)?;
        self.broker.topic(&self.name)
    }
}

/// A topic.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// let topic = broker.create_topic("orders", 3)?;
/// for partition in topic.partitions()? {
///     println!("{}: {}", partition.index(), partition.log_end_offset());
/// }
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Topic {
    broker: Broker,
    image: Arc<TopicImage>,
}

impl Topic {
    pub(crate) fn new(broker: Broker, image: Arc<TopicImage>) -> Topic {
        Topic { broker, image }
    }
    /// Its name.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 1)?;
    /// assert_eq!(topic.name(), "t");
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.image.name
    }
    /// The settings that were given when it was made or changed, by Kafka's names.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// let topic = broker.topic_builder("t").retention_records(5).create()?;
    /// assert!(topic.configs().any(|set| set == ("riverlog.retention.records", "5")));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn configs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.image
            .configs
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
    }
    /// Its partitions in order.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 3)?;
    /// assert_eq!(topic.partitions()?.len(), 3);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn partitions(&self) -> Result<Vec<Partition>> {
        let now = self.broker.topic_image(&self.image.name)?;
        (0..i32::try_from(now.partitions.len()).unwrap_or(i32::MAX))
            .map(|p| self.partition(p))
            .collect()
    }
    /// One partition.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 3)?;
    /// assert_eq!(topic.partition(2)?.index(), 2);
    /// assert!(matches!(topic.partition(3), Err(riverlog::Error::UnknownPartition { .. })));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn partition(&self, partition: i32) -> Result<Partition> {
        let now = self.broker.topic_image(&self.image.name)?;
        let reference = self.broker.partition(&now, partition)?;
        Ok(Partition {
            broker: self.broker.clone(),
            topic: now,
            index: partition,
            reference,
        })
    }
}

/// A partition.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # let topic = broker.create_topic("t", 1)?;
/// let partition = topic.partition(0)?;
/// # broker.publish("t", None, b"x")?;
/// assert_eq!((partition.log_start_offset(), partition.log_end_offset()), (0, 1));
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Partition {
    broker: Broker,
    topic: Arc<TopicImage>,
    index: i32,
    reference: riverlog_node::PartitionRef,
}

impl Partition {
    /// Its number.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 3)?;
    /// assert_eq!(topic.partition(1)?.index(), 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn index(&self) -> i32 {
        self.index
    }
    fn now(&self) -> PartitionDescription {
        self.broker.driver.node.describe_partition(&self.reference)
    }
    /// The first offset that can be read.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 1)?;
    /// # broker.publish("t", None, b"x")?;
    /// let partition = topic.partition(0)?;
    /// partition.delete_records(1)?;
    /// assert_eq!(partition.log_start_offset(), 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn log_start_offset(&self) -> i64 {
        self.now().log_start_offset.0
    }
    /// The offset that the next record gets.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 1)?;
    /// # broker.publish("t", None, b"x")?;
    /// assert_eq!(topic.partition(0)?.log_end_offset(), 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn log_end_offset(&self) -> i64 {
        self.now().log_end_offset.0
    }
    /// Everything before it has been acknowledged and can be read.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 1)?;
    /// # broker.publish("t", None, b"x")?;
    /// assert_eq!(topic.partition(0)?.high_watermark(), 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn high_watermark(&self) -> i64 {
        self.now().high_watermark.0
    }
    /// Bytes on disk.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 1)?;
    /// # broker.publish("t", None, b"x")?;
    /// assert!(topic.partition(0)?.size_bytes() > 0);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn size_bytes(&self) -> u64 {
        self.now().size_bytes
    }
    /// The first record at or after this time (ms since the epoch); `None` when there is none.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 1)?;
    /// # use riverlog::Message;
    /// for at in [1_000, 2_000] {
    ///     broker.publish_message("t", &Message::new(None, b"x").timestamp(at))?;
    /// }
    /// let partition = topic.partition(0)?;
    /// assert_eq!(partition.offset_at(1_001)?, Some(1));
    /// assert_eq!(partition.offset_at(2_001)?, None);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn offset_at(&self, timestamp_ms: i64) -> Result<Option<i64>> {
        let answer = self.query(OffsetQuery::AtTime(timestamp_ms))?;
        Ok((answer.offset.0 >= 0).then_some(answer.offset.0))
    }
    pub(crate) fn query(&self, query: OffsetQuery) -> Result<riverlog_node::OffsetAnswer> {
        let answer = self.broker.driver.call(false, |node, _, reply| {
            node.offset(
                &self.reference,
                query,
                Isolation::ReadUncommitted,
                LeaderEpoch::NONE,
                reply,
            );
        })?;
        match answer.error {
            ErrorCode::NONE => Ok(answer),
            code => Err(Error::refused(code)),
        }
    }
    /// The timestamp of the first record at or after `offset`; `None` when there is none.
    pub(crate) fn timestamp_at(&self, offset: i64) -> Result<Option<i64>> {
        let command = FetchCommand {
            partitions: vec![FetchPartition {
                topic: TopicRef::Id(self.topic.id),
                partition: self.index,
                from: Offset(offset),
                max_bytes: 1,
                current_leader_epoch: LeaderEpoch::NONE,
                last_fetched_epoch: LeaderEpoch::NONE,
            }],
            max_wait: Duration::ZERO,
            min_bytes: 0,
            max_bytes: 1,
            isolation: Isolation::ReadUncommitted,
            replica: None,
        };
        let answer = self
            .broker
            .driver
            .call(false, |node, now, reply| node.fetch(command, now, reply))?;
        let Some(fetched) = answer.partitions.into_iter().next() else {
            return Ok(None);
        };
        let refused = |message: String| Error::Refused {
            code: ErrorCode::KAFKA_STORAGE_ERROR,
            message,
        };
        let bytes = fetched
            .records
            .into_bytes()
            .map_err(|e| refused(e.to_string()))?;
        for batch in batches(&bytes) {
            let batch = batch.map_err(|e| refused(e.to_string()))?;
            for record in batch
                .records(crate::consumer::BATCH_LIMIT)
                .map_err(|e| refused(e.to_string()))?
                .iter()
            {
                let record = record.map_err(|e| refused(e.to_string()))?;
                if record.offset.0 >= offset {
                    return Ok(Some(record.timestamp));
                }
            }
        }
        Ok(None)
    }
    /// Nothing before `offset` can be read any more, after a restart neither. Returns the new log start offset.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # let topic = broker.create_topic("t", 1)?;
    /// # broker.publish("t", None, b"x")?;
    /// # broker.publish("t", None, b"x")?;
    /// assert_eq!(topic.partition(0)?.delete_records(1)?, 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn delete_records(&self, before: i64) -> Result<i64> {
        let answer = self.broker.driver.call(true, |node, now, reply| {
            node.delete_records(&self.reference, Offset(before), now, reply);
        })?;
        answer.map(|start| start.0).map_err(Error::refused)
    }
    /// The timestamp of the first record at or after `offset`, and how long the topic keeps records by age.
    pub(crate) fn retention(&self) -> (Option<i64>, Option<i64>) {
        let node = self.broker.driver.node.settings();
        let config = riverlog_core::config::TopicConfig::new(&self.topic.configs, &node.configs);
        let set = |v: i64| (v >= 0 && config.delete).then_some(v);
        (set(config.retention_ms), set(config.retention_records))
    }
}
