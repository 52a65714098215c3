//! Produce v3–v13 (KIP-98, 110, 467, 951, 890, 516). Versions 0–2 are advertised, since librdkafka asks for that, and end the
//! connection. Transactional batches are refused until transactions are served.
//!
//! Batches are checked by header and CRC here; the records inside stay closed. Each is copied once, out of the frame.

use std::time::Duration;

use riverlog_core::metadata::TopicRef;
use riverlog_node::{AppendAnswer, AppendCommand, AppendFailure};
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::{BatchError, ProduceError, validate_produce};
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::ProduceResponse;
use riverlog_wire::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use riverlog_wire::messages::produce_view::ProduceRequestView;
use riverlog_wire::primitives::Reader;

use crate::kafka::gather::Gather;
use crate::kafka::responder::{Close, Responder};
use crate::kafka::session::Context;

/// zstd came with v7 (KIP-110); older clients can't read what they write.
const ZSTD_FROM: i16 = 7;
/// Topics by id.
const IDS_FROM: i16 = 13;

pub(super) fn handle(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    responder: Responder,
) -> Result<(), Close> {
    let version = context.version;
    let request = ProduceRequestView::decode(reader, version).map_err(|e| {
        Close::new(format!(
            "Produce v{version} of client {:?} can't be read: {e}",
            context.client_id
        ))
    })?;
    let acks = request.acks;
    // Topics and the number of their partitions; the answers come flat and are dealt out again.
    let shape: Vec<(String, riverlog_wire::TopicId, usize)> = request
        .topics()
        .map(|t| (t.name.to_owned(), t.topic_id, t.partitions().len()))
        .collect();
    let mut gather = Gather::new(move |answers: Vec<PartitionProduceResponse>| {
        if acks == 0 {
            return finish_silently(responder, &answers);
        }
        let mut answers = answers.into_iter();
        let responses = shape
            .into_iter()
            .map(|(name, topic_id, count)| TopicProduceResponse {
                name,
                topic_id,
                partition_responses: answers.by_ref().take(count).collect(),
            })
            .collect();
        responder.send(&ProduceResponse {
            responses,
            ..ProduceResponse::default()
        });
    });
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    for topic in request.topics() {
        let reference = if version >= IDS_FROM {
            TopicRef::Id(topic.topic_id)
        } else {
            TopicRef::Name(topic.name.to_owned())
        };
        for (index, records) in topic.partitions() {
            if request.transactional_id.is_some() {
                let error = ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
                gather.ready(failed(
                    version,
                    index,
                    error,
                    "transactions aren't served yet".to_owned(),
                ));
                continue;
            }
            // A null set of records leaves Kafka's clients without an answer; it is refused here.
            let bytes = records.unwrap_or_default();
            if let Err((error, message)) = check(version, acks, &bytes) {
                gather.ready(failed(version, index, error, message));
                continue;
            }
            match context.door.node.partition(&reference, index) {
                Err(error) => {
                    gather.ready(failed(version, index, error, error.message().to_owned()))
                }
                Ok(partition) => {
                    let reply = gather.reply(move |answer| response(version, index, answer));
                    let command = AppendCommand {
                        batch: bytes.to_vec(),
                        acks,
                        timeout,
                    };
                    context
                        .door
                        .node
                        .append(&partition, command, context.now, reply);
                }
            }
        }
    }
    gather.seal();
    Ok(())
}

/// acks=0: nothing is said, but a failure ends the connection, so that the client looks at the metadata again.
fn finish_silently(responder: Responder, answers: &[PartitionProduceResponse]) {
    match answers.iter().find(|a| a.error_code != ErrorCode::NONE) {
        None => responder.nothing(),
        Some(answer) => {
            let why = answer.error_code.name();
            responder.close(Close::new(format!(
                "a record sent with acks=0 wasn't stored: {why}"
            )));
        }
    }
}

fn check(version: i16, acks: i16, bytes: &[u8]) -> Result<(), (ErrorCode, String)> {
    if !(-1..=1).contains(&acks) {
        let message = format!("acks is {acks}; use -1 (all in-sync replicas), 0 or 1");
        return Err((ErrorCode::INVALID_REQUIRED_ACKS, message));
    }
    let batch = validate_produce(bytes).map_err(|error| (code_of(&error), error.to_string()))?;
    let zstd = batch.header.attributes.compression() == Some(Compression::Zstd);
    if zstd && version < ZSTD_FROM {
        let message = format!(
            "zstd needs Produce v{ZSTD_FROM}, this is v{version}; use a newer client or another codec"
        );
        return Err((ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, message));
    }
    Ok(())
}

fn code_of(error: &ProduceError) -> ErrorCode {
    match error {
        ProduceError::Batch(BatchError::Crc { .. } | BatchError::Short { .. }) => {
            ErrorCode::CORRUPT_MESSAGE
        }
        ProduceError::Codec(_) => ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
        _ => ErrorCode::INVALID_RECORD,
    }
}

fn response(
    version: i16,
    index: i32,
    answer: Result<AppendAnswer, AppendFailure>,
) -> PartitionProduceResponse {
    match answer {
        Ok(answer) => PartitionProduceResponse {
            index,
            base_offset: answer.base_offset.0,
            log_append_time_ms: answer.log_append_time_ms,
            log_start_offset: if version >= 5 {
                answer.log_start_offset.0
            } else {
                -1
            },
            ..PartitionProduceResponse::default()
        },
        Err(failure) => {
            let records = failure.records.into_iter().map(|(batch_index, message)| {
                BatchIndexAndErrorMessage {
                    batch_index,
                    batch_index_error_message: Some(message),
                }
            });
            let mut response = failed(version, index, failure.error, failure.message);
            if version >= 8 {
                response.record_errors = records.collect();
            }
            response
        }
    }
}

fn failed(
    version: i16,
    index: i32,
    error_code: ErrorCode,
    message: String,
) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        error_code,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        error_message: (version >= 8).then_some(message),
        ..PartitionProduceResponse::default()
    }
}
