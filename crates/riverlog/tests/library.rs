//! The library, as a program uses it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use riverlog::{Broker, Delivery, Error, Full, Lag, Message, Start, Subscription};

const SECOND: Duration = Duration::from_secs(1);

fn values(records: &[riverlog::Record]) -> Vec<String> {
    records
        .iter()
        .map(|r| String::from_utf8_lossy(r.value()).into_owned())
        .collect()
}

/// Polls until `count` records came, or five seconds have passed.
fn read(consumer: &mut riverlog::Consumer, count: usize) -> Vec<riverlog::Record> {
    let deadline = Instant::now() + 5 * SECOND;
    let mut all = Vec::new();
    while all.len() < count && Instant::now() < deadline {
        all.extend(consumer.poll(count - all.len(), SECOND / 10).unwrap());
    }
    all
}

#[test]
fn records_of_one_key_keep_their_order() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 5).unwrap();
    for n in 0..50 {
        broker
            .publish("t", Some(b"key"), n.to_string().as_bytes())
            .unwrap();
    }
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    let records = read(&mut consumer, 50);
    assert_eq!(
        values(&records),
        (0..50).map(|n| n.to_string()).collect::<Vec<_>>()
    );
    assert!(records.iter().all(|r| r.partition == records[0].partition));
}

#[test]
fn records_without_a_key_take_turns() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 4).unwrap();
    let mut counts = [0; 4];
    for _ in 0..40 {
        counts[broker.publish("t", None, b"x").unwrap().partition as usize] += 1;
    }
    assert_eq!(counts, [10; 4]);
}

#[test]
fn a_poll_without_end_wakes_when_a_record_comes() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).unwrap();
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    let mut shared = broker.subscribe_shared("t", "s", "c").unwrap();
    let consumer = std::thread::spawn(move || consumer.poll(10, Duration::MAX).unwrap().len());
    let shared = std::thread::spawn(move || shared.poll(10, Duration::MAX).unwrap().len());
    broker.publish("t", None, b"x").unwrap();
    assert_eq!((consumer.join().unwrap(), shared.join().unwrap()), (1, 1));
}

#[test]
fn a_poll_for_no_record_takes_none() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).unwrap();
    broker.publish("t", None, b"x").unwrap();
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    let mut shared = broker.subscribe_shared("t", "s", "c").unwrap();
    for wait in [Duration::ZERO, Duration::from_millis(1)] {
        let begun = Instant::now();
        assert!(consumer.poll(0, wait).unwrap().is_empty());
        assert!(shared.poll(0, wait).unwrap().is_empty());
        // Who asks for nothing again and again doesn't spin.
        assert!(begun.elapsed() >= 2 * wait);
    }
    assert_eq!(consumer.position("t", 0).unwrap(), 0);
    assert_eq!(read(&mut consumer, 1).len(), 1);
    let jobs = shared.poll(10, 5 * SECOND).unwrap();
    assert_eq!((jobs.len(), jobs[0].delivery_count), (1, 1));
}

#[test]
fn a_waiting_poll_wakes_as_soon_as_a_record_comes() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).unwrap();
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    assert!(
        consumer
            .poll(1, Duration::from_millis(10))
            .unwrap()
            .is_empty()
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            broker.publish("t", None, b"x").unwrap();
        });
        // The time-out is far longer than any machine needs: a poll that slept it through would hang the test's patience.
        let began = Instant::now();
        assert_eq!(consumer.poll(1, 60 * SECOND).unwrap().len(), 1);
        assert!(began.elapsed() < 30 * SECOND);
    });
}

#[test]
fn what_was_committed_is_not_read_again_and_what_was_not_is() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).unwrap();
    for n in 0..10 {
        broker.publish("t", None, n.to_string().as_bytes()).unwrap();
    }
    let mut first = broker.subscribe("t", "g", "c1").unwrap();
    assert_eq!(read(&mut first, 4).len(), 4);
    first.commit().unwrap();
    assert_eq!(read(&mut first, 3).len(), 3);
    first.close().unwrap();

    let mut second = broker.subscribe("t", "g", "c2").unwrap();
    assert_eq!(
        values(&read(&mut second, 6)),
        ["4", "5", "6", "7", "8", "9"]
    );
}

