//! One connection: frames in, responses out.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::share::ShareKey;
use riverlog_node::Caller;
use riverlog_wire::frame::RequestHeader;
use riverlog_wire::messages::ApiKey;
use riverlog_wire::primitives::Reader;

use super::context::{Context, Peer};
use super::door::KafkaDoor;
use super::handlers;
use super::responder::{Close, Part, Responder, Responses, Slots};

/// How long a host may keep a frame by [`Session::should_wait`]. Then it is taken, or refused with an error that clients send again: a
/// disk that hangs must not keep a connection for ever.
pub const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// When a host looks again whether [`Session::should_wait`].
pub const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// One connection of the Kafka door.
pub struct Session {
    door: Arc<KafkaDoor>,
    peer: Peer,
    slots: Arc<Slots>,
    connection: u64,
    end: Arc<End>,
    /// When it was last used by a member of a share group.
    shared: Option<Now>,
}

/// The end of a connection: of its session, and of whoever takes its responses. Nobody gets what still waits for data then, so that ends too.
pub(crate) struct End {
    /// What waits holds no node.
    door: Weak<KafkaDoor>,
    caller: Arc<Caller>,
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(door) = self.door.upgrade() {
            door.node.leave(&self.caller);
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .field("in_flight", &self.slots.len())
            .finish()
    }
}

impl Session {
    /// A new connection. `wake` is called, from any thread and without locks held, when [`Session::take`] has something.
    pub fn new(
        door: Arc<KafkaDoor>,
        peer: Peer,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Session {
        let connection = door.connections.fetch_add(1, Ordering::Relaxed);
        Session {
            end: Arc::new(End {
                door: Arc::downgrade(&door),
                caller: Caller::new(),
            }),
            door,
            peer,
            slots: Slots::new(Box::new(wake)),
            connection,
            shared: None,
        }
    }
    /// Takes one whole frame, without its length. The response comes by [`Session::take`], now or later.
    ///
    /// - Errors: the host must not read on. Responses to what was asked before may still be taken; they end with the same error.
    pub fn on_frame(&mut self, frame: &Bytes, now: Now) -> Result<(), Close> {
        self.door.node.saw(now);
        let mut reader = Reader::shared(frame);
        let header = RequestHeader::decode(&mut reader)
            .map_err(|e| Close::new(format!("a request header can't be read: {e}")))?;
        let version = header.api_version;
        let Some(key) = ApiKey::from_i16(header.api_key) else {
            return Err(Close::new(format!(
                "API key {} is unknown; use a client of Kafka 4.4 or older",
                header.api_key
            )));
        };
        let context = Context {
            door: &self.door,
            peer: &self.peer,
            client_id: header.client_id.unwrap_or_default(),
            version,
            now,
            connection: self.connection,
            caller: &self.end.caller,
        };
        if key == ApiKey::ShareFetch {
            self.shared = Some(now);
        }
        let responder = Responder::open(&self.slots, version, header.correlation_id);
        handlers::dispatch(key, &context, &mut reader, responder)
    }
    /// Takes the responses that are ready, in the order of their requests.
    ///
    /// - Errors: the connection must end once what was taken has been written.
    pub fn take(&mut self, out: &mut Vec<Part>) -> Result<(), Close> {
        self.slots.take(out)
    }
    /// What [`Session::take`] takes from, for a host that writes elsewhere than it reads. The connection ends once both are dropped.
    pub fn responses(&self) -> Responses {
        Responses {
            slots: Arc::clone(&self.slots),
            _end: Arc::clone(&self.end),
        }
    }
    /// Requests under way. At `max_in_flight` the host stops reading until some are answered.
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }
    /// Whether a frame of `len` bytes that begins with `start` should be left in the connection for now, and with it whatever comes behind it: it
    /// brings records, and too many of other requests wait for the disk. Nothing tells when that ends: the host looks again, for
    /// [`LONGEST_WAIT`] at most.
    pub fn should_wait(&self, start: &[u8], len: usize) -> bool {
        start.starts_with(&ApiKey::Produce.number().to_be_bytes())
            && !self.door.node.has_room_for(len)
    }
    /// Whether the host should stop reading for now.
    pub fn is_busy(&self) -> bool {
        self.in_flight() >= self.door.settings.max_in_flight
    }
}

impl Drop for Session {
    /// What members of share groups held over this connection is offered to others.
    fn drop(&mut self) {
        let Some(now) = self.shared else { return };
        // Before that: they acquire nothing more.
        self.door.node.leave(&self.end.caller);
        let gone = self.door.share_sessions.lock().disconnect(self.connection);
        for ((group, member), partitions) in gone {
            for (topic, partition) in partitions {
                let group = group.clone();
                let key = ShareKey {
                    group,
                    topic,
                    partition,
                };
                self.door.node.share_release(&key, &member, now);
            }
        }
    }
}
