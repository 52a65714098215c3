//! Planted faults of clusters that take a decision to come late, or two things to meet that seldom do: each has a story that goes well without
//! the fault, and badly with it. What seeds notice of the others is in `docs/reliability/mutants.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use riverlog_core::Now;
use riverlog_core::metadata::{
    AdminAnswer, AdminCommand, BrokerImage, ControllerSettings, IsrChange, MetadataImage, NewTopic,
    PartitionImage, Reassignment, decide,
};
use riverlog_core::replica::{Leader, Position};
use riverlog_mutants::{Mutant, plant};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId};

const TOPIC: TopicId = TopicId([7; 16]);

/// Whether it goes well.
type Story = fn() -> bool;

/// The rules of the controller, without one.
struct World {
    image: MetadataImage,
    settings: ControllerSettings,
    seconds: u64,
}

impl World {
    /// Nodes, and a topic with a copy on each of the first three.
    fn with_nodes(nodes: i32) -> World {
        let mut world = World {
            image: MetadataImage::default(),
            settings: ControllerSettings {
                num_partitions: 1,
                replication_factor: None,
                node_configs: BTreeMap::new(),
                max_partitions_per_request: 100,
            },
            seconds: 1,
        };
        for id in 1..=nodes {
            world.joins(id, 100 + id as u128);
            world.beats(id);
        }
        let replicas = (1..=3).map(BrokerId).collect();
        world.tell(&AdminCommand::CreateTopics {
            topics: vec![NewTopic {
                name: "t".to_owned(),
                partitions: -1,
                replication_factor: -1,
                assignments: vec![(0, replicas)],
                id: TOPIC,
                ..NewTopic::default()
            }],
            validate_only: false,
        });
        world
    }

    /// Three nodes, and a topic with a copy on each.
    fn three() -> World {
        World::with_nodes(3)
    }

    fn reassign(&mut self, replicas: &[i32]) {
        let replicas = replicas.iter().map(|b| BrokerId(*b)).collect();
        self.tell(&AdminCommand::Reassign {
            partitions: vec![Reassignment {
                topic: "t".to_owned(),
                index: 0,
                replicas: Some(replicas),
            }],
            factor_may_change: true,
        });
    }

    fn tell(&mut self, command: &AdminCommand) -> ErrorCode {
        self.seconds += 1;
        let now = Now {
            mono: Duration::from_secs(self.seconds),
            wall_ms: 1_700_000_000_000 + self.seconds as i64 * 1_000,
        };
        let (records, answer) = decide(&self.image, &self.settings, command, now);
        for record in &records {
            let position = self.image.position + 1;
            self.image.apply(record, position);
        }
        match answer {
            AdminAnswer::Results(results) => results[0].error,
            _ => ErrorCode::NONE,
        }
    }

    fn joins(&mut self, id: i32, life: u128) {
        self.tell(&AdminCommand::Register {
            broker: BrokerImage {
                id: BrokerId(id),
                epoch: 0,
                listeners: vec![("PLAINTEXT".to_owned(), "h".to_owned(), 9092)],
                rack: None,
                fenced: true,
                stopping: false,
                ailing: false,
                incarnation: life,
                disk: id as u128,
            },
            cluster_id: "Clusterid-0123456789AA".to_owned(),
        });
    }

    fn beats(&mut self, id: i32) {
        let epoch = self.epoch(id);
        let position = self.image.position;
        self.tell(&AdminCommand::Heartbeat {
            broker: BrokerId(id),
            epoch,
            position,
            stopping: false,
            ailing: false,
        });
    }

    fn fence(&mut self, id: i32) {
        let epoch = self.epoch(id);
        let broker = BrokerId(id);
        self.tell(&AdminCommand::Fence { broker, epoch });
    }

    fn epoch(&self, id: i32) -> i64 {
        self.image.brokers[&BrokerId(id)].epoch
    }

    fn partition(&self) -> PartitionImage {
        self.image.topics[&TOPIC].partitions[0].clone()
    }

