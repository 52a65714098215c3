//! Groups: membership without state at the door, fenced commits, lag, reset.

mod support;

use std::time::{Duration, Instant};

use riverlog_core::metadata::{AdminAnswer, AdminCommand, BrokerImage, NewTopic, TopicRef};
use riverlog_node::AppendCommand;
use riverlog_wire::BrokerId;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use serde_json::{Value, json};
use support::World;

async fn join(world: &World, group: &str, topic: &str) -> Value {
    let body = json!({ "topics": [topic] }).to_string();
    let path = format!("/v1/groups/{group}/members");
    world.post(&path, &body).await.is(201).json()
}

/// Polls once, with the cursor of the last answer; the answer replaces it.
async fn poll(world: &World, group: &str, member: &mut Value, wait_ms: u32) -> Vec<String> {
    let id = member["member_id"].as_str().unwrap();
    let cursor = member["cursor"].as_str().unwrap();
    let path = format!("/v1/groups/{group}/members/{id}/records?wait_ms={wait_ms}&cursor={cursor}");
    let answer = world.get(&path).await.is(200).json();
    let records = answer["records"].as_array().unwrap().iter();
    let values = records
        .map(|r| r["value"].as_str().unwrap().to_owned())
        .collect();
    *member = answer;
    values
}

/// Polls until a number of values has come.
async fn poll_for(world: &World, group: &str, member: &mut Value, wanted: usize) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut got = Vec::new();
    while got.len() < wanted {
        assert!(Instant::now() < deadline, "{got:?} of {wanted}: {member}");
        got.extend(poll(world, group, member, 200).await);
    }
    got
}

fn assigned(member: &Value) -> usize {
    member["assignment"].as_array().unwrap().len()
}

async fn commit(world: &World, group: &str, member: &Value, offset: i64) -> support::Answer {
    let body = json!({
        "generation": member["generation"],
        "member_id": member["member_id"],
        "offsets": [{"topic": "t", "partition": 0, "offset": offset, "metadata": "m"}],
    });
    let path = format!("/v1/groups/{group}/offsets");
    world.post(&path, &body.to_string()).await
}

/// Appends a batch to partition 0 that no reader can open.
fn append_broken(world: &World, topic: &str) {
    let mut batch = BatchBuilder::new(Compression::Gzip);
    let mut batch = batch.push(1_000, None, Some(b"x"), &[]).build();
    // The first byte behind the header, which is of the compressed records.
    batch[61] ^= 0xff;
    let to = TopicRef::Name(topic.to_owned());
    let to = world.driver.node.partition(&to, 0).unwrap();
    let command = AppendCommand {
        batch,
        acks: -1,
        timeout: Duration::from_secs(30),
    };
    let stored = world.driver.call(true, |node, now, reply| {
        node.append(&to, command, now, reply)
    });
    stored.unwrap().unwrap();
}

#[tokio::test]
async fn a_member_waits_for_a_transaction_that_is_to_move_its_commit() {
    for (verb, begin) in [("commit", 5), ("abort", 2)] {
        let world = World::new();
        world.topic("t", 2).await;
        let all: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        world.values("t", &all).await;
        world
            .post(
                "/v1/topics/t/partitions/1/records",
                r#"{"records":[{"value":"other"}]}"#,
            )
            .await
            .is(200);
        let first = join(&world, "g", "t").await;
        commit(&world, "g", &first, 2).await.is(200);
        let begun = json!({"transactional_id": "app"}).to_string();
        let producer = world.post("/v1/transactions", &begun).await.is(201).json();
        let offsets = json!({
            "producer_id": producer["producer_id"],
            "epoch": producer["epoch"],
            "group": "g",
            "generation": first["generation"],
            "member_id": first["member_id"],
            "offsets": [{"topic": "t", "partition": 0, "offset": 5}],
        });
        world
            .post("/v1/transactions/app/offsets", &offsets.to_string())
            .await
            .is(200);
        let id = first["member_id"].as_str().unwrap();
        let path = format!("/v1/groups/g/members/{id}");
        world.send("DELETE", &path, &[], "").await.is(204);
        // Where the second one is to begin in partition 0 isn't known yet; that holds up no other partition.
        let mut second = join(&world, "g", "t").await;
        assert_eq!(assigned(&second), 2);
        assert_eq!(poll_for(&world, "g", &mut second, 1).await, ["other"]);
        assert!(poll(&world, "g", &mut second, 0).await.is_empty());
        // Nor is it for one that has lost its cursor.
        let id = second["member_id"].as_str().unwrap();
        let path = format!("/v1/groups/g/members/{id}/records");
        let lost = world.get(&path).await.is(200).json();
        assert_eq!(lost["records"].as_array().unwrap().len(), 1);
        assert_eq!(lost["records"][0]["value"], "other");
        let end = json!({"producer_id": producer["producer_id"], "epoch": producer["epoch"]});
        world
            .post(&format!("/v1/transactions/app:{verb}"), &end.to_string())
            .await
            .is(200);
        let rest = poll_for(&world, "g", &mut second, all.len() - begin).await;
        assert_eq!(rest, all[begin..], "{verb}");
    }
}

