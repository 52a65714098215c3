//! What goes by way of another node ([`Detours`] says when, and by which).
//!
//! It is passed on once, as it came, and held by nobody: what doesn't arrive is asked again by whoever has asked. Epochs in the message say
//! what they say in one that comes directly, so that what arrives late or twice is taken as if the network had kept it.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::metadata::{Detours, Roundabout};
use riverlog_wire::BrokerId;

use super::message::Message;
use super::{OUTBOX, PeerMessage};
use crate::node::Node;

/// What is longer isn't passed on: the way of the one in between is for its own copies first.
const LONGEST: usize = 1 << 20;

/// Nothing is passed on while more of this node's own messages wait.
const OUTBOX_FOR_OTHERS: usize = OUTBOX / 2;

impl Node {
    /// Says something that does no harm when it comes twice: directly, and by way of another node where that may be needed.
    pub(crate) fn say(&self, to: BrokerId, message: &Message, now: Now) {
        self.send_peer(to, message);
        let Some(what) = message.may_go_round() else {
            return;
        };
        let (me, controller) = (self.settings.broker, self.controller_id());
        let by = {
            let detours = self.peers.detours.lock();
            detours.way_round(me, to, what, controller, now.mono)
        };
        if let Some(by) = by
            && let Some(message) = message.encode().filter(|bytes| bytes.len() <= LONGEST)
        {
            self.send_peer(by, &Message::PassOn { to, message });
        }
    }

    /// A node that was asked directly hasn't answered.
    pub(crate) fn does_not_answer(&self, node: BrokerId, now: Now) {
        let image = self.image.load();
        let mut detours = self.peers.detours.lock();
        detours.unanswered(node, &image, now.mono);
    }

    /// A node has sent something for another one.
    pub(super) fn pass_on(&self, from: BrokerId, to: BrokerId, message: Bytes) {
        let me = self.settings.broker;
        if !Detours::may_pass(from, me, to, &self.image.load()) || !is_passed(&message) {
            return self.peer_message_refused();
        }
        let Some(bytes) = (Message::PassedOn { from, message }).encode() else {
            return;
        };
        {
            let mut outbox = self.peers.outbox.lock();
            if outbox.len() >= OUTBOX_FOR_OTHERS {
                return;
            }
            outbox.push(PeerMessage {
                to,
                bytes,
                catches_up: false,
            });
        }
        let passed_on = &self.metrics.peer_messages_passed_on;
        passed_on.fetch_add(1, Ordering::Relaxed);
        self.host.outbox_ready();
    }

    /// Something came by way of another node.
    pub(super) fn came_round(&self, from: BrokerId, by: BrokerId, message: &Bytes, now: Now) {
        let image = self.image.load_full();
        let inner = Message::decode(message).ok();
        let inner = inner.filter(|_| Detours::may_pass(from, by, self.settings.broker, &image));
        let Some((message, what)) = inner.and_then(|m| m.may_go_round().map(|what| (m, what)))
        else {
            return self.peer_message_refused();
        };
        if what == Roundabout::Question {
            let mut detours = self.peers.detours.lock();
            detours.asked_round(from, &image, now.mono);
        }
        self.on_message(from, message, now);
    }
}

/// Whether it is something that may go round, and short enough for it.
fn is_passed(message: &Bytes) -> bool {
    message.len() <= LONGEST
        && Message::decode(message).is_ok_and(|message| message.may_go_round().is_some())
}
