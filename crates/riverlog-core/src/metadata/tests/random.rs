//! Random histories of commands: the log alone gives the image back, and the image stays consistent.

use proptest::prelude::*;

use super::*;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => proptest::sample::select(vec!["a", "b", "a.b", "a_b", "c", "__consumer_offsets"]).prop_map(str::to_owned),
        1 => proptest::sample::select(vec!["", "..", "bad name", "__cluster_metadata"]).prop_map(str::to_owned),
    ]
}

fn broker_ids() -> impl Strategy<Value = Vec<BrokerId>> {
    proptest::collection::vec((0..5).prop_map(BrokerId), 0..4)
}

fn setting() -> impl Strategy<Value = (String, Option<String>)> {
    let keys = vec![
        "retention.ms",
        "cleanup.policy",
        "preallocate",
        "log.retention.ms",
        "consumer.session.timeout.ms",
        "nonsense",
    ];
    let values = vec!["1", "50000", "compact", "delete,compact", "true", "-7", ""];
    (
        proptest::sample::select(keys).prop_map(str::to_owned),
        proptest::option::weighted(
            0.9,
            proptest::sample::select(values).prop_map(str::to_owned),
        ),
    )
}

fn new_topic() -> impl Strategy<Value = NewTopic> {
    let assignments = proptest::collection::vec(((-1..3), broker_ids()), 0..3);
    (
        name(),
        -2..5_i32,
        -2..5_i16,
        proptest::option::weighted(0.3, assignments),
        proptest::collection::vec(setting(), 0..2),
        any::<[u8; 16]>(),
    )
        .prop_map(
            |(name, partitions, replication_factor, assignments, configs, id)| NewTopic {
                name,
                partitions: if assignments.is_some() {
                    -1
                } else {
                    partitions
                },
                replication_factor: if assignments.is_some() {
                    -1
                } else {
                    replication_factor
                },
                assignments: assignments.unwrap_or_default(),
                configs,
                id: TopicId(id),
                internal: false,
            },
        )
}

fn change() -> impl Strategy<Value = ConfigChange> {
    (0..4, setting()).prop_map(|(kind, (key, value))| match kind {
        0 => ConfigChange::Delete(key),
        1 => ConfigChange::Append(key, value),
        2 => ConfigChange::Subtract(key, value),
        _ => ConfigChange::Set(key, value),
    })
}

fn resource() -> impl Strategy<Value = ConfigResource> {
    prop_oneof![
        4 => name().prop_map(ConfigResource::Topic),
        2 => proptest::sample::select(vec!["", "1", "2", "9", "x"]).prop_map(|n| ConfigResource::Broker(n.to_owned())),
        2 => proptest::sample::select(vec!["", "g"]).prop_map(|n| ConfigResource::Group(n.to_owned())),
        1 => Just(ConfigResource::Other(8, String::new())),
    ]
}

fn command() -> impl Strategy<Value = AdminCommand> {
    use proptest::collection::vec;
    prop_oneof![
        2 => (1..5, any::<bool>()).prop_map(|(id, fenced)| AdminCommand::Register {
            broker: BrokerImage { fenced, ..broker(id) },
            cluster_id: "c".to_owned(),
        }),
        1 => (0..6).prop_map(|id| AdminCommand::Unregister { broker: BrokerId(id) }),
        1 => (vec((name(), -1..4), 0..3), any::<bool>()).prop_map(|(partitions, unclean)| AdminCommand::ElectLeaders { partitions, unclean }),
        4 => (vec((name(), -1..4, proptest::option::weighted(0.8, broker_ids())), 0..3), any::<bool>())
            .prop_map(|(partitions, factor_may_change)| AdminCommand::Reassign {
                partitions: partitions
                    .into_iter()
                    .map(|(topic, index, replicas)| Reassignment { topic, index, replicas })
                    .collect(),
                factor_may_change,
            }),
        6 => (vec(new_topic(), 0..4), any::<bool>()).prop_map(|(topics, validate_only)| AdminCommand::CreateTopics { topics, validate_only }),
        2 => vec(name().prop_map(TopicRef::Name), 0..3).prop_map(|topics| AdminCommand::DeleteTopics { topics }),
        2 => (vec((name(), -1..8, proptest::option::of(vec(broker_ids(), 0..3))), 0..3), any::<bool>())
            .prop_map(|(topics, validate_only)| AdminCommand::CreatePartitions { topics, validate_only }),
        4 => (vec((resource(), vec(change(), 0..3)), 0..3), any::<bool>(), any::<bool>())
            .prop_map(|(resources, replace, validate_only)| AdminCommand::AlterConfigs { resources, replace, validate_only }),
        1 => (vec((proptest::sample::select(vec!["group.version", "metadata.version", "x"]).prop_map(str::to_owned), -1..40_i16), 0..3), any::<bool>())
            .prop_map(|(features, validate_only)| AdminCommand::UpdateFeatures { features, validate_only }),
        1 => any::<i64>().prop_map(|count| AdminCommand::AllocateProducerIds { count }),
    ]
}

