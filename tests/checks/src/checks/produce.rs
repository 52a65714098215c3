//! Records in: checks 21 to 27 and 31.

use std::io::Write;

use bytes::Bytes;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use riverlog_wire::batch::{BatchBuilder, set_base_offset};
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::ProduceRequest;
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::produce_response::PartitionProduceResponse;
use riverlog_wire::{ErrorCode, TopicId};

use super::{Check, fetch};
use crate::client::{Client, Outcome, PATIENCE, QUIET, Topic, holds, only, same};
use crate::records::{Batches, keyed, numbered, repacked};
use crate::wire::Received;

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "21",
        name: "every-version-appends-where-the-last-ended",
        run: every_version,
    },
    Check {
        number: "22",
        name: "acks-are-minus-one-zero-or-one",
        run: acks,
    },
    Check {
        number: "23",
        name: "what-is-not-one-sound-batch-is-refused",
        run: unsound,
    },
    Check {
        number: "24",
        name: "what-is-too-large-fails-alone",
        run: too_large,
    },
    Check {
        number: "25",
        name: "compressed-batches-come-back-byte-for-byte",
        run: codecs,
    },
    Check {
        number: "fc-5",
        name: "lz4-frames-with-optional-parts-are-stored-or-refused",
        run: lz4_frames,
    },
    Check {
        number: "26",
        name: "strange-times-are-refused-or-replaced",
        run: times,
    },
    Check {
        number: "27",
        name: "null-and-empty-and-repeated-stay-as-they-are",
        run: nulls,
    },
    Check {
        number: "31",
        name: "unknown-partitions-have-their-own-errors",
        run: unknown,
    },
];

/// A request for one partition.
pub(super) fn request(
    version: i16,
    topic: &Topic,
    index: i32,
    acks: i16,
    records: Option<Vec<u8>>,
) -> ProduceRequest {
    request_of(version, topic, acks, vec![(index, records)])
}

fn request_of(
    version: i16,
    topic: &Topic,
    acks: i16,
    partitions: Vec<(i32, Option<Vec<u8>>)>,
) -> ProduceRequest {
    let (name, topic_id) = if version >= 13 {
        (String::new(), topic.id)
    } else {
        (topic.name.clone(), TopicId::ZERO)
    };
    let partitions = partitions
        .into_iter()
        .map(|(index, records)| PartitionProduceData {
            index,
            records: records.map(Bytes::from),
        });
    ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name,
            topic_id,
            partition_data: partitions.collect(),
        }],
        ..ProduceRequest::default()
    }
}

/// Produces one batch with acks=all.
pub(super) fn one(
    client: &mut Client<'_>,
    version: i16,
    topic: &Topic,
    index: i32,
    records: Vec<u8>,
) -> Outcome<PartitionProduceResponse> {
    send(client, version, topic, index, Some(records))
}

fn send(
    client: &mut Client<'_>,
    version: i16,
    topic: &Topic,
    index: i32,
    records: Option<Vec<u8>>,
) -> Outcome<PartitionProduceResponse> {
    let request = request(version, topic, index, -1, records);
    let answer = client.ask(version, &request)?;
    let answer = only("topics", answer.responses)?;
    let name = if version >= 13 { "" } else { &topic.name };
    same("the answer's topic", answer.name.as_str(), name)?;
    only("partitions", answer.partition_responses)
}

/// Produces one batch, and it is stored.
pub(super) fn stored(
    client: &mut Client<'_>,
    version: i16,
    topic: &Topic,
    records: Vec<u8>,
) -> Outcome<i64> {
    let answer = one(client, version, topic, 0, records)?;
    same("producing", answer.error_code, ErrorCode::NONE)?;
    Ok(answer.base_offset)
}

fn every_version(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    let mut next = 0;
    for version in 3..=13 {
        let answer = one(client, version, &topic, 0, numbered(now, 2))?;
        let what = format!("v{version}");
        same(&what, answer.error_code, ErrorCode::NONE)?;
        same(&what, answer.base_offset, next)?;
        same("log append time", answer.log_append_time_ms, -1)?;
        let start = if version >= 5 { 0 } else { -1 };
        same("log start offset", answer.log_start_offset, start)?;
        next += 2;
    }
    Ok(())
}

fn acks(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    let two = request(12, &topic, 0, 2, Some(numbered(now, 1)));
    let answer = only("topics", client.ask(12, &two)?.responses)?;
    let answer = only("partitions", answer.partition_responses)?;
    same(
        "acks=2",
        answer.error_code,
        ErrorCode::INVALID_REQUIRED_ACKS,
    )?;

    let mut line = client.connect()?;
    line.say(12, &request(12, &topic, 0, 0, Some(numbered(now, 1))))?;
    same("acks=0", line.receive(QUIET), Received::Nothing)?;
    // It was stored all the same, and the connection lives.
    let answer = line.ask(12, &request(12, &topic, 0, 1, Some(numbered(now, 1))))?;
    let answer = only("topics", answer.responses)?;
    let answer = only("partitions", answer.partition_responses)?;
    let got = (answer.error_code, answer.base_offset);
    same("after acks=0", got, (ErrorCode::NONE, 1))?;

    let ghost = Topic {
        name: client.name(),
        id: TopicId([8; 16]),
    };
    line.say(12, &request(12, &ghost, 0, 0, Some(numbered(now, 1))))?;
    same(
        "acks=0 to a ghost",
        line.receive(PATIENCE),
        Received::Closed,
    )?;
    client.is_healthy()
}

