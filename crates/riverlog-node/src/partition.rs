//! One partition of which a copy is here: its log, whether it leads or follows, and who waits for it. One lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::config::TopicConfig;
use riverlog_core::refusals::Refusals;
use riverlog_core::replica::{Follower, Leader, Position};
use riverlog_log::{DiskError, EpochEnd, Log, LogKey, Upkeep, Write};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::{BrokerId, LeaderEpoch, Offset};
use smallvec::SmallVec;

use crate::append::Ack;
use crate::bounded::Bound;
use crate::command::{AppendAnswer, AppendFailure, Isolation, PartitionDescription};
use crate::doubts::Doubts;
use crate::fetch::{WaitList, Waiting};
use crate::losses::Losing;
use crate::replication::Lane;
use crate::share::ShareWaiting;
use crate::tables::TopicInfo;

/// Who else wants to know when the high watermark moves or appended records are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Data,
    /// The metadata log.
    Metadata,
    /// A partition of `__consumer_offsets`.
    Offsets(i32),
    /// A partition of `__transaction_state`.
    Transactions(i32),
    /// A partition of `__share_group_state`.
    ShareState(i32),
}

/// A partition of which a copy is here.
pub(crate) struct Partition {
    /// Led here, and not left to others (`aside`); whether it is led is in the state, this is for those who don't want the lock.
    pub(crate) leads: AtomicBool,
    pub(crate) key: LogKey,
    pub(crate) topic: Arc<TopicInfo>,
    pub(crate) role: Role,
    pub(crate) state: Mutex<State>,
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic.name, self.key.partition)
    }
}

/// What the lock guards.
pub(crate) struct State {
    /// `None` once the topic was deleted, or the node stopped.
    pub(crate) log: Option<Log>,
    /// What it leads, or was leading: what counts is `standing`.
    pub(crate) leader: Leader,
    pub(crate) standing: Standing,
    /// Assigned replicas.
    pub(crate) replicas: usize,
    /// Those that min ISR is counted from.
    pub(crate) factor: usize,
    /// In-sync replicas that acks=all needs.
    pub(crate) min_isr: usize,
    /// `riverlog.durability` is `sync`.
    pub(crate) sync: bool,
    /// `riverlog.retention.records`.
    pub(crate) retention_records: Option<u64>,
    /// Fetches that wait for the high watermark.
    pub(crate) waiting: WaitList,
    /// Fetches that wait for the last stable offset, which may stand still while the high watermark moves.
    pub(crate) waiting_stable: WaitList,
    /// Where that was when they were last woken.
    stable: Offset,
    /// Appends that wait for the high watermark, in order of offset.
    pub(crate) acks_all: VecDeque<Parked>,
    /// Appends that wait for the leader alone (acks=1), in order of offset.
    pub(crate) acks_leader: VecDeque<Parked>,
    /// The partition's entry in the timers.
    pub(crate) timer_at: Option<Duration>,
    /// Only for bounded topics.
    pub(crate) bound: Option<Box<Bound>>,
    /// What was refused a moment ago, and comes again.
    pub(crate) refusals: Refusals,
    /// Final refusals that wait for followers: of batches of transactions, and those of a coordinator whose state this is.
    pub(crate) doubts: Doubts,
    pub(crate) upkeep: UpkeepState,
}

/// What this copy is.
pub(crate) enum Standing {
    /// It leads.
    Leads(Leading),
    /// It follows.
    Follows(Following),
}

/// What a leader of several copies remembers.
pub(crate) struct Leading {
    /// The state of the partition that the controller last spoke of; −1 before it has.
    pub(crate) partition_epoch: i32,
    /// An in-sync set was asked for and not answered.
    pub(crate) asked: bool,
    /// Where the copies of others begin, as they have said in this leadership.
    pub(crate) starts: BTreeMap<BrokerId, Offset>,
    /// Readers were sent to copies of others: those hear of the high watermark as soon as it moves.
    pub(crate) read_elsewhere: bool,
}

impl Default for Leading {
    fn default() -> Leading {
        Leading {
            partition_epoch: -1,
            asked: false,
            starts: BTreeMap::new(),
            read_elsewhere: false,
        }
    }
}

/// What a follower remembers.
pub(crate) struct Following {
    /// Also while nobody leads: whom it followed then.
    pub(crate) follower: Follower,
    /// The synced position that the leader was last told.
    pub(crate) told: Offset,
    /// In which conversation with the leader.
    pub(crate) lane: Lane,
}

