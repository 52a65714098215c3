//! `/v1` over sockets: beside Kafka's clients, and with clients that mean no good.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Server, eventually, http};

/// Sends bytes as they are, and reads until the connection ends or says nothing for a while.
fn say(at: &str, bytes: &[u8], patience: Duration) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(patience)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset and silence are ends too.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn post(at: &str, path: &str, more: &str, body: &str) -> String {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{more}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    say(at, request.as_bytes(), Duration::from_secs(30))
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn both_doors_show_one_log() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let at = &server.http;
    let made = post(at, "/v1/topics", "", r#"{"name":"t","partitions":4}"#);
    assert_eq!(status(&made), "201", "{made}");
    let keys: Vec<String> = (0..200).map(|i| format!("key-{i}")).collect();
    let lines: String = keys.iter().map(|k| format!("{k}:kafka\n")).collect();
    server.ok_with(&["produce", "t", "-K", ":"], &lines);
    let records: Vec<String> = keys
        .iter()
        .map(|k| format!("{{\"key\":\"{k}\",\"value\":\"http\"}}"))
        .collect();
    let body = format!("{{\"records\":[{}]}}", records.join(","));
    let sent = post(at, "/v1/topics/t/records", "", &body);
    assert_eq!(status(&sent), "200", "{sent}");
    // Each key is where it was, whichever door it came by.
    let read = server.ok(&["consume", "t", "-e", "-f", "%p %k %s\\n"]);
    assert_eq!(read.lines().count(), 400);
    let mut places = std::collections::BTreeMap::new();
    for line in read.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let place = places.entry(words[1]).or_insert(words[0]);
        assert_eq!(*place, words[0], "{line}");
    }
    let mut seen = 0;
    for partition in 0..4 {
        let path = format!("/v1/topics/t/partitions/{partition}?offset=start&limit=1000");
        let (code, body) = http(at, &path, "localhost");
        assert_eq!(code, 200);
        seen += body.matches("\"value\":\"kafka\"").count();
        seen += body.matches("\"value\":\"http\"").count();
    }
    assert_eq!(seen, 400);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn pages_of_other_sites_are_kept_out() {
    let folder = tempfile::tempdir().unwrap();
    let more = [
        "--set",
        "riverlog.http.cors.origins=https://console.example, https://b.example",
        "--set",
        "riverlog.http.hosts=log.example",
    ];
    let server = Server::start(folder.path(), &more);
    let at = &server.http;
    let body = r#"{"name":"t"}"#;
    let answer = post(at, "/v1/topics", "Origin: https://evil.example\r\n", body);
    assert_eq!(status(&answer), "403", "{answer}");
    let answer = post(at, "/v1/topics", "Origin: https://b.example\r\n", body);
    assert_eq!(status(&answer), "403", "{answer}");
    assert!(answer.contains("client-header-missing"), "{answer}");
    let own = "Origin: https://b.example\r\nRiverlog-Client: test\r\n";
    let answer = post(at, "/v1/topics", own, body);
    assert_eq!(status(&answer), "201", "{answer}");
    assert!(answer.contains("access-control-allow-origin: https://b.example\r\n"));
    assert!(answer.contains("content-security-policy: default-src 'none'"));
    assert!(answer.contains("x-content-type-options: nosniff"));
    assert_eq!(http(at, "/v1/topics", "log.example").0, 200);
    assert_eq!(http(at, "/v1/topics", "evil.example").0, 421);
    // What a name says is never a line of the log or a header.
    let (code, _) = http(at, "/v1/topics/x%0d%0aSet-Cookie:%20a=b", "localhost");
    assert_eq!(code, 404);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert!(!log.contains("Set-Cookie"), "{log}");
}

#[test]
fn bodies_that_lie_or_stall_harm_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--set", "riverlog.http.request.max.bytes=4096"];
    let server = Server::start(folder.path(), &more);
    let at = &server.http;
    server.ok(&["topic", "create", "t"]);
    let head = "POST /v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let quick = Duration::from_secs(10);
    // Refused before any of it is sent.
    let large = say(
        at,
        format!("{head}Content-Length: 4097\r\n\r\n").as_bytes(),
        quick,
    );
    assert_eq!(status(&large), "413", "{large}");
    // Chunked, and larger than it may be.
    let chunk = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n1001\r\n{}\r\n0\r\n\r\n",
        " ".repeat(4097)
    );
    let large = say(at, chunk.as_bytes(), quick);
    assert_eq!(status(&large), "413", "{large}");
    // A chunked body that is well.
    let body = "{\"records\":[{\"value\":\"x\"}]}";
    let chunked = format!(
        "{head}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let answer = say(at, chunked.as_bytes(), quick);
    assert_eq!(status(&answer), "200", "{answer}");
    // Lengths that no body can have.
    for length in ["-1", "x", "99999999999999999999", "1, 2"] {
        let answer = say(
            at,
            format!("{head}Content-Length: {length}\r\n\r\n").as_bytes(),
            quick,
        );
        assert!(matches!(status(&answer), "400" | ""), "{length}: {answer}");
    }
    let answer = say(
        at,
        format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n").as_bytes(),
        quick,
    );
    assert!(matches!(status(&answer), "400" | ""), "{answer}");
    // Both lengths: the body is the chunks, and what follows is no second request that somebody smuggled in.
    let both = format!(
        "{head}Connection: close\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\nGET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        body.len()
    );
    let answer = say(at, both.as_bytes(), quick);
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    // Headers without an end.
    let flood = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}",
        "x".repeat(200_000)
    );
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(quick)).unwrap();
    // It may be closed before all of it is sent.
    let _ = stream.write_all(flood.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(matches!(status(&answer), "431" | "400" | ""), "{answer}");
    // Many that announce a body and stay: others are served, and hold nothing for them.
    let held: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(at).unwrap();
            stream
                .write_all(format!("{head}Content-Length: 4000\r\n\r\n{{").as_bytes())
                .unwrap();
            stream
        })
        .collect();
    let answer = post(at, "/v1/topics/t/records", "", body);
    assert_eq!(status(&answer), "200", "{answer}");
    // Those that ended before are taken off the count a moment later.
    let counted = || http(at, "/metrics", "localhost").1;
    assert!(
        eventually(|| counted().contains("riverlog_http_connections 51.0")),
        "{}",
        counted()
    );
    drop(held);
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn a_stream_ends_with_the_server_and_keeps_it_from_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok_with(&["produce", "t"], "x\n");
    let mut stream = TcpStream::connect(&server.http).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    write!(stream, "GET /v1/topics/t/partitions/0?offset=0 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n").unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("id: 0:0") {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..n]);
    }
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    // A reset is an end too.
    let _ = stream.read_to_end(&mut seen);
}