    /// What the leader asks for now.
    fn isr(&self, isr: &[i32]) -> AdminCommand {
        let partition = self.partition();
        let leader = partition.leader.expect("a leader");
        AdminCommand::AlterPartitions {
            broker: leader,
            epoch: self.epoch(leader.0),
            changes: vec![IsrChange {
                topic: TOPIC,
                index: 0,
                leader_epoch: partition.leader_epoch,
                partition_epoch: partition.partition_epoch,
                isr: isr.iter().map(|b| (BrokerId(*b), self.epoch(*b))).collect(),
            }],
        }
    }
}

fn ids(set: &[BrokerId]) -> Vec<i32> {
    set.iter().map(|b| b.0).collect()
}

/// An in-sync set that its leader asks for before it loses the leadership, and that comes to the controller afterwards.
fn asked_by_who_leads_no_more() -> bool {
    let mut world = World::three();
    let late = world.isr(&[1]);
    world.fence(1);
    world.joins(1, 201);
    world.beats(1);
    // Its life is another one by now, or its epoch would be the reason: here only the leadership is.
    let late = match late {
        AdminCommand::AlterPartitions { changes, .. } => AdminCommand::AlterPartitions {
            broker: BrokerId(1),
            epoch: world.epoch(1),
            changes: changes
                .into_iter()
                .map(|change| IsrChange {
                    isr: vec![(BrokerId(1), world.epoch(1))],
                    ..change
                })
                .collect(),
        },
        other => other,
    };
    let error = world.tell(&late);
    error != ErrorCode::NONE && ids(&world.partition().isr) == [2, 3]
}

/// Two asks of one leader under way: the second one was decided before the first one was known.
fn asked_about_a_partition_that_has_changed() -> bool {
    let mut world = World::three();
    let (first, second) = (world.isr(&[1, 2]), world.isr(&[1, 2, 3]));
    let first = world.tell(&first);
    let second = world.tell(&second);
    first == ErrorCode::NONE && second != ErrorCode::NONE && ids(&world.partition().isr) == [1, 2]
}

/// A follower is asked for in one life, and is another one when the controller hears of it.
fn asked_for_who_lives_anew() -> bool {
    let mut world = World::three();
    let without = world.isr(&[1, 2]);
    world.tell(&without);
    let with = world.isr(&[1, 2, 3]);
    world.joins(3, 203);
    world.beats(3);
    let error = world.tell(&with);
    error != ErrorCode::NONE && ids(&world.partition().isr) == [1, 2]
}

/// The leader goes while a node that is in sync isn't heard of either.
fn elected_though_nobody_hears_it() -> bool {
    let mut world = World::three();
    // As it is when both are noticed at once: the second one is still in sync, and fenced already.
    let mut second = world.image.brokers[&BrokerId(2)].clone();
    second.fenced = true;
    world.image.brokers.insert(BrokerId(2), second);
    world.fence(1);
    world.partition().leader == Some(BrokerId(3))
}

/// Two copies are to be elsewhere, and one of them is there before the other.
fn copies_arrive_one_after_the_other() -> bool {
    let mut world = World::with_nodes(5);
    world.reassign(&[1, 4, 5]);
    let first = world.isr(&[1, 2, 3, 4]);
    world.tell(&first);
    let early = world.partition();
    let second = world.isr(&[1, 2, 3, 4, 5]);
    world.tell(&second);
    let late = world.partition();
    early.is_moving()
        && ids(&early.isr) == [1, 2, 3, 4]
        && !late.is_moving()
        && ids(&late.replicas) == [1, 4, 5]
        && ids(&late.isr) == [1, 4, 5]
}

/// A copy goes and is back, with nothing, before its leader has heard of that; what it said when it had everything comes late.
fn a_copy_comes_back_before_its_last_word() -> bool {
    let mut world = World::three();
    let before = world.partition();
    world.reassign(&[1, 2]);
    world.reassign(&[1, 2, 3]);
    let partition = world.partition();
    let now = Now {
        mono: Duration::from_secs(1),
        wall_ms: 0,
    };
    let mut leader = Leader::new(partition.leader_epoch, at(10, 10), Offset(10), true);
    leader.set_partition(2, BrokerId(1), &partition.replicas, &partition.isr, now);
    let _late = leader.on_follower_fetch(BrokerId(3), 1, before.leader_epoch, at(10, 10), now);
    ids(&partition.replicas) == [1, 2, 3]
        && ids(&partition.isr) == [1, 2]
        && leader.caught_up().is_empty()
}

