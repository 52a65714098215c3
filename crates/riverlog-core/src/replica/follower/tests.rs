//! Stories, and any two logs that share a beginning.

use proptest::prelude::*;

use super::*;

/// A log as the epochs of its records.
#[derive(Clone, Debug, PartialEq)]
struct Records(Vec<i32>);

impl Records {
    fn end(&self) -> Offset {
        Offset(self.0.len() as i64)
    }
    fn last_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.0.last().copied().unwrap_or(-1))
    }
    fn end_of(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let end = self.0.iter().rposition(|e| *e <= epoch.0)?;
        Some((LeaderEpoch(self.0[end]), Offset(end as i64 + 1)))
    }
    /// As a leader's fetch answers.
    fn answer(&self, ask: FollowerAsk) -> FollowerAnswer {
        if ask.last_epoch.0 >= 0 {
            let none = (LeaderEpoch::NONE, Offset(-1));
            let (epoch, end) = self.end_of(ask.last_epoch).unwrap_or(none);
            if epoch < ask.last_epoch || end < ask.from {
                return FollowerAnswer::Diverging { epoch, end };
            }
        }
        FollowerAnswer::Matches {
            high_watermark: self.end(),
            log_start: Offset::ZERO,
        }
    }
}

/// Asks until the logs agree; returns how often, and checks each watermark on the way.
fn follow(follower: &mut Follower, own: &mut Records, leader: &Records) -> usize {
    for asks in 1..100 {
        let ask = follower.ask(own.end(), own.last_epoch());
        let answer = leader.answer(ask);
        match follower.on_answer(ask, answer, own.end(), |e| own.end_of(e)) {
            FollowerStep::Cut(to) => {
                assert!(to < own.end());
                own.0.truncate(to.0 as usize);
                follower.cut(own.end());
            }
            FollowerStep::Append { .. } => {
                assert_eq!(own.0[..], leader.0[..own.0.len()], "what differs was kept");
                let next = leader.0[own.0.len()..].iter().take(2).copied();
                own.0.extend(next.collect::<Vec<_>>());
                follower.appended(leader.end(), own.end());
                if own == leader {
                    return asks;
                }
            }
            other => panic!("{other:?}"),
        }
        assert!(follower.high_watermark() <= own.end());
        let known = follower.high_watermark().0 as usize;
        assert_eq!(own.0[..known], leader.0[..known], "shown and not committed");
    }
    panic!("they never agree");
}

fn new() -> Follower {
    Follower::new(BrokerId(1), LeaderEpoch(9), Offset::ZERO)
}

#[test]
fn what_the_leader_never_had_is_cut_before_anything_is_shown() {
    let leader = Records(vec![1, 1, 3, 3, 3]);
    let mut own = Records(vec![1, 1, 2, 2, 2, 2, 2]);
    let mut follower = new();
    // Epoch 2 ended at 2 in the leader's log: nothing of it is there.
    let ask = follower.ask(own.end(), own.last_epoch());
    let answer = leader.answer(ask);
    let want = FollowerAnswer::Diverging {
        epoch: LeaderEpoch(1),
        end: Offset(2),
    };
    assert_eq!(answer, want);
    let step = follower.on_answer(ask, answer, own.end(), |e| own.end_of(e));
    assert_eq!(step, FollowerStep::Cut(Offset(2)));
    follow(&mut follower, &mut own, &leader);
    assert_eq!(follower.high_watermark(), Offset(5));
}

#[test]
fn an_answer_of_another_leadership_or_to_an_older_ask_counts_for_nothing() {
    let own = Records(vec![1, 1]);
    let follower = new();
    let ask = follower.ask(own.end(), own.last_epoch());
    let answer = FollowerAnswer::Matches {
        high_watermark: Offset(2),
        log_start: Offset(0),
    };
    let step = |asked, end| follower.on_answer(asked, answer, end, |_| None);
    let earlier = FollowerAsk {
        epoch: LeaderEpoch(8),
        ..ask
    };
    assert_eq!(step(earlier, Offset(2)), FollowerStep::Ignore);
    assert_eq!(step(ask, Offset(3)), FollowerStep::Ignore);
    let append = FollowerStep::Append {
        log_start: Offset(0),
    };
    assert_eq!(step(ask, Offset(2)), append);
}

#[test]
fn a_copy_that_ends_before_the_leaders_start_begins_anew_there() {
    let follower = new();
    let ask = follower.ask(Offset(5), LeaderEpoch(1));
    let answer = FollowerAnswer::OutOfRange {
        log_start: Offset(9),
        log_end: Offset(20),
    };
    let step = follower.on_answer(ask, answer, Offset(5), |_| None);
    assert_eq!(step, FollowerStep::BeginAt(Offset(9)));
}

fn epochs(len: usize) -> impl Strategy<Value = Vec<i32>> {
    proptest::collection::vec(0..6_i32, 0..len).prop_map(|mut epochs| {
        epochs.sort_unstable();
        epochs
    })
}

proptest! {
    /// One epoch has one leader, so that logs which agree on an epoch at an offset agree on all before it.
    #[test]
    fn any_copy_becomes_its_leaders(
        common in epochs(8),
        mine in proptest::collection::vec(0..3_i32, 0..8),
        theirs in proptest::collection::vec(0..3_i32, 0..8),
    ) {
        let last = common.last().copied().unwrap_or(0);
        let tail = |steps: &[i32], odd: i32| {
            let mut epoch = last;
            // Epochs of either side are never those of the other.
            let each = steps.iter().map(|step| {
                epoch += step;
                10 + 2 * epoch + odd
            });
            common.iter().copied().chain(each).collect::<Vec<_>>()
        };
        let mut own = Records(tail(&mine, 0));
        let leader = Records(tail(&theirs, 1));
        if own != leader {
            let mut follower = new();
            let asks = follow(&mut follower, &mut own, &leader);
            prop_assert!(asks <= 1 + mine.len() + theirs.len() + common.len());
        }
        prop_assert_eq!(own, leader);
    }
}
