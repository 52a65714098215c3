//! Nodes that come, go and ask: who is in sync, who is eligible, who leads.

use std::time::Duration;

use expect_test::expect;

use super::*;

pub(super) fn joins(id: i32, life: u128, disk: u128) -> AdminCommand {
    AdminCommand::Register {
        broker: BrokerImage {
            fenced: true,
            incarnation: life,
            disk,
            ..broker(id)
        },
        cluster_id: "Clusterid-0123456789AA".to_owned(),
    }
}

impl World {
    pub(super) fn epoch(&self, id: i32) -> i64 {
        self.image.brokers[&BrokerId(id)].epoch
    }
    pub(super) fn beat(&self, id: i32, stopping: bool) -> AdminCommand {
        AdminCommand::Heartbeat {
            broker: BrokerId(id),
            epoch: self.epoch(id),
            position: self.image.position,
            stopping,
            ailing: false,
        }
    }
    pub(super) fn fence(&self, id: i32) -> AdminCommand {
        AdminCommand::Fence {
            broker: BrokerId(id),
            epoch: self.epoch(id),
        }
    }
    /// Registered and let in, with a disk of its own.
    pub(super) fn starts(&mut self, id: i32, life: u128) {
        self.apply(&joins(id, life, id as u128));
        let beat = self.beat(id, false);
        self.apply(&beat);
    }
    pub(super) fn partition(&self) -> &PartitionImage {
        &self.image.topics[&id(1)].partitions[0]
    }
    /// The leader asks for an in-sync set.
    pub(super) fn isr(&self, isr: &[i32]) -> AdminCommand {
        let partition = self.partition();
        let leader = partition.leader.expect("a leader");
        AdminCommand::AlterPartitions {
            broker: leader,
            epoch: self.epoch(leader.0),
            changes: vec![IsrChange {
                topic: id(1),
                index: 0,
                leader_epoch: partition.leader_epoch,
                partition_epoch: partition.partition_epoch,
                isr: isr.iter().map(|b| (BrokerId(*b), self.epoch(*b))).collect(),
            }],
        }
    }
}

/// Three nodes, and a topic with a copy on each.
pub(super) fn three() -> World {
    let mut world = World::empty();
    for id in 1..=3 {
        world.starts(id, 100 + id as u128);
    }
    world.apply(&create(&[assigned("t", 1, &[(0, &[1, 2, 3])])]));
    world
}

