//! Consumers of a share group on one partition: how much they get done together, and how long a record waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use riverlog_wire::batch::{BatchBuilder, Records, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::share_fetch_request::{
    AcknowledgementBatch, FetchPartition, FetchTopic,
};
use riverlog_wire::messages::{
    IncrementalAlterConfigsRequest, MetadataRequest, ShareFetchRequest, ShareFetchResponse,
    ShareGroupHeartbeatRequest,
};
use riverlog_wire::{ErrorCode, TopicId};

use crate::Result;
use crate::measure::{latencies, print, print_latencies};
use crate::wire::{Connection, now_ms, produce_one, topic};

const CONFIGS: i16 = 1;
const METADATA: i16 = 12;
const HEARTBEAT: i16 = 1;
const FETCH: i16 = 1;
/// Kafka's number of the kind group.
const GROUP: i8 = 32;
const ACCEPT: i8 = 1;
/// Records of a batch that is produced, and that a consumer asks for (Java's `max.poll.records`).
const MANY: i32 = 500;
/// Keys of records.
const KEYS: u64 = 1_000;
/// Bytes of a record.
const SIZE: usize = 1_000;
/// Records a second while waits are measured, in batches of ten.
const PACE: u64 = 1_000;
/// How long a fetch waits for records, in ms.
const WAIT_MS: i32 = 100;
/// Bytes that one batch may open to.
const LIMIT: usize = 64 << 20;

/// What consumers have done together.
#[derive(Default)]
struct Done {
    accepted: AtomicU64,
    /// Nothing has piled up: from now on waits count.
    steady: AtomicBool,
    stop: AtomicBool,
}

/// First all of `records` that are there already, then for `seconds` at a steady pace. `configs` are the group's; names of measures begin
/// with `label`.
pub(crate) fn run(
    broker: &str,
    consumers: usize,
    records: u64,
    seconds: u64,
    configs: &[String],
    label: &str,
) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let name = topic(&mut connection, 1, &[])?;
    let id = id_of(&mut connection, &name)?;
    let group = format!("{name}-group");
    let mut all = vec!["share.auto.offset.reset=earliest".to_owned()];
    all.extend(configs.iter().cloned());
    configure(&mut connection, &group, &all)?;
    connection.find_coordinator(0, &group)?;
    // Members that are there, and a partition whose leader knows the group, before the clock runs.
    let mut members = Vec::new();
    for number in 0..consumers {
        members.push(Member::join(broker, &group, &name, id, number)?);
    }
    for member in &mut members {
        member.begin()?;
    }
    let mut produced = 0;
    while produced < records {
        produce_one(&mut connection, &name, batch(produced, MANY as u64))?;
        produced += MANY as u64;
    }
    let done = Arc::new(Done::default());
    let began = Instant::now();
    let threads: Vec<_> = members
        .into_iter()
        .map(|mut member| {
            let done = Arc::clone(&done);
            std::thread::spawn(move || member.work(&done))
        })
        .collect();
    let patience = Duration::from_secs(300);
    while done.accepted.load(Ordering::Relaxed) < produced {
        if began.elapsed() > patience || threads.iter().any(|t| t.is_finished()) {
            done.stop.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().map_err(|_| "a consumer panicked")??;
            }
            return Err("not all records were accepted".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = began.elapsed().as_secs_f64();
    let rate = produced as f64 / took;
    print(&format!("{label}accepted a second"), rate, "1/s");
    print(&format!("{label}accepted"), produced as f64, "records");

    done.steady.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let mut due = began;
    while began.elapsed() < Duration::from_secs(seconds) {
        produce_one(&mut connection, &name, batch(produced, 10))?;
        produced += 10;
        due += Duration::from_micros(10 * 1_000_000 / PACE);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let until = Instant::now() + Duration::from_secs(30);
    while done.accepted.load(Ordering::Relaxed) < produced && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    done.stop.store(true, Ordering::Relaxed);
    let mut waits = latencies()?;
    for thread in threads {
        waits.add(thread.join().map_err(|_| "a consumer panicked")??)?;
    }
    print_latencies(&format!("{label}publish to consumer"), &waits);
    Ok(())
}

fn id_of(connection: &mut Connection, name: &str) -> Result<TopicId> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(name.to_owned()),
            ..MetadataRequestTopic::default()
        }]),
        ..MetadataRequest::default()
    };
    let answer = connection.call(METADATA, &request)?;
    let topic = answer.topics.first().ok_or("no topic")?;
    Ok(topic.topic_id)
}

fn configure(connection: &mut Connection, group: &str, configs: &[String]) -> Result<()> {
    let each = configs.iter().map(|text| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        AlterableConfig {
            name: key.to_owned(),
            config_operation: 0,
            value: Some(value.to_owned()),
        }
    });
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: GROUP,
            resource_name: group.to_owned(),
            configs: each.collect(),
        }],
        validate_only: false,
    };
    let answer = connection.call(CONFIGS, &request)?;
    match answer.responses.first().map(|r| r.error_code) {
        Some(ErrorCode::NONE) => Ok(()),
        other => Err(format!("the group's settings: {other:?}").into()),
    }
}

