//! By way of whom nodes that don't hear each other talk.

use std::time::Duration;

use super::*;

const ME: BrokerId = BrokerId(1);
const OTHER: BrokerId = BrokerId(2);
const CONTROLLER: BrokerId = BrokerId(3);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn three() -> World {
    let mut world = World::empty();
    for (id, life) in [(1, 101), (2, 102), (3, 103)] {
        world.starts(id, life);
    }
    world
}

fn way(detours: &Detours, to: BrokerId, what: Roundabout, at: u64) -> Option<BrokerId> {
    detours.way_round(ME, to, what, Some(CONTROLLER), ms(at))
}

#[test]
fn what_a_node_is_asked_goes_round_for_a_while_after_it_has_not_answered() {
    let world = three();
    let mut detours = Detours::default();
    assert_eq!(way(&detours, OTHER, Roundabout::Question, 0), None);
    detours.unanswered(OTHER, &world.image, ms(1_000));
    let (asked, answered) = (Roundabout::Question, Roundabout::Answer);
    assert_eq!(way(&detours, OTHER, asked, 1_000), Some(CONTROLLER));
    assert_eq!(way(&detours, OTHER, asked, 10_999), Some(CONTROLLER));
    assert_eq!(way(&detours, OTHER, asked, 11_000), None);
    // It has asked nothing that way.
    assert_eq!(way(&detours, OTHER, answered, 1_000), None);
}

#[test]
fn who_asks_round_is_answered_round_and_not_asked_so() {
    let world = three();
    let mut detours = Detours::default();
    detours.asked_round(OTHER, &world.image, ms(0));
    let (asked, answered) = (Roundabout::Question, Roundabout::Answer);
    assert_eq!(way(&detours, OTHER, answered, 9_999), Some(CONTROLLER));
    assert_eq!(way(&detours, OTHER, answered, 10_000), None);
    // Two nodes that ask each other would keep each other at it for ever.
    assert_eq!(way(&detours, OTHER, asked, 0), None);
}

#[test]
fn nothing_goes_round_by_the_two_themselves_or_by_nobody() {
    let world = three();
    let mut detours = Detours::default();
    detours.unanswered(OTHER, &world.image, ms(0));
    for controller in [None, Some(ME), Some(OTHER)] {
        let what = Roundabout::Question;
        assert_eq!(detours.way_round(ME, OTHER, what, controller, ms(1)), None);
    }
}

#[test]
fn only_members_are_remembered() {
    let world = three();
    let mut detours = Detours::default();
    for stranger in 4..1_000 {
        detours.unanswered(BrokerId(stranger), &world.image, ms(0));
        detours.asked_round(BrokerId(stranger), &world.image, ms(0));
    }
    let what = Roundabout::Question;
    assert_eq!(way(&detours, BrokerId(4), what, 1), None);
    assert_eq!(format!("{detours:?}"), format!("{:?}", Detours::default()));
}

#[test]
fn three_different_members_take_part() {
    let world = three();
    let may = |from: i32, by: i32, to: i32| {
        Detours::may_pass(BrokerId(from), BrokerId(by), BrokerId(to), &world.image)
    };
    assert!(may(1, 3, 2));
    assert!(!may(1, 1, 2));
    assert!(!may(1, 2, 2));
    assert!(!may(1, 3, 1));
    assert!(!may(4, 3, 2));
    assert!(!may(1, 4, 2));
    assert!(!may(1, 3, 4));
}
