//! `/v1/producers`, `/v1/transactions`: ids for idempotent producers, and transactions that cover records and offsets.

use std::sync::Arc;

use axum::http::StatusCode;
use riverlog_core::transactions::{TransactionAnswer, TransactionCommand, TransactionVersion};
use riverlog_wire::{BrokerId, ErrorCode, ProducerEpoch, ProducerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::body::Held;
use crate::door::{Answer, Call, HttpDoor};
use crate::int64::Int64;
use crate::patience::Patience;
use crate::problem::Problem;

/// How long a transaction may last unless asked otherwise.
const TIMEOUT_MS: i32 = 60_000;

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Begin {
    transactional_id: Option<String>,
    timeout_ms: Option<i32>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct End {
    #[schema(value_type = i64)]
    producer_id: Int64,
    epoch: i16,
}

#[derive(Serialize, ToSchema)]
struct ProducerView {
    #[serde(skip_serializing_if = "Option::is_none")]
    transactional_id: Option<String>,
    producer_id: i64,
    epoch: i16,
}

#[derive(Serialize, ToSchema)]
struct TransactionView {
    transactional_id: String,
    state: String,
    producer_id: i64,
    epoch: i16,
    timeout_ms: i32,
    started_ms: Option<i64>,
    partitions: Vec<crate::groups::PlaceView>,
}

/// A producer id
///
/// A producer id: a fresh one, or that of a transactional id, whose earlier producer is fenced and its transaction aborted.
#[utoipa::path(
    post, path = "/v1/producers", tag = "transactions", operation_id = "createProducer",
    request_body = Begin,
    responses((status = 201, description = "The id", body = ProducerView))
)]
pub(crate) async fn producers(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let (asked, body) = call.json_and_body::<Begin>().await?;
    match elsewhere(&call.door, call.passed_on, &asked).await {
        Some(to) => pass_on(call, to, asked, "/v1/producers", body).await,
        None => {
            let made = begin(&call.door, asked).await?;
            Ok(call.answer_json(StatusCode::CREATED, &made))
        }
    }
}

/// The other node that coordinates the transactional id.
async fn elsewhere(door: &HttpDoor, passed_on: bool, asked: &Begin) -> Option<BrokerId> {
    let id = asked.transactional_id.as_deref();
    let id = id.filter(|id| !id.is_empty());
    match id.filter(|_| !passed_on && door.is_in_cluster()) {
        Some(id) => door.other(door.transaction_at(id).await),
        None => None,
    }
}

async fn pass_on(call: Call, to: BrokerId, asked: Begin, path: &str, body: Held) -> Answer {
    let id = asked.transactional_id.unwrap_or_default();
    let door = Arc::clone(&call.door);
    let owner = || door.node.transaction_coordinator(&id, door.now());
    call.pass_on_json(to, owner, path, body).await
}

/// A producer for transactions
///
/// As [`producers`], for a transactional id.
#[utoipa::path(
    post, path = "/v1/transactions", tag = "transactions", operation_id = "openTransactions",
    request_body = Begin,
    responses((status = 201, description = "The id", body = ProducerView))
)]
pub(crate) async fn open(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let (asked, body) = call.json_and_body::<Begin>().await?;
    if asked.transactional_id.is_none() {
        return Err(Problem::unprocessable(
            "bad-fields",
            "transactional_id is missing; it is what tells this producer from others, and stays the same over restarts",
        ));
    }
    if let Some(to) = elsewhere(&call.door, call.passed_on, &asked).await {
        return pass_on(call, to, asked, "/v1/transactions", body).await;
    }
    let made = begin(&call.door, asked).await?;
    Ok(call.answer_json(StatusCode::CREATED, &made))
}

