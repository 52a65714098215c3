//! Fetches that wait, and how long.

mod support;

use std::sync::Weak;
use std::time::Duration;

use riverlog_checks::{Client, Topic};
use riverlog_node::Node;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::share_fetch_request as share;
use riverlog_wire::messages::{FetchRequest, ShareFetchRequest};
use support::InMemory;

const LONGEST: Duration = Duration::from_secs(300);

fn for_weeks(topic: &Topic) -> FetchRequest {
    FetchRequest {
        max_wait_ms: i32::MAX,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: vec![FetchTopic {
            topic: topic.name.clone(),
            partitions: vec![FetchPartition {
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

fn shared_for_weeks(topic: &Topic) -> ShareFetchRequest {
    ShareFetchRequest {
        group_id: Some("g".to_owned()),
        member_id: Some("m".to_owned()),
        max_wait_ms: i32::MAX,
        max_bytes: 1 << 20,
        max_records: 100,
        batch_size: 100,
        topics: vec![share::FetchTopic {
            topic_id: topic.id,
            partitions: vec![share::FetchPartition::default()],
        }],
        ..ShareFetchRequest::default()
    }
}

fn parked(node: &Weak<Node>) -> f64 {
    let metrics = node.upgrade().expect("a node").metrics();
    metrics.iter().find(|m| m.name == "parked").unwrap().value
}

#[test]
fn nothing_waits_for_longer_than_five_minutes() {
    let mut broker = InMemory::new();
    let mut client = Client::new(&mut broker, "waits".to_owned()).unwrap();
    let topic = client.topic(1).unwrap();
    let took = |begun: Duration, now: Duration| {
        let took = now.saturating_sub(begun);
        assert!(
            took >= LONGEST && took < LONGEST + Duration::from_secs(1),
            "{took:?}"
        );
    };
    let patience = 2 * LONGEST;
    let mut other = client.connect().unwrap();
    let begun = client.broker().clock();
    let asked = other.say(11, &for_weeks(&topic)).unwrap();
    other.answer::<FetchRequest>(11, asked, patience).unwrap();
    took(begun, client.broker().clock());
    let begun = client.broker().clock();
    let asked = other.say(1, &shared_for_weeks(&topic)).unwrap();
    let answer = other.answer::<ShareFetchRequest>(1, asked, patience);
    answer.unwrap();
    took(begun, client.broker().clock());
}

#[test]
fn what_waits_ends_with_its_connection() {
    let mut broker = InMemory::new();
    let node = broker.node();
    let mut client = Client::new(&mut broker, "waits".to_owned()).unwrap();
    let topic = client.topic(1).unwrap();
    let mut stays = client.connect().unwrap();
    stays.say(11, &for_weeks(&topic)).unwrap();
    let mut leaves = client.connect().unwrap();
    for version in [4, 11, 12] {
        leaves.say(version, &for_weeks(&topic)).unwrap();
    }
    leaves.say(1, &shared_for_weeks(&topic)).unwrap();
    client.broker().pass(Duration::from_secs(1));
    assert_eq!(parked(&node), 5.0);
    drop(leaves);
    assert_eq!(parked(&node), 1.0);
    drop(stays);
    assert_eq!(parked(&node), 0.0);
}
