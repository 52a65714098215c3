//! What lies between clients and the node: requests are late, or lost, or answered to nobody, or come twice.

use std::sync::Arc;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::{FetchCommand, Node, Reply};

use crate::model::Place;
use crate::wire;
use crate::world::{Core, Event, Outcome};

type Send = dyn FnOnce(&Arc<Node>, Now);

/// A request on its way.
pub(crate) struct Request(Box<Send>);

impl Request {
    pub(crate) fn arrive(self, node: &Arc<Node>, now: Now) {
        (self.0)(node, now);
    }
}

impl Core {
    /// Sends a request of `client`. The answer reaches it later, or the news that the connection is gone.
    pub(crate) fn ask<T: 'static>(
        &mut self,
        client: usize,
        wrap: fn(T) -> Outcome,
        send: impl FnOnce(&Arc<Node>, Now, Reply<T>) + 'static,
    ) {
        let Some((node, now)) = self.node() else {
            return;
        };
        self.operations += 1;
        let reply = self.reply(client, wrap);
        let number = self.requests;
        let bad = !self.healing && self.random.below(1_000) < self.swarm.network;
        let frozen = self.frozen_until.saturating_sub(self.clock);
        if !bad && frozen.is_zero() {
            return send(&node, now, reply);
        }
        let way = if bad { self.random.below(3) } else { 0 };
        match way {
            // Late.
            0 => {
                let late = match bad {
                    true => Duration::from_micros(self.random.below(200_000)),
                    false => Duration::ZERO,
                };
                let request = Request(Box::new(move |node, now| send(node, now, reply)));
                self.schedule_request(frozen + late, request);
            }
            // Lost before it came.
            1 => {
                sometimes(Mark::RequestLost);
                self.schedule_lost(client, number);
            }
            // Done, perhaps, and answered to nobody.
            _ => {
                sometimes(Mark::AnswerLost);
                let request = Request(Box::new(move |node, now| {
                    send(node, now, Reply::new(|_| {}))
                }));
                self.schedule_lost(client, number);
                match frozen.is_zero() {
                    true => request.arrive(&node, now),
                    false => self.schedule_request(frozen, request),
                }
            }
        }
    }

    /// Asks for records of one partition.
    pub(crate) fn ask_fetch(&mut self, client: usize, place: Place, command: FetchCommand) {
        let request = self
            .door
            .clone()
            .map(|door| (door, wire::fetch_request(&self.swarm, place, &command)));
        self.ask(
            client,
            Outcome::Fetch,
            move |node, now, reply| match request {
                Some((door, request)) => wire::fetch(&door, &request, now, reply),
                None => node.fetch(command, now, reply),
            },
        );
    }

    /// The node, for a client that asks it on a network that is never late; counts an operation.
    pub(crate) fn operate(&mut self) -> Option<(Arc<Node>, Now)> {
        if self.clock < self.frozen_until {
            return None;
        }
        let found = self.node()?;
        self.operations += 1;
        Some(found)
    }

    /// A reply that reaches `client`, unless it has given up waiting.
    pub(crate) fn reply<T: 'static>(&mut self, client: usize, wrap: fn(T) -> Outcome) -> Reply<T> {
        self.requests += 1;
        let number = self.requests;
        self.asking.insert(client, number);
        let inbox = Arc::clone(&self.inbox);
        Reply::new(move |answer| inbox.lock().push((client, number, wrap(answer))))
    }

    /// Sends once more, now or later, what was just sent; nobody waits for the answer.
    pub(crate) fn repeat<T: 'static>(
        &mut self,
        send: impl FnOnce(&Arc<Node>, Now, Reply<T>) + 'static,
    ) {
        if self.healing || self.random.below(1_000) >= self.swarm.network {
            return;
        }
        sometimes(Mark::RequestRepeated);
        let frozen = self.frozen_until.saturating_sub(self.clock);
        let later = frozen + Duration::from_micros(self.random.below(20_000));
        let request = Request(Box::new(move |node, now| {
            send(node, now, Reply::new(|_| {}))
        }));
        self.schedule_request(later, request);
    }

    fn schedule_request(&mut self, later: Duration, request: Request) {
        let event = Event::Arrive(self.connections, request);
        self.schedule(self.clock + later, event);
    }

    fn schedule_lost(&mut self, client: usize, number: u64) {
        let later = Duration::from_micros(1 + self.random.below(100_000));
        self.schedule(self.clock + later, Event::Lost(client, number));
    }
}
