use super::*;

fn inputs(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Inputs {
    Inputs {
        file: None,
        environment: environment
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect(),
        flags: flags
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned(), "--set"))
            .collect(),
    }
}

fn mistakes(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<String> {
    match load(&inputs(environment, flags)) {
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes.iter().map(Mistake::to_string).collect(),
    }
}

#[test]
fn flags_are_stronger_than_the_environment_and_that_than_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.properties");
    std::fs::write(
        &path,
        "num.partitions=2\nnode.id=7\nlog.retention.ms=1000\n",
    )
    .unwrap();
    let mut inputs = inputs(
        &[("KAFKA_NODE_ID", "8"), ("KAFKA_NUM_PARTITIONS", "3")],
        &[("num.partitions", "4")],
    );
    inputs.file = Some(path);
    let config = load(&inputs).unwrap();
    assert_eq!(config.values["num.partitions"], "4");
    assert_eq!(config.values["node.id"], "8");
    assert_eq!(config.values["log.retention.ms"], "1000");
    assert!(
        config.settings["log.retention.ms"]
            .source
            .to_string()
            .ends_with("server.properties:3")
    );
    assert_eq!(
        config.settings["node.id"].source.to_string(),
        "environment variable KAFKA_NODE_ID"
    );
}

#[test]
fn all_mistakes_are_said_at_once() {
    let got = mistakes(
        &[("RIVERLOG_NUM_PARTITONS", "3")],
        &[
            ("num.partitions", "-1"),
            ("log.retentoin.ms", "5"),
            ("create.topic.policy.class.name", "X"),
        ],
    );
    assert_eq!(got.len(), 4, "{got:#?}");
    assert!(
        got.iter()
            .any(|m| m.contains("did you mean log.retention.ms?")),
        "{got:#?}"
    );
    assert!(got.iter().any(
        |m| m.contains("did you mean num.partitions?") && m.contains("RIVERLOG_NUM_PARTITONS")
    ));
    assert!(
        got.iter()
            .any(|m| m.starts_with("num.partitions = -1: out of range; give")),
        "{got:#?}"
    );
}

#[test]
fn strange_kafka_variables_are_ignored_with_a_note() {
    let config = load(&inputs(
        &[("KAFKA_URL", "x"), ("KAFKA_HEAP_OPTS", "-Xmx1G")],
        &[],
    ))
    .unwrap();
    assert!(config.values.is_empty());
    assert_eq!(config.warnings.len(), 2);
    assert!(config.warnings[0].starts_with("KAFKA_URL is ignored"));
}

#[test]
fn values_may_come_from_variables_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rack");
    std::fs::write(&path, "r1\n").unwrap();
    let rack = format!("${{env:ZONE}}-${{file:{}}}", path.display());
    let config = load(&inputs(&[("ZONE", "z")], &[("broker.rack", &rack)])).unwrap();
    assert_eq!(config.values["broker.rack"], "z-r1");
    assert!(mistakes(&[], &[("broker.rack", "${env:NO}")])[0].contains("isn't set"));
}

#[test]
fn the_nodes_of_a_cluster_are_named_by_kafkas_keys() {
    let seeds = |pairs: &[(&str, &str)]| load(&inputs(&[], pairs)).unwrap().seeds();
    let voters = ("controller.quorum.voters", "1@a:1,2@b:1");
    assert_eq!(seeds(&[voters]), ["a:1", "b:1"]);
    let bootstrap = ("controller.quorum.bootstrap.servers", "c:1, d:2");
    assert_eq!(seeds(&[voters, bootstrap]), ["c:1", "d:2"]);
    assert!(seeds(&[("controller.quorum.voters", "1@a:1")]).is_empty());
    let lone = mistakes(&[], &[voters, ("process.roles", "broker")]);
    assert!(lone[0].contains("a node of a cluster is both"), "{lone:?}");
    assert!(
        mistakes(
            &[],
            &[
                ("controller.quorum.voters", "1@a:1"),
                ("process.roles", "broker,controller")
            ]
        )
        .is_empty()
    );
    assert!(mistakes(&[], &[("log.dirs", "/a,/b")])[0].contains("several folders"));
}

#[test]
fn underscores_become_dots_underscores_and_dashes() {
    assert_eq!(key_of("NUM_PARTITIONS"), "num.partitions");
    assert_eq!(key_of("A__B___C_D"), "a_b-c.d");
}

#[test]
fn a_key_that_is_given_twice_in_one_place_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.properties");
    std::fs::write(&path, "num.partitions=2\nnode.id=7\nnum.partitions=3\n").unwrap();
    let mut inputs = inputs(
        &[("KAFKA_NODE_ID", "8")],
        &[("node.id", "9"), ("node.id", "10")],
    );
    inputs.file = Some(path);
    let config = load(&inputs).unwrap();
    assert_eq!(config.values["num.partitions"], "3");
    assert_eq!(config.values["node.id"], "10");
    let [first, second] = &config.warnings[..] else {
        panic!("{:?}", config.warnings)
    };
    assert!(
        first.starts_with("num.partitions is given twice: 2 ("),
        "{first}"
    );
    assert!(first.contains("server.properties:3"), "{first}");
    assert_eq!(
        second,
        "node.id is given twice: 9 (--set), then 10 (--set); the last one counts"
    );
}

#[test]
fn how_nodes_keep_in_touch_is_read_and_has_to_fit_together() {
    let config = load(&inputs(
        &[("KAFKA_BROKER_SESSION_TIMEOUT_MS", "9000")],
        &[
            ("broker.heartbeat.interval.ms", "2000"),
            ("replica.lag.time.max.ms", "30000"),
            ("replica.fetch.wait.max.ms", "700"),
            ("replica.fetch.max.bytes", "2097152"),
            ("replica.fetch.response.max.bytes", "4194304"),
        ],
    ))
    .unwrap();
    assert_eq!(config.warnings, Vec::<String>::new());
    let cluster = crate::serve::node_settings(&config).cluster;
    assert_eq!(cluster.session.as_millis(), 9_000);
    assert_eq!(cluster.heartbeat.as_millis(), 2_000);
    assert_eq!(cluster.max_lag.as_millis(), 30_000);
    assert_eq!(cluster.fetch_wait.as_millis(), 700);
    assert_eq!(cluster.partition_bytes, 2 << 20);
    assert_eq!(cluster.fetch_bytes, 4 << 20);
    let wrong = mistakes(
        &[],
        &[
            ("broker.session.timeout.ms", "1000"),
            ("replica.lag.time.max.ms", "400"),
        ],
    );
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(
        wrong[0].contains("broker.heartbeat.interval.ms = 500"),
        "{wrong:?}"
    );
    assert!(
        wrong[1].contains("replica.fetch.wait.max.ms = 500"),
        "{wrong:?}"
    );
}
