//! Reads partitions from their leaders, and follows leaders that move.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::{Batch, BatchError, RecordView, Records, batches};
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverlog_wire::messages::{FetchRequest, ListOffsetsRequest};

use super::{Client, by_leader};
use crate::failure::{Exit, Failure};

/// The most bytes that one decompressed batch may take.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// Topic and partition to offset and timestamp.
pub(crate) type Offsets = BTreeMap<(String, i32), (i64, i64)>;

/// A partition that is read.
#[derive(Clone, Copy, Debug)]
struct Place {
    leader: i32,
    /// The next offset.
    offset: i64,
}

/// What came from one partition.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// From the offset asked for on; without control records.
    pub(crate) records: Vec<RecordView>,
    /// Where the next read goes on.
    pub(crate) next: i64,
    /// What lies at the offset asked for can't be read; only with [`Fetcher::shows_broken`].
    pub(crate) broken: Option<Broken>,
}

/// What no reader gets past.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) why: String,
    /// The offset behind it, where that is known.
    pub(crate) next: Option<i64>,
}

/// Reads partitions from where they stand.
#[derive(Debug, Default)]
pub(crate) struct Fetcher {
    places: BTreeMap<(String, i32), Place>,
    /// Bytes of one answer.
    pub(crate) max_bytes: i32,
    pub(crate) read_committed: bool,
    /// What can't be read is told of in [`Fetched::broken`], and is no failure.
    pub(crate) shows_broken: bool,
}

impl Fetcher {
    pub(crate) fn new() -> Fetcher {
        Fetcher {
            max_bytes: 16 << 20,
            ..Fetcher::default()
        }
    }

    /// Reads a partition from that offset on.
    pub(crate) fn add(&mut self, topic: &str, partition: i32, leader: i32, offset: i64) {
        self.places
            .insert((topic.to_owned(), partition), Place { leader, offset });
    }

    /// Reads it no more.
    pub(crate) fn remove(&mut self, topic: &str, partition: i32) {
        self.places.remove(&(topic.to_owned(), partition));
    }

