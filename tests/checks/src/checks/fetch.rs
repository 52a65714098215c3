//! Records out: checks 51, 52, 55.

use std::time::Duration;

use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::fetch_response::PartitionData;
use riverlog_wire::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use riverlog_wire::messages::offset_for_leader_epoch_response::EpochEndOffset;
use riverlog_wire::messages::{FetchRequest, OffsetForLeaderEpochRequest};
use riverlog_wire::{ErrorCode, TopicId};

use super::{Check, produce};
use crate::client::{Client, Outcome, PATIENCE, Topic, holds, only, same};
use crate::records::{Batches, numbered};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "51",
        name: "whole-batches-come-even-above-the-limit",
        run: whole_batches,
    },
    Check {
        number: "52",
        name: "readers-wait-at-the-end-and-are-told-beyond-it",
        run: at_the_end,
    },
    Check {
        number: "55",
        name: "other-leader-epochs-are-refused",
        run: epochs,
    },
    Check {
        number: "fc-08",
        name: "every-version-of-fetch-is-answered-in-time",
        run: every_version,
    },
];

/// Reads one partition of a topic from an offset.
pub(super) fn request(version: i16, topic: &Topic, from: i64) -> FetchRequest {
    let (name, topic_id) = if version >= 13 {
        (String::new(), topic.id)
    } else {
        (topic.name.clone(), TopicId::ZERO)
    };
    FetchRequest {
        topics: vec![FetchTopic {
            topic: name,
            topic_id,
            partitions: vec![FetchPartition {
                fetch_offset: from,
                partition_max_bytes: 10 << 20,
                ..FetchPartition::default()
            }],
        }],
        ..FetchRequest::default()
    }
}

/// Reads as the request says.
pub(super) fn ask(
    client: &mut Client<'_>,
    version: i16,
    request: &FetchRequest,
) -> Outcome<PartitionData> {
    let answer = client.ask(version, request)?;
    same("the answer's error", answer.error_code, ErrorCode::NONE)?;
    let topic = only("topics", answer.responses)?;
    only("partitions", topic.partitions)
}

/// Reads one partition from an offset, without waiting.
pub(super) fn one(
    client: &mut Client<'_>,
    version: i16,
    topic: &Topic,
    from: i64,
) -> Outcome<PartitionData> {
    ask(client, version, &request(version, topic, from))
}

fn offsets(part: PartitionData) -> Outcome<Vec<i64>> {
    same("reading", part.error_code, ErrorCode::NONE)?;
    Batches(part.records.unwrap_or_default()).offsets()
}

fn whole_batches(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    for _ in 0..3 {
        produce::stored(client, 12, &topic, numbered(now, 4))?;
    }
    let from_the_middle = offsets(one(client, 12, &topic, 6)?)?;
    same("from offset 6", from_the_middle, (4..12).collect())?;
    let mut narrow = request(12, &topic, 6);
    narrow.max_bytes = 1;
    for topic in &mut narrow.topics {
        for partition in &mut topic.partitions {
            partition.partition_max_bytes = 1;
        }
    }
    let one_batch = offsets(ask(client, 12, &narrow)?)?;
    same("with a limit of one byte", one_batch, (4..8).collect())
}

fn at_the_end(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    produce::stored(client, 12, &topic, numbered(now, 3))?;
    let mut wait = request(12, &topic, 3);
    (wait.max_wait_ms, wait.min_bytes) = (300, 1);
    let begun = client.broker().clock();
    let part = ask(client, 12, &wait)?;
    let took = client.broker().clock() - begun;
    let close = Duration::from_millis(250)..Duration::from_millis(2_000);
    holds(close.contains(&took), || {
        format!("a wait of 300 ms took {took:?}")
    })?;
    same("the high watermark", part.high_watermark, 3)?;
    same("at the end", offsets(part)?, Vec::new())?;

    // A reader that waits is woken by an append.
    wait.max_wait_ms = 60_000;
    let mut line = client.connect()?;
    let correlation = line.say(12, &wait)?;
    client.broker().pass(Duration::from_millis(20));
    produce::stored(client, 12, &topic, numbered(now, 1))?;
    let answer = line.answer::<FetchRequest>(12, correlation, PATIENCE)?;
    let woken = only("topics", answer.responses)?;
    let woken = only("partitions", woken.partitions)?;
    same("what woke it", offsets(woken)?, vec![3])?;

    let mut follower = request(12, &topic, 0);
    follower.replica_id = 5;
    let part = ask(client, 12, &follower)?;
    let error = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    same("a follower that is none", part.error_code, error)?;

    for from in [5, -1, 1_000] {
        let part = one(client, 12, &topic, from)?;
        let got = (part.error_code, part.high_watermark);
        let what = format!("from offset {from}");
        same(&what, got, (ErrorCode::OFFSET_OUT_OF_RANGE, -1))?;
    }
    Ok(())
}