/// What upkeep remembers of a partition.
#[derive(Default)]
pub(crate) struct UpkeepState {
    /// Appended to since the last look.
    pub(crate) dirty: bool,
    /// Has recent batches in memory; in the list of those.
    pub(crate) warm: bool,
    /// Appended to or read from memory since somebody last looked whether that memory is still worth it.
    pub(crate) used: bool,
    /// Wall clock of the next look without an append; the partition's entry in the expiry queue.
    pub(crate) look_at: Option<i64>,
    /// An idempotent producer has written since the start.
    pub(crate) producers: bool,
    /// An upkeep job is out; at most one for each partition.
    pub(crate) running: bool,
    /// Writes and upkeep jobs that are out: the files can be removed once there are none.
    pub(crate) out: u8,
    /// A sync of the segments was asked for while other upkeep ran.
    pub(crate) sync_wanted: bool,
    /// What the last look has found of what retention takes; only where groups are watched.
    pub(crate) losing: Option<Losing>,
    /// In the queue of partitions to be looked after.
    pub(crate) looked_for: bool,
    /// In the list of those to look at after each group commit.
    pub(crate) behind: bool,
    /// Became a `sync` topic a while ago: until its segments hold everything, what is appended doesn't go through the
    /// write-ahead log, and is made durable by syncs of the segments.
    pub(crate) catching_up: bool,
}

/// An append that waits for its answer.
pub(crate) struct Parked {
    pub(crate) next: Offset,
    pub(crate) deadline: Duration,
    pub(crate) answer: AppendAnswer,
    pub(crate) ack: Ack,
}

/// What a partition owes once its lock is free.
#[derive(Default)]
pub(crate) struct Owed {
    /// Answers to send.
    pub(crate) acks: SmallVec<[(Ack, Result<AppendAnswer, AppendFailure>); 1]>,
    /// Fetches to look at again.
    pub(crate) woken: Vec<Weak<Waiting>>,
    /// The same of share groups.
    pub(crate) woken_shares: Vec<Weak<ShareWaiting>>,
    /// A write to run.
    pub(crate) write: Option<Write>,
    /// Upkeep to hand out.
    pub(crate) upkeep: Option<Upkeep>,
    /// Something was queued for the write-ahead log.
    pub(crate) flush: bool,
    /// The high watermark moved.
    pub(crate) moved: bool,
    /// Records that had been appended are gone.
    pub(crate) lost: bool,
    /// A timer to set.
    pub(crate) timer: Option<Duration>,
    /// The first append since the last upkeep.
    pub(crate) dirty: bool,
    /// The first batches that stay in memory.
    pub(crate) warm: bool,
    /// More records than retention by count allows.
    pub(crate) retain: bool,
    /// The topic is deleted and nothing is out any more: its files can go.
    pub(crate) remove: bool,
    /// Followers may be told of more records.
    pub(crate) replicate: bool,
    /// The leader is to be told of a synced position.
    pub(crate) report: bool,
    /// An in-sync set may have to change.
    pub(crate) isr: bool,
    /// Coordinators are to be asked for room.
    pub(crate) room: bool,
}

impl State {
    pub(crate) fn new(
        log: Log,
        epoch: LeaderEpoch,
        replicas: usize,
        factor: usize,
        config: &TopicConfig,
    ) -> State {
        let own = position(&log);
        let sync = config.sync;
        let high_watermark = match (replicas, sync) {
            // The only copy: what it holds durably was acknowledged, or may be.
            (0 | 1, true) => own.synced,
            (0 | 1, false) => own.written,
            // What the others have will show it.
            _ => log.log_start_offset(),
        };
        State {
            leader: Leader::new(epoch, own, high_watermark, sync),
            standing: Standing::Leads(Leading::default()),
            bound: Bound::new(config, &log),
            refusals: Refusals::default(),
            doubts: Doubts::default(),
            log: Some(log),
            replicas,
            factor,
            min_isr: config.min_isr(factor),
            sync,
            retention_records: retention_records(config),
            waiting: WaitList::default(),
            waiting_stable: WaitList::default(),
            stable: Offset(-1),
            acks_all: VecDeque::new(),
            acks_leader: VecDeque::new(),
            timer_at: None,
            upkeep: UpkeepState::default(),
        }
    }

    pub(crate) fn high_watermark(&self) -> Offset {
        match &self.standing {
            Standing::Leads(_) => self.leader.high_watermark(),
            Standing::Follows(following) => following.follower.high_watermark(),
        }
    }

    /// Of the leadership that it is part of.
    pub(crate) fn epoch(&self) -> LeaderEpoch {
        match &self.standing {
            Standing::Leads(_) => self.leader.epoch,
            Standing::Follows(following) => following.follower.epoch,
        }
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(self.standing, Standing::Leads(_))
    }

