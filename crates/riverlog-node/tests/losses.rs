//! Groups that retention overtakes: told before, and after.

mod common;

use std::time::Duration;

use common::*;
use riverlog_log::disk::CrashDisk;
use riverlog_node::Notice;
use riverlog_node::harness::Harness;

const HOUR: &str = "3600000";

fn metric(host: &Harness, name: &str) -> f64 {
    let found = host.node().metrics().into_iter().find(|m| m.name == name);
    found.expect("a metric of that name").value
}

/// Group, and the offsets that it has lost or is about to lose, of each notice since the last call.
fn told(host: &mut Harness) -> Vec<(&'static str, String, i64, i64)> {
    let tell = |notice| match notice {
        Notice::GroupNearLoss {
            group,
            committed,
            until,
            ..
        } => ("near", group, committed.0, until.0),
        Notice::GroupOvertaken {
            group,
            committed,
            start,
            ..
        } => ("overtaken", group, committed.0, start.0),
        other => panic!("{other}"),
    };
    host.take_notices().into_iter().map(tell).collect()
}

/// A topic of four records, each in a segment of its own, and two groups: one has read them all, the other one record.
fn late_group(host: &mut Harness, configs: &[(&str, &str)]) {
    create(host, "t", 1, configs);
    let to = partition(host, "t", 0);
    for _ in 0..4 {
        produce(host, &to, &[&"v".repeat(1_500)]).unwrap();
    }
    commit_from_outside(host, "quick", "t", 4);
    commit_from_outside(host, "late", "t", 1);
}

#[test]
fn a_group_is_told_of_before_retention_overtakes_it_and_after() {
    let mut host = open(&CrashDisk::new(1));
    late_group(&mut host, &[("retention.ms", HOUR)]);
    // A quarter of the retention is left: not yet.
    host.advance(Duration::from_secs(44 * 60));
    assert_eq!(told(&mut host), []);
    assert_eq!(metric(&host, "groups_near_loss"), 0.0);
    host.advance(Duration::from_secs(3 * 60));
    assert_eq!(told(&mut host), [("near", "late".to_owned(), 1, 4)]);
    assert_eq!(metric(&host, "groups_near_loss"), 1.0);
    // Once.
    host.advance(Duration::from_secs(5 * 60));
    assert_eq!(told(&mut host), []);
    host.advance(Duration::from_secs(10 * 60));
    assert_eq!(told(&mut host), [("overtaken", "late".to_owned(), 1, 4)]);
    assert_eq!(metric(&host, "groups_near_loss"), 0.0);
    assert_eq!(metric(&host, "groups_overtaken"), 1.0);
    assert_eq!(metric(&host, "groups_overtaken_total"), 1.0);
    // It goes on behind what it has lost.
    commit_from_outside(&mut host, "late", "t", 4);
    host.advance(Duration::from_secs(120));
    assert_eq!(told(&mut host), []);
    assert_eq!(metric(&host, "groups_overtaken"), 0.0);
    assert_eq!(metric(&host, "groups_overtaken_total"), 1.0);
}

#[test]
fn a_group_that_catches_up_in_time_is_not_told_of_again() {
    let mut host = open(&CrashDisk::new(1));
    late_group(&mut host, &[("retention.ms", HOUR)]);
    host.advance(Duration::from_secs(50 * 60));
    assert_eq!(told(&mut host).len(), 1);
    commit_from_outside(&mut host, "late", "t", 4);
    host.advance(Duration::from_secs(120));
    assert_eq!(metric(&host, "groups_near_loss"), 0.0);
    host.advance(Duration::from_secs(3_600));
    assert_eq!(told(&mut host), []);
    assert_eq!(metric(&host, "groups_overtaken_total"), 0.0);
}

#[test]
fn the_time_of_the_warning_can_be_set_and_retention_by_size_is_told_of_when_it_happened() {
    let disk = CrashDisk::new(1);
    let mut settings = settings();
    settings
        .configs
        .insert("riverlog.loss.warning.ms".to_owned(), "60000".to_owned());
    let mut host = open_with(&disk, settings);
    late_group(&mut host, &[("retention.ms", HOUR)]);
    host.advance(Duration::from_secs(58 * 60));
    assert_eq!(told(&mut host), []);
    host.advance(Duration::from_secs(90));
    assert_eq!(told(&mut host), [("near", "late".to_owned(), 1, 4)]);

    let mut host = open(&CrashDisk::new(2));
    late_group(
        &mut host,
        &[("retention.ms", "-1"), ("retention.bytes", "1000")],
    );
    host.advance(Duration::from_secs(120));
    let [("overtaken", group, 1, start)] = &told(&mut host)[..] else {
        panic!("nobody is told");
    };
    assert_eq!(group, "late");
    assert!(*start > 1);
}
