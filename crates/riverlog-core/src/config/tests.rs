//! The table against itself and against Kafka's rules.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};

use super::*;

fn configs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

#[test]
fn the_table_is_sound() {
    for pair in keys().windows(2) {
        let [a, b] = pair else { unreachable!() };
        assert!((a.name, a.scope) < (b.name, b.scope), "{} twice", a.name);
    }
    for k in keys() {
        assert_eq!(key(k.scope, k.name).map(|k| k.name), Some(k.name));
        if let Some(default) = k.default
            && !default.is_empty()
        {
            assert_eq!(k.check(default), Ok(()), "{}: its own default", k.name);
            assert_eq!(k.normal(default), default, "{}", k.name);
        }
        assert!(
            k.doc.ends_with('.') && k.doc.len() < 150,
            "{}: {}",
            k.name,
            k.doc
        );
        for synonym in k.synonyms {
            let broker = key(Scope::Broker, synonym.name).expect(synonym.name);
            assert_eq!(k.used, broker.used, "{} and {}", k.name, broker.name);
        }
    }
    for (names, _) in standing::IGNORED {
        for name in *names {
            assert!(
                key(Scope::Broker, name).is_none(),
                "{name} is in the table and ignored"
            );
        }
    }
}

#[test]
fn a_topic_key_has_the_default_of_the_broker_key_behind_it() {
    for k in keys_of(Scope::Topic).chain(keys_of(Scope::Group)) {
        let from_brokers = k.synonyms.iter().find_map(|s| {
            let default = key(Scope::Broker, s.name)?.default?;
            Some(match s.factor {
                1 => default.to_owned(),
                factor => (default.parse::<i64>().ok()? * factor).to_string(),
            })
        });
        if !k.synonyms.is_empty() {
            assert_eq!(from_brokers.as_deref(), k.default, "{}", k.name);
        }
    }
}

fn problems(given: &[(Scope, &str, &str)], want: Expect) {
    let said: Vec<String> = given
        .iter()
        .map(|(scope, name, value)| match check(*scope, name, value) {
            Ok(()) => format!("{name} = {value:?} is fine\n"),
            Err(error) => format!("{error}\n"),
        })
        .collect();
    want.assert_eq(&said.concat());
}

