//! Transactions on disks that fail and disks that are slow.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riverlog_log::disk::{CrashDisk, FaultOn, MemoryDisk, Times};
use riverlog_log::{Disk, DiskFile, OpenMode};
use riverlog_wire::ErrorCode;

use crate::{Broker, Consumer, Error, Result};

const SECOND: Duration = Duration::from_secs(1);

fn broker_on(disk: Arc<dyn Disk>) -> Broker {
    let broker = Broker::builder().on(disk).expect("a broker");
    for topic in ["t", "other"] {
        broker.create_topic(topic, 1).expect("a topic");
    }
    broker
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> ErrorCode {
    match result {
        Err(Error::Refused { code, .. }) => code,
        other => panic!("{other:?} isn't a refusal"),
    }
}

/// All values up to one that is the last.
fn read_to(consumer: &mut Consumer, last: &str) -> Vec<String> {
    let deadline = Instant::now() + 30 * SECOND;
    let mut all: Vec<String> = Vec::new();
    while all.last().is_none_or(|v| v != last) {
        assert!(Instant::now() < deadline, "only {all:?} came");
        let records = consumer.poll(10, SECOND / 10).expect("a poll");
        let text = |r: &crate::Record| String::from_utf8_lossy(r.value()).into_owned();
        all.extend(records.iter().map(text));
    }
    all
}

/// Group commits find no room, until the disk is healed.
fn fill(disk: &CrashDisk) {
    let full = io::ErrorKind::StorageFull;
    disk.fail(FaultOn::Write, Times::Forever, full, |path| {
        path.contains("wal")
    });
}

fn make_room(disk: &CrashDisk, broker: &Broker) {
    disk.heal();
    let deadline = Instant::now() + 30 * SECOND;
    while let Err(error) = broker.publish("other", None, b"x") {
        assert!(Instant::now() < deadline, "still no room: {error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_record_after_one_of_unknown_fate_is_not_taken_for_its_duplicate() {
    let disk = CrashDisk::new(1);
    let broker = broker_on(Arc::new(disk.clone()));
    let mut producer = broker.transaction("id").expect("a producer");
    let mut transaction = producer.begin();
    transaction.publish("t", None, b"0").expect("stored");
    fill(&disk);
    let first = transaction.publish("t", None, b"1");
    assert_eq!(code(first), ErrorCode::KAFKA_STORAGE_ERROR);
    make_room(&disk, &broker);
    // The batch of the first is in the log by now, under the sequence that this one would have.
    let second = transaction.publish("t", None, b"2");
    assert_eq!(code(second), ErrorCode::TRANSACTION_ABORTABLE);
    let mut reader = broker.subscribe("other", "g", "copier").expect("a member");
    assert!(!reader.poll(1, SECOND).expect("a poll").is_empty());
    let offsets = transaction.commit_offsets(&mut reader);
    assert_eq!(code(offsets), ErrorCode::TRANSACTION_ABORTABLE);
    let error = transaction
        .commit()
        .expect_err("nobody knows what is in it");
    assert!(error.to_string().contains("abort"), "{error}");

    let mut transaction = producer.begin();
    transaction.publish("t", None, b"3").expect("stored");
    transaction.commit().expect("committed");
    let mut consumer = broker.subscribe("t", "check", "c").expect("a member");
    assert_eq!(read_to(&mut consumer, "3"), ["3"]);
}

#[test]
fn a_transaction_of_unknown_content_can_be_aborted() {
    let disk = CrashDisk::new(2);
    let broker = broker_on(Arc::new(disk.clone()));
    let mut producer = broker.transaction("id").expect("a producer");
    let mut transaction = producer.begin();
    transaction.publish("t", None, b"0").expect("stored");
    fill(&disk);
    assert!(transaction.publish("t", None, b"1").is_err());
    make_room(&disk, &broker);
    transaction.abort().expect("aborted");
    let mut transaction = producer.begin();
    transaction.publish("t", None, b"2").expect("stored");
    transaction.commit().expect("committed");
    let mut consumer = broker.subscribe("t", "check", "c").expect("a member");
    assert_eq!(read_to(&mut consumer, "2"), ["2"]);
}

#[test]
fn a_transaction_goes_on_after_a_refusal() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).expect("a topic");
    let full = crate::Full::Error;
    let bounded = broker.topic_builder("bounded").max_records(1, full);
    bounded.create().expect("a topic");
    let mut behind = broker.subscribe("bounded", "g", "c").expect("a member");
    behind.commit_at(0, 0).expect("committed");
    let mut producer = broker.transaction("id").expect("a producer");
    let mut transaction = producer.begin();
    transaction.publish("bounded", None, b"0").expect("stored");
    let error = transaction.publish("bounded", None, b"1");
    assert!(matches!(error, Err(Error::Full { .. })), "{error:?}");
    transaction.publish("t", None, b"2").expect("stored");
    transaction.commit().expect("committed");
    let mut consumer = broker.subscribe("t", "check", "c").expect("a member");
    assert_eq!(read_to(&mut consumer, "2"), ["2"]);
}

#[test]
fn a_transaction_of_which_all_was_refused_can_be_committed() {
    let broker = Broker::in_memory();
    let mut producer = broker.transaction("id").expect("a producer");
    let mut transaction = producer.begin();
    let error = transaction.publish("missing", None, b"x");
    assert!(matches!(error, Err(Error::UnknownTopic(_))), "{error:?}");
    transaction.commit().expect("there is nothing in it");

    broker.create_topic("t", 1).expect("a topic");
    let mut transaction = producer.begin();
    transaction.publish("t", None, b"1").expect("stored");
    transaction.commit().expect("committed");
    let mut consumer = broker.subscribe("t", "check", "c").expect("a member");
    assert_eq!(read_to(&mut consumer, "1"), ["1"]);
}

/// A disk in memory whose syncs take a while.
#[derive(Clone, Debug, Default)]
struct SlowDisk(Arc<MemoryDisk>);

#[derive(Debug)]
struct SlowFile(Arc<dyn DiskFile>);

impl Disk for SlowDisk {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(SlowFile(self.0.open(path, mode)?)))
    }
    fn list(&self, dir: &str) -> io::Result<Vec<riverlog_log::disk::Entry>> {
        self.0.list(dir)
    }
    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        self.0.create_dir_all(dir)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn remove_dir_all(&self, dir: &str) -> io::Result<()> {
        self.0.remove_dir_all(dir)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
    fn available(&self) -> io::Result<u64> {
        self.0.available()
    }
    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.0.lock(path)
    }
}

impl DiskFile for SlowFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buf, at)
    }
    fn write_at(&self, bufs: &[&[u8]], at: u64) -> io::Result<()> {
        self.0.write_at(bufs, at)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(50));
        self.0.sync()
    }
}

#[test]
fn the_time_for_room_in_a_full_partition_is_not_the_time_for_the_disk() {
    let broker = broker_on(Arc::new(SlowDisk::default()));
    let topic = broker.topic_builder("bounded");
    let topic = topic.config("riverlog.max.records", "1000");
    let topic = topic.config("riverlog.when.full.timeout.ms", "1");
    topic.create().expect("a topic");
    broker.publish("bounded", None, b"0").expect("stored");
    let mut producer = broker.transaction("id").expect("a producer");
    let mut transaction = producer.begin();
    transaction.publish("bounded", None, b"1").expect("stored");
    transaction.commit().expect("committed");
}
