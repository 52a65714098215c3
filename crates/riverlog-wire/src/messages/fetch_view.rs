//! A fetch request read in place: no vector, no copied name.

use super::fetch_request::{FetchPartition, ReplicaState};
use super::{ApiKey, FetchRequest};
use crate::TopicId;
use crate::primitives::{DecodeError, Reader};

#[cfg(test)]
mod tests;

/// A fetch request that lies in its frame. Everything in it has been checked when it was made.
#[derive(Clone, Debug)]
pub struct FetchRequestView<'a> {
    /// Tagged; `None` unless a follower sends it.
    pub cluster_id: Option<&'a str>,
    /// Who fetches; −1 for a consumer. From version 15 on, a follower tells it in `replica_state`.
    pub replica_id: i32,
    /// Tagged, from version 15 on.
    pub replica_state: ReplicaState,
    /// How long to wait for `min_bytes`.
    pub max_wait_ms: i32,
    /// Fewer than this are worth waiting.
    pub min_bytes: i32,
    /// Soft limit of the whole response.
    pub max_bytes: i32,
    /// 0: read uncommitted; 1: read committed.
    pub isolation_level: i8,
    /// 0: no session yet (KIP-227).
    pub session_id: i32,
    /// −1: no session wanted.
    pub session_epoch: i32,
    /// Empty for none.
    pub rack_id: &'a str,
    topics: FetchTopics<'a>,
    forgotten: ForgottenTopics<'a>,
}

/// First version with compact lengths and tagged fields.
const FLEXIBLE: i16 = 12;
/// Topics by id instead of by name.
const IDS: i16 = 13;
/// Fewest bytes of a topic, of a partition, and of a partition's number.
const MIN_TOPIC: usize = 3;
const MIN_PARTITION: usize = 16;
const MIN_INDEX: usize = 4;

impl<'a> FetchRequestView<'a> {
    /// Reads one from `r`, and leaves it at the end.
    pub fn decode(r: &mut Reader<'a>, version: i16) -> Result<Self, DecodeError> {
        if !ApiKey::Fetch.versions().contains(&version) {
            return Err(DecodeError::Version {
                message: "FetchRequest",
                version,
            });
        }
        let flex = version >= FLEXIBLE;
        let unset = FetchRequest::default();
        let replica_id = if version < 15 {
            r.i32()?
        } else {
            unset.replica_id
        };
        let (max_wait_ms, min_bytes, max_bytes) = (r.i32()?, r.i32()?, r.i32()?);
        let isolation_level = r.i8()?;
        let (session_id, session_epoch) = if version >= 7 {
            (r.i32()?, r.i32()?)
        } else {
            (unset.session_id, unset.session_epoch)
        };
        let topics = FetchTopics {
            left: r.array_len_in(flex, MIN_TOPIC)?,
            r: r.clone(),
            version,
        };
        for _ in 0..topics.left {
            let topic = read_topic(r, version)?;
            for _ in 0..topic.partitions.left {
                skip_partition(r, version)?;
            }
            end(r, flex)?;
        }
        let mut forgotten = ForgottenTopics {
            left: 0,
            r: r.clone(),
            version,
        };
        if version >= 7 {
            forgotten.left = r.array_len_in(flex, MIN_TOPIC)?;
            forgotten.r = r.clone();
            for _ in 0..forgotten.left {
                read_forgotten(r, version)?;
            }
        }
        let rack_id = match version {
            FLEXIBLE.. => r.compact_string()?,
            11 => r.string()?,
            _ => "",
        };
        let mut view = FetchRequestView {
            cluster_id: None,
            replica_id,
            replica_state: unset.replica_state,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            rack_id,
            topics,
            forgotten,
        };
        if flex {
            r.tagged_fields(|tag, r| {
                match tag {
                    0 => view.cluster_id = r.compact_nullable_string()?,
                    1 if version >= 15 => view.replica_state = ReplicaState::decode(r, version)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        Ok(view)
    }

    /// The topics to fetch, in the order of the request.
    pub fn topics(&self) -> FetchTopics<'a> {
        self.topics.clone()
    }

    /// What to drop from the session.
    pub fn forgotten_topics(&self) -> ForgottenTopics<'a> {
        self.forgotten.clone()
    }
}

/// Goes through the topics of a fetch request.
#[derive(Clone, Debug)]
pub struct FetchTopics<'a> {
    left: usize,
    r: Reader<'a>,
    version: i16,
}

/// One topic of a fetch request.
#[derive(Clone, Debug)]
pub struct FetchTopicView<'a> {
    /// Empty from version 13 on.
    pub topic: &'a str,
    /// Zero before version 13.
    pub topic_id: TopicId,
    partitions: FetchPartitions<'a>,
}

