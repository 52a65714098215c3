//! What some seeds' networks do to the messages that decide who is in sync: they come again much later, when what they say is long over, or
//! for the first time so. What a node has said of its copies comes again once it has died.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use riverlog_log::disk::Random;
use riverlog_mutants::{Mark, sometimes};

use super::world::{Event, World};

/// How late something comes again, at most.
const LATE_US: u64 = 4_000_000;

/// How late a change of an in-sync set may come at first.
const HELD_US: u64 = 900_000;

/// How soon after a death what was said before it comes again, at most: a node is back before that.
const AFTER_US: u64 = 2_500_000;

/// What a message is about, as `docs/protocol/peer.md` has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// The controller is to change in-sync sets.
    InSync,
    /// How far a follower is.
    Follower,
    Else,
}

fn about(bytes: &[u8]) -> About {
    match (bytes.get(1), bytes.get(10)) {
        (Some(1), Some(5)) => About::InSync,
        (Some(3 | 5), _) => About::Follower,
        _ => About::Else,
    }
}

/// Draws from a source of its own.
pub(super) struct Echoes {
    random: Random,
    plays: bool,
    /// The last that each node has said of its copies, by its kind.
    said: BTreeMap<(usize, usize, u8), Bytes>,
}

impl Echoes {
    /// Two of five seeds.
    pub(super) fn draw(seed: u64) -> Echoes {
        Echoes {
            random: Random::new(seed ^ 0x65_63_68_6f),
            plays: matches!(seed % 5, 3 | 4),
            said: BTreeMap::new(),
        }
    }
}

impl World {
    /// A message goes out. Returns how much later than others it comes.
    pub(super) fn echo(&mut self, from: usize, to: usize, bytes: &Bytes) -> Duration {
        let clock = self.clock;
        let echoes = &mut self.echoes;
        let after = |random: &mut Random, most: u64| Duration::from_micros(random.below(most));
        let about = about(bytes);
        if !echoes.plays || self.healing || about == About::Else {
            return Duration::ZERO;
        }
        if about == About::Follower {
            let kind = bytes.get(1).copied().unwrap_or_default();
            echoes.said.insert((from, to, kind), bytes.clone());
            return Duration::ZERO;
        }
        let mut again = Vec::new();
        while echoes.random.chance(1, 2) {
            again.push(clock + after(&mut echoes.random, LATE_US));
        }
        let held = match echoes.random.chance(1, 3) {
            true => after(&mut echoes.random, HELD_US),
            false => Duration::ZERO,
        };
        if !again.is_empty() {
            sometimes(Mark::InSyncEchoed);
        }
        for at in again {
            let bytes = bytes.clone();
            self.schedule(at, Event::Peer { from, to, bytes });
        }
        held
    }

    /// A process has died: what it has said is still under way.
    pub(super) fn echo_the_dead(&mut self, at: usize) {
        let said = std::mem::take(&mut self.echoes.said);
        let (of, others): (BTreeMap<_, _>, _) =
            said.into_iter().partition(|((from, ..), _)| *from == at);
        self.echoes.said = others;
        if self.healing {
            return;
        }
        for ((from, to, _), bytes) in of {
            for _ in 0..1 + self.echoes.random.below(3) {
                let later = Duration::from_micros(self.echoes.random.below(AFTER_US));
                let bytes = bytes.clone();
                self.schedule(self.clock + later, Event::Peer { from, to, bytes });
            }
        }
    }
}
