//! Each request is stored once, however often it is sent: sequences, keys, conditions, transactions.

mod support;

use riverlog_http::HttpSettings;
use serde_json::{Value, json};
use support::{Answer, World};

const RECORDS: &str = r#"{"records":[{"value":"a"},{"value":"b"}]}"#;

async fn end_of(world: &World, partition: i32) -> i64 {
    let path = format!("/v1/topics/t/partitions/{partition}");
    world.get(&path).await.json()["log_end_offset"]
        .as_i64()
        .unwrap()
}

async fn send(world: &World, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    world.send("POST", path, &all, body.to_owned()).await
}

#[tokio::test]
async fn a_sequence_stores_once_and_gaps_are_told() {
    let world = World::new();
    world.topic("t", 1).await;
    let producer = world.post("/v1/producers", "{}").await.is(201).json();
    let id = producer["producer_id"].to_string();
    let path = "/v1/topics/t/records";
    let numbered = async |epoch: &str, sequence: &str, body: &str| {
        let headers = [
            ("riverlog-producer-id", id.as_str()),
            ("riverlog-producer-epoch", epoch),
            ("riverlog-sequence", sequence),
        ];
        send(&world, path, &headers, body).await
    };
    let first = numbered("0", "0", RECORDS).await.is(200).json();
    assert_eq!(
        (
            first["results"][1]["offset"].as_i64(),
            first["results"][1]["duplicate"].as_bool()
        ),
        (Some(1), Some(false))
    );
    let again = numbered("0", "0", RECORDS).await.is(200).json();
    assert_eq!(
        (
            again["results"][1]["offset"].as_i64(),
            again["results"][1]["duplicate"].as_bool()
        ),
        (Some(1), Some(true))
    );
    assert_eq!(end_of(&world, 0).await, 2);
    let problem = numbered("0", "5", RECORDS)
        .await
        .problem(409, "out-of-order-sequence");
    assert_eq!(problem["expected_sequence"], 2);
    numbered("0", "2", RECORDS).await.is(200);
    numbered("1", "0", RECORDS).await.is(200);
    let problem = numbered("0", "4", RECORDS)
        .await
        .problem(409, "producer-fenced");
    assert_eq!(problem["current_epoch"], 1);
    // A record that can't be stored would shift the count: nothing of the request is.
    numbered("1", "2", r#"{"records":[{"value":"a"},{"value":1}]}"#)
        .await
        .problem(422, "bad-fields");
    assert_eq!(end_of(&world, 0).await, 6);
    send(&world, path, &[("riverlog-producer-id", "1")], RECORDS)
        .await
        .problem(400, "bad-request");
    world.topic("u", 2).await;
    let headers = [
        ("riverlog-producer-id", id.as_str()),
        ("riverlog-producer-epoch", "1"),
        ("riverlog-sequence", "0"),
    ];
    let two = r#"{"records":[{"value":"a","partition":0},{"value":"b","partition":1}]}"#;
    send(&world, "/v1/topics/u/records", &headers, two)
        .await
        .problem(422, "more-than-one-partition");
}

#[tokio::test]
async fn an_idempotency_key_replays_the_answer() {
    let world = World::new();
    world.topic("t", 3).await;
    let key = [("idempotency-key", "6f2d")];
    let path = "/v1/topics/t/records";
    let first = send(&world, path, &key, RECORDS).await.is(200);
    assert_eq!(first.header("idempotency-replayed"), "");
    let first = first.json();
    for _ in 0..3 {
        let again = send(&world, path, &key, RECORDS).await.is(200);
        assert_eq!(again.header("idempotency-replayed"), "true");
        let again = again.json();
        for n in 0..2 {
            assert_eq!(again["results"][n]["offset"], first["results"][n]["offset"]);
            assert_eq!(
                again["results"][n]["partition"],
                first["results"][n]["partition"]
            );
        }
    }
    let ends = end_of(&world, 0).await + end_of(&world, 1).await + end_of(&world, 2).await;
    assert_eq!(ends, 2);
    // Another content under the same key, of the same and of another length.
    for body in [
        r#"{"records":[{"value":"a"},{"value":"c"}]}"#,
        r#"{"records":[{"value":"a"}]}"#,
    ] {
        send(&world, path, &key, body)
            .await
            .problem(422, "idempotency-key-reused");
    }
    // Several at once, as a client that is impatient sends them.
    let key = [("idempotency-key", "\"b\"")];
    let all = tokio::join!(
        send(&world, path, &key, RECORDS),
        send(&world, path, &key, RECORDS),
        send(&world, path, &key, RECORDS)
    );
    let offsets = [
        all.0.is(200).json(),
        all.1.is(200).json(),
        all.2.is(200).json(),
    ]
    .map(|a| a["results"][0]["offset"].clone());
    assert!(offsets.iter().all(|o| *o == offsets[0]), "{offsets:?}");
    let spread = r#"{"records":[{"value":"a","partition":0},{"value":"b","partition":1}]}"#;
    send(&world, path, &[("idempotency-key", "x")], spread)
        .await
        .problem(422, "more-than-one-partition");
    send(&world, path, &[("idempotency-key", "")], RECORDS)
        .await
        .problem(400, "bad-request");
    // One raw value, with its headers.
    let octets = [
        ("content-type", "application/octet-stream"),
        ("idempotency-key", "raw"),
        ("riverlog-key", "k"),
    ];
    let first = world.send("POST", path, &octets, "x").await.is(200).json();
    let again = world.send("POST", path, &octets, "x").await.is(200);
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(
        again.json()["results"][0]["offset"],
        first["results"][0]["offset"]
    );
    let other = [
        ("content-type", "application/octet-stream"),
        ("idempotency-key", "raw"),
        ("riverlog-key", "k"),
        ("riverlog-header-h", "1"),
    ];
    world
        .send("POST", path, &other, "x")
        .await
        .problem(422, "idempotency-key-reused");
}

#[tokio::test]
async fn keys_are_bounded() {
    let world = World::with(HttpSettings {
        max_idempotency_keys: 2,
        ..HttpSettings::default()
    });
    world.topic("t", 1).await;
    for key in ["a", "b"] {
        send(
            &world,
            "/v1/topics/t/records",
            &[("idempotency-key", key)],
            RECORDS,
        )
        .await
        .is(200);
    }
    let answer = send(
        &world,
        "/v1/topics/t/records",
        &[("idempotency-key", "c")],
        RECORDS,
    )
    .await;
    assert_eq!(answer.header("retry-after"), "60");
    answer.problem(429, "too-many-idempotency-keys");
}

#[tokio::test]
async fn a_condition_lets_one_of_several_writers_through() {
    let world = World::new();
    world.topic("t", 1).await;
    let path = "/v1/topics/t/partitions/0/records";
    let at =
        async |next: &str| send(&world, path, &[("if-riverlog-next-offset", next)], RECORDS).await;
    let (a, b) = tokio::join!(at("0"), at("0"));
    let mut statuses = [a.status, b.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412]);
    let problem = at("0").await.problem(412, "next-offset");
    assert_eq!(problem["next_offset"], 2);
    at("2").await.is(200);
    at("9").await.problem(412, "next-offset");
    assert_eq!(end_of(&world, 0).await, 4);
    let both = [("if-riverlog-next-offset", "4"), ("idempotency-key", "k")];
    send(&world, path, &both, RECORDS)
        .await
        .problem(422, "two-ways-to-be-exact");
}

