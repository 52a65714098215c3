//! A partition that can't be read, among others that can: consumers of all kinds go on with the others, and are told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riverlog_core::groups::{CommittedOffset, GroupAnswer, GroupCommand, TopicPartition};
use riverlog_core::metadata::{AdminAnswer, AdminCommand, BrokerImage, NewTopic};
use riverlog_log::Disk;
use riverlog_log::disk::{CrashDisk, FaultOn, Times};
use riverlog_node::AppendCommand;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{BrokerId, ErrorCode, Generation, LeaderEpoch, Offset};

use crate::{Broker, Consumer, Error, Message, Result};

const SECOND: Duration = Duration::from_secs(1);

fn publish(broker: &Broker, partition: i32, value: &str) {
    let message = Message::new(None, value.as_bytes()).partition(partition);
    broker.publish_message("t", &message).expect("stored");
}

/// Appends a batch of two records that no reader can open.
fn publish_broken(broker: &Broker, partition: i32) {
    // The first byte behind the header, which is of the compressed records.
    publish_damaged(broker, partition, Compression::Gzip, 61);
}

/// Appends a batch of two records of which only the first can be read.
fn publish_half_broken(broker: &Broker, partition: i32) {
    // Each record has a length and seven bytes: this is the second one's length.
    publish_damaged(broker, partition, Compression::None, 61 + 8);
}

fn publish_damaged(broker: &Broker, partition: i32, codec: Compression, at: usize) {
    let mut batch = BatchBuilder::new(codec);
    let batch = batch.push(1_000, None, Some(b"x"), &[]);
    let mut batch = batch.push(1_000, None, Some(b"y"), &[]).build();
    batch[at] ^= 0xff;
    append(broker, partition, batch);
}

/// As [`publish`], also where other partitions of the topic aren't led here.
fn append_value(broker: &Broker, partition: i32, value: &str) {
    let mut batch = BatchBuilder::new(Compression::None);
    let batch = batch.push(1_000, None, Some(value.as_bytes()), &[]);
    append(broker, partition, batch.build());
}

fn append(broker: &Broker, partition: i32, batch: Vec<u8>) {
    let topic = broker.topic_image("t").expect("a topic");
    let to = broker.partition(&topic, partition).expect("a partition");
    let command = AppendCommand {
        batch,
        acks: -1,
        timeout: 30 * SECOND,
    };
    let stored = broker
        .driver
        .call(true, |node, now, reply| {
            node.append(&to, command, now, reply)
        })
        .expect("an answer");
    stored.expect("stored");
}

fn broker(partitions: i32) -> Broker {
    let broker = Broker::in_memory();
    broker.create_topic("t", partitions).expect("a topic");
    broker
}

/// All files of a disk under a folder.
fn files(disk: &dyn Disk, dir: &str) -> Vec<String> {
    let each = disk.list(dir).expect("a list").into_iter().map(|entry| {
        let path = match dir {
            "" => entry.name,
            dir => format!("{dir}/{}", entry.name),
        };
        match entry.is_dir {
            true => files(disk, &path),
            false => vec![path],
        }
    });
    each.flatten().collect()
}

/// A broker of which the first of two partitions is damaged on the disk; `values` are in the second one.
fn with_damage(values: &[&str]) -> Broker {
    let disk = CrashDisk::new(1);
    let broker = Broker::builder().on(Arc::new(disk.clone()));
    let broker = broker.expect("a broker");
    broker.create_topic("t", 2).expect("a topic");
    publish(&broker, 0, "damaged");
    for value in values {
        publish(&broker, 1, value);
    }
    let topic = broker.topic_image("t").expect("a topic").id.to_string();
    broker.close().expect("closed");
    drop(broker);
    let mut segments = files(&disk, "").into_iter();
    let segment = segments.find(|path| {
        let mut folders = path.split('/').rev();
        folders.next().is_some_and(|name| name.ends_with(".log"))
            && folders.next() == Some("0")
            && path.contains(&topic)
    });
    let segment = segment.expect("the partition's segment");
    disk.flip(&segment, 65, 0xff).expect("damage");
    let broker = Broker::builder().on(Arc::new(disk.kill()));
    broker.expect("a broker")
}

/// A broker with a topic of two partitions, the second of which nobody leads: its node has gone.
fn half_led() -> Broker {
    let broker = Broker::in_memory();
    let driver = &broker.driver;
    let image = driver.node.image();
    let here = image.brokers.values().next().expect("a node");
    let away = BrokerImage {
        id: BrokerId(here.id.0 + 1),
        ..here.clone()
    };
    let tell = |command| {
        let done = driver.call(true, |node, now, reply| node.admin(command, now, reply));
        done.expect("an answer").expect("done")
    };
    let registered = tell(AdminCommand::Register {
        broker: away.clone(),
        cluster_id: image.cluster_id.clone(),
    });
    let AdminAnswer::Registered { epoch } = registered else {
        panic!("{registered:?}");
    };
    let topic = NewTopic {
        name: "t".to_owned(),
        partitions: -1,
        replication_factor: -1,
        assignments: vec![(0, vec![here.id]), (1, vec![away.id])],
        configs: Vec::new(),
        id: driver.node.new_topic_id(),
        internal: false,
    };
    tell(AdminCommand::CreateTopics {
        topics: vec![topic],
        validate_only: false,
    });
    let gone = away.id;
    tell(AdminCommand::Fence {
        broker: gone,
        epoch,
    });
    let made = broker.topic_image("t").expect("a topic");
    assert_eq!(made.partitions[1].leader, None);
    broker
}

