//! Share groups: records are handed out one by one to any member, and each is acknowledged on its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverlog_core::groups::{ConsumerHeartbeatAnswer, GroupAnswer, GroupCommand, ShareHeartbeat};
use riverlog_core::metadata::{AdminCommand, ConfigChange, ConfigResource};
use riverlog_core::share::{Acknowledge, Acknowledgement, AcquireMode, ShareKey};
use riverlog_node::{ShareFetchAnswer, ShareFetchCommand, ShareFetched};
use riverlog_wire::batch::{BatchError, RecordView, Records, batches};
use riverlog_wire::{ErrorCode, Offset, TopicId};

use crate::consumer::{BATCH_LIMIT, Deadline};
use crate::{Broker, Error, Record, Result, Start};

/// How often a member shows that it is there and learns of another assignment.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// How long one look for records waits, so that a new assignment is seen soon.
const WAIT: Duration = Duration::from_millis(50);
/// Bytes asked for at a time.
const FETCH_BYTES: usize = 8 << 20;
const JOIN: i32 = 0;
const LEAVE: i32 = -1;

/// A partition.
type Key = (TopicId, i32);

/// Partitions that a poll passes over because they can't be read, and why.
type Unread = BTreeMap<Key, Error>;

/// What of a partition couldn't be opened, and was rejected.
#[derive(Debug)]
struct Rejected {
    topic: Arc<str>,
    first: i64,
    last: i64,
    /// Offsets.
    count: usize,
    /// What was wrong with the first batch of them.
    why: BatchError,
}

impl Rejected {
    fn error(&self, partition: i32) -> Error {
        let Rejected {
            topic,
            first,
            last,
            count,
            why,
        } = self;
        let why = format!(
            "{count} offsets from {first} to {last} can't be read and were rejected, nobody gets them: {why}"
        );
        Error::in_partition(ErrorCode::CORRUPT_MESSAGE, topic, partition, why)
    }
}

/// How to join a share group, and what the group is to be like. What is set here is set for all members, and kept.
///
/// ```
/// use std::time::Duration;
/// use riverlog::SharedSubscription;
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("jobs", 1)?;
/// let subscription = SharedSubscription::new(&["jobs"], "workers", "worker-1")
///     .key_order(true)
///     .backoff(Duration::from_millis(100), Duration::from_secs(60))
///     .delivery_limit(3);
/// let consumer = broker.subscribe_shared_with(subscription)?;
/// # drop(consumer);
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SharedSubscription {
    topics: Vec<String>,
    group: String,
    consumer: String,
    settings: BTreeMap<&'static str, String>,
}

