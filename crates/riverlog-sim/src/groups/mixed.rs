//! A place in a group in which members of the consumer and the classic protocol follow each other, so that the group goes to and fro
//! between the protocols while others work.

use std::time::Duration;

use super::classic::Classic;
use super::consumer::Consumer;
use super::{Ask, Known, Member, Moment, SESSION, Told};
use crate::model::Violation;
use riverlog_log::disk::Random;
use riverlog_wire::TopicId;

/// The group.
pub(super) const GROUP: &str = "mixed";
/// What its members read.
pub(crate) const TOPIC: &str = "mixed";
/// Its id.
pub(crate) const ID: TopicId = TopicId(*b"of-mixed-groups!");
/// Its partitions.
pub(crate) const PARTITIONS: i32 = 5;

/// How the group is made up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixedPlan {
    pub(crate) members: usize,
    /// Of ten members, how many speak the classic protocol.
    pub(crate) classic: u64,
    /// Members of the classic protocol keep what they have while they join.
    pub(crate) cooperative: bool,
}

impl MixedPlan {
    pub(crate) fn draw(random: &mut Random, classic: u64) -> MixedPlan {
        MixedPlan {
            members: 2 + random.below(3) as usize,
            classic,
            cooperative: random.chance(1, 2),
        }
    }

    /// In the end all members but one are of the classic protocol, and that one leaves: the others must get what it had.
    fn reverts(&self) -> bool {
        self.classic > 0 && self.members != 3
    }
}

#[derive(Debug)]
enum Kind {
    Consumer(Consumer),
    Classic(Classic),
}

/// A place in the group.
#[derive(Debug)]
pub(crate) struct Mixed {
    number: usize,
    plan: MixedPlan,
    lives: u64,
    kind: Kind,
    /// Nobody takes its place, and it says nothing.
    gone: bool,
    /// All faults are healed, and the group is on its way back to the classic protocol.
    reverting: bool,
    /// When whoever was there before it is not in the group any more.
    alone_at: Option<Duration>,
}

impl Mixed {
    pub(crate) fn new(number: usize, plan: MixedPlan) -> Mixed {
        let classic = (number as u64) < plan.classic / 2;
        Mixed {
            number,
            plan,
            lives: 0,
            kind: Mixed::kind(number, 0, plan, classic),
            gone: false,
            reverting: false,
            alone_at: None,
        }
    }

    /// It is the one that speaks the newer protocol to the end.
    fn is_last(&self) -> bool {
        self.number == 1
    }

    /// Another process takes its place where it speaks the protocol that it isn't to speak in the end; and the last one of the newer
    /// protocol leaves when the others have come.
    fn revert(&mut self, moment: &mut Moment<'_>, known: &mut Known) -> Option<Ask> {
        let Some(alone_at) = self.alone_at else {
            self.alone_at = Some(moment.now + SESSION + SESSION / 4);
            let is_classic = matches!(self.kind, Kind::Classic(_));
            if is_classic == self.is_last() {
                known.owners.given_up(self.number);
                self.lives += 1;
                self.kind = Mixed::kind(self.number, self.lives, self.plan, !is_classic);
            }
            return None;
        };
        let may_leave = self.is_last() && moment.now >= alone_at;
        match &mut self.kind {
            Kind::Consumer(member) if may_leave && member.progress >= 3 => {
                self.gone = true;
                known.reverted = true;
                Some(member.leave(moment, known))
            }
            _ => None,
        }
    }

    fn kind(number: usize, life: u64, plan: MixedPlan, classic: bool) -> Kind {
        match classic {
            true => Kind::Classic(Classic::new(number, life, plan.cooperative)),
            false => Kind::Consumer(Consumer::new(number, life)),
        }
    }
}

impl Member for Mixed {
    fn group(&self) -> &'static str {
        GROUP
    }

    fn step(&mut self, moment: &mut Moment<'_>, known: &mut Known) -> Ask {
        if self.gone {
            known.owners.given_up(self.number);
            moment.back_off = true;
            return Ask::Nothing;
        }
        if self.reverting
            && let Some(ask) = self.revert(moment, known)
        {
            return ask;
        }
        let is_over = match &self.kind {
            Kind::Consumer(member) => member.is_over,
            Kind::Classic(member) => member.is_over,
        };
        if is_over {
            self.lives += 1;
            let drawn = moment.random.below(10) < self.plan.classic;
            let classic = match self.reverting {
                true => !self.is_last(),
                false => drawn,
            };
            self.kind = Mixed::kind(self.number, self.lives, self.plan, classic);
        }
        match &mut self.kind {
            Kind::Consumer(member) => member.step(moment, known),
            Kind::Classic(member) => member.step(moment, known),
        }
    }

    fn told(
        &mut self,
        told: Told,
        moment: &mut Moment<'_>,
        known: &mut Known,
    ) -> Result<(), Violation> {
        if self.gone {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Consumer(member) => member.told(told, moment, known)?,
            Kind::Classic(member) => member.told(told, moment, known)?,
        }
        // What counts is what comes after that.
        if self.reverting
            && !known.reverted
            && let Kind::Classic(member) = &mut self.kind
        {
            member.progress = 0;
        }
        Ok(())
    }

    fn heal(&mut self) {
        self.reverting = self.plan.reverts();
        self.gone = self.is_last() && !self.reverting;
        match &mut self.kind {
            Kind::Consumer(member) => member.progress = 0,
            Kind::Classic(member) => member.progress = 0,
        }
    }

    fn has_progressed(&self) -> bool {
        let progress = match &self.kind {
            Kind::Consumer(member) => member.progress,
            Kind::Classic(member) => member.progress,
        };
        self.gone || progress >= 3 && !(self.reverting && self.is_last())
    }

    fn is_reconciling(&self) -> bool {
        match &self.kind {
            Kind::Consumer(member) => member.is_reconciling(),
            Kind::Classic(member) => member.is_reconciling(),
        }
    }
}