#[test]
fn at_most_once_commits_before_it_hands_out() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).unwrap();
    for n in 0..4 {
        broker.publish("t", None, n.to_string().as_bytes()).unwrap();
    }
    let once = || Subscription::new(&["t"], "g", "c").delivery(Delivery::AtMostOnce);
    let mut consumer = broker.subscribe_with(once()).unwrap();
    assert_eq!(values(&read(&mut consumer, 2)), ["0", "1"]);
    // Dies with two records in hand: they never come again.
    drop(consumer);
    let mut consumer = broker.subscribe_with(once()).unwrap();
    assert_eq!(values(&read(&mut consumer, 2)), ["2", "3"]);
}

#[test]
fn joins_and_leaves_move_only_what_must_move() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 6).unwrap();
    let mut one = broker.subscribe("t", "g", "one").unwrap();
    let mut two = broker.subscribe("t", "g", "two").unwrap();
    settle(&mut [&mut one, &mut two], 6);
    let (held_one, held_two) = (one.assignment(), two.assignment());
    assert_eq!((held_one.len(), held_two.len()), (3, 3));

    let mut three = broker.subscribe("t", "g", "three").unwrap();
    settle(&mut [&mut one, &mut two, &mut three], 6);
    assert_eq!(three.assignment().len(), 2);
    assert!(
        one.assignment().iter().all(|p| held_one.contains(p)),
        "one kept what it has"
    );
    assert!(
        two.assignment().iter().all(|p| held_two.contains(p)),
        "two kept what it has"
    );

    let (held_one, held_two) = (one.assignment(), two.assignment());
    three.close().unwrap();
    settle(&mut [&mut one, &mut two], 6);
    assert!(
        held_one.iter().all(|p| one.assignment().contains(p)),
        "nothing was taken from one"
    );
    assert!(
        held_two.iter().all(|p| two.assignment().contains(p)),
        "nothing was taken from two"
    );
}

/// Polls in turn until all partitions are held, and evenly.
fn settle(consumers: &mut [&mut riverlog::Consumer], partitions: usize) {
    let deadline = Instant::now() + 10 * SECOND;
    loop {
        for consumer in consumers.iter_mut() {
            consumer.poll(1, Duration::from_millis(25)).unwrap();
        }
        let held: Vec<usize> = consumers.iter().map(|c| c.assignment().len()).collect();
        let even = held
            .iter()
            .max()
            .zip(held.iter().min())
            .is_some_and(|(most, least)| most - least <= 1);
        if held.iter().sum::<usize>() == partitions && even {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "the group doesn't settle: {held:?}"
        );
    }
}

#[test]
fn a_stale_consumer_can_not_commit() {
    let broker = Broker::builder()
        .session_timeout(Duration::from_millis(200))
        .in_memory();
    broker.create_topic("t", 1).unwrap();
    broker.publish("t", None, b"x").unwrap();
    let mut slow = broker.subscribe("t", "g", "slow").unwrap();
    assert_eq!(read(&mut slow, 1).len(), 1);
    // Away for longer than its session: the partition goes to another.
    let mut other = broker.subscribe("t", "g", "other").unwrap();
    assert_eq!(read(&mut other, 1).len(), 1);
    other.commit().unwrap();
    assert!(matches!(slow.commit(), Err(Error::Fenced { .. })));
    assert_eq!(
        broker.group("g").unwrap().committed("t", 0).unwrap(),
        Some(1)
    );
}

#[test]
fn a_second_consumer_of_the_same_id_takes_the_place_of_the_first() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).unwrap();
    for n in 0..3 {
        broker.publish("t", None, n.to_string().as_bytes()).unwrap();
    }
    let mut first = broker.subscribe("t", "g", "same").unwrap();
    assert_eq!(read(&mut first, 1).len(), 1);
    let mut second = broker.subscribe("t", "g", "same").unwrap();
    assert_eq!(values(&read(&mut second, 3)), ["0", "1", "2"]);
    assert!(matches!(first.commit(), Err(Error::Fenced { .. })));
    second.commit().unwrap();
}

#[test]
fn commit_at_and_seek_move_the_group_and_the_reader() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).unwrap();
    for n in 0..10 {
        let value = n.to_string();
        broker
            .publish_message(
                "t",
                &Message::new(None, value.as_bytes()).timestamp(1_000 + n),
            )
            .unwrap();
    }
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    read(&mut consumer, 10);
    consumer.seek("t", 0, 7).unwrap();
    assert_eq!(values(&read(&mut consumer, 3)), ["7", "8", "9"]);
    consumer.seek_to_time(1_004).unwrap();
    assert_eq!(values(&read(&mut consumer, 1)), ["4"]);
    consumer.commit_at(0, 2).unwrap();
    assert_eq!(
        broker.group("g").unwrap().committed("t", 0).unwrap(),
        Some(2)
    );
    assert!(matches!(
        consumer.commit_at(5, 1),
        Err(Error::NotAssigned { partition: 5 })
    ));
}

