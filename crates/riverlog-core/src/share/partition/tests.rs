//! Stories, and random members against a state for each single offset.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

const NOW: Now = Now {
    mono: SECOND,
    wall_ms: 1_000_000,
};

fn limits() -> ShareLimits {
    ShareLimits {
        max_locks: 30,
        delivery_limit: 3,
        lock_duration: SECOND * 10,
        ..ShareLimits::default()
    }
}

fn batch(first: i64, last: i64) -> FetchedBatch {
    FetchedBatch {
        first: Offset(first),
        last: Offset(last),
        visible: true,
        keys: None,
    }
}

fn ask(member: &str, max_records: i64, mode: AcquireMode) -> Acquire {
    Acquire {
        member: member.into(),
        max_records,
        batch_size: 500,
        mode,
    }
}

/// The coordinator knows where it begins.
fn begun(start: i64) -> SharePartition {
    let mut partition = SharePartition::new(Offset(start));
    assert_eq!(kept(partition.take_update(NOW)), (start, 0, vec![]));
    partition
}

/// What a member says, and what is to be kept of it.
fn tell(
    partition: &mut SharePartition,
    member: &str,
    what: &[Acknowledgement],
    now: Duration,
) -> Result<Option<StateUpdate>, ErrorCode> {
    partition.acknowledge(member, what, now, &limits())?;
    Ok(partition.take_update(NOW))
}

fn all(member: &str) -> Acquire {
    ask(member, 500, AcquireMode::BatchOptimized)
}

fn say(first: i64, last: i64, types: &[Acknowledge]) -> Vec<Acknowledgement> {
    vec![Acknowledgement {
        first: Offset(first),
        last: Offset(last),
        types: types.to_vec(),
    }]
}

fn got(acquired: &[Acquired]) -> Vec<(i64, i64, i16)> {
    let each = acquired.iter();
    each.map(|a| (a.first.0, a.last.0, a.delivery_count))
        .collect()
}

/// Start, complete ones, and batches.
type Kept = (i64, i32, Vec<(i64, i64, i8, i16)>);

fn kept(update: Option<StateUpdate>) -> Kept {
    let update = update.expect("something to keep");
    let batches = update.batches.iter();
    let batches = batches.map(|b| (b.first.0, b.last.0, b.state.number(), b.delivery_count));
    (update.start.0, update.complete, batches.collect())
}

#[test]
fn accepted_records_move_the_start() {
    let mut partition = begun(5);
    let log = [batch(5, 7), batch(8, 9)];
    let acquired = partition.acquire(&all("a"), Offset(5), &log, SECOND, &limits());
    assert_eq!(got(&acquired), [(5, 9, 1)]);
    assert_eq!(partition.next_fetch(&limits()), Some(Offset(10)));
    let later = say(7, 7, &[Acknowledge::Accept]);
    let update = tell(&mut partition, "a", &later, SECOND);
    assert_eq!(kept(update.unwrap()), (5, 1, vec![(7, 7, 2, 0)]));
    let rest = say(5, 6, &[Acknowledge::Accept, Acknowledge::Gap]);
    let update = tell(&mut partition, "a", &rest, SECOND);
    assert_eq!(kept(update.unwrap()), (8, 0, vec![]));
    // Once more: it is below the start, and nobody minds.
    let update = tell(&mut partition, "a", &rest, SECOND);
    assert_eq!(update, Ok(None));
}

#[test]
fn a_released_record_comes_again_until_it_was_given_out_often_enough() {
    let mut partition = begun(0);
    let log = [batch(0, 0)];
    for count in 1..=3 {
        let acquired = partition.acquire(&all("a"), Offset(0), &log, SECOND, &limits());
        assert_eq!(got(&acquired), [(0, 0, count)]);
        let release = say(0, 0, &[Acknowledge::Release]);
        let update = tell(&mut partition, "a", &release, SECOND);
        match count {
            3 => assert_eq!(kept(update.unwrap()), (1, 0, vec![])),
            _ => assert_eq!(kept(update.unwrap()), (0, 0, vec![(0, 0, 0, count)])),
        }
    }
    assert_eq!(partition.next_fetch(&limits()), Some(Offset(1)));
}

