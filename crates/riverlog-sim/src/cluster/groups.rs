//! Groups whose coordinators fail over: members that look for their coordinator by metadata, as producers do for leaders.
//!
//! What members do, and what must be true of what they are told, is in `crate::groups`; members of share groups are in `sharers`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_core::metadata::{AdminCommand, TopicRef};
use riverlog_core::transactions::TransactionAnswer;
use riverlog_log::disk::Random;
use riverlog_mutants::{Mark, sometimes};
use riverlog_node::{FetchAnswer, Reply, ShareFetchAnswer};
use riverlog_wire::{ErrorCode, Offset, TopicId};

use super::sharers::{self, Sharer};
use super::swarm::Swarm;
use super::transactors::{self, StableReader, TransactPlan, Transactor};
use super::world::{Event, World};
use crate::groups::mixed::MixedPlan;
use crate::groups::streams::StreamsPlan;
use crate::groups::{Ask, GroupsPlan, Known, Member, Moment, Told};
use crate::model::Violation;
use crate::shares::{SharePlan, Shares};
use crate::transactions::Transactions;

/// The topic that keeps what members hold and have committed.
const OFFSETS: &str = "__consumer_offsets";

/// How long a member waits for an answer before it asks again, perhaps elsewhere.
const PATIENCE: Duration = Duration::from_secs(4);

/// What is due for a member.
pub(super) enum Due {
    Step(usize),
    /// It has waited long enough.
    Impatient {
        me: usize,
        number: u64,
    },
}

/// What comes back from a node.
pub(super) enum Heard {
    Group(Told),
    Acquired(ShareFetchAnswer),
    Said(Result<(), ErrorCode>),
    Stored(Option<Offset>),
    Transaction(Box<TransactionAnswer>),
    /// A batch of a transaction was stored, or wasn't.
    Sent(Option<ErrorCode>),
    Fetched(Box<FetchAnswer>),
}

enum Who {
    Member(Box<dyn Member>),
    Sharer(Sharer),
    Transactor(Transactor),
    Stable(StableReader),
}

struct Seat {
    who: Who,
    /// The request that it waits for, and where.
    asking: Option<(u64, usize)>,
    /// Who coordinated its group when it asked.
    asked_of: Option<Place>,
}

/// A leadership of a partition: in which life of which node, and in which epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: usize,
    pub(super) life: u64,
    pub(super) epoch: i32,
}

type Inbox = Arc<Mutex<Vec<(usize, u64, Heard)>>>;

/// The groups of a run. Draws from a source of its own, so that a seed without any is what it would be without this.
pub(super) struct Groups {
    pub(super) random: Random,
    plan: GroupsPlan,
    pub(super) share: Option<SharePlan>,
    transact: Option<TransactPlan>,
    seats: Vec<Seat>,
    known: Known,
    pub(super) shares: Shares,
    pub(super) transactions: Transactions,
    inbox: Inbox,
    requests: u64,
    /// The newest epoch of the coordinator that anybody has heard of.
    newest: i32,
    /// Who answered last.
    coordinator: Option<Place>,
    /// The newest epoch of each partition of what a share group reads.
    newest_shared: BTreeMap<i32, i32>,
}

