//! Which member of a streams group gets which task: sticky, and even.
//!
//! An active task stays where it is as long as that is even; one that must go somewhere goes where its state is already. Stateful
//! tasks are spread evenly by themselves, then all tasks together. Standby tasks stand on other processes than
//! the active one and each other, over as many values of the client tags as can be.

use std::collections::{BTreeMap, BTreeSet};

use riverlog_mutants::{Mutant, active as planted};

use super::{Role, Task, Tasks};

/// What is to be assigned.
pub(super) struct Work<'a> {
    /// All tasks in order, and whether each has state.
    pub(super) tasks: &'a [(Task, bool)],
    /// Standby tasks for each task with state.
    pub(super) standbys: usize,
    /// Client tags that standby tasks are spread over.
    pub(super) tags: &'a [String],
}

/// Who may get tasks.
pub(super) struct Worker<'a> {
    /// Members of one process share its disk.
    pub(super) process: &'a str,
    pub(super) tags: &'a [(String, String)],
    /// What it had to have until now.
    pub(super) before: Option<&'a Tasks>,
}

/// What each worker shall have, in order.
pub(super) fn assign(work: &Work<'_>, workers: &[Worker<'_>]) -> Vec<Tasks> {
    if workers.is_empty() {
        return Vec::new();
    }
    let mut hand = Hand::new(work, workers);
    let stateful = hand.numbered(true);
    hand.active(&stateful);
    let stateless = hand.numbered(false);
    hand.active(&stateless);
    if work.standbys > 0 {
        hand.standby(&stateful);
    }
    hand.given
}

struct Hand<'a> {
    work: &'a Work<'a>,
    workers: &'a [Worker<'a>],
    /// By process, who is of it.
    processes: BTreeMap<&'a str, Vec<usize>>,
    /// By task: who had it, and who had a copy of its state.
    owner: Vec<Option<usize>>,
    copies: Vec<Vec<usize>>,
    /// By worker: how much it has been given.
    load: Vec<usize>,
    given: Vec<Tasks>,
    /// By task: who gets it.
    active: Vec<Option<usize>>,
}

/// How many each worker may be given so that it is even: `floor`, and one more for `extra` of them.
struct Quota {
    floor: usize,
    extra: usize,
}

impl Quota {
    fn new(total: usize, load: &[usize]) -> Quota {
        let floor = total / load.len();
        let over = load.iter().filter(|l| **l > floor).count();
        Quota {
            floor,
            extra: (total % load.len()).saturating_sub(over),
        }
    }

    fn has_room(&self, load: usize) -> bool {
        load < self.floor || load == self.floor && self.extra > 0
    }

    fn take(&mut self, load: &mut usize) {
        if *load == self.floor {
            self.extra = self.extra.saturating_sub(1);
        }
        *load += 1;
    }
}

