//! Seeds that once found something, named after what went wrong.

use riverlog_sim::{Options, run};

#[track_caller]
fn holds(seed: u64) {
    let report = run(seed, Options::default());
    assert_eq!(report.violation, None, "riverlog-sim --seed {seed} --show");
}

#[test]
fn a_log_that_found_no_room_at_the_start_was_emptied() {
    holds(9);
}

#[test]
fn a_member_that_missed_its_assignment_held_nothing_for_ever() {
    holds(14);
}

#[test]
fn a_node_that_started_with_a_full_write_ahead_log_never_registered() {
    holds(43);
}

#[test]
fn small_groups_filled_the_write_ahead_log_and_nobody_made_room() {
    holds(24);
}

#[test]
fn a_deleted_batch_that_a_power_cut_took_was_forgotten_when_a_later_one_survived() {
    holds(765);
}

#[test]
fn a_batch_that_was_taken_back_made_a_restarted_log_doubt_what_came_before_it() {
    holds(78);
}

#[test]
fn a_full_write_ahead_log_and_the_upkeep_that_makes_room_waited_for_each_other() {
    holds(1417);
}

#[test]
fn a_checkpoint_that_found_no_room_was_never_tried_again() {
    holds(2439);
}

#[test]
fn a_deletion_said_twice_waited_for_room_that_it_kept_itself() {
    holds(1_000_544);
}

#[test]
fn a_clean_stop_forgot_what_a_page_cache_log_had_written_before_it_failed() {
    holds(150);
}

/// What it plays has changed since: `riverlog-node` and `riverlog-log` have tests of it.
#[test]
fn a_batch_that_was_taken_back_ended_the_compaction_of_its_partition() {
    holds(4_000_018);
}

#[test]
fn what_was_put_aside_was_cut_again_after_more_had_been_acknowledged() {
    holds(10_001_256);
}

#[test]
fn a_late_batch_that_was_refused_took_the_next_transaction_along() {
    holds(10_000_456);
}

#[test]
fn a_delivery_that_was_over_counted_only_if_nobody_had_the_record_again_before_that_was_kept() {
    holds(779);
}

#[test]
fn a_record_that_was_given_back_rested_for_as_long_as_the_wall_clock_had_been_set_back() {
    holds(30_000_445);
}

/// The simulator's own mistake.
#[test]
fn a_group_that_had_expired_and_was_made_anew_began_with_its_first_epoch_again() {
    holds(10_000_177);
}

/// The simulator's own mistake.
#[test]
fn the_only_consumer_of_many_partitions_was_too_lazy_for_those_who_wait_for_its_commits() {
    holds(1023);
}

/// The simulator's own mistake.
#[test]
fn a_consumer_took_the_start_of_a_partition_that_was_not_open_for_its_position() {
    holds(70_000_278);
}

#[test]
fn a_seed_gives_one_run() {
    assert_eq!(
        run(3, Options::default()).trace,
        run(3, Options::default()).trace
    );
}
