//! The rules of replication as a small model, explored exhaustively within bounds: ADR 0007 in a form that a machine can refute.
//!
//! One partition with three copies, min ISR 2. A record is the epoch in which it was appended: one epoch has one leader, so that equal
//! epochs at equal offsets are equal records. Messages are atomic, knowledge isn't: a copy learns of the controller's word when it
//! does, and acts on what it knows until then. The same search must find what each rule that is left out breaks.

use stateright::{Checker, HasDiscoveries, Model, Property};

const COPIES: usize = 3;
const MIN_ISR: u32 = 2;

/// Bounds of the search.
const RECORDS: usize = 2;
const EPOCHS: u8 = 4;
const POWER_CUTS: u8 = 2;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Written counts as synced.
    WrittenCounts,
    /// The high watermark moves on with fewer than min ISR in sync.
    MinIsrIgnored,
    /// Who is asked for counts once the leader hears that it is in.
    JoiningNotCounted,
    /// Who has what is known to be acknowledged may join, though it lacks what may be.
    EpochStartIgnored,
    /// Who was eligible stays so with min ISR in sync.
    EligibleForEver,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
struct Copy {
    up: bool,
    log: Vec<u8>,
    synced: usize,
    high_watermark: usize,
    /// The leadership that it knows of.
    epoch: u8,
    leader: Option<usize>,
    /// As a leader: what it knows of the partition, whom it has asked for, where it began, what others have said.
    isr: u8,
    joining: u8,
    partition_epoch: u8,
    began: usize,
    said: [Option<usize>; COPIES],
}

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct State {
    copies: [Copy; COPIES],
    leader: Option<usize>,
    epoch: u8,
    partition_epoch: u8,
    isr: u8,
    elr: u8,
    /// Not to be elected.
    fenced: u8,
    /// What clients were promised, in order of offset.
    promised: Vec<u8>,
    /// Two contents of one offset were promised.
    torn: bool,
    power_cuts: u8,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
enum Step {
    Append(usize),
    Sync(usize),
    Fetch(usize),
    Learn(usize),
    Join(usize, usize),
    Leave(usize, usize),
    PowerCut(usize),
    Fence(usize),
    Restart(usize),
}

/// Where histories begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Nothing has happened.
    Fresh,
    /// One copy is out of sync and has nothing.
    OneBehind,
}

struct Rules(Flaw, Start);

fn bit(at: usize) -> u8 {
    1 << at
}

/// The end of the largest epoch at or below one.
fn end_of(log: &[u8], epoch: u8) -> Option<(u8, usize)> {
    let last = log.iter().rposition(|e| *e <= epoch)?;
    Some((log[last], last + 1))
}

impl Rules {
    /// The leader's high watermark, and what it promises with it.
    fn advance(&self, state: &mut State, at: usize) {
        let leader = &state.copies[at];
        if leader.isr.count_ones() < MIN_ISR && self.0 != Flaw::MinIsrIgnored {
            return;
        }
        let mut counted = leader.isr;
        if self.0 != Flaw::JoiningNotCounted {
            counted |= leader.joining;
        }
        let mut least = match self.0 {
            Flaw::WrittenCounts => leader.log.len(),
            _ => leader.synced,
        };
        for other in (0..COPIES).filter(|o| *o != at && counted & bit(*o) != 0) {
            match leader.said[other] {
                Some(said) => least = least.min(said),
                None => return,
            }
        }
        if least > leader.high_watermark {
            let promised = leader.log[..least].to_vec();
            let both = promised.len().min(state.promised.len());
            state.torn |= promised[..both] != state.promised[..both];
            if promised.len() > state.promised.len() {
                state.promised = promised;
            }
            state.copies[at].high_watermark = least;
        }
    }

    fn with_isr(&self, state: &mut State, isr: u8) {
        let before = state.isr | state.elr;
        let few = isr.count_ones() < MIN_ISR || self.0 == Flaw::EligibleForEver;
        state.elr = if few { before & !isr } else { 0 };
        state.isr = isr;
        state.partition_epoch += 1;
    }

    /// Someone in place of who can't lead.
    fn elect(&self, state: &mut State) {
        let up = !state.fenced;
        let first = |of: u8| (0..COPIES).find(|c| of & up & bit(*c) != 0);
        state.epoch += 1;
        state.leader = first(state.isr);
        if state.leader.is_none()
            && let Some(eligible) = first(state.elr)
        {
            self.with_isr(state, bit(eligible));
            state.leader = Some(eligible);
        }
    }

