//! Scripts, and all small histories.

use std::collections::BTreeSet;
use std::fmt::Write;

use expect_test::{Expect, expect};

use super::*;

const OWN: BrokerId = BrokerId(1);
const MAX_LAG: Duration = Duration::from_secs(10);

fn at(written: i64, synced: i64) -> Position {
    Position {
        written: Offset(written),
        synced: Offset(synced),
    }
}

/// Plays a script, one event a line:
///
/// - `at SECONDS`: time goes on
/// - `own WRITTEN SYNCED`: the leader's log
/// - `from ID WRITTEN SYNCED [EPOCH]`: a follower's report
/// - `replicas ID,… isr ID,…`: the controller's word
/// - `min N`, `sync`, `page-cache`: settings
/// - `acks ACKS END`, `admit ACKS`, `lag`, `join`: questions
fn check(script: &str, want: Expect) {
    let mut leader = Leader::new(LeaderEpoch(5), Position::default(), Offset::ZERO, true);
    let mut now = Now::default();
    let mut said = String::new();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let n = |i: usize| words[i].parse::<i64>().unwrap();
        let ids = |i: usize| -> Vec<BrokerId> {
            words[i]
                .split(',')
                .map(|id| BrokerId(id.parse().unwrap()))
                .collect()
        };
        let moved = |moved: Option<Offset>| match moved {
            Some(offset) => format!("high watermark {offset}"),
            None => String::new(),
        };
        let answer = match words[0] {
            "at" => {
                now.mono = Duration::from_secs(n(1) as u64);
                String::new()
            }
            "own" => moved(leader.on_own_position(at(n(1), n(2)))),
            "from" => {
                let epoch = words
                    .get(4)
                    .map_or(leader.epoch, |e| LeaderEpoch(e.parse().unwrap()));
                match leader.on_follower_position(BrokerId(n(1) as i32), epoch, at(n(2), n(3)), now)
                {
                    Ok(m) => moved(m),
                    Err(e) => format!("{}: {e}", e.error_code().name()),
                }
            }
            "replicas" => moved(leader.set_replicas(OWN, &ids(1), &ids(3), now)),
            "min" => moved(leader.set_min_isr(n(1) as usize)),
            "sync" => moved(leader.set_sync(true)),
            "page-cache" => moved(leader.set_sync(false)),
            "acks" => match leader.acked(n(1) as i16, Offset(n(2))) {
                None => "not yet".to_owned(),
                Some(Ok(())) => "answered".to_owned(),
                Some(Err(e)) => e.name().to_owned(),
            },
            "admit" => match leader.admit(n(1) as i16) {
                Ok(()) => "welcome".to_owned(),
                Err(e) => e.name().to_owned(),
            },
            "lag" => format!("{:?}", leader.lagging(MAX_LAG, now)),
            "join" => format!("{:?}", leader.caught_up()),
            other => panic!("unknown event {other}"),
        };
        if !answer.is_empty() {
            writeln!(said, "{line}: {answer}").unwrap();
        }
    }
    want.assert_eq(&said);
}

