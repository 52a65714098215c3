//! What is asked across nodes: a partition's leader asks the coordinator of a transaction, that one has markers written by leaders, and the leader of
//! a bounded partition asks the coordinators of groups what is committed.
//!
//! All are asked again until they are answered, by way of another node as well when the one that is meant keeps silent, and do no harm when they
//! come twice: a partition that is in a transaction already isn't added again, a marker that is there isn't written again, and what a coordinator of
//! groups has promised lasts a little longer.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::metadata::{TopicRef, UNANSWERED};
use riverlog_core::transactions::{Place, TransactionAnswer, TransactionCommand};
use riverlog_log::Marker;
use riverlog_wire::{BrokerId, ErrorCode};

use super::Message;
use crate::append::Together;
use crate::command::Reply;
use crate::groups::least::{Least, LeastAsk};
use crate::node::Node;
use crate::quorum::Quorum;
use crate::timers::Timer;

/// How long an answer is waited for. What was asked may have been done all the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause between the second time that something is asked and the next: a marker that is there may wait for the in-sync replicas.
const AGAIN: Duration = Duration::from_secs(2);

/// The same of what is committed: for less than a round of questions may take ([`crate::groups::least::VALID`]) no answer is of use.
const SHORT_PATIENCE: Duration = Duration::from_secs(2);

/// Questions that may wait for their answers.
const WAITING: usize = 10_000;

/// What another node answers.
pub(super) enum Said {
    Transaction(TransactionAnswer),
    Least(Least),
}

/// What other nodes were asked.
#[derive(Default)]
pub(super) struct Asked {
    /// Begins anywhere, so that an answer to an earlier life is none to this one.
    next: Option<i64>,
    waiting: BTreeMap<i64, Waiting>,
    /// When they are looked at next.
    look: Option<Duration>,
}

struct Waiting {
    to: BrokerId,
    question: Message,
    /// When it is put again.
    again: Duration,
    deadline: Duration,
    reply: Reply<Result<Said, ErrorCode>>,
}

/// A reply for who has asked about a transaction.
fn of_transaction(reply: Reply<TransactionAnswer>) -> Reply<Result<Said, ErrorCode>> {
    Reply::new(move |said| {
        reply.send(match said {
            Ok(Said::Transaction(answer)) => answer,
            Ok(Said::Least(_)) => TransactionAnswer::Error(ErrorCode::UNKNOWN_SERVER_ERROR),
            Err(error) => TransactionAnswer::Error(error),
        });
    })
}

impl Node {
    /// [`Node::transaction`] for a partition's leader: where another node coordinates the transactional id, that one is asked.
    /// Only Add and Verify.
    pub(crate) fn ask_coordinator(
        &self,
        command: TransactionCommand,
        now: Now,
        reply: Reply<TransactionAnswer>,
    ) {
        if self.settings.quorum == Quorum::Own {
            return self.transaction(command, now, reply);
        }
        match self.transaction_coordinator(command.id(), now) {
            Some(to) if to != self.settings.broker => {
                let message = |number| Message::Transaction { number, command };
                self.ask_node(to, message, PATIENCE, now, of_transaction(reply));
            }
            // Also where nobody coordinates it: that is what is answered then.
            _ => self.transaction(command, now, reply),
        }
    }

