//! Who was fenced a moment ago.

use std::time::Duration;

use super::*;

#[test]
fn it_counts_from_the_first_image_that_has_a_node_fenced() {
    const SESSION: Duration = Duration::from_secs(9);
    let mut world = World::empty();
    for (id, life) in [(1, 101), (2, 102)] {
        world.starts(id, life);
    }
    let mut lately = FencedLately::default();
    let lists = |lately: &FencedLately, second| {
        let now = Duration::from_secs(second);
        assert!(!lately.contains(BrokerId(1), SESSION, now));
        lately.contains(BrokerId(2), SESSION, now)
    };
    let applied = |lately: &mut FencedLately, world: &World, second| {
        lately.applied(&world.image, Duration::from_secs(second));
    };
    applied(&mut lately, &world, 10);
    assert!(!lists(&lately, 10));
    let fence = world.fence(2);
    world.apply(&fence);
    applied(&mut lately, &world, 11);
    applied(&mut lately, &world, 15);
    assert!(lists(&lately, 19));
    assert!(!lists(&lately, 20));
    // Its next life.
    world.starts(2, 200);
    applied(&mut lately, &world, 21);
    assert!(!lists(&lately, 21));
    let fence = world.fence(2);
    world.apply(&fence);
    applied(&mut lately, &world, 22);
    assert!(lists(&lately, 30));
}
