//! Records in and out: forms, bounds, partial failures, streams.

mod support;

use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use riverlog_http::HttpSettings;
use riverlog_wire::batch::{Batch, BatchBuilder};
use riverlog_wire::compression::{Compression, compress, decompress};
use riverlog_wire::partitioner::partition_for_key;
use serde_json::json;
use support::World;

#[tokio::test]
async fn what_is_published_comes_back_exactly() {
    let world = World::new();
    world.topic("t", 1).await;
    let body = r#"{"records":[
        {"key":"k","value":"v","headers":[{"name":"h","value":null},{"name":"h","value":{"base64":"AP8="}}],"timestamp":1767225600000},
        {"key":null,"value":"null"},
        {"key":{"base64":"/w=="},"value":null},
        {"value":{"json":{"n": 9007199254740993.0}}}
    ]}"#;
    let answer = world
        .post("/v1/topics/t/records", body)
        .await
        .is(200)
        .json();
    let offsets: Vec<_> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["offset"].clone())
        .collect();
    assert_eq!(offsets, [0, 1, 2, 3]);
    assert_eq!(answer["results"][0]["timestamp"], 1_767_225_600_000_i64);
    let answer = world
        .get("/v1/topics/t/partitions/0?offset=start")
        .await
        .is(200);
    assert_eq!(
        answer.header("link"),
        "</v1/topics/t/partitions/0?offset=4>; rel=\"next\""
    );
    assert!(answer.text.contains(r#""key":"k","value":"v","headers":[{"name":"h","value":null},{"name":"h","value":{"base64":"AP8="}}]"#), "{}", answer.text);
    assert!(answer.text.contains(r#""key":null,"value":"null""#));
    assert!(
        answer
            .text
            .contains(r#""key":{"base64":"/w=="},"value":null"#)
    );
    let read = answer.json();
    assert_eq!(read["next_offset"], 4);
    assert_eq!(read["high_watermark"], 4);
    assert_eq!(read["log_start_offset"], 0);
    let embedded = world
        .get("/v1/topics/t/partitions/0?offset=3&embed=json&int64=string")
        .await;
    assert!(
        embedded.text.contains(r#""offset":"3""#),
        "{}",
        embedded.text
    );
    assert!(
        embedded
            .text
            .contains(r#""value":{"n": 9007199254740993.0}"#),
        "{}",
        embedded.text
    );
}

#[tokio::test]
async fn keys_go_where_kafkas_own_producer_puts_them() {
    let world = World::new();
    world.topic("t", 7).await;
    let keys: Vec<String> = (0..1000).map(|i| format!("key-{}", i * 7919)).collect();
    let records: Vec<_> = keys
        .iter()
        .map(|k| json!({"key": k, "value": ""}))
        .collect();
    let body = json!({ "records": records }).to_string();
    let answer = world
        .post("/v1/topics/t/records", &body)
        .await
        .is(200)
        .json();
    for (key, result) in keys.iter().zip(answer["results"].as_array().unwrap()) {
        assert_eq!(result["partition"], partition_for_key(key.as_bytes(), 7).0);
    }
    // Those without a key stay together, and the next request has its turn elsewhere.
    let body = r#"{"records":[{"value":"a"},{"value":"b"}]}"#;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..7 {
        let answer = world
            .post("/v1/topics/t/records", body)
            .await
            .is(200)
            .json();
        assert_eq!(
            answer["results"][0]["partition"],
            answer["results"][1]["partition"]
        );
        seen.insert(answer["results"][0]["partition"].to_string());
    }
    assert_eq!(seen.len(), 7);
}

#[tokio::test]
async fn a_partial_failure_is_never_a_plain_200() {
    let world = World::new();
    world.topic("t", 2).await;
    let body = r#"{"records":[{"value":"a","partition":0},{"value":"b","partition":9},{"value":7},{"value":"c","partition":1}]}"#;
    let answer = world
        .post("/v1/topics/t/records", body)
        .await
        .is(207)
        .json();
    let results = &answer["results"];
    assert_eq!(results[0]["offset"], 0);
    assert_eq!(
        results[1]["error"]["type"],
        "urn:riverlog:problem:unknown-partition"
    );
    assert_eq!(
        results[2]["error"]["type"],
        "urn:riverlog:problem:bad-fields"
    );
    assert_eq!(results[3]["partition"], 1);
    // All failed alike: then the request did.
    let body = r#"{"records":[{"value":"a","partition":5},{"value":"b","partition":9}]}"#;
    world
        .post("/v1/topics/t/records", body)
        .await
        .problem(404, "unknown-partition");
    world
        .post("/v1/topics/t/records", "{\"records\":[]}")
        .await
        .problem(422, "no-records");
    world
        .post(
            "/v1/topics/none/records",
            "{\"records\":[{\"value\":\"\"}]}",
        )
        .await
        .problem(404, "unknown-topic");
    // A value that was forgotten is no tombstone.
    world
        .post("/v1/topics/t/records", "{\"records\":[{\"key\":\"k\"}]}")
        .await
        .problem(422, "bad-fields");
    world
        .post("/v1/topics/t/records", "{\"records\":[")
        .await
        .problem(400, "bad-request");
}

#[tokio::test]
async fn a_compacted_topic_names_the_records_without_a_key() {
    let world = World::new();
    let body = r#"{"name":"t","partitions":1,"configs":{"cleanup.policy":"compact"}}"#;
    world.post("/v1/topics", body).await.is(201);
    let body = r#"{"records":[{"key":"a","value":"1"},{"value":"2"}]}"#;
    let problem = world
        .post("/v1/topics/t/records", body)
        .await
        .problem(422, "invalid-record");
    assert_eq!(problem["errors"][0]["status"], 424);
    assert_eq!(
        problem["errors"][1]["type"],
        "urn:riverlog:problem:invalid-record"
    );
    assert_eq!(
        world.get("/v1/topics/t/partitions/0").await.json()["high_watermark"],
        0
    );
}

#[tokio::test]
async fn acks_say_how_much_an_answer_means() {
    let world = World::new();
    world.topic("t", 1).await;
    let body = r#"{"records":[{"value":"a"}],"acks":0}"#;
    let answer = world
        .post("/v1/topics/t/records", body)
        .await
        .is(202)
        .json();
    assert!(answer["results"][0].get("offset").is_none());
    world
        .post(
            "/v1/topics/t/records?acks=leader",
            r#"{"records":[{"value":"a"}]}"#,
        )
        .await
        .is(200);
    world
        .post("/v1/topics/t/records?acks=2", "{}")
        .await
        .problem(400, "bad-request");
    world
        .post(
            "/v1/topics/t/records",
            r#"{"records":[{"value":"a"}],"acks":2}"#,
        )
        .await
        .problem(422, "bad-fields");
}

#[tokio::test]
async fn positions_bounds_and_waits() {
    let world = World::new();
    world.topic("t", 1).await;
    world.values("t", &["a", "b", "c", "d", "e"]).await;
    let read = async |query: &str| {
        let answer = world
            .get(&format!("/v1/topics/t/partitions/0?{query}"))
            .await
            .is(200)
            .json();
        let values = answer["records"].as_array().unwrap().iter();
        let values: Vec<String> = values
            .map(|r| r["value"].as_str().unwrap().to_owned())
            .collect();
        (values.concat(), answer["next_offset"].as_i64().unwrap())
    };
    assert_eq!(read("offset=2").await, ("cde".to_owned(), 5));
    assert_eq!(read("offset=-2").await, ("de".to_owned(), 5));
    assert_eq!(read("offset=-99").await, ("abcde".to_owned(), 5));
    assert_eq!(read("offset=end").await, (String::new(), 5));
    assert_eq!(read("offset=time:0").await, ("abcde".to_owned(), 5));
    assert_eq!(
        read("offset=time:2200-01-01T00:00:00Z").await,
        (String::new(), 5)
    );
    assert_eq!(read("offset=group:nobody").await, ("abcde".to_owned(), 5));
    assert_eq!(read("offset=1&limit=2").await, ("bc".to_owned(), 3));
    assert_eq!(read("offset=1&max_bytes=2").await, ("bc".to_owned(), 3));
    assert_eq!(read("offset=start&until=3").await, ("abc".to_owned(), 3));
    assert_eq!(read("offset=3&until=3").await, (String::new(), 3));
    let problem = world
        .get("/v1/topics/t/partitions/0?offset=9")
        .await
        .problem(416, "offset-out-of-range");
    assert_eq!(
        (
            problem["log_start_offset"].as_i64(),
            problem["high_watermark"].as_i64()
        ),
        (Some(0), Some(5))
    );
    world
        .get("/v1/topics/t/partitions/0?offset=0&limit=0")
        .await
        .problem(400, "bad-request");
    world
        .get("/v1/topics/t/partitions/0?offest=0")
        .await
        .problem(400, "bad-request");
    world
        .get("/v1/topics/t/partitions/7?offset=0")
        .await
        .problem(404, "unknown-partition");
    world
        .get("/v1/topics/t/partitions/-1?offset=0")
        .await
        .problem(400, "bad-request");
    // A wait ends when it is over, or as soon as there is something.
    let begin = Instant::now();
    assert_eq!(read("offset=end&wait_ms=50").await.1, 5);
    assert!(begin.elapsed() >= Duration::from_millis(50));
    let begin = Instant::now();
    let (waited, ()) = tokio::join!(read("offset=end&wait_ms=20000"), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.values("t", &["f"]).await;
    });
    assert_eq!(waited, ("f".to_owned(), 6));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn one_raw_value() {
    let world = World::new();
    world.topic("t", 3).await;
    let octets = ("content-type", "application/octet-stream");
    let bytes: Vec<u8> = (0..=255).collect();
    let headers = [
        octets,
        ("riverlog-key", "a%2Fb%00"),
        ("riverlog-header-trace", "1%25"),
        ("riverlog-timestamp", "5"),
        ("riverlog-partition", "2"),
    ];
    let answer = world
        .send("POST", "/v1/topics/t/records", &headers, bytes.clone())
        .await
        .is(200)
        .json();
    assert_eq!(answer["results"][0]["partition"], 2);
    let tombstone = [
        octets,
        ("riverlog-key", "gone"),
        ("riverlog-tombstone", "true"),
    ];
    world
        .send("POST", "/v1/topics/t/partitions/2/records", &tombstone, "")
        .await
        .is(200);
    let answer = world
        .get_as(
            "/v1/topics/t/partitions/2?offset=0",
            "application/octet-stream",
        )
        .await
        .is(200);
    assert_eq!(answer.header("riverlog-key"), "a/b%00");
    assert_eq!(answer.header("riverlog-header-trace"), "1%25");
    assert_eq!(
        (
            answer.header("riverlog-offset"),
            answer.header("riverlog-next-offset")
        ),
        ("0", "1")
    );
    assert_eq!(answer.header("riverlog-timestamp"), "5");
    assert_eq!(answer.text, String::from_utf8_lossy(&bytes));
    let answer = world
        .get_as(
            "/v1/topics/t/partitions/2?offset=1",
            "application/octet-stream",
        )
        .await
        .is(200);
    assert_eq!(
        (answer.header("riverlog-tombstone"), answer.text.as_str()),
        ("true", "")
    );
    world
        .get_as(
            "/v1/topics/t/partitions/2?offset=2",
            "application/octet-stream",
        )
        .await
        .is(204);
}

#[tokio::test]
async fn raw_batches_are_those_of_kafkas_clients() {
    let world = World::new();
    world.topic("t", 1).await;
    let mut batch = BatchBuilder::new(Compression::Zstd);
    batch
        .push(1, Some(b"k"), Some(b"v"), &[])
        .push(2, None, None, &[]);
    let batch = batch.build();
    let kind = [("content-type", "application/vnd.kafka.recordbatch")];
    let path = "/v1/topics/t/partitions/0/records";
    let answer = world
        .send("POST", path, &kind, batch.clone())
        .await
        .is(200)
        .json();
    assert_eq!(
        (answer["base_offset"].as_i64(), answer["records"].as_i64()),
        (Some(0), Some(2))
    );
    world
        .send("POST", "/v1/topics/t/records", &kind, batch.clone())
        .await
        .problem(422, "partition-missing");
    let mut damaged = batch.clone();
    *damaged.last_mut().unwrap() ^= 1;
    world
        .send("POST", path, &kind, damaged)
        .await
        .problem(422, "corrupt-batch");
    world
        .send("POST", path, &kind, "short")
        .await
        .problem(422, "invalid-record");
    let request = axum::http::Request::builder()
        .uri("/v1/topics/t/partitions/0?offset=1")
        .header("accept", "application/vnd.kafka.recordbatch")
        .body(Body::empty())
        .unwrap();
    let response = world.door.answer(request).await;
    assert_eq!(response.headers()["riverlog-next-offset"], "2");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let read = Batch::parse(&bytes).unwrap();
    read.check_crc().unwrap();
    assert_eq!(
        read.encoded_records(),
        Batch::parse(&batch).unwrap().encoded_records()
    );
}

#[tokio::test]
async fn lines_are_answered_line_by_line() {
    let world = World::new();
    world.topic("t", 1).await;
    let kind = [("content-type", "application/x-ndjson")];
    let body = "{\"value\":\"a\"}\n\nnot json\n{\"value\":\"b\"}";
    let answer = world
        .send("POST", "/v1/topics/t/records", &kind, body)
        .await
        .is(207);
    let lines: Vec<serde_json::Value> = answer
        .text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["offset"], 0);
    assert_eq!(lines[1]["error"]["type"], "urn:riverlog:problem:bad-line");
    assert_eq!(lines[2]["offset"], 1);
    let many: String = (0..2500)
        .map(|i| format!("{{\"value\":\"{i}\"}}\n"))
        .collect();
    let answer = world
        .send("POST", "/v1/topics/t/records", &kind, many)
        .await
        .is(207);
    assert_eq!(answer.text.lines().count(), 2500);
    assert!(
        answer
            .text
            .lines()
            .last()
            .unwrap()
            .contains("\"offset\":2501")
    );
    let answer = world
        .get_as("/v1/topics/t/partitions/0?offset=2", "application/x-ndjson")
        .await
        .is(200);
    assert_eq!(answer.text.lines().count(), 2500);
    let answer = world
        .get_as(
            "/v1/topics/t/partitions/0?offset=0&limit=3",
            "application/x-ndjson",
        )
        .await;
    assert_eq!(answer.text.lines().count(), 3);
}

#[tokio::test]
async fn results_of_a_stream_come_while_it_is_still_sent() {
    let world = World::new();
    world.topic("t", 1).await;
    let (send, receive) = tokio::sync::mpsc::channel::<Bytes>(1);
    let stream = futures_util::stream::unfold(receive, |mut receive| async {
        Some((
            Ok::<_, std::convert::Infallible>(receive.recv().await?),
            receive,
        ))
    });
    let request = axum::http::Request::post("/v1/topics/t/records")
        .header("content-type", "application/x-ndjson")
        .body(Body::from_stream(stream))
        .unwrap();
    let mut body = world.door.answer(request).await.into_body();
    for n in 0..3 {
        send.send(Bytes::from_static(b"{\"value\":\"x\"}\n{\"val"))
            .await
            .unwrap();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let line = String::from_utf8(frame.to_vec()).unwrap();
        assert!(line.contains(&format!("\"offset\":{}", n * 2)), "{line}");
        send.send(Bytes::from_static(b"ue\":\"y\"}\n"))
            .await
            .unwrap();
        body.frame().await.unwrap().unwrap();
    }
    drop(send);
    assert!(body.frame().await.is_none());
}

/// The next events of a stream, as text.
async fn events(body: &mut Body, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let frame = tokio::time::timeout(Duration::from_secs(20), body.frame())
            .await
            .expect("an event in time");
        let data = frame.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&data).unwrap());
    }
    text
}

#[tokio::test]
async fn events_follow_a_partition_and_go_on_where_they_stopped() {
    let world = World::with(HttpSettings {
        heartbeat: Duration::from_millis(30),
        ..HttpSettings::default()
    });
    world.topic("t", 1).await;
    world.values("t", &["a", "b"]).await;
    let open = async |path: &str, id: Option<&str>| {
        let mut request = axum::http::Request::get(path).header("accept", "text/event-stream");
        if let Some(id) = id {
            request = request.header("last-event-id", id);
        }
        let response = world
            .door
            .answer(request.body(Body::empty()).unwrap())
            .await;
        (response.status().as_u16(), response.into_body())
    };
    let (status, mut body) = open("/v1/topics/t/partitions/0?offset=0", None).await;
    assert_eq!(status, 200);
    let text = events(&mut body, "id: 0:1").await;
    assert!(text.starts_with("id: 0:0\ndata: {\"offset\":0,"), "{text}");
    events(&mut body, ": nothing new\n\n").await;
    world.values("t", &["c"]).await;
    events(&mut body, "id: 0:2\n").await;
    drop(body);
    let (_, mut body) = open("/v1/topics/t/partitions/0?offset=0", Some("0:1")).await;
    let text = events(&mut body, "id:").await;
    assert!(text.starts_with("id: 0:2\n"), "{text}");
    for id in ["1:1", "x", "0:", "0:-4"] {
        assert_eq!(
            open("/v1/topics/t/partitions/0", Some(id)).await.0,
            400,
            "{id}"
        );
    }
    // Retention was faster than the reader.
    let topic = world.driver.node.image().topic("t").unwrap().id;
    let partition = world
        .driver
        .node
        .partition(&riverlog_core::metadata::TopicRef::Id(topic), 0)
        .unwrap();
    world
        .driver
        .call(false, |node, now, reply| {
            node.delete_records(&partition, riverlog_wire::Offset(2), now, reply)
        })
        .unwrap()
        .unwrap();
    let (_, mut body) = open("/v1/topics/t/partitions/0?offset=0", None).await;
    let text = events(&mut body, "id: 0:2").await;
    assert!(
        text.starts_with("event: gap\ndata: {\"from\":0,\"to\":2}\n\nid: 0:2\n"),
        "{text}"
    );
}

#[tokio::test]
async fn bodies_are_bounded_before_they_are_parsed() {
    let world = World::with(HttpSettings {
        max_body_bytes: 1000,
        max_held_bytes: 1500,
        body_timeout: Duration::from_millis(50),
        ..HttpSettings::default()
    });
    world.topic("t", 1).await;
    let large = format!("{{\"records\":[{{\"value\":\"{}\"}}]}}", "x".repeat(1000));
    world
        .post("/v1/topics/t/records", &large)
        .await
        .problem(413, "body-too-large");
    let announced = [
        ("content-type", "application/json"),
        ("content-length", "99999999999"),
    ];
    world
        .send("POST", "/v1/topics/t/records", &announced, "")
        .await
        .problem(413, "body-too-large");
    // What is small on the way and large when opened.
    let mut small = Vec::new();
    compress(Compression::Gzip, large.as_bytes(), &mut small).unwrap();
    let packed = [
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
    ];
    world
        .send("POST", "/v1/topics/t/records", &packed, small)
        .await
        .problem(400, "bad-request");
    let kind = [("content-type", "application/x-ndjson")];
    let answer = world
        .send("POST", "/v1/topics/t/records", &kind, large)
        .await
        .is(207);
    assert!(
        answer.text.contains("body-too-large") || answer.text.contains("\"offset\":0"),
        "{}",
        answer.text
    );
    // A body that stands still is not waited for, and what it took is given back.
    let stalled =
        || {
            let first = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(
                Bytes::from(vec![b' '; 900]),
            )]);
            Body::from_stream(futures_util::StreamExt::chain(
                first,
                futures_util::stream::pending(),
            ))
        };
    let json = [("content-type", "application/json")];
    let (a, b) = tokio::join!(
        world.send("POST", "/v1/topics/t/records", &json, stalled()),
        world.send("POST", "/v1/topics/t/records", &json, stalled()),
    );
    a.problem(408, "body-stalled");
    b.problem(503, "busy");
    world
        .post("/v1/topics/t/records", "{\"records\":[{\"value\":\"x\"}]}")
        .await
        .is(200);
}