    /// Has a marker written by whoever leads its partition. The errors are those of [`Node::write_marker`]; UNKNOWN_TOPIC_OR_PARTITION
    /// only where this node's own metadata doesn't have the topic any more. What a partition of this node has left to do is for
    /// [`Node::settle_all`].
    pub(crate) fn write_marker_at_leader(
        &self,
        place: &Place,
        marker: Marker,
        now: Now,
        reply: Reply<Result<(), ErrorCode>>,
        together: &mut Together,
    ) {
        let topic = TopicRef::Name(place.0.clone());
        let error = match self.partition(&topic, place.1) {
            Ok(partition) => {
                return self.append_marker(&partition.0, &marker, now, reply, together);
            }
            Err(error) => error,
        };
        let image = self.image.load();
        let known = image.topic(&place.0).map(|topic| {
            let index = usize::try_from(place.1).ok();
            index.and_then(|i| topic.partitions.get(i)?.leader)
        });
        match known {
            Some(Some(to)) if to != self.settings.broker => {
                let (topic, partition) = place.clone();
                let message = |number| Message::Marker {
                    number,
                    topic,
                    partition,
                    marker,
                };
                let reply = Reply::new(move |answer| {
                    reply.send(match answer {
                        TransactionAnswer::Error(ErrorCode::NONE) => Ok(()),
                        // It may not have heard of the topic yet.
                        TransactionAnswer::Error(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {
                            Err(ErrorCode::NOT_LEADER_OR_FOLLOWER)
                        }
                        TransactionAnswer::Error(error) => Err(error),
                        _ => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
                    });
                });
                self.ask_node(to, message, PATIENCE, now, of_transaction(reply));
            }
            _ => reply.send(Err(error)),
        }
    }

    /// The leader of a bounded partition asks another node that coordinates groups.
    pub(crate) fn ask_least(&self, to: BrokerId, ask: LeastAsk, now: Now, reply: Reply<Least>) {
        let reply = Reply::new(move |said| {
            reply.send(match said {
                Ok(Said::Least(least)) => least,
                Ok(Said::Transaction(_)) => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
                Err(error) => Err(error),
            });
        });
        let message = |number| Message::LeastAsk { number, ask };
        self.ask_node(to, message, SHORT_PATIENCE, now, reply);
    }

    fn ask_node(
        &self,
        to: BrokerId,
        message: impl FnOnce(i64) -> Message,
        patience: Duration,
        now: Now,
        reply: Reply<Result<Said, ErrorCode>>,
    ) {
        let deadline = now.mono + patience;
        let again = now.mono + UNANSWERED;
        let question = {
            let mut asked = self.peers.asked.lock();
            if asked.waiting.len() >= WAITING {
                drop(asked);
                return reply.send(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
            }
            let number = match asked.next {
                Some(next) => next,
                None => (self.entropy.next_u128() >> 68) as i64,
            };
            asked.next = Some(number + 1);
            let question = message(number);
            let waiting = Waiting {
                to,
                question: question.clone(),
                again,
                deadline,
                reply,
            };
            asked.waiting.insert(number, waiting);
            question
        };
        self.say(to, &question, now);
        self.look_at_asked(again);
    }

    /// No later than `at`.
    fn look_at_asked(&self, at: Duration) {
        {
            let mut asked = self.peers.asked.lock();
            if asked.look.is_some_and(|look| look <= at) {
                return;
            }
            asked.look = Some(at);
        }
        let (_, first) = self.timers.add(at, Timer::Asked);
        if first {
            self.host.deadline_changed();
        }
    }

    /// A partition's leader asks this node, which coordinates the transactional id.
    pub(super) fn asked_as_coordinator(
        &self,
        from: BrokerId,
        number: i64,
        command: TransactionCommand,
        now: Now,
    ) {
        let places = match &command {
            TransactionCommand::Add { partitions, .. }
            | TransactionCommand::Verify { partitions, .. } => partitions,
            _ => return,
        };
        // A topic that isn't known here yet would look like a deleted one when its marker is due.
        let image = self.image.load();
        if !places.iter().all(|(name, _)| image.topic(name).is_some()) {
            let answer = TransactionAnswer::Error(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
            return self.say(from, &Message::Told { number, answer }, now);
        }
        let node = self.this.clone();
        let reply = Reply::new(move |answer| {
            if let Some(node) = node.upgrade() {
                node.say(from, &Message::Told { number, answer }, node.as_of(now));
            }
        });
        self.transaction(command, now, reply);
    }

    /// A coordinator has a marker written here.
    pub(super) fn marker_asked(
        &self,
        from: BrokerId,
        number: i64,
        (topic, partition): (String, i32),
        marker: Marker,
        now: Now,
    ) {
        let node = self.this.clone();
        let reply = Reply::new(move |answer: Result<(), ErrorCode>| {
            if let Some(node) = node.upgrade() {
                let error = answer.err().unwrap_or(ErrorCode::NONE);
                let answer = TransactionAnswer::Error(error);
                node.say(from, &Message::Told { number, answer }, node.as_of(now));
            }
        });
        match self.partition(&TopicRef::Name(topic), partition) {
            Ok(partition) => self.write_marker(&partition, marker, now, reply),
            Err(error) => reply.send(Err(error)),
        }
    }

    pub(super) fn told_by_node(&self, from: BrokerId, number: i64, said: Said) {
        let waiting = {
            let mut asked = self.peers.asked.lock();
            let is_asked = asked.waiting.get(&number).is_some_and(|w| w.to == from);
            is_asked.then(|| asked.waiting.remove(&number)).flatten()
        };
        if let Some(waiting) = waiting {
            waiting.reply.send(Ok(said));
        }
    }

    /// Time has come for some: their patience has ended, or they are put again.
    pub(crate) fn asked_due(&self, now: Now) {
        let (expired, again, next) = {
            let mut asked = self.peers.asked.lock();
            let due = asked.waiting.iter().filter(|(_, w)| w.deadline <= now.mono);
            let numbers: Vec<i64> = due.map(|(number, _)| *number).collect();
            let take = |number: &i64| asked.waiting.remove(number);
            let expired: Vec<Waiting> = numbers.iter().filter_map(take).collect();
            let mut again = Vec::new();
            for waiting in asked.waiting.values_mut().filter(|w| w.again <= now.mono) {
                waiting.again = now.mono + AGAIN;
                again.push((waiting.to, waiting.question.clone()));
            }
            let each = asked.waiting.values();
            let next = each.map(|w| w.again.min(w.deadline)).min();
            asked.look = None;
            (expired, again, next)
        };
        for (to, question) in again {
            self.does_not_answer(to, now);
            self.say(to, &question, now);
        }
        for waiting in expired {
            let error = ErrorCode::COORDINATOR_NOT_AVAILABLE;
            waiting.reply.send(Err(error));
        }
        if let Some(next) = next {
            self.look_at_asked(next);
        }
    }
}
