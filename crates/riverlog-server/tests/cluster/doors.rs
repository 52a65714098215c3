//! Any node takes any request of the HTTP door.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Server, eventually, signal};
use crate::trio::{Trio, members, partitions_at};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(40);

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    fn is(self, status: u16) -> Answer {
        let words = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{}\n{words}", self.head);
        self
    }
    #[track_caller]
    fn json(self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }
}

fn open(at: &str, method: &str, path: &str, more: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let more: String = more.iter().map(|(k, v)| format!("{k}: {v}\r\n")).collect();
    let kind = match more.to_ascii_lowercase().contains("content-type") {
        true => "",
        false => "Content-Type: application/json\r\n",
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{kind}{more}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn call(at: &Server, method: &str, path: &str, more: &[(&str, &str)], body: &str) -> Answer {
    let mut stream = open(&at.http, method, path, more, body);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut body = bytes[end + 4..].to_vec();
    if head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        body = unchunked(&body);
    }
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head,
        body,
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") {
        let len = std::str::from_utf8(&bytes[..end]).unwrap();
        let len = usize::from_str_radix(len.trim(), 16).unwrap();
        out.extend_from_slice(&bytes[end + 2..end + 2 + len]);
        bytes = &bytes[end + 2 + len + 2..];
        if len == 0 {
            break;
        }
    }
    out
}

fn get(at: &Server, path: &str) -> Answer {
    call(at, "GET", path, &[], "")
}

fn post(at: &Server, path: &str, body: &Value) -> Answer {
    call(at, "POST", path, &[], &body.to_string())
}

/// Three nodes that have `t` with six partitions.
fn form() -> Trio {
    let trio = Trio::form();
    let topic = json!({
        "name": "t", "partitions": 6, "replication_factor": 3, "configs": {"min.insync.replicas": "2"},
    });
    post(trio.up()[1], "/v1/topics", &topic).is(201);
    let partitions = trio.in_sync("t");
    let leaders: BTreeSet<i32> = partitions.iter().map(|p| p.leader_id).collect();
    assert_eq!(leaders.len(), 3, "{partitions:?}");
    trio
}

fn records(values: impl Iterator<Item = String>) -> Value {
    let records = values.map(|value| json!({"key": value, "value": value}));
    json!({"records": records.collect::<Vec<_>>()})
}

/// Values of all partitions, as one node tells them.
fn read_all(at: &Server) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for partition in 0..6 {
        let path = format!("/v1/topics/t/partitions/{partition}?offset=start&limit=10000");
        let read = get(at, &path).is(200).json();
        for record in read["records"].as_array().unwrap() {
            assert!(all.insert(record["value"].as_str().unwrap().to_owned()));
        }
    }
    all
}

#[test]
fn records_are_written_and_read_at_any_node() {
    let trio = form();
    let mut wanted = BTreeSet::new();
    for (n, node) in trio.up().into_iter().enumerate() {
        // Spread over all partitions, whoever leads them.
        let values: Vec<String> = (0..60).map(|i| format!("{n}-{i}")).collect();
        let sent = post(
            node,
            "/v1/topics/t/records",
            &records(values.iter().cloned()),
        );
        let results = sent.is(200).json();
        let places = results["results"].as_array().unwrap().iter();
        let places: BTreeSet<i64> = places.map(|r| r["partition"].as_i64().unwrap()).collect();
        assert_eq!(places.len(), 6);
        wanted.extend(values);
        // To each partition, and as lines.
        for partition in 0..6 {
            let value = format!("{n}-to-{partition}");
            let path = format!("/v1/topics/t/partitions/{partition}/records");
            let one = json!({"records": [{"value": value}]});
            post(node, &path, &one).is(200);
            wanted.insert(value);
        }
        let lines: Vec<String> = (0..40).map(|i| format!("{n}-line-{i}")).collect();
        let line = |v: &String| format!("{}\n", json!({"key": v, "value": v}));
        let body: String = lines.iter().map(line).collect();
        let kind = [("Content-Type", "application/x-ndjson")];
        let told = call(node, "POST", "/v1/topics/t/records", &kind, &body).is(207);
        let told = String::from_utf8(told.body).unwrap();
        assert_eq!(told.matches("\"offset\":").count(), 40, "{told}");
        wanted.extend(lines);
    }
    for node in trio.up() {
        assert_eq!(read_all(node), wanted);
        let topic = get(node, "/v1/topics/t").is(200).json();
        let list = topic["partition_list"].as_array().unwrap();
        let ends: i64 = list
            .iter()
            .map(|p| p["high_watermark"].as_i64().unwrap())
            .sum();
        assert_eq!(usize::try_from(ends).unwrap(), wanted.len());
        let page = get(node, "/v1/topics/t/records?limit=1000&offset=start")
            .is(200)
            .json();
        assert_eq!(page["records"].as_array().unwrap().len(), wanted.len());
        let past = get(node, "/v1/topics/t/partitions/0?offset=100000")
            .is(416)
            .json();
        assert!(past["high_watermark"].as_i64().unwrap() > 0);
        // A node's own configs are told by that node.
        for id in 1..=3 {
            let configs = get(node, &format!("/v1/brokers/{id}/config"))
                .is(200)
                .json();
            let own = configs["configs"].as_array().unwrap().iter();
            let own = own.filter(|c| c["name"] == "node.id");
            assert_eq!(
                own.map(|c| c["value"].clone()).collect::<Vec<_>>(),
                [json!(id.to_string())]
            );
        }
    }
}

