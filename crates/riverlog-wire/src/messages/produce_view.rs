//! A produce request read in place: no vector, no copied name, records shared with the frame.

use bytes::Bytes;

use super::ProduceRequest;
use crate::TopicId;
use crate::primitives::{DecodeError, Reader};

#[cfg(test)]
mod tests;

/// A produce request that lies in its frame. Everything in it has been checked when it was made.
#[derive(Clone, Debug)]
pub struct ProduceRequestView<'a> {
    /// `None`: not transactional.
    pub transactional_id: Option<&'a str>,
    /// As sent; −1, 0 or 1 from a sound client.
    pub acks: i16,
    /// How long the client waits for enough replicas.
    pub timeout_ms: i32,
    topics: ProduceTopics<'a>,
}

impl<'a> ProduceRequestView<'a> {
    /// Reads one from `r`, and leaves it at the end. Make `r` with [`Reader::shared`], else records are copied.
    pub fn decode(r: &mut Reader<'a>, version: i16) -> Result<Self, DecodeError> {
        // The versions are those of the owned form, which the definitions give.
        if !<ProduceRequest as super::Request>::KEY
            .versions()
            .contains(&version)
        {
            return Err(DecodeError::Version {
                message: "ProduceRequest",
                version,
            });
        }
        let flex = version >= FLEXIBLE;
        let view = ProduceRequestView {
            transactional_id: if flex {
                r.compact_nullable_string()?
            } else {
                r.nullable_string()?
            },
            acks: r.i16()?,
            timeout_ms: r.i32()?,
            topics: ProduceTopics {
                left: r.array_len_in(flex, MIN_TOPIC)?,
                r: r.clone(),
                version,
            },
        };
        for _ in 0..view.topics.left {
            let topic = read_topic(r, version)?;
            for _ in 0..topic.partitions.left {
                skip_partition(r, flex)?;
            }
            end(r, flex)?;
        }
        end(r, flex)?;
        Ok(view)
    }

    /// The topics, in the order of the request.
    pub fn topics(&self) -> ProduceTopics<'a> {
        self.topics.clone()
    }
}

/// First version with compact lengths and tagged fields.
const FLEXIBLE: i16 = 9;
/// Fewest bytes of a topic and of a partition: name, partitions, tags; number, records, tags.
const MIN_TOPIC: usize = 3;
const MIN_PARTITION: usize = 6;

/// Goes through the topics of a produce request.
#[derive(Clone, Debug)]
pub struct ProduceTopics<'a> {
    left: usize,
    r: Reader<'a>,
    version: i16,
}

/// One topic of a produce request.
#[derive(Clone, Debug)]
pub struct ProduceTopicView<'a> {
    /// Empty from version 13 on.
    pub name: &'a str,
    /// Zero before version 13.
    pub topic_id: TopicId,
    partitions: ProducePartitions<'a>,
}

impl<'a> ProduceTopicView<'a> {
    /// The partitions, in the order of the request.
    pub fn partitions(&self) -> ProducePartitions<'a> {
        self.partitions.clone()
    }
}

/// Goes through the partitions of a topic: number, and records or null.
#[derive(Clone, Debug)]
pub struct ProducePartitions<'a> {
    left: usize,
    r: Reader<'a>,
    flex: bool,
}

// The bytes were checked by `decode` with the same code, so the `ok()?` below never end an iteration early.

impl<'a> Iterator for ProduceTopics<'a> {
    type Item = ProduceTopicView<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let flex = self.version >= FLEXIBLE;
        let topic = read_topic(&mut self.r, self.version).ok()?;
        for _ in 0..topic.partitions.left {
            skip_partition(&mut self.r, flex).ok()?;
        }
        end(&mut self.r, flex).ok()?;
        Some(topic)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for ProduceTopics<'_> {}

impl Iterator for ProducePartitions<'_> {
    type Item = (i32, Option<Bytes>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let index = self.r.i32().ok()?;
        let records = self.r.nullable_bytes_in(self.flex).ok()?;
        end(&mut self.r, self.flex).ok()?;
        Some((index, records))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for ProducePartitions<'_> {}

/// Reads a topic up to its partitions.
fn read_topic<'a>(r: &mut Reader<'a>, version: i16) -> Result<ProduceTopicView<'a>, DecodeError> {
    let flex = version >= FLEXIBLE;
    let (name, topic_id) = if version >= 13 {
        ("", r.uuid()?)
    } else if flex {
        (r.compact_string()?, TopicId::ZERO)
    } else {
        (r.string()?, TopicId::ZERO)
    };
    let left = r.array_len_in(flex, MIN_PARTITION)?;
    Ok(ProduceTopicView {
        name,
        topic_id,
        partitions: ProducePartitions {
            left,
            r: r.clone(),
            flex,
        },
    })
}

fn skip_partition(r: &mut Reader<'_>, flex: bool) -> Result<(), DecodeError> {
    r.i32()?;
    if flex {
        r.compact_nullable_bytes()?;
    } else {
        r.nullable_bytes()?;
    }
    end(r, flex)
}

/// The tagged fields at the end of a struct; none of a produce request's is known.
fn end(r: &mut Reader<'_>, flex: bool) -> Result<(), DecodeError> {
    if flex {
        r.skip_tagged_fields()?;
    }
    Ok(())
}
