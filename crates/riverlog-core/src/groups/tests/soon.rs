//! When members of the consumer protocol are asked to come again.

use std::collections::BTreeSet;
use std::time::Duration;

use riverlog_wire::{ErrorCode, TopicId};

use super::Story;
use crate::groups::{
    ConsumerHeartbeat, ConsumerHeartbeatAnswer, GroupAnswer, GroupCommand, GroupSettings,
};

const USUALLY: Duration = Duration::from_secs(5);

type Owned = Vec<(TopicId, Vec<i32>)>;

/// A client that follows what it is told: gives back at once, reports at once, and comes again when it is asked to.
struct Follower {
    id: String,
    epoch: i32,
    owned: Owned,
    report: bool,
    due: Duration,
}

impl Follower {
    fn new(id: &str, due: Duration) -> Follower {
        Follower {
            id: id.to_owned(),
            epoch: 0,
            owned: Vec::new(),
            report: true,
            due,
        }
    }

    fn beat(&mut self, story: &mut Story) -> ConsumerHeartbeatAnswer {
        let joins = self.epoch == 0;
        let request = ConsumerHeartbeat {
            group: "g".to_owned(),
            member: self.id.clone(),
            member_epoch: self.epoch,
            rebalance_timeout: joins.then_some(Duration::from_secs(60)),
            subscribed_topics: joins.then(|| vec!["orders".to_owned()]),
            owned: self.report.then(|| self.owned.clone()),
            version: 1,
            ..ConsumerHeartbeat::default()
        };
        let command = GroupCommand::ConsumerHeartbeat(request);
        let answers = story.command(&self.id, command);
        let Some(GroupAnswer::ConsumerHeartbeat(answer)) =
            answers.into_iter().next().map(|a| a.body)
        else {
            panic!("no answer");
        };
        assert_eq!(answer.error, ErrorCode::NONE, "{answer:?}");
        self.epoch = answer.member_epoch;
        self.report = false;
        self.due = story.now.mono + answer.heartbeat_interval;
        if let Some(assignment) = &answer.assignment {
            self.report = self.owned != *assignment;
            self.owned.clone_from(assignment);
        }
        if self.report {
            self.due = story.now.mono;
        }
        answer
    }

    fn parts(&self) -> BTreeSet<(TopicId, i32)> {
        let owned = self.owned.iter();
        owned
            .flat_map(|(t, parts)| parts.iter().map(|p| (*t, *p)))
            .collect()
    }
}

fn story(partitions: i32) -> Story {
    let mut story = Story::new(GroupSettings::default());
    story.topics.set("orders", partitions);
    story
}

/// Plays until everybody has as much as the others; how long it took, and how many heartbeats.
fn until_even(story: &mut Story, members: &mut [Follower], partitions: usize) -> (Duration, usize) {
    let began = story.now.mono;
    let mut beats = 0;
    loop {
        let even = |m: &Follower| m.parts().len() >= partitions / members.len();
        let newest = members.iter().map(|m| m.epoch).max();
        if members.iter().all(|m| even(m) && Some(m.epoch) == newest) {
            return (story.now.mono - began, beats);
        }
        let next = members.iter_mut().min_by_key(|m| m.due).expect("members");
        let rest = next.due.saturating_sub(story.now.mono);
        story.wait(rest);
        next.beat(story);
        beats += 1;
        assert!(beats < 10_000, "it never ends");
    }
}

#[test]
fn members_that_come_one_after_the_other_share_long_before_a_usual_heartbeat() {
    let mut story = story(100);
    let now = story.now.mono;
    let each = (0..10).map(|n| {
        let at = now + Duration::from_millis(20) * n;
        Follower::new(&format!("m{n}"), at)
    });
    let mut members: Vec<Follower> = each.collect();
    let (took, beats) = until_even(&mut story, &mut members, 100);
    let last_came = Duration::from_millis(180);
    assert!(took < last_came + Duration::from_millis(400), "{took:?}");
    assert!(beats < 60, "{beats}");
}

