//! A node's own place in its cluster: it registers, says that it lives, and gives its leaderships away before it stops.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::metadata::{
    AdminAnswer, AdminCommand, BrokerImage, FencedLately, MetadataImage,
};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ErrorCode, Offset};

use crate::command::Reply;
use crate::controller::AdminReply;
use crate::node::Node;
use crate::quorum::Quorum;
use crate::timers::Timer;

/// Clients that may wait until the node is let in.
const WAITING: usize = 10_000;

pub(crate) struct Membership {
    state: Mutex<State>,
    /// When the session ends that the controller has confirmed last, in nanoseconds of the monotonic clock.
    ends: AtomicU64,
    /// This life of the node was let in once.
    was_let_in: AtomicBool,
    fenced_lately: Mutex<FencedLately>,
    /// Who waits to be let in, and until when.
    waiting: Mutex<Vec<(Duration, Reply<bool>)>>,
    /// Of what it leads something is left to others, see [`Node::step_aside`].
    pub(crate) aside: AtomicBool,
    /// Who asked for metadata meanwhile.
    pub(crate) asked_aside: AtomicU64,
}

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
    /// When that went out.
    asked_at: Duration,
    /// Until when a heartbeat was confirmed, with the metadata that the controller had then and this node hasn't applied yet: others may
    /// lead by it what this one led.
    confirmed: Option<(Duration, Offset)>,
}

impl Membership {
    pub(crate) fn new(incarnation: u128, quorum: Quorum) -> Membership {
        Membership {
            state: Mutex::new(State {
                incarnation,
                epoch: None,
                fenced: true,
                caught_up: false,
                stopping: false,
                may_stop: false,
                asked: false,
                asked_at: Duration::ZERO,
                confirmed: None,
            }),
            ends: AtomicU64::new(match quorum {
                // Nobody has to confirm it.
                Quorum::Own => u64::MAX,
                Quorum::Shared => 0,
            }),
            was_let_in: AtomicBool::new(quorum == Quorum::Own),
            fenced_lately: Mutex::default(),
            waiting: Mutex::default(),
            aside: AtomicBool::new(false),
            asked_aside: AtomicU64::new(0),
        }
    }

    pub(crate) fn incarnation(&self) -> u128 {
        self.state.lock().incarnation
    }

    /// Under which this life is registered.
    pub(crate) fn broker_epoch(&self) -> Option<i64> {
        self.state.lock().epoch
    }

    /// Nobody takes this node for gone before that.
    fn lives_until(&self, end: Duration) {
        let nanos = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX);
        self.ends.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Whether the controller may have taken this node for gone: it has confirmed nothing for a whole session.
    pub(crate) fn has_lapsed(&self, now: Duration) -> bool {
        let ends = Duration::from_nanos(self.ends.load(Ordering::Relaxed));
        now > ends && !active(Mutant::NeverAside)
    }
}

impl Node {
    /// Whether a node of a cluster is let in: it may lead and be in sync. A node alone always is.
    pub fn is_let_in(&self) -> bool {
        match self.settings.quorum {
            Quorum::Own => true,
            Quorum::Shared => !self.membership.state.lock().fenced,
        }
    }

    /// Whether this life of the node was let in, and so has applied all metadata that there was when it began. Until then a topic that it
    /// doesn't know may be there, and so may all other nodes. A node alone always was.
    pub fn was_let_in(&self) -> bool {
        self.membership.was_let_in.load(Ordering::Acquire)
    }

    /// Whether clients are to be told of a node: of all until this one was let in, as it can't tell before who else is; and then of those that
    /// are let in, or were within a session.
    pub fn lists(&self, broker: &BrokerImage) -> bool {
        !broker.fenced || !self.was_let_in() || {
            if active(Mutant::FencedNotListed) {
                return false;
            }
            let lately = self.membership.fenced_lately.lock();
            lately.contains(broker.id, self.settings.cluster.session, self.latest())
        }
    }

    /// Answers once this life of the node was let in; `false` when that takes longer than `patience` (to the next heartbeat), when too many
    /// wait, and at a stop.
    pub fn when_let_in(&self, patience: Duration, now: Now, reply: Reply<bool>) {
        self.saw(now);
        {
            let mut waiting = self.membership.waiting.lock();
            if !self.was_let_in() && waiting.len() < WAITING && !self.is_closing() {
                return waiting.push((now.mono + patience, reply));
            }
        }
        reply.send(self.was_let_in());
    }

    /// Answers those who wait no longer to be told of, and all of them once there is nothing to wait for.
    pub(crate) fn answer_waiting_to_be_let_in(&self, now: Now) {
        let all = self.was_let_in() || self.is_closing();
        let due: Vec<_> = {
            let mut waiting = self.membership.waiting.lock();
            waiting
                .extract_if(.., |(until, _)| all || *until <= now.mono)
                .collect()
        };
        for (_, reply) in due {
            reply.send(self.was_let_in());
        }
    }

    /// What is not known yet isn't unknown.
    pub(crate) fn or_not_yet(&self, error: ErrorCode) -> ErrorCode {
        let unknown = [
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode::UNKNOWN_TOPIC_ID,
        ];
        match unknown.contains(&error) && !self.was_let_in() {
            true => ErrorCode::NOT_LEADER_OR_FOLLOWER,
            false => error,
        }
    }