impl<'a> FetchTopicView<'a> {
    /// The partitions, in the order of the request.
    pub fn partitions(&self) -> FetchPartitions<'a> {
        self.partitions.clone()
    }
}

/// Goes through the partitions of a topic.
#[derive(Clone, Debug)]
pub struct FetchPartitions<'a> {
    left: usize,
    r: Reader<'a>,
    version: i16,
}

/// Goes through the topics that a session shall forget.
#[derive(Clone, Debug)]
pub struct ForgottenTopics<'a> {
    left: usize,
    r: Reader<'a>,
    version: i16,
}

/// Partitions of one topic that a session shall forget.
#[derive(Clone, Debug)]
pub struct ForgottenTopicView<'a> {
    /// Empty from version 13 on.
    pub topic: &'a str,
    /// Zero before version 13.
    pub topic_id: TopicId,
    left: usize,
    r: Reader<'a>,
}

impl<'a> ForgottenTopicView<'a> {
    /// The numbers of the partitions.
    pub fn partitions(&self) -> impl Iterator<Item = i32> + 'a {
        let mut r = self.r.clone();
        (0..self.left).map_while(move |_| r.i32().ok())
    }
}

// The bytes were checked by `decode` with the same code, so the `ok()?` below never end an iteration early.

impl<'a> Iterator for FetchTopics<'a> {
    type Item = FetchTopicView<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let topic = read_topic(&mut self.r, self.version).ok()?;
        for _ in 0..topic.partitions.left {
            skip_partition(&mut self.r, self.version).ok()?;
        }
        end(&mut self.r, self.version >= FLEXIBLE).ok()?;
        Some(topic)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for FetchTopics<'_> {}

impl Iterator for FetchPartitions<'_> {
    type Item = FetchPartition;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        FetchPartition::decode(&mut self.r, self.version).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for FetchPartitions<'_> {}

impl<'a> Iterator for ForgottenTopics<'a> {
    type Item = ForgottenTopicView<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        read_forgotten(&mut self.r, self.version).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for ForgottenTopics<'_> {}

fn read_name<'a>(r: &mut Reader<'a>, version: i16) -> Result<(&'a str, TopicId), DecodeError> {
    Ok(match version {
        IDS.. => ("", r.uuid()?),
        FLEXIBLE => (r.compact_string()?, TopicId::ZERO),
        _ => (r.string()?, TopicId::ZERO),
    })
}

/// Reads a topic up to its partitions.
fn read_topic<'a>(r: &mut Reader<'a>, version: i16) -> Result<FetchTopicView<'a>, DecodeError> {
    let (topic, topic_id) = read_name(r, version)?;
    let left = r.array_len_in(version >= FLEXIBLE, MIN_PARTITION)?;
    Ok(FetchTopicView {
        topic,
        topic_id,
        partitions: FetchPartitions {
            left,
            r: r.clone(),
            version,
        },
    })
}

/// Passes over a partition. Those of consumers have no tagged field, so nothing in them needs a look.
fn skip_partition(r: &mut Reader<'_>, version: i16) -> Result<(), DecodeError> {
    let fixed = match version {
        FLEXIBLE.. => 32,
        9.. => 28,
        5.. => 24,
        _ => 16,
    };
    if version >= FLEXIBLE && r.rest().get(fixed) != Some(&0) {
        FetchPartition::decode(r, version)?;
    } else {
        r.raw(fixed + usize::from(version >= FLEXIBLE))?;
    }
    Ok(())
}

/// Reads a forgotten topic to its end.
fn read_forgotten<'a>(
    r: &mut Reader<'a>,
    version: i16,
) -> Result<ForgottenTopicView<'a>, DecodeError> {
    let flex = version >= FLEXIBLE;
    let (topic, topic_id) = read_name(r, version)?;
    let left = r.array_len_in(flex, MIN_INDEX)?;
    let numbers = r.clone();
    // The count has been held against the bytes that are there.
    r.raw(left.saturating_mul(MIN_INDEX))?;
    end(r, flex)?;
    Ok(ForgottenTopicView {
        topic,
        topic_id,
        left,
        r: numbers,
    })
}

/// The tagged fields at the end of a struct of which none is known.
fn end(r: &mut Reader<'_>, flex: bool) -> Result<(), DecodeError> {
    if flex {
        r.skip_tagged_fields()?;
    }
    Ok(())
}
