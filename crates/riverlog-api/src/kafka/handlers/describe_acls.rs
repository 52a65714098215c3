//! DescribeAcls v1–v3 (KIP-140, 290). No authorizer is configured, and a broker without one says so.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::{DescribeAclsRequest, DescribeAclsResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

/// What all requests about access rules are told.
pub(super) const DISABLED: &str =
    "No Authorizer is configured: everyone who can connect may do everything";

pub(super) fn handle(_: &Context<'_>, _: DescribeAclsRequest, responder: Responder) {
    responder.send(&DescribeAclsResponse {
        error_code: ErrorCode::SECURITY_DISABLED,
        error_message: Some(DISABLED.to_owned()),
        ..DescribeAclsResponse::default()
    });
}
