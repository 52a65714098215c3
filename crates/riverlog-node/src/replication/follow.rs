//! A follower's conversation with each leader.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::replica::{FollowerAnswer, FollowerAsk, FollowerStep};
use riverlog_log::{AppendAs, Log, LogKey};
use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::batch::{batches, vacant};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::{Lane, PeerAsk, PeerPart, Stamp};
use crate::node::Node;
use crate::partition::{Owed, Partition, Standing, State, position};
use crate::peers::Message;
use crate::timers::Timer;

/// How much longer than the leader may keep it an ask is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// How much is caught up with at once, in bytes: so little that nobody waits for long who comes in between, and more where there are many partitions,
/// since all of them are named each time.
const CHUNK: usize = 512 << 10;
const CHUNK_OF_PARTITION: usize = 1 << 10;

/// How long a partition rests that the leader doesn't serve, or that could not take what came.
const REST: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Streams {
    /// By leader.
    streams: BTreeMap<(BrokerId, Lane), Stream>,
    /// Whose positions leaders are to be told.
    reports: BTreeMap<BrokerId, BTreeSet<LogKey>>,
    /// Of each leader's latest answer.
    stamps: BTreeMap<BrokerId, Stamp>,
    number: i64,
}

impl Streams {
    fn stamp_for(&self, leader: BrokerId) -> Stamp {
        self.stamps.get(&leader).copied().unwrap_or(Stamp::NONE)
    }
}

#[derive(Default)]
struct Stream {
    partitions: BTreeMap<LogKey, Arc<Partition>>,
    /// Partitions that are left out until a time.
    resting: BTreeMap<LogKey, Duration>,
    /// What is asked, and not answered.
    flight: Option<Flight>,
    /// Until then what has come is paid for; a timer is set.
    paused: Option<Duration>,
}

struct Flight {
    number: i64,
    asks: BTreeMap<LogKey, FollowerAsk>,
    deadline: Duration,
}

