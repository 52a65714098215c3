//! Refusals in doubt: a coordinator, or a leader, would give one that is final for a client, and doesn't know yet that it still is that.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use riverlog_core::replica::Leader;
use riverlog_mutants::{Mutant, active};

/// For how long it is remembered when a refusal was in doubt first. Followers ask several times meanwhile.
const DOUBT: Duration = Duration::from_secs(5);
/// Questions that are remembered so.
const MOST: usize = 10_000;

/// When each question was first asked whose refusal was in doubt then. Who comes again asks the same. Each partition's leader has its own.
#[derive(Default)]
pub(crate) struct Doubts {
    since: BTreeMap<u64, Duration>,
    swept: Duration,
}

impl Doubts {
    /// Whether a final refusal of what was asked may go out: a leader that others have gone beyond doesn't know what has become of a transaction
    /// there. So it goes out only when followers have asked since the first time that it would have, enough of them to keep any other leader
    /// from having anything acknowledged before that. Until then the one who asks is told to look for the leader, and comes again. `now`: on the
    /// monotonic clock.
    pub(crate) fn may_refuse(&mut self, asked: &impl Hash, leader: &Leader, now: Duration) -> bool {
        if active(Mutant::DoubtsForgotten) {
            return true;
        }
        let question = question(asked);
        let since = self.since(question, now);
        let sure = since.is_some_and(|since| leader.is_followed(now.saturating_sub(since), now));
        if sure {
            self.since.remove(&question);
        }
        sure
    }

    /// Since when the refusal of a question is in doubt: `now` where it wasn't, or was so long ago; `None` where too many are.
    fn since(&mut self, question: u64, now: Duration) -> Option<Duration> {
        if now.saturating_sub(self.swept) >= DOUBT {
            self.swept = now;
            self.since
                .retain(|_, since| now.saturating_sub(*since) < DOUBT);
        }
        let known = self.since.get(&question).copied();
        if let Some(since) = known.filter(|since| now.saturating_sub(*since) < DOUBT) {
            return Some(since);
        }
        if known.is_none() && self.since.len() >= MOST {
            return None;
        }
        self.since.insert(question, now);
        Some(now)
    }
}

/// What stands for what was asked.
fn question(asked: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    asked.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use riverlog_core::Now;
    use riverlog_core::replica::Position;
    use riverlog_wire::{BrokerId, LeaderEpoch, Offset};

    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn now(seconds: u64) -> Now {
        let mono = at(seconds);
        Now { mono, wall_ms: 0 }
    }

    #[test]
    fn a_question_is_in_doubt_since_it_was_first_asked() {
        let mut doubts = Doubts::default();
        assert_eq!(doubts.since(1, at(10)), Some(at(10)));
        assert_eq!(doubts.since(1, at(12)), Some(at(10)));
        assert_eq!(doubts.since(2, at(12)), Some(at(12)));
        assert_eq!(doubts.since(1, at(15)), Some(at(15)));
    }

    #[test]
    fn a_refusal_is_in_doubt_until_followers_have_asked_and_forgotten_then() {
        let mut leader = Leader::new(LeaderEpoch(1), Position::default(), Offset::ZERO, true);
        let nodes = [BrokerId(1), BrokerId(2)];
        leader.set_partition(1, nodes[0], &nodes, &nodes, now(9));
        let mut doubts = Doubts::default();
        assert!(!doubts.may_refuse(&"asked", &leader, at(10)));
        assert!(!doubts.may_refuse(&"asked", &leader, at(11)));
        leader.on_followed(nodes[1], at(9));
        assert!(!doubts.may_refuse(&"asked", &leader, at(11)));
        leader.on_followed(nodes[1], at(11));
        // Of something else it is not known yet whether it was so a moment ago.
        assert!(!doubts.may_refuse(&"another", &leader, at(12)));
        assert!(doubts.may_refuse(&"asked", &leader, at(12)));
        assert!(!doubts.may_refuse(&"asked", &leader, at(13)));
    }

    #[test]
    fn not_too_many_are_remembered_and_none_for_long() {
        let mut doubts = Doubts::default();
        for question in 0..MOST as u64 {
            assert_eq!(doubts.since(question, at(10)), Some(at(10)));
        }
        assert_eq!(doubts.since(u64::MAX, at(11)), None);
        assert_eq!(doubts.since(0, at(11)), Some(at(10)));
        assert_eq!(doubts.since(u64::MAX, at(15)), Some(at(15)));
        assert_eq!(doubts.since.len(), 1);
    }
}
