//! Topics, configs, brokers, the cluster; and requests that mean nothing.

mod support;

use support::World;

#[tokio::test]
async fn a_topic_from_its_making_to_its_end() {
    let world = World::new();
    let body = r#"{"name":"orders","partitions":3,"configs":{"retention.ms":1000}}"#;
    world
        .post("/v1/topics?validate_only=true", body)
        .await
        .is(200);
    world
        .get("/v1/topics/orders")
        .await
        .problem(404, "unknown-topic");
    let answer = world.post("/v1/topics", body).await.is(201);
    assert_eq!(answer.header("location"), "/v1/topics/orders");
    assert_eq!(answer.json()["partitions"], 3);
    let problem = world
        .post("/v1/topics", body)
        .await
        .problem(409, "topic-exists");
    assert_eq!(problem["kafka_error"]["name"], "TOPIC_ALREADY_EXISTS");
    world
        .post("/v1/topics", r#"{"name":"a/b"}"#)
        .await
        .problem(422, "invalid-topic-name");
    world
        .post("/v1/topics", r#"{"name":"x","nonsense":1}"#)
        .await
        .problem(422, "bad-fields");
    let topic = world.get("/v1/topics/orders").await.is(200).json();
    assert_eq!(topic["configs"]["retention.ms"], "1000");
    assert_eq!(topic["partition_list"][2]["high_watermark"], 0);
    assert_eq!(topic["partition_list"][2]["leader"], 1);

    let more = r#"{"count":5}"#;
    world
        .post("/v1/topics/orders/partitions", more)
        .await
        .problem(422, "key-reordering");
    let more = r#"{"count":5,"accept_key_reordering":true}"#;
    assert_eq!(
        world
            .post("/v1/topics/orders/partitions", more)
            .await
            .is(200)
            .json()["partitions"],
        5
    );
    world
        .post("/v1/topics/orders/partitions", more)
        .await
        .problem(422, "invalid-partitions");

    let patch = |body: &'static str| {
        world.send(
            "PATCH",
            "/v1/topics/orders/config",
            &[("content-type", "application/json")],
            body,
        )
    };
    let configs = patch(r#"{"retention.ms":null,"cleanup.policy":"compact"}"#)
        .await
        .is(200)
        .json();
    let of = |name: &str| {
        configs["configs"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["name"] == name)
            .cloned()
            .unwrap()
    };
    assert_eq!(
        (
            of("cleanup.policy")["value"].as_str(),
            of("cleanup.policy")["source"].as_str()
        ),
        (Some("compact"), Some("topic"))
    );
    assert_eq!(of("retention.ms")["source"], "default");
    patch(r#"{"retention.ms":"soon"}"#)
        .await
        .problem(422, "invalid-config");
    patch(r#"{"retention.ms":[1]}"#)
        .await
        .problem(422, "invalid-config");

    world
        .send("DELETE", "/v1/topics/orders?validate_only=true", &[], "")
        .await
        .is(200);
    world
        .send("DELETE", "/v1/topics/orders", &[], "")
        .await
        .is(204);
    world
        .send("DELETE", "/v1/topics/orders", &[], "")
        .await
        .problem(404, "unknown-topic");
}

#[tokio::test]
async fn long_lists_come_in_pages_in_order() {
    let world = World::new();
    for i in 0..25 {
        world.topic(&format!("t{i:02}"), 1).await;
    }
    let mut names = Vec::new();
    let mut page = String::new();
    loop {
        let list = world
            .get(&format!("/v1/topics?limit=10{page}"))
            .await
            .is(200)
            .json();
        names.extend(
            list["topics"]
                .as_array()
                .unwrap()
                .iter()
                .map(|t| t["name"].as_str().unwrap().to_owned()),
        );
        match list["next_page"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => break,
        }
    }
    assert_eq!(names.len(), 25);
    assert!(names.is_sorted());
    let list = world.get("/v1/topics?filter=t1").await.json();
    assert_eq!(list["topics"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn the_cluster_and_its_brokers() {
    let world = World::new();
    world.topic("t", 2).await;
    let brokers = world.get("/v1/brokers").await.is(200).json();
    assert_eq!(
        (
            brokers["brokers"][0]["id"].as_i64(),
            brokers["brokers"][0]["leaders"].as_i64()
        ),
        (Some(1), Some(2))
    );
    let broker = &brokers["brokers"][0];
    assert_eq!(
        (broker["fenced"].as_bool(), broker["disk_ailing"].as_bool()),
        (Some(false), Some(false))
    );
    let cluster = world.get("/v1/cluster").await.is(200).json();
    assert_eq!(
        (
            cluster["topics"].as_i64(),
            cluster["offline_partitions"].as_i64()
        ),
        (Some(1), Some(0))
    );
    assert_eq!(
        (
            cluster["fenced_brokers"].as_i64(),
            cluster["ailing_brokers"].as_i64()
        ),
        (Some(0), Some(0))
    );
}

#[tokio::test]
async fn requests_that_mean_nothing_are_told_so() {
    let world = World::new();
    world.topic("t", 1).await;
    for path in [
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/v1/topics/t/x",
        "/v1/topics/t:reset",
        "/v1/../etc/passwd",
        "/v1/topics/t/records/",
    ] {
        let problem = world.get(path).await.problem(404, "no-such-call");
        assert!(
            problem["instance"]
                .as_str()
                .unwrap()
                .starts_with("urn:riverlog:request:")
        );
    }
    let answer = world.send("PUT", "/v1/topics", &[], "").await;
    assert_eq!(answer.header("allow"), "GET, POST");
    answer.problem(405, "method-not-allowed");
    world
        .get("/v1/topics/%ff")
        .await
        .problem(400, "bad-request");
    world
        .get("/v1/topics/..%2f..%2fetc")
        .await
        .problem(404, "unknown-topic");
    world
        .get("/v1/topics/t%0aINFO")
        .await
        .problem(404, "unknown-topic");
    // A form, as a page of another site could send it.
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let form = [("content-type", kind)];
        world
            .send("POST", "/v1/topics", &form, "{}")
            .await
            .problem(415, "unsupported-media-type");
        world
            .send("POST", "/v1/topics/t/records", &form, "{}")
            .await
            .problem(415, "unsupported-media-type");
    }
    world
        .send("POST", "/v1/topics", &[], "{}")
        .await
        .problem(415, "unsupported-media-type");
    world
        .get_as("/v1/topics/t/partitions/0?offset=0", "image/png")
        .await
        .problem(406, "not-acceptable");
}
