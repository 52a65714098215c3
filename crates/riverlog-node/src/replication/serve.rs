//! A leader's answers to its followers, and asks that wait for something new.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::replica::{FollowerAnswer, FollowerError, Leader, Position};
use riverlog_log::{Log, LogKey, Read, ReadError, ReadPlan};
use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::{Lane, PeerAsk, PeerPart, Stamp};
use crate::errors::read_code;
use crate::jobs::Work;
use crate::node::Node;
use crate::partition::{Owed, Partition, Standing, State, epoch_end};
use crate::peers::Message;
use crate::timers::Timer;

/// Asks that found nothing new, one for each conversation.
#[derive(Default)]
pub(super) struct Waiting(BTreeMap<(BrokerId, Lane), Parked>);

struct Parked {
    number: i64,
    word: Word,
    asks: BTreeMap<LogKey, PeerAsk>,
    /// How much a copy that catches up takes at once.
    catches_up: Option<usize>,
    deadline: Duration,
}

/// What one partition has for a follower.
struct Served {
    part: PeerPart,
    /// Records that aren't in memory.
    plan: Option<ReadPlan>,
    /// Worth an answer.
    news: bool,
}

/// An answer of which some records must be read first.
pub(crate) struct PeerRead {
    to: BrokerId,
    lane: Lane,
    number: i64,
    parts: Vec<PeerPart>,
    /// Place in `parts`.
    plans: Vec<(usize, ReadPlan)>,
    max_bytes: usize,
}

/// That answer.
pub(crate) struct PeerReadDone {
    to: BrokerId,
    lane: Lane,
    number: i64,
    parts: Vec<PeerPart>,
    failed: Vec<(LogKey, ReadError)>,
}

impl PeerRead {
    pub(crate) fn run(self) -> PeerReadDone {
        let mut parts = self.parts;
        let mut failed = Vec::new();
        let mut bytes: usize = parts.iter().map(|p| p.records.len()).sum();
        for (at, plan) in self.plans {
            let Some(part) = parts.get_mut(at) else {
                continue;
            };
            if bytes >= self.max_bytes {
                break;
            }
            match plan.run().and_then(|slices| slices.into_bytes()) {
                Ok(records) => {
                    bytes += records.len();
                    part.records = records;
                }
                Err(error) => {
                    part.answer = Err(read_code(&error));
                    failed.push((part.key, error));
                }
            }
        }
        PeerReadDone {
            to: self.to,
            lane: self.lane,
            number: self.number,
            parts,
            failed,
        }
    }
}

impl Node {
    /// A follower asks for what is new in all that it follows here, and says how far it is.
    pub(crate) fn asked_by_follower(
        &self,
        word: Word,
        number: i64,
        asks: Vec<PeerAsk>,
        catches_up: Option<usize>,
        now: Now,
    ) {
        let from = word.from;
        if !self.is_lives_epoch(from, word.broker_epoch) {
            // It has registered anew, or this node hasn't heard of that: it asks again.
            sometimes(Mark::EarlierLifeUnheard);
            return;
        }
        let conversation = (from, lane_of(catches_up));
        let (mut left, rests) = self.room(catches_up, now);
        let patience = now.mono + self.settings.cluster.fetch_wait;
        let deadline = rests.map_or(patience, |until| until.min(patience));
        let all = asks.iter().map(|ask| (ask.key, *ask)).collect();
        {
            // Before the look: what comes meanwhile finds it waiting.
            let mut waiting = self.replication.serving.lock();
            let parked = Parked {
                number,
                word,
                asks: all,
                catches_up,
                deadline,
            };
            waiting.0.insert(conversation, parked);
        }
        let most = left;
        let mut served = Vec::new();
        for ask in &asks {
            served.extend(self.serve(word, ask, &mut left, now));
        }
        if !served.iter().any(|s| s.news) {
            let (_, first) = self
                .timers
                .add(deadline, Timer::PeerWait(from, conversation.1));
            if first {
                self.host.deadline_changed();
            }
            return;
        }
        if self
            .take_parked(conversation, |p| p.number == number)
            .is_some()
        {
            self.send_served(conversation, number, served, most, now);
        }
    }

    /// How much an answer may hold, and until when a copy that catches up has to wait for more.
    fn room(&self, catches_up: Option<usize>, now: Now) -> (usize, Option<Duration>) {
        let all = self.settings.cluster.fetch_bytes;
        let Some(most) = catches_up else {
            return (all, None);
        };
        let gives = self.replication.rates.gives.lock();
        match gives.waits_until(now) {
            Some(until) => (0, Some(until)),
            None => (gives.at_once(all.min(most)), None),
        }
    }

    /// A follower says how far it is.
    pub(crate) fn told_by_follower(&self, word: Word, asks: &[PeerAsk], now: Now) {
        if self.is_lives_epoch(word.from, word.broker_epoch) {
            for ask in asks {
                self.serve(word, ask, &mut 0, now);
            }
        }
    }