fn unsound(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    let good = numbered(now, 2);
    let mut flipped = good.clone();
    if let Some(last) = flipped.last_mut() {
        *last ^= 1;
    }
    let answer = one(client, 12, &topic, 0, flipped)?;
    same(
        "a flipped bit",
        answer.error_code,
        ErrorCode::CORRUPT_MESSAGE,
    )?;

    // The CRC covers neither format nor length; damage there is damage all the same.
    let mut format = good.clone();
    format[16] = 3;
    let mut length = good.clone();
    length[8..12].copy_from_slice(&(-5_i32).to_be_bytes());
    for (what, bytes) in [("format 3", format), ("a length of -5", length)] {
        let answer = one(client, 12, &topic, 0, bytes)?;
        same(what, answer.error_code, ErrorCode::CORRUPT_MESSAGE)?;
    }

    let mut off = good.clone();
    set_base_offset(&mut off, riverlog_wire::Offset(55));
    let mut control = BatchBuilder::new(Compression::None);
    control
        .control()
        .push(now, Some(&[0, 0, 0, 1]), Some(&[0, 0, 0, 0, 0, 0]), &[]);
    for (what, bytes) in [
        ("a message of format 0", old_message(0, now)),
        ("a message of format 1", old_message(1, now)),
        ("two batches", [good.clone(), good.clone()].concat()),
        ("no batch", Vec::new()),
        ("base offset 55", off),
        ("control records", control.build()),
    ] {
        let answer = one(client, 12, &topic, 0, bytes)?;
        same(what, answer.error_code, ErrorCode::INVALID_RECORD)?;
        same(what, answer.base_offset, -1)?;
    }
    // Nothing of it was stored.
    same("the next offset", stored(client, 12, &topic, good)?, 0)
}

/// One message of a format from before record batches, whole and undamaged.
fn old_message(magic: u8, timestamp: i64) -> Vec<u8> {
    let mut message = vec![magic, 0];
    if magic == 1 {
        message.extend(timestamp.to_be_bytes());
    }
    message.extend((-1_i32).to_be_bytes());
    message.extend(3_i32.to_be_bytes());
    message.extend(b"old");
    let mut bytes = 0_i64.to_be_bytes().to_vec();
    bytes.extend((message.len() as i32 + 4).to_be_bytes());
    bytes.extend(crc32(&message).to_be_bytes());
    bytes.extend(message);
    bytes
}

/// The checksum of the old formats, which nothing else here needs.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

fn too_large(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(2)?;
    let now = client.broker().wall_ms();
    let large = keyed(now, None, Some(&vec![7; 1_150_000]));
    let small = keyed(now, None, Some(b"small"));
    let request = request_of(12, &topic, -1, vec![(0, Some(large)), (1, Some(small))]);
    let answer = only("topics", client.ask(12, &request)?.responses)?;
    let mut codes: Vec<(i32, ErrorCode)> = answer
        .partition_responses
        .iter()
        .map(|p| (p.index, p.error_code))
        .collect();
    codes.sort();
    let expected = vec![(0, ErrorCode::MESSAGE_TOO_LARGE), (1, ErrorCode::NONE)];
    same("a large and a small one", codes, expected)
}

fn codecs(client: &mut Client<'_>) -> Outcome {
    let now = client.broker().wall_ms();
    for codec in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let topic = client.topic(1)?;
        let mut batch = BatchBuilder::new(codec);
        for n in 0..100 {
            let value = format!("the value of record {n}, which can be made smaller");
            batch.push(now, Some(b"key"), Some(value.as_bytes()), &[]);
        }
        let sent = batch.build();
        if codec == Compression::Zstd {
            let answer = one(client, 6, &topic, 0, sent.clone())?;
            let error = ErrorCode::UNSUPPORTED_COMPRESSION_TYPE;
            same("zstd in Produce v6", answer.error_code, error)?;
        }
        stored(client, 7, &topic, sent.clone())?;
        let part = fetch::one(client, 12, &topic, 0)?;
        let fetched = part.records.unwrap_or_default();
        // The leader's epoch is the broker's own; bytes 12 to 15.
        let blank =
            |bytes: &[u8]| [&bytes[..12.min(bytes.len())], &bytes[16.min(bytes.len())..]].concat();
        holds(blank(&fetched) == blank(&sent), || {
            let (sent, got) = (sent.len(), fetched.len());
            format!(
                "{}: {sent} bytes were sent, {got} others came back",
                codec.name()
            )
        })?;
        let count = Batches(fetched).records()?.len();
        same(codec.name(), count, 100)?;
    }
    Ok(())
}

