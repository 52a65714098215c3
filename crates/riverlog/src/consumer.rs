//! Consumers: membership, positions, the wait for records.
//!
//! A consumer is a member of a group of the broker-assigned protocol (KIP-848). Its poll is its heartbeat: cheap in a process,
//! so it is sent with nearly every poll and while one waits, and an assignment changes hands within milliseconds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverlog_core::groups::{
    CommittedOffset, ConsumerHeartbeat, ConsumerHeartbeatAnswer, GroupAnswer, GroupCommand,
    TopicPartition,
};
use riverlog_core::metadata::{MetadataImage, TopicRef};
use riverlog_node::{
    FetchAnswer, FetchCommand, FetchPartition, FetchedPartition, Isolation, OffsetQuery,
};
use riverlog_wire::batch::{Aborted, BatchError, BatchHeader, RecordView, Records, batches};
use riverlog_wire::{ErrorCode, Generation, LeaderEpoch, Offset, TopicId};

use crate::subscription::{Delivery, Start, Subscription};
use crate::{Broker, Error, Record, Result};

/// How often a waiting consumer shows that it is there and learns of a new assignment.
const HEARTBEAT_WHILE_WAITING: Duration = Duration::from_millis(20);
/// The member epoch that leaves a group.
const LEAVE: i32 = -1;
/// Bytes asked of one partition at a time.
const FETCH_BYTES: usize = 1 << 20;
/// The largest expansion of one batch that is accepted.
pub(crate) const BATCH_LIMIT: usize = 256 << 20;

/// A partition that this consumer holds.
type Key = (TopicId, i32);

/// Partitions that a poll passes over because they can't be read, and why; `None`: it passes by itself, and nobody is told.
type Unread = BTreeMap<Key, Option<Error>>;

/// A partition, its topic's name, and what the group has committed there; UNSTABLE_OFFSET_COMMIT where an open transaction is to move it.
type Committed = (
    Key,
    Arc<str>,
    std::result::Result<Option<CommittedOffset>, ErrorCode>,
);

/// When a wait is over; `None`: never, since the clock has no such time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(timeout))
    }
    pub(crate) fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |at| {
            at.saturating_duration_since(Instant::now())
        })
    }
}

/// Where a consumer is in one partition.
#[derive(Debug)]
struct Held {
    topic: Arc<str>,
    /// The next offset to hand out.
    position: Offset,
    /// Epoch of the last record that was handed out.
    epoch: LeaderEpoch,
    /// Committed so far, as this consumer knows.
    committed: Option<Offset>,
    /// Records that were fetched and not handed out.
    buffer: VecDeque<RecordView>,
    /// Whole batches that were fetched and not opened.
    unopened: Bytes,
    /// What of them was aborted.
    aborted: Aborted,
}

/// A member of a consumer group. Leaves it when closed or dropped.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// # broker.publish("t", None, b"x")?;
/// # use std::time::Duration;
/// let mut consumer = broker.subscribe("t", "group", "consumer-1")?;
/// for record in consumer.poll(100, Duration::from_secs(1))? {
///     println!("{}:{} {:?}", record.partition, record.offset, record.value());
/// }
/// consumer.commit()?;
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Debug)]
pub struct Consumer {
    broker: Broker,
    subscription: Subscription,
    /// 0 before the first join.
    epoch: i32,
    held: BTreeMap<Key, Held>,
    /// What it was given, and where to begin there isn't known yet.
    waiting: BTreeSet<Key>,
    /// Whose records come first in the next poll, so that no partition starves the others.
    turn: usize,
    heartbeat_due: Instant,
    left: bool,
}

impl Consumer {
    pub(crate) fn join(broker: Broker, subscription: Subscription) -> Result<Consumer> {
        for topic in &subscription.topics {
            broker.topic_image(topic)?;
        }
        let mut consumer = Consumer {
            broker,
            subscription,
            epoch: 0,
            held: BTreeMap::new(),
            waiting: BTreeSet::new(),
            turn: 0,
            heartbeat_due: Instant::now(),
            left: false,
        };
        // An earlier consumer of this id, if any, is put out of the group: a new membership has a new epoch, and commits
        // of the earlier one are refused.
        consumer.send_heartbeat(LEAVE, None)?;
        // Where it can't begin its polls tell.
        consumer.heartbeat(&mut Unread::new())?;
        Ok(consumer)
    }

