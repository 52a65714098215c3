//! One member's next step to its target.

use std::collections::BTreeMap;

use riverlog_mutants::{Mutant, active};

use super::{Current, Member, Role, State, Streams, Task, Tasks};

impl Streams {
    /// What the member shall have after this heartbeat; `None`: as before. `owned` is what it says it has, `None` when it
    /// didn't say.
    ///
    /// First it gives back what the target takes from it: the epoch stays until it no longer reports those tasks. Then it
    /// comes to the target's epoch, with those new tasks that are free; the others follow as they become so.
    pub(super) fn reconcile(
        &self,
        id: &str,
        member: &Member,
        owned: Option<&Tasks>,
    ) -> Option<Current> {
        let current = &member.current;
        let given_back = |tasks: &Tasks| {
            let back = |owned: &Tasks| {
                let mut roles = Role::ALL.iter();
                roles.all(|role| tasks.of(*role).all(|task| !owned.has(*role, task)))
            };
            owned.map_or(active(Mutant::StreamsSilenceGivesBack), back)
        };
        match current.state {
            State::Revoking if !given_back(&current.revoking) => return None,
            State::Stable if current.epoch == self.target_epoch => return None,
            _ => {}
        }
        let nothing = Tasks::default();
        let target = self.targets.get(id).map_or(&nothing, |t| t.as_ref());
        let mut assigned = Tasks::default();
        let mut revoking = Tasks::default();
        for role in Role::ALL {
            for task in current.assigned.of(role) {
                let side = match target.has(role, task) {
                    true => &mut assigned,
                    false => &mut revoking,
                };
                side.insert(role, task.clone());
            }
        }
        let next = if !revoking.is_empty() && !given_back(&revoking) {
            Current {
                epoch: current.epoch,
                previous_epoch: current.previous_epoch,
                state: State::Revoking,
                assigned,
                revoking,
                since: current.since.clone(),
            }
        } else {
            let mut state = State::Stable;
            for role in Role::ALL {
                for task in target.of(role) {
                    if assigned.has(role, task) {
                        continue;
                    }
                    match self.is_free(id, member.process(), role, task) {
                        true => assigned.insert(role, task.clone()),
                        false => state = State::Waiting,
                    }
                }
            }
            let since = |task: &Task| {
                let held = current.assigned.has(Role::Active, task);
                let since = current.since.get(task).copied().filter(|_| held);
                (task.clone(), since.unwrap_or(self.target_epoch))
            };
            let since: BTreeMap<Task, i32> = assigned.of(Role::Active).map(since).collect();
            Current {
                epoch: self.target_epoch,
                previous_epoch: match current.epoch == self.target_epoch {
                    true => current.previous_epoch,
                    false => current.epoch,
                },
                state,
                assigned,
                revoking: Tasks::default(),
                since,
            }
        };
        (next != *current).then_some(next)
    }

    /// Whether a member can get a task: nobody else has it active, if it shall be that, and no other member of its process has it
    /// in any role. What the member itself had in another role it has given back by now.
    fn is_free(&self, id: &str, process: &str, role: Role, task: &Task) -> bool {
        let is_mate = |other: &str| {
            let other = self.members.get(other);
            other.is_some_and(|m| m.process() == process)
        };
        let owner = self.owners.get(task).filter(|owner| ***owner != *id);
        if owner.is_some_and(|owner| role == Role::Active || is_mate(owner)) {
            return active(Mutant::StreamsTaskGivenTwice);
        }
        if active(Mutant::StreamsProcessTwice) {
            return true;
        }
        let copies = self.copies.get(task).into_iter().flatten();
        !copies
            .filter(|other| ***other != *id)
            .any(|other| is_mate(other))
    }
}
