//! The Kafka door: one [`Session`] for each connection, behind one [`KafkaDoor`] for each listener.
//!
//! A session takes whole frames and gives back responses in the order of their requests. It has no socket, no clock and no
//! thread: the server, the embedded library's listener and the simulator drive it alike.

mod context;
mod door;
mod fetch_sessions;
mod gather;
mod handlers;
mod metadata_cache;
mod responder;
mod session;
mod share_sessions;

pub use context::Peer;
pub use door::{ChangeAnswer, Electorate, KafkaDoor, KafkaSettings, VoterChange, Voters};
pub use responder::{Close, Part, Responses};
pub use session::{LONGEST_WAIT, LOOK_AGAIN, Session};
