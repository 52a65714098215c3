//! The commands against a real server: what they do and what they print.

mod common;

use common::{Server, run_with};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn topics_are_made_shown_changed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(
        server.ok(&["topic", "create", "t", "-p", "2", "-c", "retention.ms=1000"]),
        "t\t2\t1\ttrue\n"
    );
    assert_eq!(
        server.ok(&["topic", "create", "t", "--if-not-exists"]),
        "t\t-\t-\tfalse\n"
    );
    server.ok(&["topic", "create", "u", "--dry-run"]);
    assert_eq!(server.ok(&["topic", "list"]), "t\t2\t1\n");
    server.ok_with(&["produce", "t", "-p", "1"], "a\nb\n");
    let rows = json(&server.ok(&["topic", "describe", "t", "-o", "json"]));
    assert_eq!(rows["kind"], "topic.describe");
    assert_eq!(
        (&rows["data"][1]["start"], &rows["data"][1]["end"]),
        (&0.into(), &2.into())
    );
    assert_eq!(
        server.ok(&["topic", "config", "t", "--set-only"]),
        "retention.ms\t1000\ttopic\n"
    );
    server.ok(&[
        "topic",
        "alter",
        "t",
        "--set",
        "retention.ms=2000",
        "--unset",
        "segment.ms",
    ]);
    assert_eq!(
        server.ok(&["config", "get", "topic:t", "retention.ms"]),
        "retention.ms\t2000\ttopic\n"
    );
    server.ok(&["topic", "add-partitions", "t", "--to", "3", "--yes"]);
    assert_eq!(
        server.ok(&[
            "topic",
            "trim",
            "t",
            "--before",
            "end",
            "-p",
            "1",
            "--dry-run"
        ]),
        "t\t1\t0\t2\t2\tfalse\n"
    );
    assert_eq!(
        server.ok(&["topic", "trim", "t", "--before", "1", "-p", "1", "--yes"]),
        "t\t1\t0\t1\t1\ttrue\n"
    );
    assert_eq!(server.ok(&["consume", "t", "-e"]), "b\n");
    server.ok(&["topic", "delete", "t", "--yes"]);
    assert_eq!(server.ok(&["topic", "list"]), "");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn records_go_in_and_come_out_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t"]);
    server.ok_with(
        &["produce", "t", "-K", ":", "-H", "source=test"],
        "k:v:w\nno key\n",
    );
    server.ok_with(&["produce", "t", "-K", ":", "-Z"], "gone:\n");
    server.ok_with(
        &["produce", "t", "--json"],
        "{\"key\":\"j\",\"value\":{\"n\":1},\"headers\":{\"h\":null},\"timestamp\":5}\n",
    );
    server.ok_with(&["produce", "t", "--key-field", "id"], "{\"id\":7}\n");
    for codec in ["gzip", "snappy", "lz4", "zstd"] {
        server.ok_with(&["produce", "t", "-z", codec], &format!("{codec}\n"));
    }
    let format = "%o %K:%k %S:%s %h\\n";
    let got = server.ok(&["consume", "t", "-e", "-f", format]);
    expect_test::expect![[r#"
        0 1:k 3:v:w source=test
        1 -1: 6:no key source=test
        2 4:gone -1: 
        3 1:j 7:{"n":1} h=NULL
        4 1:7 8:{"id":7} 
        5 -1: 4:gzip 
        6 -1: 6:snappy 
        7 -1: 3:lz4 
        8 -1: 4:zstd 
    "#]]
    .assert_eq(&got);
    assert_eq!(
        server.ok(&["consume", "t", "--from", "-2", "-e"]),
        "lz4\nzstd\n"
    );
    assert_eq!(
        server.ok(&["consume", "t", "--from", "1", "-n", "1"]),
        "no key\n"
    );
    assert_eq!(
        server.ok(&["consume", "t", "--until", "2"]),
        "v:w\nno key\n"
    );
    assert_eq!(
        server.ok(&["consume", "t", "--key", "j", "-e"]),
        "{\"n\":1}\n"
    );
    assert_eq!(server.ok(&["consume", "t", "--grep", "^z", "-e"]), "zstd\n");
    assert_eq!(
        server.ok(&["consume", "t", "--from", "1h", "-n", "1"]),
        "v:w\n"
    );
    let line = json(
        server
            .ok(&["consume", "t", "--from", "3", "-n", "1", "-o", "json"])
            .trim(),
    );
    assert_eq!((&line["key"], &line["timestamp"]), (&"j".into(), &5.into()));
    let report = json(&server.ok_with(&["produce", "t", "--report", "-o", "json"], "x\ny\n"));
    assert_eq!(
        (
            &report["data"][0]["base_offset"],
            &report["data"][0]["records"]
        ),
        (&9.into(), &2.into())
    );
    assert!(
        server
            .ok(&["tail", "t", "--from", "start", "-n", "1"])
            .starts_with("t/0@0 ")
    );
    server.ok_with(&["produce", "t", "--acks", "0"], "unheard\n");
    server.ok_with(&["produce", "t", "--acks", "1", "-D", "||"], "a|b||c\n");
    let got = server.ok(&["consume", "t", "--from", "11", "-e"]);
    assert!(got.ends_with("a|b\nc\n\n"), "{got:?}");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn many_records_keep_their_order_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t", "-p", "4"]);
    let input: String = (0..20_000).map(|i| format!("{}:{i}\n", i % 17)).collect();
    server.ok_with(
        &[
            "produce",
            "t",
            "-K",
            ":",
            "-z",
            "lz4",
            "--batch-size",
            "16KiB",
        ],
        &input,
    );
    let got = server.ok(&["consume", "t", "-e", "-f", "%k %s\\n"]);
    let mut last = std::collections::BTreeMap::new();
    let mut count = 0;
    for line in got.lines() {
        let (key, value) = line.split_once(' ').unwrap();
        let value: i32 = value.parse().unwrap();
        assert!(
            last.insert(key.to_owned(), value)
                .is_none_or(|before| before < value),
            "{line}"
        );
        count += 1;
    }
    assert_eq!(count, 20_000);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn groups_commit_lag_reset_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &["--set", "group.initial.rebalance.delay.ms=0"],
    );
    server.ok(&["topic", "create", "t", "-p", "2"]);
    server.ok_with(&["produce", "t", "-p", "0"], "a\nb\nc\n");
    assert_eq!(
        server.ok(&["consume", "t", "--group", "g", "-n", "2"]),
        "a\nb\n"
    );
    assert_eq!(server.ok(&["consume", "t", "--group", "g", "-e"]), "c\n");
    server.ok_with(&["produce", "t", "-p", "0"], "d\n");
    let rows = json(&server.ok(&["group", "lag", "g", "-o", "json"]));
    assert_eq!(
        (&rows["data"][0]["committed"], &rows["data"][0]["lag"]),
        (&3.into(), &1.into()),
        "{rows}"
    );
    assert_eq!(
        server
            .run(&["group", "lag", "g", "--max", "0"])
            .status
            .code(),
        Some(1)
    );
    assert!(server.ok(&["group", "list"]).starts_with("g\tEmpty\t"));
    assert!(
        server
            .ok(&["group", "describe", "g"])
            .starts_with("g\tEmpty\t")
    );
    assert_eq!(server.ok(&["group", "members", "g"]), "");
    assert!(
        server
            .ok(&["group", "reset", "g", "--to", "1", "-p", "0", "--dry-run"])
            .contains("t\t0\t3\t1\tfalse")
    );
    server.ok(&["group", "reset", "g", "--to", "1", "-p", "0", "--yes"]);
    assert_eq!(
        server.ok(&["consume", "t", "--group", "g", "-e"]),
        "b\nc\nd\n"
    );
    assert_eq!(server.ok(&["group", "delete", "g", "--yes"]), "g\ttrue\n");
    assert_eq!(server.ok(&["group", "list"]), "");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn the_cluster_the_way_to_it_and_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t"]);
    server.ok_with(&["produce", "t"], "a\nb\n");
    let status = json(&server.ok(&["cluster", "status", "-o", "json"]));
    assert_eq!(
        (&status["data"][0]["brokers"], &status["data"][0]["state"]),
        (&1.into(), &"healthy".into())
    );
    let hops = server.ok(&["doctor", "connect"]);
    assert_eq!(hops.lines().count(), 3, "{hops}");
    assert!(
        hops.lines().all(|l| l.split('\t').nth(2) == Some("ok")),
        "{hops}"
    );
    for args in [
        &["bench", "produce", "b", "--records", "2000", "-o", "json"][..],
        &["bench", "consume", "b", "-o", "json"],
        &[
            "bench",
            "e2e",
            "e",
            "--records",
            "20",
            "--rate",
            "0",
            "-o",
            "json",
        ],
    ] {
        let result = json(&server.ok(args));
        let records = result["data"][0]["records"].as_u64().unwrap();
        assert!(records >= 20, "{result}");
    }
    let data = folder.path().to_str().unwrap().to_owned();
    assert_eq!(server.stop().0, Some(0));
    let checked = run_with(&["segment", "check", &data], "");
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let dumped = run_with(&["segment", "dump", &data, "--records", "-o", "ndjson"], "");
    let dumped = String::from_utf8(dumped.stdout).unwrap();
    assert!(dumped.lines().any(|l| json(l)["value"] == "b"), "{dumped}");
}