#[test]
fn a_request_is_stored_once_whichever_node_it_is_sent_to() {
    let trio = form();
    let nodes = trio.up();
    let producer = post(nodes[0], "/v1/producers", &json!({})).is(201).json();
    let id = producer["producer_id"].to_string();
    let path = "/v1/topics/t/partitions/3/records";
    let one = records(std::iter::once("once".to_owned())).to_string();
    let headers = [
        ("Riverlog-Producer-Id", id.as_str()),
        ("Riverlog-Producer-Epoch", "0"),
        ("Riverlog-Sequence", "0"),
    ];
    for (n, node) in nodes.iter().enumerate() {
        let told = call(node, "POST", path, &headers, &one).is(200).json();
        assert_eq!(told["results"][0]["offset"], 0);
        assert_eq!(told["results"][0]["duplicate"], n > 0);
        let gap = [headers[0], headers[1], ("Riverlog-Sequence", "7")];
        let refused = call(node, "POST", path, &gap, &one).is(409).json();
        assert_eq!(refused["expected_sequence"], 1, "{refused}");
    }
    for (n, node) in nodes.iter().enumerate() {
        let key = [("Idempotency-Key", "a-key")];
        let told = call(node, "POST", "/v1/topics/t/records", &key, &one).is(200);
        let replayed = told
            .head
            .to_ascii_lowercase()
            .contains("idempotency-replayed: true");
        assert_eq!(replayed, n > 0, "{}", told.head);
        let other = records(std::iter::once("other".to_owned())).to_string();
        call(node, "POST", "/v1/topics/t/records", &key, &other).is(422);
    }
    // Of several writers with a condition one gets through.
    for node in &nodes {
        let condition = [("If-Riverlog-Next-Offset", "0")];
        let status = call(node, "POST", path, &condition, &one).status;
        assert_eq!(status, 412);
    }
}

