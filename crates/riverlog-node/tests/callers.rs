//! Those who leave while they wait.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use riverlog_log::disk::CrashDisk;
use riverlog_node::Caller;
use riverlog_node::harness::{Answer, Harness};
use riverlog_node::{FetchAnswer, ShareFetchAnswer, ShareFetchCommand};
use riverlog_wire::TopicId;

/// Longer than any test.
const WEEKS: Duration = Duration::from_secs(30 * 24 * 3600);

fn few() -> (Harness, TopicId) {
    let mut few = settings();
    few.budgets.parked = 2;
    let mut host = open_with(&CrashDisk::new(1), few);
    let id = create(&mut host, "t", 2, &[]);
    (host, id)
}

fn wait(host: &Harness, caller: &Arc<Caller>) -> Answer<FetchAnswer> {
    let asked = vec![ask_from("t", 0, 0), ask_from("t", 1, 0)];
    let mut command = fetch_command(asked, 0);
    command.max_wait = WEEKS;
    host.ask(|node, now, reply| node.fetch(command, now, reply.of(caller)))
}

fn wait_shared(
    host: &mut Harness,
    topic: TopicId,
    caller: &Arc<Caller>,
) -> Answer<ShareFetchAnswer> {
    let command = ShareFetchCommand {
        group: "g".to_owned(),
        member: "m".to_owned(),
        partitions: vec![(topic, 0)],
        first: 0,
        max_wait: WEEKS,
        max_bytes: 1 << 20,
        max_records: 500,
        batch_size: 500,
        mode: riverlog_core::share::AcquireMode::BatchOptimized,
    };
    let answer = host.ask(|node, now, reply| node.share_fetch(command, now, reply.of(caller)));
    // Where the group begins must be known before records come.
    host.advance(Duration::from_secs(5));
    answer
}

fn parked(host: &Harness) -> f64 {
    let metrics = host.node().metrics();
    let found = metrics.iter().find(|m| m.name == "parked");
    found.expect("a gauge").value
}

#[test]
fn who_leaves_gives_its_places_back_and_others_keep_theirs() {
    let (mut host, _) = few();
    let (leaves, stays) = (Caller::new(), Caller::new());
    let gone = wait(&host, &leaves);
    let kept = wait(&host, &stays);
    assert_eq!(parked(&host), 2.0);
    let deadline = host.node().next_deadline();
    host.node().leave(&leaves);
    assert_eq!(parked(&host), 1.0);
    let another = wait(&host, &stays);
    assert!(!another.is_ready(), "there is a place for it");
    // The timer is gone too; nothing is left that would come due for who left.
    assert_eq!(host.node().next_deadline(), deadline);
    let to = partition(&host, "t", 1);
    produce(&mut host, &to, &["a"]).unwrap();
    assert!(kept.is_ready() && another.is_ready());
    assert!(!gone.is_ready(), "nobody is there to be answered");
    assert_eq!(parked(&host), 0.0);
    // Once more does nothing, also to what was answered meanwhile.
    host.node().leave(&leaves);
    host.node().leave(&stays);
    assert_eq!(parked(&host), 0.0);
}

#[test]
fn a_member_of_a_share_group_that_leaves_acquires_nothing_more() {
    let (mut host, topic) = few();
    let caller = Caller::new();
    let gone = wait_shared(&mut host, topic, &caller);
    assert!(!gone.is_ready());
    assert_eq!(parked(&host), 1.0);
    host.node().leave(&caller);
    assert_eq!(parked(&host), 0.0);
    let to = partition(&host, "t", 0);
    produce(&mut host, &to, &["a"]).unwrap();
    assert!(!gone.is_ready());
    let next = wait_shared(&mut host, topic, &Caller::new());
    let answer = next.take().expect("the record is there for another");
    assert_eq!(answer.partitions[0].acquired.len(), 1);
}

#[test]
fn what_a_caller_is_remembered_by_does_not_grow() {
    let (mut host, _) = few();
    let caller = Caller::new();
    let to = partition(&host, "t", 0);
    for _ in 0..100 {
        let mut command = fetch_command(vec![ask_from("t", 0, i64::MAX)], 0);
        let end = host.node().describe_partition(&to).high_watermark;
        command.partitions[0].from = end;
        command.max_wait = WEEKS;
        let answer = host.ask(|node, now, reply| node.fetch(command, now, reply.of(&caller)));
        produce(&mut host, &to, &["a"]).unwrap();
        assert!(answer.is_ready());
    }
    assert!(caller.remembered() <= 8, "{}", caller.remembered());
}

#[test]
fn readers_that_wait_leave_groups_their_places() {
    let (mut host, _) = few();
    let caller = Caller::new();
    let waiting = [wait(&host, &caller), wait(&host, &caller)];
    assert!(wait(&host, &caller).is_ready(), "no place is left");
    // A commit is parked until it is durable, while another one is too.
    commit_from_outside(&mut host, "g", "t", 0);
    let id = host.get(|node, now, reply| node.init_producer(now, reply));
    id.expect("answered").expect("an id");
    assert!(waiting.iter().all(|answer| !answer.is_ready()));
}
