//! What people look at: records of all partitions by time, the tail, a search, and how the node was.

mod support;

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use support::World;

/// Publishes a record with a time to a partition.
async fn at(world: &World, partition: i32, time: i64, value: &str) {
    let body = json!({"records": [{"value": value, "timestamp": time}]});
    let path = format!("/v1/topics/t/partitions/{partition}/records");
    world.post(&path, &body.to_string()).await.is(200);
}

fn values(page: &Value) -> Vec<String> {
    let records = page["records"].as_array().unwrap();
    let value = |r: &Value| format!("{}:{}", r["partition"], r["value"].as_str().unwrap());
    records.iter().map(value).collect()
}

/// Ten records in two partitions whose times take turns: 0, 2, 4, … in the first.
async fn two_partitions() -> World {
    let world = World::new();
    world.topic("t", 2).await;
    for n in 0..10 {
        at(&world, n % 2, 1_000 + i64::from(n), &n.to_string()).await;
    }
    world
}

#[tokio::test]
async fn records_of_all_partitions_come_in_order_of_time_and_pages_lose_none() {
    let world = two_partitions().await;
    let page = world
        .get("/v1/topics/t/records?offset=start&limit=4")
        .await
        .is(200)
        .json();
    assert_eq!(values(&page), ["0:0", "1:1", "0:2", "1:3"]);
    assert_eq!(page["at_start"], true);
    assert_eq!(page["at_end"], false);
    let mut all = values(&page);
    let mut next = page["next"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let path = format!("/v1/topics/t/records?cursor={next}&limit=4");
        let page = world.get(&path).await.is(200).json();
        all.extend(values(&page));
        next = page["next"].as_str().unwrap().to_owned();
    }
    assert_eq!(all.len(), 10);
    assert_eq!(all.last().unwrap(), "1:9");
    let path = format!("/v1/topics/t/records?cursor={next}");
    let page = world.get(&path).await.is(200).json();
    assert!(values(&page).is_empty() && page["at_end"] == true);
}

#[tokio::test]
async fn the_newest_come_first_asked_and_the_older_before_them() {
    let world = two_partitions().await;
    let page = world
        .get("/v1/topics/t/records?offset=-3")
        .await
        .is(200)
        .json();
    assert_eq!(values(&page), ["1:7", "0:8", "1:9"]);
    assert_eq!(page["at_end"], true);
    let mut all = values(&page);
    let mut first = page["first"].as_str().unwrap().to_owned();
    loop {
        let path = format!("/v1/topics/t/records?before={first}&limit=3");
        let page = world.get(&path).await.is(200).json();
        all.splice(0..0, values(&page));
        first = page["first"].as_str().unwrap().to_owned();
        if page["at_start"] == true {
            break;
        }
    }
    let expected: Vec<String> = (0..10).map(|n| format!("{}:{n}", n % 2)).collect();
    assert_eq!(all, expected);
    let page = world
        .get("/v1/topics/t/records?offset=-3&partitions=0&int64=string")
        .await
        .is(200)
        .json();
    assert_eq!(values(&page), ["0:4", "0:6", "0:8"]);
    assert_eq!(page["records"][0]["offset"], "2");
}

#[tokio::test]
async fn looking_from_a_time_begins_there_in_every_partition() {
    let world = two_partitions().await;
    let page = world
        .get("/v1/topics/t/records?offset=time:1007")
        .await
        .is(200)
        .json();
    assert_eq!(values(&page), ["1:7", "0:8", "1:9"]);
    for query in [
        "offset=start&cursor=0:1",
        "cursor=2:0",
        "before=x",
        "partitions=2",
        "offset=nowhere",
        "contains=x",
        "limit=0",
    ] {
        let answer = world.get(&format!("/v1/topics/t/records?{query}")).await;
        assert!(
            (400..500).contains(&answer.status),
            "{query}: {}",
            answer.status
        );
    }
}

