//! The server as a whole: start, serve, stop, start again; HTTP; other protocols on its ports.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::share_fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::{
    DescribeLogDirsRequest, MetadataRequest, ShareFetchRequest, ShareGroupHeartbeatRequest,
};

use common::{Server, ask, eventually, http, riverlog, run_with, signal, wait};

#[test]
fn records_survive_a_stop_and_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t", "-p", "3"]);
    server.ok_with(&["produce", "t", "-K", ":"], "a:1\nb:2\nc:3\n");
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("\"stopped\""), "{log}");

    let server = Server::start(folder.path(), &[]);
    server.ok_with(&["produce", "t", "-K", ":"], "a:4\n");
    server.kill();

    let server = Server::start(folder.path(), &[]);
    let got = server.ok(&["consume", "t", "-e", "-f", "%k=%s\\n"]);
    let mut got: Vec<&str> = got.lines().collect();
    got.sort_unstable();
    assert_eq!(got, ["a=1", "a=4", "b=2", "c=3"]);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn http_tells_health_and_metrics_to_this_machine_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t", "-p", "2"]);
    server.ok_with(&["produce", "t"], "x\n");
    server.ok(&["consume", "t", "-e", "--group", "g"]);
    assert_eq!(http(&server.http, "/livez", "localhost").0, 200);
    assert_eq!(http(&server.http, "/startupz", "localhost").0, 200);
    let (status, body) = http(&server.http, "/readyz?verbose", "localhost:8082");
    assert_eq!(
        (status, body.contains("\"ready\":true")),
        (200, true),
        "{body}"
    );
    let (status, metrics) = http(&server.http, "/metrics", "127.0.0.1");
    assert_eq!(status, 200);
    for line in [
        "kafka_brokers 1.0",
        "kafka_topic_partitions{topic=\"t\"} 2.0",
        "kafka_consumergroup_lag_sum{consumergroup=\"g\",topic=\"t\"} 0.0",
        "# TYPE riverlog_bytes_in counter",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "no {line:?} in\n{metrics}");
    }
    assert!(
        http(&server.http, "/", "localhost")
            .1
            .contains(&server.kafka)
    );
    assert_eq!(http(&server.http, "/nothing", "localhost").0, 404);
    assert_eq!(http(&server.http, "/metrics", "evil.example").0, 421);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn metrics_tell_how_far_a_share_group_is_behind() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t", "-p", "1"]);
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some("t".to_owned()),
            ..MetadataRequestTopic::default()
        }]),
        ..MetadataRequest::default()
    };
    let topic_id = ask(&server.kafka, 12, &request).topics[0].topic_id;
    let (group, member) = (Some("s".to_owned()), Some("m".to_owned()));
    let join = ShareGroupHeartbeatRequest {
        group_id: "s".to_owned(),
        member_id: "m".to_owned(),
        subscribed_topic_names: Some(vec!["t".to_owned()]),
        ..ShareGroupHeartbeatRequest::default()
    };
    assert!(eventually(|| {
        ask(&server.kafka, 1, &join).error_code == ErrorCode::NONE
    }));
    // A new group begins at the end, with the first look.
    let fetch = ShareFetchRequest {
        group_id: group,
        member_id: member,
        max_wait_ms: 10,
        max_bytes: 1 << 20,
        max_records: 10,
        batch_size: 10,
        topics: vec![FetchTopic {
            topic_id,
            partitions: vec![FetchPartition::default()],
        }],
        ..ShareFetchRequest::default()
    };
    let lag = |records: i32| {
        let line = format!(
            "kafka_consumergroup_lag{{consumergroup=\"s\",partition=\"0\",topic=\"t\"}} {records}.0"
        );
        eventually(|| {
            ask(&server.kafka, 1, &fetch);
            http(&server.http, "/metrics", "127.0.0.1")
                .1
                .contains(&line)
        })
    };
    assert!(lag(0));
    server.ok_with(&["produce", "t"], "x\ny\n");
    assert!(lag(2));
    let (_, metrics) = http(&server.http, "/metrics", "127.0.0.1");
    let members = "kafka_consumergroup_members{consumergroup=\"s\"} 1.0";
    assert!(metrics.contains(members), "{metrics}");
}

