//! CreateAcls v1–v3 (KIP-140, 290). No authorizer is configured, so no rule is taken.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::create_acls_response::AclCreationResult;
use riverlog_wire::messages::{CreateAclsRequest, CreateAclsResponse};

use super::describe_acls::DISABLED;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(_: &Context<'_>, request: CreateAclsRequest, responder: Responder) {
    let refused = AclCreationResult {
        error_code: ErrorCode::SECURITY_DISABLED,
        error_message: Some(DISABLED.to_owned()),
    };
    responder.send(&CreateAclsResponse {
        throttle_time_ms: 0,
        results: vec![refused; request.creations.len()],
    });
}
