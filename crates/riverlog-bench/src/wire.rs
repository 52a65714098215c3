//! A thin client: batches are encoded beforehand, so that the broker and not the client is measured.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::frame::{ResponseHeader, encode_request};
use riverlog_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{
    ApiKey, CreateTopicsRequest, FetchRequest, FetchResponse, FindCoordinatorRequest,
    ProduceRequest, ProduceResponse, Request, Response,
};
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, LeaderEpoch};

use crate::Result;
use crate::measure::{latencies, print, print_latencies};

const PARTITIONS: i32 = 12;
/// Requests under way on a connection that waits for nothing else.
pub(crate) const DEPTH: usize = 5;
/// How long it may take to reach a broker: one that is cut off never answers.
const CONNECT: Duration = Duration::from_secs(1);
const PRODUCE: i16 = 9;
const FETCH: i16 = 11;
const FIND_COORDINATOR: i16 = 4;

/// What is produced.
pub(crate) struct Load {
    pub(crate) batch: usize,
    pub(crate) record: usize,
    pub(crate) mib: u64,
    pub(crate) compression: String,
    pub(crate) topic_config: Vec<String>,
}

impl Load {
    /// One record of a kilobyte a batch.
    pub(crate) fn small() -> Load {
        Load {
            batch: 512,
            record: 1_000,
            mib: 0,
            compression: "none".to_owned(),
            topic_config: Vec::new(),
        }
    }
}

/// A connection that waits for each answer, or reads answers in order.
pub(crate) struct Connection(pub(crate) TcpStream);

impl Connection {
    pub(crate) fn open(broker: &str) -> Result<Connection> {
        let mut places = broker.to_socket_addrs()?;
        let place = places.next().ok_or("a name without an address")?;
        let stream = TcpStream::connect_timeout(&place, CONNECT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Connection(stream))
    }

    /// Waits until the broker has a coordinator for the group (`kind` 0) or transactional id (1). To ask for it is what makes
    /// Kafka create the coordinator's topic: nothing else does.
    pub(crate) fn find_coordinator(&mut self, kind: i8, key: &str) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let request = FindCoordinatorRequest {
                key_type: kind,
                coordinator_keys: vec![key.to_owned()],
                ..FindCoordinatorRequest::default()
            };
            let answer = self.call(FIND_COORDINATOR, &request)?;
            let error = answer.coordinators.first().map(|found| found.error_code);
            match error {
                Some(ErrorCode::NONE) => return Ok(()),
                Some(error) if error.retriable() && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => return Err(format!("no coordinator of {key}: {error:?}").into()),
            }
        }
    }

    /// One response frame, without its length.
    pub(crate) fn receive(&mut self) -> Result<Bytes> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame)?;
        Ok(frame.into())
    }
    pub(crate) fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        let mut frame = Vec::new();
        encode_request(&mut frame, version, 1, Some("riverlog-bench"), request)?;
        self.0.write_all(&frame)?;
        decode(R::KEY, version, &self.receive()?)
    }
}

pub(crate) fn decode<R: Response>(key: ApiKey, version: i16, frame: &Bytes) -> Result<R> {
    let mut reader = Reader::shared(frame);
    ResponseHeader::decode(&mut reader, key, version)?;
    Ok(R::decode(&mut reader, version)?)
}

/// A fresh topic with one copy; its name.
pub(crate) fn topic(
    connection: &mut Connection,
    partitions: i32,
    configs: &[String],
) -> Result<String> {
    topic_with(connection, partitions, 1, configs)
}