async fn begin(door: &HttpDoor, asked: Begin) -> Result<ProducerView, Problem> {
    let Some(id) = asked.transactional_id else {
        let made = door
            .ask(|node, now, reply| node.init_producer(now, reply))
            .await?;
        let (producer_id, epoch) = made.map_err(Problem::kafka)?;
        return Ok(ProducerView {
            transactional_id: None,
            producer_id: producer_id.0,
            epoch: epoch.0,
        });
    };
    if id.is_empty() {
        return Err(Problem::unprocessable(
            "bad-fields",
            "transactional_id is empty",
        ));
    }
    let command = TransactionCommand::Init {
        id,
        timeout_ms: asked.timeout_ms.unwrap_or(TIMEOUT_MS),
        resume: None,
        fresh: None,
    };
    coordinate(door, command).await
}

/// A command whose answer is what the producer goes on with.
async fn coordinate(door: &HttpDoor, command: TransactionCommand) -> Result<ProducerView, Problem> {
    let id = command.id().to_owned();
    let patience = Patience::new();
    let answer = loop {
        let again = command.clone();
        let answer = door
            .ask(|node, now, reply| node.transaction(again, now, reply))
            .await?;
        let error = match &answer {
            TransactionAnswer::Producer { error, .. } | TransactionAnswer::Error(error) => *error,
            _ => ErrorCode::NONE,
        };
        if !patience.again(error).await {
            break answer;
        }
    };
    match answer {
        TransactionAnswer::Producer {
            error: ErrorCode::NONE,
            producer_id,
            epoch,
        } => Ok(ProducerView {
            transactional_id: Some(id),
            producer_id: producer_id.0,
            epoch: epoch.0,
        }),
        TransactionAnswer::Producer { error, .. } | TransactionAnswer::Error(error) => {
            Err(Problem::kafka(error))
        }
        _ => Err(Problem::kafka(ErrorCode::UNKNOWN_SERVER_ERROR)),
    }
}

/// Commit a transaction
#[utoipa::path(
    post, path = "/v1/transactions/{id}:commit", tag = "transactions", operation_id = "commitTransaction",
    params(("id" = String, Path, description = "Transactional id, percent-encoded")),
    request_body = End,
    responses((status = 200, description = "Committed; what the next one has", body = ProducerView))
)]
pub(crate) async fn commit(call: Call) -> Answer {
    end(call, true).await
}

/// Abort a transaction
#[utoipa::path(
    post, path = "/v1/transactions/{id}:abort", tag = "transactions", operation_id = "abortTransaction",
    params(("id" = String, Path, description = "Transactional id, percent-encoded")),
    request_body = End,
    responses((status = 200, description = "Aborted; what the next one has", body = ProducerView))
)]
pub(crate) async fn abort(call: Call) -> Answer {
    end(call, false).await
}

/// The answer has the epoch of the next transaction.
async fn end(mut call: Call, commit: bool) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let asked: End = call.json().await?;
    let command = TransactionCommand::End {
        id: call.name().to_owned(),
        producer_id: ProducerId(asked.producer_id.0),
        epoch: ProducerEpoch(asked.epoch),
        commit,
        version: TransactionVersion::TWO,
        fresh: None,
    };
    let next = coordinate(&call.door, command).await?;
    Ok(call.answer_json(StatusCode::OK, &next))
}

/// A transactional id
#[utoipa::path(
    get, path = "/v1/transactions/{id}", tag = "transactions", operation_id = "getTransaction",
    params(("id" = String, Path, description = "Transactional id, percent-encoded")),
    responses((status = 200, description = "State and partitions", body = TransactionView))
)]
pub(crate) async fn describe(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).done()?;
    let id = call.name().to_owned();
    let answer = call
        .door
        .ask(|node, now, reply| node.describe_transaction(&id, now, reply))
        .await?;
    let described = answer.map_err(|error| {
        Problem::kafka(error).detail(format!("there is no transactional id {id:?}"))
    })?;
    let value = described.value;
    let view = TransactionView {
        transactional_id: described.id,
        state: value.state.name().to_owned(),
        producer_id: value.producer_id.0,
        epoch: value.epoch.0,
        timeout_ms: value.timeout_ms,
        started_ms: Some(value.started_ms).filter(|ms| *ms >= 0),
        partitions: value
            .partitions
            .into_iter()
            .map(crate::groups::PlaceView::from)
            .collect(),
    };
    Ok(call.answer_json(StatusCode::OK, &view))
}