    /// This node is to stop: the controller moves what it leads to others. [`Node::may_stop`] says when that is done; then, or
    /// when it takes too long, comes [`Node::close`].
    pub fn prepare_to_stop(&self, now: Now) {
        self.saw(now);
        self.membership.state.lock().stopping = true;
        if self.settings.quorum == Quorum::Shared {
            self.beat(now);
        }
    }

    /// Whether nobody counts on this node any more, after [`Node::prepare_to_stop`]: what is led here has no other copy that is up
    /// to it. A node alone may always stop.
    pub fn may_stop(&self) -> bool {
        self.settings.quorum == Quorum::Own || self.membership.state.lock().may_stop
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
        self.answer_waiting_to_be_let_in(now);
        self.step_aside(now);
        let next = now.mono + self.settings.cluster.heartbeat;
        if self.is_controller() {
            self.fence_the_gone(now);
            self.fence_the_silent(next, now);
            self.rebalance_when_on(now);
        }
        let (_, first) = self.timers.add(next, Timer::Heartbeat);
        if first {
            self.host.deadline_changed();
        }
    }

    /// Registers, or says that this node lives.
    pub(crate) fn beat(&self, now: Now) {
        let ailing = self.is_ailing(now);
        let command = {
            let mut state = self.membership.state.lock();
            let free = !std::mem::replace(&mut state.asked, true);
            if free {
                state.asked_at = now.mono;
            }
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
                    ailing,
                };
                self.submit(command, AdminReply::Heartbeat, now);
            }
            Some((None, _)) => self.register(now),
            None => {}
        }
    }

    /// `next`: when it looks again anyway; a session that ends before that is looked at when it does.
    pub(crate) fn fence_the_silent(&self, next: Duration, now: Now) {
        if !self.is_controller() {
            return;
        }
        let (expired, ends) = {
            let image = self.image.load();
            let session = self.settings.cluster.session;
            let mut state = self.controller.state.lock();
            let expired = state.sessions.expired(&image, session, now);
            (expired, state.sessions.next(&image, session, now))
        };
        for command in expired {
            self.submit(command, AdminReply::Nobody, now);
        }
        if let Some(at) = ends.filter(|at| *at < next) {
            let (_, first) = self.timers.add(at, Timer::Silence);
            if first {
                self.host.deadline_changed();
            }
        }
    }

    /// This node's registration was answered. What it means is in the image.
    pub(crate) fn joined(&self, _answer: Result<AdminAnswer, ErrorCode>) {
        self.membership.state.lock().asked = false;
    }

    pub(crate) fn heartbeat_answered(&self, answer: Result<AdminAnswer, ErrorCode>, now: Now) {
        let image = self.image();
        let mut first = false;
        {
            let mut state = self.membership.state.lock();
            state.asked = false;
            match answer {
                Ok(AdminAnswer::Heartbeat {
                    may_stop,
                    position,
                    silent,
                    ..
                }) => {
                    // The controller counts from when it heard this, which was later. Another one counts from when it was elected, which was
                    // after a majority had answered this one.
                    let session = self.settings.cluster.session;
                    let end = (state.asked_at + session).checked_sub(silent);
                    let waits = state.confirmed.is_some_and(|(_, until)| until <= position);
                    if let Some(end) = end.filter(|_| !waits) {
                        state.confirmed = Some((end, position));
                    }
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
        self.metadata_applied(now);
        if !self.is_let_in() && first {
            self.beat(now);
        }
    }

    /// The session lasts on when the node has the metadata that the controller had as it confirmed that.
    pub(crate) fn metadata_applied(&self, now: Now) {
        let image = self.image.load();
        let position = image.position;
        let lately = &self.membership.fenced_lately;
        lately.lock().applied(&image, now.mono);
        let confirmed = {
            let mut state = self.membership.state.lock();
            state.confirmed.take_if(|(_, until)| position >= *until)
        };
        if let Some((end, _)) = confirmed {
            self.membership.lives_until(end);
        }
        if self.is_aside() {
            self.step_aside(now);
        }
    }

    /// Whether an image knows of this life of the node.
    pub(crate) fn is_known_in(&self, image: &MetadataImage) -> bool {
        self.settings.quorum == Quorum::Own || {
            let known = image.brokers.get(&self.settings.broker);
            known.is_some_and(|b| b.incarnation == self.membership.state.lock().incarnation)
        }
    }

    /// As [`Node::is_known_in`], of an image that is about to count; takes note of what it says.
    pub(crate) fn is_registered_in(&self, image: &MetadataImage, now: Now) -> bool {
        if self.settings.quorum == Quorum::Own {
            return true;
        }
        let known = image.brokers.get(&self.settings.broker);
        let mut state = self.membership.state.lock();
        let mine = known.filter(|b| b.incarnation == state.incarnation);
        let Some(mine) = mine else {
            return active(Mutant::OldImageLeads);
        };
        let news = state.epoch != Some(mine.epoch);
        let let_in = state.fenced && !mine.fenced;
        state.epoch = Some(mine.epoch);
        state.fenced = mine.fenced;
        drop(state);
        if let_in {
            // Who waits is answered by the next heartbeat: this image doesn't count yet.
            self.membership.was_let_in.store(true, Ordering::Release);
            let (_, first) = self.timers.add(now.mono, Timer::BeatSoon);
            if first {
                self.host.deadline_changed();
            }
        }
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
