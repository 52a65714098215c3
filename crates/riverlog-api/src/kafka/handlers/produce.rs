//! Produce v3–v13 (KIP-98, 110, 467, 951, 890, 516). Versions 0–2 are advertised, since librdkafka asks for that, and end the
//! connection. A transactional batch goes by its coordinator: up to v11 its partition must have been added before (v11 tells clients
//! TRANSACTION_ABORTABLE when it wasn't, v10 INVALID_TXN_STATE), from v12 on it is added on the way (KIP-890).
//!
//! Batches are checked by header and CRC here; the records inside stay closed. Each is copied once, out of the frame.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::metadata::TopicRef;
use riverlog_node::{AppendAnswer, AppendCommand, AppendFailure, AppendTo};
use riverlog_wire::batch::{BatchError, ProduceError, validate_produce};
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::ProduceResponse;
use riverlog_wire::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
    TopicProduceResponse,
};
use riverlog_wire::messages::produce_view::ProduceRequestView;
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, Offset};

use super::transactions::on_the_way;
use super::{leaders, millis};
use crate::kafka::context::Context;
use crate::kafka::door::KafkaDoor;
use crate::kafka::gather::Gather;
use crate::kafka::responder::{Close, Responder};

/// zstd came with v7 (KIP-110); older clients can't read what they write.
const ZSTD_FROM: i16 = 7;
/// Words beside the error code, and the records to blame (KIP-467).
const MESSAGES_FROM: i16 = 8;
/// Who leads instead (KIP-951).
const LEADERS_FROM: i16 = 10;
/// Clients that know TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 11;
/// Clients of transaction version 2.
const ADDS_FROM: i16 = 12;
/// Topics by id.
const IDS_FROM: i16 = 13;

/// What became of one batch.
struct Outcome {
    response: PartitionProduceResponse,
    /// When the client should come again; zero: at once.
    retry_after: Duration,
}

/// A topic of the request, and how many of its partitions were in it.
struct Asked {
    topic: TopicRef,
    partitions: usize,
}

pub(super) fn handle(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    responder: Responder,
) -> Result<(), Close> {
    let version = context.version;
    let request = match ProduceRequestView::decode(reader, version) {
        Ok(request) => request,
        Err(e) => {
            let client = context.client_id;
            let close = format!("Produce v{version} of client {client:?} can't be read: {e}");
            return Err(responder.refuse(Close::new(close)));
        }
    };
    let acks = request.acks;
    // The answers come flat, and are dealt out again to the topics.
    let shape: Vec<Asked> = request
        .topics()
        .map(|topic| Asked {
            topic: if version >= IDS_FROM {
                TopicRef::Id(topic.topic_id)
            } else {
                TopicRef::Name(topic.name.to_owned())
            },
            partitions: topic.partitions().len(),
        })
        .collect();
    let topics: Vec<TopicRef> = shape.iter().map(|asked| asked.topic.clone()).collect();
    let door = Arc::downgrade(context.door);
    let mut gather = Gather::new(move |outcomes: Vec<Outcome>| {
        if acks == 0 {
            finish_silently(responder, &outcomes);
        } else if let Some(door) = door.upgrade() {
            let pause = outcomes.iter().map(|o| o.retry_after).max();
            let pause = pause.unwrap_or_default();
            let response = respond(&door, version, shape, outcomes, pause);
            responder.send_throttled(&response, pause);
        }
    });
    let timeout = millis(request.timeout_ms);
    let transactional_id = request.transactional_id;
    let adds = version >= ADDS_FROM;
    let (mut plain, mut in_transaction) = (Vec::new(), Vec::new());
    for (topic, reference) in request.topics().zip(topics) {
        for (index, records) in topic.partitions() {
            // A null set of records leaves Kafka's clients without an answer; it is refused here.
            let bytes = records.unwrap_or_default();
            let found = context
                .door
                .node
                .partition(&reference, index)
                .map_err(|error| (error, error.message().to_owned()))
                .and_then(|partition| {
                    let asks = check(version, acks, transactional_id, &bytes)?;
                    Ok((partition, asks))
                });
            match found {
                Err((error, message)) => gather.ready(failed(version, index, error, message)),
                Ok((partition, asks)) => {
                    let reply = gather.reply(move |answer| {
                        let answer: Result<_, AppendFailure> = answer;
                        let answer = answer.map_err(|mut failure| {
                            if asks {
                                let abortable = version >= ABORTABLE_FROM;
                                failure.error = on_the_way(failure.error, adds, abortable);
                            }
                            failure
                        });
                        outcome(version, index, answer)
                    });
                    let command = AppendCommand {
                        batch: bytes.to_vec(),
                        acks,
                        timeout,
                    };
                    let to = AppendTo {
                        partition,
                        command,
                        reply,
                    };
                    match asks {
                        false => plain.push(to),
                        true => in_transaction.push(to),
                    }
                }
            }
        }
    }
    let (node, now) = (&context.door.node, context.now);
    node.append_all(plain, now);
    if let Some(id) = transactional_id {
        node.append_all_in_transaction(id, adds, in_transaction, now);
    }
    gather.seal();
    Ok(())
}

/// acks=0: nothing is said, but a failure ends the connection, so that the client looks at the metadata again.
fn finish_silently(responder: Responder, outcomes: &[Outcome]) {
    let mut codes = outcomes.iter().map(|o| o.response.error_code);
    match codes.find(|code| *code != ErrorCode::NONE) {
        None => responder.nothing(),
        Some(code) => responder.close(Close::new(format!(
            "records sent with acks=0 weren't stored: {}",
            code.name()
        ))),
    }
}

