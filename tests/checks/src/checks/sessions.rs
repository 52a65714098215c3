//! Fetch sessions: checks 53 and 54.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use riverlog_wire::messages::{FetchRequest, FetchResponse};

use super::{Check, fetch, produce};
use crate::client::{Client, Outcome, Topic, holds, same};
use crate::records::numbered;

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "53",
        name: "a-session-is-opened-kept-and-closed",
        run: session,
    },
    Check {
        number: "54",
        name: "partitions-come-into-a-session-and-leave-it",
        run: add_and_forget,
    },
];

fn open(client: &mut Client<'_>, version: i16, topic: &Topic, from: i64) -> Outcome<i32> {
    let request = FetchRequest {
        session_epoch: 0,
        ..fetch::request(version, topic, from)
    };
    let answer = client.ask(version, &request)?;
    same("opening", answer.error_code, ErrorCode::NONE)?;
    holds(answer.session_id != 0, || "no session was given".to_owned())?;
    Ok(answer.session_id)
}

fn go_on(id: i32, epoch: i32) -> FetchRequest {
    FetchRequest {
        session_id: id,
        session_epoch: epoch,
        ..FetchRequest::default()
    }
}

fn session(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    produce::stored(client, 12, &topic, numbered(now, 3))?;
    let id = open(client, 12, &topic, 3)?;
    let answer = client.ask(12, &go_on(id, 1))?;
    let got = (answer.error_code, answer.session_id, answer.responses.len());
    same("nothing new", got, (ErrorCode::NONE, id, 0))?;
    let answer = client.ask(12, &go_on(id, 7))?;
    let error = ErrorCode::INVALID_FETCH_SESSION_EPOCH;
    same("a wrong epoch", answer.error_code, error)?;
    let answer = client.ask(12, &go_on(id ^ 0x1234, 1))?;
    let error = ErrorCode::FETCH_SESSION_ID_NOT_FOUND;
    same("a wrong id", answer.error_code, error)?;

    let mixed = FetchRequest {
        topics: fetch::request(17, &topic, 3).topics,
        ..go_on(id, 2)
    };
    let answer = client.ask(17, &mixed)?;
    let error = ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR;
    same("names, then ids", answer.error_code, error)?;

    let id = open(client, 12, &topic, 3)?;
    let close = FetchRequest {
        session_id: id,
        session_epoch: -1,
        ..fetch::request(12, &topic, 3)
    };
    let answer = client.ask(12, &close)?;
    let got = (answer.error_code, answer.session_id);
    same("closing", got, (ErrorCode::NONE, 0))?;
    let answer = client.ask(12, &go_on(id, 1))?;
    let error = ErrorCode::FETCH_SESSION_ID_NOT_FOUND;
    same("a closed session", answer.error_code, error)
}

/// Partition numbers in the answer, topic by topic.
fn partitions(answer: &FetchResponse) -> Vec<i32> {
    let parts = answer.responses.iter().flat_map(|t| &t.partitions);
    parts.map(|p| p.partition_index).collect()
}

fn add_and_forget(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(3)?;
    let id = open(client, 13, &topic, 0)?;
    let now = client.broker().wall_ms();
    let of = |partition: i32, from: i64| FetchTopic {
        topic_id: topic.id,
        partitions: vec![FetchPartition {
            partition,
            fetch_offset: from,
            partition_max_bytes: 10_000,
            ..FetchPartition::default()
        }],
        ..FetchTopic::default()
    };
    // A partition that comes in is shown at once, empty as it is.
    let add = FetchRequest {
        topics: vec![of(1, 0)],
        ..go_on(id, 1)
    };
    let answer = client.ask(13, &add)?;
    same("after adding", partitions(&answer), vec![1])?;

    // Both have records; what the client has read is not shown again.
    for index in [0, 1] {
        let answer = produce::one(client, 13, &topic, index, numbered(now, 2))?;
        same("producing", answer.error_code, ErrorCode::NONE)?;
    }
    let mut read = FetchRequest {
        max_wait_ms: 1_000,
        min_bytes: 1,
        ..go_on(id, 2)
    };
    let answer = client.ask(13, &read)?;
    let mut both = partitions(&answer);
    both.sort_unstable();
    same("with records in both", both, vec![0, 1])?;
    read = FetchRequest {
        topics: vec![of(0, 2)],
        ..go_on(id, 3)
    };
    let answer = client.ask(13, &read)?;
    same("when one was read", partitions(&answer), vec![1])?;

    let forget = FetchRequest {
        forgotten_topics_data: vec![ForgottenTopic {
            topic_id: topic.id,
            partitions: vec![1],
            ..ForgottenTopic::default()
        }],
        ..go_on(id, 4)
    };
    let answer = client.ask(13, &forget)?;
    same("after forgetting", partitions(&answer), Vec::new())?;
    same("the session", answer.session_id, id)
}