#[test]
fn a_delivery_counts_though_the_next_one_began_before_it_was_kept() {
    let mut partition = begun(0);
    let log = [batch(0, 2)];
    partition.acquire(&all("a"), Offset(0), &log, SECOND, &limits());
    let release = say(1, 1, &[Acknowledge::Release]);
    let told = partition.acknowledge("a", &release, SECOND, &limits());
    assert_eq!(told, Ok(()));
    // Somebody has waited for it.
    let acquired = partition.acquire(&all("b"), Offset(0), &log, SECOND, &limits());
    assert_eq!(got(&acquired), [(1, 1, 2)]);
    let update = partition.take_update(NOW).unwrap();
    assert_eq!(kept(Some(update.clone())), (0, 0, vec![(1, 1, 0, 1)]));
    // The next leader knows that it was given out once, whatever "b" was about to say.
    let mut next = SharePartition::restored(Offset(0), &update.batches, NOW, &limits());
    let acquired = next.acquire(&all("c"), Offset(0), &log, SECOND, &limits());
    assert_eq!(got(&acquired), [(0, 0, 1), (1, 1, 2), (2, 2, 1)]);
}

#[test]
fn time_that_is_up_and_a_session_that_is_lost_give_records_back() {
    let mut partition = begun(0);
    let log = [batch(0, 4)];
    partition.acquire(&all("a"), Offset(0), &log, SECOND, &limits());
    assert_eq!(partition.next_deadline(), Some(SECOND * 11));
    assert_eq!(
        {
            partition.expire(SECOND * 10, &limits());
            partition.take_update(NOW)
        },
        None
    );
    let update = {
        partition.expire(SECOND * 11, &limits());
        partition.take_update(NOW)
    };
    assert_eq!(kept(update), (0, 0, vec![(0, 4, 0, 1)]));
    let acquired = partition.acquire(&all("b"), Offset(0), &log, SECOND * 12, &limits());
    assert_eq!(got(&acquired), [(0, 4, 2)]);
    assert_eq!(
        {
            partition.release("a", SECOND, &limits());
            partition.take_update(NOW)
        },
        None
    );
    assert_eq!(
        kept({
            partition.release("b", SECOND, &limits());
            partition.take_update(NOW)
        }),
        (0, 0, vec![(0, 4, 0, 2)])
    );
    assert_eq!(partition.next_deadline(), None);
}

#[test]
fn a_renewed_record_stays_with_its_member() {
    let mut partition = begun(0);
    partition.acquire(&all("a"), Offset(0), &[batch(0, 1)], SECOND, &limits());
    let renew = say(1, 1, &[Acknowledge::Renew]);
    let update = tell(&mut partition, "a", &renew, SECOND * 9);
    assert_eq!(update, Ok(None));
    let update = {
        partition.expire(SECOND * 11, &limits());
        partition.take_update(NOW)
    };
    assert_eq!(kept(update), (0, 0, vec![(0, 0, 0, 1)]));
    assert_eq!(partition.next_deadline(), Some(SECOND * 19));
}

#[test]
fn what_a_member_does_not_have_it_cannot_acknowledge() {
    let mut partition = begun(0);
    partition.acquire(&all("a"), Offset(0), &[batch(0, 4)], SECOND, &limits());
    let accept = |first, last| say(first, last, &[Acknowledge::Accept]);
    let invalid_state = Err(ErrorCode::INVALID_RECORD_STATE);
    let invalid = Err(ErrorCode::INVALID_REQUEST);
    let mut tell = |who: &str, what: &[Acknowledgement]| {
        tell(&mut partition, who, what, SECOND).map(|update| update.is_some())
    };
    assert_eq!(tell("b", &accept(0, 4)), invalid_state);
    assert_eq!(tell("a", &accept(3, 5)), invalid);
    assert_eq!(tell("a", &accept(0, i64::MAX)), invalid);
    assert_eq!(tell("a", &accept(2, 1)), invalid);
    assert_eq!(tell("a", &say(0, 2, &[Acknowledge::Accept; 2])), invalid);
    assert_eq!(tell("a", &[accept(2, 3), accept(3, 4)].concat()), invalid);
    assert_eq!(tell("a", &[accept(0, 1), accept(4, 5)].concat()), invalid);
    // All or nothing: 0 and 1 are still held.
    assert_eq!(tell("a", &accept(0, 4)), Ok(true));
}

