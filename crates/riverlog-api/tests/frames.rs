//! Clients that have several requests on the way, over connections that cut frames to pieces and break, to a node whose power fails:
//! what the simulator's wire mode leaves out, since there each request has a connection of its own. All of it from a seed, on
//! virtual time.
//!
//! What must hold: a record that was acknowledged is at the offset that was said, once; each producer's records are there once
//! and in their order; what was read stays; a group's offset isn't behind the last commit that was acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use riverlog_api::kafka::{KafkaDoor, KafkaSettings, Part, Peer, Session};
use riverlog_log::disk::CrashDisk;
use riverlog_log::{Disk, Slice};
use riverlog_node::NodeSettings;
use riverlog_node::harness::Harness;
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::frame::{self, ResponseHeader};
use riverlog_wire::messages::create_topics_request::CreatableTopic;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::offset_fetch_request::OffsetFetchRequestTopic;
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{
    CreateTopicsRequest, FetchRequest, InitProducerIdRequest, OffsetCommitRequest,
    OffsetFetchRequest, ProduceRequest, Request, Response,
};
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

const TOPIC: &str = "t";
const PARTITIONS: i32 = 2;
const GROUP: &str = "g";
/// Requests that a producer has on the way.
const PIPELINE: usize = 3;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A connection with what is on the way in both directions.
#[derive(Default)]
struct Wire {
    session: Option<Session>,
    up: BytesMut,
    arrived: BytesMut,
    down: BytesMut,
    received: BytesMut,
    correlation: i32,
}

impl Wire {
    fn say<R: Request>(&mut self, version: i16, request: &R) {
        self.correlation += 1;
        let mut out = Vec::new();
        frame::encode_request(&mut out, version, self.correlation, Some("sim"), request).unwrap();
        self.up.extend_from_slice(&out);
    }
    /// Moves some bytes each way; `false` when the connection is over.
    fn pump(&mut self, random: &mut Random, host: &Harness) -> bool {
        let Some(session) = &mut self.session else {
            return false;
        };
        let some = |random: &mut Random, from: &mut BytesMut, to: &mut BytesMut| {
            let n = random.below(400).min(from.len() as u64) as usize;
            to.extend_from_slice(&from.split_to(n));
        };
        some(random, &mut self.up, &mut self.arrived);
        while !session.is_busy() {
            match frame::split_frame(&mut self.arrived, 1 << 20).unwrap() {
                Some(frame) if session.on_frame(&frame, host.now()).is_err() => return false,
                Some(_) => {}
                None => break,
            }
        }
        let mut parts = Vec::new();
        let taken = session.take(&mut parts);
        for part in parts {
            match part {
                Part::Bytes(bytes) | Part::Records(Slice::Memory(bytes)) => {
                    self.down.extend_from_slice(&bytes);
                }
                Part::Records(Slice::File { file, at, len }) => {
                    let mut bytes = vec![0; len];
                    assert_eq!(file.read_at(&mut bytes, at).unwrap(), len);
                    self.down.extend_from_slice(&bytes);
                }
            }
        }
        some(random, &mut self.down, &mut self.received);
        taken.is_ok()
    }
    fn heard(&mut self) -> Option<Bytes> {
        frame::split_frame(&mut self.received, i32::MAX as usize).unwrap()
    }
}

fn decoded<R: Request>(version: i16, frame: &Bytes) -> R::Response {
    let mut reader = Reader::shared(frame);
    ResponseHeader::decode(&mut reader, R::KEY, version).unwrap();
    <R::Response as Response>::decode(&mut reader, version).unwrap()
}

/// What a client does, and what it knows.
enum Role {
    /// An idempotent producer to one partition.
    Producer {
        name: usize,
        id: Option<(ProducerId, ProducerEpoch)>,
        /// Not acknowledged: the first sequence and the values.
        pending: VecDeque<(i32, Vec<String>)>,
        sent: usize,
        next: i32,
        acked: Vec<(i64, String)>,
    },
    /// Reads one partition from its beginning, and commits how far it is.
    Reader {
        seen: BTreeMap<i64, String>,
        at: i64,
        committed: i64,
        asked: Option<Asked>,
    },
}

enum Asked {
    Fetch,
    Commit(i64),
}

struct Client {
    partition: i32,
    wire: Wire,
    role: Role,
}