/// Makes a topic of two partitions, the second of which nobody leads: its node has gone.
fn topic_half_led(world: &World, name: &str) {
    let node = &world.driver.node;
    let image = node.image();
    let here = image.brokers.values().next().unwrap();
    let away = BrokerImage {
        id: BrokerId(here.id.0 + 1),
        ..here.clone()
    };
    let tell = |command| {
        let done = world
            .driver
            .call(true, |node, now, reply| node.admin(command, now, reply));
        done.unwrap().unwrap()
    };
    let registered = tell(AdminCommand::Register {
        broker: away.clone(),
        cluster_id: image.cluster_id.clone(),
    });
    let AdminAnswer::Registered { epoch } = registered else {
        panic!("{registered:?}");
    };
    let topic = NewTopic {
        name: name.to_owned(),
        partitions: -1,
        replication_factor: -1,
        assignments: vec![(0, vec![here.id]), (1, vec![away.id])],
        configs: Vec::new(),
        id: node.new_topic_id(),
        internal: false,
    };
    tell(AdminCommand::CreateTopics {
        topics: vec![topic],
        validate_only: false,
    });
    let broker = away.id;
    tell(AdminCommand::Fence { broker, epoch });
    let made = node.image().topic(name).cloned().unwrap();
    assert_eq!(made.partitions[1].leader, None);
}

#[tokio::test]
async fn a_partition_that_nobody_leads_holds_up_neither_a_join_nor_a_poll() {
    let world = World::new();
    topic_half_led(&world, "t");
    world.values("t", &["a"]).await;
    let mut member = join(&world, "g", "t").await;
    let group = world.get("/v1/groups/g").await.is(200).json();
    assert_eq!(group["member_count"], 1);
    assert_eq!(poll_for(&world, "g", &mut member, 1).await, ["a"]);
    // It passes; a poll that finds nothing else waits as any other does.
    let begun = Instant::now();
    assert!(poll(&world, "g", &mut member, 20).await.is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(20));
    world.values("t", &["b"]).await;
    assert_eq!(poll_for(&world, "g", &mut member, 1).await, ["b"]);
    // The same where its leader has gone since the member began there.
    let body = json!({
        "generation": member["generation"],
        "member_id": member["member_id"],
        "offsets": [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 1, "offset": 7}],
    });
    let path = "/v1/groups/g/offsets";
    world.post(path, &body.to_string()).await.is(200);
    let id = member["member_id"].as_str().unwrap();
    let path = format!("/v1/groups/g/members/{id}/records");
    let mut member = world.get(&path).await.is(200).json();
    assert_eq!(member["records"][0]["value"], "b");
    let begun = Instant::now();
    assert!(poll(&world, "g", &mut member, 20).await.is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(20));
    world.values("t", &["c"]).await;
    assert_eq!(poll_for(&world, "g", &mut member, 1).await, ["c"]);
    let group = world.get("/v1/groups/g").await.is(200).json();
    assert_eq!(group["member_count"], 1);
}

/// The epochs of a group and of one of its members.
async fn epochs(world: &World, group: &str, member: &str) -> (i64, i64) {
    let group = world.get(&format!("/v1/groups/{group}")).await.is(200);
    let group = group.json();
    let mut members = group["members"].as_array().unwrap().iter();
    let member = members.find(|m| m["member_id"] == member).unwrap();
    let epoch = |of: &Value| of["generation"].as_i64().unwrap();
    (epoch(&group), epoch(member))
}