    /// Whether a follower speaks in the life that it is registered for: what an earlier one had may be lost.
    pub(crate) fn is_lives_epoch(&self, broker: BrokerId, epoch: i64) -> bool {
        let image = self.image.load();
        active(Mutant::EarlierLifeInSync)
            || image.brokers.get(&broker).is_some_and(|b| b.epoch == epoch)
    }

    fn take_parked(
        &self,
        conversation: (BrokerId, Lane),
        of: impl Fn(&Parked) -> bool,
    ) -> Option<Parked> {
        let mut waiting = self.replication.serving.lock();
        match waiting.0.get(&conversation) {
            Some(parked) if of(parked) => waiting.0.remove(&conversation),
            _ => None,
        }
    }

    /// Takes a follower's word, and looks for what is new to it.
    fn serve(&self, word: Word, ask: &PeerAsk, left: &mut usize, now: Now) -> Option<Served> {
        let Some(partition) = self.by_key(ask.key) else {
            return Some(refused(ask.key, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
        };
        let max = self.settings.cluster.partition_bytes.min(*left);
        let mut owed = Owed::default();
        let served = {
            let mut state = partition.state.lock();
            state.serve(word, ask, max, now, &mut owed)
        };
        self.settle(&partition, owed, now);
        let served = served.unwrap_or_else(|error| refused(ask.key, error));
        let planned = match served.plan {
            Some(_) => max,
            None => 0,
        };
        *left = left.saturating_sub(planned.max(served.part.records.len()));
        Some(served)
    }

    /// A partition has more records than before: who waits for that is answered.
    pub(crate) fn wake_followers(&self, partition: &Arc<Partition>, now: Now) {
        let waiting: Vec<((BrokerId, Lane), Parked)> = {
            let mut waiting = self.replication.serving.lock();
            let rests = |p: &Parked| self.room(p.catches_up, now).1.is_some();
            let asked = waiting.0.iter();
            let asked = asked.filter(|(_, p)| p.asks.contains_key(&partition.key) && !rests(p));
            let conversations: Vec<(BrokerId, Lane)> = asked.map(|(c, _)| *c).collect();
            let take = |c| Some((c, waiting.0.remove(&c)?));
            conversations.into_iter().filter_map(take).collect()
        };
        for (conversation, parked) in waiting {
            let Some(ask) = parked.asks.get(&partition.key) else {
                continue;
            };
            let (mut left, _) = self.room(parked.catches_up, now);
            let most = left;
            let served = self.serve(parked.word, ask, &mut left, now);
            let served = served.into_iter().collect();
            self.send_served(conversation, parked.number, served, most, now);
        }
    }

    /// Nothing new came in time: the follower hears where the high watermarks are.
    pub(crate) fn answer_late(&self, follower: BrokerId, lane: Lane, now: Now) {
        let conversation = (follower, lane);
        let Some(parked) = self.take_parked(conversation, |p| p.deadline <= now.mono) else {
            return;
        };
        let (mut left, _) = self.room(parked.catches_up, now);
        let most = left;
        let mut served = Vec::new();
        for ask in parked.asks.values() {
            served.extend(self.serve(parked.word, ask, &mut left, now));
        }
        self.send_served(conversation, parked.number, served, most, now);
    }

    /// Sends an answer, of not much more than `max_bytes`.
    fn send_served(
        &self,
        (to, lane): (BrokerId, Lane),
        number: i64,
        served: Vec<Served>,
        max_bytes: usize,
        now: Now,
    ) {
        let mut parts = Vec::with_capacity(served.len());
        let mut plans = Vec::new();
        for one in served {
            plans.extend(one.plan.map(|plan| (parts.len(), plan)));
            parts.push(one.part);
        }
        if plans.is_empty() {
            self.gave(lane, &parts, now);
            return self.send_records((to, lane), number, parts, now);
        }
        self.run_job(Work::Replicate(Box::new(PeerRead {
            to,
            lane,
            number,
            parts,
            plans,
            max_bytes,
        })));
    }

    fn gave(&self, lane: Lane, parts: &[PeerPart], now: Now) {
        if lane == Lane::CatchUp {
            let bytes = parts.iter().map(|p| p.records.len()).sum();
            self.replication.rates.gives.lock().passed(bytes, now);
        }
    }

    /// What had to be read is there.
    pub(crate) fn peer_read(&self, done: PeerReadDone, now: Now) {
        self.gave(done.lane, &done.parts, now);
        for (key, error) in &done.failed {
            if let Some(partition) = self.by_key(*key) {
                self.read_failed(&partition, error);
            }
        }
        self.send_records((done.to, done.lane), done.number, done.parts, now);
    }

    fn send_records(
        &self,
        (to, lane): (BrokerId, Lane),
        number: i64,
        parts: Vec<PeerPart>,
        now: Now,
    ) {
        let stamp = self.membership.broker_epoch().map(|broker_epoch| Stamp {
            broker_epoch,
            at: now.mono,
        });
        let message = Message::Records {
            number,
            parts,
            stamp,
        };
        self.send_as(to, &message, lane == Lane::CatchUp);
    }

    /// Of whom a follower's word is, and since when it stands by it. A stamp of another life of this node says nothing.
    pub(crate) fn word_of(
        &self,
        from: BrokerId,
        broker_epoch: i64,
        stamp: Option<Stamp>,
        now: Now,
    ) -> Word {
        let own = self.membership.broker_epoch();
        let since = match stamp.filter(|_| !active(Mutant::StampUnread)) {
            Some(said) if Some(said.broker_epoch) == own && said.at <= now.mono => Some(said.at),
            Some(_) => None,
            // Of an older release it is not known when it said so.
            None => Some(now.mono),
        };
        Word {
            from,
            broker_epoch,
            since,
        }
    }
}

/// Whose word it is.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    from: BrokerId,
    broker_epoch: i64,
    /// It was said after that moment of the monotonic clock, however long it was under way or waits.
    since: Option<Duration>,
}

impl Word {
    fn heard(
        self,
        leader: &mut Leader,
        epoch: LeaderEpoch,
        said: Position,
        now: Now,
    ) -> Result<Option<Offset>, FollowerError> {
        let moved = leader.on_follower_fetch(self.from, self.broker_epoch, epoch, said, now)?;
        if let Some(since) = self.since {
            leader.on_followed(self.from, since);
        }
        Ok(moved)
    }
}

fn lane_of(catches_up: Option<usize>) -> Lane {
    match catches_up {
        None => Lane::Tail,
        Some(_) => Lane::CatchUp,
    }
}

fn refused(key: LogKey, error: ErrorCode) -> Served {
    Served {
        part: PeerPart {
            key,
            answer: Err(error),
            records: Bytes::new(),
        },
        plan: None,
        news: true,
    }
}

impl State {
    fn serve(
        &mut self,
        word: Word,
        ask: &PeerAsk,
        max_bytes: usize,
        now: Now,
        owed: &mut Owed,
    ) -> Result<Served, ErrorCode> {
        if !active(Mutant::FollowerEpochUnchecked) || !self.leads() {
            self.check_epoch(ask.epoch)
                .inspect_err(|_| sometimes(Mark::OtherEpochRefused))?;
        }
        let news = |answer, records, plan| Served {
            part: PeerPart {
                key: ask.key,
                answer: Ok(answer),
                records,
            },
            plan,
            news: true,
        };
        if active(Mutant::WordBeforeLook) {
            let said = Position {
                written: ask.written,
                synced: ask.synced,
            };
            let moved = word.heard(&mut self.leader, ask.epoch, said, now);
            if let Ok(Some(_)) = moved {
                self.watermark_moved(owed);
            }
        }
        // A log that can't be read must not look like one with other epochs: the follower would cut what it has.
        self.know_transactions()?;
        let log = self
            .log
            .as_mut()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        // Before its word is taken: what it has beyond what both have in common must not count.
        if let Some((epoch, end)) = diverging(log, ask) {
            let answer = FollowerAnswer::Diverging { epoch, end };
            return Ok(news(answer, Bytes::new(), None));
        }
        let (log_start, log_end) = (log.log_start_offset(), log.log_end_offset());
        if ask.from < log_start || ask.from > log_end {
            let answer = FollowerAnswer::OutOfRange { log_start, log_end };
            return Ok(news(answer, Bytes::new(), None));
        }
        let written = ask.written.min(ask.from);
        let said = Position {
            written,
            synced: ask.synced.min(written),
        };
        // What was given to it and isn't written here yet it can't have.
        let moved = word
            .heard(&mut self.leader, ask.epoch, said, now)
            .map_err(|error| error.error_code())?;
        if moved.is_some() {
            self.watermark_moved(owed);
        }
        if let Standing::Leads(leading) = &mut self.standing {
            leading.starts.insert(word.from, ask.log_start);
        }
        self.answer_under_min_isr(owed);
        owed.isr |= self.leader.isr_len() < self.replicas && !self.leader.caught_up().is_empty();
        let answer = FollowerAnswer::Matches {
            high_watermark: self.leader.high_watermark(),
            log_start,
        };
        if max_bytes == 0 {
            return Ok(Served {
                news: false,
                ..news(answer, Bytes::new(), None)
            });
        }
        let log = self
            .log
            .as_mut()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let read = log
            .read(ask.from, log_end, max_bytes)
            .map_err(|error| read_code(&error))?;
        Ok(match read {
            Read::Plan(plan) => news(answer, Bytes::new(), Some(plan)),
            Read::Ready(slices) => {
                let records = slices.into_bytes().map_err(|error| read_code(&error))?;
                Served {
                    news: !records.is_empty(),
                    ..news(answer, records, None)
                }
            }
        })
    }
}

/// The largest epoch at or below that of the copy's last batch, and its end, where the copy went on beyond that.
fn diverging(log: &Log, ask: &PeerAsk) -> Option<(LeaderEpoch, Offset)> {
    if ask.last_epoch.0 < 0 {
        return None;
    }
    let none = (LeaderEpoch::NONE, Offset(-1));
    let known = epoch_end(log, ask.last_epoch);
    let (epoch, end) = known.map_or(none, |e| (e.epoch, e.end));
    let other = epoch < ask.last_epoch && !active(Mutant::CutByOffset);
    (other || end < ask.from).then_some((epoch, end))
}
