//! CreateTopics, DeleteTopics, CreatePartitions. Codes were compared with Kafka 4.4.

use expect_test::expect;

use super::*;

#[test]
fn a_topic_is_made_as_asked_or_by_default() {
    let mut world = World::with_brokers(4);
    world.settings.num_partitions = 5;
    world
        .tell(&create(&[
            topic("one", 1),
            NewTopic {
                partitions: -1,
                replication_factor: -1,
                ..topic("default", 2)
            },
            NewTopic {
                partitions: 2,
                replication_factor: 4,
                ..topic("wide", 3)
            },
            NewTopic {
                internal: true,
                ..topic("__consumer_offsets", 4)
            },
            assigned("by-hand", 5, &[(1, &[4, 2]), (0, &[2, 3])]),
            with_config(
                "tuned",
                6,
                "cleanup.policy",
                Some(" compact , delete,compact "),
            ),
        ]))
        .expect(expect![[r#"
            NONE one [(2 led by 2)]
            NONE default [(3,4,1 led by 3) (4,1,2 led by 4) (1,2,3 led by 1) (2,3,4 led by 2) (3,1,2 led by 3)]
            NONE wide [(4,1,2,3 led by 4) (1,2,3,4 led by 1)]
            NONE __consumer_offsets internal [(1 led by 1)]
            NONE by-hand [(2,3 led by 2) (4,2 led by 4)]
            NONE tuned [(3 led by 3)] {"cleanup.policy": "compact,delete"}
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAQ), tenant: Tenant(0), name: "one" }
                Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (2 led by 2)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAg), tenant: Tenant(0), name: "default" }
                Partition BwcHBwcHBwcHBwcHBwcHAg 0 (3,4,1 led by 3)
                Partition BwcHBwcHBwcHBwcHBwcHAg 1 (4,1,2 led by 4)
                Partition BwcHBwcHBwcHBwcHBwcHAg 2 (1,2,3 led by 1)
                Partition BwcHBwcHBwcHBwcHBwcHAg 3 (2,3,4 led by 2)
                Partition BwcHBwcHBwcHBwcHBwcHAg 4 (3,1,2 led by 3)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAw), tenant: Tenant(0), name: "wide" }
                Partition BwcHBwcHBwcHBwcHBwcHAw 0 (4,1,2,3 led by 4)
                Partition BwcHBwcHBwcHBwcHBwcHAw 1 (1,2,3,4 led by 1)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHBA), tenant: Tenant(0), name: "__consumer_offsets" }
                Partition BwcHBwcHBwcHBwcHBwcHBA 0 (1 led by 1)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHBQ), tenant: Tenant(0), name: "by-hand" }
                Partition BwcHBwcHBwcHBwcHBwcHBQ 0 (2,3 led by 2)
                Partition BwcHBwcHBwcHBwcHBwcHBQ 1 (4,2 led by 4)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHBg), tenant: Tenant(0), name: "tuned" }
                Partition BwcHBwcHBwcHBwcHBwcHBg 0 (3 led by 3)
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHBg)), key: "cleanup.policy", value: Some("compact,delete") }
        "#]]);
}

#[test]
fn the_default_replication_factor_follows_the_registered_brokers_up_to_three() {
    let made = |registered: i32, set: Option<i16>| {
        let mut world = World::with_brokers(registered);
        world.settings.replication_factor = set;
        world.apply(&create(&[NewTopic {
            replication_factor: -1,
            ..topic("t", 1)
        }]));
        world
            .image
            .topic("t")
            .map(|t| t.partitions[0].replicas.len())
    };
    assert_eq!(
        [1, 2, 3, 4].map(|n| made(n, None)),
        [Some(1), Some(2), Some(3), Some(3)]
    );
    assert_eq!(made(4, Some(2)), Some(2));
    assert_eq!(made(1, Some(2)), None);
}

#[test]
fn replicas_and_leaders_are_spread_evenly() {
    let mut world = World::with_brokers(5);
    world.apply(&create(&[NewTopic {
        partitions: 20,
        replication_factor: 3,
        ..topic("t", 3)
    }]));
    let mut led = BTreeMap::new();
    let mut held = BTreeMap::new();
    let mut pairs = BTreeMap::new();
    for p in &world.image.topic("t").unwrap().partitions {
        *led.entry(p.replicas[0]).or_insert(0) += 1;
        *pairs.entry((p.replicas[0], p.replicas[1])).or_insert(0) += 1;
        for b in &p.replicas {
            *held.entry(*b).or_insert(0) += 1;
        }
    }
    assert!(led.values().all(|n| *n == 4), "{led:?}");
    assert!(held.values().all(|n| *n == 12), "{held:?}");
    // A leader's load falls on each of the others once.
    assert!(pairs.len() == 20, "{pairs:?}");
}