impl SharedSubscription {
    /// From the earliest record, without order, tried again at once.
    ///
    /// ```
    /// use riverlog::SharedSubscription;
    /// let both = SharedSubscription::new(&["jobs", "chores"], "workers", "worker-1");
    /// # drop(both);
    /// ```
    pub fn new(topics: &[&str], group: &str, consumer_id: &str) -> SharedSubscription {
        let mut settings = BTreeMap::new();
        settings.insert("share.auto.offset.reset", "earliest".to_owned());
        // Rolled back and open transactions are as invisible as they are for other consumers here.
        settings.insert("share.isolation.level", "read_committed".to_owned());
        SharedSubscription {
            topics: topics.iter().map(|t| (*t).to_owned()).collect(),
            group: group.to_owned(),
            consumer: consumer_id.to_owned(),
            settings,
        }
    }
    /// Where the group begins in a partition that it has not read yet.
    ///
    /// ```
    /// use riverlog::{SharedSubscription, Start};
    /// let new_ones = SharedSubscription::new(&["jobs"], "workers", "w").start(Start::Latest);
    /// # drop(new_ones);
    /// ```
    pub fn start(mut self, start: Start) -> Self {
        let value = match start {
            Start::Earliest => "earliest",
            Start::Latest => "latest",
        };
        self.settings
            .insert("share.auto.offset.reset", value.to_owned());
        self
    }
    /// Records of one key are handed out in order, one at a time, however many consumers there are: the next comes when the one before
    /// is done with.
    ///
    /// ```
    /// use riverlog::SharedSubscription;
    /// let in_order = SharedSubscription::new(&["jobs"], "workers", "w").key_order(true);
    /// # drop(in_order);
    /// ```
    pub fn key_order(mut self, on: bool) -> Self {
        self.settings
            .insert("riverlog.share.key.order", on.to_string());
        self
    }
    /// How long a record rests that was given back, or not acknowledged in time: `first` at first, then twice as long each time,
    /// no longer than `most`. It is kept with the record, and outlives a restart.
    ///
    /// ```
    /// use std::time::Duration;
    /// use riverlog::SharedSubscription;
    /// let patient = SharedSubscription::new(&["jobs"], "workers", "w")
    ///     .backoff(Duration::from_secs(1), Duration::from_secs(300));
    /// # drop(patient);
    /// ```
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        for (key, value) in [
            ("riverlog.share.backoff.ms", first),
            ("riverlog.share.backoff.max.ms", most),
        ] {
            self.settings.insert(key, value.as_millis().to_string());
        }
        self
    }
    /// How often a record is handed out before it is given up: 2 to 10 unless the broker allows more. Default 5.
    ///
    /// ```
    /// use riverlog::SharedSubscription;
    /// let thrice = SharedSubscription::new(&["jobs"], "workers", "w").delivery_limit(3);
    /// # drop(thrice);
    /// ```
    pub fn delivery_limit(mut self, times: u16) -> Self {
        self.settings
            .insert("share.delivery.count.limit", times.to_string());
        self
    }
    /// How long a consumer may take for a record before others get it: 15 to 60 seconds unless the broker allows more. Default 30.
    ///
    /// ```
    /// use std::time::Duration;
    /// use riverlog::SharedSubscription;
    /// let slow = SharedSubscription::new(&["jobs"], "workers", "w").lock(Duration::from_secs(60));
    /// # drop(slow);
    /// ```
    pub fn lock(mut self, time: Duration) -> Self {
        self.settings.insert(
            "share.record.lock.duration.ms",
            time.as_millis().to_string(),
        );
        self
    }
    /// Records that are rejected, or given up, are put into this topic, key and value included (KIP-1191). The topic must allow it by
    /// `errors.deadletterqueue.group.enable=true`, and its name begin with `dlq.`.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// use riverlog::SharedSubscription;
    /// broker.topic_builder("dlq.jobs").config("errors.deadletterqueue.group.enable", "true").create()?;
    /// let subscription = SharedSubscription::new(&["jobs"], "workers", "w").dead_letters("dlq.jobs");
    /// let mut consumer = broker.subscribe_shared_with(subscription)?;
    /// # broker.publish("jobs", None, b"nonsense")?;
    /// # use std::time::Duration;
    /// for record in consumer.poll(10, Duration::from_secs(1))? {
    ///     consumer.reject(&record)?;
    /// }
    /// let dead = broker.subscribe("dlq.jobs", "inspectors", "i")?.poll(1, Duration::from_secs(5))?;
    /// assert_eq!(dead[0].value(), b"nonsense");
    /// assert_eq!(dead[0].header("__dlq.errors.topic").as_deref(), Some(&b"jobs"[..]));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn dead_letters(mut self, topic: &str) -> Self {
        self.settings
            .insert("errors.deadletterqueue.topic.name", topic.to_owned());
        self.settings.insert(
            "errors.deadletterqueue.copy.record.enable",
            "true".to_owned(),
        );
        self
    }
}

/// A record that a member of a share group has for a while.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("jobs", 1)?;
/// # broker.publish("jobs", None, b"work")?;
/// # use std::time::Duration;
/// let mut consumer = broker.subscribe_shared("jobs", "workers", "worker-1")?;
/// let job = &consumer.poll(1, Duration::from_secs(1))?[0];
/// assert_eq!((job.value(), job.delivery_count), (&b"work"[..], 1));
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRecord {
    /// The record.
    pub record: Record,
    /// How often it has been handed out, this time included.
    pub delivery_count: i16,
    topic: TopicId,
}

impl std::ops::Deref for SharedRecord {
    type Target = Record;
    fn deref(&self) -> &Record {
        &self.record
    }
}