fn lz4_frames(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    // More than one block.
    let value: String = (0..40_000).map(|n| format!("{n} ")).collect();
    let plain = keyed(client.broker().wall_ms(), None, Some(value.as_bytes()));
    let framed = |mode, with_parts: bool| {
        let mut info = FrameInfo::new()
            .block_mode(mode)
            .block_size(BlockSize::Max64KB);
        repacked(&plain, 3, |records| {
            if with_parts {
                info = info.clone().block_checksums(true).content_checksum(true);
                info.content_size = Some(records.len() as u64);
            }
            let mut frame = FrameEncoder::with_frame_info(info, Vec::new());
            // Writing to memory doesn't fail.
            let _ = frame.write_all(records);
            frame.finish().unwrap_or_default()
        })
    };
    for with_parts in [false, true] {
        stored(
            client,
            12,
            &topic,
            framed(BlockMode::Independent, with_parts)?,
        )?;
    }
    // No client of Kafka reads blocks that lean on the block before.
    let linked = one(client, 12, &topic, 0, framed(BlockMode::Linked, false)?)?;
    holds(linked.error_code != ErrorCode::NONE, || {
        "blocks that lean on each other were stored".to_owned()
    })?;
    let fetched = fetch::one(client, 12, &topic, 0)?.records;
    let records = Batches(fetched.unwrap_or_default()).records()?;
    let values = records.iter().map(|r| r.value.as_deref());
    let same_values = values.filter(|v| *v == Some(value.as_bytes())).count();
    same(
        "records that came back",
        (records.len(), same_values),
        (2, 2),
    )
}

fn times(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    let ahead = one(client, 12, &topic, 0, numbered(now + 2 * 3_600_000, 2))?;
    same(
        "two hours ahead",
        ahead.error_code,
        ErrorCode::INVALID_TIMESTAMP,
    )?;
    let blamed = ahead.record_errors.first().map(|r| r.batch_index);
    same("the record to blame", blamed, Some(0))?;
    holds(ahead.error_message.is_some(), || "no words".to_owned())?;
    same("no time", stored(client, 12, &topic, numbered(-1, 1))?, 0)?;

    let stamped = client.topic_with(&[("message.timestamp.type", "LogAppendTime")])?;
    let answer = one(client, 12, &stamped, 0, numbered(now - 3_600_000, 2))?;
    same("an hour ago", answer.error_code, ErrorCode::NONE)?;
    let time = answer.log_append_time_ms;
    holds((time - now).abs() < 600_000, || {
        format!("stamped {time}, while it is about {now}")
    })?;
    let part = fetch::one(client, 12, &stamped, 0)?;
    let fetched = Batches(part.records.unwrap_or_default());
    let times: Vec<i64> = fetched.records()?.iter().map(|r| r.timestamp).collect();
    same("the times read back", times, vec![time, time])
}

fn nulls(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    type Header<'a> = (&'a [u8], Option<&'a [u8]>);
    let headers: &[Header<'_>] = &[
        (b"a", Some(b"1")),
        (b"a", None),
        (b"", Some(b"")),
        (b"a", Some(b"1")),
    ];
    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(now, None, Some(b""), headers);
    batch.push(now + 1, Some(b""), None, &[]);
    batch.push(now - 1, Some(b"key"), Some(b"value"), &[]);
    stored(client, 12, &topic, batch.build())?;
    let part = fetch::one(client, 12, &topic, 0)?;
    let records = Batches(part.records.unwrap_or_default()).records()?;
    type Read = (i64, Option<Bytes>, Option<Bytes>);
    let read: Vec<Read> = records
        .iter()
        .map(|r| (r.timestamp, r.key.clone(), r.value.clone()))
        .collect();
    let bytes = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let expected = vec![
        (now, None, bytes("")),
        (now + 1, bytes(""), None),
        (now - 1, bytes("key"), bytes("value")),
    ];
    same("records", read, expected)?;
    let first = records.first().map(|r| r.headers.clone());
    let first: Vec<(Bytes, Option<Bytes>)> = first.unwrap_or_default().iter().collect();
    let owned = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    let expected: Vec<(Bytes, Option<Bytes>)> = headers
        .iter()
        .map(|(name, value)| (owned(name), value.map(owned)))
        .collect();
    same("headers", first, expected)
}

fn unknown(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    let ghost = Topic {
        name: client.name(),
        id: TopicId([6; 16]),
    };
    let missing = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    for (what, version, topic, index, error) in [
        ("an unknown name", 12, &ghost, 0, missing),
        ("an unknown id", 13, &ghost, 0, ErrorCode::UNKNOWN_TOPIC_ID),
        ("partition 9 of 1", 12, &topic, 9, missing),
        ("partition 9 of 1 by id", 13, &topic, 9, missing),
        ("partition -1", 12, &topic, -1, missing),
    ] {
        let answer = one(client, version, topic, index, numbered(now, 1))?;
        same(what, answer.error_code, error)?;
    }
    Ok(())
}