fn epoch_end(
    client: &mut Client<'_>,
    topic: &Topic,
    partition: OffsetForLeaderPartition,
) -> Outcome<EpochEndOffset> {
    let request = OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: topic.name.clone(),
            partitions: vec![partition],
        }],
    };
    let topic = only("topics", client.ask(4, &request)?.topics)?;
    only("partitions", topic.partitions)
}

fn epochs(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    produce::stored(client, 12, &topic, numbered(now, 3))?;
    let mut newer = request(12, &topic, 0);
    for topic in &mut newer.topics {
        for partition in &mut topic.partitions {
            partition.current_leader_epoch = 1_000;
        }
    }
    let part = ask(client, 12, &newer)?;
    same(
        "a newer epoch",
        part.error_code,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
    )?;

    let fetched = one(client, 12, &topic, 0)?.records.unwrap_or_default();
    let stored = Batches(fetched);
    let batches = stored.batches()?;
    let epoch = batches.first().map_or(-1, |b| b.header.leader_epoch.0);
    let known = OffsetForLeaderPartition {
        leader_epoch: epoch,
        ..OffsetForLeaderPartition::default()
    };
    let end = epoch_end(client, &topic, known.clone())?;
    let got = (end.error_code, end.leader_epoch, end.end_offset);
    same("the end of an epoch", got, (ErrorCode::NONE, epoch, 3))?;
    let future = OffsetForLeaderPartition {
        leader_epoch: epoch + 1_000,
        ..known.clone()
    };
    let end = epoch_end(client, &topic, future)?;
    let got = (end.error_code, end.leader_epoch, end.end_offset);
    same("an epoch to come", got, (ErrorCode::NONE, -1, -1))?;
    let elsewhere = OffsetForLeaderPartition {
        partition: 9,
        ..known
    };
    let end = epoch_end(client, &topic, elsewhere)?;
    let error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    same("partition 9 of 1", end.error_code, error)
}

fn every_version(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    produce::stored(client, 12, &topic, numbered(now, 2))?;
    let ghost = Topic {
        name: client.name(),
        id: TopicId([5; 16]),
    };
    for version in 4..=18 {
        let read = offsets(one(client, version, &topic, 0)?)?;
        same(&format!("v{version}"), read, vec![0, 1])?;
        let mut unmet = request(version, &topic, 0);
        (unmet.max_wait_ms, unmet.min_bytes) = (100, 1_000_000);
        let read = offsets(ask(client, version, &unmet)?)?;
        same("with a minimum that can't be met", read, vec![0, 1])?;
        let unknown = if version >= 13 {
            ErrorCode::UNKNOWN_TOPIC_ID
        } else {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        };
        let part = one(client, version, &ghost, 0)?;
        same("an unknown topic", part.error_code, unknown)?;
        let committed = FetchRequest {
            isolation_level: 1,
            ..request(version, &topic, 0)
        };
        let part = ask(client, version, &committed)?;
        let aborted = part.aborted_transactions.as_ref().map(Vec::len);
        same("aborted transactions, read committed", aborted, Some(0))?;
        let part = one(client, version, &topic, 0)?;
        let aborted = part.aborted_transactions;
        same("aborted transactions, read uncommitted", aborted, None)?;
    }
    Ok(())
}
