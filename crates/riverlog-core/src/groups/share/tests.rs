//! Members that come, stay and leave.

use riverlog_wire::ErrorCode;

use super::*;
use crate::groups::tests::Story;
use crate::groups::{
    ConsumerHeartbeat, ConsumerHeartbeatAnswer, GroupAnswer, GroupCommand, Join, ShareHeartbeat,
};

fn story(partitions: i32) -> Story {
    let mut story = Story::new(GroupSettings {
        share_max_size: 3,
        ..GroupSettings::default()
    });
    story.topics.set("orders", partitions);
    story
}

fn heartbeat(member: &str, epoch: i32, topics: Option<&[&str]>) -> ShareHeartbeat {
    ShareHeartbeat {
        group: "g".to_owned(),
        member: member.to_owned(),
        member_epoch: epoch,
        subscribed_topics: topics.map(|t| t.iter().map(|t| (*t).to_owned()).collect()),
        ..ShareHeartbeat::default()
    }
}

fn send(story: &mut Story, request: ShareHeartbeat) -> ConsumerHeartbeatAnswer {
    let answers = story.command("x", GroupCommand::ShareHeartbeat(request));
    match answers.into_iter().next().map(|a| a.body) {
        Some(GroupAnswer::ConsumerHeartbeat(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

fn error(story: &mut Story, command: GroupCommand) -> ErrorCode {
    match story
        .command("x", command)
        .into_iter()
        .next()
        .map(|a| a.body)
    {
        Some(GroupAnswer::Error(error)) => error,
        Some(GroupAnswer::ConsumerHeartbeat(answer)) => answer.error,
        Some(GroupAnswer::Join(answer)) => answer.error,
        other => panic!("{other:?}"),
    }
}

/// Epoch and partition numbers of all topics.
fn brief(answer: &ConsumerHeartbeatAnswer) -> (i32, Option<Vec<i32>>) {
    assert_eq!(answer.error, ErrorCode::NONE, "{answer:?}");
    let assignment = answer.assignment.as_ref();
    let numbers = assignment.map(|all| all.iter().flat_map(|(_, p)| p.clone()).collect());
    (answer.member_epoch, numbers)
}

const ORDERS: Option<&[&str]> = Some(&["orders"]);

#[test]
fn partitions_are_divided_and_members_follow_with_their_next_heartbeat() {
    let mut story = story(3);
    let a = send(&mut story, heartbeat("a", 0, ORDERS));
    assert_eq!(brief(&a), (1, Some(vec![0, 1, 2])));
    let b = send(&mut story, heartbeat("b", 0, ORDERS));
    assert_eq!(brief(&b), (2, Some(vec![1])));
    let a = send(&mut story, heartbeat("a", 1, None));
    assert_eq!(brief(&a), (2, Some(vec![0, 2])));
    // The answer was lost: it is told again; and then no more.
    let a = send(&mut story, heartbeat("a", 1, None));
    assert_eq!(brief(&a), (2, Some(vec![0, 2])));
    let a = send(&mut story, heartbeat("a", 2, None));
    assert_eq!(brief(&a), (2, None));
    let b = send(&mut story, heartbeat("b", -1, None));
    assert_eq!(brief(&b), (-1, None));
    let a = send(&mut story, heartbeat("a", 2, None));
    assert_eq!(brief(&a), (3, Some(vec![0, 1, 2])));
    let described = story.shard.describe("g").expect("a group");
    assert_eq!((described.state, described.group_type), ("Stable", "share"));
}

#[test]
fn where_members_are_more_than_partitions_they_share() {
    let mut story = story(2);
    for member in ["a", "b", "c"] {
        send(&mut story, heartbeat(member, 0, ORDERS));
    }
    let mut readers = [0, 0];
    for member in ["a", "b", "c"] {
        let (_, numbers) = brief(&send(&mut story, heartbeat(member, 0, ORDERS)));
        let numbers = numbers.expect("all is told to one that joins");
        assert_eq!(numbers.len(), 1);
        readers[numbers[0] as usize] += 1;
    }
    assert_eq!(readers, [2, 1]);
    let full = send(&mut story, heartbeat("d", 0, ORDERS));
    assert_eq!(full.error, ErrorCode::GROUP_MAX_SIZE_REACHED);
}

#[test]
fn wrong_heartbeats_are_told_what_is_wrong() {
    let mut story = story(1);
    let mut refused = |request| send(&mut story, request).error;
    assert_eq!(
        refused(heartbeat("a", 1, None)),
        ErrorCode::GROUP_ID_NOT_FOUND
    );
    assert_eq!(
        refused(heartbeat("", 0, ORDERS)),
        ErrorCode::INVALID_REQUEST
    );
    assert_eq!(refused(heartbeat("a", 0, None)), ErrorCode::INVALID_REQUEST);
    assert_eq!(
        refused(heartbeat("a", -2, None)),
        ErrorCode::INVALID_REQUEST
    );
    assert_eq!(refused(heartbeat("a", 0, ORDERS)), ErrorCode::NONE);
    assert_eq!(
        refused(heartbeat("a", 7, None)),
        ErrorCode::FENCED_MEMBER_EPOCH
    );
    assert_eq!(
        refused(heartbeat("b", 1, None)),
        ErrorCode::UNKNOWN_MEMBER_ID
    );
    assert_eq!(
        refused(heartbeat("b", -1, None)),
        ErrorCode::UNKNOWN_MEMBER_ID
    );
}

#[test]
fn a_group_has_one_type() {
    let mut story = story(1);
    send(&mut story, heartbeat("a", 0, ORDERS));
    let consumer = ConsumerHeartbeat {
        group: "g".to_owned(),
        member: "b".to_owned(),
        rebalance_timeout: Some(Duration::from_secs(1)),
        subscribed_topics: Some(vec!["orders".to_owned()]),
        owned: Some(Vec::new()),
        ..ConsumerHeartbeat::default()
    };
    let other = GroupCommand::ConsumerHeartbeat(consumer.clone());
    assert_eq!(error(&mut story, other), ErrorCode::GROUP_ID_NOT_FOUND);
    let classic = GroupCommand::Join(Join {
        group: "g".to_owned(),
        session_timeout: Duration::from_secs(10),
        rebalance_timeout: Duration::from_secs(10),
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), bytes::Bytes::new())],
        ..Join::default()
    });
    assert_eq!(
        error(&mut story, classic),
        ErrorCode::INCONSISTENT_GROUP_PROTOCOL
    );
    let there = ConsumerHeartbeat {
        group: "h".to_owned(),
        ..consumer
    };
    story.command("x", GroupCommand::ConsumerHeartbeat(there));
    let here = ShareHeartbeat {
        group: "h".to_owned(),
        ..heartbeat("a", 0, ORDERS)
    };
    let answer = send(&mut story, here);
    assert_eq!(answer.error, ErrorCode::GROUP_ID_NOT_FOUND);
}

#[test]
fn a_silent_member_is_taken_out_and_a_restart_forgets_nobody() {
    let mut story = story(2);
    send(&mut story, heartbeat("a", 0, ORDERS));
    send(&mut story, heartbeat("b", 0, ORDERS));
    story.crash();
    let members = |story: &Story| story.shard.describe("g").map_or(0, |g| g.members.len());
    assert_eq!(members(&story), 2);
    story.wait(Duration::from_secs(30));
    let a = send(&mut story, heartbeat("a", 1, None));
    assert_eq!(brief(&a), (2, Some(vec![0])));
    story.wait(Duration::from_secs(30));
    assert_eq!(members(&story), 1);
    let a = send(&mut story, heartbeat("a", 2, None));
    assert_eq!(brief(&a), (3, Some(vec![0, 1])));
}

#[test]
fn topics_that_grow_or_go_change_the_assignment() {
    let mut story = story(1);
    send(&mut story, heartbeat("a", 0, Some(&["orders", "later"])));
    story.topics.set("orders", 2);
    story.topics_changed();
    let a = send(&mut story, heartbeat("a", 1, None));
    assert_eq!(brief(&a), (2, Some(vec![0, 1])));
    story.topics.set("later", 1);
    story.topics_changed();
    let a = send(&mut story, heartbeat("a", 2, None));
    assert_eq!(brief(&a), (3, Some(vec![0, 1, 0])));
    let kept = story.shard.share_topics("g").0.expect("a share group");
    assert_eq!(kept.iter().map(|(_, p)| p.len()).sum::<usize>(), 3);
}

#[test]
fn an_empty_group_can_be_told_of_topics_and_deleted() {
    let mut story = story(1);
    let delete = || GroupCommand::DeleteGroup {
        group: "g".to_owned(),
    };
    let topics = |add: Vec<(TopicId, i32)>, remove: Vec<TopicId>| GroupCommand::ShareTopics {
        group: "g".to_owned(),
        add,
        remove,
    };
    let id = story.topics.by_name("orders").expect("a topic").0;
    let missing = ErrorCode::GROUP_ID_NOT_FOUND;
    assert_eq!(error(&mut story, topics(vec![], vec![id])), missing);
    send(&mut story, heartbeat("a", 0, ORDERS));
    let full = ErrorCode::NON_EMPTY_GROUP;
    assert_eq!(error(&mut story, delete()), full);
    assert_eq!(error(&mut story, topics(vec![], vec![id])), full);
    send(&mut story, heartbeat("a", -1, None));
    let kept = |story: &Story| story.shard.share_topics("g").0;
    assert_eq!(kept(&story), Ok(vec![(id, vec![0])]));
    assert_eq!(error(&mut story, topics(vec![], vec![id])), ErrorCode::NONE);
    assert_eq!(kept(&story), Ok(vec![]));
    assert_eq!(
        error(&mut story, topics(vec![(id, 0)], vec![])),
        ErrorCode::NONE
    );
    story.crash();
    assert_eq!(kept(&story), Ok(vec![(id, vec![0])]));
    assert_eq!(error(&mut story, delete()), ErrorCode::NONE);
    assert_eq!(story.shard.describe("g"), None);
    story.crash();
    assert_eq!(story.shard.describe("g"), None);
}