fn is_corrupt<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Refused { code, .. }) if *code == ErrorCode::CORRUPT_MESSAGE)
}

/// Polls until `count` values have come and the damage has been told of, in whatever order.
fn poll_all<T>(
    count: usize,
    mut poll: impl FnMut() -> Result<Vec<T>>,
    value: impl Fn(&T) -> String,
) -> Vec<String> {
    let deadline = Instant::now() + 30 * SECOND;
    let (mut all, mut told) = (Vec::new(), false);
    while all.len() < count || !told {
        assert!(Instant::now() < deadline, "{all:?}, told: {told}");
        match poll() {
            Ok(records) => all.extend(records.iter().map(&value)),
            error if is_corrupt(&error) => told = true,
            Err(error) => panic!("{error}"),
        }
    }
    all.sort();
    all
}

fn text(record: &crate::Record) -> String {
    String::from_utf8_lossy(record.value()).into_owned()
}

#[test]
fn a_batch_that_can_not_be_opened_holds_up_its_own_partition_alone() {
    let broker = broker(2);
    publish(&broker, 0, "before");
    publish_broken(&broker, 0);
    publish(&broker, 1, "a");
    let mut consumer = broker.subscribe("t", "g", "c").expect("a member");
    let mut poll = || consumer.poll(10, SECOND / 10);
    assert_eq!(poll_all(2, &mut poll, text), ["a", "before"]);
    publish(&broker, 1, "b");
    assert_eq!(poll_all(1, &mut poll, text), ["b"]);
    assert_eq!(consumer.position("t", 0).expect("a position"), 1);
    // It goes on where the error says.
    let error = consumer.poll(10, SECOND / 10).expect_err("the damage");
    assert!(error.to_string().contains("seek to 3 "), "{error}");
    publish(&broker, 0, "behind");
    consumer.seek("t", 0, 3).expect("a seek");
    let records = consumer.poll(10, 30 * SECOND).expect("a poll");
    assert_eq!(records.iter().map(text).collect::<Vec<_>>(), ["behind"]);
}

#[test]
fn records_before_the_damage_in_a_batch_are_handed_out() {
    let broker = broker(1);
    publish_half_broken(&broker, 0);
    publish(&broker, 0, "behind");
    let mut consumer = broker.subscribe("t", "g", "c").expect("a member");
    let poll = || consumer.poll(10, SECOND / 10);
    assert_eq!(poll_all(1, poll, text), ["x"]);
    assert_eq!(consumer.position("t", 0).expect("a position"), 1);
    let mut shared = broker.subscribe_shared("t", "s", "c").expect("a member");
    let poll = || shared.poll(10, SECOND / 10);
    assert_eq!(poll_all(2, poll, |job| text(job)), ["behind", "x"]);
}

#[test]
fn batches_that_can_not_be_opened_take_nobodys_place_and_are_told_in_one() {
    let broker = broker(1);
    for _ in 0..3 {
        publish_broken(&broker, 0);
    }
    publish(&broker, 0, "behind");
    let mut shared = broker.subscribe_shared("t", "s", "c").expect("a member");
    let jobs = shared.poll(2, 30 * SECOND).expect("a poll");
    assert_eq!(jobs.iter().map(|j| text(j)).collect::<Vec<_>>(), ["behind"]);
    let error = shared.poll(2, 30 * SECOND).expect_err("the damage");
    let error = error.to_string();
    assert!(error.contains("6 offsets from 0 to 5"), "{error}");
    assert!(shared.poll(2, SECOND / 10).expect("a poll").is_empty());
}

#[test]
fn damage_on_the_disk_holds_up_its_own_partition_alone() {
    let broker = with_damage(&["a"]);
    let mut consumer = broker.subscribe("t", "g", "c").expect("a member");
    let mut poll = || consumer.poll(10, SECOND / 10);
    assert_eq!(poll_all(1, &mut poll, text), ["a"]);
    publish(&broker, 1, "b");
    assert_eq!(poll_all(1, &mut poll, text), ["b"]);
}

