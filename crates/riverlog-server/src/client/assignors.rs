//! The range and cooperative-sticky assignments of classic groups.

use std::collections::{BTreeMap, BTreeSet};

use riverlog_wire::consumer_protocol::{Assignment, Subscription};

/// Kafka's name of the assignor that gives neighbouring partitions, and takes all away first.
pub(crate) const RANGE: &str = "range";
/// Kafka's name of the assignor that moves only what must move.
pub(crate) const COOPERATIVE: &str = "cooperative-sticky";

/// Kafka's range assignor: of each topic, members in order of id get neighbouring partitions, the first ones one more.
/// `members`: id and topics; `partitions`: of each topic.
pub(crate) fn assign_range(
    members: &BTreeMap<String, Vec<String>>,
    partitions: &BTreeMap<String, i32>,
) -> BTreeMap<String, Assignment> {
    let mut out: BTreeMap<String, Assignment> = members
        .keys()
        .map(|m| (m.clone(), Assignment::new()))
        .collect();
    for (topic, count) in partitions {
        let interested: Vec<&String> = members
            .iter()
            .filter(|(_, topics)| topics.contains(topic))
            .map(|(m, _)| m)
            .collect();
        let Ok(among) = i32::try_from(interested.len()) else {
            continue;
        };
        if among == 0 {
            continue;
        }
        let (each, more) = (count / among, count % among);
        let mut next = 0;
        for (i, member) in (0..).zip(interested) {
            let len = each + i32::from(i < more);
            if len > 0
                && let Some(assignment) = out.get_mut(member)
            {
                assignment.insert(topic.clone(), (next..next + len).collect());
            }
            next += len;
        }
    }
    out
}

/// The cooperative-sticky assignment: everyone keeps what they have as far as that is fair, and what moves from one member to
/// another is left out this time: its owner sees that it is gone, gives it up and joins again, and then it is free.
pub(crate) fn assign_cooperative(
    members: &BTreeMap<String, Subscription>,
    partitions: &BTreeMap<String, i32>,
) -> BTreeMap<String, Assignment> {
    let all: BTreeSet<Place<'_>> = partitions
        .iter()
        .flat_map(|(topic, count)| (0..*count).map(|p| (topic.as_str(), p)))
        .collect();
    let owners = owners(members, &all);
    let mut given = Given::new(members);
    let mut free = Vec::new();
    for at in all {
        match owners.get(&at) {
            Some(owner) if given.wants(owner, at.0) => given.give(at, owner),
            _ => free.push(at),
        }
    }
    for at in free {
        if let Some((member, _)) = given.fewest(at.0) {
            given.give(at, member);
        }
    }
    // Each move makes the difference between two members smaller, so there is an end.
    while let Some((from, to, at)) = given.unfair() {
        given.take(at, from);
        given.give(at, to);
    }
    let mut out: BTreeMap<String, Assignment> = BTreeMap::new();
    for (member, has) in given.of {
        let assignment = out.entry(member.to_owned()).or_default();
        for at in has {
            if owners.get(&at).is_none_or(|owner| *owner == member) {
                assignment.entry(at.0.to_owned()).or_default().push(at.1);
            }
        }
    }
    out
}

/// A topic and one of its partitions.
type Place<'a> = (&'a str, i32);

/// What each member is to get.
struct Given<'a> {
    members: &'a BTreeMap<String, Subscription>,
    of: BTreeMap<&'a str, BTreeSet<Place<'a>>>,
}