#[test]
fn offsets_without_records_are_done_with() {
    let mut partition = begun(0);
    let control = FetchedBatch {
        visible: false,
        ..batch(5, 5)
    };
    let log = [batch(2, 3), control, batch(8, 9)];
    let acquired = partition.acquire(&all("a"), Offset(0), &log, SECOND, &limits());
    assert_eq!(got(&acquired), [(2, 3, 1), (8, 9, 1)]);
    assert_eq!(partition.start(), Offset(2));
    let update = tell(
        &mut partition,
        "a",
        &say(2, 3, &[Acknowledge::Accept]),
        SECOND,
    );
    assert_eq!(kept(update.unwrap()).0, 8);
}

#[test]
fn modes_keep_to_the_limit_by_batch_or_by_record() {
    let log = [batch(0, 3), batch(4, 7), batch(8, 9)];
    let mut partition = begun(0);
    let five = ask("a", 5, AcquireMode::BatchOptimized);
    let acquired = partition.acquire(&five, Offset(0), &log, SECOND, &limits());
    assert_eq!(got(&acquired), [(0, 7, 1)]);
    let mut partition = begun(0);
    let five = ask("a", 5, AcquireMode::RecordLimit);
    let acquired = partition.acquire(&five, Offset(0), &log, SECOND, &limits());
    assert_eq!(got(&acquired), [(0, 4, 1)]);
    assert_eq!(partition.next_fetch(&limits()), Some(Offset(5)));
    let acquired = partition.acquire(&five, Offset(4), &log[1..], SECOND, &limits());
    assert_eq!(got(&acquired), [(5, 9, 1)]);
    let mut partition = begun(0);
    let split = Acquire {
        batch_size: 4,
        ..all("a")
    };
    let acquired = partition.acquire(&split, Offset(0), &log, SECOND, &limits());
    assert_eq!(got(&acquired), [(0, 3, 1), (4, 7, 1), (8, 9, 1)]);
}

#[test]
fn no_more_than_the_window_is_given_out() {
    let mut partition = begun(0);
    let log: Vec<FetchedBatch> = (0..10).map(|n| batch(n * 8, n * 8 + 7)).collect();
    let acquired = partition.acquire(&all("a"), Offset(0), &log, SECOND, &limits());
    assert_eq!(got(&acquired), [(0, 31, 1)]);
    assert_eq!(partition.next_fetch(&limits()), None);
    let first = say(0, 7, &[Acknowledge::Accept]);
    tell(&mut partition, "a", &first, SECOND).unwrap();
    assert_eq!(partition.next_fetch(&limits()), Some(Offset(32)));
}

#[test]
fn it_comes_back_as_it_was_told() {
    let mut partition = begun(0);
    partition.acquire(&all("a"), Offset(0), &[batch(0, 9)], SECOND, &limits());
    let mut types = [Acknowledge::Release; 6];
    types[2] = Acknowledge::Accept;
    let update = tell(&mut partition, "a", &say(2, 7, &types), SECOND);
    let update = update.unwrap().unwrap();
    let mut again = SharePartition::restored(update.start, &update.batches, NOW, &limits());
    assert_eq!((again.start(), again.end()), (Offset(0), Offset(8)));
    let acquired = again.acquire(&all("b"), Offset(0), &[batch(0, 9)], SECOND, &limits());
    assert_eq!(got(&acquired), [(0, 1, 1), (2, 3, 2), (5, 7, 2), (8, 9, 1)]);
}

