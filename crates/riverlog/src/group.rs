//! Groups to look at: members, assignments, lag.

use std::time::Duration;

use riverlog_core::groups::{GroupCommand, GroupDescription};
use riverlog_node::OffsetQuery;
use riverlog_wire::ErrorCode;

use crate::{Broker, Error, Result};

/// A consumer group, as it was when it was looked up; [`Broker::group`] looks again.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 2)?;
/// # let mut consumer = broker.subscribe("t", "g", "c")?;
/// let group = broker.group("g")?;
/// assert_eq!(group.members()[0].assignment.len(), 2);
/// # drop(consumer);
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConsumerGroup {
    broker: Broker,
    description: GroupDescription,
}

/// A member of a group.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// # let mut consumer = broker.subscribe("t", "g", "c")?;
/// let member = &broker.group("g")?.members()[0];
/// assert_eq!((member.consumer.as_str(), member.assignment.len()), ("c", 1));
/// # drop(consumer);
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its consumer id.
    pub consumer: String,
    /// What it holds: topic and partition, in order.
    pub assignment: Vec<(String, i32)>,
}

/// How far a group is behind.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// # let mut consumer = broker.subscribe("t", "g", "c")?;
/// # broker.publish("t", None, b"x")?;
/// use riverlog::Lag;
/// assert_eq!(broker.group("g")?.lag()?[0].lag, Lag::NoCommit);
/// consumer.commit_at(0, 0)?;
/// assert_eq!(broker.group("g")?.lag()?[0].lag, Lag::Records(1));
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// This many records are stored and not committed.
    Records(u64),
    /// The group has committed nothing there.
    NoCommit,
}

/// One partition of a group.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// # broker.create_topic("t", 1)?;
/// # let mut consumer = broker.subscribe("t", "g", "c")?;
/// # broker.publish("t", None, b"x")?;
/// consumer.commit_at(0, 0)?;
/// let lag = &broker.group("g")?.lag()?[0];
/// assert_eq!((lag.committed, lag.high_watermark), (Some(0), 1));
/// assert!(lag.time_to_loss.is_some());
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionLag {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// The next record that the group reads; `None` before its first commit.
    pub committed: Option<i64>,
    /// Where acknowledged records end.
    pub high_watermark: i64,
    /// How far it is behind.
    pub lag: Lag,
    /// When retention will drop the first record that the group hasn't committed: exact for retention by age, by the recent rate
    /// of publishing for retention by count. Zero: it has already dropped some. `None`: nothing to lose, or no retention.
    pub time_to_loss: Option<Duration>,
}

