//! How empty nodes become a cluster, and how others come to it.
//!
//! Every node is told the same addresses (the seeds), and says to every other what it is: its number, its disk, whether it is part
//! of a quorum. One node begins the cluster: of empty ones the one with the lowest number, once it has seen all seeds and all of
//! them are empty. A node that has data of its own begins at once with that, alone, and the others come to it. Whoever is
//! empty and sees one that is part of a quorum asks to be taken in.
//!
//! So there is one node that may begin, and it begins with a majority that hasn't voted for anything else; two clusters
//! can't come of one set of seeds. A seed with a disk that was emptied later finds the others as members and joins them.

use crate::raft::{DiskId, Member};

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Its number and address.
    pub member: Member,
    /// Its disk.
    pub disk: DiskId,
    /// Whether it is part of a quorum, or about to be one of its own data.
    pub formed: bool,
}

/// What an empty node should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Wait for others.
    Wait,
    /// Begin a cluster with these voters.
    Begin(Vec<(DiskId, Member)>),
    /// Ask these, one after the other, to be taken in.
    Join(Vec<Introduction>),
    /// Two seeds have the same number: neither may go on.
    SameNumber(Introduction, Introduction),
}

/// Decides for a node that isn't part of a quorum yet.
///
/// - `me`: this node.
/// - `seeds`: what answered at each address, this node's own included; `None` where nobody has yet.
pub fn decide(me: &Introduction, seeds: &[Option<Introduction>]) -> Decision {
    let mut seen: Vec<&Introduction> = seeds.iter().flatten().collect();
    seen.sort_by_key(|one| (one.member.broker, one.disk));
    // An address may be named twice, and two names may be one address.
    seen.dedup_by_key(|one| (one.member.broker, one.disk));
    let formed: Vec<Introduction> = seen
        .iter()
        .filter(|one| one.formed && one.disk != me.disk)
        .map(|one| (*one).clone())
        .collect();
    if !formed.is_empty() {
        return Decision::Join(formed);
    }
    for pair in seen.windows(2) {
        if let [a, b] = pair
            && a.member.broker == b.member.broker
        {
            return Decision::SameNumber((*a).clone(), (*b).clone());
        }
    }
    let all = seeds.iter().all(Option::is_some);
    let first = seen.first().is_some_and(|one| one.disk == me.disk);
    if !all || !first {
        return Decision::Wait;
    }
    let members = seen.iter().map(|one| (one.disk, one.member.clone()));
    Decision::Begin(members.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use riverlog_wire::BrokerId;

    fn node(broker: i32, disk: u64, formed: bool) -> Introduction {
        Introduction {
            member: Member {
                broker: BrokerId(broker),
                address: format!("n{broker}:9092"),
            },
            disk: DiskId(disk),
            formed,
        }
    }

    #[test]
    fn the_lowest_number_begins_once_all_are_seen() {
        let all = [node(1, 11, false), node(2, 22, false), node(3, 33, false)];
        let seen: Vec<_> = all.iter().cloned().map(Some).collect();
        let Decision::Begin(members) = decide(&all[0], &seen) else {
            panic!("the first begins");
        };
        assert_eq!(members.len(), 3);
        for other in &all[1..] {
            assert_eq!(decide(other, &seen), Decision::Wait);
        }
        for missing in 0..3 {
            let mut some = seen.clone();
            some[missing] = None;
            for one in &all {
                assert_eq!(decide(one, &some), Decision::Wait);
            }
        }
    }

    #[test]
    fn whoever_sees_a_member_joins_it_and_nobody_begins_twice() {
        let seen = [Some(node(1, 12, false)), Some(node(2, 22, true)), None];
        let me = node(1, 12, false);
        assert_eq!(decide(&me, &seen), Decision::Join(vec![node(2, 22, true)]));
    }

    #[test]
    fn one_number_twice_stops_both() {
        let seen = [Some(node(1, 11, false)), Some(node(1, 12, false))];
        assert!(matches!(
            decide(&node(1, 11, false), &seen),
            Decision::SameNumber(..)
        ));
    }

    #[test]
    fn an_address_named_twice_is_one_node() {
        let me = node(1, 11, false);
        let seen = [Some(me.clone()), Some(me.clone())];
        let Decision::Begin(members) = decide(&me, &seen) else {
            panic!("it begins alone");
        };
        assert_eq!(members.len(), 1);
    }
}