/// A fresh topic; its name.
pub(crate) fn topic_with(
    connection: &mut Connection,
    partitions: i32,
    replicas: i16,
    configs: &[String],
) -> Result<String> {
    let name = format!("bench-{}-{:?}", std::process::id(), Instant::now())
        .replace(|c: char| !c.is_alphanumeric(), "-");
    let config = |text: &String| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        CreatableTopicConfig {
            name: key.to_owned(),
            value: Some(value.to_owned()),
        }
    };
    // Keys that only Riverlog has are left out for others.
    let common = configs.iter().filter(|text| !text.starts_with("riverlog."));
    let attempts: [Vec<_>; 2] = [
        configs.iter().map(config).collect(),
        common.map(config).collect(),
    ];
    for configs in attempts {
        let topic = CreatableTopic {
            name: name.clone(),
            num_partitions: partitions,
            replication_factor: replicas,
            configs,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 10_000,
            ..CreateTopicsRequest::default()
        };
        let response = connection.call(5, &request)?;
        match response.topics.first().map(|t| t.error_code) {
            Some(ErrorCode::NONE) => {
                std::thread::sleep(Duration::from_millis(500));
                return Ok(name);
            }
            Some(ErrorCode::INVALID_CONFIG) => {}
            other => return Err(format!("the topic can't be made: {other:?}").into()),
        }
    }
    Err("the topic can't be made".into())
}

pub(crate) fn batch(load: &Load) -> Result<(Bytes, u64)> {
    let codec = match load.compression.as_str() {
        "none" => Compression::None,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        other => return Err(format!("compression {other}").into()),
    };
    let mut builder = BatchBuilder::new(codec);
    // Half of each record repeats, so that codecs find something to do.
    let mut value: Vec<u8> = (0..load.record)
        .map(|i| if i % 2 == 0 { 7 } else { (i * 31 % 251) as u8 })
        .collect();
    let mut logical = 0;
    while builder.size() < load.batch {
        if let Some(first) = value.first_mut() {
            *first = first.wrapping_add(1);
        }
        builder.push(now_ms(), None, Some(&value), &[]);
        logical += value.len() as u64;
    }
    Ok((builder.build().into(), logical))
}

pub(crate) fn now_ms() -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(0)
}

pub(crate) fn produce_frame(topic: &str, index: i32, records: &Bytes) -> Result<Vec<u8>> {
    let partition = PartitionProduceData {
        index,
        records: Some(records.clone()),
    };
    let data = TopicProduceData {
        name: topic.to_owned(),
        partition_data: vec![partition],
        ..TopicProduceData::default()
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![data],
        ..ProduceRequest::default()
    };
    let mut frame = Vec::new();
    encode_request(&mut frame, PRODUCE, 1, Some("riverlog-bench"), &request)?;
    Ok(frame)
}

pub(crate) fn check_produced(frame: &Bytes) -> Result<()> {
    let response: ProduceResponse = decode(ApiKey::Produce, PRODUCE, frame)?;
    let error = response
        .responses
        .iter()
        .flat_map(|t| &t.partition_responses)
        .find(|p| p.error_code != ErrorCode::NONE);
    match error {
        None => Ok(()),
        Some(p) => Err(format!("produce: {} {:?}", p.error_code.name(), p.error_message).into()),
    }
}

