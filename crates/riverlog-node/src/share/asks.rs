//! What leaders of partitions, their coordinators and the coordinators of groups ask each other.
//!
//! The one that is meant is found in the image when the question is put: this node, which is asked at once, or another, over
//! the peers' messages. A question that gets lost, comes to the wrong node or finds a coordinator that isn't ready is put again
//! until its patience ends. That is harmless: of one node's commands about a share partition the coordinator takes
//! none after a later one ([`riverlog_core::share::ShareTurn`]), and the same one twice is the same as once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use riverlog_core::Now;
use riverlog_core::groups::partition_for;
use riverlog_core::metadata::{MetadataImage, TopicRef};
use riverlog_core::share::{
    ShareAnswer, ShareCommand, ShareKey, ShareShard, ShareState, ShareSummary, ShareTold, ShareTurn,
};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::SHARE_TOPIC;
use crate::command::{Isolation, OffsetAnswer, OffsetQuery, Reply};
use crate::node::Node;
use crate::peers::Message;
use crate::quorum::Quorum;
use crate::timers::Timer;

/// How long a command is tried. The clients' own patience is longer (Kafka: `share.coordinator.write.timeout.ms`, and retries).
const PATIENCE: Duration = Duration::from_secs(10);

/// The same for what isn't a command.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);

/// After this time without an answer a question is put again.
const RESEND: Duration = Duration::from_secs(1);

/// A pause before a question is put again that wasn't taken.
const PAUSE: Duration = Duration::from_millis(50);

/// Questions that may wait for their answers.
const WAITING: usize = 100_000;

/// What is asked, of which share partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShareQuestion {
    /// Of the coordinator.
    Tell(ShareCommand),
    /// Of the coordinator: in short what is kept.
    Summary(ShareKey),
    /// Of the partition's leader: its high watermark.
    End(ShareKey),
    /// Of the partition's leader: what is in flight is to be loaded anew.
    Forget(ShareKey),
    /// Of the leader of a partition for dead letters: a batch of them.
    Bury(ShareKey, Bytes),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShareSaid {
    Done,
    State(ShareState),
    Summary(Option<ShareSummary>),
    End(Offset),
}

type Answer = Result<ShareSaid, ErrorCode>;

impl ShareQuestion {
    pub(crate) fn key(&self) -> &ShareKey {
        match self {
            ShareQuestion::Tell(command) => command.key(),
            ShareQuestion::Summary(key)
            | ShareQuestion::End(key)
            | ShareQuestion::Forget(key)
            | ShareQuestion::Bury(key, _) => key,
        }
    }

    /// After how long without an answer it is put again.
    fn resend(&self) -> Duration {
        match self {
            // It would be there twice.
            ShareQuestion::Bury(..) => SHORT_PATIENCE,
            _ => RESEND,
        }
    }

    fn patience(&self) -> Duration {
        match self {
            ShareQuestion::Tell(_) => PATIENCE,
            _ => SHORT_PATIENCE,
        }
    }
}

/// Questions without an answer, by their number.
#[derive(Default)]
pub(crate) struct Asks {
    /// Begins anywhere, so that an answer to an earlier life is none to this one.
    next: Option<i64>,
    open: BTreeMap<i64, Ask>,
    /// When they are looked at next.
    look: Option<Duration>,
}

struct Ask {
    question: ShareQuestion,
    /// Whom it was put to, in which leadership; `None`: it waits to be put again.
    sent: Option<(BrokerId, LeaderEpoch)>,
    /// When it is put again.
    again: Duration,
    deadline: Duration,
    /// What became of it last.
    failure: ErrorCode,
    reply: Reply<Answer>,
}

/// Who answers a question.
enum Place {
    /// This node alone, or as leader.
    Here,
    At(BrokerId, LeaderEpoch),
    /// Nobody, for now.
    Nobody,
    /// There is nothing to ask about.
    Nothing,
}

fn is_worth_another_try(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::NOT_COORDINATOR
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::OFFSET_NOT_AVAILABLE
    )
}

impl Node {
    /// Has the coordinator keep something, wherever it is. REQUEST_TIMED_OUT: it may have been kept.
    pub(crate) fn keep_share(&self, command: ShareCommand, now: Now, reply: Reply<ShareAnswer>) {
        let reply = Reply::new(move |answer: Answer| {
            reply.send(match answer {
                Ok(ShareSaid::State(state)) => Ok(Some(state)),
                Ok(ShareSaid::Done) => Ok(None),
                Ok(_) => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
                Err(error) => Err(error),
            });
        });
        self.ask_share(ShareQuestion::Tell(command), now, reply);
    }

