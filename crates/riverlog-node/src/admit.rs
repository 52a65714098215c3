//! What a topic's settings say about a batch, before any lock is taken.

use riverlog_core::Now;
use riverlog_core::config::TopicConfig;
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::{Batch, BatchBuilder, BatchError, BatchHeader, Records};

use crate::command::AppendFailure;
use crate::errors::batch_code;

/// Bytes that the records of one batch may take when they are opened.
const OPENED_LIMIT: usize = 64 << 20;

/// Records that are named in a refusal; a client shows the first anyway.
const BLAMED: usize = 100;

/// Checks a batch; returns it as it shall be stored (recompressed where the topic says so).
///
/// - MESSAGE_TOO_LARGE over `max.message.bytes`.
/// - INVALID_TIMESTAMP outside `message.timestamp.{before,after}.max.ms`, with the records that are to blame. The records
///   are opened only when the header doesn't rule it out.
/// - INVALID_RECORD on a compacted topic for records without a key, with their indexes.
pub(crate) fn admit(
    config: &TopicConfig,
    batch: Vec<u8>,
    now: Now,
) -> Result<(Vec<u8>, BatchHeader), AppendFailure> {
    let refused = |e: &BatchError| AppendFailure::new(batch_code(e), e.to_string());
    let header = BatchHeader::parse(&batch).map_err(|e| refused(&e))?;
    let limit = config.max_message_bytes;
    if i32::try_from(batch.len()).map_or(true, |len| len > limit) {
        return Err(AppendFailure::new(
            ErrorCode::MESSAGE_TOO_LARGE,
            format!(
                "the batch has {} bytes, the topic takes {limit}; send smaller batches or raise max.message.bytes",
                batch.len()
            ),
        ));
    }
    let clocked = !config.log_append_time;
    let latest = now.wall_ms.saturating_add(config.timestamp_after_max_ms);
    let earliest = now.wall_ms.saturating_sub(config.timestamp_before_max_ms);
    let late = clocked && header.max_timestamp > latest;
    // The header has no smallest timestamp; with the default bound none can be too old.
    let maybe_early = clocked && earliest > 0 && config.timestamp_before_max_ms < i64::MAX;
    let recompress = config
        .compression
        .filter(|codec| header.attributes.compression() != Some(*codec));
    if !late && !maybe_early && !config.compact && recompress.is_none() {
        return Ok((batch, header));
    }
    let parsed = Batch::parse(&batch).map_err(|e| refused(&e))?;
    let records = parsed.records(OPENED_LIMIT).map_err(|e| refused(&e))?;
    let mut wrong_time = Vec::new();
    let mut no_key = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let record = record.map_err(|e| refused(&e))?;
        let index = index as i32;
        let time = record.timestamp;
        if clocked && time != -1 && (time > latest || (maybe_early && time < earliest)) {
            wrong_time.push((
                index,
                format!("timestamp {time} is outside {earliest}..={latest}"),
            ));
        }
        if config.compact && record.key.is_none() {
            no_key.push((index, "a compacted topic needs a key".to_owned()));
        }
    }
    if late || !wrong_time.is_empty() {
        return Err(blame(
            ErrorCode::INVALID_TIMESTAMP,
            "timestamps are too far from the broker's clock; check the producer's clock, or change message.timestamp.after.max.ms and message.timestamp.before.max.ms",
            wrong_time,
        ));
    }
    if !no_key.is_empty() {
        return Err(blame(
            ErrorCode::INVALID_RECORD,
            "a compacted topic takes only records with a key",
            no_key,
        ));
    }
    match recompress {
        None => Ok((batch, header)),
        Some(codec) => {
            let batch =
                rewrite(&header, &records, BatchBuilder::new(codec)).map_err(|e| refused(&e))?;
            let header = BatchHeader::parse(&batch).map_err(|e| refused(&e))?;
            Ok((batch, header))
        }
    }
}

fn blame(error: ErrorCode, message: &str, mut records: Vec<(i32, String)>) -> AppendFailure {
    records.truncate(BLAMED);
    AppendFailure {
        records,
        ..AppendFailure::new(error, message)
    }
}

/// The same records in another codec.
fn rewrite(
    header: &BatchHeader,
    records: &Records,
    mut builder: BatchBuilder,
) -> Result<Vec<u8>, BatchError> {
    builder.producer(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    );
    if header.attributes.is_transactional() {
        builder.transactional();
    }
    for record in records.iter() {
        let record = record?;
        let headers: Vec<_> = record.headers.iter().collect();
        let headers: Vec<(&[u8], Option<&[u8]>)> = headers
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_deref()))
            .collect();
        builder.push(
            record.timestamp,
            record.key.as_deref(),
            record.value.as_deref(),
            &headers,
        );
    }
    Ok(builder.build())
}