    pub(crate) fn clear(&mut self) {
        self.places.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Asks each leader once. Waits up to `wait` when there is nothing to read.
    pub(crate) fn poll(
        &mut self,
        client: &mut Client,
        wait: Duration,
    ) -> Result<Vec<Fetched>, Failure> {
        let leaders = by_leader(
            self.places
                .iter()
                .map(|((t, p), at)| (at.leader, t.clone(), *p)),
        );
        // Several leaders are asked in turn: none may make the others wait for long.
        let wait = if leaders.len() > 1 { wait / 10 } else { wait };
        let mut out = Vec::new();
        for (leader, topics) in leaders {
            if let Err(failure) = self.poll_leader(client, leader, topics, wait, &mut out) {
                if failure.exit != Exit::Unreachable && failure.exit != Exit::Timeout {
                    return Err(failure);
                }
                // The leader may have moved; if no broker answers, this says so.
                client.reset();
                self.find_leaders(client)?;
                std::thread::sleep(super::RETRY);
            }
        }
        Ok(out)
    }

    fn poll_leader(
        &mut self,
        client: &mut Client,
        leader: i32,
        topics: BTreeMap<String, Vec<i32>>,
        wait: Duration,
        out: &mut Vec<Fetched>,
    ) -> Result<(), Failure> {
        let patience = client.settings.timeout + wait;
        let request = FetchRequest {
            replica_id: -1,
            max_wait_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: 1,
            max_bytes: self.max_bytes,
            isolation_level: i8::from(self.read_committed),
            session_epoch: -1,
            topics: topics
                .into_iter()
                .map(|(topic, partitions)| FetchTopic {
                    partitions: partitions
                        .into_iter()
                        .filter_map(|partition| {
                            let place = self.places.get(&(topic.clone(), partition))?;
                            Some(FetchPartition {
                                partition,
                                fetch_offset: place.offset,
                                partition_max_bytes: self.max_bytes,
                                ..FetchPartition::default()
                            })
                        })
                        .collect(),
                    topic,
                    ..FetchTopic::default()
                })
                .collect(),
            ..FetchRequest::default()
        };
        let response = client.node(leader)?.ask_within(&request, patience)?;
        if response.error_code != ErrorCode::NONE {
            return Err(Failure::kafka(
                "records can't be fetched",
                response.error_code,
                None,
            ));
        }
        let mut moved = false;
        for topic in response.responses {
            for data in topic.partitions {
                let name = &topic.topic;
                match data.error_code {
                    ErrorCode::NONE => {}
                    ErrorCode::NOT_LEADER_OR_FOLLOWER
                    | ErrorCode::UNKNOWN_LEADER_EPOCH
                    | ErrorCode::FENCED_LEADER_EPOCH
                    | ErrorCode::LEADER_NOT_AVAILABLE => {
                        moved = true;
                        continue;
                    }
                    code @ (ErrorCode::CORRUPT_MESSAGE | ErrorCode::KAFKA_STORAGE_ERROR)
                        if self.shows_broken =>
                    {
                        let key = (name.clone(), data.partition_index);
                        if let Some(place) = self.places.get(&key) {
                            out.push(Fetched {
                                topic: key.0,
                                partition: key.1,
                                records: Vec::new(),
                                next: place.offset,
                                broken: Some(Broken {
                                    why: code.to_string(),
                                    next: None,
                                }),
                            });
                        }
                        continue;
                    }
                    code => {
                        return Err(Failure::kafka(
                            format!(
                                "topic {name:?}, partition {} can't be read",
                                data.partition_index
                            ),
                            code,
                            None,
                        ));
                    }
                }
                let key = (name.clone(), data.partition_index);
                let Some(place) = self.places.get_mut(&key) else {
                    continue;
                };
                let bytes = data.records.unwrap_or_default();
                let (records, next, broken) = open(&bytes, place.offset);
                if let Some(broken) = broken.as_ref().filter(|_| !self.shows_broken) {
                    let failure = Failure::new(
                        Exit::Finding,
                        format!(
                            "topic {name:?}, partition {}: the batch at offset {} can't be read",
                            data.partition_index, place.offset
                        ),
                    );
                    return Err(failure.why(broken.why.clone()).hint(
                        "skip it with --from and the next offset, and check the broker's disk",
                    ));
                }
                place.offset = next;
                out.push(Fetched {
                    topic: key.0,
                    partition: key.1,
                    records,
                    next,
                    broken,
                });
            }
        }
        if moved {
            std::thread::sleep(super::RETRY);
            self.find_leaders(client)?;
        }
        Ok(())
    }

    fn find_leaders(&mut self, client: &mut Client) -> Result<(), Failure> {
        let mut names: Vec<String> = self.places.keys().map(|(topic, _)| topic.clone()).collect();
        names.dedup();
        for topic in client.metadata(Some(&names), false)?.topics {
            let name = topic.name.unwrap_or_default();
            if topic.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION {
                return Err(client.no_topic(&name, topic.error_code));
            }
            for partition in topic.partitions {
                if let Some(place) = self
                    .places
                    .get_mut(&(name.clone(), partition.partition_index))
                {
                    place.leader = partition.leader_id;
                }
            }
        }
        Ok(())
    }
}

/// The records of batches from an offset on, the offset after them, and what is wrong when the first of them can't be read. A
/// batch behind others that can't be read is the first of a later answer.
fn open(bytes: &Bytes, from: i64) -> (Vec<RecordView>, i64, Option<Broken>) {
    let (mut records, mut next) = (Vec::new(), from);
    for batch in batches(bytes) {
        let (result, behind) = match batch {
            Ok(batch) => {
                let whole = bytes.slice_ref(batch.bytes);
                (
                    records_of(&batch, &whole),
                    Some(batch.header.next_offset().0),
                )
            }
            // A broker may cut the last batch of an answer.
            Err(BatchError::Short { .. }) => break,
            Err(error) => (Err(error), None),
        };
        match result {
            Ok(all) => records.extend(all.into_iter().filter(|r| r.offset.0 >= from)),
            Err(_) if next > from => break,
            Err(error) => {
                let broken = Broken {
                    why: error.to_string(),
                    next: behind,
                };
                return (records, next, Some(broken));
            }
        }
        next = next.max(behind.unwrap_or(next));
    }
    (records, next, None)
}

fn records_of(batch: &Batch<'_>, bytes: &Bytes) -> Result<Vec<RecordView>, BatchError> {
    batch.check_crc()?;
    if batch.header.attributes.is_control() {
        return Ok(Vec::new());
    }
    Records::shared(bytes, MAX_BATCH_BYTES)?.iter().collect()
}

impl Client {
    /// ListOffsets for many partitions: `(topic, partition, leader, timestamp)` to `(offset, timestamp)`; −1 where no
    /// record is that young.
    pub(crate) fn offsets(
        &mut self,
        asked: &[(String, i32, i32, i64)],
    ) -> Result<Offsets, Failure> {
        let mut out = BTreeMap::new();
        let mut leaders: Vec<i32> = asked.iter().map(|a| a.2).collect();
        leaders.sort_unstable();
        leaders.dedup();
        for leader in leaders {
            let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
            for (topic, partition, _, timestamp) in asked.iter().filter(|a| a.2 == leader) {
                topics.entry(topic).or_default().push(ListOffsetsPartition {
                    partition_index: *partition,
                    timestamp: *timestamp,
                    ..ListOffsetsPartition::default()
                });
            }
            let request = ListOffsetsRequest {
                replica_id: -1,
                topics: topics
                    .into_iter()
                    .map(|(name, partitions)| ListOffsetsTopic {
                        name: name.to_owned(),
                        partitions,
                    })
                    .collect(),
                ..ListOffsetsRequest::default()
            };
            for topic in self.ask_node(leader, &request)?.topics {
                for partition in topic.partitions {
                    if partition.error_code != ErrorCode::NONE {
                        return Err(Failure::kafka(
                            format!(
                                "the offsets of topic {:?}, partition {} can't be found",
                                topic.name, partition.partition_index
                            ),
                            partition.error_code,
                            None,
                        ));
                    }
                    let key = (topic.name.clone(), partition.partition_index);
                    out.insert(key, (partition.offset, partition.timestamp));
                }
            }
        }
        Ok(out)
    }
}
