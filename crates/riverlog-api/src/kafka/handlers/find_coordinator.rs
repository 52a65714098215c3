//! FindCoordinator v0–v6 (KIP-98, 699, 932). The coordinator of what is kept of share groups (v6) is asked for by
//! `group:topic id:partition`.

use riverlog_core::share::ShareKey;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::find_coordinator_response::Coordinator;
use riverlog_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::{Close, Responder};

/// Key types by their number on the wire.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

pub(super) fn handle(context: &Context<'_>, request: FindCoordinatorRequest, responder: Responder) {
    let keys = if context.version >= 4 {
        request.coordinator_keys
    } else {
        vec![request.key]
    };
    let answers: Vec<Coordinator> = keys
        .into_iter()
        .map(|key| find(context, request.key_type, key))
        .collect();
    if answers.iter().any(|a| a.node_id < 0) && context.door.node.turns_away() {
        return responder.close(Close::new(
            "this node hears too few others to say who coordinates: ask another node",
        ));
    }
    if context.version >= 4 {
        return responder.send(&FindCoordinatorResponse {
            coordinators: answers,
            ..FindCoordinatorResponse::default()
        });
    }
    let first = answers.into_iter().next().unwrap_or_default();
    responder.send(&FindCoordinatorResponse {
        error_code: first.error_code,
        error_message: if context.version >= 1 {
            first.error_message
        } else {
            None
        },
        node_id: first.node_id,
        host: first.host,
        port: first.port,
        ..FindCoordinatorResponse::default()
    });
}

fn find(context: &Context<'_>, key_type: i8, key: String) -> Coordinator {
    let (node, now) = (&context.door.node, context.now);
    let broker = match key_type {
        GROUP => node.group_coordinator(&key, now),
        TRANSACTION => node.transaction_coordinator(&key, now),
        SHARE if context.version >= 6 && ShareKey::parse(&key).is_some() => {
            node.share_coordinator(&key, now)
        }
        _ => return failed(key, ErrorCode::INVALID_REQUEST),
    };
    let address = broker.and_then(|broker| Some((broker, context.door.address_of(broker)?)));
    match address {
        Some((broker, (host, port))) => Coordinator {
            key,
            node_id: broker.0,
            host,
            port: i32::from(port),
            ..Coordinator::default()
        },
        None => failed(key, ErrorCode::COORDINATOR_NOT_AVAILABLE),
    }
}

fn failed(key: String, error_code: ErrorCode) -> Coordinator {
    let error_message = Some(error_code.message().to_owned());
    Coordinator {
        key,
        node_id: -1,
        port: -1,
        error_code,
        error_message,
        ..Coordinator::default()
    }
}
