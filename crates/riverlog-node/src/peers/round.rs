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
        let Some(bytes) = message.encode() else {
            return;
        };
        self.post(PeerMessage::new(to, bytes.clone()), OUTBOX);
        let Some(what) = is_passed(&bytes) else {
            return;
        };
        let (me, controller) = (self.settings.broker, self.controller_id());
        let by = {
            let detours = self.peers.detours.lock();
            detours.way_round(me, to, what, controller, now.mono)
        };
        if let Some(by) = by {
            let message = bytes;
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
        if !Detours::may_pass(from, me, to, &self.image.load()) || is_passed(&message).is_none() {
            return self.peer_message_refused();
        }
        let Some(bytes) = (Message::PassedOn { from, message }).encode() else {
            return;
        };
        if self.post(PeerMessage::new(to, bytes), OUTBOX_FOR_OTHERS) {
            let passed_on = &self.metrics.peer_messages_passed_on;
            passed_on.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Something came by way of another node.
    pub(super) fn came_round(&self, from: BrokerId, by: BrokerId, message: &Bytes, now: Now) {
        let image = self.image.load_full();
        let what = Message::may_go_round(message);
        let what = what.filter(|_| Detours::may_pass(from, by, self.settings.broker, &image));
        let inner = what.and_then(|what| Some((what, Message::decode(message).ok()?)));
        let Some((what, message)) = inner else {
            return self.peer_message_refused();
        };
        if what == Roundabout::Question {
            let mut detours = self.peers.detours.lock();
            detours.asked_round(from, &image, now.mono);
        }
        self.on_message(from, message, now);
    }
}

/// What it is if it is something that may go round, and short enough for it.
fn is_passed(message: &Bytes) -> Option<Roundabout> {
    Message::may_go_round(message).filter(|_| message.len() <= LONGEST)
}