fn respond(
    door: &KafkaDoor,
    version: i16,
    shape: Vec<Asked>,
    outcomes: Vec<Outcome>,
    pause: Duration,
) -> ProduceResponse {
    let mut response = ProduceResponse {
        throttle_time_ms: i32::try_from(pause.as_millis()).unwrap_or(i32::MAX),
        ..ProduceResponse::default()
    };
    let mut leading = BTreeSet::new();
    let mut outcomes = outcomes.into_iter();
    for asked in shape {
        let mut partitions = Vec::with_capacity(asked.partitions);
        for mut outcome in outcomes.by_ref().take(asked.partitions) {
            let partition = &mut outcome.response;
            if version >= LEADERS_FROM
                && partition.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER
                && let Some(leader) = leaders::of(door, &asked.topic, partition.index)
            {
                partition.current_leader = LeaderIdAndEpoch {
                    leader_id: leader.id,
                    leader_epoch: leader.epoch,
                };
                leading.insert(leader.id);
            }
            partitions.push(outcome.response);
        }
        let (name, topic_id) = leaders::parts(asked.topic);
        response.responses.push(TopicProduceResponse {
            name,
            topic_id,
            partition_responses: partitions,
        });
    }
    response.node_endpoints = leaders::addresses(door, &leading)
        .map(|node| NodeEndpoint {
            node_id: node.id,
            host: node.host,
            port: node.port,
            rack: node.rack,
        })
        .collect();
    response
}

/// Whether a batch can be taken at all; answers whether it is part of a transaction.
fn check(
    version: i16,
    acks: i16,
    transactional_id: Option<&str>,
    bytes: &[u8],
) -> Result<bool, (ErrorCode, String)> {
    if !(-1..=1).contains(&acks) {
        let message = format!("acks is {acks}; use -1 (all in-sync replicas), 0 or 1");
        return Err((ErrorCode::INVALID_REQUIRED_ACKS, message));
    }
    let batch = validate_produce(bytes).map_err(|error| (code_of(&error), error.to_string()))?;
    let attributes = batch.header.attributes;
    if version < ZSTD_FROM && attributes.compression() == Some(Compression::Zstd) {
        let message = format!(
            "zstd needs Produce v{ZSTD_FROM}, this is v{version}; use a newer client or another codec"
        );
        return Err((ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, message));
    }
    if attributes.is_transactional() && transactional_id.is_none() {
        let message = "the batch is part of a transaction, but the request has no transactional id";
        return Err((ErrorCode::INVALID_TXN_STATE, message.to_owned()));
    }
    Ok(attributes.is_transactional())
}

/// Bytes that were damaged on the way can be sent again; a batch that was made wrong can't.
fn code_of(error: &ProduceError) -> ErrorCode {
    match error {
        // The CRC doesn't cover magic and length, so what can't be is taken for damage there too; formats 0 and 1 are old, not damaged.
        ProduceError::Batch(
            BatchError::Crc { .. }
            | BatchError::Field {
                field: "length", ..
            },
        ) => ErrorCode::CORRUPT_MESSAGE,
        ProduceError::Batch(BatchError::Magic(magic)) if !(0..=1).contains(magic) => {
            ErrorCode::CORRUPT_MESSAGE
        }
        _ => ErrorCode::INVALID_RECORD,
    }
}

fn outcome(version: i16, index: i32, answer: Result<AppendAnswer, AppendFailure>) -> Outcome {
    let failure = match answer {
        // Clients take it for what it is: stored, nobody knows where. With OUT_OF_ORDER_SEQUENCE_NUMBER, as Kafka has it, one that
        // has sent more than five batches on to a new leader sends the first ones again until it gives up.
        Ok(answer) if answer.base_offset < Offset(0) => {
            let message = "the batch is stored, before the last five of its producer; its offset isn't remembered";
            return failed(
                version,
                index,
                ErrorCode::DUPLICATE_SEQUENCE_NUMBER,
                message.into(),
            );
        }
        Ok(answer) => {
            let response = PartitionProduceResponse {
                index,
                base_offset: answer.base_offset.0,
                log_append_time_ms: answer.log_append_time_ms,
                log_start_offset: if version >= 5 {
                    answer.log_start_offset.0
                } else {
                    -1
                },
                ..PartitionProduceResponse::default()
            };
            return Outcome {
                response,
                retry_after: Duration::ZERO,
            };
        }
        Err(failure) => failure,
    };
    let mut outcome = failed(version, index, again(failure.error), failure.message);
    outcome.retry_after = failure.retry_after.unwrap_or_default();
    if version >= MESSAGES_FROM {
        let records = failure.records.into_iter();
        outcome.response.record_errors = records
            .map(|(batch_index, message)| BatchIndexAndErrorMessage {
                batch_index,
                batch_index_error_message: Some(message),
            })
            .collect();
    }
    outcome
}

/// What every client sends again. Kafka never answers a Produce with THROTTLING_QUOTA_EXCEEDED, and librdkafka, sarama and others take it for
/// the end of the records. NOT_ENOUGH_REPLICAS says the same to all of them: nothing was stored, come again.
fn again(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::THROTTLING_QUOTA_EXCEEDED => ErrorCode::NOT_ENOUGH_REPLICAS,
        other => other,
    }
}

fn failed(version: i16, index: i32, error_code: ErrorCode, message: String) -> Outcome {
    let response = PartitionProduceResponse {
        index,
        error_code,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        error_message: (version >= MESSAGES_FROM).then_some(message),
        ..PartitionProduceResponse::default()
    };
    Outcome {
        response,
        retry_after: Duration::ZERO,
    }
}