    /// The group.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert_eq!(consumer.group(), "g");
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn group(&self) -> &str {
        &self.subscription.group
    }
    /// This consumer's id.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert_eq!(consumer.id(), "c");
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn id(&self) -> &str {
        &self.subscription.consumer
    }
    /// The epoch of this membership: commits of an older one are refused.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert!(consumer.generation() > 0);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn generation(&self) -> i32 {
        self.epoch
    }
    /// The partitions that it holds: topic and number, in order. One where an open transaction is to move what the group has committed is
    /// among them once that transaction has ended: only then is it known where to begin.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 2)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert_eq!(consumer.assignment(), [("t".into(), 0), ("t".into(), 1)]);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn assignment(&self) -> Vec<(Arc<str>, i32)> {
        let mut held: Vec<_> = self
            .held
            .iter()
            .map(|((_, p), h)| (Arc::clone(&h.topic), *p))
            .collect();
        held.sort();
        held
    }
    /// The next offset that [`Consumer::poll`] would hand out of a partition.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # broker.publish("t", None, b"x")?;
    /// # use std::time::Duration;
    /// assert_eq!(consumer.position("t", 0)?, 0);
    /// consumer.poll(10, Duration::from_secs(1))?;
    /// assert_eq!(consumer.position("t", 0)?, 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn position(&self, topic: &str, partition: i32) -> Result<i64> {
        Ok(self.held(topic, partition)?.1.position.0)
    }

    /// Hands out up to `max` records, in order within each partition. Waits for the first up to `timeout`, and wakes as soon as
    /// there is one. Also says that this consumer is alive, and takes over or gives up partitions as the group decides.
    ///
    /// - Returns an empty list when nothing came in time; with `max` 0 always, and not before.
    /// - Errors: those of the broker; after [`Error::Fenced`] the next poll joins again.
    /// - A partition that nobody leads is passed over until somebody does, and one where an open transaction is to move what the group
    ///   has committed, until that has ended.
    /// - A partition that can't be read holds up no other one. Its error (`CORRUPT_MESSAGE` as [`Error::Refused`] where it is
    ///   damaged) comes at once from each poll that has nothing else to hand out. Its position stays; [`Consumer::seek`] goes on
    ///   behind the damage.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert!(consumer.poll(10, Duration::from_millis(1))?.is_empty());
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn poll(&mut self, max: usize, timeout: Duration) -> Result<Vec<Record>> {
        let deadline = Deadline::after(timeout);
        let mut unread = Unread::new();
        loop {
            if Instant::now() >= self.heartbeat_due {
                self.heartbeat(&mut unread)?;
            }
            let left = deadline.left();
            if max == 0 {
                if left.is_zero() {
                    return Ok(Vec::new());
                }
                std::thread::sleep(left.min(HEARTBEAT_WHILE_WAITING));
                continue;
            }
            let records = self.take_buffered(max, &mut unread);
            if !records.is_empty() {
                if self.subscription.delivery == Delivery::AtMostOnce {
                    // Committed before they are handed out; when that fails they are handed out to nobody.
                    self.commit()?;
                }
                return Ok(records);
            }
            // With an error to tell nothing is waited for.
            let wait = match unread.values().any(Option::is_some) {
                false => left.min(HEARTBEAT_WHILE_WAITING),
                true => Duration::ZERO,
            };
            if self.fetch(wait, &mut unread)? {
                continue;
            }
            // Those whose errors pass are looked at again.
            if let Some(error) = std::mem::take(&mut unread).into_values().flatten().next() {
                return Err(error);
            }
            if left.is_zero() {
                return Ok(Vec::new());
            }
        }
    }

    /// Commits everything that has been handed out.
    ///
    /// - Errors: [`Error::Fenced`] when partitions have gone to another member; they are read there from the last commit.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # broker.publish("t", None, b"x")?;
    /// let mut consumer = broker.subscribe("t", "g", "c")?;
    /// for record in consumer.poll(100, Duration::from_secs(1))? {
    ///     println!("{}", String::from_utf8_lossy(record.value()));
    /// }
    /// consumer.commit()?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn commit(&mut self) -> Result<()> {
        let moved: Vec<_> = self
            .held
            .iter()
            .filter(|(_, h)| h.committed != Some(h.position))
            .map(|(key, h)| (*key, h.position, h.epoch))
            .collect();
        self.commit_these(moved)
    }

    /// What has been handed out and isn't committed, as far as this consumer knows.
    pub(crate) fn handed_out(&self) -> Vec<(TopicPartition, CommittedOffset)> {
        let moved = self.held.iter();
        let moved = moved.filter(|(_, h)| h.committed != Some(h.position));
        moved
            .map(|(key, held)| held.commit(*key, held.position, held.epoch))
            .collect()
    }

    /// Member id and epoch.
    pub(crate) fn membership(&self) -> (&str, i32) {
        (&self.subscription.consumer, self.epoch)
    }

    /// Commits one partition: `offset` is the next record to read, one more than the last that is done. For a subscription of several
    /// topics see [`Consumer::commit_topic_at`].
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # broker.publish("t", None, b"x")?;
    /// # use std::time::Duration;
    /// let last = consumer.poll(10, Duration::from_secs(1))?.pop().expect("a record");
    /// consumer.commit_at(last.partition, last.offset + 1)?;
    /// assert_eq!(broker.group("g")?.committed("t", 0)?, Some(1));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn commit_at(&mut self, partition: i32, offset: i64) -> Result<()> {
        let topic = self
            .subscription
            .topics
            .first()
            .cloned()
            .unwrap_or_default();
        self.commit_topic_at(&topic, partition, offset)
    }

    /// Commits one partition of one topic.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # broker.publish("t", None, b"x")?;
    /// # use std::time::Duration;
    /// let last = consumer.poll(10, Duration::from_secs(1))?.pop().expect("a record");
    /// consumer.commit_topic_at(&last.topic, last.partition, last.offset + 1)?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn commit_topic_at(&mut self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        let (key, held) = self.held(topic, partition)?;
        let epoch = held.epoch;
        self.commit_these(vec![(key, Offset(offset), epoch)])
    }

    /// The next poll goes on at `offset` in this partition.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # broker.publish("t", None, b"x")?;
    /// # use std::time::Duration;
    /// # consumer.poll(10, Duration::from_secs(1))?;
    /// consumer.seek("t", 0, 0)?;
    /// assert_eq!(consumer.poll(10, Duration::from_secs(1))?[0].offset, 0);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn seek(&mut self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        let (key, _) = self.held(topic, partition)?;
        if let Some(held) = self.held.get_mut(&key) {
            held.position = Offset(offset);
            held.buffer.clear();
            held.unopened = Bytes::new();
        }
        Ok(())
    }

    /// The next poll goes on at the first record at or after this time (ms since the epoch) in all partitions that it holds; at the
    /// end where there is none.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # use riverlog::Message;
    /// for at in [1_000, 2_000, 3_000] {
    ///     broker.publish_message("t", &Message::new(None, b"x").timestamp(at))?;
    /// }
    /// consumer.seek_to_time(1_500)?;
    /// assert_eq!(consumer.poll(10, Duration::from_secs(1))?[0].timestamp, 2_000);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn seek_to_time(&mut self, timestamp_ms: i64) -> Result<()> {
        for (topic, partition) in self.assignment() {
            let part = self.broker.topic(&topic)?.partition(partition)?;
            let offset = match part.offset_at(timestamp_ms)? {
                Some(offset) => offset,
                None => part.high_watermark(),
            };
            self.seek(&topic, partition, offset)?;
        }
        Ok(())
    }

    /// The next poll goes on at the first record that is still there, in all partitions that it holds.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # broker.publish("t", None, b"x")?;
    /// # use std::time::Duration;
    /// # consumer.poll(10, Duration::from_secs(1))?;
    /// consumer.seek_to_beginning()?;
    /// assert_eq!(consumer.poll(10, Duration::from_secs(1))?.len(), 1);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn seek_to_beginning(&mut self) -> Result<()> {
        for (topic, partition) in self.assignment() {
            let start = self
                .broker
                .topic(&topic)?
                .partition(partition)?
                .log_start_offset();
            self.seek(&topic, partition, start)?;
        }
        Ok(())
    }

    /// Leaves the group; its partitions go to the others at once. Dropping does the same.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// consumer.close()?;
    /// assert!(broker.group("g").map_or(true, |g| g.members().is_empty()));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn close(mut self) -> Result<()> {
        self.leave()
    }

    fn leave(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.left, true) || self.epoch <= 0 {
            return Ok(());
        }
        // Whoever took this consumer's place under the same id must not be put out by its end.
        if self.send_heartbeat(self.epoch, None)?.error != ErrorCode::NONE {
            return Ok(());
        }
        let answer = self.send_heartbeat(LEAVE, None)?;
        match answer.error {
            ErrorCode::NONE | ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::GROUP_ID_NOT_FOUND => {
                Ok(())
            }
            code => Err(Error::refused(code)),
        }
    }

    fn held(&self, topic: &str, partition: i32) -> Result<(Key, &Held)> {
        self.held
            .iter()
            .find(|((_, p), h)| *p == partition && &*h.topic == topic)
            .map(|(key, held)| (*key, held))
            .ok_or(Error::NotAssigned { partition })
    }

    fn commit_these(&mut self, moved: Vec<(Key, Offset, LeaderEpoch)>) -> Result<()> {
        if moved.is_empty() {
            return Ok(());
        }
        let offsets = moved
            .iter()
            .filter_map(|((id, partition), offset, epoch)| {
                let held = self.held.get(&(*id, *partition))?;
                Some(held.commit((*id, *partition), *offset, *epoch))
            })
            .collect();
        let command = GroupCommand::Commit {
            group: self.subscription.group.clone(),
            generation: Generation(self.epoch),
            member: self.subscription.consumer.clone(),
            instance: None,
            offsets,
            version: 10,
        };
        let (error, each) = match self.ask_group(command)? {
            GroupAnswer::Partitions(error, each) => (error, each),
            _ => (ErrorCode::UNKNOWN_SERVER_ERROR, Vec::new()),
        };
        let first = std::iter::once(error)
            .chain(each)
            .find(|e| *e != ErrorCode::NONE);
        match first {
            None => {
                for (key, offset, _) in moved {
                    if let Some(held) = self.held.get_mut(&key) {
                        held.committed = Some(offset);
                    }
                }
                Ok(())
            }
            Some(code) => Err(self.membership_error(code)),
        }
    }

    /// An error of the group; when it means that this membership is over, the next poll joins anew.
    pub(crate) fn membership_error(&mut self, code: ErrorCode) -> Error {
        let over = [
            ErrorCode::UNKNOWN_MEMBER_ID,
            ErrorCode::FENCED_MEMBER_EPOCH,
            ErrorCode::STALE_MEMBER_EPOCH,
            ErrorCode::ILLEGAL_GENERATION,
            ErrorCode::GROUP_ID_NOT_FOUND,
        ];
        if !over.contains(&code) {
            return Error::refused(code);
        }
        if code != ErrorCode::STALE_MEMBER_EPOCH {
            self.epoch = 0;
            self.held.clear();
            self.waiting.clear();
        }
        self.heartbeat_due = Instant::now();
        Error::Fenced {
            group: self.subscription.group.clone(),
            consumer: self.subscription.consumer.clone(),
            reason: code.name(),
        }
    }

    fn ask_group(&self, command: GroupCommand) -> Result<GroupAnswer> {
        self.broker
            .driver
            .call(true, |node, now, reply| node.group(command, now, reply))
            .map_err(Error::from)
    }

    fn send_heartbeat(
        &self,
        epoch: i32,
        owned: Option<Vec<(TopicId, Vec<i32>)>>,
    ) -> Result<ConsumerHeartbeatAnswer> {
        let joining = epoch == 0;
        let command = ConsumerHeartbeat {
            group: self.subscription.group.clone(),
            member: self.subscription.consumer.clone(),
            member_epoch: epoch,
            rebalance_timeout: joining.then(|| {
                self.broker
                    .driver
                    .node
                    .settings()
                    .groups
                    .consumer_session_timeout
            }),
            subscribed_topics: joining.then(|| self.subscription.topics.clone()),
            owned: if joining { Some(Vec::new()) } else { owned },
            client_id: "riverlog".to_owned(),
            client_host: "embedded".to_owned(),
            random: self.broker.driver.node.random(),
            version: 1,
            ..ConsumerHeartbeat::default()
        };
        match self.ask_group(GroupCommand::ConsumerHeartbeat(command))? {
            GroupAnswer::ConsumerHeartbeat(answer) => Ok(answer),
            _ => Err(Error::refused(ErrorCode::UNKNOWN_SERVER_ERROR)),
        }
    }

    /// Shows that this consumer is alive, and follows its assignment until the group has nothing new to say.
    fn heartbeat(&mut self, unread: &mut Unread) -> Result<()> {
        let mut owned = None;
        loop {
            let answer = self.send_heartbeat(self.epoch, owned.take())?;
            match answer.error {
                ErrorCode::NONE => {}
                // The coordinator is reading its log; members are as they were.
                ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                | ErrorCode::COORDINATOR_NOT_AVAILABLE
                | ErrorCode::NOT_COORDINATOR => {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                code if self.epoch == 0 => {
                    let message = answer.message.unwrap_or_else(|| code.message().to_owned());
                    return Err(Error::Refused { code, message });
                }
                code => {
                    let fenced = self.membership_error(code);
                    if self.epoch != 0 {
                        return Err(fenced);
                    }
                    // Whoever only polls needn't hear of it: nothing that they hold is valid, and they join again here.
                    continue;
                }
            }
            self.epoch = answer.member_epoch;
            self.heartbeat_due = Instant::now() + HEARTBEAT_WHILE_WAITING;
            let Some(assignment) = answer.assignment else {
                return self.begin(unread);
            };
            if !self.take_assignment(&assignment) {
                return self.begin(unread);
            }
            owned = Some(assignment);
        }
    }

    /// Gives up what isn't in `assignment`; what is new waits until it is known where to begin. Returns whether anything changed.
    fn take_assignment(&mut self, assignment: &[(TopicId, Vec<i32>)]) -> bool {
        let wanted: BTreeSet<Key> = assignment
            .iter()
            .flat_map(|(id, parts)| parts.iter().map(move |p| (*id, *p)))
            .collect();
        let before = self.held.len() + self.waiting.len();
        self.held.retain(|key, _| wanted.contains(key));
        self.waiting.retain(|key| wanted.contains(key));
        let mut changed = self.held.len() + self.waiting.len() != before;
        for key in wanted {
            if !self.held.contains_key(&key) {
                changed |= self.waiting.insert(key);
            }
        }
        changed
    }

    /// Begins in partitions that it was given. Where an open transaction is to move the commit, the next heartbeat looks again, as Kafka's
    /// consumers do (KIP-447): what the transaction covers isn't read twice. So it does where the broker refuses to say where to begin.
    fn begin(&mut self, unread: &mut Unread) -> Result<()> {
        let image = self.broker.driver.node.image();
        let asked: Vec<(Key, Arc<str>)> = self
            .waiting
            .iter()
            .filter_map(|key| Some((*key, Arc::from(image.topics.get(&key.0)?.name.as_str()))))
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        for (key, topic, committed) in self.committed(asked)? {
            let committed = match committed {
                Ok(committed) => committed,
                Err(ErrorCode::UNSTABLE_OFFSET_COMMIT) => continue,
                Err(code) => return Err(Error::refused(code)),
            };
            let (position, epoch) = match &committed {
                Some(c) => (c.offset, c.leader_epoch),
                None => match self.start_of(&image, key) {
                    Ok(start) => (start, LeaderEpoch::NONE),
                    Err(Error::Refused { code, message }) => {
                        let error = Error::in_partition(code, &topic, key.1, message);
                        unread.insert(key, told(error));
                        continue;
                    }
                    Err(error) if passes(&error) => continue,
                    Err(error) => return Err(error),
                },
            };
            let committed = committed.map(|c| c.offset);
            let held = Held {
                topic,
                position,
                epoch,
                committed,
                buffer: VecDeque::new(),
                unopened: Bytes::new(),
                aborted: Aborted::default(),
            };
            self.waiting.remove(&key);
            self.held.insert(key, held);
        }
        Ok(())
    }

    fn committed(&self, keys: Vec<(Key, Arc<str>)>) -> Result<Vec<Committed>> {
        let asked: Vec<_> = keys
            .iter()
            .map(|((id, partition), topic)| TopicPartition {
                topic: topic.to_string(),
                id: *id,
                partition: *partition,
            })
            .collect();
        loop {
            let asked = asked.clone();
            let answer = self.broker.driver.call(true, |node, now, reply| {
                node.committed_stable(&self.subscription.group, Some(asked), None, now, reply);
            })?;
            match answer {
                Ok(found) => {
                    return Ok(keys
                        .into_iter()
                        .zip(found)
                        .map(|((key, topic), (_, c))| (key, topic, c))
                        .collect());
                }
                Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS) => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                Err(code) => return Err(Error::refused(code)),
            }
        }
    }

    fn start_of(&self, image: &MetadataImage, key: Key) -> Result<Offset> {
        let Some(topic) = image.topics.get(&key.0) else {
            return Ok(Offset::ZERO);
        };
        let reference = self.broker.partition(topic, key.1)?;
        let query = match self.subscription.start {
            Start::Earliest => OffsetQuery::Earliest,
            Start::Latest => OffsetQuery::Latest,
        };
        let answer = self.broker.driver.call(false, |node, _, reply| {
            node.offset(
                &reference,
                query,
                Isolation::ReadUncommitted,
                LeaderEpoch::NONE,
                reply,
            );
        })?;
        match answer.error {
            ErrorCode::NONE => Ok(answer.offset),
            code => Err(Error::refused(code)),
        }
    }

    /// Takes up to `max` records of what was fetched, partition by partition.
    fn take_buffered(&mut self, max: usize, unread: &mut Unread) -> Vec<Record> {
        let keys: Vec<Key> = self.held.keys().copied().collect();
        let mut out = Vec::new();
        for i in 0..keys.len() {
            let key = keys[(self.turn + i) % keys.len()];
            let Some(held) = self.held.get_mut(&key) else {
                continue;
            };
            while out.len() < max {
                if held.buffer.is_empty() {
                    match held.open_batch() {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(broken) => {
                            unread.insert(key, Some(held.unreadable(key.1, &broken)));
                            break;
                        }
                    }
                }
                let Some(view) = held.buffer.pop_front() else {
                    continue;
                };
                held.position = view.offset + 1;
                out.push(Record::new(&held.topic, key.1, view));
            }
            if out.len() >= max {
                break;
            }
        }
        self.turn = self.turn.wrapping_add(1);
        out
    }

    /// Fetches from all held partitions but those that can't be read; nothing of any is buffered. Returns whether to look again:
    /// something came, or one more can't be read, beside which there may have been no room for the others.
    fn fetch(&mut self, wait: Duration, unread: &mut Unread) -> Result<bool> {
        let held = self.held.keys().copied();
        let keys: Vec<Key> = held.filter(|key| !unread.contains_key(key)).collect();
        if keys.is_empty() {
            // Nothing to wait for but an assignment.
            std::thread::sleep(wait.min(Duration::from_millis(5)));
            return Ok(false);
        }
        let partitions = keys
            .iter()
            .filter_map(|key| {
                Some(FetchPartition {
                    topic: TopicRef::Id(key.0),
                    partition: key.1,
                    from: self.held.get(key)?.position,
                    max_bytes: FETCH_BYTES,
                    current_leader_epoch: LeaderEpoch::NONE,
                    last_fetched_epoch: LeaderEpoch::NONE,
                })
            })
            .collect();
        let command = FetchCommand {
            partitions,
            max_wait: wait,
            min_bytes: 1,
            max_bytes: FETCH_BYTES * keys.len().min(16),
            isolation: Isolation::ReadCommitted,
            replica: None,
        };
        let answer: FetchAnswer = self
            .broker
            .driver
            .call(false, |node, now, reply| node.fetch(command, now, reply))?;
        let mut again = false;
        for (key, fetched) in keys.into_iter().zip(answer.partitions) {
            match self.take_fetched(key, fetched) {
                Ok(came) => again |= came,
                Err(error) => {
                    unread.insert(key, told(error));
                    again = true;
                }
            }
        }
        Ok(again)
    }

    /// Buffers what was fetched of one partition. Returns whether anything came.
    fn take_fetched(&mut self, key: Key, fetched: FetchedPartition) -> Result<bool> {
        let Some(held) = self.held.get_mut(&key) else {
            return Ok(false);
        };
        match fetched.error {
            ErrorCode::NONE => {}
            ErrorCode::OFFSET_OUT_OF_RANGE => {
                let start = self.start_of(&self.broker.driver.node.image(), key)?;
                if let Some(held) = self.held.get_mut(&key) {
                    held.position = start;
                }
                return Ok(false);
            }
            // The topic was deleted: the next heartbeat takes it away.
            ErrorCode::UNKNOWN_TOPIC_ID | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                self.held.remove(&key);
                self.heartbeat_due = Instant::now();
                return Ok(false);
            }
            ErrorCode::CORRUPT_MESSAGE => {
                let why = format!(
                    "what is stored at offset {} is damaged; seek behind it to go on",
                    held.position
                );
                return Err(Error::in_partition(
                    ErrorCode::CORRUPT_MESSAGE,
                    &held.topic,
                    key.1,
                    why,
                ));
            }
            code => {
                let topic = &held.topic;
                return Err(Error::in_partition(code, topic, key.1, code.message()));
            }
        }
        let next = fetched.records.next;
        let storage = ErrorCode::KAFKA_STORAGE_ERROR;
        let bytes = fetched.records.into_bytes();
        let bytes = bytes.map_err(|e| Error::in_partition(storage, &held.topic, key.1, e))?;
        let came = !bytes.is_empty();
        held.unopened = bytes;
        held.aborted = Aborted::new(fetched.aborted);
        held.buffer.clear();
        held.fetched_to(next);
        Ok(came)
    }
}

