//! What is known of a request besides what is in it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_node::Caller;

use super::door::KafkaDoor;

/// A fetch waits no longer, whatever it asks for. Clients ask for half a second.
pub(crate) const LONGEST_FETCH_WAIT: Duration = Duration::from_secs(5 * 60);

/// Who is at the other end.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
}

/// What a handler knows besides its request.
pub(crate) struct Context<'a> {
    pub(crate) door: &'a Arc<KafkaDoor>,
    pub(crate) peer: &'a Peer,
    pub(crate) client_id: &'a str,
    pub(crate) version: i16,
    pub(crate) now: Now,
    /// Unique among those of the listener.
    pub(crate) connection: u64,
    /// The connection, whose fetches end with it.
    pub(crate) caller: &'a Arc<Caller>,
}

impl Context<'_> {
    /// The peer's address as Kafka shows it in groups: `/127.0.0.1`.
    pub(crate) fn client_host(&self) -> String {
        format!("/{}", self.peer.address.ip())
    }
}
