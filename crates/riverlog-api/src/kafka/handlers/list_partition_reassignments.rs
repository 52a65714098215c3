//! ListPartitionReassignments v0 (KIP-455). On one node no replica ever moves.

use riverlog_wire::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::kafka::responder::Responder;
use crate::kafka::session::Context;

pub(super) fn handle(_: &Context<'_>, _: ListPartitionReassignmentsRequest, responder: Responder) {
    responder.send(&ListPartitionReassignmentsResponse::default());
}