fn at(written: i64, synced: i64) -> Position {
    Position {
        written: Offset(written),
        synced: Offset(synced),
    }
}

/// A leader of epoch 2 that had `own` when it began, with a second node in sync and a third one out of it.
fn leader(own: Position, high_watermark: i64) -> Leader {
    let now = Now {
        mono: Duration::from_secs(1),
        wall_ms: 0,
    };
    let mut leader = Leader::new(LeaderEpoch(2), own, Offset(high_watermark), true);
    let replicas: Vec<BrokerId> = (1..=3).map(BrokerId).collect();
    leader.set_partition(2, BrokerId(1), &replicas, &replicas[..2], now);
    leader
}

fn says(leader: &mut Leader, who: i32, position: Position) {
    let now = Now {
        mono: Duration::from_secs(2),
        wall_ms: 0,
    };
    let told = leader.on_follower_fetch(BrokerId(who), 1, LeaderEpoch(2), position, now);
    told.expect("it is heard");
}

/// The leader before had acknowledged more than this one knows of: who has the watermark alone may lack it.
fn in_sync_with_less_than_may_be_acknowledged() -> bool {
    let mut leader = leader(at(10, 10), 5);
    says(&mut leader, 3, at(7, 7));
    let early = leader.caught_up();
    says(&mut leader, 3, at(10, 10));
    early.is_empty() && leader.caught_up() == [BrokerId(3)]
}

/// The other disks are faster than the leader's own.
fn acknowledged_before_the_leader_has_synced() -> bool {
    let mut leader = leader(at(10, 5), 5);
    says(&mut leader, 2, at(10, 10));
    let early = leader.acked(-1, Offset(10));
    leader.on_own_position(at(10, 10));
    early.is_none() && leader.acked(-1, Offset(10)) == Some(Ok(()))
}

/// A follower had everything in its last life; of the one that it is registered for now nothing was heard.
fn asked_for_by_the_word_of_an_earlier_life() -> bool {
    let mut leader = leader(at(10, 10), 10);
    for who in [2, 3] {
        says(&mut leader, who, at(10, 10));
    }
    let now = Now {
        mono: Duration::from_secs(3),
        wall_ms: 0,
    };
    let ask = |leader: &mut Leader| {
        let epoch_of = |id| Some(if id == BrokerId(3) { 7 } else { 1 });
        leader.propose_isr((BrokerId(1), 1), Duration::from_secs(30), now, epoch_of)
    };
    let early = ask(&mut leader);
    let told = leader.on_follower_fetch(BrokerId(3), 7, LeaderEpoch(2), at(10, 10), now);
    told.expect("it is heard");
    let asked = [(1, 1), (2, 1), (3, 7)].map(|(id, epoch)| (BrokerId(id), epoch));
    early.is_none() && ask(&mut leader).as_deref() == Some(&asked)
}

#[test]
fn each_story_goes_well_without_its_fault_and_badly_with_it() {
    let stories: &[(Mutant, Story)] = &[
        (Mutant::StaleIsrAccepted, asked_by_who_leads_no_more),
        (
            Mutant::PartitionEpochUnchecked,
            asked_about_a_partition_that_has_changed,
        ),
        (Mutant::StrangeLifeInSync, asked_for_who_lives_anew),
        (Mutant::MovedTooSoon, copies_arrive_one_after_the_other),
        (
            Mutant::ReplicaLeavesEpoch,
            a_copy_comes_back_before_its_last_word,
        ),
        (Mutant::FencedElected, elected_though_nobody_hears_it),
        (
            Mutant::EpochStartIgnored,
            in_sync_with_less_than_may_be_acknowledged,
        ),
        (
            Mutant::OwnNotCounted,
            acknowledged_before_the_leader_has_synced,
        ),
        (
            Mutant::EarlierLifeInSync,
            asked_for_by_the_word_of_an_earlier_life,
        ),
    ];
    for (mutant, goes_well) in stories {
        plant(None);
        assert!(goes_well(), "{}: the story itself is wrong", mutant.name());
        plant(Some(*mutant));
        assert!(!goes_well(), "{} isn't noticed", mutant.name());
    }
    plant(None);
}
