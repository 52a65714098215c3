//! What the tests share: short ways to make topics, send, read.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::groups::{CommittedOffset, GroupAnswer, GroupCommand, TopicPartition};
use riverlog_core::metadata::{
    AdminAnswer, AdminCommand, ConfigChange, ConfigResource, NewTopic, TopicRef,
};
use riverlog_log::Disk;
use riverlog_log::disk::CrashDisk;
use riverlog_node::harness::{Answer, Harness};
use riverlog_node::{
    AppendAnswer, AppendCommand, AppendFailure, FetchAnswer, FetchCommand, FetchPartition,
    FetchedPartition, Isolation, NodeSettings, PartitionRef,
};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{
    ErrorCode, Generation, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TopicId,
};

pub type Appended = Result<AppendAnswer, AppendFailure>;

/// Small enough that everything rolls, fills and expires within a test.
pub fn settings() -> NodeSettings {
    let mut settings = NodeSettings::default();
    settings.volume.wal_bytes = 1 << 20;
    settings.volume.tail_cache_bytes = 1 << 20;
    settings.offsets_partitions = 3;
    settings.retention_check_ms = 1_000;
    settings.segment_bytes_limit = Some(2_000);
    settings
}

pub fn open(disk: &CrashDisk) -> Harness {
    open_with(disk, settings())
}

pub fn open_with(disk: &CrashDisk, settings: NodeSettings) -> Harness {
    Harness::open(Arc::new(disk.clone()) as Arc<dyn Disk>, settings, 7).expect("the node opens")
}

pub fn create(
    host: &mut Harness,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> TopicId {
    let results = create_result(host, name, partitions, configs);
    results.unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub fn create_result(
    host: &mut Harness,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<TopicId, ErrorCode> {
    let id = TopicId(host.node().random().to_be_bytes());
    let topic = NewTopic {
        partitions,
        ..new_topic(name, id, configs)
    };
    let command = AdminCommand::CreateTopics {
        topics: vec![topic],
        validate_only: false,
    };
    admin(host, command).map(|()| id)
}

/// A topic with as many partitions and copies as are usual.
pub fn new_topic(name: &str, id: TopicId, configs: &[(&str, &str)]) -> NewTopic {
    NewTopic {
        name: name.to_owned(),
        partitions: -1,
        replication_factor: -1,
        configs: configs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), Some((*v).to_owned())))
            .collect(),
        id,
        ..NewTopic::default()
    }
}

/// Sets one key; `None`: to nothing.
pub fn config(resource: ConfigResource, key: &str, value: Option<&str>) -> AdminCommand {
    let change = ConfigChange::Set(key.to_owned(), value.map(str::to_owned));
    AdminCommand::AlterConfigs {
        resources: vec![(resource, vec![change])],
        replace: false,
        validate_only: false,
    }
}

pub fn set(host: &mut Harness, topic: &str, key: &str, value: &str) {
    let topic = ConfigResource::Topic(topic.to_owned());
    admin(host, config(topic, key, Some(value))).unwrap();
}

pub fn delete(host: &mut Harness, name: &str) -> Result<(), ErrorCode> {
    let topics = vec![TopicRef::Name(name.to_owned())];
    admin(host, AdminCommand::DeleteTopics { topics })
}

pub fn admin(host: &mut Harness, command: AdminCommand) -> Result<(), ErrorCode> {
    let answer = host
        .get(|node, now, reply| node.admin(command, now, reply))
        .expect("the controller answers")?;
    let AdminAnswer::Results(results) = answer else {
        panic!("results expected")
    };
    for result in results {
        result.error.into_result()?;
    }
    Ok(())
}

pub fn partition(host: &Harness, name: &str, index: i32) -> PartitionRef {
    host.node()
        .partition(&TopicRef::Name(name.to_owned()), index)
        .unwrap_or_else(|error| panic!("{name}-{index}: {error}"))
}

/// A batch with these values, stamped with the harness's time.
pub fn batch(host: &Harness, values: &[&str]) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None);
    for value in values {
        batch.push(host.now().wall_ms, None, Some(value.as_bytes()), &[]);
    }
    batch.build()
}

pub fn idempotent(host: &Harness, producer: ProducerId, sequence: i32, values: &[&str]) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Compression::None);
    batch.producer(producer, ProducerEpoch(0), Sequence(sequence));
    for value in values {
        batch.push(host.now().wall_ms, None, Some(value.as_bytes()), &[]);
    }
    batch.build()
}

pub fn command(batch: Vec<u8>, acks: i16) -> AppendCommand {
    AppendCommand {
        batch,
        acks,
        timeout: Duration::from_secs(30),
    }
}

/// Sends without running anything.
pub fn send(host: &Harness, to: &PartitionRef, batch: Vec<u8>, acks: i16) -> Answer<Appended> {
    host.ask(|node, now, reply| node.append(to, command(batch, acks), now, reply))
}

/// Sends with acks=all and waits for the answer.
pub fn produce(host: &mut Harness, to: &PartitionRef, values: &[&str]) -> Appended {
    let batch = batch(host, values);
    host.get(|node, now, reply| node.append(to, command(batch, -1), now, reply))
        .expect("the append is answered")
}