/// How many things a command asks for.
fn asked(command: &AdminCommand) -> Option<usize> {
    match command {
        AdminCommand::CreateTopics { topics, .. } => Some(topics.len()),
        AdminCommand::DeleteTopics { topics } => Some(topics.len()),
        AdminCommand::CreatePartitions { topics, .. } => Some(topics.len()),
        AdminCommand::AlterConfigs { resources, .. } => Some(resources.len()),
        AdminCommand::UpdateFeatures { features, .. } => Some(features.len()),
        AdminCommand::Unregister { .. } | AdminCommand::Fence { .. } => Some(1),
        AdminCommand::AlterPartitions { changes, .. } => Some(changes.len()),
        AdminCommand::ElectLeaders { partitions, .. } => Some(partitions.len()),
        AdminCommand::Reassign { partitions, .. } => Some(partitions.len()),
        AdminCommand::Heartbeat { .. } => None,
        AdminCommand::Register { .. } | AdminCommand::AllocateProducerIds { .. } => None,
    }
}

fn validate_only(command: &AdminCommand) -> bool {
    match command {
        AdminCommand::CreateTopics { validate_only, .. }
        | AdminCommand::CreatePartitions { validate_only, .. }
        | AdminCommand::AlterConfigs { validate_only, .. }
        | AdminCommand::UpdateFeatures { validate_only, .. } => *validate_only,
        _ => false,
    }
}

fn assert_consistent(image: &MetadataImage) {
    for ((tenant, name), id) in &image.names {
        let topic = &image.topics[id];
        assert_eq!((&topic.tenant, &topic.name), (tenant, name));
    }
    assert_eq!(image.names.len(), image.topics.len());
    let mut unified = std::collections::BTreeSet::new();
    for (id, topic) in &image.topics {
        assert_eq!(topic.id, *id);
        assert!(!topic.partitions.is_empty(), "{}", topic.name);
        assert!(
            unified.insert(topic.name.replace('.', "_")),
            "{} collides",
            topic.name
        );
        for p in &topic.partitions {
            assert!(!p.replicas.is_empty() && (!p.isr.is_empty() || p.leader.is_none()));
            assert!(
                p.elr
                    .iter()
                    .all(|b| p.replicas.contains(b) && !p.isr.contains(b))
            );
            let both = p.adding.iter().chain(&p.removing);
            assert!(both.clone().all(|b| p.replicas.contains(b)));
            assert!(p.adding.iter().all(|b| !p.removing.contains(b)));
            assert!(!p.target().is_empty() && !p.original().is_empty());
            assert!(!p.is_moving() || !p.target().iter().all(|b| p.isr.contains(b)));
            assert!(p.isr.iter().all(|b| p.replicas.contains(b)));
            if let Some(leader) = p.leader {
                assert!(p.isr.contains(&leader) && image.brokers.contains_key(&leader));
            }
        }
        for (key, value) in &topic.configs {
            assert_eq!(
                crate::config::check(crate::config::Scope::Topic, key, value),
                Ok(())
            );
        }
    }
    assert!(
        image
            .broker_configs
            .values()
            .chain(image.group_configs.values())
            .all(|c| !c.is_empty())
    );
}