#[test]
fn groups_are_joined_read_and_committed_at_any_node() {
    let trio = form();
    let nodes = trio.up();
    let values: Vec<String> = (0..200).map(|i| format!("v{i}")).collect();
    post(
        nodes[0],
        "/v1/topics/t/records",
        &records(values.iter().cloned()),
    )
    .is(200);
    // Several groups: their coordinators are spread.
    for n in 0..4 {
        let group = format!("g{n}");
        let members = format!("/v1/groups/{group}/members");
        let at = |step: usize| nodes[(n + step) % 3];
        let mut member = post(at(0), &members, &json!({"topics": ["t"]}))
            .is(201)
            .json();
        let mut got = BTreeSet::new();
        let deadline = Instant::now() + PATIENCE;
        for step in 0.. {
            assert!(Instant::now() < deadline, "{} of 200: {member}", got.len());
            if got.len() == 200 {
                break;
            }
            let id = member["member_id"].as_str().unwrap();
            let cursor = member["cursor"].as_str().unwrap();
            let path = format!("{members}/{id}/records?wait_ms=300&cursor={cursor}");
            let polled = get(at(step), &path).is(200).json();
            for record in polled["records"].as_array().unwrap() {
                got.insert(record["value"].as_str().unwrap().to_owned());
            }
            member = polled;
        }
        let ends = get(at(1), "/v1/topics/t").is(200).json();
        let ends = ends["partition_list"].as_array().unwrap().iter();
        let offsets: Vec<Value> = ends
            .map(|p| json!({"topic": "t", "partition": p["partition"], "offset": p["high_watermark"]}))
            .collect();
        let commit = json!({
            "generation": member["generation"], "member_id": member["member_id"], "offsets": offsets,
        });
        post(at(2), &format!("/v1/groups/{group}/offsets"), &commit).is(200);
        for node in &nodes {
            let lag = get(node, &format!("/v1/groups/{group}/lag")).is(200).json();
            assert_eq!(lag["total"], 0, "{lag}");
            assert_eq!(lag["partitions"].as_array().unwrap().len(), 6);
            let from = format!("/v1/topics/t/partitions/0?offset=group:{group}");
            let rest = get(node, &from).is(200).json();
            assert_eq!(rest["records"].as_array().unwrap().len(), 0, "{rest}");
        }
        let id = member["member_id"].as_str().unwrap();
        call(at(0), "DELETE", &format!("{members}/{id}"), &[], "").is(204);
        let back = json!({"to": "start"});
        let moved = post(at(1), &format!("/v1/groups/{group}:reset"), &back)
            .is(200)
            .json();
        assert_eq!(moved["moves"].as_array().unwrap().len(), 6, "{moved}");
    }
    for node in &nodes {
        let listed = get(node, "/v1/groups").is(200).json();
        let names = listed["groups"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|g| g["group"].as_str().unwrap()).collect();
        assert_eq!(names, ["g0", "g1", "g2", "g3"]);
    }
}

#[test]
fn a_transaction_is_begun_filled_and_ended_at_any_node() {
    let trio = form();
    let nodes = trio.up();
    for n in 0..4 {
        let id = format!("app{n}");
        let at = |step: usize| nodes[(n + step) % 3];
        let begin = json!({"transactional_id": id});
        let mut producer = post(at(0), "/v1/transactions", &begin).is(201).json();
        for (step, verb) in ["commit", "abort"].into_iter().enumerate() {
            let producer_id = producer["producer_id"].to_string();
            let epoch = producer["epoch"].to_string();
            for partition in 0..6 {
                let path = format!("/v1/topics/t/partitions/{partition}/records");
                let headers = [
                    ("Riverlog-Producer-Id", producer_id.as_str()),
                    ("Riverlog-Producer-Epoch", epoch.as_str()),
                    ("Riverlog-Sequence", "0"),
                    ("Riverlog-Transactional-Id", id.as_str()),
                ];
                let value = format!("{id}-{verb}-{partition}");
                let one = records(std::iter::once(value)).to_string();
                // The end of the one before may still be carried out.
                assert!(eventually(|| {
                    let told = call(at(partition), "POST", &path, &headers, &one);
                    assert!(matches!(told.status, 200 | 503), "{}", told.head);
                    told.status == 200
                }));
            }
            let offsets = json!({
                "producer_id": producer["producer_id"], "epoch": producer["epoch"], "group": format!("g{n}"),
                "offsets": [{"topic": "t", "partition": 0, "offset": n}],
            });
            post(
                at(step + 1),
                &format!("/v1/transactions/{id}/offsets"),
                &offsets,
            )
            .is(200);
            let open = get(at(2), &format!("/v1/transactions/{id}")).is(200).json();
            assert_eq!(open["state"], "Ongoing");
            let end = json!({"producer_id": producer["producer_id"], "epoch": producer["epoch"]});
            producer = post(at(step), &format!("/v1/transactions/{id}:{verb}"), &end)
                .is(200)
                .json();
        }
    }
    let wanted: BTreeSet<String> = (0..4)
        .flat_map(|n| (0..6).map(move |p| format!("app{n}-commit-{p}")))
        .collect();
    for node in &nodes {
        assert!(
            eventually(|| read_all(node) == wanted),
            "{:?}",
            read_all(node)
        );
        for n in 0..4 {
            let offsets = get(node, &format!("/v1/groups/g{n}/offsets"))
                .is(200)
                .json();
            assert_eq!(offsets["offsets"][0]["offset"], n, "{offsets}");
        }
    }
}