/// Writes something to a port, and reads until it is closed.
fn say(at: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn strangers_are_told_and_closed_and_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let answer =
        String::from_utf8(say(&server.kafka, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains(&server.http), "{answer}");
    // An alert, in words that any TLS client knows.
    let alert = say(&server.kafka, &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3]);
    assert_eq!(alert, [0x15, 3, 3, 0, 2, 2, 40]);
    for bytes in [
        &[0, 0, 0, 0][..],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0, 0, 0, 10, 0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff],
        &[0, 0, 0, 3, 1, 2, 3],
    ] {
        assert_eq!(say(&server.kafka, bytes), b"", "{bytes:x?}");
    }
    // Announces much, sends nothing, and stays.
    let held: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.kafka).unwrap();
            stream.write_all(&[5, 0, 0, 0, 1]).unwrap();
            stream
        })
        .collect();
    server.ok(&["topic", "create", "t"]);
    // The command's own connection ends a moment after the command.
    assert!(eventually(|| http(&server.http, "/metrics", "localhost")
        .1
        .contains("riverlog_connections 50.0")));
    drop(held);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert!(log.contains("the bytes are HTTP"), "{log}");
    assert!(log.contains("TLS handshake"), "{log}");
}

#[test]
fn connections_of_an_address_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "max.connections.per.ip=3"]);
    let held: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(&server.kafka).unwrap())
        .collect();
    assert!(eventually(|| http(&server.http, "/metrics", "localhost")
        .1
        .contains("riverlog_connections 3.0")));
    assert_eq!(say(&server.kafka, b""), b"");
    drop(held);
    assert!(eventually(|| server
        .run(&["topic", "list"])
        .status
        .success()));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn it_starts_and_stops_quickly() {
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let mut server = Server::start(folder.path(), &[]);
    // The goal is 0.3 s; tests run on machines that do much else.
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    signal(&server.child, "INT");
    assert_eq!(wait(&mut server.child), Some(0));
    assert!(
        server
            .log
            .take()
            .unwrap()
            .join()
            .unwrap()
            .contains("stopping")
    );
}

#[test]
fn configuration_comes_from_file_environment_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.properties");
    std::fs::write(&file, "num.partitions=2\nnode.id=5\nzookeeper.connect=x\n").unwrap();
    let data = folder.path().join("data");
    let server = Server::start(
        &data,
        &[
            "--config",
            file.to_str().unwrap(),
            "--set",
            "num.partitions=4",
        ],
    );
    server.ok(&["topic", "create", "t"]);
    assert_eq!(server.ok(&["topic", "list"]), "t\t4\t1\n");
    assert_eq!(server.ok(&["cluster", "brokers", "-o", "name"]), "5\n");
    let got = server.ok(&["config", "get", "broker:5", "num.partitions"]);
    assert_eq!(got, "num.partitions\t4\tbroker, at start\n");
    let (_, log) = server.stop();
    assert!(data.exists() && log.is_ascii());
}

#[test]
fn advertised_addresses_are_what_clients_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &["--set", "advertised.listeners=PLAINTEXT://127.0.0.1:1"],
    );
    // The log tells the advertised address; the bound one is in the same line.
    assert_eq!(server.kafka, "127.0.0.1:1");
    let (_, log) = server.stop();
    let bound = log.lines().find(|l| l.contains("Kafka at")).unwrap();
    assert!(bound.contains("\"bound\":\"127.0.0.1:"), "{bound}");
}

#[test]
fn the_size_of_the_disk_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let request = DescribeLogDirsRequest::default();
    let described = ask(&server.kafka, 4, &request);
    let folder = &described.results[0];
    assert!(folder.usable_bytes > 0, "{folder:?}");
    assert!(folder.total_bytes >= folder.usable_bytes, "{folder:?}");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn dev_serves_a_sample_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let mut child = riverlog(&["dev", "--listen", "127.0.0.1:0", "--http", "none"])
        .env("TMPDIR", temp.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let first = lines.next().unwrap().unwrap();
    let kafka = first.strip_prefix("Kafka   ").unwrap().to_owned();
    let output = run_with(&["-b", &kafka, "consume", "hello", "-e"], "");
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with("hello\n"),
        "{output:?}"
    );
    signal(&child, "INT");
    assert_eq!(wait(&mut child), Some(0));
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
}