#[test]
fn commands_that_need_no_broker() {
    let out = |args: &[&str]| {
        let output = run_with(args, "");
        assert!(output.status.success(), "{args:?} {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(
        out(&["version"]),
        format!("{}\n", env!("CARGO_PKG_VERSION"))
    );
    assert!(out(&["explain", "3"]).starts_with("UNKNOWN_TOPIC_OR_PARTITION\t3\ttrue\t"));
    assert!(out(&["explain", "not_leader_or_follower"]).starts_with("NOT_LEADER_OR_FOLLOWER\t6\t"));
    assert!(out(&["explain", "exit4"]).contains("no broker answered"));
    assert!(
        out(&["config", "explain", "num.partitions"]).contains("num.partitions\tbroker\t1\t1\t")
    );
    assert!(out(&["completions", "bash"]).contains("riverlog"));
    assert!(out(&["completions", "zsh"]).contains("#compdef riverlog"));
    assert!(out(&["man"]).contains(".TH riverlog"));
    assert!(out(&["--help"]).contains("produce"));
}

/// The best of some, and on a busy machine beside one that only begins and ends there.
#[test]
fn a_command_takes_at_most_50_ms() {
    fn best(mut run: impl FnMut()) -> std::time::Duration {
        let timed = |_| {
            let start = std::time::Instant::now();
            run();
            start.elapsed()
        };
        (0..15).map(timed).min().unwrap()
    }

    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "orders", "-p", "3"]);
    server.ok_with(&["produce", "orders"], "a\nb\n");
    server.ok(&["consume", "orders", "-e", "--group", "billing"]);
    let commands = [
        &["topic", "list"][..],
        &["topic", "describe", "orders"],
        &["produce", "orders"],
        &["consume", "orders", "-n", "1"],
        &["group", "list"],
        &["group", "lag", "billing"],
        &["config", "get", "topic:orders"],
        &["cluster", "status"],
    ];
    for command in commands {
        let took = best(|| {
            server.ok_with(command, "x\n");
        });
        let nothing = best(|| {
            run_with(&["version"], "");
        });
        let most = std::time::Duration::from_millis(50).max(10 * nothing);
        assert!(took <= most, "{command:?} took {took:?}, of {most:?}");
    }
}
