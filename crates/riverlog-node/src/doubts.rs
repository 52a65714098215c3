//! Refusals in doubt: a coordinator, or a leader, would give one that is final for a client, and doesn't know yet that it still is that.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

/// For how long it is remembered when a refusal was in doubt first. Followers ask several times meanwhile.
const DOUBT: Duration = Duration::from_secs(5);
/// Questions that are remembered so.
const MOST: usize = 10_000;

/// When each question was first asked whose refusal was in doubt then. Who comes again asks the same.
#[derive(Default)]
pub(crate) struct Doubts {
    since: BTreeMap<u64, Duration>,
    swept: Duration,
}

/// What stands for what was asked.
pub(crate) fn question(asked: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    asked.hash(&mut hasher);
    hasher.finish()
}

impl Doubts {
    /// Since when the refusal of a question is in doubt: `now` where it wasn't, or was so long ago; `None` where too many are.
    pub(crate) fn since(&mut self, question: u64, now: Duration) -> Option<Duration> {
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

    /// The refusal has gone out.
    pub(crate) fn settled(&mut self, question: u64) {
        self.since.remove(&question);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_question_is_in_doubt_since_it_was_first_asked() {
        let mut doubts = Doubts::default();
        assert_eq!(doubts.since(1, at(10)), Some(at(10)));
        assert_eq!(doubts.since(1, at(12)), Some(at(10)));
        assert_eq!(doubts.since(2, at(12)), Some(at(12)));
        doubts.settled(1);
        assert_eq!(doubts.since(1, at(13)), Some(at(13)));
        assert_eq!(doubts.since(1, at(18)), Some(at(18)));
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
