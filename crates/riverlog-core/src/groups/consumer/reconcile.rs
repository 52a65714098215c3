//! One member's next step to its target.

use std::collections::{BTreeMap, BTreeSet};

use riverlog_mutants::{Mutant, active};

use super::{Consumer, Current, Member, Part, State};

impl Consumer {
    /// What the member shall hold after this heartbeat; `None`: as before. `owned` is what it says it holds, `None` when
    /// it didn't say.
    ///
    /// First it gives back what the target takes from it: the epoch stays until it no longer reports those
    /// partitions. Then it comes to the target's epoch, with those new partitions that nobody holds any more; the others
    /// follow as they become free.
    pub(super) fn reconcile(
        &self,
        id: &str,
        member: &Member,
        owned: Option<&BTreeSet<Part>>,
    ) -> Option<Current> {
        let current = &member.current;
        let given_back = |parts: &BTreeMap<Part, i32>| {
            let silence = active(Mutant::SilenceGivesBack);
            owned.map_or(silence, |o| parts.keys().all(|p| !o.contains(p)))
        };
        match current.state {
            State::Revoking if !given_back(&current.revoking) => return None,
            State::Stable if current.epoch == self.target_epoch => return None,
            _ => {}
        }
        let nothing = BTreeSet::new();
        let target = self.targets.get(id).map_or(&nothing, |t| t.as_ref());
        let (mut assigned, revoking): (BTreeMap<Part, i32>, BTreeMap<Part, i32>) = current
            .assigned
            .iter()
            .map(|(part, epoch)| (*part, *epoch))
            .partition(|(part, _)| target.contains(part));
        let next = if !revoking.is_empty() && !given_back(&revoking) {
            Current {
                epoch: current.epoch,
                previous_epoch: current.previous_epoch,
                state: State::Revoking,
                assigned,
                revoking,
            }
        } else {
            let mut state = State::Stable;
            for part in target {
                if assigned.contains_key(part) {
                    continue;
                }
                let free = self.owners.get(part).is_none_or(|owner| **owner == *id);
                if free || active(Mutant::PartitionGivenTwice) {
                    assigned.insert(*part, self.target_epoch);
                } else {
                    state = State::Waiting;
                }
            }
            Current {
                epoch: self.target_epoch,
                previous_epoch: match current.epoch == self.target_epoch {
                    true => current.previous_epoch,
                    false => current.epoch,
                },
                state,
                assigned,
                revoking: BTreeMap::new(),
            }
        };
        (next != *current).then_some(next)
    }
}