#[test]
fn headers_keep_order_duplicates_null_and_empty() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).unwrap();
    let message = Message::new(None, b"")
        .header("a", Some(b"1"))
        .header("a", None)
        .header("a", Some(b""))
        .header("", Some(b"empty key"));
    broker.publish_message("t", &message).unwrap();
    broker
        .publish_message("t", &Message::tombstone(b"k"))
        .unwrap();
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    let records = read(&mut consumer, 2);
    let headers: Vec<(String, Option<Vec<u8>>)> = records[0]
        .headers()
        .map(|(k, v)| {
            (
                String::from_utf8_lossy(&k).into_owned(),
                v.map(|v| v.to_vec()),
            )
        })
        .collect();
    let expected: Vec<(String, Option<Vec<u8>>)> = vec![
        ("a".into(), Some(b"1".to_vec())),
        ("a".into(), None),
        ("a".into(), Some(vec![])),
        ("".into(), Some(b"empty key".to_vec())),
    ];
    assert_eq!(headers, expected);
    assert_eq!(
        (records[0].key.as_deref(), records[0].payload.as_deref()),
        (None, Some(&b""[..]))
    );
    assert_eq!(
        (records[1].key.as_deref(), records[1].payload.as_deref()),
        (Some(&b"k"[..]), None)
    );
}

#[test]
fn retention_by_count_is_exact() {
    let broker = Broker::in_memory();
    let topic = broker
        .topic_builder("t")
        .retention_records(5)
        .create()
        .unwrap();
    for _ in 0..23 {
        broker.publish("t", None, b"x").unwrap();
    }
    let partition = topic.partition(0).unwrap();
    let deadline = Instant::now() + 5 * SECOND;
    while partition.log_start_offset() < 18 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(
        (partition.log_start_offset(), partition.log_end_offset()),
        (18, 23)
    );
    // A reader whose position is gone goes on at what is left.
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    assert_eq!(read(&mut consumer, 5)[0].offset, 18);
}

#[test]
fn a_full_partition_refuses_or_makes_wait() {
    let broker = Broker::in_memory();
    broker
        .topic_builder("strict")
        .max_records(3, Full::Error)
        .create()
        .unwrap();
    for _ in 0..3 {
        broker.publish("strict", None, b"x").unwrap();
    }
    assert!(matches!(
        broker.publish("strict", None, b"x"),
        Err(Error::Full { .. })
    ));
    let mut consumer = broker.subscribe("strict", "g", "c").unwrap();
    read(&mut consumer, 3);
    consumer.commit().unwrap();
    // What every group has committed makes room.
    broker.publish("strict", None, b"x").unwrap();

    broker
        .topic_builder("patient")
        .max_records(1, Full::Block(Duration::from_millis(50)))
        .create()
        .unwrap();
    broker.publish("patient", None, b"x").unwrap();
    let began = Instant::now();
    assert!(matches!(
        broker.publish("patient", None, b"x"),
        Err(Error::Full { .. })
    ));
    assert!(began.elapsed() >= Duration::from_millis(50));
    broker
        .topic("patient")
        .unwrap()
        .partition(0)
        .unwrap()
        .delete_records(1)
        .unwrap();
    broker.publish("patient", None, b"x").unwrap();
}

#[test]
fn lag_says_number_or_no_commit_and_when_it_will_lose() {
    let broker = Broker::in_memory();
    broker
        .topic_builder("t")
        .retention_age(Duration::from_secs(3_600))
        .create()
        .unwrap();
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    for _ in 0..4 {
        broker.publish("t", None, b"x").unwrap();
    }
    let before = broker.group("g").unwrap().lag().unwrap();
    assert_eq!((before[0].lag, before[0].committed), (Lag::NoCommit, None));
    read(&mut consumer, 4);
    consumer.commit_at(0, 1).unwrap();
    let lag = broker.group("g").unwrap().lag().unwrap();
    assert_eq!(lag[0].lag, Lag::Records(3));
    let left = lag[0].time_to_loss.unwrap();
    assert!(
        left > Duration::from_secs(3_500) && left <= Duration::from_secs(3_600),
        "{left:?}"
    );
}

