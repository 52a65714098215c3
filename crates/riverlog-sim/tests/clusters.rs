//! Clusters from seeds: some of each run, and those that once found something.

use riverlog_sim::run_cluster;

#[track_caller]
fn holds(seed: u64) -> riverlog_sim::ClusterReport {
    let report = run_cluster(seed, false);
    assert_eq!(
        report.violation, None,
        "riverlog-sim --cluster --seed {seed} --show"
    );
    report
}

#[test]
fn a_few_seeds_hold() {
    let (mut leaders, mut cuts) = (0, 0);
    for seed in 0..40 {
        let report = holds(seed);
        leaders += report.leaders;
        cuts += report.power_cuts;
    }
    assert!(
        leaders > 40 && cuts > 20,
        "nothing happened: {leaders} {cuts}"
    );
}

#[test]
fn a_seed_gives_one_run() {
    for seed in 3..6 {
        assert_eq!(
            run_cluster(seed, false).trace,
            run_cluster(seed, false).trace
        );
    }
}

/// A change of another partition of the topic was taken for the answer to an in-sync set that was asked for: who was asked for didn't
/// count any more, and came in without what was acknowledged meanwhile.
#[test]
fn who_was_asked_for_was_forgotten_when_another_partition_changed() {
    for seed in [99, 152, 999, 1663] {
        holds(seed);
    }
}

/// A follower's cut filled the write-ahead log, and nobody saw to room in it: nothing became durable there any more.
#[test]
fn a_cut_filled_the_write_ahead_log_for_good() {
    holds(2363);
}

/// A leader whose log held no records any more said of it that it had nothing in common with its followers: they cut what they had, or
/// could not, and never came back.
#[test]
fn an_emptied_leader_had_nothing_in_common_with_its_followers() {
    holds(3153);
}

/// A record of a share group was given back while an earlier write was out, and was out again before the next one: who had given it back was told
/// that this is kept, and for the next leader it had never been given out.
#[test]
fn what_was_given_back_was_not_counted_when_it_was_out_again_at_once() {
    holds(132);
}

/// The reader of committed records asked for one partition in vain, and counted the others twice instead: it took itself to be at all ends,
/// and what it hadn't read for lost.
#[test]
fn a_reader_that_was_not_answered_took_itself_to_be_at_the_end() {
    holds(332);
}

/// What a node left that lost its power while its disk was full was looked at without room: what only its write-ahead log held could not
/// be put into the segment, as the node itself does once there is room again.
#[test]
fn what_a_power_cut_left_on_a_full_disk_could_not_be_looked_at() {
    holds(40000038);
}

/// A follower's disk got full in the middle of a cut. Its log had failed for good, though there was room again.
#[test]
fn a_cut_that_found_the_disk_full_ended_the_log_for_good() {
    holds(629);
}

/// A controller that stood still confirmed its own session once more, and told an end for that long that others had gone beyond.
#[test]
fn a_controller_that_stood_still_believed_itself() {
    holds(80_000_383);
}

/// The simulator's own mistake.
#[test]
fn a_slow_disk_stayed_slow_when_all_was_healed() {
    holds(80_000_251);
}
