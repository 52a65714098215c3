//! One shard: commands in, decisions performed, answers held until they are durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::coordinator::Token;
use riverlog_core::groups::{GroupShard, InTransaction, TopicPartition};
use riverlog_log::{LogKey, Marker};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, Offset, PartitionIndex, Sequence};

use super::load::ReplayError;
use super::{Coordinator, DecisionOf};
use crate::append::Ack;
use crate::command::{AppendFailure, CommittedAnswer, Reply};
use crate::groups::least::Askers;
use crate::node::Node;
use crate::notice::Notice;
use crate::partition::{Owed, Partition};
use crate::transactions::TRANSACTIONS_TOPIC;

/// Decisions that time may bring at one moment; a shard that wants more gets them at the next tick.
const ROUNDS: usize = 16;

/// How long a shard that couldn't append or load waits before it tries again.
const PAUSE: Duration = Duration::from_secs(1);

/// What one partition of a coordinator's topic keeps.
pub(crate) struct Shard<C: Coordinator> {
    pub(crate) partition: Arc<Partition>,
    pub(crate) state: Mutex<ShardState<C>>,
}

pub(crate) enum Stage<C> {
    /// Nobody has asked yet, or the load failed and is tried again at that time.
    Cold(Option<Duration>),
    /// A job reads the log.
    Loading,
    Ready(Box<C>),
}

pub(crate) struct ShardState<C: Coordinator> {
    pub(crate) stage: Stage<C>,
    /// Counts the lives of this shard, so that a load of an earlier one is recognised.
    pub(crate) life: u64,
    /// Why the last load failed, until one doesn't.
    pub(crate) failed: Option<String>,
    /// Everything before it is durable.
    pub(crate) durable: Offset,
    /// Commands that have no answer yet.
    open: BTreeMap<Token, Open<C>>,
    /// Answers and effects by the position that must be durable before they go out, and until when they wait for that.
    held: BTreeMap<(Offset, u64), (Duration, Held<C>)>,
    next: u64,
    /// What was appended and isn't durable: the position after it, and when.
    in_flight: VecDeque<(Offset, Duration)>,
    timer_at: Option<Duration>,
    /// Leaders of bounded partitions that have asked what is committed there; only of groups.
    pub(crate) askers: Askers,
    /// A transaction was committed that may have been waited for by bounded partitions: the position after its marker.
    ended: Option<Offset>,
}

struct Open<C: Coordinator> {
    reply: Reply<C::Answer>,
    shape: C::Shape,
    /// How long it waits where nothing becomes durable.
    until: Duration,
    /// What it commits on bounded topics.
    commits: Vec<TopicPartition>,
}

/// Gets nothing, or why the answer can't be given.
type Question = Box<dyn FnOnce(Result<(), ErrorCode>) + Send>;

enum Held<C: Coordinator> {
    Answer(Open<C>, C::Answer),
    Question(Question),
    Effect(C::Effect),
}

/// What is to be done once the shard's lock is free.
pub(crate) struct Outbox<C: Coordinator> {
    held: Vec<Held<C>>,
    owed: Owed,
    /// Those that can't be answered.
    questions: Vec<(Question, ErrorCode)>,
    timer: Option<Duration>,
    lost: bool,
}

impl<C: Coordinator> Outbox<C> {
    fn refused(&mut self, open: Open<C>, error: ErrorCode) {
        let answer = C::refuse(open.shape.clone(), error);
        self.held.push(Held::Answer(open, answer));
    }
}

impl<C: Coordinator> Default for Outbox<C> {
    fn default() -> Self {
        Outbox {
            held: Vec::new(),
            owed: Owed::default(),
            questions: Vec::new(),
            timer: None,
            lost: false,
        }
    }
}

/// The decision's records can't be appended; nothing was performed.
struct Refused(ErrorCode);

impl<C: Coordinator> Shard<C> {
    pub(crate) fn new(partition: Arc<Partition>) -> Arc<Shard<C>> {
        let durable = partition.state.lock().high_watermark();
        Arc::new(Shard {
            partition,
            state: Mutex::new(ShardState {
                stage: Stage::Cold(None),
                life: 0,
                failed: None,
                durable,
                open: BTreeMap::new(),
                held: BTreeMap::new(),
                next: 0,
                in_flight: VecDeque::new(),
                timer_at: None,
                askers: Askers::default(),
                ended: None,
            }),
        })
    }

    fn index(&self) -> i32 {
        self.partition.key.partition.0
    }
}

