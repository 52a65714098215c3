//! The HTTP door: `/v1`, for programs and people without a Kafka client.
//!
//! A request becomes the same calls of the node that the Kafka door makes: same partitions for the same keys, same offsets, one
//! memory of what idempotent producers have sent. The door keeps nothing between two requests. In a cluster any node's door takes any
//! request ([`Elsewhere`]).
//! It owns no socket: the server, or a test, hands it requests.

mod body;
mod cluster;
mod counts;
mod door;
mod fetch;
mod groups;
mod guard;
mod int64;
mod nodes;
mod openapi;
mod path;
mod patience;
mod position;
mod problem;
mod produce;
mod query;
mod records;
mod route;
mod schema;
mod topics;
mod transactions;
mod value;
mod watch;

pub use counts::Counted;
pub use door::{CallName, HttpDoor, HttpSettings};
pub use guard::{guard, secure};
pub use nodes::{Elsewhere, Going, Lost};
pub use openapi::{document, page};
