//! What share groups have in flight on the partitions that are led here.
//!
//! It is loaded from the coordinator when a member first asks. Changes go to the coordinator one write at a time, each with
//! all that has gathered meanwhile; who acknowledged is answered when the write that holds it is durable. When a write
//! fails, all that is in flight is dropped and loaded anew: nothing is rolled back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::groups::Topics;
use riverlog_core::metadata::TopicRef;
use riverlog_core::share::{
    Acknowledgement, OffsetReset, ShareAnswer, ShareCommand, ShareKey, SharePartition,
};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::{ErrorCode, LeaderEpoch, Offset, TopicId};

use super::asks::Asks;
use super::fetch::ShareList;
use crate::command::{Isolation, OffsetAnswer, OffsetQuery, Reply};
use crate::node::Node;
use crate::partition::{Partition, State};
use crate::timers::Timer;

/// How long a load that found no coordinator waits before it is tried again.
const LOAD_PAUSE: Duration = Duration::from_millis(50);

/// What this node does for share groups.
#[derive(Default)]
pub(crate) struct Sharing {
    /// What is in flight, by group and partition.
    held: Mutex<BTreeMap<ShareKey, Arc<Held>>>,
    pub(super) asks: Mutex<Asks>,
}

/// What one group has in flight on one partition, for one leadership.
pub(crate) struct Held {
    pub(crate) key: ShareKey,
    pub(crate) partition: Arc<Partition>,
    epoch: LeaderEpoch,
    pub(crate) state: Mutex<HeldState>,
}

pub(crate) struct HeldState {
    pub(crate) stage: Stage,
    /// Members that wait for something to acquire.
    pub(crate) waiting: ShareList,
    /// Acknowledgements that the next write answers.
    answers: Vec<Reply<Result<(), ErrorCode>>>,
    writing: bool,
    timer_at: Option<Duration>,
}

pub(crate) enum Stage {
    /// The coordinator is being asked, or will be by the timer.
    Loading,
    Ready {
        machine: Box<SharePartition>,
        state_epoch: i32,
    },
    /// It is to be looked for anew.
    Gone,
    /// It can't be loaded.
    Failed(ErrorCode),
}

impl HeldState {
    /// The earlier of its timers, when `at` is one that isn't set.
    pub(crate) fn arm(&mut self, at: Option<Duration>) -> Option<Duration> {
        let at = at.filter(|at| self.timer_at.is_none_or(|set| *at < set))?;
        self.timer_at = Some(at);
        Some(at)
    }
}

/// What a member is told of what the coordinator said.
fn shown(error: ErrorCode) -> ErrorCode {
    match error {
        // Of a leadership that came later.
        ErrorCode::FENCED_LEADER_EPOCH => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        error => error,
    }
}

impl State {
    /// Where the log begins, and up to where a reader of that isolation may see.
    pub(super) fn readable(&mut self, isolation: Isolation) -> Result<(Offset, Offset), ErrorCode> {
        self.check_epoch(LeaderEpoch::NONE)?;
        let until = match isolation {
            Isolation::ReadUncommitted => self.high_watermark(),
            Isolation::ReadCommitted => {
                self.know_transactions()?;
                self.last_stable_offset()
            }
        };
        let log = self
            .log
            .as_ref()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        Ok((log.log_start_offset(), until))
    }
}

impl Node {
    /// What a group has in flight on a partition that is led here; begins to load it when it isn't there.
    pub(super) fn held(&self, key: &ShareKey, now: Now) -> Result<Arc<Held>, ErrorCode> {
        let partition = self.tables.find(&TopicRef::Id(key.topic), key.partition)?;
        let epoch = {
            let state = partition.state.lock();
            state.check_epoch(LeaderEpoch::NONE)?;
            state.epoch()
        };
        let held = {
            let mut all = self.sharing.held.lock();
            if let Some(held) = all.get(key)
                && held.epoch == epoch
                && Arc::ptr_eq(&held.partition, &partition)
            {
                return Ok(held.clone());
            }
            let held = Arc::new(Held {
                key: key.clone(),
                partition,
                epoch,
                state: Mutex::new(HeldState {
                    stage: Stage::Loading,
                    waiting: ShareList::default(),
                    answers: Vec::new(),
                    writing: false,
                    timer_at: None,
                }),
            });
            all.insert(key.clone(), held.clone());
            held
        };
        self.load_held(&held, now);
        Ok(held)
    }