#[test]
fn a_partition_that_can_not_be_opened_holds_up_no_other_one_and_is_told() {
    let disk = CrashDisk::new(1);
    let broker = Broker::builder().on(Arc::new(disk.clone()));
    let broker = broker.expect("a broker");
    broker.create_topic("t", 2).expect("a topic");
    publish(&broker, 0, "gone");
    publish(&broker, 1, "a");
    let topic = broker.topic_image("t").expect("a topic").id;
    let disk = disk.kill();
    drop(broker);
    let (other, folder) = (std::io::ErrorKind::Other, format!("{topic}/0"));
    disk.fail(FaultOn::Read, Times::Forever, other, move |path| {
        path.starts_with(&folder)
    });
    let broker = Broker::builder().on(Arc::new(disk)).expect("a broker");
    assert_eq!(broker.driver.node.broken_partitions().len(), 1);
    let mut consumer = broker.subscribe("t", "g", "c").expect("a member");
    let records = consumer.poll(10, 30 * SECOND).expect("a poll");
    assert_eq!(records.iter().map(text).collect::<Vec<_>>(), ["a"]);
    let error = consumer.poll(10, 30 * SECOND).expect_err("its log");
    assert!(
        matches!(&error, Error::Refused { code, message }
            if *code == ErrorCode::KAFKA_STORAGE_ERROR && message.starts_with("partition 0 of topic")),
        "{error}"
    );
}

#[test]
fn shared_records_are_delivered_once_beside_a_batch_that_can_not_be_opened() {
    let broker = broker(3);
    for partition in 0..3 {
        publish(&broker, partition, &format!("{partition} before"));
        if partition == 1 {
            publish_broken(&broker, partition);
        }
        publish(&broker, partition, &format!("{partition} behind"));
    }
    let mut consumer = broker.subscribe_shared("t", "g", "c").expect("a member");
    let poll = || {
        let jobs = consumer.poll(10, SECOND / 10)?;
        assert!(jobs.iter().all(|j| j.delivery_count == 1), "{jobs:?}");
        consumer.ack_all(&jobs)?;
        Ok(jobs)
    };
    assert_eq!(
        poll_all(6, poll, |job| text(job)),
        [
            "0 before", "0 behind", "1 before", "1 behind", "2 before", "2 behind"
        ]
    );
    // What was rejected doesn't come again, nor the news of it.
    let rest = consumer.poll(10, SECOND / 10).expect("a poll");
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn shared_records_are_delivered_once_beside_damage_on_the_disk() {
    let broker = with_damage(&["a", "b", "c"]);
    let mut consumer = broker.subscribe_shared("t", "g", "c").expect("a member");
    let poll = || {
        let jobs = consumer.poll(10, SECOND / 10)?;
        assert!(jobs.iter().all(|j| j.delivery_count == 1), "{jobs:?}");
        consumer.ack_all(&jobs)?;
        Ok(jobs)
    };
    assert_eq!(poll_all(3, poll, |job| text(job)), ["a", "b", "c"]);
    // The group goes on as the error says.
    let topic = broker.topic("t").expect("a topic");
    let part = topic.partition(0).expect("a partition");
    part.delete_records(1).expect("deleted");
    publish(&broker, 0, "behind");
    let jobs = consumer.poll(10, 30 * SECOND).expect("a poll");
    assert_eq!(jobs.iter().map(|j| text(j)).collect::<Vec<_>>(), ["behind"]);
}

#[test]
fn a_partition_that_nobody_leads_holds_up_no_other_one() {
    let broker = half_led();
    append_value(&broker, 0, "a");
    let mut consumer = broker.subscribe("t", "g", "c").expect("a member");
    let poll = |consumer: &mut Consumer, wait| {
        let begun = Instant::now();
        let records = consumer.poll(10, wait).expect("a poll");
        // It passes; a poll that finds nothing else waits as any other does.
        assert!(!records.is_empty() || begun.elapsed() >= wait);
        let text = |r: &crate::Record| String::from_utf8_lossy(r.value()).into_owned();
        records.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(poll(&mut consumer, 30 * SECOND), ["a"]);
    assert!(poll(&mut consumer, SECOND / 50).is_empty());
    append_value(&broker, 0, "b");
    assert_eq!(poll(&mut consumer, 30 * SECOND), ["b"]);
    drop(consumer);
    // The same where its leader has gone since the consumer began there.
    let topic = broker.topic_image("t").expect("a topic");
    let place = TopicPartition {
        topic: "t".to_owned(),
        id: topic.id,
        partition: 1,
    };
    let offset = CommittedOffset {
        offset: Offset(7),
        leader_epoch: LeaderEpoch::NONE,
        metadata: String::new(),
        commit_timestamp: -1,
        expire_timestamp: None,
    };
    let commit = GroupCommand::Commit {
        group: "g".to_owned(),
        generation: Generation(-1),
        member: String::new(),
        instance: None,
        offsets: vec![(place, offset)],
        version: 10,
    };
    let driver = &broker.driver;
    let committed = driver.call(true, |node, now, reply| node.group(commit, now, reply));
    let committed = committed.expect("an answer");
    assert!(
        matches!(&committed, GroupAnswer::Partitions(ErrorCode::NONE, each) if *each == [ErrorCode::NONE]),
        "{committed:?}"
    );
    let mut consumer = broker.subscribe("t", "g", "c").expect("a member");
    assert_eq!(consumer.position("t", 1).expect("held"), 7);
    assert_eq!(poll(&mut consumer, 30 * SECOND), ["a", "b"]);
    assert!(poll(&mut consumer, SECOND / 50).is_empty());
    append_value(&broker, 0, "c");
    assert_eq!(poll(&mut consumer, 30 * SECOND), ["c"]);
}