#[tokio::test]
async fn a_tail_shows_what_comes_and_goes_on_where_it_was() {
    let world = two_partitions().await;
    let tail = |headers: Vec<(&'static str, String)>, query: &'static str| {
        let mut request = Request::builder().uri(format!("/v1/topics/t/records?{query}"));
        request = request.header("accept", "text/event-stream");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        world.door.answer(request.body(Body::empty()).unwrap())
    };
    let mut body = tail(Vec::new(), "offset=end&contains=wanted")
        .await
        .into_body();
    at(&world, 0, 2_000, "nothing").await;
    at(&world, 1, 2_001, "wanted 1").await;
    let event = event(&mut body).await;
    assert_eq!(values(&event), ["1:wanted 1"]);
    assert_eq!(event["skipped"], 0);
    drop(body);
    at(&world, 0, 2_002, "wanted 2").await;
    let id = event["next"].as_str().unwrap().to_owned();
    let mut body = tail(vec![("last-event-id", id)], "offset=end")
        .await
        .into_body();
    let event = self::event(&mut body).await;
    assert!(values(&event).contains(&"0:wanted 2".to_owned()), "{event}");
    assert!(
        !values(&event).contains(&"1:wanted 1".to_owned()),
        "{event}"
    );
}

#[tokio::test]
async fn a_tail_that_is_slower_shows_the_newest_and_says_what_it_left_out() {
    let world = World::new();
    world.topic("t", 1).await;
    let records: Vec<Value> = (0..350).map(|n| json!({"value": n.to_string()})).collect();
    let body = json!({"records": records}).to_string();
    world.post("/v1/topics/t/records", &body).await.is(200);
    let request = Request::builder()
        .uri("/v1/topics/t/records?cursor=0:0")
        .header("accept", "text/event-stream");
    let answer = world
        .door
        .answer(request.body(Body::empty()).unwrap())
        .await;
    let event = event(&mut answer.into_body()).await;
    assert_eq!(values(&event).len(), 200);
    assert_eq!(values(&event).last().unwrap(), "0:349");
    assert_eq!(event["skipped"], 150);
}

/// The data of the next event with records.
async fn event(body: &mut Body) -> Value {
    let mut text = String::new();
    for _ in 0..50 {
        let frame = tokio::time::timeout(Duration::from_secs(20), body.frame()).await;
        let frame = frame
            .expect("an event in time")
            .expect("the stream goes on")
            .unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        if let Some((_, data)) = text.split_once("event: records\n")
            && let Some((_, data)) = data.split_once("data: ")
            && let Some((data, _)) = data.split_once("\n\n")
        {
            return serde_json::from_str(data).unwrap();
        }
    }
    panic!("no records came: {text}");
}

#[tokio::test]
async fn a_search_finds_what_fits_and_says_how_far_it_came() {
    let world = World::new();
    world.topic("t", 2).await;
    let record = |n: i32| {
        json!({
            "key": format!("k{n}"), "value": format!("value {n}"), "partition": n % 2,
            "headers": [{"name": "kind", "value": if n % 5 == 0 { "five" } else { "other" }}],
        })
    };
    let records: Vec<Value> = (0..40).map(record).collect();
    let body = json!({"records": records}).to_string();
    world.post("/v1/topics/t/records", &body).await.is(200);
    let hits = async |asked: Value| {
        let answer = world
            .post("/v1/topics/t/search", &asked.to_string())
            .await
            .is(200);
        assert_eq!(answer.header("content-type"), "application/x-ndjson");
        let lines: Vec<Value> = answer
            .text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let end = lines.last().unwrap()["end"].clone();
        let key = |line: &Value| line["hit"]["key"].as_str().map(str::to_owned);
        let mut keys: Vec<String> = lines.iter().filter_map(key).collect();
        keys.sort();
        (keys, end)
    };
    let (keys, end) = hits(json!({"where": {"contains": "value 7"}})).await;
    assert_eq!(keys, ["k7"]);
    assert_eq!(end["why"], "complete");
    assert_eq!(end["scanned"], 40);
    assert_eq!((&end["done"], &end["of"]), (&json!(40), &json!(40)));
    let (keys, _) = hits(json!({"where": {"header": "kind=five", "key_contains": "5"}})).await;
    assert_eq!(keys, ["k15", "k25", "k35", "k5"]);
    let (keys, _) = hits(json!({"where": {"header": "kind"}, "partitions": [1]})).await;
    assert_eq!(keys.len(), 20);
    let (keys, _) = hits(json!({"where": {"key_eq": "k1"}})).await;
    assert_eq!(keys, ["k1"]);
    let (keys, _) = hits(json!({"where": {"value_contains": "k"}})).await;
    assert!(keys.is_empty());
    let (keys, _) = hits(json!({"from": "2", "to": "4"})).await;
    assert_eq!(keys, ["k4", "k5", "k6", "k7"]);
    let (mut keys, mut end) = hits(json!({"where": {"contains": "value"}, "limit": 15})).await;
    assert_eq!((keys.len(), &end["why"]), (15, &json!("limit")));
    for _ in 0..2 {
        let cursor = end["cursor"].clone();
        let (more, later) =
            hits(json!({"where": {"contains": "value"}, "limit": 15, "cursor": cursor})).await;
        keys.extend(more);
        end = later;
    }
    keys.sort();
    keys.dedup();
    assert_eq!(
        keys.len(),
        40,
        "an end by limit goes on with the record behind the last hit"
    );
    let (keys, end) = hits(json!({"budget_ms": 0})).await;
    assert!(keys.is_empty());
    assert_eq!(end["why"], "budget");
    for asked in [
        json!({"were": {}}),
        json!({"where": {"jq": "."}}),
        json!({"partitions": [2]}),
        json!({"from": "x"}),
    ] {
        let answer = world.post("/v1/topics/t/search", &asked.to_string()).await;
        assert!((400..500).contains(&answer.status), "{asked}");
    }
}

#[tokio::test]
async fn looks_become_rates_lists_and_history() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.topic(name, 1).await;
    }
    world.door.look().await;
    world.values("b", &["1", "2", "3"]).await;
    world.values("c", &["1"]).await;
    let body = json!({"offsets": [{"topic": "b", "partition": 0, "offset": 1}]});
    world
        .post("/v1/groups/g/offsets", &body.to_string())
        .await
        .is(200);
    world.door.look().await;
    let page = world
        .get("/v1/stats/topics?sort=records&limit=2")
        .await
        .is(200)
        .json();
    assert_eq!(page["total"], 3);
    let names: Vec<&str> = page["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(page["topics"][0]["records"], 3);
    let rate = page["topics"][0]["rate"].as_f64().unwrap();
    assert!((rate - 0.3).abs() < 1e-6, "{rate}");
    let page = world
        .get("/v1/stats/topics?sort=records&limit=2&page=1")
        .await
        .is(200)
        .json();
    assert_eq!(page["topics"][0]["name"], "a");
    let page = world.get("/v1/stats/topics?filter=c").await.is(200).json();
    assert_eq!(page["total"], 1);
    let page = world.get("/v1/stats/groups?topic=b").await.is(200).json();
    assert_eq!(
        (&page["groups"][0]["group"], &page["groups"][0]["lag"]),
        (&json!("g"), &json!(2))
    );
    assert_eq!(
        world.get("/v1/stats/groups?topic=a").await.is(200).json()["total"],
        0
    );
    let history = world
        .get("/v1/history/groups/g?window=15m")
        .await
        .is(200)
        .json();
    assert_eq!(history["series"]["lag"].as_array().unwrap().len(), 90);
    assert_eq!(history["series"]["lag"][89], 2.0);
    assert_eq!(history["events"][0]["state"], "Empty");
    let history = world.get("/v1/history/node?window=1h").await.is(200).json();
    let rate = history["series"]["records_in"][359].as_f64().unwrap();
    assert!((rate - 0.4).abs() < 1e-6, "{rate}");
    assert!(history["series"]["records_in"][358].is_null());
    let history = world.get("/v1/history/topics/b").await.is(200).json();
    assert_eq!(history["step_ms"], 10_000);
    let stats = world.get("/v1/stats").await.is(200).json();
    assert_eq!(
        (&stats["groups"], &stats["read_only"]),
        (&json!(1), &json!(false))
    );
    assert!(stats["node"]["topics"].as_f64().unwrap() >= 3.0);
    world
        .get("/v1/history/topics/none")
        .await
        .problem(404, "unknown-topic");
    assert_eq!(world.get("/v1/stats/topics?sort=luck").await.status, 400);
    let none = world
        .get("/v1/stats/transactions?open=true")
        .await
        .is(200)
        .json();
    assert_eq!(none["total"], 0);
}