impl<'a> Hand<'a> {
    fn new(work: &'a Work<'a>, workers: &'a [Worker<'a>]) -> Hand<'a> {
        let mut processes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, worker) in workers.iter().enumerate() {
            processes.entry(worker.process).or_default().push(at);
        }
        let number: BTreeMap<&Task, usize> = work
            .tasks
            .iter()
            .enumerate()
            .map(|(at, (task, _))| (task, at))
            .collect();
        let mut owner = vec![None; work.tasks.len()];
        let mut copies = vec![Vec::new(); work.tasks.len()];
        for (at, worker) in workers.iter().enumerate() {
            let Some(before) = worker.before else {
                continue;
            };
            for task in before.of(Role::Active).filter_map(|t| number.get(t)) {
                if let Some(owner) = owner.get_mut(*task) {
                    *owner = Some(at);
                }
            }
            let states = before.of(Role::Standby).chain(before.of(Role::Warmup));
            for task in states.filter_map(|t| number.get(t)) {
                if let Some(copies) = copies.get_mut(*task) {
                    copies.push(at);
                }
            }
        }
        Hand {
            work,
            workers,
            processes,
            owner,
            copies,
            load: vec![0; workers.len()],
            given: vec![Tasks::default(); workers.len()],
            active: vec![None; work.tasks.len()],
        }
    }

    fn numbered(&self, stateful: bool) -> Vec<usize> {
        let tasks = self.work.tasks.iter().enumerate();
        tasks
            .filter(|(_, (_, state))| *state == stateful)
            .map(|(at, _)| at)
            .collect()
    }

    fn load(&self, worker: usize) -> usize {
        self.load.get(worker).copied().unwrap_or(0)
    }

    fn process(&self, worker: usize) -> &'a str {
        self.workers.get(worker).map_or("", |w| w.process)
    }

    fn mates(&self, worker: usize) -> &[usize] {
        let mates = self.processes.get(self.process(worker));
        mates.map_or(&[], Vec::as_slice)
    }

    fn owner(&self, task: usize) -> Option<usize> {
        self.owner.get(task).copied().flatten()
    }

    fn copies(&self, task: usize) -> &[usize] {
        self.copies.get(task).map_or(&[], Vec::as_slice)
    }

    fn give(&mut self, task: usize, worker: usize, role: Role, quota: &mut Quota) {
        if let (Some(load), Some(given), Some((id, _))) = (
            self.load.get_mut(worker),
            self.given.get_mut(worker),
            self.work.tasks.get(task),
        ) {
            quota.take(load);
            given.insert(role, id.clone());
            if role == Role::Active
                && let Some(active) = self.active.get_mut(task)
            {
                *active = Some(worker);
            }
        }
    }

    fn least_loaded(&self, workers: impl Iterator<Item = usize>) -> Option<usize> {
        workers.min_by_key(|worker| (self.load(*worker), *worker))
    }

    fn active(&mut self, tasks: &[usize]) {
        let before: usize = self.load.iter().sum();
        let mut quota = Quota::new(before + tasks.len(), &self.load);
        let mut owned: Vec<Vec<usize>> = vec![Vec::new(); self.workers.len()];
        let mut open = Vec::new();
        for task in tasks {
            match self.owner(*task).and_then(|owner| owned.get_mut(owner)) {
                Some(owned) => owned.push(*task),
                None => open.push(*task),
            }
        }
        // Those whose state is elsewhere too are the first to go when some must.
        for owned in &mut owned {
            owned.sort_by_key(|task| (!self.copies(*task).is_empty(), *task));
        }
        let mut left = Vec::new();
        for (worker, owned) in owned.into_iter().enumerate() {
            for task in owned {
                match self.load(worker) < quota.floor {
                    true => self.give(task, worker, Role::Active, &mut quota),
                    false => left.push((task, worker)),
                }
            }
        }
        for (task, worker) in left {
            match quota.has_room(self.load(worker)) {
                true => self.give(task, worker, Role::Active, &mut quota),
                false => open.push(task),
            }
        }
        open.sort_unstable();
        // Where the state is first, so that others don't take the room there.
        let mut rest = Vec::new();
        for task in open {
            let has_room = |worker: &usize| quota.has_room(self.load(*worker));
            let copies = self.copies(task).iter().copied().filter(has_room);
            let near = self.copies(task).iter().copied().chain(self.owner(task));
            let near = near.flat_map(|w| self.mates(w)).copied().filter(has_room);
            let found = self
                .least_loaded(copies)
                .or_else(|| self.least_loaded(near));
            match found {
                Some(worker) => self.give(task, worker, Role::Active, &mut quota),
                None => rest.push(task),
            }
        }
        for task in rest {
            if let Some(worker) = self.least_loaded(0..self.workers.len()) {
                self.give(task, worker, Role::Active, &mut quota);
            }
        }
    }

    fn standby(&mut self, tasks: &[usize]) {
        let each = self.work.standbys.min(self.processes.len() - 1);
        let active: usize = self.load.iter().sum();
        let mut quota = Quota::new(active + tasks.len() * each, &self.load);
        let mut taken: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
        for task in tasks {
            let active = self.active.get(*task).copied().flatten();
            let active = active.map(|worker| self.process(worker));
            let active = active.filter(|_| !planted(Mutant::StreamsStandbyBesideActive));
            taken.insert(*task, active.into_iter().collect());
        }
        for task in tasks {
            for worker in self.copies(*task).to_vec() {
                let used = taken.entry(*task).or_default();
                if used.len() <= each
                    && !used.contains(self.process(worker))
                    && quota.has_room(self.load(worker))
                    && self.spreads_best(worker, used)
                {
                    used.insert(self.process(worker));
                    self.give(*task, worker, Role::Standby, &mut quota);
                }
            }
        }
        for task in tasks {
            let used = taken.entry(*task).or_default();
            while used.len() <= each {
                let free = self.processes.iter().filter(|(p, _)| !used.contains(*p));
                let best = free
                    .filter_map(|(_, of)| self.least_loaded(of.iter().copied()))
                    .min_by_key(|worker| {
                        let spread = self.spread(*worker, used);
                        let had_it = self.owner(*task).map(|o| self.process(o))
                            == Some(self.process(*worker));
                        let full = !quota.has_room(self.load(*worker));
                        // Spread counts most, then room, then state that is there.
                        let load = self.load(*worker);
                        (usize::MAX - spread, full, !had_it, load, *worker)
                    });
                let Some(worker) = best else { break };
                used.insert(self.process(worker));
                self.give(*task, worker, Role::Standby, &mut quota);
            }
        }
    }

    /// Over how many of the tags the worker's process differs from all processes that have the task.
    fn spread(&self, worker: usize, used: &BTreeSet<&str>) -> usize {
        let value = |worker: usize, key: &str| {
            let worker = self.workers.get(worker)?;
            let tag = worker.tags.iter().find(|(k, _)| k == key)?;
            Some(tag.1.as_str())
        };
        let differs = |key: &String| {
            let Some(own) = value(worker, key) else {
                return false;
            };
            let users = used.iter().filter_map(|p| self.processes.get(p)?.first());
            let mut values = users.map(|user| value(*user, key));
            values.all(|other| other != Some(own))
        };
        self.work.tags.iter().filter(|key| differs(key)).count()
    }

    fn spreads_best(&self, worker: usize, used: &BTreeSet<&str>) -> bool {
        if self.work.tags.is_empty() {
            return true;
        }
        let own = self.spread(worker, used);
        let free = self.processes.iter().filter(|(p, _)| !used.contains(*p));
        let mut firsts = free.filter_map(|(_, of)| of.first());
        firsts.all(|other| self.spread(*other, used) <= own)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn tasks(subtopologies: &[(i32, bool)]) -> Vec<(Task, bool)> {
        let mut tasks = Vec::new();
        for (at, (count, stateful)) in subtopologies.iter().enumerate() {
            let id: Arc<str> = at.to_string().into();
            tasks.extend((0..*count).map(|p| ((id.clone(), p), *stateful)));
        }
        tasks
    }

    struct Crew {
        names: Vec<(String, Vec<(String, String)>)>,
        has: Vec<Tasks>,
    }

    impl Crew {
        fn of(processes: &[&str]) -> Crew {
            Crew {
                names: processes
                    .iter()
                    .map(|p| ((*p).to_owned(), vec![]))
                    .collect(),
                has: vec![Tasks::default(); processes.len()],
            }
        }

        fn assign(&mut self, tasks: &[(Task, bool)], standbys: usize, tags: &[String]) {
            let workers: Vec<Worker<'_>> = self
                .names
                .iter()
                .zip(&self.has)
                .map(|((process, tags), before)| Worker {
                    process,
                    tags,
                    before: Some(before),
                })
                .collect();
            let work = Work {
                tasks,
                standbys,
                tags,
            };
            self.has = assign(&work, &workers);
        }

        fn counts(&self, role: Role) -> Vec<usize> {
            self.has.iter().map(|h| h.of(role).count()).collect()
        }

        fn join(&mut self, process: &str) {
            self.names.push((process.to_owned(), Vec::new()));
            self.has.push(Tasks::default());
        }

        fn leave(&mut self, at: usize) {
            self.names.remove(at);
            self.has.remove(at);
        }

        /// Each task is active once, and no process has a task twice.
        fn check(&self, tasks: &[(Task, bool)], standbys: usize) {
            let processes: BTreeSet<&String> = self.names.iter().map(|(p, _)| p).collect();
            for (task, stateful) in tasks {
                let mut on = Vec::new();
                let mut active = 0;
                for ((process, _), has) in self.names.iter().zip(&self.has) {
                    active += usize::from(has.of(Role::Active).any(|t| t == task));
                    for role in Role::ALL {
                        if has.of(role).any(|t| t == task) {
                            on.push(process);
                        }
                    }
                }
                let each = standbys.min(processes.len() - 1);
                let copies = if *stateful { each } else { 0 };
                assert_eq!(active, 1, "{task:?} {:?}", self.has);
                assert_eq!(on.len(), 1 + copies, "{task:?} {:?}", self.has);
                on.sort();
                on.dedup();
                assert_eq!(on.len(), 1 + copies, "twice in a process: {task:?}");
            }
            let active = self.counts(Role::Active);
            let (least, most) = (active.iter().min(), active.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "uneven: {active:?}");
        }
    }

    #[test]
    fn tasks_are_spread_evenly_and_stay() {
        let tasks = tasks(&[(6, false), (6, true)]);
        let mut crew = Crew::of(&["p", "q"]);
        crew.assign(&tasks, 0, &[]);
        crew.check(&tasks, 0);
        let before = crew.has.clone();
        crew.assign(&tasks, 0, &[]);
        assert_eq!(crew.has, before);
        // Tasks with state are even by themselves.
        for has in &crew.has {
            let stateful = has.of(Role::Active).filter(|t| *t.0 == *"1").count();
            assert_eq!(stateful, 3);
        }
        crew.join("r");
        crew.assign(&tasks, 0, &[]);
        crew.check(&tasks, 0);
        for (has, before) in crew.has.iter().zip(&before) {
            assert!(
                has.of(Role::Active)
                    .all(|t| before.of(Role::Active).any(|b| b == t))
            );
        }
    }

    #[test]
    fn a_task_goes_where_its_state_is() {
        let tasks = tasks(&[(3, true)]);
        let mut crew = Crew::of(&["p", "q", "r"]);
        crew.assign(&tasks, 1, &[]);
        crew.check(&tasks, 1);
        let copies = crew.has.clone();
        let lost: Vec<Task> = copies[0].of(Role::Active).cloned().collect();
        crew.leave(0);
        crew.assign(&tasks, 1, &[]);
        crew.check(&tasks, 1);
        for task in lost {
            let now = crew
                .has
                .iter()
                .position(|h| h.of(Role::Active).any(|t| *t == task));
            let then = copies[1..]
                .iter()
                .position(|h| h.of(Role::Standby).any(|t| *t == task));
            assert_eq!(now, then, "{task:?}");
        }
    }

    #[test]
    fn standbys_stand_in_other_zones() {
        let tasks = tasks(&[(6, true)]);
        let mut crew = Crew::of(&["p", "q", "r", "s"]);
        for (at, zone) in ["a", "a", "b", "b"].iter().enumerate() {
            crew.names[at].1 = vec![("zone".to_owned(), (*zone).to_owned())];
        }
        let tags = ["zone".to_owned()];
        for _ in 0..2 {
            crew.assign(&tasks, 1, &tags);
            crew.check(&tasks, 1);
            for (task, _) in &tasks {
                let zones: BTreeSet<&str> = crew
                    .names
                    .iter()
                    .zip(&crew.has)
                    .filter(|(_, h)| Role::ALL.iter().any(|r| h.of(*r).any(|t| t == task)))
                    .map(|((_, tags), _)| tags[0].1.as_str())
                    .collect();
                assert_eq!(zones.len(), 2, "{task:?}");
            }
        }
    }

    proptest! {
        /// Whoever comes and goes: each task is active once, no process has it twice, it is even, and nothing moves without need.
        #[test]
        fn only_what_must_move_moves(
            sizes in prop::collection::vec((1_i32..9, any::<bool>()), 1..4),
            standbys in 0_usize..3,
            steps in prop::collection::vec((any::<bool>(), 0_usize..4), 1..12),
        ) {
            let tasks = tasks(&sizes);
            let mut crew = Crew::of(&["p0"]);
            crew.assign(&tasks, standbys, &[]);
            crew.check(&tasks, standbys);
            for (joins, at) in steps {
                let before = crew.has.clone();
                if joins {
                    crew.join(&format!("p{at}"));
                    crew.assign(&tasks, standbys, &[]);
                    // An active task stays, or goes to the newcomer, or changes places to keep tasks with state even.
                    if sizes.iter().all(|(_, s)| *s) {
                        for (has, before) in crew.has.iter().zip(&before) {
                            for task in has.of(Role::Active) {
                                prop_assert!(before.of(Role::Active).any(|b| b == task));
                            }
                        }
                    }
                } else if crew.names.len() > 1 {
                    let gone = at % crew.names.len();
                    crew.leave(gone);
                    let mut kept = before;
                    kept.remove(gone);
                    crew.assign(&tasks, standbys, &[]);
                    if sizes.iter().all(|(_, s)| *s) {
                        for (has, kept) in crew.has.iter().zip(&kept) {
                            for task in kept.of(Role::Active) {
                                prop_assert!(has.of(Role::Active).any(|t| t == task));
                            }
                        }
                    }
                }
                crew.check(&tasks, standbys);
                let settled = crew.has.clone();
                crew.assign(&tasks, standbys, &[]);
                let active = |all: &[Tasks]| -> Vec<Vec<Task>> {
                    all.iter().map(|h| h.of(Role::Active).cloned().collect()).collect()
                };
                prop_assert_eq!(active(&crew.has), active(&settled));
            }
        }
    }
}
