//! Who is gone by what was seen of the way to it.

use std::time::Duration;

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Three nodes that are let in.
fn three() -> World {
    let mut world = World::empty();
    for (id, life) in [(1, 101), (2, 102), (3, 103)] {
        world.starts(id, life);
    }
    world
}

/// What was seen of node 2, and whether it counted as gone then.
fn sees(departures: &mut Departures, world: &World, seen: &[(u64, Way)]) -> Vec<bool> {
    let each = seen.iter();
    each.map(|(at, way)| departures.seen(BrokerId(2), *way, &world.image, ms(*at)))
        .collect()
}

fn fenced(departures: &Departures, world: &World) -> String {
    format!("{:?}", departures.to_fence(&world.image))
}

#[test]
fn whose_connection_ended_and_who_was_refused_twice_is_gone_once() {
    let mut world = three();
    let mut departures = Departures::default();
    let seen = [
        (0, Way::Stands),
        (100, Way::Ended),
        (110, Way::Refused),
        (115, Way::Refused),
        (160, Way::Refused),
        (300, Way::Refused),
    ];
    let gone = sees(&mut departures, &world, &seen);
    assert_eq!(gone, [false, false, false, false, true, false]);
    let want = format!("{:?}", [world.fence(2)]);
    assert_eq!(fenced(&departures, &world), want);
    // A controller that comes later sees the same, until it is done.
    let fence = world.fence(2);
    world.apply(&fence);
    assert_eq!(fenced(&departures, &world), "[]");
    // Its next life is another one.
    world.starts(2, 200);
    assert_eq!(fenced(&departures, &world), "[]");
    let again = [
        (900, Way::Stands),
        (950, Way::Ended),
        (960, Way::Refused),
        (1_000, Way::Refused),
    ];
    assert_eq!(
        sees(&mut departures, &world, &again),
        [false, false, false, true]
    );
    assert_eq!(
        fenced(&departures, &world),
        format!("{:?}", [world.fence(2)])
    );
}

#[test]
fn refusals_alone_an_end_alone_and_a_node_that_is_heard_are_nothing() {
    let world = three();
    // A node that was never there.
    let mut departures = Departures::default();
    let never = [(0, Way::Refused), (100, Way::Refused), (900, Way::Ended)];
    assert_eq!(sees(&mut departures, &world, &never), [false; 3]);
    // One that is connected again in time.
    let blip = [
        (1_000, Way::Stands),
        (1_100, Way::Ended),
        (1_120, Way::Refused),
        (1_130, Way::Stands),
        (1_200, Way::Refused),
    ];
    assert_eq!(sees(&mut departures, &world, &blip), [false; 5]);
    assert!(!departures.has_doubts());
    // One that says something between two refusals.
    assert_eq!(
        sees(
            &mut departures,
            &world,
            &[(2_000, Way::Ended), (2_010, Way::Refused)]
        ),
        [false; 2]
    );
    assert!(departures.has_doubts());
    departures.heard(BrokerId(2));
    assert_eq!(
        sees(&mut departures, &world, &[(2_060, Way::Refused)]),
        [false]
    );
    assert_eq!(
        sees(&mut departures, &world, &[(2_110, Way::Refused)]),
        [true]
    );
    // It lives: whatever refuses in its name, it isn't taken for gone again before it was connected.
    departures.heard(BrokerId(2));
    assert!(!departures.has_doubts());
    assert_eq!(fenced(&departures, &world), "[]");
    let on = [
        (3_000, Way::Refused),
        (4_000, Way::Refused),
        (4_100, Way::Ended),
    ];
    assert_eq!(sees(&mut departures, &world, &on), [false; 3]);
    // A node that nobody knows has nothing to lose.
    let mut departures = Departures::default();
    for way in [Way::Stands, Way::Ended, Way::Refused] {
        departures.seen(BrokerId(9), way, &world.image, ms(0));
    }
    assert!(!departures.seen(BrokerId(9), Way::Refused, &world.image, ms(500)));
}
