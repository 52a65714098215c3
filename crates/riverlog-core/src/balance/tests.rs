use std::fmt::Write;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

/// `1 2@a 3-`: ids, racks, and a dash for those that take nothing.
fn places(text: &str) -> Vec<Place> {
    let place = |word: &str| {
        let (word, takes) = match word.strip_suffix('-') {
            Some(word) => (word, false),
            None => (word, true),
        };
        let (id, rack) = match word.split_once('@') {
            Some((id, rack)) => (id, Some(rack.to_owned())),
            None => (word, None),
        };
        Place {
            id: BrokerId(id.parse().unwrap()),
            rack,
            takes,
        }
    };
    text.split_whitespace().map(place).collect()
}

/// `t 1,2,3 2,3,1`: a topic, and the copies of its partitions.
fn copies(text: &str) -> Vec<Copies> {
    let mut all = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (topic, partitions) = line.split_once(' ').unwrap();
        for (index, replicas) in (0..).zip(partitions.split_whitespace()) {
            all.push(Copies {
                topic: topic.to_owned(),
                index,
                replicas: replicas
                    .split(',')
                    .map(|id| BrokerId(id.parse().unwrap()))
                    .collect(),
            });
        }
    }
    all
}

fn shown(moves: &[Move]) -> String {
    let ids = |ids: &[BrokerId]| {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        ids.join(",")
    };
    let mut text = String::new();
    for m in moves {
        writeln!(
            text,
            "{}-{} {} to {}",
            m.topic,
            m.index,
            ids(&m.from),
            ids(&m.to)
        )
        .unwrap();
    }
    text
}

fn check(nodes: &str, topics: &str, want: Expect) {
    want.assert_eq(&shown(&rebalance(&places(nodes), &copies(topics))));
}

