//! AlterConfigs. Codes were compared with Kafka 4.4.

use expect_test::expect;

use super::*;

fn set(key: &str, value: &str) -> ConfigChange {
    ConfigChange::Set(key.to_owned(), Some(value.to_owned()))
}

fn append(key: &str, value: &str) -> ConfigChange {
    ConfigChange::Append(key.to_owned(), Some(value.to_owned()))
}

fn subtract(key: &str, value: &str) -> ConfigChange {
    ConfigChange::Subtract(key.to_owned(), Some(value.to_owned()))
}

fn delete(key: &str) -> ConfigChange {
    ConfigChange::Delete(key.to_owned())
}

fn on_topic(name: &str) -> ConfigResource {
    ConfigResource::Topic(name.to_owned())
}

fn on_broker(name: &str) -> ConfigResource {
    ConfigResource::Broker(name.to_owned())
}

fn on_group(name: &str) -> ConfigResource {
    ConfigResource::Group(name.to_owned())
}

fn alter(resources: &[(ConfigResource, &[ConfigChange])]) -> AdminCommand {
    AdminCommand::AlterConfigs {
        resources: resources
            .iter()
            .map(|(r, c)| (r.clone(), c.to_vec()))
            .collect(),
        replace: false,
        validate_only: false,
    }
}

#[test]
fn a_topics_configs_change_one_by_one() {
    let mut world = World::with_brokers(1);
    world.apply(&create(&[topic("t", 1), topic("u", 2)]));
    let t = || on_topic("t");
    world
        .tell(&alter(&[(
            t(),
            &[set("retention.ms", "100"), set("preallocate", "TRUE")],
        )]))
        .tell(&alter(&[(
            t(),
            &[
                set("retention.ms", "100"),
                delete("preallocate"),
                delete("no.such.key"),
            ],
        )]))
        .tell(&alter(&[(t(), &[append("cleanup.policy", "compact")])]))
        .tell(&alter(&[(
            t(),
            &[append("cleanup.policy", "compact,delete")],
        )]))
        .tell(&alter(&[(
            t(),
            &[subtract("cleanup.policy", "compact,delete")],
        )]))
        .tell(&alter(&[(t(), &[subtract("cleanup.policy", "compact")])]))
        .tell(&alter(&[(t(), &[delete("cleanup.policy")])]))
        .expect(expect![[r#"
            NONE t [(1 led by 1)]
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHAQ)), key: "preallocate", value: Some("true") }
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHAQ)), key: "retention.ms", value: Some("100") }
            NONE t [(1 led by 1)] {"preallocate": "true", "retention.ms": "100"}
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHAQ)), key: "preallocate", value: None }
            NONE t [(1 led by 1)] {"retention.ms": "100"}
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHAQ)), key: "cleanup.policy", value: Some("delete,compact") }
            NONE t [(1 led by 1)] {"cleanup.policy": "delete,compact", "retention.ms": "100"}
            NONE t [(1 led by 1)] {"cleanup.policy": "delete,compact", "retention.ms": "100"}
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHAQ)), key: "cleanup.policy", value: Some("") }
            NONE t [(1 led by 1)] {"cleanup.policy": "", "retention.ms": "100"}
            NONE t [(1 led by 1)] {"cleanup.policy": "", "retention.ms": "100"}
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHAQ)), key: "cleanup.policy", value: None }
        "#]]);
}