impl<'a> Given<'a> {
    fn new(members: &'a BTreeMap<String, Subscription>) -> Given<'a> {
        let nothing = |member: &'a String| (member.as_str(), BTreeSet::new());
        Given {
            members,
            of: members.keys().map(nothing).collect(),
        }
    }

    fn wants(&self, member: &str, topic: &str) -> bool {
        let subscription = self.members.get(member);
        subscription.is_some_and(|s| s.topics.iter().any(|t| t == topic))
    }

    fn give(&mut self, at: Place<'a>, to: &str) {
        if let Some(has) = self.of.get_mut(to) {
            has.insert(at);
        }
    }

    fn take(&mut self, at: Place<'a>, from: &str) {
        if let Some(has) = self.of.get_mut(from) {
            has.remove(&at);
        }
    }

    /// Who has least of those who want a topic, and how much.
    fn fewest(&self, topic: &str) -> Option<(&'a str, usize)> {
        let able = self.of.iter().filter(|(m, _)| self.wants(m, topic));
        let (member, has) = able.min_by_key(|(member, has)| (has.len(), **member))?;
        Some((*member, has.len()))
    }

    /// A partition of a member that has at least two more than another who could have it: from, to, which.
    fn unfair(&self) -> Option<(&'a str, &'a str, Place<'a>)> {
        let mut richest: Vec<(&'a str, &BTreeSet<Place<'a>>)> =
            self.of.iter().map(|(member, has)| (*member, has)).collect();
        richest.sort_by_key(|(member, has)| (std::cmp::Reverse(has.len()), *member));
        for (from, has) in richest {
            // From the back, so that a member keeps the beginning of what it has.
            for at in has.iter().rev() {
                if let Some((to, count)) = self.fewest(at.0)
                    && has.len() > count + 1
                {
                    return Some((from, to, *at));
                }
            }
        }
        None
    }
}

/// Who has what: of two members that claim the same, the one that got it later; neither, if that can't be told.
fn owners<'a>(
    members: &'a BTreeMap<String, Subscription>,
    all: &BTreeSet<Place<'a>>,
) -> BTreeMap<Place<'a>, &'a str> {
    let mut claims: BTreeMap<Place<'a>, (i32, Option<&str>)> = BTreeMap::new();
    for (member, subscription) in members {
        for (topic, partitions) in &subscription.owned {
            for partition in partitions {
                let at = (topic.as_str(), *partition);
                if !all.contains(&at) {
                    continue;
                }
                let claim = (subscription.generation, Some(member.as_str()));
                claims
                    .entry(at)
                    .and_modify(|known| {
                        if claim.0 > known.0 {
                            *known = claim;
                        } else if claim.0 == known.0 {
                            known.1 = None;
                        }
                    })
                    .or_insert(claim);
            }
        }
    }
    claims
        .into_iter()
        .filter_map(|(at, (_, owner))| Some((at, owner?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_gives_neighbours_and_the_first_members_one_more() {
        let members = [("a", vec!["t", "u"]), ("b", vec!["t"]), ("c", vec!["t"])]
            .into_iter()
            .map(|(m, t)| (m.to_owned(), t.into_iter().map(str::to_owned).collect()))
            .collect();
        let partitions = [("t".to_owned(), 7), ("u".to_owned(), 2)].into();
        let out = assign_range(&members, &partitions);
        assert_eq!(out["a"]["t"], [0, 1, 2]);
        assert_eq!(out["a"]["u"], [0, 1]);
        assert_eq!(out["b"]["t"], [3, 4]);
        assert_eq!(out["c"]["t"], [5, 6]);
    }

    fn member(topics: &[&str], owned: &[(&str, &[i32])], generation: i32) -> Subscription {
        Subscription {
            topics: topics.iter().map(|t| (*t).to_owned()).collect(),
            owned: owned
                .iter()
                .map(|(t, p)| ((*t).to_owned(), p.to_vec()))
                .collect(),
            generation,
            rack: None,
        }
    }

    #[test]
    fn a_newcomer_gets_what_others_have_given_up_and_nothing_before() {
        let six: BTreeMap<String, i32> = [("t".to_owned(), 6)].into();
        let mut members: BTreeMap<String, Subscription> = [
            ("a".to_owned(), member(&["t"], &[("t", &[0, 1, 2])], 3)),
            ("b".to_owned(), member(&["t"], &[("t", &[3, 4, 5])], 3)),
            ("c".to_owned(), member(&["t"], &[], -1)),
        ]
        .into();
        let first = assign_cooperative(&members, &six);
        assert_eq!(first["a"]["t"], [0, 1]);
        assert_eq!(first["b"]["t"], [3, 4]);
        assert!(first["c"].is_empty());
        for (name, assignment) in first {
            let subscription = members.get_mut(&name).unwrap();
            (subscription.owned, subscription.generation) = (assignment, 4);
        }
        let second = assign_cooperative(&members, &six);
        assert_eq!(second["a"]["t"], [0, 1]);
        assert_eq!(second["b"]["t"], [3, 4]);
        assert_eq!(second["c"]["t"], [2, 5]);
    }

    #[test]
    fn claims_are_believed_by_their_generation() {
        let two: BTreeMap<String, i32> = [("t".to_owned(), 2)].into();
        let of = |a: Subscription, b: Subscription| {
            assign_cooperative(&[("a".to_owned(), a), ("b".to_owned(), b)].into(), &two)
        };
        // The older claim is void, and so is one to what isn't there or isn't wanted any more.
        let got = of(
            member(&["t"], &[("t", &[0, 1])], 2),
            member(&["t"], &[("t", &[1, 9])], 3),
        );
        assert_eq!(
            (got["a"]["t"].clone(), got["b"]["t"].clone()),
            (vec![0], vec![1])
        );
        let got = of(
            member(&["u"], &[("t", &[0, 1])], 2),
            member(&["t"], &[], -1),
        );
        // Still in the first member's hands.
        assert!(got["a"].is_empty() && got["b"].is_empty());
        let got = of(
            member(&["t"], &[("t", &[0])], 2),
            member(&["t"], &[("t", &[0])], 2),
        );
        assert_eq!(got["a"]["t"].len() + got["b"]["t"].len(), 2);
    }
}