#[test]
fn alone_a_record_counts_once_it_is_synced() {
    check(
        "
        own 10 0
        acks 1 10
        acks 0 10
        own 10 10
        acks -1 10
        acks 1 10
        own 12 10
        acks -1 12
        ",
        expect![[r#"
            acks 1 10: not yet
            acks 0 10: answered
            own 10 10: high watermark 10
            acks -1 10: answered
            acks 1 10: answered
            acks -1 12: not yet
        "#]],
    );
}

#[test]
fn alone_on_a_page_cache_topic_written_is_enough() {
    check(
        "
        page-cache
        own 10 0
        acks -1 10
        acks 1 10
        sync
        own 15 5
        acks 1 15
        own 15 15
        ",
        expect![[r#"
            own 10 0: high watermark 10
            acks -1 10: answered
            acks 1 10: answered
            acks 1 15: not yet
            own 15 15: high watermark 15
        "#]],
    );
}

#[test]
fn the_slowest_in_sync_replica_decides() {
    check(
        "
        replicas 1,2,3 isr 1,2,3
        own 10 10
        from 2 10 10
        from 3 10 4
        acks -1 4
        acks -1 5
        from 3 10 10
        ",
        expect![[r#"
            from 3 10 4: high watermark 4
            acks -1 4: answered
            acks -1 5: not yet
            from 3 10 10: high watermark 10
        "#]],
    );
}

#[test]
fn a_follower_that_restarts_short_does_not_pull_the_watermark_down() {
    check(
        "
        replicas 1,2 isr 1,2
        own 10 10
        from 2 10 10
        from 2 7 7
        own 12 12
        from 2 10 10
        from 2 12 12
        ",
        expect![[r#"
            from 2 10 10: high watermark 10
            from 2 12 12: high watermark 12
        "#]],
    );
}

#[test]
fn an_in_sync_follower_that_has_not_spoken_holds_the_watermark() {
    check(
        "
        replicas 1,2 isr 1,2
        own 10 10
        acks -1 10
        from 2 0 0
        from 2 3 3
        ",
        expect![[r#"
            acks -1 10: not yet
            from 2 3 3: high watermark 3
        "#]],
    );
}

#[test]
fn min_isr_refuses_before_and_tells_after() {
    check(
        "
        replicas 1,2,3 isr 1,2,3
        min 2
        own 10 10
        from 2 5 5
        from 3 5 5
        admit -1
        replicas 1,2,3 isr 1
        acks -1 10
        acks 1 10
        admit -1
        admit 1
        replicas 1,2,3 isr 1,2
        admit -1
        acks -1 10
        from 2 10 10
        acks -1 10
        replicas 1,2,3 isr 1
        acks -1 10
        min 1
        own 12 12
        ",
        expect![[r#"
            from 3 5 5: high watermark 5
            admit -1: welcome
            acks -1 10: NOT_ENOUGH_REPLICAS_AFTER_APPEND
            acks 1 10: answered
            admit -1: NOT_ENOUGH_REPLICAS
            admit 1: welcome
            admit -1: welcome
            acks -1 10: not yet
            from 2 10 10: high watermark 10
            acks -1 10: answered
            acks -1 10: NOT_ENOUGH_REPLICAS_AFTER_APPEND
            own 12 12: high watermark 12
        "#]],
    );
}

#[test]
fn a_topic_with_fewer_replicas_than_min_isr_needs_them_all() {
    check(
        "
        min 3
        own 4 4
        admit -1
        acks -1 4
        replicas 1,2 isr 1
        admit -1
        replicas 1,2 isr 1,2
        admit -1
        ",
        expect![[r#"
            own 4 4: high watermark 4
            admit -1: welcome
            acks -1 4: answered
            admit -1: NOT_ENOUGH_REPLICAS
            admit -1: welcome
        "#]],
    );
}

#[test]
fn reports_from_elsewhere_are_refused() {
    check(
        "
        replicas 1,2 isr 1,2
        own 10 10
        from 2 10 10 4
        from 2 10 10 6
        from 9 10 10
        from 2 11 10
        ",
        expect![[r#"
            from 2 10 10 4: FENCED_LEADER_EPOCH: follower 2 speaks of leader epoch 4 but this leader is at 5; refresh metadata, then fetch again
            from 2 10 10 6: UNKNOWN_LEADER_EPOCH: follower 2 speaks of leader epoch 6 but this leader is at 5; refresh metadata, then fetch again
            from 9 10 10: NOT_LEADER_OR_FOLLOWER: broker 9 is not a replica of this partition; refresh metadata
            from 2 11 10: OFFSET_OUT_OF_RANGE: follower 2 has records up to 11 but the leader ends at 10; truncate to the last common epoch, then fetch again
        "#]],
    );
}

#[test]
fn a_follower_that_lacks_records_for_too_long_is_to_leave_and_comes_back_at_the_watermark() {
    check(
        "
        replicas 1,2,3 isr 1,2,3
        own 10 10
        from 2 10 10
        from 3 10 10
        at 8
        own 20 20
        from 2 20 20
        from 3 12 12
        lag
        at 12
        from 2 20 20
        lag
        replicas 1,2,3 isr 1,2
        join
        from 3 19 19
        join
        from 3 20 20
        join
        ",
        expect![[r#"
            from 3 10 10: high watermark 10
            from 3 12 12: high watermark 12
            lag: []
            lag: [BrokerId(3)]
            replicas 1,2,3 isr 1,2: high watermark 20
            join: []
            join: []
            join: [BrokerId(3)]
        "#]],
    );
}

#[test]
fn a_follower_that_is_always_a_little_behind_is_not_late() {
    // It syncs what it was sent two reports ago, for far longer than the allowed lag.
    let mut leader = Leader::new(LeaderEpoch(0), Position::default(), Offset::ZERO, true);
    let mut now = Now::default();
    leader.set_replicas(OWN, &[OWN, BrokerId(2)], &[OWN, BrokerId(2)], now);
    for second in 0..200 {
        now.mono = Duration::from_secs(second);
        let end = second as i64 * 10;
        leader.on_own_position(at(end, end));
        let report = at(end, (end - 20).max(0));
        leader
            .on_follower_position(BrokerId(2), LeaderEpoch(0), report, now)
            .unwrap();
        assert_eq!(leader.lagging(MAX_LAG, now), [], "after {second} s");
    }
}

#[test]
fn a_quiet_topic_loses_no_follower_that_has_everything() {
    check(
        "
        replicas 1,2 isr 1,2
        own 10 10
        from 2 10 10
        at 500
        lag
        ",
        expect![[r#"
            from 2 10 10: high watermark 10
            lag: []
        "#]],
    );
}

#[test]
fn a_watermark_that_is_known_from_before_is_kept_up_to_the_logs_end() {
    let leader = |hw| Leader::new(LeaderEpoch(1), at(10, 8), Offset(hw), true).high_watermark();
    assert_eq!(leader(6), Offset(6));
    assert_eq!(leader(9), Offset(9));
    assert_eq!(leader(12), Offset(10));
}

/// What can happen to a partition of three replicas in the exhaustive test.
#[derive(Clone, Copy, Debug)]
enum Event {
    Write,
    SyncOwn,
    Fetch(i32),
    SyncFollower(i32),
    Restart(i32),
    Shrink(i32),
    Grow(i32),
    Durability,
}

#[test]
fn no_small_history_moves_the_watermark_back_or_past_an_in_sync_copy() {
    #[derive(Clone)]
    struct World {
        leader: Leader,
        own: Position,
        followers: [Position; 2],
        isr: BTreeSet<BrokerId>,
        sync: bool,
    }
    impl World {
        fn step(&mut self, event: Event) {
            let now = Now::default();
            let follower = |f: i32| usize::try_from(f - 2).unwrap();
            match event {
                Event::Write if self.own.written < Offset(2) => {
                    self.own.written = self.own.written + 1
                }
                Event::Write => {}
                Event::SyncOwn => self.own.synced = self.own.written,
                Event::Fetch(f) => self.followers[follower(f)].written = self.own.written,
                Event::SyncFollower(f) => {
                    let p = &mut self.followers[follower(f)];
                    p.synced = p.written;
                }
                // A power cut: what wasn't synced is gone. On a page-cache topic that may be acknowledged data.
                Event::Restart(f) => {
                    let p = &mut self.followers[follower(f)];
                    p.written = p.synced;
                }
                Event::Shrink(f) => {
                    self.isr.remove(&BrokerId(f));
                }
                Event::Grow(f) => {
                    if self.leader.caught_up().contains(&BrokerId(f)) {
                        self.isr.insert(BrokerId(f));
                    }
                }
                Event::Durability => self.sync = !self.sync,
            }
            self.leader.on_own_position(self.own);
            self.leader.set_sync(self.sync);
            let replicas = [OWN, BrokerId(2), BrokerId(3)];
            let isr: Vec<BrokerId> = self.isr.iter().copied().collect();
            self.leader.set_replicas(OWN, &replicas, &isr, now);
            self.leader.set_min_isr(2);
            if let Event::Fetch(f) | Event::SyncFollower(f) | Event::Restart(f) = event {
                let position = self.followers[follower(f)];
                self.leader
                    .on_follower_position(BrokerId(f), LeaderEpoch(0), position, now)
                    .unwrap();
            }
        }
    }
    let mut events = vec![Event::Write, Event::SyncOwn, Event::Durability];
    for f in [2, 3] {
        events.extend([
            Event::Fetch(f),
            Event::SyncFollower(f),
            Event::Restart(f),
            Event::Shrink(f),
            Event::Grow(f),
        ]);
    }
    let everyone = [OWN, BrokerId(2), BrokerId(3)];
    let start = World {
        leader: Leader::new(LeaderEpoch(0), Position::default(), Offset::ZERO, true),
        own: Position::default(),
        followers: [Position::default(); 2],
        isr: everyone.into(),
        sync: true,
    };

    // A history is what can be seen of its last state, so each state is explored once.
    let look = |w: &World| {
        format!(
            "{:?} {:?} {:?} {:?} {}",
            w.leader, w.own, w.followers, w.isr, w.sync
        )
    };
    let mut seen = BTreeSet::from([look(&start)]);
    let mut open = vec![start];
    let mut moves = 0;
    while let Some(world) = open.pop() {
        for event in &events {
            let mut next = world.clone();
            next.step(*event);
            let before = world.leader.high_watermark();
            let after = next.leader.high_watermark();
            assert!(after >= before, "{event:?} moved the watermark back");
            if after > before {
                moves += 1;
                assert!(
                    next.isr.len() >= 2,
                    "{event:?}: the watermark moved under min ISR"
                );
                let copies = std::iter::once((OWN, next.own)).chain(
                    (2..)
                        .map(BrokerId)
                        .zip(next.followers)
                        .filter(|(id, _)| next.isr.contains(id)),
                );
                for (id, position) in copies {
                    let has = if next.sync {
                        position.synced
                    } else {
                        position.written
                    };
                    assert!(
                        after <= has,
                        "{event:?}: the watermark {after} is past broker {id}'s {has}"
                    );
                }
                for acked in 1..=after.0 {
                    assert!(next.leader.acked(-1, Offset(acked)).is_some());
                }
            }
            if seen.insert(look(&next)) {
                open.push(next);
            }
        }
    }
    assert!(
        seen.len() > 1_000 && moves > 100,
        "{} states, {moves} moves",
        seen.len()
    );
}

fn trio(isr: &[BrokerId]) -> (Leader, impl Fn(u64) -> Now) {
    let at = |seconds| Now {
        mono: Duration::from_secs(seconds),
        wall_ms: 0,
    };
    let mut leader = Leader::new(LeaderEpoch(5), at_both(10), Offset(4), true);
    leader.set_min_isr(1);
    leader.set_replicas(OWN, &[OWN, BrokerId(2), BrokerId(3)], isr, at(0));
    (leader, at)
}

fn at_both(offset: i64) -> Position {
    at(offset, offset)
}

#[test]
fn a_leadership_that_begins_takes_itself_neither_for_the_only_copy_nor_for_enough() {
    let all = [OWN, BrokerId(2), BrokerId(3)];
    for isr in [&all[..2], &all[..1]] {
        let mut leader = Leader::new(LeaderEpoch(5), at_both(10), Offset(4), true);
        let moved = leader.set_partition(2, OWN, &all, isr, Now::default());
        assert_eq!((moved, leader.high_watermark()), (None, Offset(4)));
    }
}

#[test]
fn who_joins_has_all_that_was_there_when_the_epoch_began_and_speaks_in_this_life() {
    let (mut leader, at) = trio(&[OWN, BrokerId(2)]);
    let epoch_of = |id: BrokerId| Some(100 + i64::from(id.0));
    let report = |leader: &mut Leader, epoch, to| {
        let position = at_both(to);
        leader.on_follower_fetch(BrokerId(3), epoch, LeaderEpoch(5), position, at(1))
    };
    // The high watermark is known to be 4 only because nobody has spoken yet: what lies above may have been acknowledged.
    report(&mut leader, 103, 5).unwrap();
    assert_eq!(
        leader.propose_isr((OWN, 101), MAX_LAG, at(1), epoch_of),
        None
    );
    // An earlier life counts for nothing.
    report(&mut leader, 99, 10).unwrap();
    assert_eq!(
        leader.propose_isr((OWN, 101), MAX_LAG, at(1), epoch_of),
        None
    );
    report(&mut leader, 103, 10).unwrap();
    let asked = leader.propose_isr((OWN, 101), MAX_LAG, at(1), epoch_of);
    let want = vec![(OWN, 101), (BrokerId(2), 102), (BrokerId(3), 103)];
    assert_eq!(asked, Some(want));
}

#[test]
fn a_leader_is_followed_as_of_what_its_followers_carry_back() {
    let (mut leader, at) = trio(&[OWN, BrokerId(2), BrokerId(3)]);
    leader.set_min_isr(2);
    let seconds = |n| at(n).mono;
    let spoke = leader.on_follower_position(BrokerId(2), LeaderEpoch(5), at_both(4), at(20));
    spoke.unwrap();
    // When that was said isn't known.
    assert!(!leader.is_followed(seconds(9), seconds(20)));
    leader.on_followed(BrokerId(2), seconds(12));
    leader.on_followed(BrokerId(2), seconds(10));
    assert!(leader.is_followed(seconds(9), seconds(21)));
    assert!(!leader.is_followed(seconds(9), seconds(22)));
    leader.on_followed(BrokerId(9), seconds(22));
    assert!(!leader.is_followed(seconds(9), seconds(22)));
}

#[test]
fn a_leader_can_acknowledge_once_as_many_as_min_isr_have_followed() {
    let (mut leader, _) = trio(&[OWN, BrokerId(2), BrokerId(3)]);
    assert!(leader.has_quorum());
    leader.set_min_isr(2);
    assert!(!leader.has_quorum());
    leader.on_followed(BrokerId(3), Duration::from_secs(1));
    assert!(leader.has_quorum());
}

#[test]
fn whoever_leads_next_was_in_sync_and_has_followed_before() {
    let (mut leader, _) = trio(&[OWN, BrokerId(2)]);
    let seconds = Duration::from_secs;
    leader.set_min_isr(2);
    assert!(!leader.is_followed_in_sync(seconds(9), seconds(20)));
    // Who isn't in sync doesn't lead next, and says nothing of who does.
    leader.on_followed(BrokerId(3), seconds(19));
    assert!(!leader.is_followed_in_sync(seconds(9), seconds(20)));
    leader.on_followed(BrokerId(2), seconds(12));
    assert!(leader.is_followed_in_sync(seconds(9), seconds(21)));
    assert!(!leader.is_followed_in_sync(seconds(9), seconds(22)));
    // With fewer than min ISR one that has left may lead next.
    leader.set_min_isr(3);
    assert!(!leader.is_followed_in_sync(seconds(9), seconds(21)));
}

#[test]
fn who_is_asked_for_counts_until_another_change_outdates_the_ask() {
    let (mut leader, at) = trio(&[OWN]);
    let epoch_of = |id: BrokerId| Some(100 + i64::from(id.0));
    leader.on_own_position(at_both(10));
    let position = at_both(10);
    let spoke = leader.on_follower_fetch(BrokerId(3), 103, LeaderEpoch(5), position, at(1));
    spoke.unwrap();
    let asked = leader.propose_isr((OWN, 101), MAX_LAG, at(1), epoch_of);
    assert_eq!(asked, Some(vec![(OWN, 101), (BrokerId(3), 103)]));
    // It may be in already, for all that is known here.
    assert_eq!(leader.on_own_position(at_both(20)), None);
    assert_eq!(leader.isr_len(), 1);
    // It says nothing more: a change without it, after which it doesn't count.
    let asked = leader.propose_isr((OWN, 101), MAX_LAG, at(60), epoch_of);
    assert_eq!(asked, Some(vec![(OWN, 101)]));
    assert_eq!(leader.on_own_position(at_both(21)), None);
    let replicas = [OWN, BrokerId(2), BrokerId(3)];
    let moved = leader.set_replicas(OWN, &replicas, &[OWN], at(61));
    assert_eq!(moved, Some(Offset(21)));
}