#[test]
fn a_topics_configs_are_refused_one_resource_at_a_time() {
    let mut world = World::with_brokers(1);
    world.apply(&create(&[topic("t", 1), topic("u", 2)]));
    let mut try_on_t = |changes: &[ConfigChange]| {
        world.tell(&alter(&[(on_topic("t"), changes), (on_topic("u"), &[])]));
        let said = std::mem::take(&mut world.said);
        said.lines().next().unwrap_or_default().to_owned() + "\n"
    };
    let said = [
        try_on_t(&[set("retention.mss", "1")]),
        try_on_t(&[append("retention.mss", "1")]),
        try_on_t(&[set("retention.ms", "-5")]),
        try_on_t(&[ConfigChange::Set("retention.ms".to_owned(), None)]),
        try_on_t(&[ConfigChange::Append("cleanup.policy".to_owned(), None)]),
        try_on_t(&[append("retention.ms", "1")]),
        try_on_t(&[subtract("retention.ms", "1")]),
        try_on_t(&[append("cleanup.policy", "keep")]),
        try_on_t(&[set("retention.ms", "1"), delete("retention.ms")]),
        try_on_t(&[
            set("min.compaction.lag.ms", "9"),
            set("max.compaction.lag.ms", "8"),
        ]),
    ];
    expect![[r#"
        INVALID_CONFIG: retention.mss = 1: there is no such topic key; did you mean retention.ms?
        INVALID_CONFIG: retention.mss is no list; set it as a whole
        INVALID_CONFIG: retention.ms = -5: out of range; give a 64-bit number, -1 or more (default 604800000)
        INVALID_REQUEST: retention.ms has no value; give one, or delete the key
        INVALID_REQUEST: cleanup.policy has no value; give one, or delete the key
        INVALID_CONFIG: retention.ms is no list; set it as a whole
        INVALID_CONFIG: retention.ms is no list; set it as a whole
        INVALID_CONFIG: cleanup.policy = delete,keep: keep is not one of the accepted values; give a comma-separated list of compact, delete (default delete)
        INVALID_REQUEST: retention.ms comes twice for one resource; name it once
        INVALID_CONFIG: min.compaction.lag.ms 9 is more than max.compaction.lag.ms 8; lower the one or raise the other
    "#]].assert_eq(&said.concat());
}

#[test]
fn a_resource_must_be_there_and_have_configs() {
    let mut world = World::with_brokers(1);
    world.apply(&create(&[topic("t", 1)]));
    let change = [set("retention.ms", "1")];
    world
        .tell(&alter(&[
            (on_topic("ghost"), &change),
            (on_topic("bad name"), &change),
            (on_topic(""), &change),
            (on_broker("9"), &change),
            (on_broker("x"), &change),
            (on_broker("-1"), &change),
            (on_group(""), &change),
            (ConfigResource::Other(8, "1".to_owned()), &change),
            (on_topic("t"), &change),
            (on_topic("t"), &change),
        ]))
        .expect(expect![[r#"
            UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'ghost'
            INVALID_TOPIC_EXCEPTION: topic name 'bad name' has the character ' '; use 1 to 249 of a-z A-Z 0-9 . _ -
            INVALID_REQUEST: no topic is named, and topics have no common configs; name one
            BROKER_ID_NOT_REGISTERED: no broker 9 is registered
            INVALID_REQUEST: 'x' is no broker id; give a number, or nothing for all brokers
            INVALID_REQUEST: '-1' is no broker id; give a number, or nothing for all brokers
            INVALID_REQUEST: no group is named, and groups have no common configs; name one
            INVALID_REQUEST: resources of type 8 have no configs here; topics (2), brokers (4) and groups (32) have
            INVALID_REQUEST: the resource comes twice in the request; put its changes together
            INVALID_REQUEST: the resource comes twice in the request; put its changes together
        "#]]);
}

#[test]
fn broker_configs_are_set_for_one_or_all() {
    let mut world = World::with_brokers(1);
    world
        .tell(&alter(&[
            (
                on_broker("1"),
                &[
                    set("log.retention.ms", "5"),
                    append("log.cleanup.policy", "compact"),
                ],
            ),
            (on_broker(""), &[set("message.max.bytes", "9")]),
        ]))
        .tell(&alter(&[(on_broker("1"), &[set("num.partitions", "3")])]))
        .tell(&alter(&[(on_broker("1"), &[set("log.retention.ms", "x")])]))
        .tell(&alter(&[(
            on_broker("1"),
            &[set("log.retention.mss", "1")],
        )]))
        .tell(&alter(&[(
            on_broker("1"),
            &[set("log.cleaner.io.buffer.size", "1")],
        )]))
        .tell(&alter(&[(
            on_broker(""),
            &[set("listeners", "PLAINTEXT://:1")],
        )]))
        .tell(&alter(&[(
            on_broker("1"),
            &[set("min.insync.replicas", "1")],
        )]))
        .tell(&alter(&[(on_broker(""), &[delete("message.max.bytes")])]))
        .expect(expect![[r#"
            NONE
            NONE
                Config { resource: Broker(Some(BrokerId(1))), key: "log.cleanup.policy", value: Some("delete,compact") }
                Config { resource: Broker(Some(BrokerId(1))), key: "log.retention.ms", value: Some("5") }
                Config { resource: Broker(None), key: "message.max.bytes", value: Some("9") }
            INVALID_REQUEST: num.partitions can only be changed with a restart
            INVALID_REQUEST: log.retention.ms = x: not a whole number; give a 64-bit number
            INVALID_CONFIG: log.retention.mss = 1: there is no such broker key; did you mean log.retention.ms?
            INVALID_REQUEST: log.cleaner.io.buffer.size has no effect here: it tunes a part of Kafka that doesn't exist here
            INVALID_REQUEST: listeners can't be set for all brokers at once; name a broker
            INVALID_REQUEST: min.insync.replicas can't be set for one broker: the controller and all leaders go by the same value; set it for all of them (kafka-configs --entity-default), or for a topic
            NONE
                Config { resource: Broker(None), key: "message.max.bytes", value: None }
        "#]]);
    assert!(!world.image.broker_configs.contains_key(&None));
}

#[test]
fn group_configs_stay_within_the_brokers_bounds() {
    let session = "consumer.session.timeout.ms";
    World::with_brokers(1)
        .tell(&alter(&[(on_group("g"), &[set(session, "50000")])]))
        .tell(&alter(&[(on_group("g"), &[set(session, "1000")])]))
        .tell(&alter(&[(on_group("g"), &[set("session", "50000")])]))
        .tell(&alter(&[(on_group("g"), &[delete(session)])]))
        .tell(&alter(&[(on_group("g"), &[set("share.delivery.count.limit", "11")])]))
        .tell(&alter(&[(on_group("g"), &[set("share.record.lock.duration.ms", "14999")])]))
        .expect(expect![[r#"
            NONE
                Config { resource: Group("g"), key: "consumer.session.timeout.ms", value: Some("50000") }
            INVALID_CONFIG: consumer.session.timeout.ms = 1000: the brokers allow 45000 to 60000 (group.consumer.min.session.timeout.ms and max)
            INVALID_CONFIG: session = 50000: there is no such group key; leave it out
            NONE
                Config { resource: Group("g"), key: "consumer.session.timeout.ms", value: None }
            INVALID_CONFIG: share.delivery.count.limit = 11: the brokers allow 2 to 10 (group.share.min.delivery.count.limit and max)
            INVALID_CONFIG: share.record.lock.duration.ms = 14999: the brokers allow 15000 to 60000 (group.share.min.record.lock.duration.ms and max)
        "#]]);
}

#[test]
fn the_older_form_takes_back_what_it_does_not_name() {
    let mut world = World::with_brokers(1);
    world.apply(&create(&[with_config("t", 1, "retention.ms", Some("5"))]));
    let replace = |validate_only| AdminCommand::AlterConfigs {
        resources: vec![(on_topic("t"), vec![set("segment.ms", "7")])],
        replace: true,
        validate_only,
    };
    world
        .tell(&replace(true))
        .tell(&replace(false))
        .expect(expect![[r#"
            NONE t [(1 led by 1)] {"retention.ms": "5"}
            NONE t [(1 led by 1)] {"retention.ms": "5"}
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHAQ)), key: "segment.ms", value: Some("7") }
                Config { resource: Topic(TopicId(BwcHBwcHBwcHBwcHBwcHAQ)), key: "retention.ms", value: None }
        "#]]);
}