    /// A node is gone, or begins anew.
    fn without(&self, state: &mut State, gone: usize) {
        state.fenced |= bit(gone);
        let left = state.isr & !bit(gone);
        if left != 0 && left != state.isr {
            self.with_isr(state, left);
        }
        if state.leader == Some(gone) {
            self.elect(state);
        }
    }

    /// A leader asks for another in-sync set, as it knows the partition.
    fn change(&self, state: &mut State, by: usize, isr: u8) {
        let asks = &state.copies[by];
        let current = state.leader == Some(by)
            && (asks.epoch, asks.partition_epoch) == (state.epoch, state.partition_epoch);
        let joins = isr & !state.isr;
        if current && joins & state.fenced == 0 {
            self.with_isr(state, isr);
        }
    }

    fn fetch(&self, state: &mut State, at: usize) {
        let Some(from) = state.copies[at].leader.filter(|l| *l != at) else {
            return;
        };
        let (leader, copy) = (&state.copies[from], &state.copies[at]);
        if !leader.up || leader.leader != Some(from) || leader.epoch != copy.epoch {
            return;
        }
        let (end, known) = (copy.log.len(), leader.high_watermark);
        if let Some(last) = copy.log.last().copied() {
            let (epoch, theirs) = end_of(&leader.log, last).unwrap_or((0, 0));
            if epoch < last || theirs < end {
                let ours = end_of(&copy.log, epoch).map_or(0, |(_, end)| end);
                let to = theirs.min(ours).min(end - 1);
                let copy = &mut state.copies[at];
                copy.log.truncate(to);
                copy.synced = copy.synced.min(to);
                copy.high_watermark = copy.high_watermark.min(to);
                return;
            }
        }
        let next = leader.log.get(end).copied();
        let copy = &mut state.copies[at];
        copy.log.extend(next);
        copy.high_watermark = copy.high_watermark.max(known.min(copy.log.len()));
        let said = match self.0 {
            Flaw::WrittenCounts => end,
            _ => copy.synced,
        };
        state.copies[from].said[at] = Some(said);
        self.advance(state, from);
    }

    fn learn(&self, state: &mut State, at: usize) {
        let (leader, epoch) = (state.leader, state.epoch);
        let (isr, partition_epoch) = (state.isr, state.partition_epoch);
        let copy = &mut state.copies[at];
        let anew = (copy.leader, copy.epoch) != (leader, epoch);
        if !anew && copy.partition_epoch == partition_epoch {
            return;
        }
        (copy.leader, copy.epoch) = (leader, epoch);
        copy.partition_epoch = partition_epoch;
        (copy.isr, copy.joining) = (0, 0);
        if leader == Some(at) {
            copy.isr = isr;
            if anew {
                copy.began = copy.log.len();
                copy.said = Default::default();
            }
            self.advance(state, at);
        }
    }

    fn power_cut(state: &mut State, at: usize) {
        state.power_cuts += 1;
        let copy = &mut state.copies[at];
        let log = copy.log[..copy.synced].to_vec();
        *copy = Copy {
            synced: log.len(),
            log,
            ..Copy::default()
        };
    }
}