pub fn ask_from(name: &str, partition: i32, from: i64) -> FetchPartition {
    FetchPartition {
        topic: TopicRef::Name(name.to_owned()),
        partition,
        from: Offset(from),
        max_bytes: 1 << 20,
        current_leader_epoch: LeaderEpoch(-1),
        last_fetched_epoch: LeaderEpoch(-1),
    }
}

pub fn fetch_command(partitions: Vec<FetchPartition>, wait_ms: u64) -> FetchCommand {
    FetchCommand {
        partitions,
        max_wait: Duration::from_millis(wait_ms),
        min_bytes: 1,
        max_bytes: 50 << 20,
        isolation: Isolation::ReadUncommitted,
        replica: None,
    }
}

pub fn fetch(host: &mut Harness, command: FetchCommand) -> FetchAnswer {
    host.get(|node, now, reply| node.fetch(command, now, reply))
        .expect("the fetch is answered")
}

/// Offsets and values in the answer's partition `at`.
pub fn values(answer: FetchAnswer, at: usize) -> Vec<(i64, String)> {
    let partition = answer.partitions.into_iter().nth(at).expect("a partition");
    assert_eq!(partition.error, ErrorCode::NONE);
    let bytes = partition.records.into_bytes().expect("readable");
    let mut values = Vec::new();
    for batch in batches(&bytes) {
        let batch = batch.expect("a sound batch");
        batch.check_crc().expect("a right CRC");
        for record in batch.records(1 << 20).expect("records").iter() {
            let record = record.expect("a record");
            let value = record.value.expect("a value");
            values.push((
                record.offset.0,
                String::from_utf8(value.to_vec()).expect("text"),
            ));
        }
    }
    values
}

/// Values that a reader of committed records gets of a partition, and whether everything up to the high watermark is decided.
pub fn committed_values(part: FetchedPartition) -> (Vec<String>, bool) {
    let is_decided = part.last_stable_offset == part.high_watermark;
    let skip: Vec<i64> = part.aborted.iter().map(|(id, _)| *id).collect();
    let bytes = part.records.into_bytes().expect("readable");
    let mut values = Vec::new();
    for batch in batches(&bytes) {
        let batch = batch.expect("a sound batch");
        let header = batch.header;
        if header.attributes.is_control() || skip.contains(&header.producer_id.0) {
            continue;
        }
        for record in batch.records(1 << 20).expect("records").iter() {
            let value = record.expect("a record").value.expect("a value");
            values.push(String::from_utf8(value.to_vec()).expect("text"));
        }
    }
    (values, is_decided)
}

/// A topic `t` with large records, and its segment, in whose first record one bit was flipped on the disk before the node was opened again.
pub fn damaged(records: usize) -> (Harness, String) {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let id = create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    for i in 0..records {
        produce(&mut host, &to, &[&format!("{i}{}", "v".repeat(500))]).unwrap();
    }
    host.close().unwrap();
    let path = format!("{id}/0/00000000000000000000.log");
    disk.flip(&path, 100, 0x10).unwrap();
    (open(&disk), path)
}

/// Everything in a partition from `from` to the high watermark, in as many fetches as it takes.
pub fn read_all(host: &mut Harness, name: &str, index: i32) -> Vec<(i64, String)> {
    let here = partition(host, name, index);
    let described = host.node().describe_partition(&here);
    let mut at = described.log_start_offset.0;
    let mut all = Vec::new();
    while at < described.high_watermark.0 {
        let answer = fetch(host, fetch_command(vec![ask_from(name, index, at)], 0));
        let some = values(answer, 0);
        let last = some.last().expect("progress").0;
        all.extend(some.into_iter().filter(|(offset, _)| *offset >= at));
        at = last + 1;
    }
    all
}

/// What commits an offset of partition 0 from outside a group's membership.
pub fn outside_commit(group: &str, topic: &str, offset: i64) -> GroupCommand {
    GroupCommand::Commit {
        group: group.to_owned(),
        generation: Generation(-1),
        member: String::new(),
        instance: None,
        offsets: vec![(
            TopicPartition {
                topic: topic.to_owned(),
                id: TopicId::ZERO,
                partition: 0,
            },
            CommittedOffset {
                offset: Offset(offset),
                leader_epoch: LeaderEpoch(-1),
                metadata: String::new(),
                commit_timestamp: 0,
                expire_timestamp: None,
            },
        )],
        version: 8,
    }
}

/// Commits an offset from outside a group's membership, as the admin client does; tries again while groups load.
pub fn commit_from_outside(host: &mut Harness, group: &str, topic: &str, offset: i64) {
    for _ in 0..100 {
        let command = outside_commit(group, topic, offset);
        let answer = host.get(|node, now, reply| node.group(command, now, reply));
        let Some(GroupAnswer::Partitions(error, each)) = answer else {
            panic!("a commit's answer")
        };
        if error == ErrorCode::NONE && each == [ErrorCode::NONE] {
            return;
        }
        assert!(error.retriable() || each[0].retriable(), "{error} {each:?}");
        host.advance(Duration::from_millis(100));
    }
    panic!("the commit never succeeded");
}
