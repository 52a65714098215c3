//! Commands that go to the controller of another node.

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::metadata::{AdminAnswer, AdminCommand, TopicImage, TopicRef};
use riverlog_wire::{BrokerId, ErrorCode, Offset};

use super::message::Message;
use super::{About, Forward};
use crate::controller::AdminReply;
use crate::node::Node;
use crate::timers::Timer;

/// How long an answer of the controller is waited for, at most. It may have been done all the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// For what a node says again and again until it is answered, in heartbeats: a message that is lost must not keep it from saying that
/// it lives, or that a follower lags, for as long as a client would wait.
const REPEATED: u32 = 2;

/// Forwarded commands that may wait for their answers.
const WAITING: usize = 10_000;

impl Node {
    /// Sends a command to the node that decides. NOT_CONTROLLER when nobody is known to. A client is answered once what it has
    /// changed is in this node's image.
    pub(crate) fn forward(&self, command: AdminCommand, reply: AdminReply, now: Now) {
        let to = self
            .controller_id()
            .filter(|to| *to != self.settings.broker);
        let Some(to) = to.filter(|_| Message::can_forward(&command)) else {
            return self.answer_admin(reply, Err(ErrorCode::NOT_CONTROLLER), now);
        };
        let patience = match &command {
            AdminCommand::Register { .. }
            | AdminCommand::Heartbeat { .. }
            | AdminCommand::AlterPartitions { .. } => {
                PATIENCE.min(self.settings.cluster.heartbeat * REPEATED)
            }
            _ => PATIENCE,
        };
        let deadline = now.mono + patience;
        let number = {
            let mut forwards = self.peers.forwards.lock();
            if forwards.waiting.len() >= WAITING {
                drop(forwards);
                let busy = Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED);
                return self.answer_admin(reply, busy, now);
            }
            forwards.next += 1;
            let number = forwards.next;
            let about = self.about(&command);
            let forward = Forward {
                reply,
                deadline,
                about,
                answer: None,
            };
            forwards.waiting.insert(number, forward);
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
        let position = self.image.load().position;
        let message = Message::Forwarded {
            number,
            answer,
            position,
        };
        self.send_peer(to, &message);
    }

    fn about(&self, command: &AdminCommand) -> About {
        match command {
            AdminCommand::CreateTopics { topics, .. } => {
                About::Made(topics.iter().map(|t| t.id).collect())
            }
            AdminCommand::DeleteTopics { topics } => {
                let image = self.image.load();
                let known = |topic: &TopicRef| match topic {
                    TopicRef::Name(name) => image.topic(name).cloned(),
                    TopicRef::Id(id) => image.topics.get(id).cloned(),
                };
                About::Were(topics.iter().map(known).collect())
            }
            _ => About::Nothing,
        }
    }

    pub(super) fn forward_answered(
        &self,
        number: i64,
        answer: Result<AdminAnswer, ErrorCode>,
        position: Offset,
        now: Now,
    ) {
        {
            let mut forwards = self.peers.forwards.lock();
            let Some(forward) = forwards.waiting.get_mut(&number) else {
                return;
            };
            forward.answer.get_or_insert((answer, position));
        }
        self.answer_forwards(now);
    }

    /// Gives the answers that have come, and that this node's image is up to.
    pub(crate) fn answer_forwards(&self, now: Now) {
        let ready: Vec<Forward> = {
            let mut forwards = self.peers.forwards.lock();
            let at = self.image.load().position;
            let is_ready = |f: &Forward| match (&f.answer, &f.reply) {
                (Some((_, position)), AdminReply::Client(_)) => at >= *position,
                (answer, _) => answer.is_some(),
            };
            let numbers = forwards.waiting.iter().filter(|(_, f)| is_ready(f));
            let numbers: Vec<i64> = numbers.map(|(number, _)| *number).collect();
            let take = |number: &i64| forwards.waiting.remove(number);
            numbers.iter().filter_map(take).collect()
        };
        for forward in ready {
            self.complete(forward, now);
        }
    }

    fn complete(&self, forward: Forward, now: Now) {
        // Without one it may have been done.
        let unknown = (Err(ErrorCode::REQUEST_TIMED_OUT), Offset::ZERO);
        let (mut answer, _) = forward.answer.unwrap_or(unknown);
        if let Ok(AdminAnswer::Results(results)) = &mut answer {
            let image = self.image.load();
            let topics: Vec<Option<Arc<TopicImage>>> = match forward.about {
                About::Nothing => Vec::new(),
                About::Made(ids) => {
                    let made = ids.iter().map(|id| image.topics.get(id).cloned());
                    made.collect()
                }
                About::Were(topics) => topics,
            };
            for (result, topic) in results.iter_mut().zip(topics) {
                if result.error == ErrorCode::NONE {
                    result.topic = topic;
                }
            }
        }
        self.answer_admin(forward.reply, answer, now);
    }

    /// Patience has ended with some.
    pub(crate) fn expire_forwards(&self, now: Now) {
        self.give_up_forwards(now, |f| f.deadline <= now.mono);
    }

    /// Another node decides from now on, and what the one before didn't answer it won't answer any more: whoever asked asks again at
    /// once. What was answered waits for its entry as before.
    pub(crate) fn forwards_are_lost(&self, now: Now) {
        self.give_up_forwards(now, |f| f.answer.is_none());
    }

    fn give_up_forwards(&self, now: Now, is_given_up: impl Fn(&Forward) -> bool) {
        let given_up: Vec<Forward> = {
            let mut forwards = self.peers.forwards.lock();
            let found = forwards.waiting.iter().filter(|(_, f)| is_given_up(f));
            let numbers: Vec<i64> = found.map(|(number, _)| *number).collect();
            numbers
                .iter()
                .filter_map(|number| forwards.waiting.remove(number))
                .collect()
        };
        for forward in given_up {
            self.complete(forward, now);
        }
    }
}
