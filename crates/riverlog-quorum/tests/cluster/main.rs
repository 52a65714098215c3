//! Voters that elect, agree, are cut off, come back, and are replaced.

mod common;
mod life;
mod swarm;

use common::{Cluster, member, story};
use riverlog_log::disk::CrashDisk;
use riverlog_node::quorum::MetadataSnapshot;
use riverlog_quorum::{DiskId, Member, Quorum, QuorumError, QuorumSettings, Writes};
use riverlog_wire::{BrokerId, Offset};

const FEW: QuorumSettings = QuorumSettings {
    heartbeat_ms: 150,
    election_ms: (600, 1_200),
    snapshot_after: 20,
    keep: 2,
    voters: std::collections::BTreeSet::new(),
    seed: 0,
};

#[test]
fn three_elect_one_and_agree() {
    story(async {
        let cluster = Cluster::formed(1, 3).await;
        for n in 0..10 {
            cluster.commit(&format!("r{n}")).await;
        }
        cluster.agree().await;
        let status = cluster.peers[&3].quorum.status();
        assert_eq!(status.leader.map(|l| l.0), cluster.leader());
        assert!(status.members.len() == 3 && status.members.iter().all(|m| m.voter));
    });
}

#[test]
fn a_leader_that_is_killed_is_followed_by_another_within_two_seconds() {
    story(async {
        let mut cluster = Cluster::formed(2, 3).await;
        cluster.commit("before").await;
        let first = cluster.some_leader().await;
        let disk = cluster.kill(first, false);
        cluster.pass(2_000).await;
        let second = cluster.leader().expect("another leads");
        assert_ne!(first, second);
        cluster.commit("without").await;
        cluster.start(first, disk).await;
        cluster.commit("after").await;
        cluster.agree().await;
    });
}

#[test]
fn a_leader_whose_process_has_ended_is_followed_before_its_lease_is_over() {
    for seed in 0..20 {
        story(async move {
            let mut cluster = Cluster::formed(200 + seed, if seed % 2 == 0 { 3 } else { 5 }).await;
            cluster.commit("before").await;
            cluster.agree().await;
            let first = cluster.some_leader().await;
            let disk = cluster.kill(first, false);
            // Not all of them notice it in the same moment.
            for peer in cluster.peers.values() {
                peer.quorum.gone(BrokerId(first));
                cluster.pass(seed % 4 * 20).await;
            }
            cluster.pass(900).await;
            let second = cluster.leader().expect("another leads");
            assert_ne!(first, second);
            cluster.commit("without").await;
            cluster.start(first, disk).await;
            cluster.agree().await;
            cluster.held().await;
        });
    }
}

#[test]
fn one_voter_that_takes_the_leader_for_gone_changes_nothing() {
    story(async {
        let cluster = Cluster::formed(221, 3).await;
        cluster.commit("before").await;
        let leader = cluster.some_leader().await;
        let term = cluster.peers[&leader].known.lock().term;
        let mistaken = if leader == 1 { 2 } else { 1 };
        for _ in 0..3 {
            cluster.peers[&mistaken].quorum.gone(BrokerId(leader));
            cluster.pass(2_000).await;
        }
        cluster.commit("after").await;
        cluster.agree().await;
        assert_eq!(cluster.leader(), Some(leader));
        assert_eq!(cluster.peers[&leader].known.lock().term, term);
        // Who doesn't lead is nobody to follow.
        for peer in cluster.peers.values() {
            peer.quorum.gone(BrokerId(mistaken));
        }
        cluster.pass(2_000).await;
        assert_eq!(cluster.peers[&leader].known.lock().term, term);
    });
}

#[test]
fn a_leader_that_is_cut_off_commits_nothing_and_hears_that_it_lost() {
    story(async {
        let cluster = Cluster::formed(3, 5).await;
        cluster.commit("before").await;
        let old = cluster.some_leader().await;
        let follower = if old == 1 { 2 } else { 1 };
        let others: Vec<i32> = (1..=5).filter(|id| *id != old && *id != follower).collect();
        cluster.cut(&[old, follower], &others);
        assert!(cluster.propose(old, "of the minority"));
        cluster.pass(3_000).await;
        let new = cluster.leader().expect("the majority has a leader");
        assert!(others.contains(&new));
        cluster.commit("of the majority").await;
        assert!(
            !cluster
                .truth
                .lock()
                .acknowledged
                .contains(&b"of the minority"[..])
        );
        cluster.heal();
        cluster.agree().await;
        let known = cluster.peers[&old].known.lock();
        assert!(known.in_flight.is_none() && known.leader != Some(old));
        assert!(!known.records.iter().any(|r| r == "of the minority"));
    });
}

