//! The wall clock jumps: what rests on it stays right, and what must not rest on it doesn't.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use riverlog_core::Now;
use riverlog_core::groups::{GroupAnswer, GroupCommand, Join};
use riverlog_log::disk::CrashDisk;
use riverlog_node::harness::{Harness, START_MS};
use riverlog_wire::ErrorCode;

const DAY_MS: i64 = 24 * 3_600_000;

/// The same folder, opened when the wall clock shows another time.
fn open_at(disk: &CrashDisk, wall_ms: i64) -> Harness {
    let now = Now {
        mono: Duration::from_secs(1),
        wall_ms,
    };
    Harness::open_at(Arc::new(disk.clone()), settings(), 7, now).expect("the node opens")
}

fn join(host: &mut Harness, member: &str) -> (ErrorCode, String) {
    let command = GroupCommand::Join(Join {
        group: "g".to_owned(),
        member: member.to_owned(),
        client_id: "test".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout: Duration::from_secs(30),
        rebalance_timeout: Duration::from_secs(30),
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), bytes::Bytes::from_static(b"topics"))],
        ..Join::default()
    });
    loop {
        let command = command.clone();
        let answer = host.get(|node, now, reply| node.group(command, now, reply));
        let Some(GroupAnswer::Join(answer)) = answer else {
            panic!("{answer:?}")
        };
        if answer.error != ErrorCode::COORDINATOR_LOAD_IN_PROGRESS {
            return (answer.error, answer.member);
        }
        host.advance(Duration::from_millis(10));
    }
}

#[test]
fn a_clock_that_jumps_takes_nothing_and_expires_nobody() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    // Five days are kept.
    create(&mut host, "t", 1, &[("retention.ms", "432000000")]);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["first"]).unwrap();
    host.close().unwrap();

    // Back by a day, at a restart: records are later than now, and stay.
    let mut host = open_at(&disk, START_MS - DAY_MS);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["from yesterday"]).unwrap();
    host.advance(Duration::from_secs(120));
    assert_eq!(read_all(&mut host, "t", 0).len(), 2);
    host.close().unwrap();

    // Ahead by a day: nothing is old enough to go.
    let mut host = open_at(&disk, START_MS + DAY_MS);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["from tomorrow"]).unwrap();
    host.advance(Duration::from_secs(120));
    assert_eq!(read_all(&mut host, "t", 0).len(), 3);

    // While it runs: sessions and waits go by the clock that doesn't jump.
    let (error, member) = join(&mut host, "");
    let member = match error {
        ErrorCode::MEMBER_ID_REQUIRED => join(&mut host, &member).1,
        _ => member,
    };
    for jump in [DAY_MS, -3 * DAY_MS] {
        host.set_wall_clock(host.now().wall_ms + jump);
        host.advance(Duration::from_secs(5));
        let described = host.get(|node, now, reply| node.describe_group("g", now, reply));
        let described = described
            .expect("an answer")
            .expect("a group")
            .expect("it is there");
        assert!(
            described.members.iter().any(|m| m.member == member),
            "{jump}: {described:?}"
        );
        let to = partition(&host, "t", 0);
        let end = produce(&mut host, &to, &["goes on"]).unwrap().base_offset.0 + 1;
        let waits = host.ask(|node, now, reply| {
            node.fetch(fetch_command(vec![ask_from("t", 0, end)], 500), now, reply);
        });
        host.advance(Duration::from_millis(600));
        assert!(
            waits.is_ready(),
            "{jump}: a fetch waits for a clock that jumped"
        );
    }
}