/// A member of a share group. Closed or dropped, it gives back what it has and leaves.
///
/// Any number of consumers read one partition together. What a consumer was handed it acknowledges record by record; what
/// it doesn't acknowledge within the group's time goes to others.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("jobs", 1)?;
/// # broker.publish("jobs", None, b"work")?;
/// # use std::time::Duration;
/// # fn work(_: &[u8]) -> Result<(), &'static str> { Ok(()) }
/// let mut consumer = broker.subscribe_shared("jobs", "workers", "worker-1")?;
/// for job in consumer.poll(10, Duration::from_secs(1))? {
///     match work(job.value()) {
///         Ok(()) => consumer.ack(&job)?,
///         Err("later") => consumer.release(&job, Duration::from_secs(10))?,
///         Err(_) => consumer.reject(&job)?,
///     }
/// }
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedConsumer {
    broker: Broker,
    subscription: SharedSubscription,
    epoch: i32,
    assignment: Vec<Key>,
    /// Rejected, and not told yet.
    untold: BTreeMap<Key, Rejected>,
    /// Which partition is looked at first.
    turn: usize,
    heartbeat_due: Instant,
    left: bool,
}

impl SharedConsumer {
    pub(crate) fn join(broker: Broker, subscription: SharedSubscription) -> Result<SharedConsumer> {
        for topic in &subscription.topics {
            broker.topic_image(topic)?;
        }
        let group = &subscription.group;
        let set = |(key, value): (&&str, &String)| {
            ConfigChange::Set((*key).to_owned(), Some(value.clone()))
        };
        let command = AdminCommand::AlterConfigs {
            resources: vec![(
                ConfigResource::Group(group.clone()),
                subscription.settings.iter().map(set).collect(),
            )],
            replace: false,
            validate_only: false,
        };
        broker.admin(command, group)?;
        let mut consumer = SharedConsumer {
            broker,
            subscription,
            epoch: JOIN,
            assignment: Vec::new(),
            untold: BTreeMap::new(),
            turn: 0,
            heartbeat_due: Instant::now(),
            left: false,
        };
        consumer.heartbeat()?;
        Ok(consumer)
    }

    /// Hands out up to `max` records that nobody else has. Waits for the first up to `timeout`. Also says that this consumer is alive.
    ///
    /// - Returns an empty list when nothing came in time; with `max` 0 always, and not before.
    /// - Errors: those of the broker. A batch that can't be opened is rejected as by [`SharedConsumer::reject`], and told once as
    ///   [`Error::Refused`] with `CORRUPT_MESSAGE`. A partition that is damaged on the disk stays where it is, and is told of each
    ///   time. Neither holds up other records: the error comes at once from a poll that has nothing else to hand out.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// # broker.publish("jobs", None, b"work")?;
    /// let mut one = broker.subscribe_shared("jobs", "workers", "worker-1")?;
    /// let mut two = broker.subscribe_shared("jobs", "workers", "worker-2")?;
    /// assert_eq!(one.poll(10, Duration::from_secs(1))?.len(), 1);
    /// assert!(two.poll(10, Duration::from_millis(10))?.is_empty());
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<SharedRecord>> {
        let deadline = Deadline::after(timeout);
        let mut unread = Unread::new();
        loop {
            if Instant::now() >= self.heartbeat_due {
                self.heartbeat()?;
            }
            let left = deadline.left();
            if max == 0 {
                if left.is_zero() {
                    return Ok(Vec::new());
                }
                std::thread::sleep(left.min(HEARTBEAT));
                continue;
            }
            // With an error to tell nothing is waited for.
            let wait = match self.untold.is_empty() && unread.is_empty() {
                true => left.min(WAIT),
                false => Duration::ZERO,
            };
            let (records, again) = self.fetch(max, wait, &mut unread)?;
            if !records.is_empty() {
                return Ok(records);
            }
            if again {
                continue;
            }
            if let Some(((_, partition), rejected)) = self.untold.pop_first() {
                return Err(rejected.error(partition));
            }
            if let Some((_, error)) = unread.pop_first() {
                return Err(error);
            }
            if left.is_zero() {
                return Ok(Vec::new());
            }
        }
    }

    /// The record is done: nobody gets it again. Returns once that survives what the topic's records survive.
    ///
    /// - Errors: `INVALID_RECORD_STATE` as [`Error::Refused`] when this consumer no longer has it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// # broker.publish("jobs", None, b"work")?;
    /// let mut consumer = broker.subscribe_shared("jobs", "workers", "worker-1")?;
    /// let job = consumer.poll(1, Duration::from_secs(1))?.remove(0);
    /// consumer.ack(&job)?;
    /// assert!(consumer.poll(1, Duration::from_millis(10))?.is_empty());
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn ack(&self, record: &SharedRecord) -> Result<()> {
        self.ack_all(std::slice::from_ref(record))
    }