impl<C: Coordinator> ShardState<C> {
    /// The machine, or what to answer while it isn't here.
    pub(crate) fn ready(&self) -> Result<&C, ErrorCode> {
        match &self.stage {
            Stage::Ready(machine) => Ok(machine),
            // Also while it is tried again: a client that is told to wait for a load would wait for ever.
            _ if self.failed.is_some() => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Stage::Cold(Some(_)) => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Stage::Cold(None) | Stage::Loading => Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
        }
    }

    fn hold(&mut self, at: Offset, until: Duration, held: Held<C>, out: &mut Outbox<C>) {
        if at <= self.durable || active(Mutant::CommitAnsweredEarly) {
            out.held.push(held);
        } else {
            self.next += 1;
            self.held.insert((at, self.next), (until, held));
            self.set_timer(until, out);
        }
    }

    fn set_timer(&mut self, at: Duration, out: &mut Outbox<C>) {
        if self.timer_at.is_none_or(|set| at < set) {
            self.timer_at = Some(at);
            out.timer = Some(at);
        }
    }

    /// Nothing is waited for without an end: who waited for something to become durable for as long as that may take is told to look for the
    /// coordinator, which another node may have become. What was appended stays, and may be found done.
    fn give_up(&mut self, patience: Duration, now: Duration, out: &mut Outbox<C>) {
        let error = ErrorCode::COORDINATOR_NOT_AVAILABLE;
        let overdue = |until: &Duration| *until <= now;
        let held = self.held.extract_if(.., |_, (until, held)| {
            overdue(until) && !matches!(held, Held::Effect(_))
        });
        for (_, (_, held)) in held {
            match held {
                Held::Answer(open, _) => out.refused(open, error),
                Held::Question(question) => out.questions.push((question, error)),
                Held::Effect(_) => {}
            }
        }
        // Time stands still for those that the machine lets wait, so that nobody is expired for a slow disk.
        let stuck = self.in_flight.front();
        if stuck.is_some_and(|(_, since)| *since + patience <= now) {
            let open = self.open.extract_if(.., |_, open| overdue(&open.until));
            for (_, open) in open {
                out.refused(open, error);
            }
        }
        let waiting = self.held.values();
        let waiting = waiting.filter(|(_, held)| !matches!(held, Held::Effect(_)));
        if let Some(next) = waiting.map(|(until, _)| *until).min() {
            self.set_timer(next, out);
        }
    }

    /// Lets go of the answers that are durable now.
    fn release(&mut self, durable: Offset, out: &mut Outbox<C>) {
        self.durable = self.durable.max(durable);
        while let Some(first) = self.held.first_entry() {
            if first.key().0 > self.durable {
                break;
            }
            out.held.push(first.remove().1);
        }
        while self
            .in_flight
            .pop_front_if(|(at, _)| *at <= self.durable)
            .is_some()
        {}
    }

    /// Everyone who waits is sent to look for the coordinator again.
    fn abandon(&mut self, out: &mut Outbox<C>) {
        self.stage = Stage::Cold(None);
        self.life += 1;
        self.in_flight.clear();
        // The next life waits as one would that knows of nothing.
        self.askers = Askers::default();
        let error = ErrorCode::NOT_COORDINATOR;
        for (_, open) in std::mem::take(&mut self.open) {
            out.refused(open, error);
        }
        for (_, (_, held)) in std::mem::take(&mut self.held) {
            match held {
                Held::Answer(open, _) => out.refused(open, error),
                Held::Question(question) => out.questions.push((question, error)),
                // The next life finds in its log what there is to do.
                Held::Effect(_) => {}
            }
        }
    }
}

