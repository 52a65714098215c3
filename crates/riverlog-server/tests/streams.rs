//! A streams group (KIP-1071) on a server: heartbeats over the wire, internal topics, a kill.

mod common;
#[path = "common/members.rs"]
#[allow(dead_code, unreachable_pub, reason = "a module of tests")]
mod members;

use std::collections::BTreeMap;

use common::{Server, ask};
use members::{Kind, Member, changelog, committed, repartition, settle};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::{StreamsGroupDescribeRequest, StreamsGroupDescribeResponse};

const GROUP: &str = "words";
/// Two parts of the application, with a task for each of three partitions.
const TASKS: usize = 6;

fn describe(place: &str) -> StreamsGroupDescribeResponse {
    let request = StreamsGroupDescribeRequest {
        group_ids: vec![GROUP.to_owned()],
        ..StreamsGroupDescribeRequest::default()
    };
    ask(place, 1, &request)
}

#[test]
fn a_streams_group_gets_its_topics_and_outlives_a_kill_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "lines", "-p", "3"]);
    let places = vec![server.kafka.clone()];
    let member = |id: &str| Member::new(&Kind::Streams, GROUP, id, "lines");
    let mut two = vec![member("a"), member("b")];
    settle(&places, &mut two, TASKS);

    // What the topology lacked was made, with as many partitions as what it reads.
    let topics = server.ok(&["topic", "list", "-o", "name"]);
    for name in [repartition(GROUP), changelog(GROUP)] {
        assert!(topics.lines().any(|line| line == name), "{topics}");
        let shown = server.ok(&["topic", "describe", &name, "-o", "json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let partitions = shown["data"].as_array().unwrap();
        assert_eq!(partitions.len(), 3, "{name}: {shown}");
    }
    for member in &two {
        assert_eq!(member.has.len(), TASKS / 2);
        assert!(member.commit(&places, 7));
    }
    let told = describe(&places[0]);
    let group = &told.groups[0];
    assert_eq!(group.error_code, ErrorCode::NONE);
    assert_eq!(group.group_state, "Stable");
    assert_eq!(group.members.len(), 2);
    assert_eq!(
        group
            .topology
            .as_ref()
            .unwrap()
            .subtopologies
            .as_ref()
            .unwrap()
            .len(),
        2
    );

    let at = server.kafka.clone();
    server.kill();
    let server = Server::start_at(folder.path(), &at, &[]);
    let expected: BTreeMap<i32, i64> = (0..3).map(|p| (p, 7)).collect();
    assert_eq!(committed(&places, GROUP), expected);
    // Nobody moves: it is the same group at the same epoch.
    let before: Vec<_> = two.iter().map(|m| (m.epoch, m.has.clone())).collect();
    settle(&places, &mut two, TASKS);
    let after: Vec<_> = two.iter().map(|m| (m.epoch, m.has.clone())).collect();
    assert_eq!(after, before);
    for member in &two {
        assert!(member.commit(&places, 9));
    }

    // Who has missed that it is in the group's past is told so, and begins anew.
    two[0].epoch -= 1;
    two[0].has.clear();
    two[0].has.insert(("0".to_owned(), 99));
    let fenced = two[0].beat(&places);
    assert!(
        matches!(
            fenced,
            Err(ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::INVALID_REQUEST)
        ),
        "{fenced:?}"
    );
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
}
