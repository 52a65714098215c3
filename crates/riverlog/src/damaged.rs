//! A partition that can't be read, among others that can: consumers of all kinds go on with the others, and are told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riverlog_log::Disk;
use riverlog_log::disk::CrashDisk;
use riverlog_node::AppendCommand;
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;

use crate::{Broker, Error, Message, Result};

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
    let jobs = shared.poll(2, SECOND / 10).expect("a poll");
    assert_eq!(jobs.iter().map(|j| text(j)).collect::<Vec<_>>(), ["behind"]);
    let error = shared.poll(2, SECOND / 10).expect_err("the damage");
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