/// What an answer came to.
enum Took {
    Nothing,
    Records,
    /// It ends there now.
    Cut(Offset),
    BeganAnew,
    /// The copy can't be made one that follows this leader.
    Unusable,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Node {
    /// Asks the leaders of those partitions that follow others from now on.
    pub(crate) fn follow_leaders(&self, partitions: &[Arc<Partition>], now: Now) {
        let mut changed = BTreeSet::new();
        for partition in partitions {
            let stream = {
                let state = partition.state.lock();
                match &state.standing {
                    Standing::Follows(following) if state.log.is_some() => {
                        Some((following.follower.leader, following.lane))
                    }
                    _ => None,
                }
            };
            let stream = stream.filter(|(l, _)| l.0 >= 0 && *l != self.settings.broker);
            let mut following = self.replication.following.lock();
            let streams = &mut following.streams;
            let known = stream.and_then(|s| streams.get(&s));
            if known.is_some_and(|s| s.partitions.contains_key(&partition.key)) {
                // Perhaps in another epoch.
                changed.extend(stream);
                continue;
            }
            for stream in streams.values_mut() {
                stream.partitions.remove(&partition.key);
                stream.resting.remove(&partition.key);
            }
            if let Some(at) = stream {
                let stream = streams.entry(at).or_default();
                stream.partitions.insert(partition.key, partition.clone());
                changed.insert(at);
            }
        }
        for (leader, lane) in changed {
            self.ask_anew(leader, lane, now);
        }
    }

    /// A partition isn't followed any more.
    pub(crate) fn unfollow(&self, key: LogKey) {
        let mut following = self.replication.following.lock();
        for stream in following.streams.values_mut() {
            stream.partitions.remove(&key);
            stream.resting.remove(&key);
        }
    }

    /// This node is registered: leaders will listen.
    pub(crate) fn ask_all_later(&self, now: Now) {
        let following = self.replication.following.lock();
        for (leader, lane) in following.streams.keys() {
            let (_, first) = self.timers.add(now.mono, Timer::Ask(*leader, *lane));
            if first {
                self.host.deadline_changed();
            }
        }
    }

    /// An ask was not answered in time, a partition has rested, or what came is paid for.
    pub(crate) fn ask_again(&self, leader: BrokerId, lane: Lane, now: Now) {
        {
            let mut following = self.replication.following.lock();
            let Some(stream) = following.streams.get_mut(&(leader, lane)) else {
                return;
            };
            let late = |f: &mut Flight| f.deadline <= now.mono;
            let rested = stream.resting.values().any(|until| *until <= now.mono);
            if stream.flight.take_if(late).is_none() && rested {
                // What is out need not be waited for.
                stream.flight = None;
            }
        }
        self.ask_leader(leader, lane, now);
    }

    /// What there is to ask has changed: an answer to an older ask isn't waited for.
    fn ask_anew(&self, leader: BrokerId, lane: Lane, now: Now) {
        let mut following = self.replication.following.lock();
        if let Some(stream) = following.streams.get_mut(&(leader, lane)) {
            stream.flight = None;
        }
        drop(following);
        self.ask_leader(leader, lane, now);
    }

    /// Asks a leader for all that is followed there in a conversation, unless that is asked already.
    fn ask_leader(&self, leader: BrokerId, lane: Lane, now: Now) {
        let Some(broker_epoch) = self.membership.broker_epoch() else {
            return;
        };
        if self.is_closing() {
            return;
        }
        let (mut asks, mut catches_up) = (Vec::new(), None);
        let (number, deadline, stamp);
        {
            let mut following = self.replication.following.lock();
            following.number += 1;
            number = following.number;
            stamp = following.stamp_for(leader);
            let Some(stream) = following.streams.get_mut(&(leader, lane)) else {
                return;
            };
            if stream.flight.is_some() {
                return;
            }
            if lane == Lane::CatchUp {
                match self.may_catch_up(stream, now) {
                    Ok(most) => catches_up = Some(most),
                    Err(None) => return,
                    Err(Some(until)) => {
                        drop(following);
                        let (_, first) = self.timers.add(until, Timer::Ask(leader, lane));
                        if first {
                            self.host.deadline_changed();
                        }
                        return;
                    }
                }
            }
            stream.resting.retain(|_, until| *until > now.mono);
            let mut asked = BTreeMap::new();
            for (key, partition) in &stream.partitions {
                if stream.resting.contains_key(key) {
                    continue;
                }
                if let Some((ask, from)) = partition.state.lock().ask_of(*key, leader) {
                    asks.push(ask);
                    asked.insert(*key, from);
                }
            }
            if asks.is_empty() {
                return;
            }
            deadline = now.mono + self.settings.cluster.fetch_wait + PATIENCE;
            stream.flight = Some(Flight {
                number,
                asks: asked,
                deadline,
            });
        }
        let (_, first) = self.timers.add(deadline, Timer::Ask(leader, lane));
        if first {
            self.host.deadline_changed();
        }
        let ask = Message::Ask {
            number,
            broker_epoch,
            asks,
            catches_up,
            stamp: Some(stamp),
        };
        self.send_peer(leader, &ask);
    }

    /// What is said to this leader from now on is said after this answer. One that comes late says less than those before it.
    pub(crate) fn heard_leader(&self, from: BrokerId, stamp: Option<Stamp>) {
        let mut following = self.replication.following.lock();
        let mut leaders = following.streams.keys();
        let Some(stamp) = stamp.filter(|_| leaders.any(|(leader, _)| *leader == from)) else {
            return;
        };
        let latest = following.stamps.entry(from).or_insert(stamp);
        *latest = stamp.max(*latest);
    }

    /// How much a copy that catches up may ask for now. An error: later, and when a timer is to be set for that.
    fn may_catch_up(&self, stream: &mut Stream, now: Now) -> Result<usize, Option<Duration>> {
        let takes = self.replication.rates.takes.lock();
        let Some(until) = takes.waits_until(now) else {
            stream.paused = None;
            let chunk = CHUNK.max(CHUNK_OF_PARTITION * stream.partitions.len());
            return Ok(takes.at_once(self.settings.cluster.fetch_bytes.min(chunk)));
        };
        sometimes(Mark::CatchUpWaited);
        if stream.paused.is_some_and(|at| at > now.mono) {
            return Err(None);
        }
        stream.paused = Some(until);
        Err(Some(until))
    }

    /// A leader has answered. Appends, cuts and begins anew on the calling thread.
    pub(crate) fn answered_by_leader(
        &self,
        from: BrokerId,
        number: i64,
        parts: Vec<PeerPart>,
        now: Now,
    ) {
        let flight = {
            let mut following = self.replication.following.lock();
            let lanes = [Lane::Tail, Lane::CatchUp];
            lanes.into_iter().find_map(|lane| {
                let stream = following.streams.get_mut(&(from, lane))?;
                let flight = stream.flight.take_if(|f| f.number == number)?;
                Some((flight, lane))
            })
        };
        // Twice, late, or to an ask that was given up.
        let Some((flight, lane)) = flight else {
            sometimes(Mark::LateAnswerIgnored);
            return;
        };
        if lane == Lane::CatchUp {
            let bytes = parts.iter().map(|p| p.records.len()).sum();
            self.replication.rates.takes.lock().passed(bytes, now);
        }
        let (mut resting, mut unusable, mut cut) = (Vec::new(), Vec::new(), false);
        for part in parts {
            let Some(asked) = flight.asks.get(&part.key) else {
                continue;
            };
            let Some(partition) = self.by_key(part.key) else {
                continue;
            };
            let mut owed = Owed::default();
            let taken = partition.state.lock().take_answer(asked, &part, &mut owed);
            self.settle(&partition, owed, now);
            match taken {
                Ok(Took::Nothing | Took::Records) => {}
                Ok(Took::Cut(end)) => {
                    cut = true;
                    sometimes(Mark::TailOfFollowerCut);
                    count(&self.metrics.replica_cuts);
                    self.cut_cleaned(part.key, end);
                }
                Ok(Took::BeganAnew) => {
                    sometimes(Mark::FollowerBegunAnew);
                    count(&self.metrics.replica_restarts);
                }
                Ok(Took::Unusable) => {
                    unusable.push(partition);
                    count(&self.metrics.replica_restarts);
                }
                Err(_) => {
                    cut = true;
                    resting.push(part.key);
                }
            }
        }
        for partition in unusable {
            self.make_anew(&partition, now);
        }
        if cut {
            // A cut writes to the write-ahead log by itself. Where that has become full with it, no group commit comes that would see
            // to room in it.
            self.sync_oldest(now);
            self.upkeep_of_wal(self.volume.is_pressed());
        }
        if !resting.is_empty() {
            let until = now.mono + REST;
            {
                let mut following = self.replication.following.lock();
                if let Some(stream) = following.streams.get_mut(&(from, lane)) {
                    stream
                        .resting
                        .extend(resting.into_iter().map(|key| (key, until)));
                }
            }
            let (_, first) = self.timers.add(until, Timer::Ask(from, lane));
            if first {
                self.host.deadline_changed();
            }
        }
        self.ask_leader(from, lane, now);
    }

    /// The leader is to know what has become durable: said when the host takes what this node has to say, for all partitions together.
    pub(crate) fn tell_leader_later(&self, partition: &Partition) {
        let leader = match &partition.state.lock().standing {
            Standing::Follows(following) => following.follower.leader,
            Standing::Leads(_) => return,
        };
        let mut following = self.replication.following.lock();
        let keys = following.reports.entry(leader).or_default();
        if keys.insert(partition.key) && keys.len() == 1 {
            self.host.outbox_ready();
        }
    }

    /// Says what has become durable.
    pub(crate) fn tell_leaders(&self) {
        let (reports, stamps) = {
            let mut following = self.replication.following.lock();
            let reports = std::mem::take(&mut following.reports);
            // Before the look at what is followed: that is so after them.
            let stamps: Vec<Stamp> = reports.keys().map(|to| following.stamp_for(*to)).collect();
            (reports, stamps)
        };
        let Some(broker_epoch) = self.membership.broker_epoch() else {
            return;
        };
        for ((leader, keys), stamp) in reports.into_iter().zip(stamps) {
            let found = keys.iter().filter_map(|key| self.by_key(*key));
            let asks: Vec<PeerAsk> = found
                .filter_map(|p| Some(p.state.lock().ask_of(p.key, leader)?.0))
                .collect();
            if !asks.is_empty() {
                let report = Message::Report {
                    broker_epoch,
                    asks,
                    stamp: Some(stamp),
                };
                self.send_peer(leader, &report);
            }
        }
    }
}

impl State {
    /// What to say to a leader, when it is followed.
    fn ask_of(&mut self, key: LogKey, leader: BrokerId) -> Option<(PeerAsk, FollowerAsk)> {
        let log = self.log.as_ref().filter(|log| log.failed().is_none())?;
        let Standing::Follows(following) = &mut self.standing else {
            return None;
        };
        if following.follower.leader != leader {
            return None;
        }
        let at = position(log);
        let ask = following
            .follower
            .ask(log.log_end_offset(), log.last_epoch());
        following.told = at.synced;
        let said = PeerAsk {
            key,
            epoch: ask.epoch,
            from: ask.from,
            last_epoch: ask.last_epoch,
            written: at.written,
            synced: at.synced,
            log_start: log.log_start_offset(),
        };
        Some((said, ask))
    }

