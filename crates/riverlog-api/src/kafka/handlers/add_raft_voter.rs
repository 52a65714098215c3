//! AddRaftVoter v0–v1 (KIP-853, 1186): an observer votes from now on. Asked of the node that leads the quorum; others answer
//! NOT_LEADER_OR_FOLLOWER. The listeners are those that the node has joined with.

use riverlog_wire::messages::{AddRaftVoterRequest, AddRaftVoterResponse};

use super::voters::{self, Asked};
use crate::kafka::context::Context;
use crate::kafka::door::VoterChange;
use crate::kafka::responder::Responder;

pub(super) fn handle(context: &Context<'_>, request: AddRaftVoterRequest, responder: Responder) {
    let asked = Asked {
        cluster_id: request.cluster_id,
        voter: request.voter_id,
        directory: request.voter_directory_id,
    };
    voters::change(
        context,
        &asked,
        VoterChange::Add,
        move |(error_code, error_message)| {
            responder.send(&AddRaftVoterResponse {
                error_code,
                error_message,
                ..AddRaftVoterResponse::default()
            });
        },
    );
}