    fn known(&self, key: &ShareKey) -> Option<Arc<Held>> {
        self.sharing.held.lock().get(key).cloned()
    }

    fn load_held(&self, held: &Arc<Held>, now: Now) {
        let command = ShareCommand::Read {
            key: held.key.clone(),
            leader_epoch: held.epoch,
        };
        let (node, of) = (self.this.clone(), held.clone());
        let reply = Reply::new(move |answer: ShareAnswer| {
            let Some(node) = node.upgrade() else { return };
            let now = node.as_of(now);
            match answer {
                Ok(Some(state)) if state.start.0 >= 0 => {
                    let limits = node.share_limits(&of.key.group);
                    let batches = &state.batches;
                    let machine = SharePartition::restored(state.start, batches, now, &limits);
                    node.held_is_ready(&of, machine, state.state_epoch, now);
                }
                Ok(Some(state)) => node.begin_held(&of, state.state_epoch, now),
                Ok(None) => node.held_failed(&of, ErrorCode::UNKNOWN_SERVER_ERROR, now),
                Err(error) => node.held_failed(&of, error, now),
            }
        });
        self.keep_share(command, now, reply);
    }

    /// Finds out where the group begins, and has it kept.
    fn begin_held(&self, held: &Arc<Held>, state_epoch: i32, now: Now) {
        let group = &held.key.group;
        let reset = {
            let image = self.image.load();
            let reset = image.configs_of_group(group).get("share.auto.offset.reset");
            reset.and_then(OffsetReset::parse).unwrap_or_default()
        };
        let query = match reset {
            OffsetReset::Latest => OffsetQuery::Latest,
            OffsetReset::Earliest => OffsetQuery::Earliest,
            OffsetReset::ByDuration(millis) => {
                OffsetQuery::AtTime(now.wall_ms.saturating_sub(millis))
            }
        };
        self.find_begin(held, query, state_epoch, now);
    }

    fn find_begin(&self, held: &Arc<Held>, query: OffsetQuery, state_epoch: i32, now: Now) {
        let isolation = self.share_isolation(&held.key.group);
        let (node, of) = (self.this.clone(), held.clone());
        let reply = Reply::new(move |found: OffsetAnswer| {
            let Some(node) = node.upgrade() else { return };
            let now = node.as_of(now);
            if found.error != ErrorCode::NONE {
                node.held_failed(&of, found.error, now);
            } else if found.offset.0 < 0 {
                // Nothing is that young.
                node.find_begin(&of, OffsetQuery::Latest, state_epoch, now);
            } else {
                node.keep_begin(&of, found.offset, state_epoch, now);
            }
        });
        let partition = &held.partition;
        self.find_offset(partition, query, isolation, LeaderEpoch::NONE, reply);
    }

    fn keep_begin(&self, held: &Arc<Held>, start: Offset, state_epoch: i32, now: Now) {
        let mut machine = SharePartition::new(start);
        let command = ShareCommand::Write {
            key: held.key.clone(),
            state_epoch,
            leader_epoch: held.epoch,
            update: machine.take_update(now).unwrap_or_default(),
        };
        let (node, of) = (self.this.clone(), held.clone());
        let reply = Reply::new(move |answer: ShareAnswer| {
            let Some(node) = node.upgrade() else { return };
            let now = node.as_of(now);
            match answer {
                Ok(_) => node.held_is_ready(&of, machine, state_epoch, now),
                Err(error) => node.held_failed(&of, error, now),
            }
        });
        self.keep_share(command, now, reply);
    }

    fn held_is_ready(&self, held: &Arc<Held>, machine: SharePartition, state_epoch: i32, now: Now) {
        let at;
        {
            let mut state = held.state.lock();
            if matches!(state.stage, Stage::Gone) {
                return;
            }
            at = {
                let next = machine.next_deadline();
                state.stage = Stage::Ready {
                    machine: Box::new(machine),
                    state_epoch,
                };
                state.arm(next)
            };
        }
        self.arm_held(held, at);
        self.bury_dead(held, now);
        self.wake_held(held, now);
    }

