//! SaslHandshake v0–v1 (KIP-43, 152). On a listener without SASL, which all are so far, it is a request at the wrong time.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::{SaslHandshakeRequest, SaslHandshakeResponse};

use crate::kafka::context::Context;
use crate::kafka::responder::Responder;

pub(super) fn handle(_: &Context<'_>, _: SaslHandshakeRequest, responder: Responder) {
    responder.send(&SaslHandshakeResponse {
        error_code: ErrorCode::ILLEGAL_SASL_STATE,
        mechanisms: Vec::new(),
    });
}
