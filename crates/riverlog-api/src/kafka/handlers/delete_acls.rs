//! DeleteAcls v1–v3 (KIP-140, 290). No authorizer is configured, so there are no rules to delete.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::delete_acls_response::DeleteAclsFilterResult;
use riverlog_wire::messages::{DeleteAclsRequest, DeleteAclsResponse};

use super::describe_acls::DISABLED;
use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(_: &Context<'_>, request: DeleteAclsRequest, responder: Responder) {
    let refused = DeleteAclsFilterResult {
        error_code: ErrorCode::SECURITY_DISABLED,
        error_message: Some(DISABLED.to_owned()),
        matching_acls: Vec::new(),
    };
    responder.send(&DeleteAclsResponse {
        throttle_time_ms: 0,
        filter_results: vec![refused; request.filters.len()],
    });
}
