//! A place in a group in which members of the consumer and the classic protocol follow each other, so that the group goes to and fro
//! between the protocols while others work.

use super::classic::Classic;
use super::consumer::Consumer;
use super::{Ask, Known, Member, Moment, Told};
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
        let is_over = match &self.kind {
            Kind::Consumer(member) => member.is_over,
            Kind::Classic(member) => member.is_over,
        };
        if is_over {
            self.lives += 1;
            let classic = moment.random.below(10) < self.plan.classic;
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
            Kind::Consumer(member) => member.told(told, moment, known),
            Kind::Classic(member) => member.told(told, moment, known),
        }
    }

    fn heal(&mut self) {
        self.gone = self.number == 1;
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
        self.gone || progress >= 3
    }

    fn is_reconciling(&self) -> bool {
        match &self.kind {
            Kind::Consumer(member) => member.is_reconciling(),
            Kind::Classic(member) => member.is_reconciling(),
        }
    }
}
