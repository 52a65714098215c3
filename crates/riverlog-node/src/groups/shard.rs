//! One shard: commands in, decisions performed, answers held until they are durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::groups::{
    Decision, GroupAnswer, GroupCommand, GroupShard, Token, TopicPartition,
};
use riverlog_mutants::Mutant;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, Offset};

use super::Shape;
use crate::command::{CommittedAnswer, Reply};
use crate::node::Node;
use crate::partition::{Owed, Partition};
use crate::timers::Timer;

/// Decisions that time may bring at one moment; a shard that wants more gets them at the next tick.
const ROUNDS: usize = 16;

/// How long a shard that couldn't append or load waits before it tries again.
const PAUSE: Duration = Duration::from_secs(1);

/// The groups of one partition of `__consumer_offsets`.
pub(crate) struct Shard {
    pub(crate) partition: Arc<Partition>,
    pub(crate) state: Mutex<ShardState>,
}

pub(crate) enum Stage {
    /// Nobody has asked yet, or the load failed and is tried again at that time.
    Cold(Option<Duration>),
    /// A job reads the log.
    Loading,
    Ready(Box<GroupShard>),
}

pub(crate) struct ShardState {
    pub(crate) stage: Stage,
    /// Counts the lives of this shard, so that a load of an earlier one is recognised.
    pub(crate) life: u64,
    /// Everything before it is durable.
    pub(crate) durable: Offset,
    /// Commands that have no answer yet.
    open: BTreeMap<Token, Open>,
    /// Answers by the position that must be durable before they go out.
    held: BTreeMap<(Offset, u64), Held>,
    next: u64,
    /// What was appended and isn't durable: the position after it, and when.
    in_flight: VecDeque<(Offset, Duration)>,
    timer_at: Option<Duration>,
}

struct Open {
    reply: Reply<GroupAnswer>,
    shape: Shape,
    /// What it commits on bounded topics.
    commits: Vec<TopicPartition>,
}

enum Held {
    Answer(Open, GroupAnswer),
    Offsets(Reply<CommittedAnswer>, CommittedAnswer),
}

/// What is to be done once the shard's lock is free.
#[derive(Default)]
pub(crate) struct Outbox {
    held: Vec<Held>,
    owed: Owed,
    timer: Option<Duration>,
    lost: bool,
}

/// The decision's records can't be appended; nothing was performed.
struct Refused;

impl Shard {
    pub(crate) fn new(partition: Arc<Partition>) -> Arc<Shard> {
        let durable = partition.state.lock().high_watermark();
        Arc::new(Shard {
            partition,
            state: Mutex::new(ShardState {
                stage: Stage::Cold(None),
                life: 0,
                durable,
                open: BTreeMap::new(),
                held: BTreeMap::new(),
                next: 0,
                in_flight: VecDeque::new(),
                timer_at: None,
            }),
        })
    }

    fn index(&self) -> i32 {
        self.partition.key.partition.0
    }
}

impl ShardState {
    /// The groups, or what to answer while they aren't here.
    pub(crate) fn ready(&self) -> Result<&GroupShard, ErrorCode> {
        match &self.stage {
            Stage::Ready(groups) => Ok(groups),
            Stage::Cold(Some(_)) => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Stage::Cold(None) | Stage::Loading => Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        }
    }

    fn hold(&mut self, at: Offset, held: Held, out: &mut Outbox) {
        if at <= self.durable || riverlog_mutants::active(Mutant::CommitAnsweredEarly) {
            out.held.push(held);
        } else {
            self.next += 1;
            self.held.insert((at, self.next), held);
        }
    }

    /// Lets go of the answers that are durable now.
    fn release(&mut self, durable: Offset, out: &mut Outbox) {
        self.durable = self.durable.max(durable);
        while let Some(first) = self.held.first_entry() {
            if first.key().0 > self.durable {
                break;
            }
            out.held.push(first.remove());
        }
        while self
            .in_flight
            .pop_front_if(|(at, _)| *at <= self.durable)
            .is_some()
        {}
    }

