//! Idempotent producers: checks 32 to 34 and 36.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::InitProducerIdRequest;

use super::{Check, produce};
use crate::client::{Client, Outcome, Topic, holds, same};
use crate::records::of_producer;

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "32",
        name: "a-producer-that-nobody-knows-may-begin-anywhere",
        run: strangers,
    },
    Check {
        number: "33",
        name: "the-last-five-batches-may-come-again",
        run: again,
    },
    Check {
        number: "34",
        name: "gaps-and-old-epochs-are-refused",
        run: gaps,
    },
    Check {
        number: "36",
        name: "sequences-go-round",
        run: wrap,
    },
    Check {
        number: "37a",
        name: "an-empty-transactional-id-is-refused",
        run: empty_transactional_id,
    },
];

fn send(
    client: &mut Client<'_>,
    topic: &Topic,
    id: i64,
    epoch: i16,
    sequence: i32,
) -> Outcome<(ErrorCode, i64)> {
    let now = client.broker().wall_ms();
    let batch = of_producer(now, id, epoch, sequence);
    let answer = produce::one(client, 12, topic, 0, batch)?;
    Ok((answer.error_code, answer.base_offset))
}

fn strangers(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let id = client.producer()?;
    let next = client.producer()?;
    holds(id >= 0 && next > id, || format!("ids {id} and {next}"))?;
    let answer = send(client, &topic, id, 0, 5)?;
    same("a first sequence of 5", answer, (ErrorCode::NONE, 0))?;
    let answer = send(client, &topic, next + 1_000_000, 3, 0)?;
    same("an id nobody gave out", answer, (ErrorCode::NONE, 1))
}

fn again(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let id = client.producer()?;
    for sequence in 0..7 {
        let answer = send(client, &topic, id, 0, sequence)?;
        let offset = i64::from(sequence);
        same("seven batches", answer, (ErrorCode::NONE, offset))?;
    }
    for sequence in 2..7 {
        let answer = send(client, &topic, id, 0, sequence)?;
        let offset = i64::from(sequence);
        same("the last five again", answer, (ErrorCode::NONE, offset))?;
    }
    // Kafka says that it is out of order; that it is stored is as true, and clients get on with it.
    let (error, _) = send(client, &topic, id, 0, 1)?;
    let told = [
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode::DUPLICATE_SEQUENCE_NUMBER,
    ];
    holds(told.contains(&error), || {
        format!("the sixth-last again: {}", error.name())
    })?;
    let answer = send(client, &topic, id, 0, 7)?;
    same("the next", answer, (ErrorCode::NONE, 7))
}

fn gaps(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let id = client.producer()?;
    same(
        "the first",
        send(client, &topic, id, 0, 0)?,
        (ErrorCode::NONE, 0),
    )?;
    let refused = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
    same("a gap", send(client, &topic, id, 0, 5)?.0, refused)?;
    let (error, _) = send(client, &topic, id, 1, 3)?;
    same("a new epoch that begins at 3", error, refused)?;
    let answer = send(client, &topic, id, 1, 0)?;
    same("a new epoch", answer, (ErrorCode::NONE, 1))?;
    let (error, _) = send(client, &topic, id, 0, 1)?;
    same("the old epoch", error, ErrorCode::INVALID_PRODUCER_EPOCH)
}

fn wrap(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let id = client.producer()?;
    let last = send(client, &topic, id, 0, i32::MAX)?;
    same("the last sequence", last, (ErrorCode::NONE, 0))?;
    let answer = send(client, &topic, id, 0, 0)?;
    same("the one after it", answer, (ErrorCode::NONE, 1))
}

fn empty_transactional_id(client: &mut Client<'_>) -> Outcome {
    let request = InitProducerIdRequest {
        transactional_id: Some(String::new()),
        transaction_timeout_ms: 60_000,
        ..InitProducerIdRequest::default()
    };
    let answer = client.ask(4, &request)?;
    same("error", answer.error_code, ErrorCode::INVALID_REQUEST)
}