fn batch(from: u64, count: u64) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(Compression::None);
    let value = [7; SIZE];
    for number in from..from + count {
        let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS).to_be_bytes();
        builder.push(now_ms(), Some(&key), Some(&value), &[]);
    }
    builder.build().into()
}

struct Member {
    connection: Connection,
    group: String,
    id: String,
    topic: TopicId,
    session: i32,
}

impl Member {
    fn join(
        broker: &str,
        group: &str,
        name: &str,
        topic: TopicId,
        number: usize,
    ) -> Result<Member> {
        let mut member = Member {
            connection: Connection::open(broker)?,
            group: group.to_owned(),
            id: format!("bench-member-{number:012}"),
            topic,
            session: 0,
        };
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let request = ShareGroupHeartbeatRequest {
                group_id: member.group.clone(),
                member_id: member.id.clone(),
                member_epoch: 0,
                subscribed_topic_names: Some(vec![name.to_owned()]),
                ..ShareGroupHeartbeatRequest::default()
            };
            let answer = member.connection.call(HEARTBEAT, &request)?;
            match answer.error_code {
                ErrorCode::NONE => return Ok(member),
                error if error.retriable() && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                error => return Err(format!("heartbeat: {}", error.name()).into()),
            }
        }
    }

    /// Fetches from the partition, which has no records yet, until its leader answers for the group. Until Kafka's has what is kept of it, it
    /// answers with a retriable error or UNKNOWN_SERVER_ERROR, after which its own client tries again as well.
    fn begin(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = self.fetch(0, Vec::new())?;
            let parts = answer.responses.iter().flat_map(|t| &t.partitions);
            let error = parts
                .map(|part| part.error_code)
                .find(|error| *error != ErrorCode::NONE);
            match error {
                None => return Ok(()),
                Some(error) if Instant::now() > until => {
                    return Err(format!("share fetch: {}", error.name()).into());
                }
                Some(error) if error.retriable() || error == ErrorCode::UNKNOWN_SERVER_ERROR => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Some(error) => return Err(format!("share fetch: {}", error.name()).into()),
            }
        }
    }

    fn fetch(
        &mut self,
        max_wait_ms: i32,
        said: Vec<AcknowledgementBatch>,
    ) -> Result<ShareFetchResponse> {
        let request = ShareFetchRequest {
            group_id: Some(self.group.clone()),
            member_id: Some(self.id.clone()),
            share_session_epoch: self.session,
            max_wait_ms,
            min_bytes: 1,
            max_bytes: 50 << 20,
            max_records: MANY,
            batch_size: MANY,
            topics: vec![FetchTopic {
                topic_id: self.topic,
                partitions: vec![FetchPartition {
                    partition_index: 0,
                    acknowledgement_batches: said,
                }],
            }],
            ..ShareFetchRequest::default()
        };
        let answer = self.connection.call(FETCH, &request)?;
        if answer.error_code != ErrorCode::NONE {
            return Err(format!("share fetch: {}", answer.error_code.name()).into());
        }
        self.session += 1;
        Ok(answer)
    }

    /// Accepts with each fetch what the one before brought; how long records had waited.
    fn work(&mut self, done: &Done) -> Result<Histogram<u64>> {
        let mut waits = latencies()?;
        let mut said: Vec<AcknowledgementBatch> = Vec::new();
        let mut held = 0;
        while !done.stop.load(Ordering::Relaxed) || held > 0 {
            let answer = self.fetch(WAIT_MS, std::mem::take(&mut said))?;
            done.accepted
                .fetch_add(std::mem::take(&mut held), Ordering::Relaxed);
            let now = now_ms();
            let steady = done.steady.load(Ordering::Relaxed);
            for part in answer.responses.into_iter().flat_map(|t| t.partitions) {
                if part.error_code.retriable() {
                    continue;
                }
                for error in [part.error_code, part.acknowledge_error_code] {
                    if error != ErrorCode::NONE {
                        return Err(format!("share fetch: {}", error.name()).into());
                    }
                }
                let ranges: Vec<(i64, i64)> = part
                    .acquired_records
                    .iter()
                    .map(|r| (r.first_offset, r.last_offset))
                    .collect();
                let bytes = part.records;
                let mut at = 0;
                for batch in batches(&bytes).map_while(std::result::Result::ok) {
                    if !steady {
                        break;
                    }
                    let len = batch.bytes.len();
                    let records = Records::shared(&bytes.slice(at..at + len), LIMIT)?;
                    at += len;
                    for record in records.iter_refs().map_while(std::result::Result::ok) {
                        let offset = record.offset.0;
                        if ranges
                            .iter()
                            .any(|(first, last)| (*first..=*last).contains(&offset))
                        {
                            let waited = u64::try_from(now - record.timestamp).unwrap_or(0);
                            waits.record((waited * 1_000).max(1))?;
                        }
                    }
                }
                for (first_offset, last_offset) in ranges {
                    held += u64::try_from(last_offset - first_offset + 1).unwrap_or(0);
                    said.push(AcknowledgementBatch {
                        first_offset,
                        last_offset,
                        acknowledge_types: vec![ACCEPT],
                    });
                }
            }
        }
        Ok(waits)
    }
}
