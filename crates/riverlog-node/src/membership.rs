//! A node's own place in its cluster: it registers, says that it lives, and gives its leaderships away before it stops.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::metadata::{AdminAnswer, AdminCommand, MetadataImage};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::ErrorCode;

use crate::controller::AdminReply;
use crate::node::Node;
use crate::quorum::Quorum;
use crate::timers::Timer;

pub(crate) struct Membership(Mutex<State>);

struct State {
    /// Drawn for this registration.
    incarnation: u128,
    /// Once the image knows of it.
    epoch: Option<i64>,
    fenced: bool,
    /// The image has everything that was committed before this node's last life.
    caught_up: bool,
    stopping: bool,
    may_stop: bool,
    /// A registration or a heartbeat is out.
    asked: bool,
}

impl Membership {
    pub(crate) fn new(incarnation: u128) -> Membership {
        Membership(Mutex::new(State {
            incarnation,
            epoch: None,
            fenced: true,
            caught_up: false,
            stopping: false,
            may_stop: false,
            asked: false,
        }))
    }

    pub(crate) fn incarnation(&self) -> u128 {
        self.0.lock().incarnation
    }

    /// Under which this life is registered.
    pub(crate) fn broker_epoch(&self) -> Option<i64> {
        self.0.lock().epoch
    }
}

impl Node {
    /// Whether a node of a cluster is let in: it may lead and be in sync. A node alone always is.
    pub fn is_let_in(&self) -> bool {
        match self.settings.quorum {
            Quorum::Own => true,
            Quorum::Shared => !self.membership.0.lock().fenced,
        }
    }

    /// This node is to stop: the controller moves what it leads to others. [`Node::may_stop`] says when that is done; then, or
    /// when it takes too long, comes [`Node::close`].
    pub fn prepare_to_stop(&self, now: Now) {
        self.saw(now);
        self.membership.0.lock().stopping = true;
        if self.settings.quorum == Quorum::Shared {
            self.beat(now);
        }
    }

    /// Whether nobody counts on this node any more, after [`Node::prepare_to_stop`]: what is led here has no other copy that is up
    /// to it. A node alone may always stop.
    pub fn may_stop(&self) -> bool {
        self.settings.quorum == Quorum::Own || self.membership.0.lock().may_stop
    }

    /// The first steps of a node in a cluster.
    pub(crate) fn join(&self, now: Now) {
        self.follow_rates(&self.settings.configs);
        for timer in [Timer::Heartbeat, Timer::InSync] {
            let (_, first) = self.timers.add(now.mono, timer);
            if first {
                self.host.deadline_changed();
            }
        }
    }

    /// The timer of heartbeats came due.
    pub(crate) fn beat_and_go_on(&self, now: Now) {
        self.beat(now);
        if self.is_controller() {
            self.fence_the_silent(now);
            self.rebalance_when_on(now);
        }
        let next = now.mono + self.settings.cluster.heartbeat;
        let (_, first) = self.timers.add(next, Timer::Heartbeat);
        if first {
            self.host.deadline_changed();
        }
    }

    /// Registers, or says that this node lives.
    pub(crate) fn beat(&self, now: Now) {
        let command = {
            let mut state = self.membership.0.lock();
            let free = !std::mem::replace(&mut state.asked, true);
            free.then_some((state.epoch, state.stopping))
        };
        match command {
            _ if self.is_closing() => {}
            Some((Some(epoch), stopping)) => {
                let command = AdminCommand::Heartbeat {
                    broker: self.settings.broker,
                    epoch,
                    position: self.image.load().position,
                    stopping,
                };
                self.submit(command, AdminReply::Heartbeat, now);
            }
            Some((None, _)) => self.register(now),
            None => {}
        }
    }

    fn fence_the_silent(&self, now: Now) {
        let expired = {
            let image = self.image.load();
            let session = self.settings.cluster.session;
            let mut state = self.controller.state.lock();
            state.sessions.expired(&image, session, now)
        };
        for command in expired {
            self.submit(command, AdminReply::Nobody, now);
        }
    }

    /// This node's registration was answered. What it means is in the image.
    pub(crate) fn joined(&self, _answer: Result<AdminAnswer, ErrorCode>) {
        self.membership.0.lock().asked = false;
    }

    pub(crate) fn heartbeat_answered(&self, answer: Result<AdminAnswer, ErrorCode>, now: Now) {
        let image = self.image();
        let mut first = false;
        {
            let mut state = self.membership.0.lock();
            state.asked = false;
            match answer {
                Ok(AdminAnswer::Heartbeat {
                    may_stop, position, ..
                }) => {
                    first = image.position >= position && !state.caught_up;
                    state.caught_up |= first;
                    state.may_stop = may_stop && image.position >= position;
                }
                Ok(AdminAnswer::Results(results))
                    if results
                        .iter()
                        .any(|r| r.error == ErrorCode::STALE_BROKER_EPOCH) =>
                {
                    // Somebody has unregistered it, or runs another node under its id.
                    let known = image.brokers.get(&self.settings.broker);
                    if known.is_none_or(|b| b.incarnation != state.incarnation) {
                        state.incarnation = self.entropy.next_u128().max(1);
                        state.epoch = None;
                        state.fenced = true;
                    }
                }
                _ => {}
            }
        }
        if first {
            self.remove_strays(&image);
        }
        if !self.is_let_in() && first {
            self.beat(now);
        }
    }

    /// Whether an image knows of this life of the node.
    pub(crate) fn is_known_in(&self, image: &MetadataImage) -> bool {
        self.settings.quorum == Quorum::Own || {
            let known = image.brokers.get(&self.settings.broker);
            known.is_some_and(|b| b.incarnation == self.membership.0.lock().incarnation)
        }
    }

    /// As [`Node::is_known_in`], of an image that is about to count; takes note of what it says.
    pub(crate) fn is_registered_in(&self, image: &MetadataImage, now: Now) -> bool {
        if self.settings.quorum == Quorum::Own {
            return true;
        }
        let known = image.brokers.get(&self.settings.broker);
        let mut state = self.membership.0.lock();
        let mine = known.filter(|b| b.incarnation == state.incarnation);
        let Some(mine) = mine else {
            return active(Mutant::OldImageLeads);
        };
        let news = state.epoch != Some(mine.epoch);
        state.epoch = Some(mine.epoch);
        state.fenced = mine.fenced;
        drop(state);
        self.registered.store(true, Ordering::Relaxed);
        if news {
            // Asks for records and heartbeats carry it.
            let (_, first) = self.timers.add(now.mono, Timer::BeatSoon);
            if first {
                self.host.deadline_changed();
            }
            self.ask_all_later(now);
        }
        true
    }
}
