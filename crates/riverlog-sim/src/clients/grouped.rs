//! A member of a group that clusters have as well, on one node.

use std::time::Duration;

use crate::groups::{Ask, Member, Moment, Told};
use crate::model::Violation;
use crate::world::{Core, Outcome};

#[derive(Debug)]
pub(crate) struct Grouped {
    member: Box<dyn Member>,
    pub(crate) waits: bool,
}

/// Lets a member have its say, and keeps what it notes.
fn with<T>(
    core: &mut Core,
    say: impl FnOnce(&mut Moment<'_>, &mut crate::groups::Known) -> T,
) -> T {
    let mut moment = Moment {
        now: core.clock,
        healing: core.healing,
        sure: true,
        stale: Duration::ZERO,
        back_off: false,
        notes: Vec::new(),
        random: &mut core.random,
    };
    let said = say(&mut moment, &mut core.groups);
    let (back_off, notes) = (moment.back_off, moment.notes);
    core.back_off |= back_off;
    for note in notes {
        core.note(note);
    }
    said
}

impl Grouped {
    pub(crate) fn new(member: Box<dyn Member>) -> Grouped {
        Grouped {
            member,
            waits: false,
        }
    }

    pub(crate) fn heal(&mut self) {
        self.member.heal();
    }

    pub(crate) fn has_progressed(&self) -> bool {
        self.member.has_progressed()
    }

    pub(crate) fn step(&mut self, core: &mut Core, me: usize) {
        let group = self.member.group();
        let ask = with(core, |moment, known| self.member.step(moment, known));
        self.waits = !matches!(ask, Ask::Nothing);
        match ask {
            Ask::Nothing => {}
            Ask::Group(command) => core.ask(me, Outcome::Group, move |node, now, reply| {
                node.group(command, now, reply);
            }),
            Ask::Committed(places) => core.ask(me, Outcome::Committed, move |node, now, reply| {
                node.committed(group, Some(places), None, now, reply);
            }),
            Ask::Make(command) => core.ask(me, Outcome::Admin, move |node, now, reply| {
                node.admin(command, now, reply);
            }),
        }
    }

    pub(crate) fn outcome(&mut self, core: &mut Core, outcome: Outcome) -> Result<(), Violation> {
        self.waits = false;
        let told = match outcome {
            Outcome::Group(answer) => Told::Group(answer),
            Outcome::Committed(answer) => Told::Committed(answer),
            Outcome::Admin(_) => Told::Made,
            _ => Told::Lost,
        };
        let before = core.groups.checked;
        with(core, |moment, known| self.member.told(told, moment, known))?;
        core.model.checked += core.groups.checked - before;
        Ok(())
    }
}