#[test]
fn a_member_that_waits_comes_soon_and_ever_less_often() {
    let mut story = story(4);
    let mut a = Follower::new("a", story.now.mono);
    a.beat(&mut story);
    a.beat(&mut story);
    story.wait(2 * USUALLY);
    assert_eq!(a.beat(&mut story).heartbeat_interval, USUALLY);

    // `a` has all, and comes when it usually does; it was told so before `b` came.
    story.wait(USUALLY / 2);
    let mut b = Follower::new("b", story.now.mono);
    b.beat(&mut story);
    assert_eq!(b.parts().len(), 0);
    let mut intervals = Vec::new();
    b.report = false;
    while story.now.mono < a.due {
        let rest = b.due.saturating_sub(story.now.mono);
        story.wait(rest);
        intervals.push(b.beat(&mut story).heartbeat_interval);
    }
    assert!(intervals.is_sorted(), "{intervals:?}");
    assert!(intervals.len() < 10, "{intervals:?}");
    a.beat(&mut story);
    assert!(a.report, "it is told to give something back");
    a.beat(&mut story);
    // The next heartbeat, half as long again at the most, brings `b` what `a` gave back.
    let rest = b.due.saturating_sub(story.now.mono);
    assert!(rest < USUALLY / 2, "{rest:?}");
    story.wait(rest);
    assert_eq!(b.beat(&mut story).heartbeat_interval, USUALLY);
    assert_eq!(b.parts().len(), 2);
}

#[test]
fn who_waits_for_one_that_gives_nothing_back_comes_as_usual_in_the_end() {
    let mut story = story(4);
    let mut a = Follower::new("a", story.now.mono);
    a.beat(&mut story);
    let mut b = Follower::new("b", story.now.mono);
    b.beat(&mut story);
    story.wait(4 * USUALLY);
    assert_eq!(b.beat(&mut story).heartbeat_interval, USUALLY);
    assert_eq!(b.parts().len(), 0);
}

#[test]
fn a_group_of_many_comes_no_oftener_than_a_thousand_times_a_second() {
    let mut story = story(400);
    let mut members: Vec<Follower> = (0..400)
        .map(|n| Follower::new(&format!("m{n:03}"), story.now.mono))
        .collect();
    let (_, beats) = {
        for member in &mut members {
            member.beat(&mut story);
        }
        until_even(&mut story, &mut members, 400)
    };
    assert!(beats < 400 * 12, "{beats}");
    let last = members.last_mut().expect("members");
    assert!(last.beat(&mut story).heartbeat_interval >= Duration::from_millis(400));
}

#[test]
fn a_new_coordinator_asks_nobody_to_come_oftener_than_usual() {
    let mut story = story(4);
    let mut a = Follower::new("a", story.now.mono);
    assert!(a.beat(&mut story).heartbeat_interval < USUALLY);
    story.crash();
    assert_eq!(a.beat(&mut story).heartbeat_interval, USUALLY);
}

#[test]
fn a_group_s_own_interval_and_session_go_before_the_broker_s() {
    let mut story = story(4);
    let configs = &mut story.topics.configs;
    configs.insert("consumer.heartbeat.interval.ms".into(), "7000".into());
    configs.insert("consumer.session.timeout.ms".into(), "60000".into());
    let mut a = Follower::new("a", story.now.mono);
    a.beat(&mut story);
    a.beat(&mut story);
    story.wait(Duration::from_secs(20));
    let answer = a.beat(&mut story);
    assert_eq!(answer.heartbeat_interval, Duration::from_secs(7));
    // Beyond the broker's session of 45 s.
    story.wait(Duration::from_secs(59));
    assert_eq!(a.beat(&mut story).error, ErrorCode::NONE);
    story.wait(Duration::from_secs(61));
    let described = story.shard.describe("g").expect("a group");
    assert_eq!(described.state, "Empty");
}