#[test]
fn a_bad_topic_is_refused_and_its_neighbours_are_made() {
    let mut world = World::with_brokers(1);
    world.apply(&create(&[topic("there", 1), topic("a.b", 2)]));
    world
        .tell(&create(&[
            topic("there", 10),
            topic("good", 11),
            topic("a_b", 12),
            topic("x.y_z", 13),
            topic("x_y.z", 14),
            topic("twice", 15),
            topic("twice", 16),
            topic("", 17),
            topic(".", 18),
            topic("..", 19),
            topic("bad name", 20),
            topic("naïve", 21),
            topic(&"n".repeat(249), 22),
            topic(&"n".repeat(250), 23),
            topic("__cluster_metadata", 24),
            NewTopic {
                partitions: 0,
                ..topic("p0", 25)
            },
            NewTopic {
                partitions: -2,
                ..topic("p-2", 26)
            },
            NewTopic {
                replication_factor: 0,
                ..topic("r0", 27)
            },
            NewTopic {
                replication_factor: -2,
                ..topic("r-2", 28)
            },
            NewTopic {
                replication_factor: 2,
                ..topic("r2", 29)
            },
            NewTopic {
                partitions: 0,
                replication_factor: 0,
                ..topic("both", 30)
            },
        ]))
        .expect(expect![[r#"
            TOPIC_ALREADY_EXISTS: topic 'there' already exists
            NONE good [(1 led by 1)]
            INVALID_TOPIC_EXCEPTION: topic 'a_b' collides with 'a.b': names that differ only in . and _ are one in metrics; choose another name
            NONE x.y_z [(1 led by 1)]
            INVALID_TOPIC_EXCEPTION: topic 'x_y.z' collides with 'x.y_z': names that differ only in . and _ are one in metrics; choose another name
            INVALID_REQUEST: topic 'twice' comes twice in the request; name it once
            INVALID_REQUEST: topic 'twice' comes twice in the request; name it once
            INVALID_TOPIC_EXCEPTION: topic name is empty; use 1 to 249 of a-z A-Z 0-9 . _ -
            INVALID_TOPIC_EXCEPTION: topic name '.' is a folder's own name; use 1 to 249 of a-z A-Z 0-9 . _ -
            INVALID_TOPIC_EXCEPTION: topic name '..' is a folder's own name; use 1 to 249 of a-z A-Z 0-9 . _ -
            INVALID_TOPIC_EXCEPTION: topic name 'bad name' has the character ' '; use 1 to 249 of a-z A-Z 0-9 . _ -
            INVALID_TOPIC_EXCEPTION: topic name 'naïve' has the character 'ï'; use 1 to 249 of a-z A-Z 0-9 . _ -
            NONE nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn [(1 led by 1)]
            INVALID_TOPIC_EXCEPTION: topic name of 250 bytes is too long; use 1 to 249 of a-z A-Z 0-9 . _ -
            INVALID_REQUEST: __cluster_metadata is the cluster's own log; choose another name
            INVALID_PARTITIONS: 0 partitions; give 1 or more, or -1 for the default
            INVALID_PARTITIONS: -2 partitions; give 1 or more, or -1 for the default
            INVALID_REPLICATION_FACTOR: replication factor 0; give 1 or more, or -1 for the default
            INVALID_REPLICATION_FACTOR: replication factor -2; give 1 or more, or -1 for the default
            INVALID_REPLICATION_FACTOR: replication factor 2 needs as many brokers, 1 are registered; ask for fewer replicas or start more brokers
            INVALID_REPLICATION_FACTOR: replication factor 0; give 1 or more, or -1 for the default
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHCw), tenant: Tenant(0), name: "good" }
                Partition BwcHBwcHBwcHBwcHBwcHCw 0 (1 led by 1)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHDQ), tenant: Tenant(0), name: "x.y_z" }
                Partition BwcHBwcHBwcHBwcHBwcHDQ 0 (1 led by 1)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHFg), tenant: Tenant(0), name: "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" }
                Partition BwcHBwcHBwcHBwcHBwcHFg 0 (1 led by 1)
        "#]]);
}