#[test]
fn a_node_is_let_in_once_it_knows_of_itself_and_registers_once_a_life() {
    let mut world = World::empty();
    let early = AdminCommand::Heartbeat {
        broker: BrokerId(1),
        epoch: 0,
        position: Offset(0),
        stopping: false,
        ailing: false,
    };
    world
        .tell(&joins(1, 7, 1))
        .tell(&joins(1, 7, 1))
        .tell(&early);
    let beat = world.beat(1, false);
    world
        .tell(&beat)
        .tell(&beat)
        .tell(&joins(1, 8, 1))
        .tell(&beat);
    world.expect(expect![[r#"
        Registered { epoch: 0 }
            Cluster { cluster_id: "Clusterid-0123456789AA" }
            Feature { name: "group.version", level: 1 }
            Feature { name: "metadata.version", level: 33 }
            Feature { name: "share.version", level: 1 }
            Feature { name: "streams.version", level: 1 }
            Feature { name: "transaction.version", level: 2 }
            Broker 1 epoch 0 fenced true
        Registered { epoch: 0 }
        Heartbeat { fenced: true, may_stop: false, position: Offset(7), silent: 0ns }
        Heartbeat { fenced: false, may_stop: false, position: Offset(7), silent: 0ns }
            Broker 1 epoch 0 fenced false
        Heartbeat { fenced: false, may_stop: false, position: Offset(8), silent: 0ns }
        Registered { epoch: 8 }
            Broker 1 epoch 8 fenced true
        STALE_BROKER_EPOCH: broker 1 isn't registered under epoch 0; register anew
    "#]]);
}

#[test]
fn leaders_come_from_the_isr_then_from_the_eligible_and_the_last_one_is_waited_for() {
    let mut world = three();
    for id in [1, 2, 3] {
        let fence = world.fence(id);
        world.tell(&fence);
    }
    // Whoever was in sync last, or eligible, leads again; the others come back as followers.
    for id in [1, 2] {
        world.apply(&joins(id, 200 + id as u128, id as u128));
        let beat = world.beat(id, false);
        world.tell(&beat);
    }
    world.expect(expect![[r#"
        NONE
            Broker 1 epoch 0 fenced true
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr 2,3 led by 2 epochs 1/1)
        NONE
            Broker 2 epoch 8 fenced true
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr 3 elr 2 led by 3 epochs 2/2)
        NONE
            Broker 3 epoch 10 fenced true
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr 3 elr 2 led by - epochs 3/3)
        Heartbeat { fenced: false, may_stop: false, position: Offset(21), silent: 0ns }
            Broker 1 epoch 20 fenced false
        Heartbeat { fenced: false, may_stop: false, position: Offset(23), silent: 0ns }
            Broker 2 epoch 22 fenced false
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr 2 elr 3 led by 2 epochs 4/4)
    "#]]);
}

#[test]
fn another_disk_has_forgotten_what_was_acknowledged() {
    let mut world = three();
    for id in [1, 2] {
        let fence = world.fence(id);
        world.apply(&fence);
    }
    world.tell(&joins(2, 500, 77)).tell(&joins(3, 501, 78));
    let beat = world.beat(3, false);
    world.tell(&beat).expect(expect![[r#"
        Registered { epoch: 18 }
            Broker 2 epoch 18 fenced true
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr 3 led by 3 epochs 2/3)
        Registered { epoch: 20 }
            Broker 3 epoch 20 fenced true
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr  led by - epochs 3/4)
        Heartbeat { fenced: false, may_stop: false, position: Offset(22), silent: 0ns }
            Broker 3 epoch 20 fenced false
    "#]]);
    // Nobody is left with all of it; an operator may give it up.
    let elect = |unclean| AdminCommand::ElectLeaders {
        partitions: vec![("t".to_owned(), 0)],
        unclean,
    };
    world
        .tell(&elect(false))
        .tell(&elect(true))
        .tell(&elect(true));
    world.expect(expect![[r#"
        PREFERRED_LEADER_NOT_AVAILABLE: the first replica isn't in sync, not up, or its disk is full or slow; wait until it is well
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr 3 led by 3 epochs 4/5)
        ELECTION_NOT_NEEDED: the partition has a leader
    "#]]);
}

#[test]
fn a_leader_changes_its_isr_only_as_what_it_is_and_with_members_as_they_are() {
    let mut world = three();
    let (stale, smaller) = (world.isr(&[1]), world.isr(&[1, 3]));
    world.tell(&smaller).tell(&stale);
    let without_itself = world.isr(&[2, 3]);
    let twice = world.isr(&[1, 1]);
    world.tell(&without_itself).tell(&twice);
    let earlier_life = world.isr(&[1, 2, 3]);
    world.apply(&joins(2, 900, 2));
    world.tell(&earlier_life);
    let fenced = world.isr(&[1, 2, 3]);
    world.tell(&fenced);
    let beat = world.beat(2, false);
    world.apply(&beat);
    let now = world.isr(&[1, 2, 3]);
    world.tell(&now).expect(expect![[r#"
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr 1,3 led by 1 epochs 0/1)
        INVALID_UPDATE_VERSION: the partition is at epoch 1, the change was decided at 0
        INVALID_REQUEST: an in-sync set holds the leader and other replicas of the partition, each once
        INVALID_REQUEST: an in-sync set holds the leader and other replicas of the partition, each once
        INELIGIBLE_REPLICA: broker 2 of epoch 8 can't be in sync: it has registered anew, is fenced, or stops
        INELIGIBLE_REPLICA: broker 2 of epoch 15 can't be in sync: it has registered anew, is fenced, or stops
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 led by 1 epochs 0/2)
    "#]]);
    let AdminCommand::AlterPartitions { changes, .. } = world.isr(&[1]) else {
        panic!("it is one")
    };
    for (broker, epoch) in [(3, world.epoch(3)), (1, 77)] {
        let change = AdminCommand::AlterPartitions {
            broker: BrokerId(broker),
            epoch,
            changes: changes.clone(),
        };
        world.tell(&change);
    }
    world.expect(expect![[r#"
        FENCED_LEADER_EPOCH: broker 3 doesn't lead the partition in epoch 0
        STALE_BROKER_EPOCH: broker 1 has registered anew since epoch 77
    "#]]);
}

#[test]
fn a_node_that_stops_gives_its_leaderships_away_first() {
    let mut world = three();
    world.apply(&create(&[assigned("alone", 2, &[(0, &[1])])]));
    for _ in 0..2 {
        let beat = world.beat(1, true);
        world.tell(&beat);
    }
    world.expect(expect![[r#"
        Heartbeat { fenced: false, may_stop: false, position: Offset(16), silent: 0ns }
            Broker 1 epoch 0 fenced false
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr 2,3 led by 2 epochs 1/1)
        Heartbeat { fenced: false, may_stop: true, position: Offset(18), silent: 0ns }
    "#]]);
    assert!(world.image.brokers[&BrokerId(1)].stopping);
}

#[test]
fn another_min_isr_ends_what_was_eligible_under_the_old_one() {
    let mut world = three();
    let alone = world.isr(&[1]);
    world.apply(&alone);
    assert_eq!(world.partition().elr, brokers(&[2, 3]));
    world.apply(&AdminCommand::AlterConfigs {
        resources: vec![(
            ConfigResource::Topic("t".to_owned()),
            vec![ConfigChange::Set(
                "min.insync.replicas".to_owned(),
                Some("1".to_owned()),
            )],
        )],
        replace: false,
        validate_only: false,
    });
    assert!(world.partition().elr.is_empty());
}

#[test]
fn each_rack_gets_a_copy_before_any_gets_two() {
    let mut world = World::empty();
    for (id, rack) in (1..=6).zip(["a", "a", "a", "b", "b", "c"]) {
        let AdminCommand::Register { broker, cluster_id } = register(id) else {
            panic!("it is one")
        };
        let broker = BrokerImage {
            rack: Some(rack.to_owned()),
            ..broker
        };
        world.apply(&AdminCommand::Register { broker, cluster_id });
    }
    let new = NewTopic {
        partitions: 60,
        replication_factor: 3,
        ..topic("t", 1)
    };
    world.apply(&create(&[new]));
    let mut leads = BTreeMap::new();
    for partition in &world.image.topics[&id(1)].partitions {
        let racks: Vec<&str> = partition
            .replicas
            .iter()
            .map(|b| world.image.brokers[b].rack.as_deref().unwrap())
            .collect();
        assert_eq!(partition.replicas.len(), 3);
        assert!(
            ["a", "b", "c"].iter().all(|r| racks.contains(r)),
            "{racks:?}"
        );
        *leads.entry(partition.leader).or_insert(0) += 1;
    }
    assert!(
        leads.len() == 6 && leads.values().all(|n| *n == 10),
        "{leads:?}"
    );
}

#[test]
fn whoever_is_silent_for_a_whole_session_is_to_be_fenced_and_a_new_controller_gives_one() {
    let world = three();
    let mut sessions = Sessions::default();
    let at = |seconds| Now {
        mono: Duration::from_secs(seconds),
        wall_ms: 0,
    };
    let timeout = Duration::from_secs(9);
    assert!(sessions.expired(&world.image, timeout, at(100)).is_empty());
    sessions.heard(BrokerId(1), world.epoch(1), at(105));
    assert!(sessions.expired(&world.image, timeout, at(109)).is_empty());
    let late: Vec<String> = sessions
        .expired(&world.image, timeout, at(110))
        .iter()
        .map(|command| format!("{command:?}"))
        .collect();
    let want: Vec<String> = [2, 3].map(|id| format!("{:?}", world.fence(id))).into();
    assert_eq!(late, want);
    sessions.begin();
    assert!(sessions.expired(&world.image, timeout, at(110)).is_empty());
}

/// Any history of five nodes and one topic: who leads had everything, and epochs only grow.
#[test]
fn no_history_elects_a_leader_that_may_lack_something() {
    for seed in 0..400_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = move |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % n
        };
        let mut world = three();
        let mut life = 1_000;
        for _ in 0..60 {
            let id = 1 + below(3) as i32;
            let before = world.partition().clone();
            life += 1;
            let mut forgot = None;
            let command = match below(8) {
                0 => world.fence(id),
                1 => joins(id, life, id as u128),
                2 => {
                    // What it had is lost with its disk; it comes back with the one that it is known by.
                    world.apply(&joins(id, life, 1_000));
                    life += 1;
                    forgot = Some(BrokerId(id));
                    joins(id, life, id as u128)
                }
                3 => world.beat(id, true),
                4 | 5 => world.beat(id, false),
                _ if before.leader.is_some() => {
                    let leader = before.leader.unwrap().0;
                    let mut isr = vec![leader];
                    isr.extend((1..=3).filter(|b| *b != leader && below(2) == 0));
                    world.isr(&isr)
                }
                _ => continue,
            };
            world.apply(&command);
            let after = world.partition();
            let had = |b: &BrokerId| {
                (before.isr.contains(b) || before.elr.contains(b)) && forgot != Some(*b)
            };
            let changed = after.leader_epoch > before.leader_epoch;
            assert!(after.leader_epoch >= before.leader_epoch);
            assert!(after == &before || after.partition_epoch > before.partition_epoch);
            assert!(changed || after.leader == before.leader);
            if let Some(leader) = after.leader {
                assert!(after.isr.contains(&leader));
                assert!(
                    !changed || had(&leader),
                    "seed {seed}: {before:?} {after:?}"
                );
                assert!(!world.image.brokers[&leader].fenced);
            }
            assert!(after.elr.iter().all(|b| !after.isr.contains(b) && had(b)));
            assert!(after.elr.is_empty() || after.isr.len() < 2);
            assert!(forgot.is_none_or(|b| !after.isr.contains(&b)));
        }
    }
}

#[test]
fn a_node_with_an_ailing_disk_gives_away_what_others_can_lead_whenever_they_can() {
    let mut world = three();
    world.apply(&create(&[assigned("alone", 2, &[(0, &[1])])]));
    let beat = |world: &World, ailing| AdminCommand::Heartbeat {
        broker: BrokerId(1),
        epoch: world.epoch(1),
        position: world.image.position,
        stopping: false,
        ailing,
    };
    let ill = beat(&world, true);
    world.apply(&ill);
    assert!(world.image.brokers[&BrokerId(1)].ailing);
    assert_eq!(world.partition().leader, Some(BrokerId(2)));
    assert_eq!(world.partition().isr, brokers(&[2, 3]));
    let alone = |world: &World| world.image.topics[&id(2)].partitions[0].clone();
    assert_eq!(alone(&world).leader, Some(BrokerId(1)));
    // Again and again: nothing more changes.
    let (before, ill) = (world.image.position, beat(&world, true));
    world.apply(&ill);
    assert_eq!(world.image.position, before);
    // It isn't elected while others are well, and is when nobody else is left.
    let all = world.isr(&[1, 2, 3]);
    world.apply(&all);
    for gone in [2, 3] {
        let fence = world.fence(gone);
        world.apply(&fence);
        let leader = if gone == 2 { 3 } else { 1 };
        assert_eq!(world.partition().leader, Some(BrokerId(leader)));
    }
    // Who comes back takes over as soon as it is in sync.
    for back in [2, 3] {
        world.starts(back, 200 + back as u128);
    }
    let all = world.isr(&[1, 2, 3]);
    world.apply(&all);
    assert_eq!(world.partition().leader, Some(BrokerId(1)));
    let ill = beat(&world, true);
    world.apply(&ill);
    assert_eq!(world.partition().leader, Some(BrokerId(2)));
    let well = beat(&world, false);
    world.apply(&well);
    assert!(!world.image.brokers[&BrokerId(1)].ailing);
    assert_eq!(world.partition().leader, Some(BrokerId(2)));
}
