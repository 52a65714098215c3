//! Produce and fetch on one node: answers, waiting, waking, limits, errors.

mod common;

use std::time::Duration;

use common::*;
use riverlog_core::metadata::TopicRef;
use riverlog_log::disk::CrashDisk;
use riverlog_node::{Isolation, OffsetQuery};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, TopicId};

#[test]
fn what_was_sent_can_be_read() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 2, &[]);
    let to = partition(&host, "t", 1);
    for i in 0..10 {
        let answer = produce(&mut host, &to, &[&format!("a{i}"), &format!("b{i}")]).unwrap();
        assert_eq!(answer.base_offset, Offset(2 * i));
        assert_eq!(answer.log_append_time_ms, -1);
        assert!(!answer.duplicate);
    }
    let all = read_all(&mut host, "t", 1);
    assert_eq!(all.len(), 20);
    assert_eq!(all[5], (5, "b2".to_owned()));
    assert!(read_all(&mut host, "t", 0).is_empty());
}

#[test]
fn acks_all_is_answered_after_the_sync_and_acks_0_at_once() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    let none = send(&host, &to, batch(&host, &["0"]), 0);
    assert_eq!(none.take().unwrap().unwrap().base_offset, Offset(0));
    let leader = send(&host, &to, batch(&host, &["1"]), 1);
    let all = send(&host, &to, batch(&host, &["2"]), -1);
    assert!(!leader.is_ready() && !all.is_ready());
    let before = host.node().describe_partition(&to);
    assert_eq!(before.high_watermark, Offset(0));
    assert_eq!(before.log_end_offset, Offset(3));
    host.run();
    assert_eq!(leader.take().unwrap().unwrap().base_offset, Offset(1));
    assert_eq!(all.take().unwrap().unwrap().base_offset, Offset(2));
    let odd = send(&host, &to, batch(&host, &["3"]), 2);
    assert_eq!(
        odd.take().unwrap().unwrap_err().error,
        ErrorCode::INVALID_REQUIRED_ACKS
    );
}

#[test]
fn a_page_cache_topic_answers_without_a_sync() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[("riverlog.durability", "page-cache")]);
    let to = partition(&host, "t", 0);
    let all = send(&host, &to, batch(&host, &["a"]), -1);
    assert_eq!(all.take().unwrap().unwrap().base_offset, Offset(0));
    assert_eq!(
        host.node().describe_partition(&to).high_watermark,
        Offset(1)
    );
}

#[test]
fn a_fetch_waits_for_data_and_wakes_at_once() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "a", 1, &[]);
    create(&mut host, "b", 1, &[]);
    let asked = vec![ask_from("a", 0, 0), ask_from("b", 0, 0)];
    let waiting = host.ask(|node, now, reply| {
        node.fetch(fetch_command(asked.clone(), 5_000), now, reply);
    });
    host.advance(Duration::from_secs(2));
    assert!(!waiting.is_ready());
    let to = partition(&host, "b", 0);
    let sent = send(&host, &to, batch(&host, &["x"]), -1);
    assert!(
        !waiting.is_ready(),
        "not before the high watermark has moved"
    );
    host.run();
    assert!(sent.take().is_some());
    let answer = waiting.take().expect("woken");
    assert_eq!(answer.partitions[0].high_watermark, Offset(0));
    assert_eq!(values(answer, 1), [(0, "x".to_owned())]);
}

#[test]
fn a_fetch_is_answered_when_its_wait_is_over() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "a", 1, &[]);
    let waiting = host.ask(|node, now, reply| {
        node.fetch(fetch_command(vec![ask_from("a", 0, 0)], 500), now, reply);
    });
    host.advance(Duration::from_millis(499));
    assert!(!waiting.is_ready());
    host.advance(Duration::from_millis(1));
    let answer = waiting.take().expect("answered in time");
    assert_eq!(answer.partitions.len(), 1);
    assert!(values(answer, 0).is_empty());
}

#[test]
fn min_bytes_collects_from_several_partitions() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 3, &[]);
    let size = batch(&host, &["12345"]).len();
    let mut command = fetch_command((0..3).map(|p| ask_from("t", p, 0)).collect(), 60_000);
    command.min_bytes = 3 * size;
    let waiting = host.ask(|node, now, reply| node.fetch(command, now, reply));
    for index in [0, 2] {
        let to = partition(&host, "t", index);
        produce(&mut host, &to, &["12345"]).unwrap();
        assert!(!waiting.is_ready());
    }
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["12345"]).unwrap();
    let answer = waiting.take().expect("enough");
    let lens: Vec<_> = answer.partitions.iter().map(|p| p.records.len).collect();
    assert_eq!(lens, [2 * size, 0, size]);
}

