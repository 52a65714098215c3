//! Groups of the consumer protocol and of Kafka Streams on a cluster whose nodes are killed; share groups are in `share`.

use std::collections::BTreeMap;

use crate::common::eventually;
use crate::members::{Kind, Member, committed, coordinator, settle};
use crate::share::id_of;
use crate::trio::{Trio, create};

const OFFSETS: &str = "__consumer_offsets";

/// Members of a kind work while one coordinator after the other is killed: nobody moves because of it, and what is committed stays.
fn goes_on(kind: impl Fn(&Trio) -> Kind, group: &str, parts: usize) {
    let mut trio = Trio::form();
    create(trio.up()[0], "t", "3");
    trio.in_sync("t");
    let kind = kind(&trio);
    let places = trio.places.clone();
    let member = |id: &str| Member::new(&kind, group, id, "t");
    let mut members = vec![member("a"), member("b")];
    settle(&places, &mut members, parts);
    let commit_all = |members: &[Member], offset: i64| {
        for member in members {
            assert!(eventually(|| member.commit(&places, offset)));
        }
        let expected: BTreeMap<i32, i64> = (0..3).map(|p| (p, offset)).collect();
        assert_eq!(committed(&places, group), expected);
    };
    commit_all(&members, 10);

    let kill_coordinator = |trio: &mut Trio| {
        trio.in_sync(OFFSETS);
        let mut found = None;
        assert!(eventually(|| {
            found = coordinator(&places, group);
            found.is_some()
        }));
        let (id, _) = found.unwrap();
        trio.kill(id);
        id
    };
    let before: Vec<_> = members.iter().map(|m| (m.epoch, m.has.clone())).collect();
    let dead = kill_coordinator(&mut trio);
    settle(&places, &mut members, parts);
    let after: Vec<_> = members.iter().map(|m| (m.epoch, m.has.clone())).collect();
    assert_eq!(after, before);
    assert_eq!(committed(&places, group)[&2], 10);
    commit_all(&members, 20);
    trio.start(dead);

    // Another one comes, and the coordinator goes when others have been told to give back, and have not done so.
    members.push(member("c"));
    assert!(eventually(|| members[2].beat(&places).is_ok()));
    for member in &mut members[..2] {
        let kept = member.has.clone();
        assert!(eventually(|| member.beat(&places).is_ok()));
        member.has = kept;
    }
    let dead = kill_coordinator(&mut trio);
    settle(&places, &mut members, parts);
    assert!(members.iter().all(|m| !m.has.is_empty()));
    assert_eq!(committed(&places, group)[&2], 20);
    commit_all(&members, 30);
    trio.start(dead);

    trio.in_sync(OFFSETS);
    trio.kill_all();
    for id in 1..=3 {
        trio.start(id);
    }
    settle(&places, &mut members, parts);
    assert_eq!(committed(&places, group)[&2], 30);
    commit_all(&members, 40);
}

#[test]
fn a_group_of_the_consumer_protocol_keeps_what_it_has_whoever_is_killed() {
    goes_on(
        |trio| Kind::Consumer(id_of(&trio.places[0], "t")),
        "readers",
        3,
    );
}

#[test]
fn a_streams_group_keeps_what_it_has_whoever_is_killed() {
    goes_on(|_| Kind::Streams, "words", 6);
}