    pub(super) fn ask_share(&self, question: ShareQuestion, now: Now, reply: Reply<Answer>) {
        let deadline = now.mono.saturating_add(question.patience());
        self.put_share(question, deadline, now, reply);
    }

    fn put_share(
        &self,
        question: ShareQuestion,
        deadline: Duration,
        now: Now,
        reply: Reply<Answer>,
    ) {
        match self.share_place(&question, now) {
            Place::Here => {
                let me = self.settings.broker;
                // What waits for copies that don't come isn't put again, and ends.
                let ask = Ask {
                    question: question.clone(),
                    sent: Some((me, LeaderEpoch::NONE)),
                    again: deadline,
                    deadline,
                    failure: ErrorCode::REQUEST_TIMED_OUT,
                    reply,
                };
                let Some(number) = self.enter_share(ask) else {
                    return;
                };
                let node = self.this.clone();
                let reply = Reply::new(move |answer| {
                    if let Some(node) = node.upgrade() {
                        node.share_answered(me, number, answer, node.as_of(now));
                    }
                });
                self.answer_share_here(question, None, now, reply);
            }
            Place::At(to, epoch) => {
                let Some(broker_epoch) = self.membership.broker_epoch() else {
                    let error = Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
                    return self.share_said(question, deadline, error, now, reply);
                };
                let ask = Ask {
                    question: question.clone(),
                    sent: Some((to, epoch)),
                    again: now.mono + question.resend(),
                    deadline,
                    failure: ErrorCode::REQUEST_TIMED_OUT,
                    reply,
                };
                let Some(number) = self.enter_share(ask) else {
                    return;
                };
                let message = Message::ShareAsk {
                    number,
                    broker_epoch,
                    epoch,
                    question,
                };
                self.say(to, &message, now);
            }
            Place::Nobody => {
                let error = Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
                self.share_said(question, deadline, error, now, reply);
            }
            Place::Nothing => reply.send(match question {
                ShareQuestion::Summary(_) => Ok(ShareSaid::Summary(None)),
                ShareQuestion::Forget(_) => Ok(ShareSaid::Done),
                ShareQuestion::Tell(_) | ShareQuestion::End(_) | ShareQuestion::Bury(..) => {
                    Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
                }
            }),
        }
    }

    fn share_place(&self, question: &ShareQuestion, now: Now) -> Place {
        let image = self.image.load();
        let place = self.share_place_in(&image, question);
        if matches!((&place, question), (Place::Nobody, ShareQuestion::Tell(_)))
            && image.topic(SHARE_TOPIC).is_none()
        {
            drop(image);
            self.make_coordinator_topic::<ShareShard>(now);
        }
        place
    }

    fn share_place_in(&self, image: &MetadataImage, question: &ShareQuestion) -> Place {
        if self.settings.quorum == Quorum::Own {
            return Place::Here;
        }
        let key = question.key();
        let of_coordinator = matches!(question, ShareQuestion::Tell(_) | ShareQuestion::Summary(_));
        let (topic, index) = if of_coordinator {
            let Some(topic) = image.topic(SHARE_TOPIC) else {
                return match question {
                    ShareQuestion::Summary(_) => Place::Nothing,
                    _ => Place::Nobody,
                };
            };
            let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            (topic, partition_for(&key.name(), count))
        } else {
            let Some(topic) = image.topics.get(&key.topic) else {
                return Place::Nothing;
            };
            (topic, key.partition)
        };
        let at = usize::try_from(index).ok();
        let Some(partition) = at.and_then(|at| topic.partitions.get(at)) else {
            return Place::Nothing;
        };
        match partition.leader {
            Some(leader) if leader == self.settings.broker => Place::Here,
            Some(leader) => Place::At(leader, partition.leader_epoch),
            // Whoever leads next loads anew.
            None if matches!(question, ShareQuestion::Forget(_)) => Place::Nothing,
            None => Place::Nobody,
        }
    }