#[test]
fn a_limit_of_one_byte_gives_one_whole_batch_of_the_first_partition_with_data() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 3, &[]);
    let big = "x".repeat(100_000);
    for index in [1, 2] {
        let to = partition(&host, "t", index);
        produce(&mut host, &to, &[&big, "second"]).unwrap();
        produce(&mut host, &to, &["third"]).unwrap();
    }
    let mut at = 0;
    let mut seen = 0;
    while seen < 3 {
        let mut command = fetch_command(
            (0..3)
                .map(|p| ask_from("t", p, if p == 0 { 0 } else { at }))
                .collect(),
            0,
        );
        command.max_bytes = 1;
        for partition in &mut command.partitions {
            partition.max_bytes = 1;
        }
        let answer = fetch(&mut host, command);
        assert_eq!(answer.partitions[0].records.len, 0);
        assert_eq!(answer.partitions[2].records.len, 0);
        let some = values(answer, 1);
        at = some.last().expect("steady progress").0 + 1;
        seen += some.len();
    }
    assert_eq!((at, seen), (3, 3));
}

#[test]
fn errors_are_those_of_kafka() {
    let mut host = open(&CrashDisk::new(1));
    let id = create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    let mut code = |ask| {
        let answer = fetch(&mut host, fetch_command(vec![ask], 1_000));
        let one = &answer.partitions[0];
        if one.error != ErrorCode::NONE {
            assert_eq!(one.high_watermark, Offset(-1));
        }
        one.error
    };
    assert_eq!(code(ask_from("t", 0, 0)), ErrorCode::NONE);
    assert_eq!(code(ask_from("t", 0, 1)), ErrorCode::NONE);
    assert_eq!(code(ask_from("t", 0, 2)), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(code(ask_from("t", 0, -5)), ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(
        code(ask_from("t", 1, 0)),
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(
        code(ask_from("u", 0, 0)),
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    let mut by_id = ask_from("t", 0, 0);
    by_id.topic = TopicRef::Id(id);
    assert_eq!(code(by_id.clone()), ErrorCode::NONE);
    by_id.topic = TopicRef::Id(TopicId([9; 16]));
    assert_eq!(code(by_id), ErrorCode::UNKNOWN_TOPIC_ID);
    let epoch = 0;
    let mut fenced = ask_from("t", 0, 0);
    fenced.current_leader_epoch = LeaderEpoch(epoch);
    assert_eq!(code(fenced.clone()), ErrorCode::NONE);
    fenced.current_leader_epoch = LeaderEpoch(epoch + 1);
    assert_eq!(code(fenced), ErrorCode::UNKNOWN_LEADER_EPOCH);
}

#[test]
fn a_batch_that_the_topic_does_not_take_is_refused_with_the_records_to_blame() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "small", 1, &[("max.message.bytes", "100")]);
    create(&mut host, "keyed", 1, &[("cleanup.policy", "compact")]);
    create(&mut host, "timed", 1, &[]);
    let small = partition(&host, "small", 0);
    let failure = produce(&mut host, &small, &["x".repeat(100).as_str()]).unwrap_err();
    assert_eq!(failure.error, ErrorCode::MESSAGE_TOO_LARGE);
    produce(&mut host, &small, &["x"]).unwrap();

    let keyed = partition(&host, "keyed", 0);
    let mut builder = BatchBuilder::new(Compression::Lz4);
    builder.push(host.now().wall_ms, Some(b"k"), Some(b"v"), &[]);
    builder.push(host.now().wall_ms, None, Some(b"v"), &[]);
    let failure = send(&host, &keyed, builder.build(), -1)
        .take()
        .unwrap()
        .unwrap_err();
    assert_eq!(failure.error, ErrorCode::INVALID_RECORD);
    assert_eq!(failure.records.len(), 1);
    assert_eq!(failure.records[0].0, 1);

    let timed = partition(&host, "timed", 0);
    let hour = 3_600_000;
    let stamped = |times: &[i64]| {
        let mut builder = BatchBuilder::new(Compression::None);
        for time in times {
            builder.push(*time, None, Some(b"v"), &[]);
        }
        builder.build()
    };
    let now = host.now().wall_ms;
    let late = stamped(&[now, now + hour + 60_000]);
    let failure = send(&host, &timed, late, -1).take().unwrap().unwrap_err();
    assert_eq!(failure.error, ErrorCode::INVALID_TIMESTAMP);
    assert_eq!(failure.records[0].0, 1);
    for fine in [stamped(&[-1]), stamped(&[now + hour - 1, 0])] {
        let sent = send(&host, &timed, fine, -1);
        host.run();
        sent.take().unwrap().unwrap();
    }
}

#[test]
fn log_append_time_is_the_brokers() {
    let mut host = open(&CrashDisk::new(1));
    create(
        &mut host,
        "t",
        1,
        &[("message.timestamp.type", "LogAppendTime")],
    );
    let to = partition(&host, "t", 0);
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(i64::MAX / 2, None, Some(b"v"), &[]);
    let sent = send(&host, &to, builder.build(), -1);
    host.run();
    let answer = sent.take().unwrap().unwrap();
    assert_eq!(answer.log_append_time_ms, host.now().wall_ms);
}

#[test]
fn a_topic_with_a_codec_stores_batches_in_it() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[("compression.type", "zstd")]);
    let to = partition(&host, "t", 0);
    let value = "abc".repeat(1_000);
    produce(&mut host, &to, &[&value, "short"]).unwrap();
    let answer = fetch(&mut host, fetch_command(vec![ask_from("t", 0, 0)], 0));
    assert!(answer.partitions[0].records.len < 500);
    let read = values(answer, 0);
    assert_eq!(read, [(0, value), (1, "short".to_owned())]);
}