#[test]
fn a_wall_clock_that_was_set_back_before_a_load_keeps_no_record_back_for_longer() {
    let limits = ShareLimits {
        backoff: SECOND * 2,
        ..limits()
    };
    let mut partition = begun(0);
    let log = [batch(0, 1)];
    partition.acquire(&all("a"), Offset(0), &log, SECOND, &limits);
    let by_settings = say(0, 0, &[Acknowledge::Release]);
    let by_member = say(1, 1, &[Acknowledge::ReleaseAfter(SECOND * 5)]);
    for said in [by_settings, by_member] {
        assert_eq!(partition.acknowledge("a", &said, SECOND, &limits), Ok(()));
    }
    let update = partition.take_update(NOW).unwrap();
    let load = |wall_ms| {
        let now = Now { wall_ms, ..NOW };
        SharePartition::restored(update.start, &update.batches, now, &limits)
    };
    let rests = |mut next: SharePartition| {
        let first = next.next_deadline();
        next.expire(first.unwrap_or_default(), &limits);
        (first, next.next_deadline())
    };
    // A second has passed, or the clock says that a quarter of an hour is still to come.
    let later = load(NOW.wall_ms + 1_000);
    assert_eq!(rests(later), (Some(SECOND * 2), Some(SECOND * 5)));
    let set_back = load(NOW.wall_ms - 900_000);
    assert_eq!(rests(set_back), (Some(SECOND * 3), Some(SECOND * 6)));
    let set_forward = load(NOW.wall_ms + 900_000);
    assert_eq!(rests(set_forward), (None, None));
}

#[test]
fn a_log_that_begins_later_takes_records_away() {
    let mut partition = begun(0);
    partition.acquire(&all("a"), Offset(0), &[batch(0, 9)], SECOND, &limits());
    assert_eq!(
        kept({
            partition.log_starts_at(Offset(4));
            partition.take_update(NOW)
        }),
        (4, 0, vec![])
    );
    assert_eq!(
        {
            partition.log_starts_at(Offset(4));
            partition.take_update(NOW)
        },
        None
    );
    let accept = say(0, 9, &[Acknowledge::Accept]);
    let update = tell(&mut partition, "a", &accept, SECOND);
    assert_eq!(kept(update.unwrap()).0, 10);
    assert_eq!(
        kept({
            partition.log_starts_at(Offset(20));
            partition.take_update(NOW)
        }),
        (20, 0, vec![])
    );
    assert_eq!(partition.next_fetch(&limits()), Some(Offset(20)));
}

/// A state for each offset.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Single {
    Available(i16),
    Acquired(&'static str, Duration, i16),
    Complete,
}

#[derive(Default)]
struct Model {
    start: i64,
    /// From the start.
    records: Vec<Single>,
    accepted: std::collections::BTreeSet<i64>,
}

impl Model {
    fn end(&self) -> i64 {
        self.start + self.records.len() as i64
    }

    fn settle(&mut self) {
        while self.records.first() == Some(&Single::Complete) {
            self.records.remove(0);
            self.start += 1;
        }
    }

    fn back(count: i16) -> Single {
        match count >= limits().delivery_limit {
            true => Single::Complete,
            false => Single::Available(count),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Acquire(usize, i64, bool),
    Acknowledge(usize, i64, Vec<u8>),
    Release(usize),
    Pass(u64),
    LogStarts(i64),
    Restart,
}

const MEMBERS: [&str; 3] = ["a", "b", "c"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0usize..3, 1i64..12, any::<bool>()).prop_map(|(m, n, l)| Step::Acquire(m, n, l)),
        8 => (0usize..3, 0i64..40, prop::collection::vec(0u8..5, 1..10))
            .prop_map(|(m, at, types)| Step::Acknowledge(m, at, types)),
        1 => (0usize..3).prop_map(Step::Release),
        3 => (1u64..8).prop_map(Step::Pass),
        1 => (0i64..4).prop_map(Step::LogStarts),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..120)
}

/// Batches of 1 to 5 offsets, some of which nobody can see, with holes.
fn log() -> Vec<FetchedBatch> {
    let mut log = Vec::new();
    let mut next = 0;
    for n in 0..60i64 {
        let first = next + i64::from(n % 7 == 3);
        let last = first + n * 5 % 4;
        log.push(FetchedBatch {
            visible: n % 6 != 5,
            ..batch(first, last)
        });
        next = last + 1;
    }
    log
}