    /// The same for many at once, which is faster: all of one partition hold, or none of them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// # broker.publish("jobs", None, b"work")?;
    /// let mut consumer = broker.subscribe_shared("jobs", "workers", "worker-1")?;
    /// let jobs = consumer.poll(100, Duration::from_secs(1))?;
    /// consumer.ack_all(&jobs)?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn ack_all(&self, records: &[SharedRecord]) -> Result<()> {
        self.say(records, Acknowledge::Accept)
    }

    /// Gives a record back: somebody gets it again, not before `after` is over. Zero: at once. After as many deliveries as the
    /// group allows it is given up.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// # broker.publish("jobs", None, b"work")?;
    /// let mut consumer = broker.subscribe_shared("jobs", "workers", "worker-1")?;
    /// let job = consumer.poll(1, Duration::from_secs(1))?.remove(0);
    /// consumer.release(&job, Duration::from_millis(100))?;
    /// assert!(consumer.poll(1, Duration::from_millis(1))?.is_empty());
    /// assert_eq!(consumer.poll(1, Duration::from_secs(5))?[0].delivery_count, 2);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn release(&self, record: &SharedRecord, after: Duration) -> Result<()> {
        let records = std::slice::from_ref(record);
        self.say(records, Acknowledge::ReleaseAfter(after))
    }

    /// Nobody shall try the record again: it is archived, or becomes a dead letter.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// # broker.publish("jobs", None, b"nonsense")?;
    /// let mut consumer = broker.subscribe_shared("jobs", "workers", "worker-1")?;
    /// let job = consumer.poll(1, Duration::from_secs(1))?.remove(0);
    /// consumer.reject(&job)?;
    /// assert!(consumer.poll(1, Duration::from_millis(10))?.is_empty());
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn reject(&self, record: &SharedRecord) -> Result<()> {
        self.say(std::slice::from_ref(record), Acknowledge::Reject)
    }

    /// Asks for more time for a record: the group's time begins anew.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// # broker.publish("jobs", None, b"much work")?;
    /// let mut consumer = broker.subscribe_shared("jobs", "workers", "worker-1")?;
    /// let job = consumer.poll(1, Duration::from_secs(1))?.remove(0);
    /// consumer.renew(&job)?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn renew(&self, record: &SharedRecord) -> Result<()> {
        self.say(std::slice::from_ref(record), Acknowledge::Renew)
    }

    /// Gives back what it has, and leaves. Dropping does the same.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("jobs", 1)?;
    /// let consumer = broker.subscribe_shared("jobs", "workers", "worker-1")?;
    /// consumer.close()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn close(mut self) -> Result<()> {
        self.leave()
    }

    fn key(&self, (topic, partition): Key) -> ShareKey {
        ShareKey {
            group: self.subscription.group.clone(),
            topic,
            partition,
        }
    }

    fn say(&self, records: &[SharedRecord], what: Acknowledge) -> Result<()> {
        let mut places: BTreeMap<Key, Vec<i64>> = BTreeMap::new();
        for record in records {
            let place = (record.topic, record.partition);
            places.entry(place).or_default().push(record.offset);
        }
        for (place, mut offsets) in places {
            offsets.sort_unstable();
            offsets.dedup();
            self.acknowledge(place, offsets.into_iter().map(|at| (at, what)))?;
        }
        Ok(())
    }

    /// Says something of offsets of one partition, which are in order.
    fn acknowledge(
        &self,
        place: Key,
        offsets: impl Iterator<Item = (i64, Acknowledge)>,
    ) -> Result<()> {
        let mut said: Vec<Acknowledgement> = Vec::new();
        for (at, what) in offsets {
            match said.last_mut() {
                Some(range) if range.last.0 + 1 == at && range.types == [what] => {
                    range.last = Offset(at);
                }
                _ => said.push(Acknowledgement {
                    first: Offset(at),
                    last: Offset(at),
                    types: vec![what],
                }),
            }
        }
        if said.is_empty() {
            return Ok(());
        }
        let (key, member) = (self.key(place), &self.subscription.consumer);
        self.broker
            .driver
            .call(true, |node, now, reply| {
                node.share_acknowledge(&key, member, &said, now, reply);
            })?
            .map_err(Error::refused)
    }

    /// Records of all partitions but those that can't be read; and whether to look again when there are none: something was passed
    /// over, and what lies behind or elsewhere may have had no room beside it.
    fn fetch(
        &mut self,
        max: usize,
        wait: Duration,
        unread: &mut Unread,
    ) -> Result<(Vec<SharedRecord>, bool)> {
        let assigned = self.assignment.iter().copied();
        let places: Vec<Key> = assigned.filter(|p| !unread.contains_key(p)).collect();
        if places.is_empty() {
            // Nothing to wait for but an assignment.
            std::thread::sleep(wait.min(Duration::from_millis(5)));
            return Ok((Vec::new(), false));
        }
        self.turn = self.turn.wrapping_add(1);
        let command = ShareFetchCommand {
            group: self.subscription.group.clone(),
            member: self.subscription.consumer.clone(),
            partitions: places.clone(),
            first: self.turn,
            max_wait: wait,
            max_bytes: FETCH_BYTES,
            max_records: i64::try_from(max).unwrap_or(i64::MAX),
            batch_size: i64::MAX,
            mode: AcquireMode::RecordLimit,
        };
        let answer: ShareFetchAnswer = self.broker.driver.call(true, |node, now, reply| {
            node.share_fetch(command, now, reply)
        })?;
        let image = self.broker.driver.node.image();
        let (mut out, mut again) = (Vec::new(), false);
        for (place, part) in places.into_iter().zip(answer.partitions) {
            // Records that were acquired elsewhere are handed out whatever is the matter here.
            let Some(topic) = image.topics.get(&place.0) else {
                continue;
            };
            match self.take_fetched(place, &topic.name, part, &mut out) {
                Ok(rejected) => again |= rejected,
                Err(error) => {
                    unread.insert(place, error);
                    again = true;
                }
            }
        }
        Ok((out, again))
    }

    /// Takes what was acquired of one partition. Returns whether something had to be rejected.
    fn take_fetched(
        &mut self,
        place: Key,
        topic: &str,
        part: ShareFetched,
        out: &mut Vec<SharedRecord>,
    ) -> Result<bool> {
        let refused = |code, why: &str| Error::in_partition(code, topic, place.1, why);
        match part.error {
            ErrorCode::NONE => {}
            // The topic was deleted: the next heartbeat takes it away.
            ErrorCode::UNKNOWN_TOPIC_ID | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                self.heartbeat_due = Instant::now();
                return Ok(false);
            }
            code @ ErrorCode::CORRUPT_MESSAGE => {
                return Err(refused(
                    code,
                    "what is stored where the group is to go on is damaged; delete the records up to behind it (`Partition::delete_records`)",
                ));
            }
            code => return Err(refused(code, code.message())),
        }
        let storage = ErrorCode::KAFKA_STORAGE_ERROR;
        let bytes = part.records.into_bytes();
        let bytes = bytes.map_err(|e| refused(storage, &e.to_string()))?;
        // What was acquired and has no record; of that the group is told.
        let mut rest: BTreeMap<i64, (i16, Acknowledge)> = BTreeMap::new();
        for range in &part.acquired {
            let count = range.delivery_count;
            let offsets = range.first.0..=range.last.0;
            rest.extend(offsets.map(|at| (at, (count, Acknowledge::Gap))));
        }
        let topic: Arc<str> = Arc::from(topic);
        let mut rejected: Option<Rejected> = None;
        let mut behind = i64::MIN;
        for batch in batches(&bytes) {
            let (first, last, opened) = match batch {
                Ok(batch) => {
                    let header = batch.header;
                    let opened = open(&bytes.slice_ref(batch.bytes), |view| {
                        if let Some((delivery_count, _)) = rest.remove(&view.offset.0) {
                            out.push(SharedRecord {
                                record: Record::new(&topic, place.1, view),
                                delivery_count,
                                topic: place.0,
                            });
                        }
                    });
                    (header.base_offset.0, header.last_offset().0, opened)
                }
                // Where it ends isn't known, and so of nothing behind it either.
                Err(error) => (behind, i64::MAX, Err(error)),
            };
            behind = last.saturating_add(1);
            let Err(why) = opened else { continue };
            let broken = rest.range_mut(first..).take_while(|(at, _)| **at <= last);
            for (at, (_, what)) in broken {
                *what = Acknowledge::Reject;
                let rejected = rejected.get_or_insert_with(|| Rejected {
                    topic: Arc::clone(&topic),
                    first: *at,
                    last: *at,
                    count: 0,
                    why: why.clone(),
                });
                rejected.last = *at;
                rejected.count += 1;
            }
        }
        self.acknowledge(place, rest.into_iter().map(|(at, (_, what))| (at, what)))?;
        let Some(new) = rejected else {
            return Ok(false);
        };
        // Who never has a poll without records is told of all in one.
        match self.untold.get_mut(&place) {
            Some(told) => {
                told.first = told.first.min(new.first);
                told.last = told.last.max(new.last);
                told.count += new.count;
            }
            None => {
                self.untold.insert(place, new);
            }
        }
        Ok(true)
    }

    fn send_heartbeat(&self, epoch: i32) -> Result<ConsumerHeartbeatAnswer> {
        let heartbeat = ShareHeartbeat {
            group: self.subscription.group.clone(),
            member: self.subscription.consumer.clone(),
            member_epoch: epoch,
            subscribed_topics: (epoch == JOIN).then(|| self.subscription.topics.clone()),
            client_id: "riverlog".to_owned(),
            client_host: "embedded".to_owned(),
            ..ShareHeartbeat::default()
        };
        let command = GroupCommand::ShareHeartbeat(heartbeat);
        let driver = &self.broker.driver;
        match driver.call(true, |node, now, reply| node.group(command, now, reply))? {
            GroupAnswer::ConsumerHeartbeat(answer) => Ok(answer),
            _ => Err(Error::refused(ErrorCode::UNKNOWN_SERVER_ERROR)),
        }
    }

    fn heartbeat(&mut self) -> Result<()> {
        loop {
            let answer = self.send_heartbeat(self.epoch)?;
            match answer.error {
                ErrorCode::NONE => {}
                // The coordinator is reading its log; members are as they were.
                ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                | ErrorCode::COORDINATOR_NOT_AVAILABLE
                | ErrorCode::NOT_COORDINATOR => {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                ErrorCode::UNKNOWN_MEMBER_ID
                | ErrorCode::FENCED_MEMBER_EPOCH
                | ErrorCode::GROUP_ID_NOT_FOUND
                    if self.epoch != JOIN =>
                {
                    self.epoch = JOIN;
                    self.assignment.clear();
                    continue;
                }
                code => {
                    let message = answer.message.unwrap_or_else(|| code.message().to_owned());
                    return Err(Error::Refused { code, message });
                }
            }
            self.epoch = answer.member_epoch;
            self.heartbeat_due = Instant::now() + HEARTBEAT;
            if let Some(assignment) = answer.assignment {
                let each = assignment.into_iter();
                let each = each.flat_map(|(id, parts)| parts.into_iter().map(move |p| (id, p)));
                let now: Vec<Key> = each.collect();
                let gone: Vec<_> = self
                    .assignment
                    .drain(..)
                    .filter(|p| !now.contains(p))
                    .collect();
                self.assignment = now;
                self.give_back(gone)?;
            }
            return Ok(());
        }
    }

    fn give_back(&self, places: Vec<Key>) -> Result<()> {
        for place in places {
            let (key, member) = (self.key(place), &self.subscription.consumer);
            self.broker.driver.call(true, |node, now, reply| {
                node.share_release(&key, member, now);
                reply.send(());
            })?;
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.left, true) || self.epoch <= JOIN {
            return Ok(());
        }
        let places = std::mem::take(&mut self.assignment);
        self.give_back(places)?;
        let answer = self.send_heartbeat(LEAVE)?;
        match answer.error {
            ErrorCode::NONE | ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::GROUP_ID_NOT_FOUND => {
                Ok(())
            }
            code => Err(Error::refused(code)),
        }
    }
}

/// Goes through the records of a batch, up to what can't be read.
fn open(batch: &Bytes, mut each: impl FnMut(RecordView)) -> std::result::Result<(), BatchError> {
    for view in Records::shared(batch, BATCH_LIMIT)?.iter() {
        each(view?);
    }
    Ok(())
}

impl Drop for SharedConsumer {
    fn drop(&mut self) {
        // A broker that is gone has nothing to give back to.
        let _ = self.leave();
    }
}
