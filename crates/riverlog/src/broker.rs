//! The broker: where everything starts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::metadata::{AdminAnswer, AdminCommand, AdminResult, TopicImage, TopicRef};
use riverlog_host::Driver;
use riverlog_log::Disk;
use riverlog_log::disk::{MemoryDisk, SystemDisk};
use riverlog_node::{NodeSettings, PartitionRef};
use riverlog_wire::ErrorCode;

use crate::consumer::Consumer;
use crate::group::ConsumerGroup;
use crate::publish::{Message, Publisher, RecordId};
use crate::shared::{SharedConsumer, SharedSubscription};
use crate::subscription::Subscription;
use crate::topic::{Topic, TopicBuilder};
use crate::transaction::TransactionalProducer;
use crate::{Error, Result};

/// An event log: topics, partitions, consumer groups. Cheap to clone; all clones are the same broker, which closes cleanly
/// when the last one (consumers included) is dropped, or at [`Broker::close`].
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// broker.create_topic("t", 1)?;
/// let same = broker.clone();
/// same.publish("t", None, b"hello")?;
/// assert_eq!(broker.topics(), ["t"]);
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone)]
pub struct Broker {
    pub(crate) driver: Arc<Driver>,
    publisher: Arc<Publisher>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("topics", &self.driver.node.image().topics.len())
            .finish()
    }
}

/// Options of a broker; start from [`Broker::builder`].
///
/// ```
/// use std::time::Duration;
/// let broker = riverlog::Broker::builder().session_timeout(Duration::from_secs(2)).in_memory();
/// # drop(broker);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct BrokerBuilder {
    settings: NodeSettings,
}

impl BrokerBuilder {
    /// How long a consumer may stay away from [`Consumer::poll`] before its partitions go to others. Default 45 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let broker = riverlog::Broker::builder().session_timeout(Duration::from_secs(5)).in_memory();
    /// # drop(broker);
    /// ```
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.settings.groups.consumer_session_timeout = timeout;
        self
    }
    /// How long committed offsets of a group without consumers are kept. Default 7 days.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let day = Duration::from_secs(24 * 3600);
    /// let broker = riverlog::Broker::builder().offsets_retention(30 * day).in_memory();
    /// # drop(broker);
    /// ```
    pub fn offsets_retention(mut self, retention: Duration) -> Self {
        self.settings.groups.offsets_retention = retention;
        self
    }
    /// How often retention by age and size is looked at. Default 5 minutes. (Retention by count is exact at once.)
    ///
    /// ```
    /// # use std::time::Duration;
    /// let broker = riverlog::Broker::builder().retention_check(Duration::from_secs(1)).in_memory();
    /// # drop(broker);
    /// ```
    pub fn retention_check(mut self, interval: Duration) -> Self {
        self.settings.retention_check_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        self
    }
    /// Any broker setting by Kafka's name, for instance `log.retention.ms`; it becomes the default of new topics.
    ///
    /// ```
    /// let broker = riverlog::Broker::builder().config("log.retention.ms", "60000").in_memory();
    /// # drop(broker);
    /// ```
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.configs.insert(key.into(), value.into());
        self
    }
    /// Opens a data folder, or makes it.
    ///
    /// - Errors: [`Error::Start`] when another process has it, when a newer release wrote it, when it is damaged beyond repair,
    ///   or when the disk says no.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("data");
    /// let broker = riverlog::Broker::builder().config("log.retention.ms", "60000").open(&path)?;
    /// // One process, and one broker in it, has the folder at a time.
    /// assert!(riverlog::Broker::open(&path).is_err());
    /// # drop(broker);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn open(self, path: impl AsRef<Path>) -> Result<Broker> {
        let disk = SystemDisk::open(path.as_ref()).map_err(|e| {
            Error::Start(riverlog_host::DriveError::Start(
                riverlog_node::StartError::Open(riverlog_log::OpenError::Disk(
                    riverlog_log::DiskError {
                        action: "open",
                        path: path.as_ref().display().to_string(),
                        source: Arc::new(e),
                    },
                )),
            ))
        })?;
        self.on(Arc::new(disk))
    }
    /// A broker in memory. Nothing is left of it when it is dropped.
    ///
    /// ```
    /// let broker = riverlog::Broker::builder().in_memory();
    /// assert!(broker.topics().is_empty());
    /// ```
    pub fn in_memory(mut self) -> Broker {
        // Memory can't survive a power cut: waiting for a sync would promise nothing.
        self.settings
            .configs
            .entry("riverlog.durability".to_owned())
            .or_insert_with(|| "page-cache".to_owned());
        match self.on(Arc::new(MemoryDisk::default())) {
            Ok(broker) => broker,
            // A fresh memory disk has no lock holder, no format and no damage; only threads can be refused.
            Err(error) => panic!("a broker in memory: {error}"),
        }
    }
    /// A broker on any disk: tests bring one that fails.
    pub(crate) fn on(self, disk: Arc<dyn Disk>) -> Result<Broker> {
        let driver = Driver::start(disk, self.settings, 1)?;
        Ok(Broker {
            publisher: Arc::new(Publisher::new(Arc::clone(&driver))),
            driver,
        })
    }
}