fn values(answer: &Value) -> Vec<&str> {
    let records = answer["records"].as_array().unwrap().iter();
    records.map(|r| r["value"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_transaction_covers_records_and_offsets() {
    let world = World::new();
    world.topic("t", 1).await;
    world.topic("in", 1).await;
    world.values("in", &["1", "2"]).await;
    let begin = json!({"transactional_id": "app/1"}).to_string();
    let mut producer = world.post("/v1/transactions", &begin).await.is(201).json();
    let mut sequence = 0;
    for (verb, offset) in [("abort", 1), ("commit", 2)] {
        let (id, epoch) = (
            producer["producer_id"].to_string(),
            producer["epoch"].to_string(),
        );
        let number = sequence.to_string();
        let headers = [
            ("riverlog-transactional-id", "app%2F1"),
            ("riverlog-producer-id", id.as_str()),
            ("riverlog-producer-epoch", epoch.as_str()),
            ("riverlog-sequence", number.as_str()),
        ];
        let body = format!("{{\"records\":[{{\"value\":\"{verb}\"}}]}}");
        let sent = loop {
            let sent = send(&world, "/v1/topics/t/records", &headers, &body).await;
            // Markers of the transaction before are still being written.
            if sent.status != 503 {
                break sent;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        sent.is(200);
        let offsets = json!({
            "producer_id": producer["producer_id"],
            "epoch": producer["epoch"],
            "group": "g",
            "offsets": [{"topic": "in", "partition": 0, "offset": offset}],
        });
        world
            .post("/v1/transactions/app%2F1/offsets", &offsets.to_string())
            .await
            .is(200);
        let open = world.get("/v1/transactions/app%2F1").await.is(200).json();
        assert_eq!(open["state"], "Ongoing");
        // Not before the end.
        let read = world
            .get("/v1/topics/t/partitions/0?offset=start")
            .await
            .is(200)
            .json();
        assert!(values(&read).is_empty(), "{read}");
        let end =
            json!({"producer_id": producer["producer_id"], "epoch": producer["epoch"]}).to_string();
        let old = end.clone();
        producer = world
            .post(&format!("/v1/transactions/app%2F1:{verb}"), &end)
            .await
            .is(200)
            .json();
        sequence = 0;
        if verb == "commit" {
            // Sent again, as after a lost answer: done already.
            world
                .post("/v1/transactions/app%2F1:commit", &old)
                .await
                .is(200);
        }
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let read = world
            .get("/v1/topics/t/partitions/0?offset=start")
            .await
            .is(200)
            .json();
        if values(&read) == ["commit"] {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{read}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let all = world
        .get("/v1/topics/t/partitions/0?offset=start&isolation=read_uncommitted")
        .await
        .json();
    assert!(values(&all).contains(&"commit"));
    let offsets = world.get("/v1/groups/g/offsets").await.is(200).json();
    assert_eq!(offsets["offsets"][0]["offset"], 2);
    // Another instance under the same id fences this one.
    world.post("/v1/transactions", &begin).await.is(201);
    let end =
        json!({"producer_id": producer["producer_id"], "epoch": producer["epoch"]}).to_string();
    world
        .post("/v1/transactions/app%2F1:commit", &end)
        .await
        .problem(409, "producer-fenced");
    world
        .get("/v1/transactions/none")
        .await
        .problem(404, "unknown-transaction");
}