    /// Does what an answer says. An error: nothing came of it, and asking again at once wouldn't help.
    fn take_answer(
        &mut self,
        asked: &FollowerAsk,
        part: &PeerPart,
        owed: &mut Owed,
    ) -> Result<Took, ErrorCode> {
        let answer = part.answer?;
        let Some(log) = &mut self.log else {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        };
        let Standing::Follows(following) = &mut self.standing else {
            return Ok(Took::Nothing);
        };
        let end_of = |epoch| log.epoch_end(epoch).map(|e| (e.epoch, e.end));
        let end = log.log_end_offset();
        let storage = |_| ErrorCode::KAFKA_STORAGE_ERROR;
        match following.follower.on_answer(*asked, answer, end, end_of) {
            FollowerStep::Ignore => {
                if active(Mutant::WatermarkBeforeCut)
                    && let FollowerAnswer::Diverging { .. } = answer
                {
                    following.follower.appended(end, end);
                }
                Ok(Took::Nothing)
            }
            FollowerStep::Cut(to) => {
                if active(Mutant::WatermarkBeforeCut) {
                    following.follower.appended(end, end);
                }
                log.truncate(to).map_err(storage)?;
                let after = log.log_end_offset();
                following.follower.cut(after);
                following.told = Offset(-1);
                owed.flush = true;
                owed.dirty |= !std::mem::replace(&mut self.upkeep.dirty, true);
                // Its start lies behind what it has in common with the leader: it can't be cut to there, nor used.
                match after < end {
                    true => Ok(Took::Cut(after)),
                    false => Ok(Took::Unusable),
                }
            }
            FollowerStep::BeginAt(at) => {
                log.delete_records(at).map_err(storage)?;
                following.follower.cut(at);
                following.told = Offset(-1);
                owed.flush = true;
                owed.dirty |= !std::mem::replace(&mut self.upkeep.dirty, true);
                Ok(Took::BeganAnew)
            }
            FollowerStep::Append { log_start } => {
                let appended = append(log, &part.records);
                let leaders = match answer {
                    FollowerAnswer::Matches { high_watermark, .. } => high_watermark,
                    _ => Offset::ZERO,
                };
                // What is still to be written may be cut again, where the disk is full.
                let moved = following.follower.appended(leaders, log.written());
                if let Some(high_watermark) = moved {
                    log.settle_transactions(high_watermark);
                }
                let start = log_start.min(following.follower.high_watermark());
                if start > log.log_start_offset() {
                    log.delete_records(start).map_err(storage)?;
                    owed.flush = true;
                }
                if moved.is_some() {
                    // Readers may wait at this copy.
                    self.wake(owed);
                }
                if appended? {
                    owed.flush |= self.sync;
                    owed.dirty |= !std::mem::replace(&mut self.upkeep.dirty, true);
                    owed.warm |= !std::mem::replace(&mut self.upkeep.warm, true);
                    self.upkeep.used = true;
                    self.upkeep.producers = true;
                    owed.write = self.take_write();
                }
                Ok(Took::Records)
            }
        }
    }
}

/// Appends whole batches as they are. `false`: there were none.
fn append(log: &mut Log, records: &Bytes) -> Result<bool, ErrorCode> {
    if records.is_empty() {
        return Ok(false);
    }
    let mut whole = Vec::with_capacity(records.len());
    let (mut end, mut epoch) = (log.log_end_offset(), log.last_epoch());
    for batch in batches(records) {
        let sound = batch.and_then(|batch| batch.check_crc().map(|()| batch));
        let batch = sound.map_err(|_| ErrorCode::CORRUPT_MESSAGE)?;
        let header = &batch.header;
        let next = header.next_offset();
        if header.record_count == 0 && header.base_offset < end && end < next {
            // The leader has filled a hole that begins before what is missing here.
            fill(&mut whole, end..next, header.leader_epoch);
        } else {
            // The leader has cleaned what lay between. The first batch of an epoch stays, so that was of the one before.
            let of = match epoch {
                LeaderEpoch::NONE => header.leader_epoch,
                epoch => epoch,
            };
            fill(&mut whole, end..header.base_offset, of);
            whole.extend_from_slice(batch.bytes);
        }
        (end, epoch) = (next, header.leader_epoch);
    }
    match log.append(whole, AppendAs::Follower) {
        Ok(_) => Ok(true),
        Err(_) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
    }
}

/// Headers for offsets that hold nothing.
fn fill(out: &mut Vec<u8>, offsets: Range<Offset>, leader_epoch: LeaderEpoch) {
    let Range { mut start, end } = offsets;
    while start < end && !active(Mutant::HoleNotFilled) {
        sometimes(Mark::HoleFilled);
        out.extend_from_slice(&vacant(start, end, leader_epoch));
        start = start.plus(1 << 31).min(end);
    }
}

impl Node {
    /// A message of another node could not be read.
    pub(crate) fn peer_message_refused(&self) {
        count(&self.metrics.peer_messages_refused);
    }
}