#[test]
fn an_idempotent_batch_is_stored_once() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    let (id, _) = host
        .get(|node, now, reply| node.init_producer(now, reply))
        .unwrap()
        .unwrap();
    let first = send(&host, &to, idempotent(&host, id, 0, &["a", "b"]), -1);
    // The answer to a duplicate of what is still in flight waits too.
    let again = send(&host, &to, idempotent(&host, id, 0, &["a", "b"]), -1);
    assert!(!again.is_ready());
    host.run();
    let first = first.take().unwrap().unwrap();
    let again = again.take().unwrap().unwrap();
    assert_eq!(again.base_offset, first.base_offset);
    assert!(again.duplicate && !first.duplicate);
    let gap = send(&host, &to, idempotent(&host, id, 5, &["c"]), -1);
    assert_eq!(
        gap.take().unwrap().unwrap_err().error,
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
    );
    assert_eq!(read_all(&mut host, "t", 0).len(), 2);
}

#[test]
fn producer_ids_are_never_given_twice() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let mut last = -1;
    for _ in 0..2_500 {
        let (id, epoch) = host
            .get(|node, now, reply| node.init_producer(now, reply))
            .unwrap()
            .unwrap();
        assert!(id.0 > last);
        assert_eq!(epoch.0, 0);
        last = id.0;
    }
    let mut host = open(&disk.kill());
    let (id, _) = host
        .get(|node, now, reply| node.init_producer(now, reply))
        .unwrap()
        .unwrap();
    assert!(id.0 > last);
}

#[test]
fn list_offsets_answers_with_the_epoch_of_the_offset() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    let empty = |host: &mut riverlog_node::harness::Harness| {
        let at = partition(host, "t", 0);
        host.get(|node, _, reply| {
            let none = LeaderEpoch(-1);
            node.offset(
                &at,
                OffsetQuery::AtTime(0),
                Isolation::ReadUncommitted,
                none,
                reply,
            );
        })
        .unwrap()
    };
    let nothing = empty(&mut host);
    assert_eq!((nothing.offset.0, nothing.timestamp), (-1, -1));
    produce(&mut host, &to, &["a"]).unwrap();
    host.advance(Duration::from_secs(10));
    let second = host.now().wall_ms;
    produce(&mut host, &to, &["b", "c"]).unwrap();
    let mut host = open(&disk.kill());
    let at = partition(&host, "t", 0);
    let epoch = host.node().describe_partition(&at).leader_epoch;
    assert_eq!(epoch, LeaderEpoch(1), "a restart takes a new epoch");
    let mut ask = |query| {
        let answer = host
            .get(|node, _, reply| {
                node.offset(&at, query, Isolation::ReadCommitted, epoch, reply);
            })
            .unwrap();
        assert_eq!(answer.error, ErrorCode::NONE);
        (answer.offset.0, answer.timestamp, answer.leader_epoch.0)
    };
    assert_eq!(ask(OffsetQuery::Earliest), (0, -1, 0));
    assert_eq!(ask(OffsetQuery::Latest), (3, -1, 0), "not the new epoch");
    assert_eq!(ask(OffsetQuery::AtTime(second - 5)), (1, second, 0));
    assert_eq!(ask(OffsetQuery::AtTime(second + 1)), (-1, -1, -1));
    assert_eq!(ask(OffsetQuery::MaxTimestamp), (1, second, 0));
    assert_eq!(ask(OffsetQuery::LatestTiered), (-1, -1, -1));
    assert_eq!(
        host.node().epoch_end(&at, LeaderEpoch(0), epoch),
        Ok((LeaderEpoch(0), Offset(3)))
    );
    assert_eq!(
        host.node().epoch_end(&at, epoch, epoch),
        Ok((epoch, Offset(3)))
    );
    assert_eq!(
        host.node().epoch_end(&at, LeaderEpoch(9), epoch),
        Ok((LeaderEpoch(-1), Offset(-1)))
    );
    assert_eq!(
        host.node().epoch_end(&at, epoch, LeaderEpoch(0)),
        Err(ErrorCode::FENCED_LEADER_EPOCH)
    );
}