proptest! {
    #[test]
    fn ranges_and_single_records_agree(steps in steps()) {
        let log = log();
        let limits = limits();
        let mut now = SECOND;
        let mut partition = begun(0);
        let mut model = Model::default();
        // What the coordinator keeps.
        let mut stored: BTreeMap<i64, StateBatch> = BTreeMap::new();
        let mut stored_start = 0;
        for step in steps {
            let mut update = None;
            match step {
                Step::Acquire(member, max, by_record) => {
                    let Some(from) = partition.next_fetch(&limits) else { continue };
                    let mode = match by_record {
                        true => AcquireMode::RecordLimit,
                        false => AcquireMode::BatchOptimized,
                    };
                    let near: Vec<FetchedBatch> =
                        log.iter().filter(|b| b.last >= from).take(6).cloned().collect();
                    let member = MEMBERS[member];
                    let acquired =
                        partition.acquire(&ask(member, max, mode), from, &near, now, &limits);
                    let mut total = 0;
                    let until = now + limits.lock_duration;
                    while model.end() < partition.end().0 {
                        model.records.push(Single::Available(0));
                    }
                    for range in &acquired {
                        for at in range.first.0..=range.last.0 {
                            total += 1;
                            let place = &mut model.records[(at - model.start) as usize];
                            prop_assert_eq!(&*place, &Single::Available(range.delivery_count - 1));
                            prop_assert!(!model.accepted.contains(&at), "it was accepted");
                            let of = log.iter().find(|b| b.first.0 <= at && at <= b.last.0);
                            prop_assert!(of.is_some_and(|b| b.visible), "nobody can see {}", at);
                            *place = Single::Acquired(member, until, range.delivery_count);
                        }
                    }
                    if by_record {
                        prop_assert!(total <= max);
                    }
                    // Offsets without records that were passed.
                    for at in from.0..partition.end().0 {
                        let of = log.iter().find(|b| b.first.0 <= at && at <= b.last.0);
                        if at >= model.start
                            && of.is_none_or(|b| !b.visible)
                            && acquired.last().is_some_and(|a| at <= a.last.0)
                        {
                            model.records[(at - model.start) as usize] = Single::Complete;
                        }
                    }
                    // What was passed behind the last range given out is what the machine says.
                    for (first, last, record) in partition.records.iter() {
                        for at in first.max(model.start)..=last {
                            let of = log.iter().find(|b| b.first.0 <= at && at <= b.last.0);
                            if record.is_complete() && of.is_none_or(|b| !b.visible) {
                                model.records[(at - model.start) as usize] = Single::Complete;
                            }
                        }
                    }
                    while model.start < partition.start().0 {
                        let at = model.start;
                        let of = log.iter().find(|b| b.first.0 <= at && at <= b.last.0);
                        prop_assert!(
                            model.records.remove(0) == Single::Complete
                                || of.is_none_or(|b| !b.visible)
                        );
                        model.start += 1;
                    }
                }
                Step::Acknowledge(member, at, types) => {
                    let member = MEMBERS[member];
                    let first = model.start - 3 + at;
                    let last = first + types.len() as i64 - 1;
                    let kinds: Vec<Acknowledge> = types
                        .iter()
                        .filter_map(|t| Acknowledge::from_number(*t as i8))
                        .collect();
                    let mine = |at: i64| {
                        let place = usize::try_from(at - model.start).ok();
                        matches!(
                            place.and_then(|p| model.records.get(p)),
                            Some(Single::Acquired(by, ..)) if *by == member
                        )
                    };
                    let allowed = (first..=last).all(|at| at < model.start || mine(at));
                    let answer =
                        tell(&mut partition, member, &say(first, last, &kinds), now);
                    match answer {
                        Err(ErrorCode::INVALID_REQUEST) => {
                            prop_assert!(first < 0 || last >= model.end());
                        }
                        Err(_) => prop_assert!(!allowed),
                        Ok(kept) => {
                            prop_assert!(allowed);
                            update = kept;
                            for (at, kind) in (first..).zip(kinds) {
                                if at < model.start {
                                    continue;
                                }
                                let place = &mut model.records[(at - model.start) as usize];
                                let Single::Acquired(_, until, count) = place.clone() else {
                                    continue;
                                };
                                *place = match kind {
                                    Acknowledge::Accept => {
                                        model.accepted.insert(at);
                                        Single::Complete
                                    }
                                    Acknowledge::Gap | Acknowledge::Reject => Single::Complete,
                                    Acknowledge::Release | Acknowledge::ReleaseAfter(_) => {
                                        Model::back(count)
                                    }
                                    Acknowledge::Renew => Single::Acquired(
                                        member,
                                        until.max(now + limits.lock_duration),
                                        count,
                                    ),
                                };
                            }
                        }
                    }
                }
                Step::Release(member) => {
                    partition.release(MEMBERS[member], now, &limits);
                    update = partition.take_update(NOW);
                    for place in &mut model.records {
                        if let Single::Acquired(by, _, count) = *place
                            && by == MEMBERS[member]
                        {
                            *place = Model::back(count);
                        }
                    }
                }
                Step::Pass(seconds) => {
                    now += SECOND * seconds as u32;
                    partition.expire(now, &limits);
                    update = partition.take_update(NOW);
                    for place in &mut model.records {
                        if let Single::Acquired(_, until, count) = *place
                            && until <= now
                        {
                            *place = Model::back(count);
                        }
                    }
                }
                Step::LogStarts(more) => {
                    let start = model.start + more;
                    partition.log_starts_at(Offset(start));
                    update = partition.take_update(NOW);
                    while model.start < start {
                        if !model.records.is_empty() {
                            model.records.remove(0);
                        }
                        model.start += 1;
                    }
                }
                Step::Restart => {
                    let batches: Vec<StateBatch> = stored.values().copied().collect();
                    partition =
                        SharePartition::restored(Offset(stored_start), &batches, NOW, &limits);
                    // Nothing that was told is lost, and nothing accepted is offered.
                    prop_assert!(partition.start().0 <= model.start);
                    for (first, last, record) in partition.records.iter() {
                        for at in first..=last {
                            prop_assert_eq!(
                                record.is_complete() || at < model.start
                                    || !model.accepted.contains(&at),
                                true
                            );
                        }
                    }
                    model.start = partition.start().0;
                    model.records.clear();
                    for (first, last, record) in partition.records.iter() {
                        for _ in first..=last {
                            model.records.push(match record.is_complete() {
                                true => Single::Complete,
                                false => Single::Available(record.count),
                            });
                        }
                    }
                }
            }
            model.settle();
            if let Some(update) = update {
                stored_start = update.start.0;
                stored.retain(|at, _| *at >= stored_start);
                for b in update.batches {
                    for at in b.first.0..=b.last.0 {
                        let one = StateBatch { first: Offset(at), last: Offset(at), ..b };
                        stored.insert(at, one);
                    }
                }
                let complete = model.records.iter().filter(|r| **r == Single::Complete).count();
                prop_assert_eq!(update.complete as usize, complete);
            }
            // Both say the same.
            prop_assert_eq!(partition.start().0, model.start);
            prop_assert_eq!(partition.end().0, model.end());
            let mut flat = Vec::new();
            for (first, last, record) in partition.records.iter() {
                for _ in first..=last {
                    flat.push(match &record.state {
                        State::Available => Single::Available(record.count),
                        State::Acquired { member, until } => {
                            let by = MEMBERS.iter().find(|m| ***m == **member).unwrap();
                            Single::Acquired(by, *until, record.count)
                        }
                        _ => Single::Complete,
                    });
                }
            }
            prop_assert_eq!(&flat, &model.records);
            let available = flat.iter().filter(|r| matches!(r, Single::Available(_))).count();
            prop_assert_eq!(partition.available as usize, available);
            let earliest = flat.iter().filter_map(|r| match r {
                Single::Acquired(_, until, _) => Some(*until),
                _ => None,
            });
            prop_assert_eq!(partition.next_deadline(), earliest.min());
        }
    }
}