    /// It couldn't be loaded: tries again when that may help.
    fn held_failed(&self, held: &Arc<Held>, error: ErrorCode, now: Now) {
        let again = matches!(
            error,
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                | ErrorCode::COORDINATOR_NOT_AVAILABLE
                | ErrorCode::NOT_COORDINATOR
                | ErrorCode::OFFSET_NOT_AVAILABLE
                | ErrorCode::REQUEST_TIMED_OUT
        );
        if !again {
            let error = shown(error);
            held.state.lock().stage = Stage::Failed(error);
            self.forget_held(held);
            return self.wake_held(held, now);
        }
        let at = held.state.lock().arm(Some(now.mono + LOAD_PAUSE));
        self.arm_held(held, at);
    }

    pub(super) fn arm_held(&self, held: &Arc<Held>, at: Option<Duration>) {
        let Some(at) = at else { return };
        let (_, first) = self.timers.add(at, Timer::Share(held.clone()));
        if first {
            self.host.deadline_changed();
        }
    }

    fn forget_held(&self, held: &Arc<Held>) {
        let mut all = self.sharing.held.lock();
        if all.get(&held.key).is_some_and(|h| Arc::ptr_eq(h, held)) {
            all.remove(&held.key);
        }
    }

    /// What is kept was changed by others: the next who asks loads it.
    pub(super) fn drop_held(&self, key: &ShareKey, now: Now) {
        let held = self.sharing.held.lock().remove(key);
        if let Some(held) = held {
            self.give_up_held(&held, ErrorCode::INVALID_RECORD_STATE, now);
        }
    }

    /// Leaderships have changed: what is in flight elsewhere, or in another leadership, is no matter of this one.
    pub(crate) fn drop_moved_held(&self, now: Now) {
        let is_over = |held: &Held| {
            let state = held.partition.state.lock();
            !state.leads() || state.epoch() != held.epoch
        };
        let over: Vec<Arc<Held>> = {
            let mut all = self.sharing.held.lock();
            let over = all.values().filter(|held| is_over(held)).cloned();
            let over: Vec<Arc<Held>> = over.collect();
            for held in &over {
                all.remove(&held.key);
            }
            over
        };
        for held in over {
            self.give_up_held(&held, ErrorCode::NOT_LEADER_OR_FOLLOWER, now);
        }
    }

    /// A topic was deleted, or the node stops (`None`).
    pub(crate) fn close_sharing(&self, topic: Option<TopicId>, now: Now) {
        if topic.is_none() {
            self.end_share_asks();
        }
        let gone: Vec<Arc<Held>> = {
            let mut all = self.sharing.held.lock();
            let matches = |key: &ShareKey| topic.is_none_or(|topic| key.topic == topic);
            let gone = all.iter().filter(|(key, _)| matches(key));
            let gone = gone.map(|(_, held)| held.clone()).collect();
            all.retain(|key, _| !matches(key));
            gone
        };
        for held in gone {
            self.give_up_held(&held, ErrorCode::NOT_LEADER_OR_FOLLOWER, now);
        }
    }

    fn give_up_held(&self, held: &Arc<Held>, error: ErrorCode, now: Now) {
        let answers = {
            let mut state = held.state.lock();
            state.stage = Stage::Gone;
            std::mem::take(&mut state.answers)
        };
        for answer in answers {
            answer.send(Err(error));
        }
        self.wake_held(held, now);
    }

    /// Something can be acquired, perhaps.
    pub(super) fn wake_held(&self, held: &Arc<Held>, now: Now) {
        let waiting = held.state.lock().waiting.take();
        for waiting in waiting {
            self.share_look_again(&waiting, now);
        }
    }

    /// Has the coordinator keep what changed, when no write is out; answers those who need none.
    pub(super) fn write_held(&self, held: &Arc<Held>, now: Now) {
        let (command, answers) = {
            let mut state = held.state.lock();
            if state.writing {
                return;
            }
            let Stage::Ready {
                machine,
                state_epoch,
            } = &mut state.stage
            else {
                return;
            };
            let command = machine.take_update(now).map(|update| ShareCommand::Write {
                key: held.key.clone(),
                state_epoch: *state_epoch,
                leader_epoch: held.epoch,
                update,
            });
            state.writing = command.is_some();
            (command, std::mem::take(&mut state.answers))
        };
        let Some(command) = command else {
            for answer in answers {
                answer.send(Ok(()));
            }
            return;
        };
        let mut answers = answers;
        if active(Mutant::ShareAnsweredEarly) {
            for answer in std::mem::take(&mut answers) {
                answer.send(Ok(()));
            }
        }
        let (node, of) = (self.this.clone(), held.clone());
        let reply = Reply::new(move |answer: ShareAnswer| {
            let result = answer.map(|_| ()).map_err(shown);
            if let Some(node) = node.upgrade() {
                node.held_written(&of, result, node.as_of(now));
            }
            for answer in answers {
                answer.send(result);
            }
        });
        self.keep_share(command, now, reply);
    }