#[test]
fn deleted_records_stay_deleted() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    for i in 0..10 {
        produce(&mut host, &to, &[&i.to_string()]).unwrap();
    }
    let mut delete = |before| {
        host.get(|node, now, reply| node.delete_records(&to, Offset(before), now, reply))
            .unwrap()
    };
    assert_eq!(delete(11), Err(ErrorCode::OFFSET_OUT_OF_RANGE));
    assert_eq!(delete(-2), Err(ErrorCode::OFFSET_OUT_OF_RANGE));
    assert_eq!(delete(4), Ok(Offset(4)));
    assert_eq!(delete(2), Ok(Offset(4)));
    let after = disk.crash_with(3, riverlog_log::disk::Survivors::Nothing);
    let mut host = open(&after);
    let all = read_all(&mut host, "t", 0);
    assert_eq!(all.first(), Some(&(4, "4".to_owned())));
    let to = partition(&host, "t", 0);
    let all = host.get(|node, now, reply| node.delete_records(&to, Offset(-1), now, reply));
    assert_eq!(all, Some(Ok(Offset(10))));
    assert!(read_all(&mut host, "t", 0).is_empty());
    produce(&mut host, &to, &["10"]).unwrap();
    assert_eq!(read_all(&mut host, "t", 0), [(10, "10".to_owned())]);
}

#[test]
fn an_append_that_takes_too_long_times_out() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    let mut slow = command(batch(&host, &["a"]), -1);
    slow.timeout = Duration::from_millis(50);
    let slow = host.ask(|node, now, reply| node.append(&to, slow, now, reply));
    let patient = send(&host, &to, batch(&host, &["b"]), -1);
    // The group commit doesn't come back.
    let now = riverlog_core::Now {
        mono: host.now().mono + Duration::from_millis(100),
        wall_ms: host.now().wall_ms + 100,
    };
    host.node().tick(now);
    assert_eq!(
        slow.take().unwrap().unwrap_err().error,
        ErrorCode::REQUEST_TIMED_OUT
    );
    assert!(!patient.is_ready());
    host.run();
    assert!(patient.take().unwrap().is_ok());
}

#[test]
fn an_append_at_an_offset_is_stored_there_or_not_at_all() {
    let mut host = open_with(&CrashDisk::new(1), settings());
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    let at = |host: &riverlog_node::harness::Harness, next: i64| {
        let command = command(batch(host, &["x", "y"]), -1);
        host.ask(|node, now, reply| node.append_at(&to, Offset(next), command, now, reply))
    };
    let (first, second) = (at(&host, 0), at(&host, 0));
    host.run();
    assert_eq!(first.take().unwrap().unwrap().base_offset, Offset(0));
    let failure = second.take().unwrap().unwrap_err();
    assert_eq!(failure.error, ErrorCode::OFFSET_OUT_OF_RANGE);
    let (past, third) = (at(&host, 3), at(&host, 2));
    host.run();
    assert!(past.take().unwrap().is_err());
    assert_eq!(third.take().unwrap().unwrap().base_offset, Offset(2));
}

#[test]
fn over_the_budget_an_append_is_throttled() {
    let mut few = settings();
    few.budgets.append_bytes = 200;
    let mut host = open_with(&CrashDisk::new(1), few);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    let first = send(&host, &to, batch(&host, &["x".repeat(100).as_str()]), -1);
    let second = send(&host, &to, batch(&host, &["x".repeat(100).as_str()]), -1);
    let failure = second.take().unwrap().unwrap_err();
    assert_eq!(failure.error, ErrorCode::THROTTLING_QUOTA_EXCEEDED);
    assert!(failure.retry_after.is_some());
    host.run();
    first.take().unwrap().unwrap();
    produce(&mut host, &to, &["again"]).unwrap();
}