    /// The follower nearest to a reader that has what it asks for, when it leads here.
    pub(crate) fn nearest(
        &mut self,
        from: Offset,
        is_near: impl Fn(BrokerId) -> bool,
    ) -> Option<BrokerId> {
        let Standing::Leads(leading) = &mut self.standing else {
            return None;
        };
        let starts = &leading.starts;
        let has = |id: BrokerId| starts.get(&id).is_some_and(|start| *start <= from);
        let nearest = self.leader.furthest(from, |id| is_near(id) && has(id))?;
        leading.read_elsewhere = true;
        Some(nearest)
    }

    /// How far this copy counts: synced, or written on a `page-cache` topic.
    pub(crate) fn own_position(&self) -> Offset {
        self.log.as_ref().map_or(Offset::ZERO, |log| {
            let own = position(log);
            if self.sync { own.synced } else { own.written }
        })
    }

    /// Below it no transaction is open. The one place that decides it.
    pub(crate) fn last_stable_offset(&self) -> Offset {
        let high_watermark = self.high_watermark();
        let unstable = self
            .log
            .as_ref()
            .and_then(|log| log.first_unstable_offset(high_watermark));
        match unstable {
            Some(first) if !active(Mutant::OpenTransactionStable) => first,
            _ => high_watermark,
        }
    }

    /// The log's own position moved: answers whoever waited for it.
    pub(crate) fn moved(&mut self, owed: &mut Owed) {
        let Some(log) = &self.log else { return };
        let own = position(log);
        if let Standing::Follows(following) = &self.standing {
            owed.report |= own.synced > following.told;
            return;
        }
        owed.replicate |= self.replicas > 1 && own.written > self.leader.own().written;
        let at = self.own_position();
        while let Some(parked) = self.acks_leader.pop_front_if(|p| p.next <= at) {
            owed.acks.push((parked.ack, Ok(parked.answer)));
        }
        if self.leader.on_own_position(own).is_some() {
            self.watermark_moved(owed);
        }
    }

    /// The high watermark moved: completes appends, wakes readers.
    pub(crate) fn watermark_moved(&mut self, owed: &mut Owed) {
        let high_watermark = self.high_watermark();
        let short = i64::from(riverlog_mutants::active(
            riverlog_mutants::Mutant::AnswerOneShort,
        ));
        let answered = high_watermark + -short;
        while let Some(parked) = self.acks_all.pop_front_if(|p| p.next <= answered) {
            owed.acks.push((parked.ack, Ok(parked.answer)));
        }
        owed.moved = true;
        owed.replicate |= matches!(&self.standing, Standing::Leads(l) if l.read_elsewhere);
        if let Some(log) = &mut self.log {
            log.settle_transactions(high_watermark);
        }
        if let (Some(keep), Some(log)) = (self.retention_records, &self.log) {
            // The look at it costs an entry in the write-ahead log, so it isn't worth it for each record of many.
            let held = u64::try_from(high_watermark - log.log_start_offset()).unwrap_or(0);
            owed.retain = held > keep + keep / 8;
        }
        let stable = self.last_stable_offset();
        if std::mem::replace(&mut self.stable, stable) == stable {
            self.waiting.wake(owed);
        } else {
            self.wake(owed);
        }
    }

    /// Something changed that a parked fetch may want to answer with.
    pub(crate) fn wake(&mut self, owed: &mut Owed) {
        self.waiting.wake(owed);
        self.waiting_stable.wake(owed);
    }

    /// The fetches that wait for what a reader of that isolation may see.
    pub(crate) fn waiting(&mut self, isolation: Isolation) -> &mut WaitList {
        match isolation {
            Isolation::ReadUncommitted => &mut self.waiting,
            Isolation::ReadCommitted => &mut self.waiting_stable,
        }
    }

    /// A write came back with an error, or a group commit failed: whoever waited for what is gone, or can't become
    /// durable any more, gets a storage error.
    pub(crate) fn fail(&mut self, error: &DiskError, owed: &mut Owed) {
        let Some(log) = &self.log else { return };
        let all = log.failed().is_some();
        let end = log.log_end_offset();
        for queue in [&mut self.acks_all, &mut self.acks_leader] {
            // Offsets grow along the queue, so what was cut off is at its back.
            let keep = if all {
                0
            } else {
                queue.partition_point(|p| p.next <= end)
            };
            for parked in queue.drain(keep..) {
                owed.acks
                    .push((parked.ack, Err(AppendFailure::lost(error))));
            }
        }
        owed.lost = true;
        self.wake(owed);
    }

    /// A group commit failed: nobody waits for what was in it.
    pub(crate) fn give_up_waiting(&mut self, error: &DiskError, owed: &mut Owed) {
        for queue in [&mut self.acks_all, &mut self.acks_leader] {
            for parked in std::mem::take(queue) {
                owed.acks
                    .push((parked.ack, Err(AppendFailure::lost(error))));
            }
        }
    }