#[test]
fn names_with_many_dots_collide_too() {
    let mut world = World::with_brokers(1);
    world.apply(&create(&[topic("a.b.c.d.e.f.g.h.i.j", 1)]));
    world
        .tell(&create(&[
            topic("a_b.c.d.e.f.g.h.i.j", 2),
            topic("a.b.c.d.e.f.g.h.i.k", 3),
            topic("a.b.c.d.e.f.g.h_i.k", 4),
        ]))
        .expect(expect![[r#"
            INVALID_TOPIC_EXCEPTION: topic 'a_b.c.d.e.f.g.h.i.j' collides with 'a.b.c.d.e.f.g.h.i.j': names that differ only in . and _ are one in metrics; choose another name
            NONE a.b.c.d.e.f.g.h.i.k [(1 led by 1)]
            INVALID_TOPIC_EXCEPTION: topic 'a.b.c.d.e.f.g.h_i.k' collides with 'a.b.c.d.e.f.g.h.i.k': names that differ only in . and _ are one in metrics; choose another name
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAw), tenant: Tenant(0), name: "a.b.c.d.e.f.g.h.i.k" }
                Partition BwcHBwcHBwcHBwcHBwcHAw 0 (1 led by 1)
        "#]]);
}

#[test]
fn configs_of_a_new_topic_are_checked() {
    World::with_brokers(1)
        .tell(&create(&[
            with_config("unknown", 1, "retention.mss", Some("1")),
            with_config("range", 2, "segment.bytes", Some("1")),
            with_config("type", 3, "segment.bytes", Some("many")),
            with_config("null", 4, "segment.bytes", None),
            with_config("policy", 5, "cleanup.policy", Some("keep")),
            with_config("tiered", 6, "remote.storage.enable", Some("true")),
            with_config("long", 7, "retention.ms", Some(&"1".repeat(40_000))),
            NewTopic {
                configs: vec![
                    ("min.compaction.lag.ms".to_owned(), Some("5".to_owned())),
                    ("max.compaction.lag.ms".to_owned(), Some("4".to_owned())),
                ],
                ..topic("lags", 8)
            },
            with_config("fine", 9, "segment.bytes", Some(" 1048576 ")),
        ]))
        .expect(expect![[r#"
            INVALID_CONFIG: retention.mss = 1: there is no such topic key; did you mean retention.ms?
            INVALID_CONFIG: segment.bytes = 1: out of range; give a 32-bit number, 1048576 or more (default 1073741824)
            INVALID_CONFIG: segment.bytes = many: not a whole number; give a 32-bit number, 1048576 or more (default 1073741824)
            INVALID_CONFIG: segment.bytes has no value; give one, or leave the key out
            INVALID_CONFIG: cleanup.policy = keep: keep is not one of the accepted values; give a comma-separated list of compact, delete (default delete)
            INVALID_CONFIG: remote.storage.enable = true: there is no tiered storage yet; give false (default false)
            INVALID_CONFIG: a key of 12 bytes with a value of 40000; the most is 32767 each
            INVALID_CONFIG: min.compaction.lag.ms 5 is more than max.compaction.lag.ms 4; lower the one or raise the other
            NONE fine [(1 led by 1)] {"segment.bytes": "1048576"}
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHCQ), tenant: Tenant(0), name: "fine" }
                Partition BwcHBwcHBwcHBwcHBwcHCQ 0 (1 led by 1)
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHCQ)), key: "segment.bytes", value: Some("1048576") }
        "#]]);
}