impl Node {
    pub(crate) fn shard_command<C: Coordinator>(
        &self,
        shard: &Arc<Shard<C>>,
        command: C::Command,
        shape: C::Shape,
        now: Now,
        reply: Reply<C::Answer>,
    ) {
        if !self.coordinating.take(1) {
            return reply.send(C::refuse(shape, ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        let commits = C::bounded_commits(self, &command);
        let transaction = C::transaction(&command);
        let mut out = Outbox::default();
        let mut cold = false;
        {
            let mut state = shard.state.lock();
            let open = Open {
                reply,
                shape,
                until: now.mono + C::patience(self),
                commits,
            };
            state.next += 1;
            let token = Token(state.next);
            let early = self.begins_early(shard, &mut state, &command, now);
            match state.ready() {
                Err(error) => {
                    cold = true;
                    out.refused(open, error);
                }
                Ok(_) if early => out.refused(open, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
                Ok(machine) => {
                    let image = self.image.load();
                    let decision = machine.decide(command, token, &image, now);
                    state.open.insert(token, open);
                    let performed =
                        self.perform(shard, &mut state, decision, transaction, now, &mut out);
                    if let Err(Refused(error)) = performed
                        && let Some(open) = state.open.remove(&token)
                    {
                        out.refused(open, error);
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

    /// Something that the node tells a shard. Nobody waits for an answer, and its decision appends nothing that could be
    /// refused.
    pub(crate) fn shard_event<C: Coordinator>(
        &self,
        shard: &Arc<Shard<C>>,
        event: C::Command,
        now: Now,
    ) {
        let mut out = Outbox::default();
        {
            let mut state = shard.state.lock();
            // A shard that isn't here finds in its log what there is to do.
            let Ok(machine) = state.ready() else { return };
            let decision = machine.decide(event, Token(0), &self.image.load(), now);
            let _refused = self.perform(shard, &mut state, decision, None, now, &mut out);
            self.timers_of(shard, &mut state, now, &mut out);
        }
        self.send_out(shard, out, now);
    }

    /// Performs a decision: soft changes, then the records, applied as they are appended; answers go out or are held.
    fn perform<C: Coordinator>(
        &self,
        shard: &Shard<C>,
        state: &mut ShardState<C>,
        decision: DecisionOf<C>,
        transaction: Option<InTransaction>,
        now: Now,
        out: &mut Outbox<C>,
    ) -> Result<(), Refused> {
        let not_available = Refused(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        let Stage::Ready(machine) = &mut state.stage else {
            return Err(not_available);
        };
        if !decision.records.is_empty() {
            if !self.takes_own(&shard.partition) {
                return Err(not_available);
            }
            // With fewer copies than promised nothing becomes durable until there are enough again.
            if shard.partition.state.lock().has_few_in_sync() {
                return Err(not_available);
            }
            if let Some(transaction) = transaction {
                // Nothing else is appended there before it, since the shard's lock is held.
                let state = shard.partition.state.lock();
                state.may_go_on(&transaction).map_err(Refused)?;
            }
        }
        for soft in decision.soft {
            machine.soft(soft, now);
        }
        let mut until = Offset::ZERO;
        if !decision.records.is_empty() {
            let mut batch = BatchBuilder::new(Compression::None);
            if let Some(part) = transaction {
                batch.producer(part.producer_id, part.producer_epoch, Sequence(0));
                batch.transactional();
            }
            for record in &decision.records {
                batch.push(now.wall_ms, Some(&record.key), record.value.as_deref(), &[]);
            }
            let bytes = batch.build();
            let owed = &mut out.owed;
            match self.append_own(&shard.partition, bytes, transaction, now, owed) {
                Ok(appended) => {
                    let mut at = appended.first;
                    for record in &decision.records {
                        let (key, value) = (&record.key, record.value.as_deref());
                        match transaction {
                            None => machine.apply(key, value, at, now),
                            Some(part) => {
                                let producer = part.producer_id;
                                machine.apply_in_transaction(producer, key, value, at, now);
                            }
                        }
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
                let early = active(Mutant::DecisionAnsweredEarly) && C::TOPIC == TRANSACTIONS_TOPIC;
                let at = match early {
                    true => Offset::ZERO,
                    false => answer.after.max(until),
                };
                state.hold(at, open.until, Held::Answer(open, answer.body), out);
            }
        }
        for effect in decision.effects {
            let at = effect.after.max(until);
            state.hold(at, Duration::MAX, Held::Effect(effect.body), out);
        }
        Ok(())
    }

    /// What time brings, and when it brings more.
    fn timers_of<C: Coordinator>(
        &self,
        shard: &Shard<C>,
        state: &mut ShardState<C>,
        now: Now,
        out: &mut Outbox<C>,
    ) {
        let patience = self.settings.groups.min_session_timeout / 3;
        let lagging = state
            .in_flight
            .front()
            .is_some_and(|(_, since)| *since + patience < now.mono);
        let image = self.image.load();
        for _ in 0..ROUNDS {
            let Stage::Ready(machine) = &mut state.stage else {
                return;
            };
            if lagging {
                // Members may well have tried: nobody is expired for what the disk is slow at.
                machine.hold(now.mono + patience);
                break;
            }
            let decision = machine.decide_timers(&image, now);
            if decision.is_empty() {
                break;
            }
            if self
                .perform(shard, state, decision, None, now, out)
                .is_err()
            {
                if let Stage::Ready(machine) = &mut state.stage {
                    machine.hold(now.mono + PAUSE);
                }
                return state.set_timer(now.mono + PAUSE, out);
            }
        }
        let Stage::Ready(machine) = &state.stage else {
            return;
        };
        if let Some(next) = machine.next_deadline() {
            let next = next.max(now.mono + Duration::from_millis(1));
            state.set_timer(next, out);
        }
    }

    /// The shard's timer came due.
    pub(crate) fn shard_timer<C: Coordinator>(&self, index: i32, now: Now) {
        let Some(shard) = self.shard::<C>(index) else {
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
            state.give_up(C::patience(self), now.mono, &mut out);
            self.timers_of(&shard, &mut state, now, &mut out);
        }
        self.send_out(&shard, out, now);
    }

    fn arm_shard<C: Coordinator>(&self, shard: &Shard<C>, at: Duration, state: &mut ShardState<C>) {
        state.timer_at = Some(at);
        let (_, first) = self.timers.add(at, C::timer(shard.index()));
        if first {
            self.host.deadline_changed();
        }
    }

    /// Appends the marker that ends a producer's transaction in a shard's partition, and applies it.
    pub(crate) fn shard_marker<C: Coordinator>(
        &self,
        shard: &Arc<Shard<C>>,
        marker: &Marker,
        ack: Ack,
        now: Now,
    ) {
        let mut out = Outbox::default();
        let mut cold = false;
        {
            let mut state = shard.state.lock();
            match state.ready().err() {
                Some(error) => {
                    cold = true;
                    let failure = AppendFailure::new(error, error.message());
                    out.owed.acks.push((ack, Err(failure)));
                }
                None => {
                    let appended =
                        shard
                            .partition
                            .state
                            .lock()
                            .append_marker(marker, ack, now, &mut out.owed);
                    if let (Some(appended), Stage::Ready(machine)) = (appended, &mut state.stage) {
                        let (producer, at) = (marker.producer_id, appended.first);
                        machine.end_transaction(producer, marker.committed, at);
                        state.in_flight.push_back((appended.next, now.mono));
                        if marker.committed && self.has_bounded_topics() {
                            state.ended = Some(appended.next);
                        }
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

    /// The high watermark of the shard's partition moved.
    pub(crate) fn shard_moved<C: Coordinator>(&self, index: i32, now: Now) {
        let Some(shard) = self.shard::<C>(index) else {
            return;
        };
        let durable = shard.partition.state.lock().high_watermark();
        let mut out = Outbox::default();
        let ended = {
            let mut state = shard.state.lock();
            state.release(durable, &mut out);
            if self.has_bounded_topics() {
                self.looks_alone(&shard, &mut state, now);
            }
            state.ended.take_if(|at| *at <= durable).is_some()
        };
        self.send_out(&shard, out, now);
        if ended {
            self.make_room_everywhere(now);
            self.tell_all_of_room(&shard, now);
        }
    }

    /// Records of the shard's partition were lost: this life is over, the next one begins from the log.
    pub(crate) fn shard_lost<C: Coordinator>(&self, index: i32, now: Now) {
        if let Some(shard) = self.shard::<C>(index) {
            self.drop_shard(&shard, true, now);
        }
    }

    pub(crate) fn drop_shard<C: Coordinator>(&self, shard: &Arc<Shard<C>>, reload: bool, now: Now) {
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
    pub(crate) fn shard_topics_changed<C: Coordinator>(
        &self,
        shard: &Arc<Shard<C>>,
        deleted: bool,
        now: Now,
    ) {
        let mut out = Outbox::default();
        let mut cold = false;
        {
            let mut state = shard.state.lock();
            if let Ok(machine) = state.ready() {
                let decision = machine.decide_topics_changed(&self.image.load(), now);
                // Refused: the offsets stay, under the old topic's id.
                let _refused = self.perform(shard, &mut state, decision, None, now, &mut out);
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
        shard: &Shard<GroupShard>,
        partition: &Partition,
    ) -> Option<Option<Offset>> {
        let state = shard.state.lock();
        let groups = state.ready().ok()?;
        Some(groups.least_committed(&partition.topic.name, partition.key.partition.0))
    }

    /// OffsetFetch: what is committed now, answered once it is durable.
    pub(crate) fn shard_offsets(
        &self,
        shard: &Arc<Shard<GroupShard>>,
        group: &str,
        partitions: Option<&[TopicPartition]>,
        member: Option<(&str, i32)>,
        now: Now,
        reply: Reply<CommittedAnswer>,
    ) {
        self.shard_question(shard, now, reply, |groups| {
            groups.offsets(group, partitions, member)
        });
    }

    /// Looks at a shard; what was seen is answered once it is durable.
    pub(crate) fn shard_question<C: Coordinator, T: Send + 'static>(
        &self,
        shard: &Arc<Shard<C>>,
        now: Now,
        reply: Reply<Result<T, ErrorCode>>,
        look: impl FnOnce(&C) -> (Result<T, ErrorCode>, Offset),
    ) {
        self.shard_look(shard, now, reply, |state| state.ready().map(look));
    }

    /// The same by who leaves something behind, or can't be answered yet.
    pub(crate) fn shard_look<C: Coordinator, T: Send + 'static>(
        &self,
        shard: &Arc<Shard<C>>,
        now: Now,
        reply: Reply<Result<T, ErrorCode>>,
        look: impl FnOnce(&mut ShardState<C>) -> Result<(Result<T, ErrorCode>, Offset), ErrorCode>,
    ) {
        if !self.coordinating.take(1) {
            return reply.send(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        let mut out = Outbox::default();
        let mut cold = false;
        {
            let mut state = shard.state.lock();
            match look(&mut state) {
                Err(error) => {
                    cold = state.ready().is_err();
                    let question: Question = Box::new(move |_| reply.send(Err(error)));
                    out.questions.push((question, error));
                }
                Ok((seen, after)) => {
                    let answer = |durable: Result<(), _>| reply.send(durable.and(seen));
                    let until = now.mono + C::patience(self);
                    state.hold(after, until, Held::Question(Box::new(answer)), &mut out);
                }
            }
        }
        if cold {
            self.load_shard(shard, now);
        }
        self.send_out(shard, out, now);
    }

    /// A load is done: the shard's life begins.
    pub(crate) fn shard_is_ready<C: Coordinator>(
        &self,
        shard: &Arc<Shard<C>>,
        life: u64,
        mut machine: Box<C>,
        now: Now,
    ) {
        let durable = shard.partition.state.lock().high_watermark();
        let mut out = Outbox::default();
        {
            let mut state = shard.state.lock();
            if state.life != life {
                return;
            }
            if state.failed.take().is_some() {
                self.host.notice(Notice::CoordinatorAvailable {
                    topic: C::TOPIC,
                    partition: shard.index(),
                });
            }
            machine.loaded(now);
            state.durable = state.durable.max(durable);
            let decision = machine.decide_topics_changed(&self.image.load(), now);
            state.stage = Stage::Ready(machine);
            let _refused = self.perform(shard, &mut state, decision, None, now, &mut out);
            self.timers_of(shard, &mut state, now, &mut out);
        }
        self.send_out(shard, out, now);
    }

    /// A load failed: it is tried again after a pause.
    pub(crate) fn shard_load_failed<C: Coordinator>(
        &self,
        shard: &Arc<Shard<C>>,
        life: u64,
        error: &ReplayError,
        now: Now,
    ) {
        self.metrics
            .load_failures
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let at = now.mono + PAUSE;
        let mut state = shard.state.lock();
        if state.life == life {
            state.stage = Stage::Cold(Some(at));
            if state.failed.replace(error.to_string()).is_none() {
                self.host.notice(Notice::CoordinatorUnavailable {
                    topic: C::TOPIC,
                    partition: shard.index(),
                    reason: error.to_string(),
                });
            }
            self.arm_shard(shard, at, &mut state);
        }
    }

    /// Sends answers, runs writes, sets timers; the shard's lock is free.
    fn send_out<C: Coordinator>(&self, shard: &Arc<Shard<C>>, out: Outbox<C>, now: Now) {
        if let Some(at) = out.timer {
            let (_, first) = self.timers.add(at, C::timer(shard.index()));
            if first {
                self.host.deadline_changed();
            }
        }
        let mut commits = Vec::new();
        let mut effects = Vec::new();
        for held in out.held {
            match held {
                Held::Answer(open, answer) => {
                    self.coordinating.give(1);
                    commits.extend(open.commits);
                    open.reply.send(answer);
                }
                Held::Question(question) => {
                    self.coordinating.give(1);
                    question(Ok(()));
                }
                Held::Effect(effect) => effects.push(effect),
            }
        }
        for (question, error) in out.questions {
            self.coordinating.give(1);
            question(Err(error));
        }
        self.settle(&shard.partition, out.owed, now);
        for at in commits {
            let topic = match at.topic.is_empty() {
                true => self.tables.topic(at.id),
                false => self.tables.by_name(&at.topic),
            };
            let Some(topic) = topic else { continue };
            match topic.partition(at.partition) {
                Ok(partition) => self.make_room(&partition, now),
                Err(_) => {
                    let (topic, partition) = (topic.info.id, PartitionIndex(at.partition));
                    self.tell_of_room(shard, LogKey { topic, partition }, now);
                }
            }
        }
        if out.lost {
            self.load_shard(shard, now);
        }
        for effect in effects {
            C::perform(self, shard, effect, now);
        }
    }
}