impl ConsumerGroup {
    pub(crate) fn look_up(broker: Broker, name: &str) -> Result<ConsumerGroup> {
        let answer = broker.driver.call(false, |node, now, reply| {
            node.describe_group(name, now, reply)
        })?;
        match answer.map_err(Error::refused)? {
            Some(description) => Ok(ConsumerGroup {
                broker,
                description,
            }),
            None => Err(Error::Refused {
                code: ErrorCode::GROUP_ID_NOT_FOUND,
                message: format!(
                    "there is no group {name:?}; it comes to be when a consumer joins or commits"
                ),
            }),
        }
    }
    /// Its name.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert_eq!(broker.group("g")?.name(), "g");
    /// # drop(consumer);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.description.group
    }
    /// "Empty", "Stable", "Reconciling", …
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert_eq!(broker.group("g")?.state(), "Stable");
    /// # drop(consumer);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn state(&self) -> &'static str {
        self.description.state
    }
    /// Counts its assignments.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// let before = broker.group("g")?.generation();
    /// let second = broker.subscribe("t", "g", "d")?;
    /// assert!(broker.group("g")?.generation() > before);
    /// # drop((consumer, second));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn generation(&self) -> i32 {
        self.description.generation.0
    }
    /// Its members in order of id.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert_eq!(broker.group("g")?.members()[0].consumer, "c");
    /// # drop(consumer);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn members(&self) -> Vec<Member> {
        let image = self.broker.driver.node.image();
        self.description
            .members
            .iter()
            .map(|member| {
                let mut assignment: Vec<(String, i32)> = member
                    .assigned
                    .iter()
                    .filter_map(|(id, parts)| Some((image.topics.get(id)?.name.clone(), parts)))
                    .flat_map(|(name, parts)| parts.iter().map(move |p| (name.clone(), *p)))
                    .collect();
                assignment.sort();
                Member {
                    consumer: member.member.clone(),
                    assignment,
                }
            })
            .collect()
    }
    /// The committed offset of one partition.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// assert_eq!(broker.group("g")?.committed("t", 0)?, None);
    /// # broker.publish("t", None, b"x")?;
    /// consumer.commit_at(0, 1)?;
    /// assert_eq!(broker.group("g")?.committed("t", 0)?, Some(1));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn committed(&self, topic: &str, partition: i32) -> Result<Option<i64>> {
        Ok(self
            .offsets()?
            .into_iter()
            .find(|(t, p, _)| t == topic && *p == partition)
            .map(|(_, _, o)| o))
    }
    fn offsets(&self) -> Result<Vec<(String, i32, i64)>> {
        let answer = self.broker.driver.call(true, |node, now, reply| {
            node.committed(&self.description.group, None, None, now, reply);
        })?;
        let found = answer.map_err(Error::refused)?;
        Ok(found
            .into_iter()
            .filter_map(|(p, c)| Some((p.topic, p.partition, c?.offset.0)))
            .collect())
    }
    /// How far the group is behind, for every partition that it has committed or holds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use riverlog::{Broker, Lag};
    /// let broker = Broker::in_memory();
    /// broker.create_topic("t", 1)?;
    /// let mut consumer = broker.subscribe("t", "g", "c")?;
    /// broker.publish("t", None, b"1")?;
    /// broker.publish("t", None, b"2")?;
    /// consumer.poll(1, Duration::from_secs(1))?;
    /// consumer.commit()?;
    /// assert_eq!(broker.group("g")?.lag()?[0].lag, Lag::Records(1));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn lag(&self) -> Result<Vec<PartitionLag>> {
        let offsets = self.offsets()?;
        let mut places: Vec<(String, i32)> =
            offsets.iter().map(|(t, p, _)| (t.clone(), *p)).collect();
        places.extend(self.members().into_iter().flat_map(|m| m.assignment));
        places.sort();
        places.dedup();
        let mut all = Vec::with_capacity(places.len());
        for (topic, partition) in places {
            let committed = offsets
                .iter()
                .find(|(t, p, _)| *t == topic && *p == partition)
                .map(|(_, _, offset)| *offset);
            let part = match self
                .broker
                .topic(&topic)
                .and_then(|t| t.partition(partition))
            {
                Ok(part) => part,
                Err(Error::UnknownTopic(_) | Error::UnknownPartition { .. }) => continue,
                Err(other) => return Err(other),
            };
            let high_watermark = part.high_watermark();
            let lag = match committed {
                // A commit past the end is legal; the lag is never negative.
                Some(offset) => Lag::Records(high_watermark.saturating_sub(offset).max(0) as u64),
                None => Lag::NoCommit,
            };
            let next = committed.unwrap_or_else(|| part.log_start_offset());
            let time_to_loss = if next < high_watermark {
                self.time_to_loss(&part, next)?
            } else {
                None
            };
            all.push(PartitionLag {
                topic,
                partition,
                committed,
                high_watermark,
                lag,
                time_to_loss,
            });
        }
        Ok(all)
    }
    fn time_to_loss(&self, part: &crate::Partition, next: i64) -> Result<Option<Duration>> {
        if next < part.log_start_offset() {
            return Ok(Some(Duration::ZERO));
        }
        let (age_ms, records) = part.retention();
        let now_ms = self.broker.driver.now().wall_ms;
        let ms = |v: i64| Duration::from_millis(v.max(0) as u64);
        let by_age = match age_ms {
            Some(age) => part
                .timestamp_at(next)?
                .map(|t| ms(t.saturating_add(age).saturating_sub(now_ms))),
            None => None,
        };
        let by_count = match records {
            Some(keep) => {
                // Records that can still be published before `next` is the oldest kept, at the rate since the oldest record.
                let room = next
                    .saturating_add(keep)
                    .saturating_sub(part.log_end_offset())
                    .max(0);
                let first = part.timestamp_at(part.log_start_offset())?;
                let last = part.query(OffsetQuery::MaxTimestamp)?.timestamp;
                let count = part.log_end_offset() - part.log_start_offset();
                first
                    .filter(|f| last > *f && count > 1)
                    .map(|f| ms(room.saturating_mul(last - f) / (count - 1)))
            }
            None => None,
        };
        Ok(match (by_age, by_count) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        })
    }
    /// Deletes the group with its committed offsets; it must have no members.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # broker.create_topic("t", 1)?;
    /// # let mut consumer = broker.subscribe("t", "g", "c")?;
    /// # broker.publish("t", None, b"x")?;
    /// consumer.commit_at(0, 1)?;
    /// consumer.close()?;
    /// broker.group("g")?.delete()?;
    /// assert!(broker.groups()?.is_empty());
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn delete(self) -> Result<()> {
        let group = self.description.group.clone();
        let answer = self.broker.driver.call(true, |node, now, reply| {
            node.group(GroupCommand::DeleteGroup { group }, now, reply);
        })?;
        match answer {
            riverlog_core::groups::GroupAnswer::Error(ErrorCode::NONE) => Ok(()),
            riverlog_core::groups::GroupAnswer::Error(code) => Err(Error::refused(code)),
            _ => Err(Error::refused(ErrorCode::UNKNOWN_SERVER_ERROR)),
        }
    }
}
