use proptest::prelude::*;

use super::*;

fn topic(n: u8, partitions: i32) -> Topic {
    Topic {
        id: TopicId([n; 16]),
        partitions,
    }
}

fn moved(before: &[BTreeSet<Part>], after: &[BTreeSet<Part>]) -> usize {
    before
        .iter()
        .zip(after)
        .map(|(b, a)| b.difference(a).count())
        .sum()
}

/// Each partition of a subscribed topic is held once, by a subscriber.
fn check_complete(topics: &[Topic], members: &[Subscriber<'_>], assigned: &[BTreeSet<Part>]) {
    for (t, topic) in topics.iter().enumerate() {
        let wanted = members.iter().any(|m| m.topics.contains(&t));
        for p in 0..topic.partitions {
            let holders: Vec<usize> = (0..members.len())
                .filter(|m| assigned[*m].contains(&(topic.id, p)))
                .collect();
            assert_eq!(
                holders.len(),
                usize::from(wanted),
                "{topic:?} {p}: {holders:?}"
            );
            assert!(holders.iter().all(|m| members[*m].topics.contains(&t)));
        }
    }
    let all: usize = assigned.iter().map(BTreeSet::len).sum();
    let wanted: i32 = topics
        .iter()
        .enumerate()
        .filter(|(t, _)| members.iter().any(|m| m.topics.contains(t)))
        .map(|(_, topic)| topic.partitions)
        .sum();
    assert_eq!(all, wanted as usize);
}

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn everyone<'a>(
    count: usize,
    topics: &[Topic],
    current: &'a [BTreeSet<Part>],
) -> Vec<Subscriber<'a>> {
    (0..count)
        .map(|m| Subscriber {
            rank: (false, NAMES[m]),
            topics: (0..topics.len()).collect(),
            current: current.get(m),
        })
        .collect()
}

#[test]
fn an_eleventh_member_moves_only_its_share() {
    let topics = [topic(1, 100)];
    let first: Vec<Subscriber<'_>> = (0..10)
        .map(|_| Subscriber {
            rank: (false, ""),
            topics: vec![0],
            current: None,
        })
        .collect();
    let before = Assignor::Uniform.assign(&topics, &first);
    assert!(before.iter().all(|p| p.len() == 10));
    let eleven: Vec<Subscriber<'_>> = (0..11)
        .map(|m| Subscriber {
            rank: (false, ""),
            topics: vec![0],
            current: before.get(m),
        })
        .collect();
    let after = Assignor::Uniform.assign(&topics, &eleven);
    assert_eq!(after[10].len(), 9);
    assert_eq!(moved(&before, &after), 9);
}