#[tokio::test]
async fn bodies_may_be_compressed_both_ways() {
    let world = World::new();
    world.topic("t", 1).await;
    let body = format!("{{\"records\":[{{\"value\":\"{}\"}}]}}", "x".repeat(5000));
    for (codec, name) in [(Compression::Gzip, "gzip"), (Compression::Zstd, "zstd")] {
        let mut small = Vec::new();
        compress(codec, body.as_bytes(), &mut small).unwrap();
        let headers = [
            ("content-type", "application/json"),
            ("content-encoding", name),
        ];
        world
            .send("POST", "/v1/topics/t/records", &headers, small)
            .await
            .is(200);
        let request = axum::http::Request::get("/v1/topics/t/partitions/0?offset=0")
            .header("accept-encoding", name)
            .body(Body::empty())
            .unwrap();
        let response = world.door.answer(request).await;
        assert_eq!(response.headers()["content-encoding"], name);
        let small = response.into_body().collect().await.unwrap().to_bytes();
        let mut out = Vec::new();
        decompress(codec, &small, 1 << 20, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains(&"x".repeat(5000)));
    }
    let odd = [
        ("content-type", "application/json"),
        ("content-encoding", "br"),
    ];
    world
        .send("POST", "/v1/topics/t/records", &odd, "")
        .await
        .problem(415, "unsupported-media-type");
}

