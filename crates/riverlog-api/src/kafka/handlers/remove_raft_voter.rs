//! RemoveRaftVoter v0 (KIP-853): a disk is no member any more. Asked of the node that leads the quorum; others answer
//! NOT_LEADER_OR_FOLLOWER. A node that is up isn't taken out under its own feet: it would go on without hearing of metadata.

use riverlog_wire::messages::{RemoveRaftVoterRequest, RemoveRaftVoterResponse};
use riverlog_wire::{BrokerId, ErrorCode};

use super::voters::{self, Asked};
use crate::kafka::context::Context;
use crate::kafka::door::VoterChange;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: RemoveRaftVoterRequest, responder: Responder) {
    let voter = BrokerId(request.voter_id);
    let image = context.door.node.image();
    if image
        .brokers
        .get(&voter)
        .is_some_and(|broker| !broker.fenced)
    {
        return responder.send(&RemoveRaftVoterResponse {
            error_code: ErrorCode::INVALID_REQUEST,
            error_message: Some(format!(
                "node {voter} is up; stop it before it is taken out"
            )),
            ..RemoveRaftVoterResponse::default()
        });
    }
    let asked = Asked {
        cluster_id: request.cluster_id,
        voter: request.voter_id,
        directory: request.voter_directory_id,
    };
    voters::change(
        context,
        &asked,
        VoterChange::Remove,
        move |(error_code, error_message)| {
            responder.send(&RemoveRaftVoterResponse {
                error_code,
                error_message,
                ..RemoveRaftVoterResponse::default()
            });
        },
    );
}
