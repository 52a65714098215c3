//! What the nodes of a cluster say to each other: bytes in, bytes out (`docs/protocol/peer.md`).
//!
//! The host carries them; it may lose, delay, repeat and reorder them. Whoever asks something keeps what it asked under a number
//! until the answer comes or its patience ends, and an answer that nobody waits for is dropped.

mod asked;
mod forward;
mod message;
mod round;

use asked::Said;
pub(crate) use message::Message;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::metadata::{AdminAnswer, Detours, TopicImage};
use riverlog_wire::{BrokerId, ErrorCode, Offset, TopicId};

use crate::controller::AdminReply;
use crate::node::Node;
use crate::quorum::Quorum;

/// Messages that wait for the host to take them; beyond, new ones are dropped as a network would drop them.
const OUTBOX: usize = 10_000;

/// Bytes from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMessage {
    /// The node that is meant.
    pub to: BrokerId,
    /// A message as `docs/protocol/peer.md` has it.
    pub bytes: Bytes,
    /// Records for a copy that catches up. Whoever has a connection and threads for that which give way to all others takes them there.
    pub catches_up: bool,
}

impl PeerMessage {
    fn new(to: BrokerId, bytes: Bytes) -> PeerMessage {
        PeerMessage {
            to,
            bytes,
            catches_up: false,
        }
    }
}

/// What the node keeps of its talks with others.
#[derive(Default)]
pub(crate) struct Peers {
    outbox: Mutex<Vec<PeerMessage>>,
    forwards: Mutex<Forwards>,
    asked: Mutex<asked::Asked>,
    detours: Mutex<Detours>,
}

#[derive(Default)]
struct Forwards {
    next: i64,
    waiting: BTreeMap<i64, Forward>,
}

struct Forward {
    reply: AdminReply,
    deadline: Duration,
    about: About,
    /// The answer, which waits until this node has applied as much as the controller had.
    answer: Option<(Result<AdminAnswer, ErrorCode>, Offset)>,
}

/// Topics that an answer is about: they aren't said, since each node has them.
enum About {
    Nothing,
    /// Once they are made.
    Made(Vec<TopicId>),
    /// As they were.
    Were(Vec<Option<Arc<TopicImage>>>),
}

impl Node {
    /// What this node says to others, in order. [`crate::Host::outbox_ready`] says when there is something. Empty with
    /// [`Quorum::Own`].
    pub fn take_outbox(&self) -> Vec<PeerMessage> {
        self.tell_leaders();
        std::mem::take(&mut *self.peers.outbox.lock())
    }

    /// Another node of the cluster says something. Bytes that aren't a message are dropped, as is everything with [`Quorum::Own`].
    pub fn on_peer(&self, from: BrokerId, bytes: &Bytes, now: Now) {
        self.saw(now);
        if self.settings.quorum == Quorum::Own || self.is_closing() {
            return;
        }
        self.on_heard(from);
        match Message::decode(bytes) {
            Ok(message) => self.on_message(from, message, now),
            Err(_) => self.peer_message_refused(),
        }
    }

    fn on_message(&self, from: BrokerId, message: Message, now: Now) {
        match message {
            Message::Forward { number, command } => {
                self.forwarded_here(from, number, command, now);
            }
            Message::Forwarded {
                number,
                answer,
                position,
            } => self.forward_answered(number, answer, position, now),
            Message::Ask {
                number,
                broker_epoch,
                asks,
                catches_up,
                stamp,
            } => {
                let word = self.word_of(from, broker_epoch, stamp, now);
                self.asked_by_follower(word, number, asks, catches_up, now);
            }
            Message::Report {
                broker_epoch,
                asks,
                stamp,
            } => {
                let word = self.word_of(from, broker_epoch, stamp, now);
                self.told_by_follower(word, &asks, now);
            }
            Message::Records {
                number,
                parts,
                stamp,
            } => {
                self.heard_leader(from, stamp);
                self.answered_by_leader(from, number, parts, now);
            }
            Message::Transaction { number, command } => {
                self.asked_as_coordinator(from, number, command, now);
            }
            Message::Marker {
                number,
                topic,
                partition,
                marker,
            } => self.marker_asked(from, number, (topic, partition), marker, now),
            Message::Told { number, answer } => {
                self.told_by_node(from, number, Said::Transaction(answer));
            }
            Message::LeastAsk { number, ask } => self.least_asked(from, number, &ask, now),
            Message::Least { number, answer } => {
                self.told_by_node(from, number, Said::Least(answer));
            }
            Message::Room { key } => {
                if let Some(partition) = self.by_key(key) {
                    self.make_room(&partition, now);
                }
            }
            Message::ShareAsk {
                number,
                broker_epoch,
                epoch,
                question,
            } => self.share_asked(from, number, (broker_epoch, epoch), question, now),
            Message::ShareSaid { number, answer } => {
                self.share_answered(from, number, answer, now);
            }
            Message::PassOn { to, message } => self.pass_on(from, to, message),
            Message::PassedOn {
                from: sender,
                message,
            } => self.came_round(sender, from, &message, now),
        }
    }

    pub(crate) fn send_peer(&self, to: BrokerId, message: &Message) {
        self.send_as(to, message, false);
    }

    /// [`PeerMessage::catches_up`] as given.
    pub(crate) fn send_as(&self, to: BrokerId, message: &Message, catches_up: bool) {
        if let Some(bytes) = message.encode() {
            let message = PeerMessage {
                catches_up,
                ..PeerMessage::new(to, bytes)
            };
            self.post(message, OUTBOX);
        }
    }

    /// Drops the message, and returns `false`, where `most` wait already.
    fn post(&self, message: PeerMessage, most: usize) -> bool {
        {
            let mut outbox = self.peers.outbox.lock();
            if outbox.len() >= most {
                return false;
            }
            outbox.push(message);
        }
        self.host.outbox_ready();
        true
    }
}