    /// Everyone who waits is sent to look for the coordinator again.
    fn abandon(&mut self, out: &mut Outbox) {
        self.stage = Stage::Cold(None);
        self.life += 1;
        self.in_flight.clear();
        let error = ErrorCode::NOT_COORDINATOR;
        for (_, open) in std::mem::take(&mut self.open) {
            let answer = open.shape.clone().error(error);
            out.held.push(Held::Answer(open, answer));
        }
        for (_, held) in std::mem::take(&mut self.held) {
            out.held.push(match held {
                Held::Answer(open, _) => {
                    let answer = open.shape.clone().error(error);
                    Held::Answer(open, answer)
                }
                Held::Offsets(reply, _) => Held::Offsets(reply, Err(error)),
            });
        }
    }
}

impl Node {
    pub(crate) fn shard_command(
        &self,
        shard: &Arc<Shard>,
        command: GroupCommand,
        shape: Shape,
        now: Now,
        reply: Reply<GroupAnswer>,
    ) {
        if !self.parked.take(1) {
            return reply.send(shape.error(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        let commits = self.bounded_commits(&command);
        let mut out = Outbox::default();
        let mut cold = false;
        {
            let mut state = shard.state.lock();
            let open = Open {
                reply,
                shape,
                commits,
            };
            state.next += 1;
            let token = Token(state.next);
            match state.ready() {
                Err(error) => {
                    cold = true;
                    let answer = open.shape.clone().error(error);
                    out.held.push(Held::Answer(open, answer));
                }
                Ok(groups) => {
                    let image = self.image.load();
                    let decision = groups.decide(command, token, &**image, now);
                    state.open.insert(token, open);
                    if self
                        .perform(shard, &mut state, decision, now, &mut out)
                        .is_err()
                        && let Some(open) = state.open.remove(&token)
                    {
                        let error = ErrorCode::COORDINATOR_NOT_AVAILABLE;
                        let answer = open.shape.clone().error(error);
                        out.held.push(Held::Answer(open, answer));
                    }
                    self.timers_of(shard, &mut state, now, &mut out);
                }
            }
        }
        if cold {
            self.load_shard(shard, now);
        }
        self.send_out(shard, out, now);
    }

    /// What a commit is about, as far as bounded topics are concerned.
    fn bounded_commits(&self, command: &GroupCommand) -> Vec<TopicPartition> {
        match command {
            GroupCommand::Commit { offsets, .. } if self.has_bounded_topics() => {
                offsets.iter().map(|(at, _)| at.clone()).collect()
            }
            GroupCommand::DeleteOffsets { partitions, .. } if self.has_bounded_topics() => {
                partitions.clone()
            }
            _ => Vec::new(),
        }
    }

    /// Performs a decision: soft changes, then the records, applied as they are appended; answers go out or are held.
    fn perform(
        &self,
        shard: &Shard,
        state: &mut ShardState,
        decision: Decision,
        now: Now,
        out: &mut Outbox,
    ) -> Result<(), Refused> {
        let Stage::Ready(groups) = &mut state.stage else {
            return Err(Refused);
        };
        if !decision.records.is_empty() && !self.takes_own(&shard.partition) {
            return Err(Refused);
        }
        for soft in decision.soft {
            groups.soft(soft);
        }
        let mut until = Offset::ZERO;
        if !decision.records.is_empty() {
            let mut batch = BatchBuilder::new(Compression::None);
            for record in &decision.records {
                batch.push(now.wall_ms, Some(&record.key), record.value.as_deref(), &[]);
            }
            match self.append_own(&shard.partition, batch.build(), now, &mut out.owed) {
                Ok(appended) => {
                    let mut at = appended.first;
                    for record in &decision.records {
                        groups.apply(&record.key, record.value.as_deref(), at, now);
                        at = at + 1;
                    }
                    until = appended.next;
                    state.in_flight.push_back((until, now.mono));
                }
                Err(_) => {
                    // Soft changes were made for records that don't exist: this life is over.
                    out.lost = true;
                    state.abandon(out);
                    return Ok(());
                }
            }
        }
        for answer in decision.answers {
            if let Some(open) = state.open.remove(&answer.token) {
                let at = answer.after.max(until);
                state.hold(at, Held::Answer(open, answer.body), out);
            }
        }
        Ok(())
    }

    /// What time brings, and when it brings more.
    fn timers_of(&self, shard: &Shard, state: &mut ShardState, now: Now, out: &mut Outbox) {
        let patience = self.settings.groups.min_session_timeout / 3;
        let lagging = state
            .in_flight
            .front()
            .is_some_and(|(_, since)| *since + patience < now.mono);
        let image = self.image.load();
        for _ in 0..ROUNDS {
            let Stage::Ready(groups) = &mut state.stage else {
                return;
            };
            if lagging {
                // Members may well have tried: nobody is expired for what the disk is slow at.
                groups.hold_sessions(now.mono + patience);
                break;
            }
            let decision = groups.decide_timers(&**image, now);
            if decision.records.is_empty()
                && decision.soft.is_empty()
                && decision.answers.is_empty()
            {
                break;
            }
            if self.perform(shard, state, decision, now, out).is_err() {
                if let Stage::Ready(groups) = &mut state.stage {
                    groups.hold_sessions(now.mono + PAUSE);
                }
                return self.set_shard_timer(state, now.mono + PAUSE, out);
            }
        }
        let Stage::Ready(groups) = &state.stage else {
            return;
        };
        if let Some(next) = groups.next_deadline() {
            let next = next.max(now.mono + Duration::from_millis(1));
            self.set_shard_timer(state, next, out);
        }
    }

    fn set_shard_timer(&self, state: &mut ShardState, at: Duration, out: &mut Outbox) {
        if state.timer_at.is_none_or(|set| at < set) {
            state.timer_at = Some(at);
            out.timer = Some(at);
        }
    }

    /// The shard's timer came due.
    pub(crate) fn shard_timer(&self, index: i32, now: Now) {
        let Some(shard) = self.shard(index) else {
            return;
        };
        let mut out = Outbox::default();
        {
            let mut state = shard.state.lock();
            // Only the newest entry counts.
            if state.timer_at.is_some_and(|at| at > now.mono) {
                return;
            }
            state.timer_at = None;
            if let Stage::Cold(Some(at)) = state.stage {
                if at > now.mono {
                    return self.arm_shard(&shard, at, &mut state);
                }
                state.stage = Stage::Cold(None);
                drop(state);
                return self.load_shard(&shard, now);
            }
            self.timers_of(&shard, &mut state, now, &mut out);
        }
        self.send_out(&shard, out, now);
    }

    fn arm_shard(&self, shard: &Shard, at: Duration, state: &mut ShardState) {
        state.timer_at = Some(at);
        let (_, first) = self.timers.add(at, Timer::Shard(shard.index()));
        if first {
            self.host.deadline_changed();
        }
    }

    /// The high watermark of the shard's partition moved.
    pub(crate) fn shard_moved(&self, index: i32, now: Now) {
        let Some(shard) = self.shard(index) else {
            return;
        };
        let durable = shard.partition.state.lock().high_watermark();
        let mut out = Outbox::default();
        shard.state.lock().release(durable, &mut out);
        self.send_out(&shard, out, now);
    }

    /// Records of the shard's partition were lost: this life is over, the next one begins from the log.
    pub(crate) fn shard_lost(&self, index: i32, now: Now) {
        if let Some(shard) = self.shard(index) {
            self.drop_shard(&shard, true, now);
        }
    }

    pub(crate) fn drop_shard(&self, shard: &Arc<Shard>, reload: bool, now: Now) {
        let mut out = Outbox::default();
        let mut was_open = true;
        {
            let mut state = shard.state.lock();
            if matches!(state.stage, Stage::Cold(_)) {
                was_open = false;
            }
            state.abandon(&mut out);
        }
        out.lost = reload && was_open;
        self.send_out(shard, out, now);
    }

    /// Topics changed. After a deletion every shard must see it, loaded or not: offsets of the old topic must not meet
    /// a new one of the same name.
    pub(crate) fn shard_topics_changed(&self, shard: &Arc<Shard>, deleted: bool, now: Now) {
        let mut out = Outbox::default();
        let mut cold = false;
        {
            let mut state = shard.state.lock();
            if let Ok(groups) = state.ready() {
                let decision = groups.decide_topics_changed(&**self.image.load(), now);
                // Refused: the offsets stay, under the old topic's id.
                let _refused = self.perform(shard, &mut state, decision, now, &mut out);
                self.timers_of(shard, &mut state, now, &mut out);
            } else {
                cold = deleted;
            }
        }
        if cold {
            self.load_shard(shard, now);
        }
        self.send_out(shard, out, now);
    }

    /// `None`: not loaded. `Some(None)`: no group of this shard has an offset there.
    pub(crate) fn shard_least_committed(
        &self,
        shard: &Shard,
        partition: &Partition,
    ) -> Option<Option<Offset>> {
        let state = shard.state.lock();
        let groups = state.ready().ok()?;
        Some(groups.least_committed(&partition.topic.name, partition.key.partition.0))
    }

    /// OffsetFetch: what is committed now, answered once it is durable.
    pub(crate) fn shard_offsets(
        &self,
        shard: &Arc<Shard>,
        group: &str,
        partitions: Option<&[TopicPartition]>,
        member: Option<(&str, i32)>,
        now: Now,
        reply: Reply<CommittedAnswer>,
    ) {
        if !self.parked.take(1) {
            return reply.send(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        let mut out = Outbox::default();
        let mut cold = false;
        {
            let mut state = shard.state.lock();
            match state.ready() {
                Err(error) => {
                    cold = true;
                    out.held.push(Held::Offsets(reply, Err(error)));
                }
                Ok(groups) => {
                    let (offsets, after) = groups.offsets(group, partitions, member);
                    state.hold(after, Held::Offsets(reply, offsets), &mut out);
                }
            }
        }
        if cold {
            self.load_shard(shard, now);
        }
        self.send_out(shard, out, now);
    }

    /// A load is done: the shard's life begins.
    pub(crate) fn shard_is_ready(
        &self,
        shard: &Arc<Shard>,
        life: u64,
        mut groups: Box<GroupShard>,
        now: Now,
    ) {
        let durable = shard.partition.state.lock().high_watermark();
        let mut out = Outbox::default();
        {
            let mut state = shard.state.lock();
            if state.life != life {
                return;
            }
            groups.loaded(now);
            state.durable = state.durable.max(durable);
            let decision = groups.decide_topics_changed(&**self.image.load(), now);
            state.stage = Stage::Ready(groups);
            let _refused = self.perform(shard, &mut state, decision, now, &mut out);
            self.timers_of(shard, &mut state, now, &mut out);
        }
        self.send_out(shard, out, now);
    }

    /// A load failed: it is tried again after a pause.
    pub(crate) fn shard_load_failed(&self, shard: &Arc<Shard>, life: u64, now: Now) {
        self.metrics
            .load_failures
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let at = now.mono + PAUSE;
        let mut state = shard.state.lock();
        if state.life == life {
            state.stage = Stage::Cold(Some(at));
            self.arm_shard(shard, at, &mut state);
        }
    }

    /// Sends answers, runs writes, sets timers; the shard's lock is free.
    fn send_out(&self, shard: &Arc<Shard>, out: Outbox, now: Now) {
        if let Some(at) = out.timer {
            let (_, first) = self.timers.add(at, Timer::Shard(shard.index()));
            if first {
                self.host.deadline_changed();
            }
        }
        let mut commits = Vec::new();
        for held in out.held {
            self.parked.give(1);
            match held {
                Held::Answer(open, answer) => {
                    commits.extend(open.commits);
                    open.reply.send(answer);
                }
                Held::Offsets(reply, offsets) => reply.send(offsets),
            }
        }
        self.settle(&shard.partition, out.owed, now);
        for at in commits {
            if let Some(topic) = self.tables.by_name(&at.topic)
                && let Ok(partition) = topic.partition(at.partition)
            {
                self.make_room(&partition, now);
            }
        }
        if out.lost {
            self.load_shard(shard, now);
        }
    }
}