/// Reads a stream until words have come.
fn hear(stream: &mut TcpStream, heard: &mut String, words: &str) {
    let mut buffer = [0; 4096];
    while !heard.contains(words) {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the stream ended: {heard}");
        heard.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

#[test]
fn streams_pass_through_and_requests_for_a_node_that_stands_still_are_answered() {
    let mut trio = form();
    let led = |trio: &Trio| usize::try_from(trio.in_sync("t")[0].leader_id).unwrap();
    let leader = led(&trio);
    let others: Vec<usize> = (1..=3).filter(|id| *id != leader).collect();
    let path = "/v1/topics/t/partitions/0/records";
    let send = |at: &Server, value: &str| {
        let one = json!({"records": [{"value": value}]});
        post(at, path, &one).status
    };
    let accept = [("Accept", "text/event-stream")];
    let events = "/v1/topics/t/partitions/0?offset=start";
    let listener = trio.up()[others[0] - 1].http.clone();
    let mut stream = open(&listener, "GET", events, &accept, "");
    let mut tail = open(&listener, "GET", "/v1/topics/t/records", &accept, "");
    let (mut heard, mut heard_of_all) = (String::new(), String::new());
    hear(&mut tail, &mut heard_of_all, ": here");
    assert_eq!(send(trio.up()[others[1] - 1], "first"), 200);
    hear(&mut stream, &mut heard, "first");
    hear(&mut tail, &mut heard_of_all, "first");

    // The leader stands still: nobody waits for it for ever, and its successor is found.
    signal(&trio.up()[leader - 1].child, "STOP");
    let begin = Instant::now();
    let status = send(trio.up()[others[0] - 1], "lost-or-not");
    assert!(matches!(status, 200 | 503 | 504), "{status}");
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
    assert!(eventually(
        || send(trio.up()[others[0] - 1], "second") == 200
    ));
    let read = format!("{events}&limit=100");
    assert!(eventually(|| {
        let read = get(trio.up()[others[1] - 1], &read);
        read.status == 200 && String::from_utf8_lossy(&read.body).contains("second")
    }));
    // The tail of all partitions has no node of its own: it goes on with the new leader.
    hear(&mut tail, &mut heard_of_all, "second");
    signal(&trio.up()[leader - 1].child, "CONT");
    trio.in_sync("t");

    // Killed: the same, and a node that has just started passes on as well.
    let leader = led(&trio);
    let other = (1..=3).find(|id| *id != leader).unwrap();
    trio.kill(leader);
    let up: Vec<String> = trio.up().iter().map(|s| s.http.clone()).collect();
    assert_eq!(up.len(), 2);
    assert!(eventually(|| send(trio.up()[0], "third") == 200));
    trio.start(leader);
    trio.in_sync("t");
    assert_eq!(send(trio.up()[leader - 1], "fourth"), 200);
    let read = get(trio.up()[other - 1], &read).is(200);
    let text = String::from_utf8(read.body).unwrap();
    for value in ["first", "second", "third", "fourth"] {
        assert!(text.contains(value), "{value}: {text}");
    }
}

#[test]
fn requests_for_a_node_that_came_back_at_another_port_are_passed_on_to_it_there() {
    let mut trio = form();
    trio.stop(3);
    trio.start_elsewhere(3);
    trio.in_sync("t");
    // It leads again what it led.
    let led = |trio: &Trio| {
        let all = partitions_at(&trio.places[0], "t").unwrap_or_default();
        let led = all.iter().find(|p| p.leader_id == 3);
        led.map(|p| p.partition_index)
    };
    assert!(eventually(|| {
        trio.run(&["cluster", "elect"]);
        led(&trio).is_some()
    }));
    let partition = led(&trio).unwrap();
    let path = format!("/v1/topics/t/partitions/{partition}/records");
    let one = json!({"records": [{"value": "moved"}]});
    for node in [0, 1] {
        let mut told = String::new();
        let stored = eventually(|| {
            let answer = post(trio.up()[node], &path, &one);
            told = String::from_utf8_lossy(&answer.body).into_owned();
            answer.status == 200
        });
        assert!(stored, "{told}");
    }
    assert_eq!(led(&trio), Some(partition));
    // And it votes as before.
    let voters = members(trio.up()[0]).into_iter().filter(|m| m.1);
    assert_eq!(voters.count(), 3);
}