#[test]
fn a_new_node_takes_its_share_and_nothing_else_moves() {
    check(
        "1 2 3 4",
        "
            t 1,2,3 2,3,1 3,1,2 1,3,2
            u 2,1,3 3,2,1 1,2,3 2,3,1
        ",
        expect![[r#"
            t-0 1,2,3 to 4,2,1
            t-1 2,3,1 to 4,3,2
            t-2 3,1,2 to 3,1,4
            u-0 2,1,3 to 2,4,3
            u-1 3,2,1 to 3,4,1
            u-2 1,2,3 to 1,2,4
        "#]],
    );
}

#[test]
fn what_is_even_stays() {
    check("1 2 3", "t 1,2,3 2,3,1 3,1,2", expect![[""]]);
    check("1 2", "t 1 2\nu 1", expect![[""]]);
    check("1", "t 1 1 1", expect![[""]]);
}

#[test]
fn leaderships_are_spread_without_copying() {
    check(
        "1 2 3",
        "t 1,2,3 1,2,3 1,2,3",
        expect![[r#"
        t-0 1,2,3 to 2,1,3
        t-1 1,2,3 to 3,2,1
    "#]],
    );
}

#[test]
fn copies_go_to_racks_that_have_none() {
    check(
        "1@a 2@a 3@b 4@b",
        "t 1,2 2,1 3,4 4,3",
        expect![[r#"
        t-0 1,2 to 3,2
        t-1 2,1 to 4,1
        t-2 3,4 to 1,4
        t-3 4,3 to 2,3
    "#]],
    );
    // A rack with fewer nodes has more on each of them rather than two of one partition in another.
    check("1@a 2@b 3@b", "t 1,2 2,1 1,3 3,1", expect![[""]]);
}

#[test]
fn nothing_goes_to_or_from_a_node_that_is_down() {
    check(
        "1 2 3- 4",
        "t 1,2,3 2,3,1 3,1,2 1,2,3",
        expect![[r#"
        t-0 1,2,3 to 4,1,3
        t-1 2,3,1 to 2,3,4
    "#]],
    );
}

#[test]
fn a_node_is_emptied() {
    let nodes = places("1@a 2@b 3@c 4@c 5@a");
    let topics = copies("t 1,2,3 3,1,2 2,3,1 3,2,5");
    let moves = drain(&nodes, &topics, BrokerId(3), false).unwrap();
    expect![[r#"
        t-0 1,2,3 to 1,2,4
        t-1 3,1,2 to 4,1,2
        t-2 2,3,1 to 2,4,1
        t-3 3,2,5 to 5,2,4
    "#]]
    .assert_eq(&shown(&moves));
}

#[test]
fn a_node_whose_copies_nobody_can_take_isnt_emptied_unless_fewer_are_enough() {
    let nodes = places("1 2 3");
    let topics = copies("t 1,2,3 2,3\nu 3");
    let stuck = drain(&nodes, &topics, BrokerId(3), false).unwrap_err();
    assert_eq!(stuck, [("t".to_owned(), 0)]);
    let moves = drain(&nodes, &topics, BrokerId(3), true).unwrap();
    expect![[r#"
        t-0 1,2,3 to 1,2
        t-1 2,3 to 2,1
        u-0 3 to 1
    "#]]
    .assert_eq(&shown(&moves));
    let alone = drain(&places("3"), &copies("u 3"), BrokerId(3), true);
    assert_eq!(alone, Err(vec![("u".to_owned(), 0)]));
}

/// Nodes with or without racks, and partitions with as many copies as there are nodes at most.
fn clusters() -> impl Strategy<Value = (Vec<Place>, Vec<Copies>)> {
    let racks = prop_oneof![Just(0_usize), Just(2), Just(3)];
    (2..7_usize, racks).prop_flat_map(|(n, racks)| {
        let places: Vec<Place> = (1..=n)
            .map(|id| Place {
                id: BrokerId(id as i32),
                rack: (racks > 0).then(|| (id % racks).to_string()),
                takes: true,
            })
            .collect();
        let ids: Vec<i32> = (1..=n as i32).collect();
        let replicas = (1..=n.min(3), Just(ids).prop_shuffle()).prop_map(|(count, ids)| {
            let chosen = ids.into_iter().take(count);
            chosen.map(BrokerId).collect::<Vec<_>>()
        });
        let copies = proptest::collection::vec((0..3_usize, replicas), 0..25).prop_map(|all| {
            (0..)
                .zip(all)
                .map(|(index, (topic, replicas))| Copies {
                    topic: format!("t{topic}"),
                    index,
                    replicas,
                })
                .collect()
        });
        (Just(places), copies)
    })
}

fn after(copies: &[Copies], moves: &[Move]) -> Vec<Copies> {
    let mut after = copies.to_vec();
    for m in moves {
        let of = after
            .iter_mut()
            .find(|c| (&c.topic, c.index) == (&m.topic, m.index));
        let of = of.unwrap();
        assert_eq!(of.replicas, m.from);
        of.replicas.clone_from(&m.to);
    }
    after
}

fn counts(places: &[Place], copies: &[Copies], first: bool) -> Vec<usize> {
    let of = |node: BrokerId| {
        let replicas = copies.iter().flat_map(|c| match first {
            true => &c.replicas[..1],
            false => &c.replicas[..],
        });
        replicas.filter(|b| **b == node).count()
    };
    places.iter().map(|p| of(p.id)).collect()
}

fn racks(places: &[Place], replicas: &[BrokerId]) -> usize {
    let rack = |id: &BrokerId| places.iter().find(|p| p.id == *id).map(|p| &p.rack);
    replicas.iter().map(rack).collect::<BTreeSet<_>>().len()
}

proptest! {
    #[test]
    fn a_plan_evens_out_with_as_few_copies_as_can_be((places, copies) in clusters()) {
        let moves = rebalance(&places, &copies);
        let after = after(&copies, &moves);
        for (before, after) in copies.iter().zip(&after) {
            let distinct: BTreeSet<_> = after.replicas.iter().collect();
            prop_assert_eq!(distinct.len(), before.replicas.len());
            prop_assert!(racks(&places, &after.replicas) >= racks(&places, &before.replicas));
            let most = racks(&places, &places.iter().map(|p| p.id).collect::<Vec<_>>());
            prop_assert_eq!(racks(&places, &after.replicas), most.min(before.replicas.len()));
        }
        // Done once, there is nothing left to do.
        prop_assert_eq!(rebalance(&places, &after), vec![]);
        if places[0].rack.is_some() {
            return Ok(());
        }
        let held = counts(&places, &after, false);
        prop_assert!(held.iter().max().unwrap() - held.iter().min().unwrap() <= 1);
        let mut before = counts(&places, &copies, false);
        before.sort_unstable_by(|a, b| b.cmp(a));
        let total: usize = before.iter().sum();
        let share = |at: usize| total / places.len() + usize::from(at < total % places.len());
        let least: usize = before.iter().enumerate().map(|(at, n)| n.saturating_sub(share(at))).sum();
        let copied: usize = moves.iter().map(|m| m.to.iter().filter(|b| !m.from.contains(b)).count()).sum();
        prop_assert_eq!(copied, least);
    }

    #[test]
    fn a_drained_node_has_nothing((places, copies) in clusters()) {
        let node = places[0].id;
        if let Ok(moves) = drain(&places, &copies, node, true) {
            for (before, after) in copies.iter().zip(after(&copies, &moves)) {
                prop_assert!(!after.replicas.contains(&node));
                let fewer = before.replicas.len() - after.replicas.len();
                prop_assert!(fewer == 0 || (fewer == 1 && before.replicas.len() == places.len()));
                prop_assert_eq!(before.replicas.contains(&node), before.replicas != after.replicas);
            }
        }
    }
}
