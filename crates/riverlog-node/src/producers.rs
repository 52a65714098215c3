//! Producer ids: taken from the controller in blocks, handed out from memory. A block that is lost in a crash is never used.

use std::collections::VecDeque;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::metadata::{AdminAnswer, AdminCommand};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId};

use crate::command::Reply;
use crate::controller::AdminReply;
use crate::node::Node;

/// Ids in a block, as Kafka has it.
const BLOCK: i64 = 1_000;

type ProducerReply = Reply<Result<(ProducerId, ProducerEpoch), ErrorCode>>;

#[derive(Default)]
pub(crate) struct ProducerIds(Mutex<Pool>);

#[derive(Default)]
struct Pool {
    next: i64,
    end: i64,
    asked: bool,
    waiting: VecDeque<ProducerReply>,
}

impl Pool {
    fn take(&mut self) -> Option<ProducerId> {
        (self.next < self.end).then(|| {
            self.next += 1;
            ProducerId(self.next - 1)
        })
    }
}

impl Node {
    pub(crate) fn new_producer(&self, now: Now, reply: ProducerReply) {
        if self.is_closing() {
            return reply.send(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        let ask;
        {
            let mut pool = self.producers.0.lock();
            if let Some(id) = pool.take() {
                drop(pool);
                return reply.send(Ok((id, ProducerEpoch(0))));
            }
            if !self.coordinating.take(1) {
                drop(pool);
                return reply.send(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
            }
            pool.waiting.push_back(reply);
            ask = !std::mem::replace(&mut pool.asked, true);
        }
        if ask {
            self.ask_for_ids(now);
        }
    }

    fn ask_for_ids(&self, now: Now) {
        let command = AdminCommand::AllocateProducerIds { count: BLOCK };
        self.submit(command, AdminReply::ProducerIds, now);
    }

    /// The controller's answer.
    pub(crate) fn producer_ids_came(&self, answer: Result<AdminAnswer, ErrorCode>, now: Now) {
        let mut served = Vec::new();
        let more;
        {
            let mut pool = self.producers.0.lock();
            pool.asked = false;
            let error = match answer {
                Ok(AdminAnswer::ProducerIds { first, count }) => {
                    (pool.next, pool.end) = (first, first + count);
                    None
                }
                Ok(_) => Some(ErrorCode::UNKNOWN_SERVER_ERROR),
                // Clients try again after this one, which they don't after a storage error.
                Err(_) => Some(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            };
            while !pool.waiting.is_empty() {
                let result = match (error, pool.take()) {
                    (Some(error), _) => Err(error),
                    (None, Some(id)) => Ok((id, ProducerEpoch(0))),
                    (None, None) => break,
                };
                served.extend(pool.waiting.pop_front().map(|reply| (reply, result)));
            }
            more = !pool.waiting.is_empty();
            pool.asked = more;
        }
        for (reply, result) in served {
            self.coordinating.give(1);
            reply.send(result);
        }
        if more {
            self.ask_for_ids(now);
        }
    }
}