#[test]
fn a_bad_value_is_answered_with_range_and_default() {
    use Scope::*;
    let given = [
        (Topic, "segment.bytes", "1"),
        (Topic, "segment.bytes", "many"),
        (Topic, "segment.bytes", "99999999999999999999"),
        (Topic, "segment.bytes", " 1048576 "),
        (Topic, "preallocate", "TRUE"),
        (Topic, "preallocate", "yes"),
        (Topic, "min.cleanable.dirty.ratio", "1.5"),
        (Topic, "min.cleanable.dirty.ratio", "NaN"),
        (Topic, "cleanup.policy", "delete, compact"),
        (Topic, "cleanup.policy", ""),
        (Topic, "cleanup.policy", "delete,"),
        (Topic, "cleanup.policy", "keep"),
        (Topic, "compression.type", "none"),
        (Topic, "compression.gzip.level", "0"),
        (Topic, "compression.gzip.level", "-1"),
        (Topic, "leader.replication.throttled.replicas", "0:1,1:2"),
        (Topic, "leader.replication.throttled.replicas", "*"),
        (Topic, "leader.replication.throttled.replicas", "0:x"),
        (Topic, "remote.storage.enable", "true"),
        (Group, "share.auto.offset.reset", "by_duration:PT1H"),
        (Group, "share.auto.offset.reset", "by_duration:-PT1H"),
        (Broker, "authorizer.class.name", "org.example.Rules"),
    ];
    problems(
        &given,
        expect![[r#"
            segment.bytes = 1: out of range; give a 32-bit number, 1048576 or more (default 1073741824)
            segment.bytes = many: not a whole number; give a 32-bit number, 1048576 or more (default 1073741824)
            segment.bytes = 99999999999999999999: out of range; give a 32-bit number, 1048576 or more (default 1073741824)
            segment.bytes = " 1048576 " is fine
            preallocate = "TRUE" is fine
            preallocate = yes: neither true nor false; give true or false (default false)
            min.cleanable.dirty.ratio = 1.5: out of range; give a fraction, 0 to 1 (default 0.5)
            min.cleanable.dirty.ratio = NaN: out of range; give a fraction, 0 to 1 (default 0.5)
            cleanup.policy = "delete, compact" is fine
            cleanup.policy = "" is fine
            cleanup.policy = delete,: an empty entry; give a comma-separated list of compact, delete (default delete)
            cleanup.policy = keep: keep is not one of the accepted values; give a comma-separated list of compact, delete (default delete)
            compression.type = none: not one of the accepted values; give one of uncompressed, zstd, lz4, snappy, gzip, producer (default producer)
            compression.gzip.level = 0: gzip has no level 0; give 1 to 9, or -1 for the codec's own (default -1)
            compression.gzip.level = "-1" is fine
            leader.replication.throttled.replicas = "0:1,1:2" is fine
            leader.replication.throttled.replicas = "*" is fine
            leader.replication.throttled.replicas = 0:x: neither * nor a list of replicas; give * or partition:broker,… such as 0:1,1:2
            remote.storage.enable = true: there is no tiered storage yet; give false (default false)
            share.auto.offset.reset = "by_duration:PT1H" is fine
            share.auto.offset.reset = by_duration:-PT1H: no place to begin at; give latest, earliest, or by_duration: and an ISO 8601 duration such as PT1H (default latest)
            authorizer.class.name = org.example.Rules: access rules can't be enforced yet, and are not dropped silently; give nothing
        "#]],
    );
}

#[test]
fn an_unknown_key_names_the_one_that_was_meant() {
    use Scope::*;
    let given = [
        (Topic, "retention.mss", "1"),
        (Topic, "retention_ms", "1"),
        (Topic, "log.retention.hours", "1"),
        (Topic, "foo", "1"),
        (Broker, "auto.create.topic.enable", "1"),
        (Broker, "delegation.token.secret.keys", "s3cr3t"),
        (Group, "consumer.session.timeout", "1"),
    ];
    problems(
        &given,
        expect![[r#"
            retention.mss = 1: there is no such topic key; did you mean retention.ms?
            retention_ms = 1: there is no such topic key; did you mean retention.ms?
            log.retention.hours = 1: there is no such topic key; did you mean retention.ms?
            foo = 1: there is no such topic key; leave it out
            auto.create.topic.enable = 1: there is no such broker key; did you mean auto.create.topics.enable?
            delegation.token.secret.keys = [hidden]: there is no such broker key; leave it out
            consumer.session.timeout = 1: there is no such group key; did you mean consumer.session.timeout.ms?
        "#]],
    );
}

#[test]
fn a_broker_key_of_kafka_is_known_ignored_or_refused() {
    let said = |name: &str| match standing(name) {
        Standing::Known(key) => format!("known: {}", key.doc),
        Standing::Ignored(why) => format!("ignored: {why}"),
        Standing::Refused(why) => format!("refused: {why}"),
        Standing::Unknown(meant) => format!("unknown: {meant:?}"),
    };
    let all = [
        "num.partitions",
        "ssl.keystore.password",
        "zookeeper.connect",
        "inter.broker.protocol.version",
        "listener.name.internal.ssl.keystore.location",
        "create.topic.policy.class.name",
        "num.partition",
        "url",
    ]
    .map(|name| format!("{name}: {}\n", said(name)))
    .concat();
    expect![[r#"
        num.partitions: known: Partitions of a new topic that doesn't say.
        ssl.keystore.password: ignored: there are no TLS, SASL or delegation tokens yet; listeners that ask for them are refused
        zookeeper.connect: ignored: ZooKeeper isn't used
        inter.broker.protocol.version: ignored: Kafka itself has dropped it
        listener.name.internal.ssl.keystore.location: ignored: it belongs to a listener with TLS or SASL, and those are refused until there are any
        create.topic.policy.class.name: refused: Riverlog runs no Java classes, and a policy that isn't enforced is worse than none; take the key out
        num.partition: unknown: Some("num.partitions")
        url: unknown: None
    "#]].assert_eq(&all);
}

#[test]
fn a_topic_that_says_nothing_syncs_and_keeps_a_week() {
    let none = BTreeMap::new();
    expect![[r#"
        TopicConfig {
            delete: true,
            compact: false,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: 9223372036854775807,
            min_cleanable_dirty_ratio: 0.5,
            delete_retention_ms: 86400000,
            segment_bytes: 1073741824,
            segment_ms: 604800000,
            index_interval_bytes: 4096,
            retention_ms: 604800000,
            retention_bytes: -1,
            retention_records: -1,
            max_records: -1,
            max_bytes: -1,
            block_when_full: true,
            when_full_timeout_ms: 30000,
            sync: true,
            max_message_bytes: 1048588,
            log_append_time: false,
            timestamp_before_max_ms: 9223372036854775807,
            timestamp_after_max_ms: 3600000,
            min_insync_replicas: None,
            compression: None,
        }
    "#]]
    .assert_debug_eq(&TopicConfig::new(&none, &none));
}

#[test]
fn a_topics_own_value_is_stronger_than_the_nodes_and_a_finer_unit_stronger_than_a_coarser() {
    let node = configs(&[
        ("log.retention.hours", "2"),
        ("log.retention.minutes", "3"),
        ("log.roll.hours", "1"),
        ("message.max.bytes", "5"),
        ("min.insync.replicas", "2"),
        ("riverlog.durability", "page-cache"),
        ("log.cleanup.policy", "compact"),
    ]);
    let plain = TopicConfig::new(&BTreeMap::new(), &node);
    assert_eq!(plain.retention_ms, 3 * 60_000);
    assert_eq!(plain.segment_ms, 3_600_000);
    assert_eq!(plain.max_message_bytes, 5);
    assert_eq!(plain.min_insync_replicas, Some(2));
    assert!(!plain.sync && plain.compact && !plain.delete);

    let own = configs(&[
        ("retention.ms", "-1"),
        ("max.message.bytes", " 7 "),
        ("riverlog.durability", "sync"),
        ("cleanup.policy", ""),
        ("compression.type", "zstd"),
    ]);
    let topic = TopicConfig::new(&own, &node);
    assert_eq!(topic.retention_ms, -1);
    assert_eq!(topic.max_message_bytes, 7);
    assert!(topic.sync && !topic.compact && !topic.delete);
    assert_eq!(
        topic.compression,
        Some(riverlog_wire::compression::Compression::Zstd)
    );

    let for_ever = TopicConfig::new(&BTreeMap::new(), &configs(&[("log.retention.hours", "-5")]));
    assert_eq!(for_ever.retention_ms, -1);
}

#[test]
fn min_isr_is_more_than_half_unless_set() {
    let default = TopicConfig::default();
    assert_eq!([1, 2, 3, 4, 5].map(|n| default.min_isr(n)), [1, 2, 2, 3, 3]);
    let two = TopicConfig::new(&configs(&[("min.insync.replicas", "2")]), &BTreeMap::new());
    assert_eq!([1, 2, 3].map(|n| two.min_isr(n)), [1, 2, 2]);
}

#[test]
fn a_nodes_values_are_those_set_over_the_defaults() {
    let set = configs(&[
        ("num.partitions", " 6 "),
        ("log.retention.minutes", "2"),
        ("delete.topic.enable", "FALSE"),
    ]);
    let values = BrokerValues(&set);
    assert_eq!(values.number("num.partitions"), Some(6));
    assert_eq!(values.number("offsets.topic.num.partitions"), Some(50));
    assert_eq!(values.text("broker.rack"), None);
    assert!(!values.is_true("delete.topic.enable"));
    assert!(values.is_true("auto.create.topics.enable"));
    assert_eq!(values.millis("log.retention"), Some(120_000));
    assert_eq!(values.millis("log.roll"), Some(168 * 3_600_000));
}

#[test]
fn describing_tells_every_place_a_value_could_come_from() {
    let none = BTreeMap::new();
    let own = configs(&[("retention.ms", "100"), ("max.message.bytes", "9")]);
    let dynamic_broker = configs(&[("message.max.bytes", "8"), ("log.retention.ms", "86400001")]);
    let dynamic_default = configs(&[("log.retention.ms", "86400002")]);
    let static_broker = configs(&[
        ("message.max.bytes", "2000000"),
        ("log.retention.hours", "24"),
        ("node.id", "3"),
        ("log.roll.hours", "24"),
    ]);
    let computed = BTreeMap::from([("min.insync.replicas", "2".to_owned())]);
    let mut text = String::new();
    let mut show = |scope, own: &BTreeMap<String, String>, names: &[&str]| {
        let layers = Layers {
            own,
            dynamic_broker: &dynamic_broker,
            dynamic_default: &dynamic_default,
            static_broker: &static_broker,
            computed: &computed,
        };
        for d in describe(scope, &layers) {
            if names.contains(&d.key.name) {
                let ro = if d.read_only { " read-only" } else { "" };
                text += &format!("{} = {:?} from {:?}{ro}\n", d.key.name, d.value, d.source);
                for s in d.synonyms {
                    text += &format!("    {:?} {} = {:?}\n", s.source, s.name, s.value);
                }
            }
        }
    };
    show(
        Scope::Topic,
        &own,
        &[
            "retention.ms",
            "max.message.bytes",
            "segment.ms",
            "min.insync.replicas",
            "remote.storage.enable",
            "flush.ms",
        ],
    );
    show(
        Scope::Broker,
        &none,
        &[
            "log.retention.ms",
            "log.retention.hours",
            "log.retention.minutes",
            "node.id",
            "broker.rack",
            "min.insync.replicas",
        ],
    );
    show(Scope::Broker, &none, &["log.roll.ms", "log.roll.hours"]);
    show(
        Scope::Group,
        &configs(&[("consumer.session.timeout.ms", "50000")]),
        &[
            "consumer.session.timeout.ms",
            "consumer.heartbeat.interval.ms",
            "share.isolation.level",
            "streams.assignor.name",
        ],
    );
    expect![[r#"
        flush.ms = Some("9223372036854775807") from Default
            Default log.flush.scheduler.interval.ms = Some("9223372036854775807")
        max.message.bytes = Some("9") from DynamicTopic
            DynamicTopic max.message.bytes = Some("9")
            DynamicBroker message.max.bytes = Some("8")
            StaticBroker message.max.bytes = Some("2000000")
            Default message.max.bytes = Some("1048588")
        min.insync.replicas = Some("2") from Default
            Default min.insync.replicas = Some("2")
        remote.storage.enable = Some("false") from Default
        retention.ms = Some("100") from DynamicTopic
            DynamicTopic retention.ms = Some("100")
            DynamicBroker log.retention.ms = Some("86400001")
            DynamicDefaultBroker log.retention.ms = Some("86400002")
            StaticBroker log.retention.hours = Some("24")
            Default log.retention.hours = Some("168")
        segment.ms = Some("86400000") from StaticBroker
            StaticBroker log.roll.hours = Some("24")
            Default log.roll.hours = Some("168")
        broker.rack = None from Default read-only
        log.retention.hours = Some("24") from StaticBroker read-only
            StaticBroker log.retention.hours = Some("24")
            Default log.retention.hours = Some("168")
        log.retention.minutes = None from Default read-only
        log.retention.ms = Some("86400001") from DynamicBroker
            DynamicBroker log.retention.ms = Some("86400001")
            DynamicDefaultBroker log.retention.ms = Some("86400002")
            StaticBroker log.retention.hours = Some("24")
            Default log.retention.hours = Some("168")
        min.insync.replicas = Some("2") from Default
            Default min.insync.replicas = Some("2")
        node.id = Some("3") from StaticBroker read-only
            StaticBroker node.id = Some("3")
            Default node.id = Some("1")
        log.roll.hours = Some("24") from StaticBroker read-only
            StaticBroker log.roll.hours = Some("24")
            Default log.roll.hours = Some("168")
        log.roll.ms = None from Default
        consumer.heartbeat.interval.ms = Some("5000") from Default
            Default group.consumer.heartbeat.interval.ms = Some("5000")
        consumer.session.timeout.ms = Some("50000") from DynamicGroup
            DynamicGroup consumer.session.timeout.ms = Some("50000")
            Default group.consumer.session.timeout.ms = Some("45000")
        share.isolation.level = Some("read_uncommitted") from Default
            Default share.isolation.level = Some("read_uncommitted")
        streams.assignor.name = None from Default
    "#]]
    .assert_eq(&text);
}

#[test]
fn the_default_of_all_brokers_shows_only_what_was_set_there() {
    let set = configs(&[("log.retention.ms", "5"), ("num.io.threads", "3")]);
    let described = describe_cluster_default(&set);
    let shown: Vec<_> = described
        .iter()
        .map(|d| (d.key.name, d.value.as_deref(), d.source, d.synonyms.len()))
        .collect();
    let source = ConfigSource::DynamicDefaultBroker;
    assert_eq!(
        shown,
        [
            ("log.retention.ms", Some("5"), source, 1),
            ("num.io.threads", Some("3"), source, 1)
        ]
    );
}

#[test]
fn the_configuration_page_is_the_table() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/operations/configuration.md"
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, markdown()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == markdown(),
        "docs/operations/configuration.md is not the table's; run UPDATE_DOCS=1 cargo test -p riverlog-core configuration_page"
    );
}