#[test]
fn an_assignment_must_be_whole_and_even() {
    World::with_brokers(2)
        .tell(&create(&[
            NewTopic {
                partitions: 1,
                ..assigned("counted", 1, &[(0, &[1])])
            },
            NewTopic {
                replication_factor: 1,
                ..assigned("factored", 2, &[(0, &[1])])
            },
            assigned("empty", 3, &[(0, &[])]),
            assigned("unknown", 4, &[(0, &[7])]),
            assigned("double", 5, &[(0, &[1, 1])]),
            assigned("gap", 6, &[(0, &[1]), (2, &[1])]),
            assigned("negative", 7, &[(-1, &[1]), (0, &[1])]),
            assigned("repeated", 8, &[(0, &[1]), (0, &[2])]),
            assigned("uneven", 9, &[(0, &[1]), (1, &[1, 2])]),
        ]))
        .expect(expect![[r#"
            INVALID_REQUEST: 1 partitions and replication factor -1 together with an assignment; set both to -1, or leave the assignment out
            INVALID_REQUEST: -1 partitions and replication factor 1 together with an assignment; set both to -1, or leave the assignment out
            INVALID_REPLICA_ASSIGNMENT: an assignment without replicas; name at least one broker for each partition
            INVALID_REPLICA_ASSIGNMENT: the assignment names broker 7, which isn't registered
            INVALID_REPLICA_ASSIGNMENT: the assignment names broker 1 twice for one partition
            INVALID_REPLICA_ASSIGNMENT: the assignment goes from partition 1 to 2; number partitions from 0 without gaps
            INVALID_REPLICA_ASSIGNMENT: the assignment goes from partition 0 to -1; number partitions from 0 without gaps
            INVALID_REPLICA_ASSIGNMENT: partition 0 is assigned twice
            INVALID_REPLICA_ASSIGNMENT: the assignment gives a partition 2 replicas, but others have 1; give each the same number
        "#]]);
}

#[test]
fn a_dry_run_tells_all_and_makes_nothing() {
    let mut world = World::with_brokers(1);
    let before = world.image.position;
    world
        .tell(&AdminCommand::CreateTopics {
            topics: vec![
                NewTopic {
                    partitions: -1,
                    replication_factor: -1,
                    ..topic("dry", 1)
                },
                topic("bad name", 2),
            ],
            validate_only: true,
        })
        .expect(expect![[r#"
            NONE dry [(1 led by 1)]
            INVALID_TOPIC_EXCEPTION: topic name 'bad name' has the character ' '; use 1 to 249 of a-z A-Z 0-9 . _ -
        "#]]);
    assert_eq!(world.image.position, before);
}

#[test]
fn a_request_makes_only_so_many_partitions() {
    let mut world = World::with_brokers(1);
    world.settings.max_partitions_per_request = 3;
    world
        .tell(&create(&[
            NewTopic {
                partitions: 2,
                ..topic("a", 1)
            },
            NewTopic {
                partitions: i32::MAX,
                ..topic("b", 2)
            },
            topic("c", 3),
            topic("d", 4),
        ]))
        .tell(&grow(&[("a", i32::MAX, None)], false))
        .expect(expect![[r#"
            NONE a [(1 led by 1) (1 led by 1)]
            POLICY_VIOLATION: 2147483647 partitions are more than the 1 that are left of this request's 3; make them in several requests
            NONE c [(1 led by 1)]
            POLICY_VIOLATION: 1 partitions are more than the 0 that are left of this request's 3; make them in several requests
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAQ), tenant: Tenant(0), name: "a" }
                Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1 led by 1)
                Partition BwcHBwcHBwcHBwcHBwcHAQ 1 (1 led by 1)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAw), tenant: Tenant(0), name: "c" }
                Partition BwcHBwcHBwcHBwcHBwcHAw 0 (1 led by 1)
            POLICY_VIOLATION: one request can make 3 partitions, and 2147483645 are asked for; make fewer at once
        "#]]);
}

#[test]
fn an_id_that_is_taken_makes_no_topic() {
    let mut world = World::with_brokers(1);
    world.apply(&create(&[topic("a", 1)]));
    world
        .tell(&create(&[
            topic("b", 1),
            topic("c", 2),
            topic("d", 2),
            NewTopic {
                id: TopicId::ZERO,
                ..topic("e", 0)
            },
        ]))
        .expect(expect![[r#"
            UNKNOWN_SERVER_ERROR: the id BwcHBwcHBwcHBwcHBwcHAQ drawn for topic 'b' is taken; try again
            NONE c [(1 led by 1)]
            UNKNOWN_SERVER_ERROR: the id BwcHBwcHBwcHBwcHBwcHAg drawn for topic 'd' is taken; try again
            UNKNOWN_SERVER_ERROR: the id AAAAAAAAAAAAAAAAAAAAAA drawn for topic 'e' is taken; try again
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAg), tenant: Tenant(0), name: "c" }
                Partition BwcHBwcHBwcHBwcHBwcHAg 0 (1 led by 1)
        "#]]);
}

#[test]
fn fenced_brokers_lead_nothing_new() {
    let mut world = World::with_brokers(1);
    for fenced in [2, 3] {
        let broker = BrokerImage {
            fenced: true,
            ..broker(fenced)
        };
        world.apply(&AdminCommand::Register {
            broker,
            cluster_id: String::new(),
        });
    }
    world
        .tell(&create(&[
            NewTopic {
                partitions: 2,
                ..topic("one", 1)
            },
            NewTopic {
                replication_factor: 3,
                ..topic("three", 5)
            },
            NewTopic {
                replication_factor: 3,
                ..topic("all", 2)
            },
            assigned("by-hand", 3, &[(0, &[2, 1])]),
            assigned("lost", 4, &[(0, &[2, 3])]),
        ]))
        .expect(expect![[r#"
            NONE one [(1 led by 1) (1 led by 1)]
            NONE three [(3,1,2 isr 1 led by 1)]
            NONE all [(3,1,2 isr 1 led by 1)]
            NONE by-hand [(2,1 isr 1 led by 1)]
            INVALID_REPLICA_ASSIGNMENT: all brokers of the assignment [BrokerId(2), BrokerId(3)] are fenced; name one that is up
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAQ), tenant: Tenant(0), name: "one" }
                Partition BwcHBwcHBwcHBwcHBwcHAQ 0 (1 led by 1)
                Partition BwcHBwcHBwcHBwcHBwcHAQ 1 (1 led by 1)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHBQ), tenant: Tenant(0), name: "three" }
                Partition BwcHBwcHBwcHBwcHBwcHBQ 0 (3,1,2 isr 1 led by 1)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAg), tenant: Tenant(0), name: "all" }
                Partition BwcHBwcHBwcHBwcHBwcHAg 0 (3,1,2 isr 1 led by 1)
                Topic { id: TopicId(BwcHBwcHBwcHBwcHBwcHAw), tenant: Tenant(0), name: "by-hand" }
                Partition BwcHBwcHBwcHBwcHBwcHAw 0 (2,1 isr 1 led by 1)
        "#]]);
    let broker = BrokerImage {
        fenced: true,
        ..broker(1)
    };
    world.apply(&AdminCommand::Register {
        broker,
        cluster_id: String::new(),
    });
    world
        .tell(&create(&[topic("nobody", 9)]))
        .expect(expect![[r#"
            INVALID_REPLICATION_FACTOR: all registered brokers are fenced; wait until one is back
        "#]]);
}

#[test]
fn topics_are_deleted_by_name_or_id_once() {
    let mut world = World::with_brokers(1);
    world.apply(&create(&[
        topic("a", 1),
        topic("b", 2),
        topic("c", 3),
        NewTopic {
            internal: true,
            ..topic("__consumer_offsets", 4)
        },
    ]));
    let name = |n: &str| TopicRef::Name(n.to_owned());
    world
        .tell(&AdminCommand::DeleteTopics {
            topics: vec![
                name("a"),
                name("ghost"),
                TopicRef::Id(id(77)),
                TopicRef::Id(TopicId::ZERO),
                name("b"),
                TopicRef::Id(id(2)),
                name("c"),
                name("c"),
                name("twice"),
                name("twice"),
                name("__consumer_offsets"),
            ],
        })
        .expect(expect![[r#"
            NONE a [(1 led by 1)]
            UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'ghost'
            UNKNOWN_TOPIC_ID: there is no topic with id BwcHBwcHBwcHBwcHBwcHTQ; it may have been deleted
            INVALID_REQUEST: neither a topic's name nor its id was given
            INVALID_REQUEST: the topic comes twice in the request; name it once, by name or by id
            INVALID_REQUEST: the topic comes twice in the request; name it once, by name or by id
            INVALID_REQUEST: the topic comes twice in the request; name it once, by name or by id
            INVALID_REQUEST: the topic comes twice in the request; name it once, by name or by id
            INVALID_REQUEST: the topic comes twice in the request; name it once, by name or by id
            INVALID_REQUEST: the topic comes twice in the request; name it once, by name or by id
            NONE __consumer_offsets internal [(1 led by 1)]
                TopicRemoved(TopicId(BwcHBwcHBwcHBwcHBwcHAQ))
                TopicRemoved(TopicId(BwcHBwcHBwcHBwcHBwcHBA))
        "#]]);
    assert!(world.image.topic("a").is_none() && world.image.topic("b").is_some());
    world
        .settings
        .node_configs
        .insert("delete.topic.enable".to_owned(), "false".to_owned());
    world
        .tell(&AdminCommand::DeleteTopics {
            topics: vec![name("b")],
        })
        .expect(expect![[r#"
            TOPIC_DELETION_DISABLED: delete.topic.enable is false on this cluster; set it to true to delete topics
        "#]]);
}

#[test]
fn a_topic_that_is_made_again_has_nothing_of_the_one_before() {
    let mut world = World::with_brokers(1);
    world.apply(&create(&[with_config("a", 1, "retention.ms", Some("5"))]));
    world.apply(&AdminCommand::DeleteTopics {
        topics: vec![TopicRef::Id(id(1))],
    });
    world.apply(&create(&[topic("a", 2)]));
    let made = world.image.topic("a").unwrap();
    assert_eq!(
        (made.id, made.configs.len(), world.image.topics.len()),
        (id(2), 0, 1)
    );
}

/// Topic, new total, replicas of each new partition.
type Growth<'a> = (&'a str, i32, Option<&'a [&'a [i32]]>);

fn grow(topics: &[Growth<'_>], validate_only: bool) -> AdminCommand {
    AdminCommand::CreatePartitions {
        topics: topics
            .iter()
            .map(|(name, total, a)| {
                (
                    (*name).to_owned(),
                    *total,
                    a.map(|a| a.iter().map(|b| brokers(b)).collect()),
                )
            })
            .collect(),
        validate_only,
    }
}

#[test]
fn partitions_only_grow() {
    let mut world = World::with_brokers(3);
    world.apply(&create(&[
        NewTopic {
            partitions: 2,
            replication_factor: 2,
            ..topic("t", 1)
        },
        topic("u", 2),
    ]));
    world
        .tell(&grow(
            &[
                ("t", 2, None),
                ("u", 0, None),
                ("ghost", 3, None),
                ("bad name", 3, None),
            ],
            false,
        ))
        .tell(&grow(&[("t", 1, None), ("u", -1, None)], false))
        .tell(&grow(
            &[("t", 4, None), ("u", 2, None), ("u", 3, None)],
            true,
        ))
        .tell(&grow(&[("t", 4, Some(&[&[1, 2]]))], false))
        .tell(&grow(&[("t", 3, Some(&[&[1]]))], false))
        .tell(&grow(&[("t", 3, Some(&[&[1, 9]]))], false))
        .tell(&grow(&[("t", 3, Some(&[&[3, 1]])), ("u", 3, None)], false))
        .expect(expect![[r#"
            INVALID_PARTITIONS: topic 't' has 2 partitions; ask for more than that, fewer is not possible
            INVALID_PARTITIONS: topic 'u' has 1 partitions; ask for more than that, fewer is not possible
            UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'ghost'
            UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'bad name'
            INVALID_PARTITIONS: topic 't' has 2 partitions; ask for more than that, fewer is not possible
            INVALID_PARTITIONS: topic 'u' has 1 partitions; ask for more than that, fewer is not possible
            NONE t [(2,3 led by 2) (3,1 led by 3) (1,2 led by 1) (2,1 led by 2)]
            INVALID_REQUEST: topic 'u' comes twice in the request; name it once
            INVALID_REQUEST: topic 'u' comes twice in the request; name it once
            INVALID_REPLICA_ASSIGNMENT: 2 partitions are to be added but 1 assignments are given; give one for each
            INVALID_REPLICA_ASSIGNMENT: the assignment gives a partition 1 replicas, but others have 2; give each the same number
            INVALID_REPLICA_ASSIGNMENT: the assignment names broker 9, which isn't registered
            NONE t [(2,3 led by 2) (3,1 led by 3) (3,1 led by 3)]
            NONE u [(3 led by 3) (1 led by 1) (2 led by 2)]
                Partition BwcHBwcHBwcHBwcHBwcHAQ 2 (3,1 led by 3)
                Partition BwcHBwcHBwcHBwcHBwcHAg 1 (1 led by 1)
                Partition BwcHBwcHBwcHBwcHBwcHAg 2 (2 led by 2)
        "#]]);
    assert_eq!(world.image.topic("t").unwrap().partitions.len(), 3);
}