/// Whether an error passes by itself, as that of a partition that gets a leader, or of a topic that is gone, which the group takes away.
fn passes(error: &Error) -> bool {
    let passing = [
        ErrorCode::LEADER_NOT_AVAILABLE,
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::FENCED_LEADER_EPOCH,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
    ];
    match error {
        Error::Refused { code, .. } => passing.contains(code),
        Error::UnknownTopic(_) | Error::UnknownPartition { .. } => true,
        _ => false,
    }
}

/// What a consumer is told of an error: nothing of one that passes.
fn told(error: Error) -> Option<Error> {
    (!passes(&error)).then_some(error)
}

/// A batch that can't be opened.
struct Broken {
    error: BatchError,
    /// `None`: not even that.
    header: Option<BatchHeader>,
}

impl Held {
    /// A commit of this partition.
    fn commit(
        &self,
        (id, partition): Key,
        offset: Offset,
        leader_epoch: LeaderEpoch,
    ) -> (TopicPartition, CommittedOffset) {
        let place = TopicPartition {
            topic: self.topic.to_string(),
            id,
            partition,
        };
        let commit = CommittedOffset {
            offset,
            leader_epoch,
            metadata: String::new(),
            commit_timestamp: -1,
            expire_timestamp: None,
        };
        (place, commit)
    }