#[test]
fn cold_reads_wait_for_their_budget_in_order_and_not_for_ever() {
    let disk = CrashDisk::new(1);
    let mut few = settings();
    few.budgets.cold_read_bytes = 100;
    let mut host = open_with(&disk, few.clone());
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a", "b"]).unwrap();
    let mut host = open_with(&disk.kill(), few);
    host.run();
    let ask = |host: &riverlog_node::harness::Harness| {
        host.ask(|node, now, reply| {
            node.fetch(fetch_command(vec![ask_from("t", 0, 0)], 100), now, reply);
        })
    };
    let (first, second, third) = (ask(&host), ask(&host), ask(&host));
    assert_eq!(host.jobs().len(), 1, "one at a time");
    // The disk is slow: nothing comes back, until those that wait have waited for a second.
    let now = riverlog_core::Now {
        mono: host.now().mono + Duration::from_secs(1),
        wall_ms: host.now().wall_ms + 1_000,
    };
    host.node().tick(now);
    assert!(!first.is_ready());
    assert!(values(second.take().expect("answered"), 0).is_empty());
    assert!(values(third.take().expect("answered"), 0).is_empty());
    let fourth = ask(&host);
    host.run();
    assert_eq!(values(first.take().unwrap(), 0).len(), 2);
    assert_eq!(values(fourth.take().unwrap(), 0).len(), 2);
}

#[test]
fn over_the_budget_of_parked_fetches_nobody_waits() {
    let mut few = settings();
    few.budgets.parked = 2;
    let mut host = open_with(&CrashDisk::new(1), few);
    create(&mut host, "t", 1, &[]);
    let ask = |host: &riverlog_node::harness::Harness| {
        host.ask(|node, now, reply| {
            node.fetch(fetch_command(vec![ask_from("t", 0, 0)], 60_000), now, reply);
        })
    };
    let (first, second, third) = (ask(&host), ask(&host), ask(&host));
    assert!(!first.is_ready() && !second.is_ready());
    assert!(values(third.take().expect("answered at once"), 0).is_empty());
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    assert!(first.is_ready() && second.is_ready());
}

#[test]
fn logs_that_nobody_uses_give_their_memory_to_those_in_use() {
    let mut few = settings();
    few.volume.tail_cache_bytes = 100_000;
    few.segment_bytes_limit = None;
    let mut host = open_with(&CrashDisk::new(1), few);
    create(&mut host, "old", 1, &[]);
    create(&mut host, "new", 1, &[]);
    let old = partition(&host, "old", 0);
    let new = partition(&host, "new", 0);
    let value = "v".repeat(1_000);
    for _ in 0..200 {
        produce(&mut host, &old, &[&value]).unwrap();
    }
    let cold = |host: &riverlog_node::harness::Harness| {
        let metrics = host.node().metrics();
        let found = metrics.iter().find(|m| m.name == "cold_fetches_total");
        found.map(|m| m.value)
    };
    let mut written = 0;
    for _ in 0..20 {
        produce(&mut host, &new, &[&value]).unwrap();
        written += 1;
        host.advance(Duration::from_secs(1));
    }
    let before = cold(&host);
    let mut at = written - 5;
    while at < written {
        let answer = fetch(&mut host, fetch_command(vec![ask_from("new", 0, at)], 0));
        at = values(answer, 0).last().expect("progress").0 + 1;
    }
    assert_eq!(cold(&host), before, "from memory");
    assert_eq!(read_all(&mut host, "old", 0).len(), 200);
}

#[test]
fn a_stopped_node_answers_everyone_and_starts_clean() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    let waiting = host.ask(|node, now, reply| {
        node.fetch(fetch_command(vec![ask_from("t", 0, 1)], 60_000), now, reply);
    });
    let sent = send(&host, &to, batch(&host, &["b"]), -1);
    let node = host.node().clone();
    host.close().unwrap();
    assert!(waiting.take().is_some());
    assert!(sent.take().unwrap().is_ok());
    let late = riverlog_node::harness::Answer::new();
    node.append(&to, command(Vec::new(), -1), Default::default(), late.1);
    assert_eq!(
        late.0.take().unwrap().unwrap_err().error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
    );
    drop((node, to));
    let mut host = open(&disk);
    assert_eq!(read_all(&mut host, "t", 0).len(), 2);
}
