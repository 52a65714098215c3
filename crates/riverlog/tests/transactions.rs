//! Transactions of the library, as a program uses them.

use std::time::{Duration, Instant};

use riverlog::{Broker, Consumer, Error, Message};

const SECOND: Duration = Duration::from_secs(1);

/// Polls until `count` records came, or five seconds have passed.
fn read(consumer: &mut Consumer, count: usize) -> Vec<String> {
    let deadline = Instant::now() + 5 * SECOND;
    let mut all = Vec::new();
    while all.len() < count && Instant::now() < deadline {
        let records = consumer.poll(count - all.len(), SECOND / 10).unwrap();
        let text = |r: &riverlog::Record| String::from_utf8_lossy(r.value()).into_owned();
        all.extend(records.iter().map(text));
    }
    all
}

fn broker(topics: &[&str]) -> Broker {
    let broker = Broker::in_memory();
    for topic in topics {
        broker.create_topic(topic, 2).unwrap();
    }
    broker
}

#[test]
fn readers_see_committed_transactions_whole_and_nothing_of_aborted_ones() {
    let broker = broker(&["t"]);
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    let mut producer = broker.transaction("id").unwrap();
    for (name, commit) in [("a", true), ("b", false), ("c", true), ("d", false)] {
        let mut transaction = producer.begin();
        for partition in [0, 1, 0] {
            let message = Message::new(None, name.as_bytes()).partition(partition);
            transaction.publish_message("t", &message).unwrap();
        }
        match commit {
            true => transaction.commit().unwrap(),
            false => transaction.abort().unwrap(),
        }
    }
    broker.publish("t", None, b"end").unwrap();
    let mut seen = read(&mut consumer, 7);
    seen.sort();
    assert_eq!(seen, ["a", "a", "a", "c", "c", "c", "end"]);
    assert!(consumer.poll(10, SECOND / 10).unwrap().is_empty());
}

#[test]
fn a_transaction_that_is_dropped_is_aborted() {
    let broker = broker(&["t"]);
    let mut producer = broker.transaction("id").unwrap();
    let mut transaction = producer.begin();
    transaction.publish("t", Some(b"k"), b"lost").unwrap();
    drop(transaction);
    // Nothing was in this one: there is nothing to end.
    producer.begin().commit().unwrap();
    let mut transaction = producer.begin();
    transaction.publish("t", Some(b"k"), b"kept").unwrap();
    transaction.commit().unwrap();
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    assert_eq!(read(&mut consumer, 1), ["kept"]);
}

#[test]
fn offsets_and_records_count_together() {
    let broker = broker(&["in", "out"]);
    for n in 0..10 {
        broker
            .publish("in", Some(b"k"), n.to_string().as_bytes())
            .unwrap();
    }
    // Every second attempt fails halfway; what it read comes again.
    for attempt in 0..10 {
        let mut consumer = broker.subscribe("in", "copy", "copier").unwrap();
        let mut producer = broker.transaction("copier").unwrap();
        let read = consumer.poll(3, SECOND / 2).unwrap();
        let mut transaction = producer.begin();
        for record in &read {
            transaction
                .publish("out", Some(b"k"), record.value())
                .unwrap();
        }
        transaction.commit_offsets(&mut consumer).unwrap();
        if attempt % 2 == 0 {
            transaction.abort().unwrap();
        } else {
            transaction.commit().unwrap();
        }
    }
    let mut consumer = broker.subscribe("out", "check", "c").unwrap();
    let expected: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    assert_eq!(read(&mut consumer, 10), expected);
    assert!(consumer.poll(10, SECOND / 10).unwrap().is_empty());
}

#[test]
fn a_consumer_waits_for_a_transaction_that_is_to_move_its_commit() {
    for (commit, begin) in [(true, 5), (false, 2)] {
        let broker = broker(&["t"]);
        let all: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        for value in &all {
            let message = Message::new(None, value.as_bytes()).partition(0);
            broker.publish_message("t", &message).unwrap();
        }
        let other = Message::new(None, b"other").partition(1);
        broker.publish_message("t", &other).unwrap();
        let mut first = broker.subscribe("t", "g", "first").unwrap();
        first.commit().unwrap();
        first.commit_at(0, 2).unwrap();
        first.seek("t", 0, 5).unwrap();
        let mut producer = broker.transaction("id").unwrap();
        let mut transaction = producer.begin();
        transaction.commit_offsets(&mut first).unwrap();
        first.close().unwrap();
        // Where the second one is to begin in partition 0 isn't known yet; that holds up no other partition.
        let mut second = broker.subscribe("t", "g", "second").unwrap();
        assert_eq!(read(&mut second, 1), ["other"]);
        assert!(second.poll(10, SECOND / 10).unwrap().is_empty());
        assert!(matches!(
            second.position("t", 0),
            Err(Error::NotAssigned { partition: 0 })
        ));
        match commit {
            true => transaction.commit().unwrap(),
            false => transaction.abort().unwrap(),
        }
        assert_eq!(read(&mut second, all.len() - begin), all[begin..]);
    }
}

#[test]
fn a_later_producer_fences_the_earlier_one() {
    let broker = broker(&["t"]);
    let mut old = broker.transaction("id").unwrap();
    let mut transaction = old.begin();
    transaction.publish("t", Some(b"k"), b"old").unwrap();
    let mut new = broker.transaction("id").unwrap();
    let error = transaction.publish("t", Some(b"k"), b"late").unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let error = transaction.commit().unwrap_err();
    assert!(error.to_string().contains("PRODUCER_FENCED"), "{error}");
    let mut transaction = new.begin();
    transaction.publish("t", Some(b"k"), b"new").unwrap();
    transaction.commit().unwrap();
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    assert_eq!(read(&mut consumer, 1), ["new"]);
}

#[test]
fn a_transaction_runs_out() {
    let broker = broker(&["t"]);
    let mut producer = broker
        .transaction_with_timeout("id", Duration::from_millis(200))
        .unwrap();
    let mut transaction = producer.begin();
    transaction.publish("t", Some(b"k"), b"slow").unwrap();
    broker.publish("t", Some(b"k"), b"after").unwrap();
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    // Without a time-out the record behind it would never be read.
    assert_eq!(read(&mut consumer, 1), ["after"]);
    assert!(transaction.commit().is_err());
    assert!(broker.transaction_with_timeout("id", 901 * SECOND).is_err());
}

#[test]
fn committed_transactions_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    {
        let broker = Broker::open(&path).unwrap();
        broker.create_topic("t", 1).unwrap();
        let mut producer = broker.transaction("id").unwrap();
        let mut transaction = producer.begin();
        transaction.publish("t", None, b"kept").unwrap();
        transaction.commit().unwrap();
        let mut transaction = producer.begin();
        transaction.publish("t", None, b"open").unwrap();
        // The program ends without a word.
        std::mem::forget(transaction);
    }
    let broker = Broker::open(&path).unwrap();
    let mut producer = broker.transaction("id").unwrap();
    let mut transaction = producer.begin();
    transaction.publish("t", None, b"next").unwrap();
    transaction.commit().unwrap();
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    assert_eq!(read(&mut consumer, 2), ["kept", "next"]);
}