#[test]
fn topics_that_are_deleted_and_made_again_begin_anew() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 1).unwrap();
    for _ in 0..10 {
        broker.publish("t", None, b"old").unwrap();
    }
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    read(&mut consumer, 10);
    consumer.commit().unwrap();
    broker.delete_topic("t").unwrap();
    assert!(matches!(
        broker.publish("t", None, b"x"),
        Err(Error::UnknownTopic(_))
    ));
    broker.create_topic("t", 1).unwrap();
    for _ in 0..5 {
        broker.publish("t", None, b"new").unwrap();
    }
    drop(consumer);
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    assert_eq!(values(&read(&mut consumer, 5)), ["new"; 5]);
}

#[test]
fn mistakes_say_what_to_do() {
    let broker = Broker::in_memory();
    let said = |error: Error| error.to_string();
    assert!(said(broker.publish("nowhere", None, b"x").unwrap_err()).contains("create it first"));
    broker.create_topic("t", 1).unwrap();
    assert!(said(broker.create_topic("t", 1).unwrap_err()).contains("TOPIC_ALREADY_EXISTS"));
    assert!(said(broker.create_topic("a b", 1).unwrap_err()).contains("INVALID_TOPIC_EXCEPTION"));
    assert!(said(broker.create_topic("u", 0).unwrap_err()).contains("INVALID_PARTITIONS"));
    let error = broker
        .publish_message("t", &Message::new(None, b"x").partition(4))
        .unwrap_err();
    assert!(matches!(
        error,
        Error::UnknownPartition {
            partition: 4,
            count: 1,
            ..
        }
    ));
    assert!(said(broker.group("nobody").unwrap_err()).contains("GROUP_ID_NOT_FOUND"));
    let error = broker
        .topic_builder("v")
        .config("retention.mss", "1")
        .create()
        .unwrap_err();
    assert!(
        said(error).contains("retention.ms"),
        "the key that was meant is named"
    );
}

#[test]
fn everything_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::open(folder.path()).unwrap();
    broker.create_topic("t", 2).unwrap();
    for n in 0..20 {
        broker
            .publish(
                "t",
                Some(n.to_string().as_bytes()),
                n.to_string().as_bytes(),
            )
            .unwrap();
    }
    let mut consumer = broker.subscribe("t", "g", "c").unwrap();
    let first: Vec<_> = values(&read(&mut consumer, 12));
    consumer.commit().unwrap();
    drop(consumer);
    drop(broker);

    let broker = Broker::open(folder.path()).unwrap();
    assert_eq!(broker.topics(), ["t"]);
    let mut consumer = broker
        .subscribe_with(Subscription::new(&["t"], "g", "c").start(Start::Latest))
        .unwrap();
    let mut all = first;
    all.extend(values(&read(&mut consumer, 8)));
    all.sort_by_key(|v| v.parse::<i32>().unwrap());
    assert_eq!(all, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_data_folder_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::open(folder.path()).unwrap();
    let error = Broker::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    broker.close().unwrap();
    assert!(matches!(
        broker.create_topic("t", 1),
        Err(Error::Closed | Error::Refused { .. })
    ));
    // The first value still lives; the folder is free all the same.
    Broker::open(folder.path()).unwrap();
}

#[test]
fn many_threads_publish_and_read_at_once() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 8).unwrap();
    let read_count = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for who in 0..4 {
            let broker = &broker;
            scope.spawn(move || {
                for n in 0..500 {
                    broker
                        .publish(
                            "t",
                            Some(format!("{who}").as_bytes()),
                            n.to_string().as_bytes(),
                        )
                        .unwrap();
                }
            });
        }
        for who in 0..3 {
            let (broker, read_count) = (&broker, &read_count);
            scope.spawn(move || {
                let mut consumer = broker.subscribe("t", "g", &format!("c{who}")).unwrap();
                let deadline = Instant::now() + 30 * SECOND;
                while read_count.load(Ordering::SeqCst) < 2_000 && Instant::now() < deadline {
                    let records = consumer.poll(100, Duration::from_millis(20)).unwrap();
                    match consumer.commit() {
                        Ok(()) => read_count.fetch_add(records.len(), Ordering::SeqCst),
                        Err(Error::Fenced { .. }) => 0,
                        Err(other) => panic!("{other}"),
                    };
                }
            });
        }
    });
    assert_eq!(read_count.load(Ordering::SeqCst), 2_000);
}