impl Broker {
    /// A broker in memory, with default options.
    ///
    /// ```
    /// let broker = riverlog::Broker::in_memory();
    /// broker.create_topic("t", 1)?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn in_memory() -> Broker {
        Broker::builder().in_memory()
    }
    /// Opens a data folder, or makes it, with default options. One process at a time may have it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("data");
    /// let broker = riverlog::Broker::open(&path)?;
    /// broker.create_topic("t", 1)?;
    /// broker.publish("t", None, b"kept")?;
    /// drop(broker);
    /// let again = riverlog::Broker::open(&path)?;
    /// assert_eq!(again.topic("t")?.partition(0)?.log_end_offset(), 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Broker> {
        Broker::builder().open(path)
    }
    /// Options first.
    ///
    /// ```
    /// let broker = riverlog::Broker::builder().config("num.partitions", "3").in_memory();
    /// # drop(broker);
    /// ```
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }
    /// Makes a topic with default settings.
    ///
    /// - Errors: `TOPIC_ALREADY_EXISTS`, `INVALID_TOPIC_EXCEPTION` (names are 1–249 letters, digits, `.`, `_` and `-`),
    ///   `INVALID_PARTITIONS`, each as [`Error::Refused`].
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// broker.create_topic("orders", 3)?;
    /// assert!(broker.create_topic("orders", 3).is_err());
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<Topic> {
        self.topic_builder(name).partitions(partitions).create()
    }
    /// Makes a topic with retention, bounds or another durability.
    ///
    /// ```
    /// use riverlog::{Broker, Full};
    /// let broker = Broker::in_memory();
    /// let topic = broker.topic_builder("jobs").partitions(2).max_records(1_000, Full::Error).create()?;
    /// assert_eq!(topic.partitions()?.len(), 2);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn topic_builder(&self, name: &str) -> TopicBuilder<'_> {
        TopicBuilder::new(self, name)
    }
    /// A topic that exists.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 2)?;
    /// assert_eq!(broker.topic("t")?.partitions()?.len(), 2);
    /// assert!(matches!(broker.topic("u"), Err(riverlog::Error::UnknownTopic(_))));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn topic(&self, name: &str) -> Result<Topic> {
        let image = self.topic_image(name)?;
        Ok(Topic::new(self.clone(), image))
    }
    /// The names of all topics, in order; internal ones aside.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// assert_eq!(broker.topics(), ["t"]);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn topics(&self) -> Vec<String> {
        let image = self.driver.node.image();
        let mut names: Vec<_> = image
            .topics
            .values()
            .filter(|t| !t.internal)
            .map(|t| t.name.clone())
            .collect();
        names.sort();
        names
    }
    /// Deletes a topic with all its records, and the offsets that groups have committed for it.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// broker.delete_topic("t")?;
    /// assert!(broker.topics().is_empty());
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        let topics = vec![TopicRef::Name(name.to_owned())];
        self.admin(AdminCommand::DeleteTopics { topics }, name)?;
        Ok(())
    }
    /// Gives a topic more partitions, `total` in all. Keys that hash to other partitions from now on lose their order relative to
    /// their older records.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 2)?;
    /// broker.add_partitions("t", 5)?;
    /// assert_eq!(broker.topic("t")?.partitions()?.len(), 5);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn add_partitions(&self, name: &str, total: i32) -> Result<()> {
        let topics = vec![(name.to_owned(), total, None)];
        self.admin(
            AdminCommand::CreatePartitions {
                topics,
                validate_only: false,
            },
            name,
        )?;
        Ok(())
    }
    /// Publishes one record and waits until it is stored (on disk: until it survives a power cut).
    ///
    /// - `key`: records of one key go to one partition; without a key partitions take turns.
    /// - Returns where it went.
    /// - Errors: [`Error::UnknownTopic`]; [`Error::Full`]; `RECORD_TOO_LARGE` and `KAFKA_STORAGE_ERROR` as [`Error::Refused`].
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 4)?;
    /// let one = broker.publish("t", Some(b"k"), b"1")?;
    /// let two = broker.publish("t", Some(b"k"), b"2")?;
    /// assert_eq!((one.partition, one.offset + 1), (two.partition, two.offset));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn publish(&self, topic: &str, key: Option<&[u8]>, value: &[u8]) -> Result<RecordId> {
        self.publish_message(topic, &Message::new(key, value))
    }
    /// Publishes one record with headers, timestamp, partition, or a null value.
    ///
    /// ```
    /// use riverlog::Message;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// let message = Message::new(Some(b"k"), b"v").header("trace", Some(b"7")).timestamp(1_700_000_000_000);
    /// broker.publish_message("t", &message)?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn publish_message(&self, topic: &str, message: &Message<'_>) -> Result<RecordId> {
        self.publisher.publish(topic, message)
    }
    /// Publishes many records with one wait: one batch for each partition that they go to. Records without a key go to one partition
    /// together. Not atomic over partitions: after an error some may have been stored.
    ///
    /// - Returns where each went, in order.
    ///
    /// ```
    /// use riverlog::Message;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 2)?;
    /// let messages: Vec<_> = ["a", "b", "c"].iter().map(|k| Message::new(Some(k.as_bytes()), b"v")).collect();
    /// assert_eq!(broker.publish_batch("t", &messages)?.len(), 3);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn publish_batch(&self, topic: &str, messages: &[Message<'_>]) -> Result<Vec<RecordId>> {
        self.publisher.publish_batch(topic, messages)
    }
    /// The producer of a transactional id, with a minute for each transaction. An earlier producer of that id is fenced, and what it has
    /// open aborted: after a crash a program goes on where its last committed transaction ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("orders", 1)?;
    /// # broker.create_topic("bills", 1)?;
    /// # broker.publish("orders", None, b"two apples")?;
    /// let mut orders = broker.subscribe("orders", "billing", "billing-1")?;
    /// let mut producer = broker.transaction("billing-1")?;
    /// let mut transaction = producer.begin();
    /// for order in orders.poll(100, Duration::from_secs(1))? {
    ///     transaction.publish("bills", None, order.value())?;
    /// }
    /// // The bills, and that their orders are done: both, or neither.
    /// transaction.commit_offsets(&mut orders)?;
    /// transaction.commit()?;
    /// assert_eq!(broker.group("billing")?.committed("orders", 0)?, Some(1));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn transaction(&self, id: &str) -> Result<TransactionalProducer> {
        self.transaction_with_timeout(id, Duration::from_secs(60))
    }
    /// As [`Broker::transaction`], with another time after which an open transaction is aborted and its producer fenced; at most
    /// `transaction.max.timeout.ms`, 15 minutes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// let mut producer = broker.transaction_with_timeout("billing-1", Duration::from_secs(10))?;
    /// let mut transaction = producer.begin();
    /// transaction.publish("t", None, b"x")?;
    /// transaction.commit()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn transaction_with_timeout(
        &self,
        id: &str,
        timeout: Duration,
    ) -> Result<TransactionalProducer> {
        TransactionalProducer::start(self.clone(), id, timeout)
    }
    pub(crate) fn publisher(&self) -> &Publisher {
        &self.publisher
    }
    /// Joins a consumer group, starting at the group's committed offsets, or at the earliest record where it has none.
    ///
    /// - `consumer_id`: unique within the group; a second subscription with it takes the place of the first.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// let mut consumer = broker.subscribe("t", "group", "consumer-1")?;
    /// broker.publish("t", None, b"hello")?;
    /// assert_eq!(consumer.poll(1, Duration::from_secs(1))?.len(), 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn subscribe(&self, topic: &str, group: &str, consumer_id: &str) -> Result<Consumer> {
        self.subscribe_with(Subscription::new(&[topic], group, consumer_id))
    }
    /// Joins a consumer group with several topics, another start, or at-most-once delivery.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// use riverlog::{Start, Subscription};
    /// let tail = Subscription::new(&["t"], "group", "consumer-1").start(Start::Latest);
    /// let consumer = broker.subscribe_with(tail)?;
    /// assert_eq!(consumer.assignment().len(), 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn subscribe_with(&self, subscription: Subscription) -> Result<Consumer> {
        Consumer::join(self.clone(), subscription)
    }
    /// Joins a share group: its members read together, record by record, and acknowledge each on its own.
    ///
    /// - Errors: [`Error::UnknownTopic`]; those of the group, as [`Error::Refused`].
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// # broker.publish("jobs", None, b"work")?;
    /// # use std::time::Duration;
    /// let mut consumer = broker.subscribe_shared("jobs", "workers", "worker-1")?;
    /// for job in consumer.poll(10, Duration::from_secs(1))? {
    ///     consumer.ack(&job)?;
    /// }
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn subscribe_shared(
        &self,
        topic: &str,
        group: &str,
        consumer_id: &str,
    ) -> Result<SharedConsumer> {
        self.subscribe_shared_with(SharedSubscription::new(&[topic], group, consumer_id))
    }
    /// Joins a share group with several topics, or says what the group is to be like.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// use riverlog::SharedSubscription;
    /// let in_order = SharedSubscription::new(&["jobs"], "workers", "worker-1").key_order(true);
    /// let consumer = broker.subscribe_shared_with(in_order)?;
    /// # drop(consumer);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn subscribe_shared_with(
        &self,
        subscription: SharedSubscription,
    ) -> Result<SharedConsumer> {
        SharedConsumer::join(self.clone(), subscription)
    }
    /// A consumer group that has members or offsets.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert_eq!(broker.group("g")?.members().len(), 1);
    /// assert!(broker.group("nobody").is_err());
    /// # drop(consumer);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn group(&self, name: &str) -> Result<ConsumerGroup> {
        ConsumerGroup::look_up(self.clone(), name)
    }
    /// The names of all groups, in order.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert_eq!(broker.groups()?, ["g"]);
    /// # drop(consumer);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn groups(&self) -> Result<Vec<String>> {
        let groups = self
            .driver
            .call(false, |node, now, reply| node.groups(now, reply))?
            .map_err(Error::refused)?;
        Ok(groups.into_iter().map(|g| g.group).collect())
    }
    /// Stops the broker: waits for what is under way, syncs, and closes the data folder. Afterwards whatever is asked of any clone
    /// is answered with [`Error::Closed`], but for what is only looked at: names, settings, offsets. Dropping the last clone does the same.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// let same = broker.clone();
    /// broker.close()?;
    /// assert!(matches!(same.publish("t", None, b"x"), Err(riverlog::Error::Closed)));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        Ok(self.driver.close()?)
    }

    pub(crate) fn topic_image(&self, name: &str) -> Result<Arc<TopicImage>> {
        self.driver
            .node
            .image()
            .topic(name)
            .cloned()
            .ok_or_else(|| Error::UnknownTopic(name.to_owned()))
    }

    /// A partition of a topic that exists.
    pub(crate) fn partition(&self, topic: &TopicImage, partition: i32) -> Result<PartitionRef> {
        self.driver
            .node
            .partition(&TopicRef::Id(topic.id), partition)
            .map_err(|code| match code {
                ErrorCode::UNKNOWN_TOPIC_ID => Error::UnknownTopic(topic.name.clone()),
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Error::UnknownPartition {
                    topic: topic.name.clone(),
                    partition,
                    count: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX),
                },
                other => Error::refused(other),
            })
    }

    /// A command about one thing.
    pub(crate) fn admin(&self, command: AdminCommand, name: &str) -> Result<AdminResult> {
        let answer = self
            .driver
            .call(true, |node, now, reply| node.admin(command, now, reply))?;
        let result = match answer.map_err(Error::refused)? {
            AdminAnswer::Results(mut results) if !results.is_empty() => results.swap_remove(0),
            _ => return Err(Error::refused(ErrorCode::UNKNOWN_SERVER_ERROR)),
        };
        match result.error {
            ErrorCode::NONE => Ok(result),
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Err(Error::UnknownTopic(name.to_owned())),
            code => {
                let message = result.message.unwrap_or_else(|| code.message().to_owned());
                Err(Error::Refused { code, message })
            }
        }
    }
}