#[tokio::test]
async fn streams_are_counted() {
    let world = World::with(HttpSettings {
        max_streams: 1,
        ..HttpSettings::default()
    });
    world.topic("t", 1).await;
    let request = || {
        axum::http::Request::get("/v1/topics/t/partitions/0?offset=0")
            .header("accept", "text/event-stream")
            .body(Body::empty())
            .unwrap()
    };
    let first = world.door.answer(request()).await;
    assert_eq!(first.status(), 200);
    assert_eq!(world.door.answer(request()).await.status(), 503);
    drop(first);
    assert_eq!(world.door.answer(request()).await.status(), 200);
}

#[tokio::test]
async fn a_large_request_goes_in_several_batches() {
    let world = World::new();
    let body = r#"{"name":"t","partitions":1,"configs":{"max.message.bytes":"1000"}}"#;
    world.post("/v1/topics", body).await.is(201);
    let records: Vec<_> = (0..10).map(|_| json!({"value": "x".repeat(300)})).collect();
    let body = json!({ "records": records }).to_string();
    let answer = world
        .post("/v1/topics/t/records", &body)
        .await
        .is(200)
        .json();
    assert_eq!(answer["results"][9]["offset"], 9);
    let body = json!({"records": [{"value": "x"}, {"value": "x".repeat(2000)}]}).to_string();
    let answer = world
        .post("/v1/topics/t/records", &body)
        .await
        .is(207)
        .json();
    assert_eq!(answer["results"][0]["offset"], 10);
    assert_eq!(answer["results"][1]["error"]["status"], 413);
}