#[test]
fn what_is_proposed_in_another_term_or_elsewhere_is_refused() {
    story(async {
        let cluster = Cluster::formed(4, 3).await;
        cluster.commit("before").await;
        let leader = cluster.some_leader().await;
        for (id, peer) in &cluster.peers {
            let term = peer.known.lock().term;
            let term = if *id == leader { term - 1 } else { term };
            peer.quorum.propose(vec![riverlog_node::quorum::Proposal {
                number: 77,
                term,
                records: vec![bytes::Bytes::from_static(b"never")],
            }]);
        }
        cluster.pass(1_000).await;
        cluster.commit("after").await;
        cluster.agree().await;
        for peer in cluster.peers.values() {
            let known = peer.known.lock();
            assert_eq!(known.refused, 1);
            assert!(!known.records.iter().any(|r| r == "never"));
        }
    });
}

#[test]
fn a_node_that_can_be_heard_but_hears_nothing_disturbs_nobody() {
    story(async {
        let cluster = Cluster::formed(5, 3).await;
        cluster.commit("before").await;
        let leader = cluster.some_leader().await;
        let term = cluster.peers[&leader].known.lock().term;
        let deaf = if leader == 1 { 2 } else { 1 };
        for other in (1..=3).filter(|id| *id != deaf) {
            cluster.cut_one_way(other, deaf);
        }
        cluster.pass(10_000).await;
        cluster.commit("during").await;
        cluster.heal();
        cluster.commit("after").await;
        cluster.agree().await;
        assert_eq!(cluster.peers[&leader].known.lock().term, term);
    });
}

#[test]
fn a_power_cut_of_all_keeps_what_was_acknowledged() {
    for seed in 0..10 {
        story(async move {
            let mut cluster = Cluster::formed(60 + seed, 3).await;
            for n in 0..5 {
                cluster.commit(&format!("r{n}")).await;
            }
            let disks: Vec<CrashDisk> = (1..=3).map(|id| cluster.kill(id, true)).collect();
            for (id, disk) in (1..).zip(disks) {
                cluster.start(id, disk).await;
            }
            cluster.commit("after").await;
            cluster.agree().await;
            let records = cluster.peers[&1].known.lock().records.clone();
            for n in 0..5 {
                assert!(records.iter().any(|r| *r == format!("r{n}")));
            }
        });
    }
}

#[test]
fn without_a_majority_a_node_knows_again_what_it_had_served() {
    story(async {
        let mut cluster = Cluster::formed(7, 3).await;
        cluster.commit("one").await;
        cluster.commit("two").await;
        cluster.agree().await;
        cluster.pass(500).await;
        cluster.kill(2, false);
        cluster.kill(3, false);
        cluster.restart(1, false).await;
        cluster.pass(3_000).await;
        let known = cluster.peers[&1].known.lock();
        assert_eq!(known.records, ["one", "two"]);
        assert_eq!(known.leader, None);
    });
}

#[test]
fn a_voter_that_lags_gets_a_snapshot() {
    story(async {
        let mut cluster = Cluster::formed_with(8, 3, FEW).await;
        cluster.commit("first").await;
        let away = if cluster.some_leader().await == 3 {
            2
        } else {
            3
        };
        let disk = cluster.kill(away, true);
        for n in 0..60 {
            cluster.commit(&format!("r{n}")).await;
        }
        cluster.start(away, disk).await;
        cluster.agree().await;
        assert!(cluster.peers[&away].known.lock().snapshots > 0);
        // And what it was given is on its disk.
        cluster.restart(away, true).await;
        cluster.agree().await;
        cluster.commit("last").await;
        cluster.agree().await;
    });
}

#[test]
fn one_node_grows_to_three_with_the_metadata_that_it_had() {
    story(async {
        let mut cluster = Cluster::empty(9);
        cluster.settings.voters = (1..=3).map(|id| member(id).address).collect();
        let disk = CrashDisk::new(9);
        let seam = std::sync::Arc::new(disk.clone()) as std::sync::Arc<dyn riverlog_log::Disk>;
        let opened = Quorum::open(seam, BrokerId(1), Writes::Inline).unwrap();
        assert!(opened.is_blank());
        let records: Vec<bytes::Bytes> = (0..3).map(|n| format!("old{n}").into()).collect();
        let metadata = MetadataSnapshot {
            index: 0,
            position: Offset(3),
            records: records.clone(),
        };
        opened.found(metadata, member(1)).await.unwrap();
        assert!(!opened.is_blank());
        cluster.start_opened(1, disk, opened).await;
        cluster.commit("alone").await;
        for id in [2, 3] {
            cluster.start(id, CrashDisk::new(90 + id as u64)).await;
            let first = cluster.peers[&1].quorum.disk_id();
            let joins = cluster.peers[&id].quorum.clone();
            joins
                .join(first, BrokerId(1), member(id))
                .await
                .expect("it is taken in");
        }
        cluster.agree().await;
        cluster.pass(3_000).await;
        let status = cluster.peers[&2].quorum.status();
        assert_eq!(status.members.iter().filter(|m| m.voter).count(), 3);
        // Two of three are enough now, without the first.
        cluster.kill(1, true);
        cluster.commit("without the first").await;
        cluster.agree().await;
        let known = cluster.peers[&3].known.lock();
        assert_eq!(known.records[..3], records);
    });
}

