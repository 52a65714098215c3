//! Replicas that move. Codes were compared with Kafka 4.4.

use expect_test::expect;

use super::replicas::{joins, three};
use super::*;

fn to(replicas: &[i32]) -> AdminCommand {
    to_partition("t", 0, Some(replicas))
}

fn cancel() -> AdminCommand {
    to_partition("t", 0, None)
}

fn to_partition(topic: &str, index: i32, replicas: Option<&[i32]>) -> AdminCommand {
    AdminCommand::Reassign {
        partitions: vec![Reassignment {
            topic: topic.to_owned(),
            index,
            replicas: replicas.map(brokers),
        }],
        factor_may_change: true,
    }
}

/// Five nodes, and a topic with copies on the first three.
fn five() -> World {
    let mut world = three();
    for id in 4..=5 {
        world.starts(id, 100 + id as u128);
    }
    world
}

impl World {
    fn asks_for(&mut self, isr: &[i32]) -> &mut World {
        let asked = self.isr(isr);
        self.tell(&asked)
    }
}

#[test]
fn new_replicas_join_before_the_old_ones_leave() {
    let mut world = five();
    world.tell(&to(&[4, 5, 1]));
    world.asks_for(&[1, 2, 3, 4]).asks_for(&[1, 3, 4, 5]);
    world.expect(expect![[r#"
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (4,5,1,2,3 adding 4,5 removing 2,3 isr 1,2,3 led by 1 epochs 0/1)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (4,5,1,2,3 adding 4,5 removing 2,3 isr 1,2,3,4 led by 1 epochs 0/2)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (4,5,1 isr 1,4,5 led by 1 epochs 1/3)
    "#]]);
    // Whoever leads may be one of those that go.
    world.tell(&to(&[2, 3]));
    world.asks_for(&[1, 4, 5, 2]).asks_for(&[1, 4, 5, 2, 3]);
    world.expect(expect![[r#"
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (2,3,1,4,5 adding 2,3 removing 1,4,5 isr 1,4,5 led by 1 epochs 1/4)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (2,3,1,4,5 adding 2,3 removing 1,4,5 isr 1,4,5,2 led by 1 epochs 1/5)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (2,3 led by 2 epochs 2/6)
    "#]]);
}

#[test]
fn what_needs_no_copy_is_done_at_once() {
    let mut world = five();
    world
        .tell(&to(&[1, 2, 3]))
        .tell(&to(&[3, 1, 2]))
        .tell(&to(&[3, 2]))
        .tell(&to(&[2]));
    world.expect(expect![[r#"
        NONE
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (3,1,2 isr 1,2,3 led by 1 epochs 0/1)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (3,2 isr 2,3 led by 3 epochs 1/2)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (2 led by 2 epochs 2/3)
    "#]]);
}

#[test]
fn another_target_and_the_way_back_count_from_the_replicas_of_the_beginning() {
    let mut world = five();
    world.tell(&cancel()).tell(&to(&[1, 2, 4]));
    world.asks_for(&[1, 2, 3, 4]);
    world.apply(&to(&[1, 4, 5]));
    world.asks_for(&[1, 4]);
    // Whoever was to be added and isn't any more goes at once; its word from before counts no more.
    world.tell(&to(&[1, 2, 5])).tell(&cancel()).tell(&cancel());
    world.expect(expect![[r#"
        NO_REASSIGNMENT_IN_PROGRESS: the partition isn't being reassigned
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,4,3 adding 4 removing 3 isr 1,2,3 led by 1 epochs 0/1)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,4 led by 1 epochs 1/2)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,4,5,2 adding 5 removing 2 isr 1,4 led by 1 epochs 1/4)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,5,4 adding 5 removing 4 isr 1,4 led by 1 epochs 1/5)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,4 isr 1,4 led by 1 epochs 2/6)
        NO_REASSIGNMENT_IN_PROGRESS: the partition isn't being reassigned
    "#]]);
}

#[test]
fn nobody_leaves_who_is_the_last_to_have_everything() {
    let mut world = five();
    world.apply(&to(&[4, 5]));
    world.asks_for(&[1, 4]);
    let fence = world.fence(1);
    world.tell(&fence).tell(&cancel()).tell(&to(&[2, 5]));
    world.expect(expect![[r#"
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (4,5,1,2,3 adding 4,5 removing 1,2,3 isr 1,4 led by 1 epochs 0/2)
        NONE
            Broker 1 epoch 0 fenced true
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (4,5,1,2,3 adding 4,5 removing 1,2,3 isr 4 elr 1 led by 4 epochs 1/3)
        INVALID_REPLICA_ASSIGNMENT: only brokers [4] have everything that was acknowledged, and none of them would be left; wait until others are in sync
        INVALID_REPLICA_ASSIGNMENT: only brokers [4] have everything that was acknowledged, and none of them would be left; wait until others are in sync
    "#]]);
    // Once another one is in sync it can be taken back.
    world.apply(&joins(1, 900, 1));
    let beat = world.beat(1, false);
    world.apply(&beat);
    world.asks_for(&[4, 1]).tell(&cancel());
    world.expect(expect![[r#"
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (4,5,1,2,3 adding 4,5 removing 1,2,3 isr 4,1 led by 4 epochs 1/4)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2,3 isr 1 led by 1 epochs 2/5)
    "#]]);
}

#[test]
fn replicas_that_are_added_for_a_while_make_it_no_harder_to_write() {
    let mut world = five();
    let fence = world.fence(3);
    world.apply(&fence);
    // Two of three are enough, and two of six.
    world.tell(&to(&[3, 4, 5]));
    let fence = world.fence(2);
    world.tell(&fence);
    // One of one is enough: who was eligible for two isn't any more.
    world.tell(&to(&[1]));
    world.expect(expect![[r#"
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (3,4,5,1,2 adding 4,5 removing 1,2 isr 1,2 led by 1 epochs 0/2)
        NONE
            Broker 2 epoch 8 fenced true
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (3,4,5,1,2 adding 4,5 removing 1,2 isr 1 elr 2 led by 1 epochs 0/3)
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1 led by 1 epochs 1/4)
    "#]]);
}

#[test]
fn what_cant_be_done_is_refused() {
    let mut world = five();
    let same_factor = |replicas: &[i32]| match to(replicas) {
        AdminCommand::Reassign { partitions, .. } => AdminCommand::Reassign {
            partitions,
            factor_may_change: false,
        },
        other => other,
    };
    let twice = match to(&[4]) {
        AdminCommand::Reassign { mut partitions, .. } => {
            partitions.extend(partitions.clone());
            AdminCommand::Reassign {
                partitions,
                factor_may_change: true,
            }
        }
        other => other,
    };
    world
        .tell(&to_partition("u", 0, Some(&[1])))
        .tell(&to_partition("t", 1, Some(&[1])))
        .tell(&to_partition("t", -1, None))
        .tell(&to(&[]))
        .tell(&to(&[1, 9]))
        .tell(&to(&[1, -1]))
        .tell(&to(&[1, 2, 1]))
        .tell(&twice)
        .tell(&same_factor(&[4, 5]))
        .tell(&same_factor(&[3, 4, 5]))
        .tell(&same_factor(&[4, 5]));
    world.expect(expect![[r#"
        UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'u'
        UNKNOWN_TOPIC_OR_PARTITION: there is no such partition 1
        UNKNOWN_TOPIC_OR_PARTITION: there is no such partition -1
        INVALID_REPLICA_ASSIGNMENT: an assignment without replicas; name at least one broker for each partition
        INVALID_REPLICA_ASSIGNMENT: the assignment names broker 9, which isn't registered
        INVALID_REPLICA_ASSIGNMENT: the assignment names broker -1, which isn't registered
        INVALID_REPLICA_ASSIGNMENT: the assignment names broker 1 twice for one partition
        INVALID_REQUEST: the partition comes twice in the request; name it once
        INVALID_REQUEST: the partition comes twice in the request; name it once
        INVALID_REPLICATION_FACTOR: the partition has 3 replicas and would have 2; name as many, or allow that their number changes
        NONE
            Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (3,4,5,1,2 adding 4,5 removing 1,2 isr 1,2,3 led by 1 epochs 0/1)
        INVALID_REPLICATION_FACTOR: the partition has 3 replicas and would have 2; name as many, or allow that their number changes
    "#]]);
}

#[test]
fn a_replica_that_goes_and_comes_back_is_not_counted_by_what_it_said_before() {
    let mut world = five();
    let before = world.partition().leader_epoch;
    world.apply(&to(&[1, 2]));
    let without = world.partition().leader_epoch;
    world.apply(&to(&[1, 2, 3]));
    assert!(without > before);
    let partition = world.partition();
    assert_eq!(partition.isr, brokers(&[1, 2]));
    assert_eq!(partition.adding, brokers(&[3]));
}

#[test]
fn partitions_that_come_later_have_as_many_replicas_as_the_topic_is_to_have() {
    let mut world = five();
    world.apply(&to(&[1, 2, 4, 5]));
    world.apply(&AdminCommand::CreatePartitions {
        topics: vec![("t".to_owned(), 2, None)],
        validate_only: false,
    });
    let partitions = &world.image.topics[&id(1)].partitions;
    assert_eq!(partitions[0].replicas.len(), 5);
    assert_eq!(partitions[1].replicas.len(), 4);
}