#[test]
fn range_keeps_neighbours_and_equal_numbers_together() {
    let topics = [topic(1, 5), topic(2, 5)];
    let assigned = Assignor::Range.assign(&topics, &everyone(2, &topics, &[]));
    let numbers =
        |m: usize| -> Vec<(u8, i32)> { assigned[m].iter().map(|(t, p)| (t.0[0], *p)).collect() };
    assert_eq!(numbers(0), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
    assert_eq!(numbers(1), [(1, 3), (1, 4), (2, 3), (2, 4)]);
}

#[test]
fn a_load_passes_through_a_member_in_between() {
    // c takes only topic 2, a only topic 1, b both: a's surplus reaches c through b.
    let topics = [topic(1, 4), topic(2, 2)];
    let before: Vec<BTreeSet<Part>> = vec![
        (0..4).map(|p| (topics[0].id, p)).collect(),
        (0..2).map(|p| (topics[1].id, p)).collect(),
        BTreeSet::new(),
    ];
    let members: Vec<Subscriber<'_>> = [vec![0], vec![0, 1], vec![1]]
        .into_iter()
        .enumerate()
        .map(|(m, topics)| Subscriber {
            rank: (false, NAMES[m]),
            topics,
            current: before.get(m),
        })
        .collect();
    let after = Assignor::Uniform.assign(&topics, &members);
    check_complete(&topics, &members, &after);
    let loads: Vec<usize> = after.iter().map(BTreeSet::len).collect();
    assert_eq!(loads, [2, 2, 2]);
}

proptest! {
    #[test]
    fn equal_subscriptions_end_even_and_move_the_least(
        counts in proptest::collection::vec(0..12_i32, 1..4),
        (count, owners) in (1..8_usize).prop_flat_map(|m| (Just(m), proptest::collection::vec(0..=m, 48))),
    ) {
        let topics: Vec<Topic> = counts.iter().enumerate().map(|(t, c)| topic(t as u8 + 1, *c)).collect();
        // Owner `count` is a member that left.
        let mut before = vec![BTreeSet::new(); count];
        let parts = topics.iter().flat_map(|t| (0..t.partitions).map(|p| (t.id, p)));
        for (part, owner) in parts.zip(&owners) {
            if *owner < count {
                before[*owner].insert(part);
            }
        }
        let members = everyone(count, &topics, &before);
        let after = Assignor::Uniform.assign(&topics, &members);
        check_complete(&topics, &members, &after);
        let total: usize = after.iter().map(BTreeSet::len).sum();
        let (each, more) = (total / count, total % count);
        let mut loads: Vec<usize> = before.iter().map(BTreeSet::len).collect();
        prop_assert!(after.iter().all(|a| a.len() == each || a.len() == each + 1));
        // The least that must move: what is above the fair share, where the `more` fullest may keep one more.
        loads.sort_unstable_by(|a, b| b.cmp(a));
        let least: usize = loads
            .iter()
            .enumerate()
            .map(|(i, load)| load.saturating_sub(each + usize::from(i < more)))
            .sum();
        prop_assert_eq!(moved(&before, &after), least);
        // And again: nothing moves.
        let again = Assignor::Uniform.assign(&topics, &everyone(count, &topics, &after));
        prop_assert_eq!(again, after);
    }

    #[test]
    fn mixed_subscriptions_end_as_even_as_they_can(
        counts in proptest::collection::vec(0..6_i32, 1..4),
        wants in proptest::collection::vec(proptest::collection::btree_set(0..4_usize, 0..4), 1..6),
        owners in proptest::collection::vec(0..6_usize, 24),
    ) {
        let topics: Vec<Topic> = counts.iter().enumerate().map(|(t, c)| topic(t as u8 + 1, *c)).collect();
        let mut before = vec![BTreeSet::new(); wants.len()];
        let parts = topics.iter().flat_map(|t| (0..t.partitions).map(|p| (t.id, p)));
        for (part, owner) in parts.zip(&owners) {
            if let Some(held) = before.get_mut(*owner) {
                held.insert(part);
            }
        }
        let members: Vec<Subscriber<'_>> = wants
            .iter()
            .enumerate()
            .map(|(m, topics_wanted)| Subscriber {
                rank: (false, NAMES[m]),
                topics: topics_wanted.iter().copied().filter(|t| *t < topics.len()).collect(),
                current: before.get(m),
            })
            .collect();
        for assignor in [Assignor::Uniform, Assignor::Range] {
            check_complete(&topics, &members, &assignor.assign(&topics, &members));
        }
        let after = Assignor::Uniform.assign(&topics, &members);
        // No direct move would even it out further.
        for (m, held) in after.iter().enumerate() {
            for (id, _) in held {
                let t = topics.iter().position(|t| t.id == *id).unwrap();
                for (other, member) in members.iter().enumerate() {
                    prop_assert!(!member.topics.contains(&t) || after[other].len() + 1 >= held.len(), "{} could give to {}", m, other);
                }
            }
        }
        let next: Vec<Subscriber<'_>> = members
            .iter()
            .zip(&after)
            .map(|(m, held)| Subscriber { current: Some(held), ..m.clone() })
            .collect();
        prop_assert_eq!(Assignor::Uniform.assign(&topics, &next), after);
    }
}