impl Client {
    fn connected(&mut self, session: Session) {
        self.wire = Wire {
            session: Some(session),
            ..Wire::default()
        };
        match &mut self.role {
            Role::Producer { sent, .. } => *sent = 0,
            Role::Reader { asked, .. } => *asked = None,
        }
    }

    /// Says the next thing, if it is time for one.
    fn act(&mut self, random: &mut Random, more: bool) {
        let partition = self.partition;
        match &mut self.role {
            Role::Producer { id: None, sent, .. } => {
                if *sent == 0 {
                    *sent = 1;
                    let request = InitProducerIdRequest {
                        transactional_id: None,
                        producer_id: -1,
                        producer_epoch: -1,
                        ..InitProducerIdRequest::default()
                    };
                    self.wire.say(4, &request);
                }
            }
            Role::Producer {
                name,
                id: Some((id, epoch)),
                pending,
                sent,
                next,
                ..
            } => {
                if more && pending.len() < PIPELINE && random.one_in(3) {
                    let count = 1 + random.below(4) as i32;
                    let values = (0..count).map(|n| format!("{name}-{}", *next + n));
                    pending.push_back((*next, values.collect()));
                    *next += count;
                }
                if let Some((sequence, values)) = pending.get(*sent) {
                    *sent += 1;
                    let mut batch = BatchBuilder::new(Compression::None);
                    batch.producer(*id, *epoch, Sequence(*sequence));
                    for value in values {
                        batch.push(1, None, Some(value.as_bytes()), &[]);
                    }
                    self.wire.say(9, &produce(partition, batch.build()));
                }
            }
            Role::Reader {
                at,
                committed,
                asked: asked @ None,
                ..
            } => {
                if *at > *committed && random.one_in(4) {
                    *asked = Some(Asked::Commit(*at));
                    self.wire.say(8, &commit(partition, *at));
                } else {
                    *asked = Some(Asked::Fetch);
                    self.wire.say(12, &fetch(partition, *at));
                }
            }
            Role::Reader { .. } => {}
        }
    }

    /// Hears an answer; `false`: it begins anew with another connection.
    fn hear(&mut self, frame: &Bytes) -> bool {
        match &mut self.role {
            Role::Producer {
                id: id @ None,
                sent,
                ..
            } => {
                let answer = decoded::<InitProducerIdRequest>(4, frame);
                *sent = 0;
                if answer.error_code != ErrorCode::NONE {
                    return false;
                }
                *id = Some((
                    ProducerId(answer.producer_id),
                    ProducerEpoch(answer.producer_epoch),
                ));
                true
            }
            Role::Producer {
                pending,
                sent,
                acked,
                ..
            } => {
                let answer = decoded::<ProduceRequest>(9, frame);
                let part = &answer.responses[0].partition_responses[0];
                match part.error_code {
                    ErrorCode::NONE => {
                        let (_, values) = pending.pop_front().unwrap();
                        *sent -= 1;
                        acked.extend((part.base_offset..).zip(values));
                        true
                    }
                    // An honest producer never hears these.
                    ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
                    | ErrorCode::UNKNOWN_PRODUCER_ID
                    | ErrorCode::INVALID_PRODUCER_EPOCH
                    | ErrorCode::INVALID_RECORD => panic!("{part:?}"),
                    _ => false,
                }
            }
            Role::Reader {
                seen,
                at,
                committed,
                asked,
            } => match asked.take() {
                Some(Asked::Commit(offset)) => {
                    let answer = decoded::<OffsetCommitRequest>(8, frame);
                    if answer.topics[0].partitions[0].error_code != ErrorCode::NONE {
                        return false;
                    }
                    *committed = offset;
                    true
                }
                Some(Asked::Fetch) => {
                    let mut answer = decoded::<FetchRequest>(12, frame);
                    let Some(mut topic) = answer.responses.pop() else {
                        return false;
                    };
                    let part = topic.partitions.remove(0);
                    assert_ne!(part.error_code, ErrorCode::OFFSET_OUT_OF_RANGE, "{part:?}");
                    for (offset, value) in values(&part.records.unwrap_or_default()) {
                        let before = seen.insert(offset, value.clone());
                        assert!(before.is_none_or(|b| b == value), "{offset} changed");
                        *at = (*at).max(offset + 1);
                    }
                    part.error_code == ErrorCode::NONE
                }
                None => panic!("an answer to nothing"),
            },
        }
    }
}