    /// Sets the partition's timer to its earliest deadline, unless an earlier one is set.
    pub(crate) fn set_timer(&mut self, at: Duration, owed: &mut Owed) {
        if self.timer_at.is_none_or(|set| at < set) {
            self.timer_at = Some(at);
            owed.timer = Some(at);
        }
    }

    /// The timer came due: ends what has waited too long.
    pub(crate) fn expire(&mut self, now: Now, owed: &mut Owed) {
        // An older entry may still be in the queue; only the newest counts.
        if self.timer_at.is_some_and(|at| at > now.mono) {
            return;
        }
        self.timer_at = None;
        let mut next: Option<Duration> = None;
        let mut left = 0;
        for queue in [&mut self.acks_all, &mut self.acks_leader] {
            if queue.iter().any(|p| p.deadline <= now.mono) {
                for parked in std::mem::take(queue) {
                    if parked.deadline <= now.mono {
                        owed.acks.push((parked.ack, Err(timed_out())));
                    } else {
                        queue.push_back(parked);
                    }
                }
            }
            left += queue.len();
            next = queue.iter().map(|p| p.deadline).chain(next).min();
        }
        self.expire_blocked(now, owed);
        if let Some(bound) = &self.bound {
            left += bound.blocked.len();
        }
        owed.room = self.asks_again(now);
        next = self.next_for_blocked(now).into_iter().chain(next).min();
        if let Some(next) = next {
            // Each look costs a pass over all that wait, so looks keep a distance in proportion.
            let pause = Duration::from_millis(1) + Duration::from_micros(left as u64);
            self.set_timer(next.max(now.mono + pause), owed);
        }
    }

    /// The topic was deleted: everyone who waits is answered, the log is let go.
    pub(crate) fn delete(&mut self, owed: &mut Owed) {
        self.log = None;
        for queue in [&mut self.acks_all, &mut self.acks_leader] {
            for parked in std::mem::take(queue) {
                owed.acks.push((parked.ack, Err(AppendFailure::deleted())));
            }
        }
        if let Some(bound) = self.bound.take() {
            for blocked in bound.blocked {
                owed.acks.push((blocked.ack, Err(AppendFailure::deleted())));
            }
        }
        owed.lost = true;
        owed.remove = self.upkeep.out == 0;
        self.wake(owed);
    }

    /// A write or an upkeep job came back.
    pub(crate) fn came_back(&mut self, owed: &mut Owed) {
        self.upkeep.out = self.upkeep.out.saturating_sub(1);
        owed.remove |= self.log.is_none() && self.upkeep.out == 0;
    }

    pub(crate) fn describe(&self, partition: &Partition) -> PartitionDescription {
        let log = self.log.as_ref();
        let offset = |f: fn(&Log) -> Offset| log.map_or(Offset(-1), f);
        PartitionDescription {
            topic: partition.key.topic,
            partition: partition.key.partition.0,
            leader_epoch: self.epoch(),
            log_start_offset: offset(Log::log_start_offset),
            log_end_offset: offset(Log::log_end_offset),
            high_watermark: log.map_or(Offset(-1), |_| self.high_watermark()),
            last_stable_offset: log.map_or(Offset(-1), |_| self.last_stable_offset()),
            size_bytes: log.map_or(0, Log::size_bytes),
            failed: match log {
                None => Some("the topic was deleted".to_owned()),
                Some(log) => log.failed().map(ToString::to_string),
            },
        }
    }
}

/// A copy counts as synced no further than it is written: a record of which the segment write may still fail for
/// want of space isn't acknowledged, however early the write-ahead log had it.
pub(crate) fn position(log: &Log) -> Position {
    let written = log.written();
    Position {
        written,
        synced: log.synced().min(written),
    }
}

/// The largest epoch at or below one, and its end, of a log that is led in a later epoch than that one: what the log has of the epoch
/// before ends where the log does, whether or not the leadership has written anything yet.
pub(crate) fn epoch_end(log: &Log, epoch: LeaderEpoch) -> Option<EpochEnd> {
    let last = log.last_epoch();
    match last.0 >= 0 && epoch > last {
        true => Some(EpochEnd {
            epoch: last,
            end: log.log_end_offset(),
        }),
        false => log.epoch_end(epoch),
    }
}

/// `riverlog.retention.records` where it applies.
pub(crate) fn retention_records(config: &TopicConfig) -> Option<u64> {
    let keep = u64::try_from(config.retention_records).ok();
    keep.filter(|_| config.delete)
}

fn timed_out() -> AppendFailure {
    AppendFailure::new(
        riverlog_wire::ErrorCode::REQUEST_TIMED_OUT,
        "the batch was appended but not acknowledged in time; it may still become durable",
    )
}