#[tokio::test]
async fn a_topic_that_no_look_has_seen_is_in_the_list_with_its_records() {
    let world = World::new();
    world.door.look().await;
    world.topic("new", 1).await;
    world.values("new", &["1", "2"]).await;
    let page = world.get("/v1/stats/topics").await.is(200).json();
    assert_eq!(page["topics"][0]["records"], 2);
    assert!(page["topics"][0]["rate"].is_null());
}

#[tokio::test]
async fn a_broker_tells_and_changes_its_own_config() {
    let world = World::new();
    let brokers = world.get("/v1/brokers").await.is(200).json();
    let id = brokers["brokers"][0]["id"].to_string();
    let path = format!("/v1/brokers/{id}/config");
    let patch = async |body: &str| {
        let json = [("content-type", "application/json")];
        world.send("PATCH", &path, &json, body.to_owned()).await
    };
    let value = |configs: &Value, name: &str| {
        let all = configs["configs"].as_array().unwrap();
        let found = all.iter().find(|c| c["name"] == name).unwrap();
        (found["value"].clone(), found["source"].clone())
    };
    let configs = world.get(&path).await.is(200).json();
    assert_eq!(value(&configs, "log.retention.ms").1, "default");
    let configs = patch(r#"{"log.retention.ms":"3600000"}"#)
        .await
        .is(200)
        .json();
    assert_eq!(
        value(&configs, "log.retention.ms"),
        (json!("3600000"), json!("broker"))
    );
    let configs = patch(r#"{"log.retention.ms":null}"#).await.is(200).json();
    assert_eq!(value(&configs, "log.retention.ms").1, "default");
    assert!((400..500).contains(&patch(r#"{"no.such.key":1}"#).await.status));
    world
        .get("/v1/brokers/77/config")
        .await
        .problem(404, "unknown-broker");
}