#[test]
fn an_emptied_disk_votes_only_after_it_was_taken_in_again() {
    story(async {
        let mut cluster = Cluster::formed(10, 3).await;
        cluster.commit("before").await;
        let leader = cluster.some_leader().await;
        let emptied = if leader == 1 { 2 } else { 1 };
        let former = cluster.peers[&emptied].quorum.disk_id();
        cluster.kill(emptied, true);
        cluster.start(emptied, CrashDisk::new(4_711)).await;
        let new = cluster.peers[&emptied].quorum.disk_id();
        assert_ne!(former, new);
        let at = cluster.peers[&leader].quorum.disk_id();
        let joins = cluster.peers[&emptied].quorum.clone();
        let join = || joins.join(at, BrokerId(leader), member(emptied));
        // Its former self was heard of a moment ago: for all that the leader knows it is still there.
        assert!(matches!(join().await, Err(QuorumError::NumberTaken)));
        cluster.pass(4_000).await;
        assert_eq!(cluster.peers[&emptied].quorum.status().members, []);
        join().await.expect("it is taken in");
        cluster.pass(8_000).await;
        let status = cluster.peers[&leader].quorum.status();
        let of = |disk| {
            status
                .members
                .iter()
                .find(|m| m.disk == disk)
                .map(|m| m.voter)
        };
        assert_eq!((of(new), of(former)), (Some(true), None));
        cluster.commit("after").await;
        cluster.agree().await;
    });
}

#[test]
fn voters_are_added_and_removed_by_the_leader_only() {
    story(async {
        let mut cluster = Cluster::formed(12, 3).await;
        cluster.commit("before").await;
        cluster.start(4, CrashDisk::new(444)).await;
        let leader = cluster.some_leader().await;
        let fourth = cluster.peers[&4].quorum.clone();
        let at = cluster.peers[&leader].quorum.clone();
        fourth
            .join(at.disk_id(), BrokerId(leader), member(4))
            .await
            .unwrap();
        cluster.agree().await;
        cluster.pass(2_000).await;
        let voters = |q: &Quorum| q.status().members.iter().filter(|m| m.voter).count();
        assert_eq!((voters(&at), at.status().members.len()), (3, 4));
        assert!(matches!(
            fourth.add_voter(fourth.disk_id()).await,
            Err(QuorumError::NotLeader)
        ));
        at.add_voter(fourth.disk_id()).await.unwrap();
        assert_eq!(voters(&at), 4);
        assert!(matches!(
            at.remove(at.disk_id()).await,
            Err(QuorumError::Change(_))
        ));
        assert!(matches!(
            at.remove(DiskId(1)).await,
            Err(QuorumError::NoMember(_))
        ));
        at.remove(fourth.disk_id()).await.unwrap();
        assert_eq!((voters(&at), at.status().members.len()), (3, 3));
        cluster.kill(4, false);
        cluster.commit("after").await;
        cluster.agree().await;
    });
}

/// One more node, which is taken in as an observer.
async fn observer(cluster: &mut Cluster, id: i32) -> DiskId {
    let leader = cluster.some_leader().await;
    let at = cluster.peers[&leader].quorum.disk_id();
    cluster.start(id, CrashDisk::new(100 * id as u64)).await;
    let joins = cluster.peers[&id].quorum.clone();
    let joined = joins.join(at, BrokerId(leader), member(id)).await;
    joined.expect("it is taken in");
    cluster.agree().await;
    cluster.pass(1_000).await;
    joins.disk_id()
}

/// What an operator is told of a change that isn't made, and that nothing has come of it.
async fn refused(cluster: &Cluster, why: Result<(), QuorumError>, words: &[&str]) {
    let Err(QuorumError::Change(told)) = why else {
        panic!("{why:?}");
    };
    for word in words {
        assert!(told.contains(word), "{told}");
    }
    cluster.commit(&format!("after: {told}")).await;
}

