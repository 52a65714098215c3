//! Commands that go to the controller of another node.

use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::metadata::{AdminAnswer, AdminCommand};
use riverlog_wire::{BrokerId, ErrorCode};

use super::Forward;
use super::message::Message;
use crate::controller::AdminReply;
use crate::node::Node;
use crate::timers::Timer;

/// How long an answer of the controller is waited for. It may have been done all the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// Forwarded commands that may wait for their answers.
const WAITING: usize = 10_000;

impl Node {
    /// Sends a command to the node that decides. NOT_CONTROLLER when nobody is known to, or the command is one that clients
    /// send there themselves.
    pub(crate) fn forward(&self, command: AdminCommand, reply: AdminReply, now: Now) {
        let to = self
            .controller_id()
            .filter(|to| *to != self.settings.broker);
        let Some(to) = to.filter(|_| Message::can_forward(&command)) else {
            return self.answer_admin(reply, Err(ErrorCode::NOT_CONTROLLER), now);
        };
        let deadline = now.mono + PATIENCE;
        let number = {
            let mut forwards = self.peers.forwards.lock();
            if forwards.waiting.len() >= WAITING {
                drop(forwards);
                let busy = Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED);
                return self.answer_admin(reply, busy, now);
            }
            forwards.next += 1;
            let number = forwards.next;
            forwards.waiting.insert(number, Forward { reply, deadline });
            number
        };
        self.send_peer(to, &Message::Forward { number, command });
        let (_, first) = self.timers.add(deadline, Timer::Forwards);
        if first {
            self.host.deadline_changed();
        }
    }

    /// Another node asks this one to decide.
    pub(super) fn forwarded_here(
        &self,
        from: BrokerId,
        number: i64,
        command: AdminCommand,
        now: Now,
    ) {
        let reply = AdminReply::Peer { from, number };
        if !self.is_controller() {
            return self.answer_admin(reply, Err(ErrorCode::NOT_CONTROLLER), now);
        }
        self.submit(command, reply, now);
    }

    pub(crate) fn answer_peer(
        &self,
        to: BrokerId,
        number: i64,
        answer: Result<AdminAnswer, ErrorCode>,
    ) {
        self.send_peer(to, &Message::Forwarded { number, answer });
    }

    pub(super) fn forward_answered(
        &self,
        number: i64,
        answer: Result<AdminAnswer, ErrorCode>,
        now: Now,
    ) {
        let waiting = self.peers.forwards.lock().waiting.remove(&number);
        if let Some(forward) = waiting {
            self.answer_admin(forward.reply, answer, now);
        }
    }

    /// Patience has ended with some.
    pub(crate) fn expire_forwards(&self, now: Now) {
        let expired: Vec<Forward> = {
            let mut forwards = self.peers.forwards.lock();
            let due = |f: &Forward| f.deadline <= now.mono;
            let numbers = forwards.waiting.iter().filter(|(_, f)| due(f));
            let numbers: Vec<i64> = numbers.map(|(number, _)| *number).collect();
            numbers
                .iter()
                .filter_map(|number| forwards.waiting.remove(number))
                .collect()
        };
        for forward in expired {
            self.answer_admin(forward.reply, Err(ErrorCode::REQUEST_TIMED_OUT), now);
        }
    }
}