#[tokio::test]
async fn a_poll_whose_answer_is_lost_after_two_rebalances_can_be_repeated() {
    let world = World::new();
    for topic in ["t", "u", "v"] {
        world.topic(topic, 1).await;
    }
    world.values("u", &["x"]).await;
    let mut member = join(&world, "g", "t").await;
    assert!(poll(&world, "g", &mut member, 0).await.is_empty());
    let id = member["member_id"].as_str().unwrap().to_owned();
    let cursor = member["cursor"].as_str().unwrap();
    let path = format!("/v1/groups/g/members/{id}/records?cursor={cursor}");
    let waits = format!("{path}&wait_ms=30000");
    let before = epochs(&world, "g", &id).await;
    let mut waiting = Box::pin(world.get(&waits));
    let mut answered = false;
    // What another member reads changes, and nothing of what this one holds.
    for topics in [json!(["u"]), json!(["u", "v"])] {
        let body = json!({"topics": topics, "member_id": "other"}).to_string();
        world.post("/v1/groups/g/members", &body).await.is(201);
        while !answered {
            tokio::select! {
                _ = &mut waiting => answered = true,
                (group, own) = epochs(&world, "g", &id) => {
                    if group == own {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    drop(waiting);
    let (group, own) = epochs(&world, "g", &id).await;
    assert!(group >= before.0 + 2, "{before:?} {group} {own}");
    world.values("t", &["a"]).await;
    let again = world.get(&path).await.is(200).json();
    assert_eq!(again["records"][0]["value"], "a");
}

#[tokio::test]
async fn a_batch_that_can_not_be_opened_holds_up_its_own_partition_alone() {
    let world = World::new();
    world.topic("t", 2).await;
    world.values("t", &["before"]).await;
    append_broken(&world, "t");
    let second = "/v1/topics/t/partitions/1/records";
    world
        .post(second, r#"{"records":[{"value":"a"}]}"#)
        .await
        .is(200);
    let mut member = join(&world, "g", "t").await;
    let mut got = poll_for(&world, "g", &mut member, 2).await;
    got.sort();
    assert_eq!(got, ["a", "before"]);
    // Nothing else is there: now it is told.
    let id = member["member_id"].as_str().unwrap();
    let cursor = member["cursor"].as_str().unwrap();
    let path = format!("/v1/groups/g/members/{id}/records?cursor={cursor}");
    world.get(&path).await.problem(422, "corrupt-batch");
    world
        .post(second, r#"{"records":[{"value":"b"}]}"#)
        .await
        .is(200);
    assert_eq!(poll_for(&world, "g", &mut member, 1).await, ["b"]);
    // Nor is there too little room beside it in a small answer.
    world
        .post(second, r#"{"records":[{"value":"c"}]}"#)
        .await
        .is(200);
    let id = member["member_id"].as_str().unwrap();
    let cursor = member["cursor"].as_str().unwrap();
    let small = format!("/v1/groups/g/members/{id}/records?cursor={cursor}&max_bytes=1");
    let got = world.get(&small).await.is(200).json();
    assert_eq!(got["records"][0]["value"], "c");
    // The member goes on behind it as it is told.
    commit(&world, "g", &member, 2).await.is(200);
    world.values("t", &["behind"]).await;
    let path = format!("/v1/groups/g/members/{id}/records");
    let got = world.get(&path).await.is(200).json();
    assert_eq!(got["records"][0]["value"], "behind");
}

#[tokio::test]
async fn what_lies_before_a_batch_that_can_not_be_opened_is_read() {
    let world = World::new();
    world.topic("t", 1).await;
    world.values("t", &["before"]).await;
    append_broken(&world, "t");
    let path = "/v1/topics/t/partitions/0?offset=";
    let got = world.get(&format!("{path}0")).await.is(200).json();
    assert_eq!(got["records"][0]["value"], "before");
    assert_eq!(got["next_offset"], 1);
    let at = format!("{path}1");
    world.get(&at).await.problem(422, "corrupt-batch");
}

#[tokio::test]
async fn a_member_reads_commits_and_goes_on() {
    let world = World::new();
    world.topic("t", 1).await;
    world.values("t", &["a", "b", "c"]).await;
    let mut member = join(&world, "g", "t").await;
    assert_eq!(poll_for(&world, "g", &mut member, 3).await, ["a", "b", "c"]);
    commit(&world, "g", &member, 2).await.is(200);
    let offsets = world.get("/v1/groups/g/offsets").await.is(200).json();
    assert_eq!(
        (
            offsets["offsets"][0]["offset"].as_i64(),
            offsets["offsets"][0]["metadata"].as_str()
        ),
        (Some(2), Some("m"))
    );
    let group = world.get("/v1/groups/g").await.is(200).json();
    assert_eq!(
        (group["state"].as_str(), group["kind"].as_str()),
        (Some("Stable"), Some("consumer"))
    );
    assert_eq!(group["members"][0]["assignment"][0]["topic"], "t");
    assert_eq!(group["committed_offsets"][0]["offset"], 2);
    // A member that has lost its cursor goes on at the commit.
    let id = member["member_id"].as_str().unwrap().to_owned();
    let again = world
        .get(&format!("/v1/groups/g/members/{id}/records"))
        .await
        .is(200)
        .json();
    assert_eq!(again["records"][0]["value"], "c");
    assert_eq!(again["records"][0]["offset"], 2);
    // A poll waits, and ends with the first record.
    let mut member = again;
    let begin = Instant::now();
    let (values, ()) = tokio::join!(poll(&world, "g", &mut member, 20_000), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.values("t", &["d"]).await;
    });
    assert_eq!(values, ["d"]);
    assert!(begin.elapsed() < Duration::from_secs(10));
    let beat = world
        .post(
            &format!("/v1/groups/g/members/{id}/heartbeat"),
            &json!({"cursor": member["cursor"]}).to_string(),
        )
        .await
        .is(200)
        .json();
    assert_eq!(beat["rebalance"], false);
    world
        .send("DELETE", "/v1/groups/g", &[], "")
        .await
        .problem(409, "group-not-empty");
    world
        .send("DELETE", &format!("/v1/groups/g/members/{id}"), &[], "")
        .await
        .is(204);
    world
        .get(&format!(
            "/v1/groups/g/members/{id}/records?cursor={}",
            beat["cursor"].as_str().unwrap()
        ))
        .await
        .problem(409, "unknown-member");
    world.send("DELETE", "/v1/groups/g", &[], "").await.is(204);
    world
        .get("/v1/groups/g")
        .await
        .problem(404, "unknown-group");
}

#[tokio::test]
async fn partitions_move_to_a_newcomer_and_a_stale_commit_is_fenced() {
    let world = World::new();
    world.topic("t", 4).await;
    let mut first = join(&world, "g", "t").await;
    let deadline = Instant::now() + Duration::from_secs(30);
    while assigned(&first) < 4 {
        assert!(Instant::now() < deadline);
        poll(&world, "g", &mut first, 0).await;
    }
    let before = first.clone();
    let mut second = join(&world, "g", "t").await;
    let mut told = false;
    while assigned(&first) != 2 || assigned(&second) != 2 {
        assert!(Instant::now() < deadline, "{first} {second}");
        poll(&world, "g", &mut first, 0).await;
        told |= first["revoked"].as_array().is_some_and(|r| !r.is_empty());
        poll(&world, "g", &mut second, 0).await;
    }
    assert!(told, "what is taken away is said");
    // Every partition has one owner.
    let mut all: Vec<String> = [&first, &second]
        .iter()
        .flat_map(|m| {
            m["assignment"]
                .as_array()
                .unwrap()
                .iter()
                .map(|p| p["partition"].to_string())
        })
        .collect();
    all.sort();
    assert_eq!(all, ["0", "1", "2", "3"]);
    // The commit of an earlier generation for what has moved on.
    let lost = |p: i64| {
        !first["assignment"]
            .as_array()
            .unwrap()
            .iter()
            .any(|a| a["partition"] == p)
    };
    let moved = (0..4).find(|p| lost(*p)).unwrap();
    let body = json!({
        "generation": before["generation"],
        "member_id": before["member_id"],
        "offsets": [{"topic": "t", "partition": moved, "offset": 1}],
    });
    let problem = world
        .post("/v1/groups/g/offsets", &body.to_string())
        .await
        .problem(409, "stale-generation");
    assert_eq!(problem["generation"], first["generation"]);
    assert_eq!(problem["kafka_error"]["name"], "STALE_MEMBER_EPOCH");
    let body = json!({"generation": 1, "member_id": "nobody", "offsets": [{"topic": "t", "partition": 0, "offset": 1}]});
    world
        .post("/v1/groups/g/offsets", &body.to_string())
        .await
        .problem(409, "unknown-member");
    // From outside only while nobody is there.
    let body = json!({"offsets": [{"topic": "t", "partition": 0, "offset": 1}]});
    world
        .post("/v1/groups/g/offsets", &body.to_string())
        .await
        .problem(409, "group-not-empty");
}

#[tokio::test]
async fn commits_from_outside_lag_and_reset() {
    let world = World::new();
    world.topic("t", 2).await;
    world.values("t", &["a", "b", "c", "d"]).await;
    let body = json!({"offsets": [
        {"topic": "t", "partition": 0, "offset": "1"},
        {"topic": "t", "partition": 7, "offset": 1},
        {"topic": "none", "partition": 0, "offset": 1},
    ]});
    let answer = world
        .post("/v1/groups/g/offsets", &body.to_string())
        .await
        .is(207)
        .json();
    assert_eq!(answer["results"][0]["offset"], 1);
    assert_eq!(
        answer["results"][1]["error"]["type"],
        "urn:riverlog:problem:unknown-partition"
    );
    assert_eq!(
        answer["results"][2]["error"]["type"],
        "urn:riverlog:problem:unknown-topic"
    );
    for offset in ["-1", "\"tank\"", "1.5"] {
        let body =
            format!("{{\"offsets\":[{{\"topic\":\"t\",\"partition\":0,\"offset\":{offset}}}]}}");
        world
            .post("/v1/groups/g/offsets", &body)
            .await
            .problem(422, "bad-fields");
    }
    let lag = world.get("/v1/groups/g/lag").await.is(200).json();
    assert_eq!(lag["total"], 3);
    let row = &lag["partitions"][0];
    assert_eq!(
        (
            row["lag"].as_i64(),
            row["state"].as_str(),
            row["lost"].as_i64()
        ),
        (Some(3), Some("ok"), Some(0))
    );
    assert!(row["seconds"].as_f64().unwrap() >= 0.0);
    assert!(row["time_to_loss"].as_f64().unwrap() > 0.0);

    let plan = world
        .post("/v1/groups/g:reset?dry_run=true", r#"{"to":"-1"}"#)
        .await
        .is(200)
        .json();
    assert_eq!(
        (
            plan["moves"][0]["from"].as_i64(),
            plan["moves"][0]["to"].as_i64()
        ),
        (Some(1), Some(3))
    );
    assert_eq!(
        world.get("/v1/groups/g/offsets").await.json()["offsets"][0]["offset"],
        1
    );
    world
        .post(
            "/v1/groups/g:reset",
            r#"{"to":"end","topics":["t"],"partitions":[0]}"#,
        )
        .await
        .is(200);
    assert_eq!(
        world.get("/v1/groups/g/offsets").await.json()["offsets"][0]["offset"],
        4
    );
    // Past the end is the end.
    world
        .post("/v1/groups/g:reset", r#"{"to":"99"}"#)
        .await
        .is(200);
    assert_eq!(
        world.get("/v1/groups/g/offsets").await.json()["offsets"][0]["offset"],
        4
    );
    world
        .post("/v1/groups/none:reset", r#"{"to":"end"}"#)
        .await
        .problem(404, "unknown-group");
    join(&world, "g", "t").await;
    world
        .post("/v1/groups/g:reset", r#"{"to":"start"}"#)
        .await
        .problem(409, "group-not-empty");
}

#[tokio::test]
async fn groups_are_called_as_people_like() {
    let world = World::new();
    world.topic("t", 1).await;
    let names = ["a/b", "a:reset", "100%", "ü", "..", "a b", "x?y#z", "%2F"];
    for name in names {
        let body = json!({"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}).to_string();
        let path: String = name.bytes().map(|b| format!("%{b:02x}")).collect();
        world
            .post(&format!("/v1/groups/{path}/offsets"), &body)
            .await
            .is(200);
        let group = world
            .get(&format!("/v1/groups/{path}"))
            .await
            .is(200)
            .json();
        assert_eq!(group["group"], name);
    }
    let mut listed = Vec::new();
    let mut page = String::new();
    loop {
        let list = world
            .get(&format!("/v1/groups?limit=3{page}"))
            .await
            .is(200)
            .json();
        listed.extend(
            list["groups"]
                .as_array()
                .unwrap()
                .iter()
                .map(|g| g["group"].as_str().unwrap().to_owned()),
        );
        match list["next_page"].as_str() {
            Some(next) => {
                page = format!(
                    "&page={}",
                    next.bytes()
                        .map(|b| format!("%{b:02x}"))
                        .collect::<String>()
                )
            }
            None => break,
        }
    }
    let mut wanted: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    wanted.sort();
    assert_eq!(listed, wanted);
}