#[test]
fn an_observer_that_is_down_is_not_made_a_voter_without_whom_nothing_is_agreed_on() {
    for (seed, voters) in [(14, 1), (15, 3)] {
        story(async move {
            let mut cluster = Cluster::formed(seed, voters).await;
            cluster.commit("before").await;
            let observer_disk = observer(&mut cluster, 9).await;
            let leader = cluster.some_leader().await;
            let lead = cluster.peers[&leader].quorum.clone();
            let left = cluster.kill(9, false);
            // Of three one may be down: of four that would be one too many.
            let dead = (1..=voters).find(|id| *id != leader);
            let dead = dead.map(|id| (id, cluster.kill(id, false)));
            cluster.pass(3_500).await;
            let told = lead.add_voter(observer_disk).await;
            refused(&cluster, told, &["node 9", "start it first"]).await;
            // It is, and votes.
            cluster.start(9, left).await;
            cluster.agree().await;
            cluster.pass(1_000).await;
            lead.add_voter(observer_disk).await.expect("it is there");
            cluster.commit("with another one").await;
            if let Some((id, disk)) = dead {
                cluster.start(id, disk).await;
            }
            cluster.agree().await;
            let members = lead.status().members;
            assert!(members.iter().all(|m| m.voter));
        });
    }
}

#[test]
fn an_observer_that_has_just_come_is_not_made_a_voter_until_it_has_caught_up() {
    story(async {
        let mut cluster = Cluster::formed(16, 1).await;
        cluster.commit("before").await;
        let disk = observer(&mut cluster, 2).await;
        let lead = cluster.peers[&1].quorum.clone();
        cluster.cut(&[1], &[2]);
        for n in 0..150 {
            cluster.propose(1, &format!("r{n}"));
            cluster.pass(15).await;
        }
        // It was heard of a moment ago.
        let told = lead.add_voter(disk).await;
        refused(&cluster, told, &["node 2", "caught up"]).await;
        cluster.heal();
        cluster.agree().await;
        cluster.pass(1_000).await;
        lead.add_voter(disk).await.expect("it has caught up");
        cluster.commit("with another one").await;
        cluster.agree().await;
    });
}

#[test]
fn a_voter_is_not_removed_where_too_few_of_the_others_are_there() {
    story(async {
        let mut cluster = Cluster::formed(17, 3).await;
        cluster.commit("before").await;
        let leader = cluster.some_leader().await;
        let lead = cluster.peers[&leader].quorum.clone();
        let others: Vec<i32> = (1..=3).filter(|id| *id != leader).collect();
        let (stays, dead) = (others[0], others[1]);
        let disk_of = |cluster: &Cluster, id: i32| cluster.peers[&id].quorum.disk_id();
        let (stays_disk, dead_disk) = (disk_of(&cluster, stays), disk_of(&cluster, dead));
        cluster.kill(dead, false);
        cluster.pass(3_500).await;
        let told = lead.remove(stays_disk).await;
        let node = format!("node {dead}");
        refused(&cluster, told, &[&node, "start it first"]).await;
        // The one that is down is what operators remove.
        lead.remove(dead_disk).await.expect("two of two are there");
        cluster.commit("without the dead one").await;
        // And of two that are there one goes as well, and leaves the leader alone.
        lead.remove(stays_disk).await.expect("one of one is there");
        cluster.kill(stays, false);
        cluster.commit("alone").await;
        assert_eq!(lead.status().members.len(), 1);
    });
}

#[test]
fn a_member_that_is_elsewhere_now_says_so_to_whoever_leads_and_votes_as_before() {
    story(async {
        let cluster = Cluster::formed(18, 3).await;
        cluster.commit("before").await;
        let leader = cluster.some_leader().await;
        let at = cluster.peers[&leader].quorum.disk_id();
        // The leader itself, and one that follows.
        for id in [leader, leader % 3 + 1] {
            let quorum = cluster.peers[&id].quorum.clone();
            let move_to = |address: &str| {
                let address = address.to_owned();
                let moved = Member {
                    address,
                    ..member(id)
                };
                quorum.join(at, BrokerId(leader), moved)
            };
            // Where nobody finds it, nobody would look for it again.
            move_to("").await.expect_err("that is no address");
            let elsewhere = format!("elsewhere{id}:9092");
            move_to(&elsewhere).await.expect("it is taken");
            cluster.commit(&format!("{id} has moved")).await;
            cluster.agree().await;
            cluster.pass(1_000).await;
            for peer in cluster.peers.values() {
                let members = peer.quorum.status().members;
                assert!(members.len() == 3 && members.iter().all(|m| m.voter));
                let moved = members.iter().find(|m| m.member.broker.0 == id);
                assert_eq!(moved.map(|m| &m.member.address), Some(&elsewhere));
            }
        }
        assert_eq!(cluster.leader(), Some(leader));
    });
}

#[test]
fn a_voter_whose_disk_fails_ends_and_the_others_go_on() {
    story(async {
        let cluster = Cluster::formed(13, 3).await;
        cluster.commit("before").await;
        let leader = cluster.some_leader().await;
        cluster.peers[&leader].disk.power_off();
        cluster.propose(leader, "on a broken disk");
        cluster.pass(4_000).await;
        assert!(cluster.peers[&leader].known.lock().ended);
        let next = cluster.leader().expect("another leads");
        assert_ne!(next, leader);
    });
}