    fn held_written(&self, held: &Arc<Held>, result: Result<(), ErrorCode>, now: Now) {
        held.state.lock().writing = false;
        match result {
            Ok(()) => {
                self.bury_dead(held, now);
                self.write_held(held, now);
            }
            Err(error) => {
                // What is kept and what is held differ now; who loads it anew finds out how.
                self.forget_held(held);
                self.give_up_held(held, shown(error), now);
            }
        }
    }

    /// A lock's time is up, or a load is to be tried again.
    pub(crate) fn share_timer(&self, held: &Arc<Held>, now: Now) {
        let limits = self.share_limits(&held.key.group);
        let at = {
            let mut state = held.state.lock();
            // Only the newest entry counts.
            if state.timer_at.is_none_or(|at| at > now.mono) {
                return;
            }
            state.timer_at = None;
            match &mut state.stage {
                Stage::Loading => None,
                Stage::Ready { machine, .. } => {
                    machine.expire(now.mono, &limits);
                    let next = machine.next_deadline();
                    Some(state.arm(next))
                }
                Stage::Gone | Stage::Failed(_) => return,
            }
        };
        match at {
            None => self.load_held(held, now),
            Some(at) => {
                self.arm_held(held, at);
                self.write_held(held, now);
                self.wake_held(held, now);
            }
        }
    }

    /// Takes what a member of a share group says of records that it has; answered once it is durable.
    ///
    /// - INVALID_RECORD_STATE: the member doesn't have them (any more). INVALID_REQUEST: ranges that can't be.
    /// - NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION.
    pub fn share_acknowledge(
        &self,
        key: &ShareKey,
        member: &str,
        acknowledgements: &[Acknowledgement],
        now: Now,
        reply: Reply<Result<(), ErrorCode>>,
    ) {
        self.saw(now);
        let place = TopicRef::Id(key.topic);
        if let Err(error) = self.tables.find(&place, key.partition) {
            return reply.send(Err(error));
        }
        let Some(held) = self.known(key) else {
            return reply.send(Err(ErrorCode::INVALID_RECORD_STATE));
        };
        let limits = self.share_limits(&key.group);
        let said = {
            let mut guard = held.state.lock();
            let state = &mut *guard;
            let said = match &mut state.stage {
                Stage::Ready { machine, .. } => {
                    let before = machine.next_fetch(&limits);
                    machine
                        .acknowledge(member, acknowledgements, now.mono, &limits)
                        .map(|()| {
                            let offers = machine.next_fetch(&limits) != before;
                            (machine.next_deadline(), offers)
                        })
                }
                _ => Err(ErrorCode::INVALID_RECORD_STATE),
            };
            match said {
                Ok((deadline, offers)) => {
                    state.answers.push(reply);
                    Ok((state.arm(deadline), offers))
                }
                Err(error) => Err((error, reply)),
            }
        };
        match said {
            Err((error, reply)) => reply.send(Err(error)),
            Ok((at, offers)) => {
                self.arm_held(&held, at);
                self.write_held(&held, now);
                if offers {
                    self.wake_held(&held, now);
                }
            }
        }
    }

    /// A member's share session is over: what it has is offered to others.
    pub fn share_release(&self, key: &ShareKey, member: &str, now: Now) {
        let now = self.as_of(now);
        let Some(held) = self.known(key) else { return };
        let limits = self.share_limits(&key.group);
        let at = {
            let mut guard = held.state.lock();
            let state = &mut *guard;
            let Stage::Ready { machine, .. } = &mut state.stage else {
                return;
            };
            machine.release(member, now.mono, &limits);
            let next = machine.next_deadline();
            state.arm(next)
        };
        self.arm_held(&held, at);
        self.write_held(&held, now);
        self.wake_held(&held, now);
    }
}