    /// `None`: too many wait.
    fn enter_share(&self, ask: Ask) -> Option<i64> {
        let at = ask.again.min(ask.deadline);
        let number = {
            let mut asks = self.sharing.asks.lock();
            if asks.open.len() >= WAITING {
                drop(asks);
                ask.reply.send(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE));
                return None;
            }
            let number = match asks.next {
                Some(next) => next,
                None => (self.entropy.next_u128() >> 68) as i64,
            };
            asks.next = Some(number + 1);
            asks.open.insert(number, ask);
            number
        };
        self.look_at_asks(at);
        Some(number)
    }

    /// No later than `at`.
    fn look_at_asks(&self, at: Duration) {
        {
            let mut asks = self.sharing.asks.lock();
            if asks.look.is_some_and(|look| look <= at) {
                return;
            }
            asks.look = Some(at);
        }
        let (_, first) = self.timers.add(at, Timer::ShareAsks);
        if first {
            self.host.deadline_changed();
        }
    }

    /// An answer has come: it is given, or the question is put again.
    fn share_said(
        &self,
        question: ShareQuestion,
        deadline: Duration,
        answer: Answer,
        now: Now,
        reply: Reply<Answer>,
    ) {
        let again = now.mono + PAUSE;
        match answer {
            Err(failure)
                if is_worth_another_try(failure) && again < deadline && !self.is_closing() =>
            {
                self.enter_share(Ask {
                    question,
                    sent: None,
                    again,
                    deadline,
                    failure,
                    reply,
                });
            }
            answer => reply.send(answer),
        }
    }

    /// Another node's answer.
    pub(crate) fn share_answered(&self, from: BrokerId, number: i64, answer: Answer, now: Now) {
        let ask = {
            let mut asks = self.sharing.asks.lock();
            let sent_there = |ask: &Ask| ask.sent.is_some_and(|(to, _)| to == from);
            if !asks.open.get(&number).is_some_and(sent_there) {
                return;
            }
            asks.open.remove(&number)
        };
        if let Some(ask) = ask {
            self.share_said(ask.question, ask.deadline, answer, now, ask.reply);
        }
    }

    /// Time has come for some.
    pub(crate) fn share_asks_due(&self, now: Now) {
        let is_due = |ask: &Ask| ask.again.min(ask.deadline) <= now.mono;
        let silent: BTreeSet<BrokerId> = {
            let mut asks = self.sharing.asks.lock();
            asks.look = None;
            let due = asks.open.values().filter(|ask| is_due(ask));
            let sent = due.filter_map(|ask| ask.sent).map(|(to, _)| to);
            sent.filter(|to| *to != self.settings.broker).collect()
        };
        for node in silent {
            self.does_not_answer(node, now);
        }
        self.put_shares_again(now, is_due);
        let next = {
            let asks = self.sharing.asks.lock();
            let each = asks.open.values();
            each.map(|ask| ask.again.min(ask.deadline)).min()
        };
        if let Some(next) = next {
            self.look_at_asks(next);
        }
    }

    /// Others may be the ones to ask.
    pub(crate) fn share_asks_moved(&self, now: Now) {
        let image = self.image.load_full();
        let me = self.settings.broker;
        self.put_shares_again(now, |ask| {
            // This node answers what it was asked itself, whatever becomes of it.
            let sent = ask.sent.filter(|(to, _)| *to != me);
            sent.is_some_and(|sent| {
                let place = self.share_place_in(&image, &ask.question);
                !matches!(place, Place::At(to, epoch) if (to, epoch) == sent)
            })
        });
    }

    fn put_shares_again(&self, now: Now, which: impl Fn(&Ask) -> bool) {
        let asks: Vec<Ask> = {
            let mut asks = self.sharing.asks.lock();
            let numbers = asks.open.iter().filter(|(_, ask)| which(ask));
            let numbers: Vec<i64> = numbers.map(|(number, _)| *number).collect();
            let take = |number: &i64| asks.open.remove(number);
            numbers.iter().filter_map(take).collect()
        };
        for ask in asks {
            if ask.deadline <= now.mono || self.is_closing() {
                ask.reply.send(Err(ask.failure));
            } else {
                self.put_share(ask.question, ask.deadline, now, ask.reply);
            }
        }
    }

    /// The node stops.
    pub(super) fn end_share_asks(&self) {
        let asks = std::mem::take(&mut self.sharing.asks.lock().open);
        for ask in asks.into_values() {
            ask.reply.send(Err(ask.failure));
        }
    }

    /// Another node asks this one.
    pub(crate) fn share_asked(
        &self,
        from: BrokerId,
        number: i64,
        (broker_epoch, epoch): (i64, LeaderEpoch),
        question: ShareQuestion,
        now: Now,
    ) {
        let node = self.this.clone();
        let reply = Reply::new(move |answer: Answer| {
            // What came late is answered as what came before it.
            let is_late = answer == Err(ErrorCode::DUPLICATE_SEQUENCE_NUMBER);
            if let Some(node) = node.upgrade().filter(|_| !is_late) {
                node.say(
                    from,
                    &Message::ShareSaid { number, answer },
                    node.as_of(now),
                );
            }
        });
        if !self.is_lives_epoch(from, broker_epoch) {
            // It has registered anew, or this node hasn't heard of that.
            return reply.send(Err(ErrorCode::NOT_COORDINATOR));
        }
        let turn = ShareTurn {
            from,
            broker_epoch,
            number,
        };
        self.answer_share_here(question, Some((turn, epoch)), now, reply);
    }

    /// `asked`: by which node, of which leadership; `None`: by this node.
    fn answer_share_here(
        &self,
        question: ShareQuestion,
        asked: Option<(ShareTurn, LeaderEpoch)>,
        now: Now,
        reply: Reply<Answer>,
    ) {
        match question {
            ShareQuestion::Tell(command) => {
                let name = command.key().name();
                if let Some((_, epoch)) = asked
                    && !self.coordinates_share_in(&name, epoch)
                {
                    return reply.send(Err(ErrorCode::NOT_COORDINATOR));
                }
                let reply = Reply::new(move |answer: ShareAnswer| {
                    reply.send(answer.map(|state| match state {
                        Some(state) => ShareSaid::State(state),
                        None => ShareSaid::Done,
                    }));
                });
                let turn = asked.map(|(turn, _)| turn);
                let told = ShareTold { turn, command };
                self.coordinate::<ShareShard>(&name, told, (), now, reply);
            }
            ShareQuestion::Summary(key) => {
                let name = key.name();
                if let Some((_, epoch)) = asked
                    && !self.coordinates_share_in(&name, epoch)
                {
                    return reply.send(Err(ErrorCode::NOT_COORDINATOR));
                }
                let reply = Reply::new(move |answer: Result<Option<ShareSummary>, ErrorCode>| {
                    reply.send(answer.map(ShareSaid::Summary));
                });
                let Some(shards) = self.share_shards.load_full() else {
                    return reply.send(Ok(None));
                };
                match shards.of(&name) {
                    Some(shard) => self.shard_question(shard, now, reply, |kept: &ShareShard| {
                        let (summary, after) = kept.summary(&key);
                        (Ok(summary), after)
                    }),
                    None => reply.send(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)),
                }
            }
            ShareQuestion::End(key) => {
                let epoch = asked.map_or(LeaderEpoch::NONE, |(_, epoch)| epoch);
                let place = TopicRef::Id(key.topic);
                match self.tables.find(&place, key.partition) {
                    Err(error) => reply.send(Err(error)),
                    Ok(partition) => {
                        let reply = Reply::new(move |found: OffsetAnswer| {
                            reply.send(match found.error {
                                ErrorCode::NONE => Ok(ShareSaid::End(found.offset)),
                                error => Err(error),
                            });
                        });
                        let isolation = Isolation::ReadUncommitted;
                        self.find_offset(&partition, OffsetQuery::Latest, isolation, epoch, reply);
                    }
                }
            }
            ShareQuestion::Forget(key) => {
                let leads = |epoch| {
                    let found = self.tables.find(&TopicRef::Id(key.topic), key.partition);
                    found.is_ok_and(|p| p.state.lock().check_epoch(epoch).is_ok())
                };
                if asked.is_some_and(|(_, epoch)| !leads(epoch)) {
                    return reply.send(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
                }
                self.drop_held(&key, now);
                reply.send(Ok(ShareSaid::Done));
            }
            ShareQuestion::Bury(key, batch) => {
                let epoch = asked.map_or(LeaderEpoch::NONE, |(_, epoch)| epoch);
                let place = TopicRef::Id(key.topic);
                let found = self.tables.find(&place, key.partition);
                let led = found.and_then(|partition| {
                    partition.state.lock().check_epoch(epoch)?;
                    Ok(partition)
                });
                match led {
                    Ok(partition) => self.take_dead(&partition, &batch, now, reply),
                    Err(error) => reply.send(Err(error)),
                }
            }
        }
    }

    /// Whether what keeps `name` is led here, in that epoch.
    fn coordinates_share_in(&self, name: &str, epoch: LeaderEpoch) -> bool {
        let shards = self.share_shards.load();
        let shard = shards.as_ref().and_then(|shards| shards.of(name));
        shard.is_some_and(|shard| {
            let state = shard.partition.state.lock();
            state.leads() && state.epoch() == epoch
        })
    }
}