    /// Opens the next batch. `false`: there is none. Of a damaged batch the records before the damage are given; once there are none,
    /// it is an error, what lies behind is dropped, and the position stays.
    fn open_batch(&mut self) -> std::result::Result<bool, Broken> {
        let unopened = std::mem::take(&mut self.unopened);
        let Some(batch) = batches(&unopened).next() else {
            return Ok(false);
        };
        let header = batch.map(|batch| batch.header).map_err(|error| Broken {
            error,
            header: None,
        })?;
        let passed_over = self.aborted.passes_over(&header);
        if !passed_over && let Err(error) = self.open_records(&unopened) {
            let header = Some(header);
            if self.buffer.is_empty() {
                return Err(Broken { error, header });
            }
        } else {
            self.unopened = unopened.slice(header.size()..);
            if self.buffer.is_empty() {
                // Markers and compacted batches have nothing to hand out; the position passes them all the same.
                self.position = self.position.max(header.next_offset());
            }
        }
        self.epoch = header.leader_epoch;
        Ok(true)
    }

    /// Buffers the records of the first of some batches.
    fn open_records(&mut self, batches: &Bytes) -> std::result::Result<(), BatchError> {
        for view in Records::shared(batches, BATCH_LIMIT)?.iter() {
            let view = view?;
            if view.offset >= self.position {
                self.buffer.push_back(view);
            }
        }
        Ok(())
    }

    /// Why nothing more is read of this partition.
    fn unreadable(&self, partition: i32, broken: &Broken) -> Error {
        let error = &broken.error;
        let why = match &broken.header {
            Some(header) => format!(
                "the batch of offsets {} to {} can't be read from {} on: {error}; seek to {} to go on behind it",
                header.base_offset,
                header.last_offset(),
                self.position.max(header.base_offset),
                header.next_offset()
            ),
            None => format!(
                "what is stored at offset {} can't be read: {error}; seek behind it to go on",
                self.position
            ),
        };
        Error::in_partition(ErrorCode::CORRUPT_MESSAGE, &self.topic, partition, why)
    }
    /// A fetch that gave bytes but no record for us (all of them markers) must not be repeated from the same place.
    fn fetched_to(&mut self, next: Offset) {
        if self.unopened.is_empty() && next > self.position {
            self.position = next;
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // A broker that is closed has no group to leave; its members' sessions end there.
        let _ = self.leave();
    }
}