impl Groups {
    /// One of eight seeds has groups of both protocols and of an application of Kafka Streams, two of thirteen a share group, one of seven
    /// transactional producers.
    pub(super) fn draw(seed: u64, swarm: &mut Swarm) -> Groups {
        let mut random = Random::new(seed ^ 0x67_72_6f_75);
        let mut plan = GroupsPlan::default();
        let mut share = None;
        if seed % 8 == 4 {
            let classic = [0, 0, 5][random.below(3) as usize];
            plan.mixed = Some(MixedPlan::draw(&mut random, classic));
            plan.streams = random
                .chance(1, 2)
                .then(|| StreamsPlan::draw(&mut random, 3));
            plan.set(&mut swarm.settings.groups);
        }
        if matches!(seed % 13, 4 | 2) {
            share = Some(SharePlan {
                members: 1 + random.below(3) as usize,
                key_order: random.chance(1, 2),
                backoff: Duration::ZERO,
            });
            let partitions = ["1", "3"][random.below(2) as usize];
            for (key, value) in [
                ("share.coordinator.state.topic.num.partitions", partitions),
                ("group.share.min.record.lock.duration.ms", "1000"),
            ] {
                let configs = &mut swarm.settings.configs;
                configs.insert(key.to_owned(), value.to_owned());
            }
        }
        let transact = (seed % 7 == 3).then(|| TransactPlan {
            producers: 1 + random.below(2) as usize,
            partitions: [1, 3][random.below(2) as usize],
        });
        if let Some(plan) = transact {
            plan.set(&mut swarm.settings);
        }
        let members = plan.members().into_iter().map(Who::Member);
        let sharers =
            (0..share.map_or(0, |plan| plan.members)).map(|n| Who::Sharer(Sharer::new(n)));
        let transactors = (0..transact.map_or(0, |plan| plan.producers))
            .map(|n| Who::Transactor(Transactor::new(n)));
        let stable = transact.map(|_| Who::Stable(StableReader::default()));
        let all = members.chain(sharers).chain(transactors).chain(stable);
        let seats = all.map(|who| Seat {
            who,
            asking: None,
            asked_of: None,
        });
        Groups {
            seats: seats.collect(),
            random,
            plan,
            share,
            transact,
            known: Known::default(),
            shares: Shares::default(),
            transactions: Transactions::default(),
            inbox: Arc::default(),
            requests: 0,
            newest: 0,
            coordinator: None,
            newest_shared: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Whether somebody has heard of a newer leader of a partition of what a share group reads than of this epoch.
    pub(super) fn is_superseded(&mut self, partition: i32, now: Option<Place>, epoch: i32) -> bool {
        let newest = self.newest_shared.entry(partition).or_default();
        *newest = (*newest).max(now.map_or(0, |place| place.epoch));
        epoch < *newest
    }

    /// Answers that were checked.
    pub(super) fn checked(&self) -> u64 {
        self.known.checked
    }

    /// From now on nobody comes or goes, and everyone has to get on.
    pub(super) fn expect_progress(&mut self) {
        for seat in &mut self.seats {
            match &mut seat.who {
                Who::Member(member) => member.heal(),
                Who::Sharer(sharer) => sharer.heal(),
                Who::Transactor(transactor) => transactor.heal(),
                Who::Stable(reader) => reader.heal(),
            }
        }
    }

    /// Whether everyone has got on since.
    pub(super) fn have_progressed(&self) -> bool {
        self.seats.iter().all(|seat| match &seat.who {
            Who::Member(member) => member.has_progressed(),
            Who::Sharer(sharer) => sharer.has_progressed(),
            Who::Transactor(transactor) => transactor.has_progressed(),
            Who::Stable(reader) => reader.has_progressed(),
        })
    }

    /// Who hasn't.
    pub(super) fn stuck(&self) -> String {
        let stuck = self.seats.iter().filter_map(|seat| match &seat.who {
            Who::Member(m) if !m.has_progressed() => Some(format!("{m:?}")),
            Who::Sharer(s) if !s.has_progressed() => Some(format!("{s:?}")),
            Who::Transactor(t) if !t.has_progressed() => Some(format!("{t:?}")),
            Who::Stable(r) if !r.has_progressed() => Some(format!("{r:?}")),
            _ => None,
        });
        stuck.collect::<Vec<_>>().join("; ")
    }

    pub(super) fn transactor(&mut self, me: usize) -> Option<&mut Transactor> {
        match &mut self.seats.get_mut(me)?.who {
            Who::Transactor(transactor) => Some(transactor),
            _ => None,
        }
    }

    pub(super) fn stable(&mut self, me: usize) -> Option<&mut StableReader> {
        match &mut self.seats.get_mut(me)?.who {
            Who::Stable(reader) => Some(reader),
            _ => None,
        }
    }

    /// Whether there are transactional producers.
    pub(super) fn has_transactors(&self) -> bool {
        self.transact.is_some()
    }

    /// No transaction is under way, and none begins until everyone is to progress again.
    pub(super) fn transactors_are_done(&self) -> bool {
        self.seats.iter().all(|seat| match &seat.who {
            Who::Transactor(transactor) => transactor.has_progressed(),
            _ => true,
        })
    }

    /// Transactions are there as a whole or not at all, once everyone has progressed.
    pub(super) fn check_transactions(&self) -> Result<(), Violation> {
        self.seats.iter().try_for_each(|seat| match &seat.who {
            Who::Stable(reader) => reader.check(&self.transactions),
            _ => Ok(()),
        })
    }
}

impl World {
    /// Makes what groups read, and sets what they are to be like.
    pub(super) fn make_groups(&mut self) -> Result<(), Violation> {
        let mut topics = self.groups.plan.topics(3);
        if self.groups.share.is_some() {
            topics.push(sharers::topic());
        }
        if self.groups.has_transactors() {
            topics.push(transactors::topic());
        }
        if !topics.is_empty() {
            self.admin_anywhere(AdminCommand::CreateTopics {
                topics,
                validate_only: false,
            })?;
        }
        if let Some(plan) = self.groups.share {
            self.admin_anywhere(plan.configs())?;
        }
        for me in 0..self.groups.seats.len() {
            self.member_thinks(me, false);
        }
        Ok(())
    }

    /// Something that is to be done before members begin.
    pub(super) fn admin_anywhere(&mut self, command: AdminCommand) -> Result<(), Violation> {
        loop {
            let up = (0..self.machines.len()).find(|at| self.is_up(*at));
            let Some((node, now)) = up.and_then(|at| self.node(at)) else {
                self.step()?;
                continue;
            };
            let done: Arc<Mutex<Option<bool>>> = Arc::default();
            let out = Arc::clone(&done);
            let reply = Reply::new(move |answer: Result<_, ErrorCode>| {
                *out.lock() = Some(answer.is_ok());
            });
            node.admin(command.clone(), now, reply);
            let until = self.clock + PATIENCE;
            while done.lock().is_none() && self.clock < until {
                self.step()?;
            }
            if *done.lock() == Some(true) {
                return Ok(());
            }
            // One that knows of no controller says so at once.
            self.step()?;
        }
    }

    pub(super) fn member_thinks(&mut self, me: usize, back_off: bool) {
        let mut most = match self.healing {
            true => Duration::from_millis(20),
            false => self
                .swarm
                .think
                .clamp(Duration::from_millis(1), Duration::from_millis(300)),
        };
        if back_off {
            most = most.max(Duration::from_millis(50));
        }
        let later = 1 + self.groups.random.below(2 * most.as_micros() as u64);
        let at = self.clock + Duration::from_micros(later);
        self.schedule(at, Event::Group(Due::Step(me)));
    }

    /// Who leads a partition, by what any node knows.
    pub(super) fn leader_as_known(&mut self, topic: TopicId, index: i32) -> Option<usize> {
        let any = self.groups.random.below(self.machines.len() as u64) as usize;
        let (node, _) = self.node(any).filter(|_| self.is_up(any))?;
        let image = node.image();
        let partition = image.topics.get(&topic)?.partitions.get(index as usize)?;
        Some(partition.leader?.0 as usize - 1)
    }

    /// Who leads a partition, as the newest metadata has it.
    pub(super) fn led_now(&self, topic: &TopicRef, index: i32) -> Option<Place> {
        let image = self.newest_image()?;
        let topic = match topic {
            TopicRef::Id(id) => image.topics.get(id)?,
            TopicRef::Name(name) => image.topic(name)?,
        };
        let partition = topic.partitions.get(index as usize)?;
        let at = partition.leader?.0 as usize - 1;
        Some(Place {
            at,
            life: self.machines.get(at)?.life,
            epoch: partition.leader_epoch.0,
        })
    }

    fn coordinator_now(&mut self) -> Option<Place> {
        let place = self.led_now(&TopicRef::Name(OFFSETS.to_owned()), 0)?;
        self.groups.newest = self.groups.newest.max(place.epoch);
        Some(place).filter(|place| place.epoch == self.groups.newest)
    }

    pub(super) fn group_event(&mut self, due: Due) -> Result<(), Violation> {
        match due {
            Due::Step(me) => {
                if self.groups.seats[me].asking.is_none() {
                    self.member_step(me);
                }
                Ok(())
            }
            Due::Impatient { me, number } => {
                match self.groups.seats[me]
                    .asking
                    .is_some_and(|(n, _)| n == number)
                {
                    true => self.member_hears(me, Heard::Group(Told::Lost)),
                    false => Ok(()),
                }
            }
        }
    }

    /// Lets a member have its say.
    fn with_member<T>(
        &mut self,
        me: usize,
        sure: bool,
        say: impl FnOnce(&mut dyn Member, &mut Moment<'_>, &mut Known) -> T,
    ) -> Option<(T, bool)> {
        let groups = &mut self.groups;
        let mut moment = Moment {
            random: &mut groups.random,
            now: self.clock,
            healing: self.healing,
            sure,
            stale: self.swarm.settings.cluster.session,
            back_off: false,
            notes: Vec::new(),
        };
        let Who::Member(member) = &mut groups.seats[me].who else {
            return None;
        };
        let said = say(member.as_mut(), &mut moment, &mut groups.known);
        let (back_off, notes) = (moment.back_off, moment.notes);
        for note in notes {
            self.note(note);
        }
        Some((said, back_off))
    }

    fn member_step(&mut self, me: usize) {
        match &self.groups.seats[me].who {
            Who::Member(_) => {}
            Who::Sharer(_) => return self.sharer_step(me),
            Who::Transactor(_) => return self.transactor_step(me),
            Who::Stable(_) => return self.stable_step(me),
        }
        let Some((ask, back_off)) = self.with_member(me, false, |m, moment, known| {
            let group = m.group();
            (group, m.step(moment, known))
        }) else {
            return;
        };
        let (group, ask) = ask;
        if matches!(ask, Ask::Nothing) {
            return self.member_thinks(me, back_off);
        }
        // As the metadata of some node has it, which may be old.
        let any = self.groups.random.below(self.machines.len() as u64) as usize;
        let found = self.node(any).filter(|_| self.is_up(any));
        let at = match (&ask, found) {
            (_, None) => None,
            (Ask::Make(_), Some(_)) => Some(any),
            (_, Some((node, now))) => node
                .group_coordinator(group, now)
                .map(|broker| broker.0 as usize - 1),
        };
        let asked_of = self.coordinator_now();
        let (number, found) = self.member_asks(me, at);
        self.groups.seats[me].asked_of = asked_of;
        let Some((node, now)) = found else {
            return;
        };
        let inbox = self.groups.inbox.clone();
        match ask {
            Ask::Nothing => {}
            Ask::Group(command) => {
                let reply = Reply::new(move |answer| {
                    let told = Heard::Group(Told::Group(answer));
                    inbox.lock().push((me, number, told));
                });
                node.group(command, now, reply);
            }
            Ask::Committed(places) => {
                let reply = Reply::new(move |answer| {
                    let told = Heard::Group(Told::Committed(answer));
                    inbox.lock().push((me, number, told));
                });
                node.committed(group, Some(places), None, now, reply);
            }
            Ask::Make(command) => {
                let reply = Reply::new(move |_| {
                    let told = Heard::Group(Told::Made);
                    inbox.lock().push((me, number, told));
                });
                node.admin(command, now, reply);
            }
        }
    }

    /// A member waits from now on. Without a node that it can ask it hears so in a moment.
    pub(super) fn member_asks(
        &mut self,
        me: usize,
        at: Option<usize>,
    ) -> (u64, Option<(Arc<riverlog_node::Node>, riverlog_core::Now)>) {
        self.groups.requests += 1;
        let number = self.groups.requests;
        let at = at.filter(|at| *at < self.machines.len() && self.is_up(*at));
        let found = at.and_then(|at| self.node(at));
        self.groups.seats[me].asking = Some((number, at.unwrap_or(usize::MAX)));
        let patience = match found.is_some() {
            true => PATIENCE,
            false => Duration::from_millis(30),
        };
        let due = Due::Impatient { me, number };
        self.schedule(self.clock + patience, Event::Group(due));
        (number, found)
    }

    /// Where answers to members go.
    pub(super) fn member_inbox(&self) -> Inbox {
        self.groups.inbox.clone()
    }

    pub(super) fn sharer(&mut self, me: usize) -> Option<&mut Sharer> {
        match &mut self.groups.seats.get_mut(me)?.who {
            Who::Sharer(sharer) => Some(sharer),
            _ => None,
        }
    }

    /// Gives the answers to the members that asked.
    pub(super) fn deliver_to_members(&mut self) -> Result<(), Violation> {
        loop {
            let answers = std::mem::take(&mut *self.groups.inbox.lock());
            if answers.is_empty() {
                return Ok(());
            }
            for (me, number, heard) in answers {
                if self.groups.seats[me]
                    .asking
                    .is_some_and(|(n, _)| n == number)
                {
                    self.member_hears(me, heard)?;
                }
            }
        }
    }

    /// Whoever waits for an answer of a node that is gone hears of that.
    pub(super) fn lose_members_of(&mut self, at: usize) {
        let due: Vec<Due> = (0..)
            .zip(&self.groups.seats)
            .filter_map(|(me, seat)| {
                let (number, of) = seat.asking?;
                (of == at).then_some(Due::Impatient { me, number })
            })
            .collect();
        for due in due {
            self.schedule(self.clock, Event::Group(due));
        }
    }

    fn member_hears(&mut self, me: usize, heard: Heard) -> Result<(), Violation> {
        let asked = self.groups.seats[me].asking.take();
        if self.stopped {
            return Ok(());
        }
        let told = match (&self.groups.seats[me].who, heard) {
            (Who::Member(_), Heard::Group(told)) => told,
            (who, heard) => {
                let back_off = match who {
                    Who::Member(_) => return Ok(()),
                    Who::Sharer(_) => self.sharer_hears(me, heard)?,
                    Who::Transactor(_) => self.transactor_hears(me, heard)?,
                    Who::Stable(_) => self.stable_hears(me, heard)?,
                };
                self.member_thinks(me, back_off);
                return Ok(());
            }
        };
        let now = self.coordinator_now();
        let asked_of = self.groups.seats[me].asked_of;
        let at = asked.map(|(_, at)| at);
        let sure = now.is_some() && now == asked_of && now.map(|place| place.at) == at;
        let is_answer = !matches!(told, Told::Lost);
        if is_answer && sure && self.groups.coordinator != now {
            let before = std::mem::replace(&mut self.groups.coordinator, now);
            let is_another = before.is_some_and(|b| Some(b.at) != at);
            let reconciles = self.groups.seats.iter().any(|seat| match &seat.who {
                Who::Member(member) => member.is_reconciling(),
                _ => false,
            });
            if is_another {
                sometimes(Mark::CoordinatorReplaced);
            }
            if is_another && reconciles {
                sometimes(Mark::CoordinatorReplacedMeanwhile);
            }
        }
        let said = self.with_member(me, sure, |m, moment, known| m.told(told, moment, known));
        if let Some((result, back_off)) = said {
            result?;
            self.member_thinks(me, back_off);
        }
        Ok(())
    }
}