fn same(a: &MetadataImage, b: &MetadataImage) {
    assert_eq!(format!("{a:#?}"), format!("{b:#?}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_log_alone_gives_the_image_back(commands in proptest::collection::vec(command(), 1..25)) {
        let mut world = World::with_brokers(3);
        let mut log: Vec<bytes::Bytes> = Vec::new();
        for id in 1..=3 {
            // What with_brokers() did.
            let mut before = World::with_brokers(id - 1);
            log.extend(before.apply(&register(id)).0.iter().map(MetadataRecord::encode));
        }
        let mut handed_out = 0;
        for command in &commands {
            let before = world.image.clone();
            let again = decide(&world.image, &world.settings, command, Now::default());
            let (records, answer) = world.apply(command);
            prop_assert_eq!(&again.0, &records, "deciding twice differs");
            prop_assert_eq!(&again.1, &answer);
            log.extend(records.iter().map(MetadataRecord::encode));
            prop_assert_eq!(world.image.position - before.position, records.len() as i64);
            prop_assert!(!validate_only(command) || records.is_empty());
            match &answer {
                AdminAnswer::Results(results) => {
                    prop_assert_eq!(Some(results.len()), asked(command));
                    for r in results {
                        prop_assert_eq!(r.error == ErrorCode::NONE, r.message.is_none());
                    }
                }
                AdminAnswer::Heartbeat { position, .. } => prop_assert_eq!(*position, before.position),
                AdminAnswer::ProducerIds { first, count } => {
                    prop_assert!(*first >= handed_out && *count >= 0);
                    handed_out = first + count;
                }
                AdminAnswer::Registered { epoch } => {
                    if let AdminCommand::Register { broker, .. } = command
                        && let Some(old) = before.brokers.get(&broker.id)
                    {
                        prop_assert!(*epoch > old.epoch);
                    }
                }
            }
            // Epochs never go back, and a change of leader is a new epoch.
            for (id, topic) in &before.topics {
                for (old, new) in topic.partitions.iter().zip(world.image.topics.get(id).map_or(&[][..], |t| &t.partitions)) {
                    prop_assert!(new.leader_epoch >= old.leader_epoch && new.partition_epoch >= old.partition_epoch);
                    prop_assert!(new.leader == old.leader || new.leader_epoch > old.leader_epoch);
                    prop_assert!(new == old || new.partition_epoch > old.partition_epoch);
                }
            }
            assert_consistent(&world.image);
        }

        let mut recovered = MetadataImage::default();
        for (at, bytes) in (1..).zip(&log) {
            let record = MetadataRecord::decode(bytes).unwrap().unwrap();
            recovered.apply(&record, Offset(at));
        }
        same(&recovered, &world.image);
    }
}

#[test]
fn an_image_takes_any_record_in_any_order() {
    let mut image = MetadataImage::default();
    let partition = PartitionImage {
        replicas: brokers(&[1]),
        isr: brokers(&[1]),
        leader: Some(BrokerId(1)),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: 0,
        elr: Vec::new(),
        adding: Vec::new(),
        removing: Vec::new(),
    };
    let part = |topic, index| MetadataRecord::Partition {
        topic,
        index,
        partition: partition.clone(),
    };
    let topic = |n, name: &str| MetadataRecord::Topic {
        id: id(n),
        tenant: Tenant::DEFAULT,
        name: name.to_owned(),
    };
    let records = [
        part(id(1), 0),
        MetadataRecord::TopicRemoved(id(1)),
        MetadataRecord::BrokerRemoved(BrokerId(1)),
        MetadataRecord::Config {
            resource: Resource::Topic(id(1)),
            key: "k".to_owned(),
            value: None,
        },
        MetadataRecord::Config {
            resource: Resource::Group("g".to_owned()),
            key: "k".to_owned(),
            value: None,
        },
        topic(1, "a"),
        part(id(1), 0),
        part(id(1), i32::MAX),
        part(id(1), 2),
        // A new name, which frees the old one; and a name taken over.
        topic(1, "b"),
        topic(2, "b"),
        MetadataRecord::TopicRemoved(id(1)),
        MetadataRecord::ProducerIds { next: 10 },
        MetadataRecord::ProducerIds { next: 5 },
    ];
    for (at, record) in (1..).zip(&records) {
        image.apply(record, Offset(at));
    }
    assert_eq!(image.position, Offset(records.len() as i64));
    assert_eq!(image.topic("b").map(|t| t.id), Some(id(2)));
    assert_eq!((image.topics.len(), image.names.len()), (1, 1));
    assert_eq!((image.next_producer_id, image.group_configs.len()), (10, 0));
}