/// Sends `mib` MiB of batches; returns requests and seconds.
fn fill(connection: &mut Connection, topic: &str, load: &Load) -> Result<(u64, f64, u64)> {
    let (records, logical) = batch(load)?;
    let frames: Vec<Vec<u8>> = (0..PARTITIONS)
        .map(|p| produce_frame(topic, p, &records))
        .collect::<Result<_>>()?;
    let requests = ((load.mib << 20) / logical.max(1)).max(1);
    let mut latency = latencies()?;
    let mut sent = VecDeque::with_capacity(DEPTH);
    let began = Instant::now();
    let mut answered = 0;
    for n in 0..requests {
        if sent.len() == DEPTH {
            finish(connection, &mut sent, &mut latency)?;
            answered += 1;
        }
        connection
            .0
            .write_all(&frames[(n % PARTITIONS as u64) as usize])?;
        sent.push_back(Instant::now());
    }
    while !sent.is_empty() {
        finish(connection, &mut sent, &mut latency)?;
        answered += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    print_latencies("produce", &latency);
    Ok((answered, seconds, logical * requests))
}

fn finish(
    connection: &mut Connection,
    sent: &mut VecDeque<Instant>,
    latency: &mut hdrhistogram::Histogram<u64>,
) -> Result<()> {
    check_produced(&connection.receive()?)?;
    if let Some(at) = sent.pop_front() {
        latency.record(at.elapsed().as_micros() as u64)?;
    }
    Ok(())
}

/// Sends one batch to the first partition, and waits for its answer.
pub(crate) fn produce_one(connection: &mut Connection, topic: &str, records: Bytes) -> Result<()> {
    connection
        .0
        .write_all(&produce_frame(topic, 0, &records)?)?;
    check_produced(&connection.receive()?)
}

pub(crate) fn produce(broker: &str, load: &Load) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let topic = topic(&mut connection, PARTITIONS, &load.topic_config)?;
    let (requests, seconds, bytes) = fill(&mut connection, &topic, load)?;
    print(
        "MiB a second",
        bytes as f64 / f64::from(1 << 20) / seconds,
        "MiB/s",
    );
    print(
        "records a second",
        bytes as f64 / load.record as f64 / seconds,
        "1/s",
    );
    print("requests", requests as f64, "requests");
    print("GiB", bytes as f64 / f64::from(1 << 30), "GiB");
    Ok(())
}

pub(crate) fn single(broker: &str, records: u64, topic_config: &[String]) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let topic = topic(&mut connection, PARTITIONS, topic_config)?;
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(now_ms(), None, Some(&[7; 1_000]), &[]);
    let frame = produce_frame(&topic, 0, &builder.build().into())?;
    let mut latency = latencies()?;
    for _ in 0..records {
        let began = Instant::now();
        connection.0.write_all(&frame)?;
        check_produced(&connection.receive()?)?;
        latency.record(began.elapsed().as_micros() as u64)?;
    }
    print_latencies("one record", &latency);
    Ok(())
}

pub(crate) fn consume(broker: &str, load: &Load, answer: i32) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let topic = topic(&mut connection, PARTITIONS, &load.topic_config)?;
    fill(&mut connection, &topic, load)?;
    let mut next = vec![0_i64; PARTITIONS as usize];
    let began = Instant::now();
    let mut bytes = 0_u64;
    loop {
        let partitions = (0..PARTITIONS)
            .zip(&next)
            .map(|(partition, offset)| FetchPartition {
                partition,
                fetch_offset: *offset,
                current_leader_epoch: LeaderEpoch::NONE.0,
                partition_max_bytes: answer,
                ..FetchPartition::default()
            });
        let fetch = FetchTopic {
            topic: topic.clone(),
            partitions: partitions.collect(),
            ..FetchTopic::default()
        };
        let request = FetchRequest {
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: answer,
            session_epoch: -1,
            topics: vec![fetch],
            ..FetchRequest::default()
        };
        let response: FetchResponse = connection.call(FETCH, &request)?;
        let mut came = 0;
        for partition in response.responses.iter().flat_map(|t| &t.partitions) {
            let Some(records) = &partition.records else {
                continue;
            };
            came += records.len() as u64;
            if let Some(place) = next.get_mut(partition.partition_index as usize) {
                *place = end_of(records, *place);
            }
        }
        if came == 0 {
            break;
        }
        bytes += came;
    }
    let seconds = began.elapsed().as_secs_f64();
    print(
        "consumed, MiB a second",
        bytes as f64 / f64::from(1 << 20) / seconds,
        "MiB/s",
    );
    print("consumed", bytes as f64 / f64::from(1 << 30), "GiB");
    Ok(())
}

/// The offset after the last whole batch; a client may get the beginning of another.
fn end_of(records: &Bytes, from: i64) -> i64 {
    let whole = riverlog_wire::batch::batches(records).map_while(std::result::Result::ok);
    whole
        .last()
        .map_or(from, |batch| batch.header.next_offset().0)
}
