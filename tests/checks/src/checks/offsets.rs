//! Offsets by time, and records cut off in front: checks 56 and 58.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverlog_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverlog_wire::messages::list_offsets_response::ListOffsetsPartitionResponse;
use riverlog_wire::messages::{DeleteRecordsRequest, ListOffsetsRequest};

use super::{Check, fetch, produce};
use crate::client::{Client, Outcome, Topic, only, same};
use crate::records::{keyed, numbered};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "56",
        name: "offsets-are-found-by-time-and-by-name",
        run: list_offsets,
    },
    Check {
        number: "58",
        name: "records-are-cut-off-up-to-the-high-watermark",
        run: delete_records,
    },
];

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;

fn request(topic: &Topic, timestamps: &[i64]) -> ListOffsetsRequest {
    let partitions = timestamps.iter().map(|timestamp| ListOffsetsPartition {
        timestamp: *timestamp,
        ..ListOffsetsPartition::default()
    });
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.name.clone(),
            partitions: partitions.collect(),
        }],
        ..ListOffsetsRequest::default()
    }
}

pub(super) fn ask(
    client: &mut Client<'_>,
    version: i16,
    topic: &Topic,
    timestamp: i64,
) -> Outcome<ListOffsetsPartitionResponse> {
    let answer = client.ask(version, &request(topic, &[timestamp]))?;
    let topic = only("topics", answer.topics)?;
    only("partitions", topic.partitions)
}

fn found(
    client: &mut Client<'_>,
    version: i16,
    topic: &Topic,
    timestamp: i64,
) -> Outcome<(ErrorCode, i64, i64)> {
    let answer = ask(client, version, topic, timestamp)?;
    Ok((answer.error_code, answer.offset, answer.timestamp))
}

/// The latest offset under an isolation level.
pub(super) fn latest(client: &mut Client<'_>, topic: &Topic, isolation_level: i8) -> Outcome<i64> {
    let asked = ListOffsetsRequest {
        isolation_level,
        ..request(topic, &[-1])
    };
    let topic = only("topics", client.ask(7, &asked)?.topics)?;
    Ok(only("partitions", topic.partitions)?.offset)
}

fn list_offsets(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let none = ErrorCode::NONE;
    for (what, timestamp, offset) in [
        ("the end of an empty log", LATEST, 0),
        ("its start", EARLIEST, 0),
        ("its largest time", MAX_TIMESTAMP, -1),
        ("its start on disk", EARLIEST_LOCAL, 0),
        ("a time in it", 5, -1),
    ] {
        same(
            what,
            found(client, 11, &topic, timestamp)?,
            (none, offset, -1),
        )?;
    }
    let now = client.broker().wall_ms();
    for (n, time) in [now - 3_000, now - 1_000, now - 2_000].iter().enumerate() {
        let value = n.to_string();
        let record = keyed(*time, None, Some(value.as_bytes()));
        produce::stored(client, 12, &topic, record)?;
    }
    for version in 1..=11 {
        let what = |of: &str| format!("{of}, v{version}");
        for (of, timestamp, expected) in [
            ("the end", LATEST, (none, 3, -1)),
            ("the start", EARLIEST, (none, 0, -1)),
            ("at a time", now - 2_500, (none, 1, now - 1_000)),
            ("at a record's time", now - 3_000, (none, 0, now - 3_000)),
            ("after all", now + 1_000_000, (none, -1, -1)),
        ] {
            same(
                &what(of),
                found(client, version, &topic, timestamp)?,
                expected,
            )?;
        }
        for (special, since) in [(-3, 7), (-4, 8), (-5, 9), (-6, 11)] {
            let (error, offset, time) = found(client, version, &topic, special)?;
            if version < since {
                let of = what(&format!("{special}"));
                same(&of, error, ErrorCode::UNSUPPORTED_VERSION)?;
            } else if special == MAX_TIMESTAMP {
                let got = (error, offset, time);
                same(&what("the largest time"), got, (none, 1, now - 1_000))?;
            } else {
                same(&what(&format!("{special}")), error, none)?;
            }
        }
        let (error, ..) = found(client, version, &topic, -77)?;
        same("-77", error, ErrorCode::UNSUPPORTED_VERSION)?;
    }
    let answer = client.ask(11, &request(&topic, &[LATEST, EARLIEST]))?;
    for topic in answer.topics {
        for partition in topic.partitions {
            let error = partition.error_code;
            same("asked twice", error, ErrorCode::INVALID_REQUEST)?;
        }
    }
    // The epoch is that of the offset.
    let stored = fetch::one(client, 12, &topic, 0)?
        .records
        .unwrap_or_default();
    let stored = crate::records::Batches(stored);
    let epoch = stored.batches()?.first().map(|b| b.header.leader_epoch.0);
    let answer = ask(client, 11, &topic, now - 2_500)?;
    same("its epoch", Some(answer.leader_epoch), epoch)?;

    cut(client, &topic, 2)?;
    same(
        "the start, cut",
        found(client, 11, &topic, EARLIEST)?,
        (none, 2, -1),
    )?;
    let local = found(client, 11, &topic, EARLIEST_LOCAL)?;
    same("the start on disk, cut", local, (none, 2, -1))?;
    let at = found(client, 11, &topic, now - 3_000)?;
    same("at a time that was cut", at, (none, 2, now - 2_000))
}

fn cut(client: &mut Client<'_>, topic: &Topic, offset: i64) -> Outcome<(ErrorCode, i64)> {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic.name.clone(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset,
            }],
        }],
        timeout_ms: 10_000,
    };
    let topic = only("topics", client.ask(2, &request)?.topics)?;
    let partition = only("partitions", topic.partitions)?;
    Ok((partition.error_code, partition.low_watermark))
}

fn delete_records(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    for _ in 0..2 {
        produce::stored(client, 12, &topic, numbered(now, 3))?;
    }
    let beyond = cut(client, &topic, 7)?;
    same("past the end", beyond, (ErrorCode::OFFSET_OUT_OF_RANGE, -1))?;
    same("to 4", cut(client, &topic, 4)?, (ErrorCode::NONE, 4))?;
    same(
        "to 2, after 4",
        cut(client, &topic, 2)?,
        (ErrorCode::NONE, 4),
    )?;
    let before = fetch::one(client, 12, &topic, 3)?;
    let error = ErrorCode::OFFSET_OUT_OF_RANGE;
    same("reading what was cut off", before.error_code, error)?;
    let part = fetch::one(client, 12, &topic, 4)?;
    same("the log start", part.log_start_offset, 4)?;
    same("all", cut(client, &topic, -1)?, (ErrorCode::NONE, 6))?;
    let ghost = Topic {
        name: client.name(),
        id: topic.id,
    };
    let (error, _) = cut(client, &ghost, 0)?;
    same("a ghost", error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}