impl Model for Rules {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut copies: [Copy; COPIES] = Default::default();
        for copy in &mut copies {
            copy.up = true;
            (copy.leader, copy.epoch, copy.partition_epoch) = (Some(0), 1, 1);
        }
        copies[0].isr = 0b111;
        let fresh = State {
            copies,
            leader: Some(0),
            epoch: 1,
            partition_epoch: 1,
            isr: 0b111,
            elr: 0,
            fenced: 0,
            promised: Vec::new(),
            torn: false,
            power_cuts: 0,
        };
        if self.1 == Start::Fresh {
            return vec![fresh];
        }
        // What it takes a while to get to: two in sync, and the first, which isn't, has nothing of what they have promised.
        let mut two = fresh;
        (two.leader, two.isr, two.partition_epoch) = (Some(2), 0b110, 2);
        for (at, copy) in two.copies.iter_mut().enumerate() {
            (copy.leader, copy.partition_epoch, copy.isr) = (Some(2), 2, 0);
            if at > 0 {
                (copy.log, copy.synced) = (vec![1], 1);
            }
        }
        two.copies[2].isr = 0b110;
        two.copies[2].said = [None, Some(1), None];
        two.copies[2].high_watermark = 1;
        two.promised = vec![1];
        vec![two]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for at in 0..COPIES {
            let copy = &state.copies[at];
            let more = state.epoch < EPOCHS;
            // Also a live one, that can't be heard.
            if state.fenced & bit(at) == 0 && more {
                steps.push(Step::Fence(at));
            }
            if !copy.up {
                if more {
                    steps.push(Step::Restart(at));
                }
                continue;
            }
            steps.extend([Step::Sync(at), Step::Fetch(at), Step::Learn(at)]);
            if state.power_cuts < POWER_CUTS {
                steps.push(Step::PowerCut(at));
            }
            if copy.leader == Some(at) {
                if copy.log.len() < RECORDS {
                    steps.push(Step::Append(at));
                }
                for other in (0..COPIES).filter(|o| *o != at) {
                    steps.push(match copy.isr & bit(other) {
                        0 => Step::Join(at, other),
                        _ => Step::Leave(at, other),
                    });
                }
            }
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        match step {
            Step::Append(at) => {
                let epoch = state.copies[at].epoch;
                state.copies[at].log.push(epoch);
            }
            Step::Sync(at) => {
                let copy = &mut state.copies[at];
                copy.synced = copy.log.len();
                if copy.leader == Some(at) {
                    self.advance(&mut state, at);
                }
            }
            Step::Fetch(at) => self.fetch(&mut state, at),
            Step::Learn(at) => self.learn(&mut state, at),
            Step::Join(at, other) => {
                let leader = &mut state.copies[at];
                let began = match self.0 {
                    Flaw::EpochStartIgnored => 0,
                    _ => leader.began,
                };
                let needed = leader.high_watermark.max(began);
                if leader.said[other].is_none_or(|said| said < needed) {
                    return None;
                }
                leader.joining |= bit(other);
                let isr = leader.isr | bit(other);
                self.change(&mut state, at, isr);
            }
            Step::Leave(at, other) => {
                let isr = state.copies[at].isr & !bit(other);
                self.change(&mut state, at, isr);
            }
            Step::PowerCut(at) => Rules::power_cut(&mut state, at),
            Step::Fence(at) => self.without(&mut state, at),
            Step::Restart(at) => {
                self.without(&mut state, at);
                state.fenced &= !bit(at);
                state.copies[at].up = true;
                if state.leader.is_none() {
                    self.elect(&mut state);
                }
            }
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one offset has one content", |_, state: &State| !state.torn),
            Property::always("who leads has what was promised", |_, state: &State| {
                let leader = state.leader.map(|at| &state.copies[at]);
                leader.is_none_or(|leader| leader.log.starts_with(&state.promised))
            }),
            Property::always("what is shown was promised", |_, state: &State| {
                state.copies.iter().all(|copy| {
                    let shown = copy.log.get(..copy.high_watermark);
                    shown.is_some_and(|shown| state.promised.starts_with(shown))
                })
            }),
            Property::sometimes(REACHED, |_, state: &State| {
                state.promised.last().is_some_and(|epoch| *epoch > 1)
            }),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.epoch <= EPOCHS && state.partition_epoch <= EPOCHS + 3
    }
}

const REACHED: &str = "something is promised after a fail-over";

/// What is broken, and whether the search came as far as it should.
fn explore(flaw: Flaw, start: Start) -> (Vec<&'static str>, bool) {
    let checker = Rules(flaw, start).checker().target_state_count(STATES);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let found = checker.spawn_bfs().join().discoveries();
    let broken = found.keys().copied().filter(|name| *name != REACHED);
    (broken.collect(), found.contains_key(REACHED))
}

/// States that one search looks at.
const STATES: usize = 2_000_000;

#[test]
fn no_history_within_the_bounds_breaks_a_promise() {
    for start in [Start::Fresh, Start::OneBehind] {
        let (broken, reached) = explore(Flaw::None, start);
        assert!(broken.is_empty(), "{start:?}: {broken:?}");
        assert!(reached || start == Start::OneBehind);
    }
}

#[test]
fn each_rule_that_is_left_out_breaks_one() {
    for (flaw, start) in [
        (Flaw::WrittenCounts, Start::Fresh),
        (Flaw::MinIsrIgnored, Start::Fresh),
        (Flaw::EligibleForEver, Start::Fresh),
        (Flaw::EpochStartIgnored, Start::OneBehind),
        (Flaw::JoiningNotCounted, Start::OneBehind),
    ] {
        let (broken, _) = explore(flaw, start);
        assert!(
            !broken.is_empty(),
            "without a rule nothing breaks: {flaw:?}"
        );
    }
}
