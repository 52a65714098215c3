//! Many groups, and many members of one.

use std::time::{Duration, Instant};

use super::Story;
use crate::groups::*;

fn heartbeat(group: &str, member: &str, epoch: i32) -> GroupCommand {
    let joins = epoch == 0;
    GroupCommand::ConsumerHeartbeat(ConsumerHeartbeat {
        group: group.into(),
        member: member.into(),
        member_epoch: epoch,
        rebalance_timeout: joins.then_some(Duration::from_secs(60)),
        subscribed_topics: joins.then(|| vec!["orders".into()]),
        owned: joins.then(Vec::new),
        version: 1,
        ..ConsumerHeartbeat::default()
    })
}

fn shard(groups: usize, members: usize) -> Story {
    let mut story = Story::new(GroupSettings::default());
    story.quiet = true;
    story.fast = true;
    story.topics.set("orders", 3);
    story.topics_changed();
    for group in 0..groups {
        for member in 0..members {
            story.command(
                "",
                heartbeat(&format!("g{group}"), &format!("m{member}"), 0),
            );
        }
    }
    story
}

/// The least time that a thousand heartbeats and looks at the clock took, of five tries.
fn heartbeats(story: &mut Story, epoch: i32) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        for _ in 0..1_000 {
            let answers = story.command("", heartbeat("g0", "m0", epoch));
            assert_eq!(answers.len(), 1);
            assert!(
                matches!(&answers[0].body, GroupAnswer::ConsumerHeartbeat(h) if h.error == ErrorCode::NONE)
            );
        }
        least = least.min(begin.elapsed());
    }
    least
}

#[test]
fn a_heartbeat_costs_no_more_among_many_groups_or_members() {
    let few = heartbeats(&mut shard(10, 1), 1);
    let groups = heartbeats(&mut shard(10_000, 1), 1);
    assert!(
        groups < few * 30,
        "{groups:?} among 10,000 groups, {few:?} among 10"
    );
    let mut story = shard(1, 1_000);
    // m0 gives back what it has to; from then on nothing changes any more.
    story.command("", heartbeat("g0", "m0", 1));
    let GroupCommand::ConsumerHeartbeat(mut done) = heartbeat("g0", "m0", 1) else {
        unreachable!()
    };
    done.owned = Some(Vec::new());
    story.command("", GroupCommand::ConsumerHeartbeat(done));
    let members = heartbeats(&mut story, 1_000);
    assert!(
        members < few * 30,
        "{members:?} among 1,000 members, {few:?} alone"
    );
}

#[test]
fn what_is_due_at_once_for_many_is_done_in_steps() {
    let mut story = shard(3_000, 1);
    story.topics.set("orders", 4);
    let before = story.log.len();
    story.perform(|shard, topics, now| shard.decide_topics_changed(topics, now));
    assert!((1..300).contains(&(story.log.len() - before)));
    in_steps(&mut story);
    assert_eq!(story.log.len() - before, 3 * 3_000);

    story.to(story.now.mono + Duration::from_secs(45));
    in_steps(&mut story);
    assert!(story.shard.groups().iter().all(|g| g.state == "Empty"));
}

fn in_steps(story: &mut Story) {
    for _ in 0..1_000 {
        if story
            .shard
            .next_deadline()
            .is_none_or(|at| at > story.now.mono)
        {
            return;
        }
        let before = story.log.len();
        story.perform(|shard, topics, now| shard.decide_timers(topics, now));
        assert!(story.log.len() - before < 300);
    }
    panic!("no end");
}
