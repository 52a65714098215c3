//! Nodes, features, producer ids. Codes were compared with Kafka 4.4.

use expect_test::expect;

use super::*;

#[test]
fn a_cluster_forms_and_a_node_that_restarts_takes_new_epochs() {
    World::empty()
        .tell(&register(1))
        .tell(&create(&[topic("a", 1)]))
        .tell(&register(1))
        .expect(expect![[r#"
            Registered { epoch: 0 }
                Cluster { cluster_id: "Clusterid-0123456789AA" }
                Feature { name: "group.version", level: 1 }
                Feature { name: "metadata.version", level: 33 }
                Feature { name: "share.version", level: 1 }
                Feature { name: "streams.version", level: 1 }
                Feature { name: "transaction.version", level: 2 }
                Broker 1 epoch 0 fenced false
            NONE a [(1 led by 1)]
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAQ), tenant: Tenant(0), name: "a" }
                Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1 led by 1)
            Registered { epoch: 9 }
                Broker 1 epoch 9 fenced false
                Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1 led by 1 epochs 1/1)
        "#]]);
}

#[test]
fn a_node_that_left_and_comes_back_is_not_taken_for_the_one_before() {
    let mut world = World::with_brokers(1);
    let epoch = world.image.brokers[&BrokerId(1)].epoch;
    world.apply(&AdminCommand::Unregister {
        broker: BrokerId(1),
    });
    world.apply(&register(1));
    assert!(world.image.brokers[&BrokerId(1)].epoch > epoch);
}

#[test]
fn an_unregistered_node_leads_nothing_any_more() {
    let mut world = World::with_brokers(3);
    world.apply(&create(&[
        assigned("two", 1, &[(0, &[1, 2]), (1, &[2, 1])]),
        assigned("alone", 2, &[(0, &[1])]),
        assigned("elsewhere", 3, &[(0, &[3])]),
    ]));
    world
        .tell(&AdminCommand::Unregister {
            broker: BrokerId(9),
        })
        .tell(&AdminCommand::Unregister {
            broker: BrokerId(1),
        })
        .tell(&register(1))
        .expect(expect![[r#"
            BROKER_ID_NOT_REGISTERED: no broker 9 is registered
            NONE
                BrokerRemoved(BrokerId(1))
                Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1,2 isr 2 elr 1 led by 2 epochs 1/1)
                Partition BwcHBwcHBwcHBwcHBwcHAQ 1 (2,1 isr 2 elr 1 led by 2 epochs 0/1)
                Partition BwcHBwcHBwcHBwcHBwcHAg 0 (1 led by - epochs 1/1)
            Registered { epoch: 20 }
                Broker 1 epoch 20 fenced false
                Partition BwcHBwcHBwcHBwcHBwcHAg 0 (1 led by 1 epochs 2/2)
        "#]]);
}

#[test]
fn features_change_together_or_not_at_all() {
    let update = |features: &[(&str, i16)]| AdminCommand::UpdateFeatures {
        features: features
            .iter()
            .map(|(n, l)| ((*n).to_owned(), *l))
            .collect(),
        validate_only: false,
    };
    World::with_brokers(1)
        .tell(&update(&[("group.version", 0)]))
        .tell(&update(&[("group.version", 1), ("foo", 1)]))
        .tell(&update(&[("group.version", 9)]))
        .tell(&update(&[("metadata.version", 7)]))
        .tell(&update(&[("group.version", 1), ("metadata.version", 33)]))
        .tell(&update(&[("group.version", 1), ("group.version", 0)]))
        .expect(expect![[r#"
            NONE
                Feature { name: "group.version", level: 0 }
            INVALID_UPDATE_VERSION: nothing was changed, since feature foo can't be changed as asked
            INVALID_UPDATE_VERSION: there is no feature foo; there are group.version, metadata.version, share.version, streams.version, transaction.version
            INVALID_UPDATE_VERSION: feature group.version works at levels 0 to 1, not at 9
            INVALID_UPDATE_VERSION: metadata.version 33 can't go back to 7: records of the newer level are already stored
            NONE
            NONE
                Feature { name: "group.version", level: 1 }
            INVALID_REQUEST: feature group.version comes twice in the request; name it once
            INVALID_REQUEST: feature group.version comes twice in the request; name it once
        "#]]);
}

#[test]
fn no_producer_id_is_given_twice() {
    let mut world = World::with_brokers(1);
    world
        .tell(&AdminCommand::AllocateProducerIds { count: 1000 })
        .tell(&AdminCommand::AllocateProducerIds { count: 5 })
        .tell(&AdminCommand::AllocateProducerIds { count: -3 })
        .expect(expect![[r#"
            ProducerIds { first: 0, count: 1000 }
                ProducerIds { next: 1000 }
            ProducerIds { first: 1000, count: 5 }
                ProducerIds { next: 1005 }
            ProducerIds { first: 1005, count: 1 }
                ProducerIds { next: 1006 }
        "#]]);
    world.image.next_producer_id = i64::MAX - 1;
    world
        .tell(&AdminCommand::AllocateProducerIds { count: 10 })
        .expect(expect![[r#"
            ProducerIds { first: 9223372036854775806, count: 1 }
                ProducerIds { next: 9223372036854775807 }
        "#]]);
}
