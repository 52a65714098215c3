//! Offsets in transactions: the versions and errors of AddOffsetsToTxn and TxnOffsetCommit, beside checks 46 and 47.

use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::AddOffsetsToTxnRequest;

use super::transactions::{Producer, commit, commit_request, committed_offset};
use super::{Check, groups};
use crate::client::{Client, Outcome, same};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "46a",
        name: "every-version-commits-offsets-in-a-transaction",
        run: every_version,
    },
    Check {
        number: "46b",
        name: "strangers-add-no-offsets-to-a-transaction",
        run: strangers,
    },
    Check {
        number: "46c",
        name: "members-commit-in-a-transaction-and-others-do-not",
        run: members,
    },
];

fn add(
    client: &mut Client<'_>,
    version: i16,
    request: &AddOffsetsToTxnRequest,
) -> Outcome<ErrorCode> {
    for _ in 0..100 {
        let error = client.ask(version, request)?.error_code;
        if error != ErrorCode::CONCURRENT_TRANSACTIONS {
            return Ok(error);
        }
        client.broker().pass(Duration::from_millis(50));
    }
    Err("a transaction doesn't end in 5 s".to_owned().into())
}

fn add_request(producer: &Producer, group: &str) -> AddOffsetsToTxnRequest {
    AddOffsetsToTxnRequest {
        transactional_id: producer.id.clone(),
        producer_id: producer.producer,
        producer_epoch: producer.epoch,
        group_id: group.to_owned(),
    }
}

fn every_version(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    for version in 0..=6 {
        let group = client.group()?;
        let mut producer = Producer::new(client)?;
        if version < 5 {
            // Later ones add the group's partition by themselves.
            let error = add(client, version, &add_request(&producer, &group))?;
            same("adding", error, ErrorCode::NONE)?;
        }
        let request = commit_request(&producer, &group, &topic, version);
        let error = commit(client, version, &request)?;
        same("committing", error, ErrorCode::NONE)?;
        let before = committed_offset(client, &group, &topic, false)?;
        same("before the end", before, (ErrorCode::NONE, -1))?;
        if version < 5 {
            let answer = client.ask(version, &producer.end_request(true))?;
            same("the end", answer.error_code, ErrorCode::NONE)?;
        } else {
            producer.end(client, true)?;
        }
        let mut seen = committed_offset(client, &group, &topic, true)?;
        for _ in 0..100 {
            if seen.0 != ErrorCode::UNSTABLE_OFFSET_COMMIT {
                break;
            }
            client.broker().pass(Duration::from_millis(50));
            seen = committed_offset(client, &group, &topic, true)?;
        }
        same("after the end", seen, (ErrorCode::NONE, 7))?;
    }
    Ok(())
}

fn strangers(client: &mut Client<'_>) -> Outcome {
    let group = client.group()?;
    let producer = Producer::new(client)?;
    let good = add_request(&producer, &group);
    for version in 0..=4 {
        let mut request = good.clone();
        request.producer_id += 1_000_000;
        let error = add(client, version, &request)?;
        let unknown = ErrorCode::INVALID_PRODUCER_ID_MAPPING;
        same("someone else's producer id", error, unknown)?;
        let mut request = good.clone();
        request.producer_epoch += 1;
        let error = add(client, version, &request)?;
        let fenced = match version {
            0 | 1 => ErrorCode::INVALID_PRODUCER_EPOCH,
            _ => ErrorCode::PRODUCER_FENCED,
        };
        same("an epoch to come", error, fenced)?;
        let mut request = good.clone();
        request.transactional_id.clear();
        let error = add(client, version, &request)?;
        same("no id", error, ErrorCode::INVALID_REQUEST)?;
    }
    Ok(())
}

fn members(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let group = client.group()?;
    let member = groups::joined(client, &group)?;
    groups::synced(client, &member)?;
    for version in [3, 5, 6] {
        let mut producer = Producer::new(client)?;
        let mut request = commit_request(&producer, &group, &topic, version);
        if version < 5 {
            let error = add(client, 3, &add_request(&producer, &group))?;
            same("adding", error, ErrorCode::NONE)?;
        }
        request.member_id = "nobody".to_owned();
        request.generation_id_or_member_epoch = member.generation;
        let error = commit(client, version, &request)?;
        same("a stranger", error, ErrorCode::UNKNOWN_MEMBER_ID)?;
        request.member_id.clone_from(&member.id);
        request.generation_id_or_member_epoch += 1;
        let error = commit(client, version, &request)?;
        same("a generation to come", error, ErrorCode::ILLEGAL_GENERATION)?;
        request.generation_id_or_member_epoch = member.generation;
        let error = commit(client, version, &request)?;
        same("the member", error, ErrorCode::NONE)?;
        if version < 5 {
            let answer = client.ask(3, &producer.end_request(false))?;
            same("the end", answer.error_code, ErrorCode::NONE)?;
        } else {
            producer.end(client, false)?;
        }
    }
    Ok(())
}