/// Words of a query that name metrics of ours.
fn metric_names(text: &str) -> std::collections::BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("riverlog_") || word.starts_with("kafka_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_rules_and_dashboards_ask_for_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok_with(&["produce", "t"], "a\nb\n");
    server.ok(&["consume", "t", "-e", "-n", "1", "--group", "g"]);
    http(&server.http, "/v1/topics", "localhost");
    let metrics = http(&server.http, "/metrics", "localhost").1;
    let rules = server.ok(&["generate", "prometheus-rules"]);
    let mut asked = metric_names(&rules);
    for dashboard in ["overview", "topics", "groups"] {
        let text = server.ok(&["generate", "grafana", dashboard]);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(json["panels"].as_array().unwrap().len() > 4, "{dashboard}");
        asked.extend(metric_names(&text));
    }
    assert!(asked.len() > 30, "{asked:?}");
    for name in asked {
        let told = metrics.lines().any(|line| {
            line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{"))
        });
        assert!(told, "nothing tells {name}");
    }
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn lag_is_told_in_records_and_seconds_by_all_names() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--set", "riverlog.metrics.aliases=kminion,lag-exporter,jmx"];
    let server = Server::start(folder.path(), &more);
    let at = &server.http;
    server.ok(&["topic", "create", "t", "-p", "2"]);
    let old = r#"{"records":[{"value":"a","timestamp":1000,"partition":0},{"value":"b","timestamp":1000,"partition":0}]}"#;
    assert_eq!(status(&post(at, "/v1/topics/t/records", "", old)), "200");
    let commit = r#"{"offsets":[{"topic":"t","partition":0,"offset":1}]}"#;
    assert_eq!(status(&post(at, "/v1/groups/g/offsets", "", commit)), "200");
    let metrics = http(at, "/metrics", "localhost").1;
    for line in [
        "kafka_broker_info{address=",
        "kafka_topic_partition_leader_is_preferred{partition=\"1\",topic=\"t\"} 1.0",
        "kafka_consumergroup_current_offset_sum{consumergroup=\"g\",topic=\"t\"} 1.0",
        "kafka_consumergroup_lag{consumergroup=\"g\",partition=\"0\",topic=\"t\"} 1.0",
        "riverlog_consumergroup_info{consumergroup=\"g\",state=\"Empty\"",
        "riverlog_consumergroup_lag_seconds{consumergroup=\"g\"}",
        "riverlog_partitions_offline 0.0",
        "kminion_kafka_consumer_group_topic_lag{group_id=\"g\",topic_name=\"t\"} 1.0",
        "kminion_kafka_topic_partition_high_water_mark{partition_id=\"0\",topic_name=\"t\"} 2.0",
        "kafka_consumergroup_group_sum_lag{cluster_name=",
        "kafka_server_replicamanager_leadercount",
        "kafka_server_brokertopicmetrics_messagesin_total{topic=\"t\"} 2.0",
    ] {
        assert!(metrics.contains(line), "no {line:?} in\n{metrics}");
    }
    // The waiting record is of 1970: so long it waits.
    let line = metrics
        .lines()
        .find(|l| l.starts_with("riverlog_consumergroup_lag_seconds{"))
        .unwrap();
    let seconds: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(seconds > 1e9, "{line}");
    assert_eq!(server.stop().0, Some(0));

    let server = Server::start(folder.path(), &["--set", "riverlog.metrics.detail=cluster"]);
    // Groups are read after the server is ready.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let metrics = http(&server.http, "/metrics", "localhost").1;
        assert!(!metrics.contains("topic=\"t\""), "{metrics}");
        if metrics.contains("riverlog_consumergroups_lag_records 1.0") {
            break;
        }
        assert!(std::time::Instant::now() < end, "{metrics}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn the_description_is_served_and_its_page_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let (code, text) = http(&server.http, "/v1/openapi.json", "localhost");
    assert_eq!(code, 200);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["openapi"], "3.1.0");
    let page = say(
        &server.http,
        b"GET /docs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        Duration::from_secs(10),
    );
    assert_eq!(status(&page), "200");
    assert!(
        page.contains("content-security-policy: default-src 'none'; style-src 'self'"),
        "{page}"
    );
    assert!(page.contains("/v1/groups/{group}:reset"), "{page}");
    assert_eq!(server.stop().0, Some(0));
}
