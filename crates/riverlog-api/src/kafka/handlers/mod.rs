//! One file for each API, headed by the versions that it serves and what it leaves out.

mod api_versions;
mod heartbeat;

use riverlog_wire::messages::{ApiKey, Request};
use riverlog_wire::primitives::Reader;

use super::responder::{Close, Responder};
use super::session::Context;

/// Every API that is served, in one place: what isn't here isn't advertised, and a request for it ends the connection.
macro_rules! served {
    ($($api:ident => $module:ident,)*) => {
        /// Whether an API is served.
        pub(crate) fn is_served(key: ApiKey) -> bool {
            matches!(key, $(ApiKey::$api)|*)
        }
        /// Decodes a request and gives it to its handler.
        pub(crate) fn dispatch(
            key: ApiKey,
            context: &Context<'_>,
            reader: &mut Reader<'_>,
            responder: Responder,
        ) -> Result<(), Close> {
            match key {
                $(ApiKey::$api => $module::handle(context, decode(context, reader)?, responder),)*
                other => return Err(Close::new(format!("{} isn't served here", other.name()))),
            }
            Ok(())
        }
    };
}

served! {
    Heartbeat => heartbeat,
}

/// Reads a request body; bytes after it are tolerated, as Kafka does.
fn decode<R: Request>(context: &Context<'_>, reader: &mut Reader<'_>) -> Result<R, Close> {
    R::decode(reader, context.version).map_err(|e| {
        let client = context.client_id;
        Close::new(format!(
            "{} v{} of client {client:?} can't be read: {e}",
            R::KEY.name(),
            context.version
        ))
    })
}