fn produce(index: i32, batch: Vec<u8>) -> ProduceRequest {
    ProduceRequest {
        acks: -1,
        timeout_ms: 5_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC.to_owned(),
            partition_data: vec![PartitionProduceData {
                index,
                records: Some(batch.into()),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

fn fetch(partition: i32, from: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 100,
        min_bytes: 1,
        max_bytes: 1 << 16,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: TOPIC.to_owned(),
            partitions: vec![FetchPartition {
                partition,
                fetch_offset: from,
                partition_max_bytes: 1 << 10,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

fn commit(partition_index: i32, committed_offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: GROUP.to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: TOPIC.to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index,
                committed_offset,
                committed_leader_epoch: -1,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    }
}

fn values(records: &Bytes) -> Vec<(i64, String)> {
    let mut all = Vec::new();
    for batch in batches(records) {
        let batch = batch.unwrap();
        batch.check_crc().unwrap();
        for record in batch.records(1 << 20).unwrap().iter() {
            let record = record.unwrap();
            let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            all.push((record.offset.0, value));
        }
    }
    all
}

struct World {
    random: Random,
    disk: CrashDisk,
    host: Harness,
    door: Arc<KafkaDoor>,
    clients: Vec<Client>,
    /// Counts what happened, to see that a run isn't empty.
    cuts: u32,
    breaks: u32,
}

fn settings() -> NodeSettings {
    NodeSettings {
        listeners: vec![("PLAINTEXT".to_owned(), "broker.test".to_owned(), 9092)],
        segment_bytes_limit: Some(3_000),
        offsets_partitions: 2,
        ..NodeSettings::default()
    }
}

impl World {
    fn new(seed: u64) -> World {
        let random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let disk = CrashDisk::new(seed);
        let host = Harness::open(Arc::new(disk.clone()) as Arc<dyn Disk>, settings(), seed);
        let host = host.expect("a new node starts");
        let door = KafkaDoor::new(Arc::clone(host.node()), KafkaSettings::default());
        let producer = |name| Role::Producer {
            name,
            id: None,
            pending: VecDeque::new(),
            sent: 0,
            next: 0,
            acked: Vec::new(),
        };
        let reader = || Role::Reader {
            seen: BTreeMap::new(),
            at: 0,
            committed: 0,
            asked: None,
        };
        let roles = [producer(0), producer(1), producer(2), reader(), reader()];
        let client = |(n, role)| Client {
            partition: n as i32 % PARTITIONS,
            wire: Wire::default(),
            role,
        };
        let mut world = World {
            random,
            disk,
            host,
            door,
            clients: roles.into_iter().enumerate().map(client).collect(),
            cuts: 0,
            breaks: 0,
        };
        let topic = CreatableTopic {
            name: TOPIC.to_owned(),
            num_partitions: PARTITIONS,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let create = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 5_000,
            ..CreateTopicsRequest::default()
        };
        let answer = world.ask(7, &create);
        assert_eq!(answer.topics[0].error_code, ErrorCode::NONE);
        world
    }

    fn session(&self) -> Session {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 50_000);
        Session::new(Arc::clone(&self.door), Peer { address }, || {})
    }

    /// One request over a connection that works.
    fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let mut wire = Wire {
            session: Some(self.session()),
            ..Wire::default()
        };
        wire.say(version, request);
        for _ in 0..10_000 {
            assert!(wire.pump(&mut self.random, &self.host));
            if let Some(frame) = wire.heard() {
                return decoded::<R>(version, &frame);
            }
            self.host.advance(Duration::from_millis(1));
        }
        panic!("no answer");
    }

    fn power_cut(&mut self) {
        self.cuts += 1;
        for client in &mut self.clients {
            client.wire = Wire::default();
        }
        let now = self.host.now();
        let seed = self.random.below(u64::MAX);
        self.disk = self.disk.crash(seed);
        let disk = Arc::new(self.disk.clone()) as Arc<dyn Disk>;
        self.host = Harness::open_at(disk, settings(), seed, now).expect("it starts again");
        self.door = KafkaDoor::new(Arc::clone(self.host.node()), KafkaSettings::default());
    }

    fn step(&mut self, faults: bool) {
        if faults && self.random.one_in(900) {
            self.power_cut();
        }
        let at = self.random.below(self.clients.len() as u64) as usize;
        let breaks = faults && self.random.one_in(150);
        if breaks || self.clients[at].wire.session.is_none() {
            self.breaks += u32::from(breaks);
            let session = self.session();
            self.clients[at].connected(session);
        }
        let client = &mut self.clients[at];
        client.act(&mut self.random, faults);
        let mut goes_on = client.wire.pump(&mut self.random, &self.host);
        while goes_on && let Some(frame) = client.wire.heard() {
            goes_on = client.hear(&frame);
        }
        if !goes_on {
            client.wire = Wire::default();
        }
        // Jobs end in any order, but those of one lane in theirs.
        if self.random.one_in(2) {
            self.host.run_job(0);
        }
        if self.random.one_in(8) {
            self.host
                .advance(Duration::from_millis(self.random.below(20)));
        }
    }

    fn idle(&self) -> bool {
        self.clients.iter().all(|client| match &client.role {
            Role::Producer { id, pending, .. } => id.is_some() && pending.is_empty(),
            Role::Reader { .. } => true,
        })
    }

    /// Everything that is in a partition.
    fn everything(&mut self, partition: i32) -> BTreeMap<i64, String> {
        let mut all = BTreeMap::new();
        loop {
            let at = all.last_key_value().map_or(0, |(offset, _)| offset + 1);
            let mut answer = self.ask(12, &fetch(partition, at));
            let part = answer.responses.remove(0).partitions.remove(0);
            assert_eq!(part.error_code, ErrorCode::NONE);
            let found = values(&part.records.unwrap_or_default());
            if found.is_empty() {
                assert_eq!(part.high_watermark, at);
                return all;
            }
            all.extend(found);
        }
    }

    fn committed(&mut self, partition: i32) -> i64 {
        let request = OffsetFetchRequest {
            group_id: GROUP.to_owned(),
            topics: Some(vec![OffsetFetchRequestTopic {
                name: TOPIC.to_owned(),
                partition_indexes: vec![partition],
            }]),
            ..OffsetFetchRequest::default()
        };
        loop {
            let answer = self.ask(7, &request);
            match answer.error_code {
                ErrorCode::NONE => return answer.topics[0].partitions[0].committed_offset,
                ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => {
                    self.host.advance(Duration::from_millis(10));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets everybody finish, looks at everything, and returns what was found.
    fn end(mut self) -> (String, u32, u32) {
        for _ in 0..200_000 {
            if self.idle() {
                break;
            }
            self.step(false);
        }
        assert!(self.idle(), "somebody is stuck");
        let mut told = String::new();
        let logs: Vec<_> = (0..PARTITIONS).map(|p| self.everything(p)).collect();
        let committed: Vec<_> = (0..PARTITIONS).map(|p| self.committed(p)).collect();
        for client in &self.clients {
            let log = &logs[client.partition as usize];
            match &client.role {
                Role::Producer {
                    name, next, acked, ..
                } => {
                    for (offset, value) in acked {
                        assert_eq!(log.get(offset), Some(value), "acknowledged at {offset}");
                    }
                    let prefix = format!("{name}-");
                    let own = log.values().filter(|v| v.starts_with(&prefix));
                    let expected = (0..*next).map(|n| format!("{prefix}{n}"));
                    assert!(own.eq(&expected.collect::<Vec<_>>()), "{name}: {log:?}");
                    told += &format!("{name}: {next} records, ");
                }
                Role::Reader {
                    seen,
                    committed: least,
                    ..
                } => {
                    for (offset, value) in seen {
                        assert_eq!(log.get(offset), Some(value), "read at {offset}");
                    }
                    let kept = committed[client.partition as usize];
                    assert!(kept >= *least, "committed {least}, found {kept}");
                    told += &format!("{} read, {kept} committed, ", seen.len());
                }
            }
        }
        told += &format!("{logs:?}");
        (told, self.cuts, self.breaks)
    }
}

fn run(seed: u64) -> (String, u32, u32) {
    let mut world = World::new(seed);
    for _ in 0..4_000 {
        world.step(true);
    }
    world.end()
}

#[test]
fn what_was_acknowledged_over_the_wire_survives_broken_connections_and_power_cuts() {
    let mut sum = (0, 0);
    for seed in 0..16 {
        let (_, cuts, breaks) = run(seed);
        sum = (sum.0 + cuts, sum.1 + breaks);
    }
    assert!(sum.0 > 30 && sum.1 > 200, "{sum:?} cuts and breaks");
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [3, 17] {
        assert_eq!(run(seed), run(seed));
    }
}
