//! Classic groups.

use std::time::Duration;

use expect_test::expect;

use super::{check, check_with};
use crate::groups::GroupSettings;

/// No wait for more members.
fn at_once() -> GroupSettings {
    GroupSettings {
        initial_rebalance_delay: Duration::ZERO,
        ..GroupSettings::default()
    }
}

#[test]
fn members_gather_then_the_leader_assigns() {
    check(
        "
        a: join
        a: join
        b: join
        b: join
        wait 100ms
        wait 100ms
        b: sync
        b: heartbeat
        a: sync assign=a=x,b=y
        a: heartbeat
        b: heartbeat
        show
        ",
        expect![[r#"
            a: join
              a: MEMBER_ID_REQUIRED a-1
            a: join
            b: join
              b: MEMBER_ID_REQUIRED b-3
            b: join
            wait 100ms
            wait 100ms
              a: joined as a-1 generation 1 range leader a-1 of [a-1 b-3]
              b: joined as b-3 generation 1 range leader a-1
            b: sync
            b: heartbeat
              b: NONE
            a: sync assign=a=x,b=y
              + g generation 1 range leader a-1 [a-1=x b-3=y]
              a: synced "x"
              b: synced "y"
            a: heartbeat
              a: NONE
            b: heartbeat
              b: NONE
            show
              g Stable "classic" "range" 1 [a-1 b-3]
        "#]],
    );
}

#[test]
fn a_start_waits_longer_while_members_keep_coming() {
    check(
        "
        a: join old
        wait 90ms
        b: join old
        wait 90ms
        c: join old
        wait 100ms
        wait 100ms
        ",
        expect![[r#"
            a: join old
            wait 90ms
            b: join old
            wait 90ms
            c: join old
            wait 100ms
            wait 100ms
              a: joined as a-1 generation 1 range leader a-1 of [a-1 b-2 c-3]
              b: joined as b-2 generation 1 range leader a-1
              c: joined as c-3 generation 1 range leader a-1
        "#]],
    );
}

#[test]
fn a_join_is_refused_for_many_reasons() {
    check_with(
        at_once(),
        "
        a: join group=''
        a: join session=1ms
        a: join session=31m
        ghost: join member=ghost
        a: join protocols=none
        a: join type=''
        .a: join old
        .a: sync assign=a=x
        b: join protocols=sticky old
        b: join type=connect old
        ghost: join
        c: join instance=i1 member=ghost
        show
        ",
        expect![[r#"
            a: join group=''
              a: INVALID_GROUP_ID 
            a: join session=1ms
              a: INVALID_SESSION_TIMEOUT 
            a: join session=31m
              a: INVALID_SESSION_TIMEOUT 
            ghost: join member=ghost
              ghost: UNKNOWN_MEMBER_ID ghost
            a: join protocols=none
              a: INCONSISTENT_GROUP_PROTOCOL 
            a: join type=''
              a: INCONSISTENT_GROUP_PROTOCOL 
            b: join protocols=sticky old
              b: INCONSISTENT_GROUP_PROTOCOL 
            b: join type=connect old
              b: INCONSISTENT_GROUP_PROTOCOL 
            ghost: join
              ghost: UNKNOWN_MEMBER_ID ghost
            c: join instance=i1 member=ghost
              c: UNKNOWN_MEMBER_ID ghost
            show
              g Stable "classic" "range" 1 [a-7]
        "#]],
    );
}

#[test]
fn a_refused_newcomer_does_not_disturb_the_group() {
    check_with(
        at_once(),
        "
        .a: join old protocols=range
        .a: sync assign=a=x
        b: join old protocols=sticky
        a: heartbeat
        show
        ",
        expect![[r#"
            b: join old protocols=sticky
              b: INCONSISTENT_GROUP_PROTOCOL 
            a: heartbeat
              a: NONE
            show
              g Stable "classic" "range" 1 [a-1]
        "#]],
    );
}

#[test]
fn the_protocol_that_everybody_speaks_and_most_like_is_chosen() {
    check_with(
        at_once(),
        "
        .a: join old protocols=range,sticky
        .a: sync assign=a=x
        .b: join old protocols=sticky,range
        a: heartbeat
        .a: join protocols=range,sticky
        .c: join old protocols=sticky,range
        .a: join protocols=range,sticky
        b: join protocols=sticky,range
        ",
        expect![[r#"
            a: heartbeat
              a: REBALANCE_IN_PROGRESS
            b: join protocols=sticky,range
              a: joined as a-1 generation 3 sticky leader a-1 of [a-1 b-3 c-6]
              b: joined as b-3 generation 3 sticky leader a-1
              c: joined as c-6 generation 3 sticky leader a-1
        "#]],
    );
}

#[test]
fn a_group_moves_from_one_protocol_to_another_in_two_steps() {
    check_with(
        at_once(),
        "
        .a: join old protocols=range
        .a: sync assign=a=x
        .b: join old protocols=range
        .a: join protocols=range
        .a: sync assign=a=x,b=y
        .b: sync
        b: join protocols=cooperative,range
        a: join protocols=cooperative,range
        a: sync assign=a=x,b=y
        .b: sync
        a: join protocols=cooperative
        b: join protocols=cooperative
        ",
        expect![[r#"
            b: join protocols=cooperative,range
            a: join protocols=cooperative,range
              a: joined as a-1 generation 3 cooperative leader a-1 of [a-1 b-3]
              b: joined as b-3 generation 3 cooperative leader a-1
            a: sync assign=a=x,b=y
              + g generation 3 cooperative leader a-1 [a-1=x b-3=y]
              a: synced "x"
            a: join protocols=cooperative
            b: join protocols=cooperative
              a: joined as a-1 generation 4 cooperative leader a-1 of [a-1 b-3]
              b: joined as b-3 generation 4 cooperative leader a-1
        "#]],
    );
}

#[test]
fn syncs_wait_for_the_leader_and_are_refused_otherwise() {
    check_with(
        at_once(),
        "
        a: sync
        .a: join old
        a: sync generation=7
        a: sync protocol=sticky
        a: sync type=connect
        a: sync type=consumer protocol=range assign=a=x
        a: sync
        .b: join old
        a: sync
        .a: join
        b: sync
        b: sync
        a: sync assign=a=x,b=y
        a: sync group=''
        ghost: sync member=ghost
        ",
        expect![[r#"
            a: sync
              a: UNKNOWN_MEMBER_ID
            a: sync generation=7
              a: ILLEGAL_GENERATION
            a: sync protocol=sticky
              a: INCONSISTENT_GROUP_PROTOCOL
            a: sync type=connect
              a: INCONSISTENT_GROUP_PROTOCOL
            a: sync type=consumer protocol=range assign=a=x
              + g generation 1 range leader a-2 [a-2=x]
              a: synced "x"
            a: sync
              a: synced "x"
            a: sync
              a: REBALANCE_IN_PROGRESS
            b: sync
            b: sync
              b: REBALANCE_IN_PROGRESS
            a: sync assign=a=x,b=y
              + g generation 2 range leader a-2 [a-2=x b-8=y]
              a: synced "x"
              b: synced "y"
            a: sync group=''
              a: INVALID_GROUP_ID
            ghost: sync member=ghost
              ghost: UNKNOWN_MEMBER_ID
        "#]],
    );
}

#[test]
fn heartbeats_tell_what_to_do() {
    check_with(
        at_once(),
        "
        a: heartbeat group=''
        a: heartbeat
        .a: join old
        a: heartbeat
        .a: sync assign=a=x
        a: heartbeat
        a: heartbeat generation=7
        ghost: heartbeat member=ghost
        .b: join old
        a: heartbeat
        a: leave
        b: heartbeat
        .b: leave
        b: heartbeat
        ",
        expect![[r#"
            a: heartbeat group=''
              a: INVALID_GROUP_ID
            a: heartbeat
              a: UNKNOWN_MEMBER_ID
            a: heartbeat
              a: NONE
            a: heartbeat
              a: NONE
            a: heartbeat generation=7
              a: ILLEGAL_GENERATION
            ghost: heartbeat member=ghost
              ghost: UNKNOWN_MEMBER_ID
            a: heartbeat
              a: REBALANCE_IN_PROGRESS
            a: leave
              b: joined as b-9 generation 2 range leader b-9 of [b-9]
              a: NONE [NONE]
            b: heartbeat
              b: NONE
            b: heartbeat
              b: UNKNOWN_MEMBER_ID
        "#]],
    );
}

#[test]
fn a_silent_member_is_removed_after_its_session() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        .b: join old
        .a: join
        .a: sync assign=a=x,b=y
        .b: sync
        wait 9s
        b: heartbeat
        wait 1s
        b: heartbeat
        b: join
        wait 10s
        show
        ",
        expect![[r#"
            wait 9s
            b: heartbeat
              b: NONE
            wait 1s
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
            b: join
              b: joined as b-3 generation 3 range leader b-3 of [b-3]
            wait 10s
              + g generation 4 - leader - []
            show
              g Empty "classic" "" 4 []
        "#]],
    );
}

#[test]
fn who_does_not_come_to_a_rebalance_in_time_is_removed() {
    check_with(
        at_once(),
        "
        .a: join old rebalance=5s session=30s
        .a: sync assign=a=x
        b: join old rebalance=5s session=30s
        wait 4s
        a: heartbeat
        wait 1s
        a: heartbeat
        ",
        expect![[r#"
            b: join old rebalance=5s session=30s
            wait 4s
            a: heartbeat
              a: REBALANCE_IN_PROGRESS
            wait 1s
              b: joined as b-3 generation 2 range leader b-3 of [b-3]
            a: heartbeat
              a: UNKNOWN_MEMBER_ID
        "#]],
    );
}

#[test]
fn who_does_not_sync_in_time_is_removed() {
    check_with(
        at_once(),
        "
        .a: join old rebalance=5s session=30s
        .a: sync assign=a=x
        .b: join old rebalance=5s session=30s
        .a: join rebalance=5s session=30s
        b: sync
        wait 5s
        b: heartbeat
        b: join rebalance=5s session=30s
        ",
        expect![[r#"
            b: sync
            wait 5s
              b: REBALANCE_IN_PROGRESS
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
            b: join rebalance=5s session=30s
              b: joined as b-3 generation 3 range leader b-3 of [b-3]
        "#]],
    );
}

#[test]
fn an_id_that_was_handed_out_holds_up_the_others_until_its_session_ends() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        b: join
        a: join
        wait 10s
        b: join
        ",
        expect![[r#"
            b: join
              b: MEMBER_ID_REQUIRED b-3
            a: join
            wait 10s
              a: joined as a-1 generation 2 range leader a-1 of [a-1]
            b: join
              b: UNKNOWN_MEMBER_ID b-3
        "#]],
    );
}

#[test]
fn a_join_that_is_sent_again_takes_the_place_of_the_first() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        .b: join old
        .a: join
        .a: sync assign=a=x,b=y
        .b: sync
        b: join protocols=range,sticky
        b: join protocols=range,sticky
        a: join
        b: join protocols=range,sticky
        ",
        expect![[r#"
            b: join protocols=range,sticky
            b: join protocols=range,sticky
              b: REBALANCE_IN_PROGRESS b-3
            a: join
              a: joined as a-1 generation 3 range leader a-1 of [a-1 b-3]
              b: joined as b-3 generation 3 range leader a-1
            b: join protocols=range,sticky
              b: joined as b-3 generation 3 range leader a-1
        "#]],
    );
}

#[test]
fn a_leader_that_joins_again_wants_a_new_assignment_others_get_the_old_one() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        .b: join old
        .a: join
        .a: sync assign=a=x,b=y
        .b: sync
        b: join
        a: join
        b: heartbeat
        ",
        expect![[r#"
            b: join
              b: joined as b-3 generation 2 range leader a-1
            a: join
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
        "#]],
    );
}

#[test]
fn members_leave_one_by_one_or_many_at_once() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        .b: join old instance=i1
        .a: join
        .a: sync assign=a=x,b=y
        .b: sync
        op: leave members=ghost,@i1,@i9,a
        show
        op: leave members=a
        op: leave members=a group=none
        op: leave members=a group=''
        ",
        expect![[r#"
            op: leave members=ghost,@i1,@i9,a
              + g generation 3 - leader - []
              op: NONE [UNKNOWN_MEMBER_ID NONE UNKNOWN_MEMBER_ID NONE]
            show
              g Empty "classic" "" 3 []
            op: leave members=a
              op: NONE [UNKNOWN_MEMBER_ID]
            op: leave members=a group=none
              op: NONE [UNKNOWN_MEMBER_ID]
            op: leave members=a group=''
              op: INVALID_GROUP_ID [INVALID_GROUP_ID]
        "#]],
    );
}

#[test]
fn a_static_member_restarts_without_a_rebalance() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        .b: join instance=i1
        .a: join
        .a: sync assign=a=x,b=y
        .b: sync
        b2: join instance=i1
        b: heartbeat
        b: commit orders/0=1
        b: sync
        b2: sync
        a: heartbeat
        b2: heartbeat
        a: leave
        b2: heartbeat
        crash
        show
        ",
        expect![[r#"
            b2: join instance=i1
              + g generation 2 range leader a-1 [a-1=x i1-7=y]
              b2: joined as i1-7 generation 2 range leader a-1
            b: heartbeat
              b: FENCED_INSTANCE_ID
            b: commit orders/0=1
              b: FENCED_INSTANCE_ID [FENCED_INSTANCE_ID]
            b: sync
              b: FENCED_INSTANCE_ID
            b2: sync
              b2: synced "y"
            a: heartbeat
              a: NONE
            b2: heartbeat
              b2: NONE
            a: leave
              a: NONE [NONE]
            b2: heartbeat
              b2: REBALANCE_IN_PROGRESS
            crash
            show
              g Stable "classic" "range" 2 [a-1 i1-7]
        "#]],
    );
}

#[test]
fn a_static_leader_that_restarts_skips_the_assignment() {
    check_with(
        at_once(),
        "
        .a: join instance=i1
        .a: sync assign=a=x
        a2: join instance=i1
        a2: sync
        a3: join instance=i1 no-skip
        a3: sync
        ",
        expect![[r#"
            a2: join instance=i1
              + g generation 1 range leader i1-3 [i1-3=x]
              a2: joined as i1-3 generation 1 range leader i1-3 of [i1-3] skips
            a2: sync
              a2: synced "x"
            a3: join instance=i1 no-skip
              + g generation 1 range leader i1-5 [i1-5=x]
              a3: joined as i1-5 generation 1 range leader i1-3
            a3: sync
              a3: synced "x"
        "#]],
    );
}

#[test]
fn a_static_member_that_restarts_during_a_rebalance_takes_part_in_it() {
    check_with(
        at_once(),
        "
        .a: join instance=i1
        .a: sync assign=a=x
        b: join instance=i2
        a: join
        b2: join instance=i2
        a: join
        a: sync assign=a=x,b2=y
        b2: sync
        b: sync
        ",
        expect![[r#"
            b: join instance=i2
            a: join
              a: joined as i1-1 generation 2 range leader i1-1 of [i1-1 i2-3]
              b: joined as i2-3 generation 2 range leader i1-1
            b2: join instance=i2
            a: join
              a: joined as i1-1 generation 3 range leader i1-1 of [i1-1 i2-5]
              b2: joined as i2-5 generation 3 range leader i1-1
            a: sync assign=a=x,b2=y
              + g generation 3 range leader i1-1 [i1-1=x i2-5=y]
              a: synced "x"
            b2: sync
              b2: synced "y"
            b: sync
              b: FENCED_INSTANCE_ID
        "#]],
    );
}

#[test]
fn a_static_member_that_is_away_keeps_its_place_until_its_session_ends() {
    check_with(
        at_once(),
        "
        .a: join instance=i1 session=30s rebalance=5s
        .a: sync assign=a=x
        .b: join instance=i2 session=30s rebalance=5s
        wait 5s
        b: sync
        wait 26s
        b: heartbeat
        ",
        expect![[r#"
            wait 5s
              b: joined as i2-3 generation 2 range leader i2-3 of [i1-1 i2-3]
            b: sync
              + g generation 2 range leader i2-3 [i1-1= i2-3=]
              b: synced ""
            wait 26s
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
        "#]],
    );
}

#[test]
fn a_fail_over_keeps_the_generation_and_forgets_what_was_under_way() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        crash
        a: heartbeat
        a: sync
        .b: join old
        crash
        a: heartbeat
        b: heartbeat
        wait 10s
        show
        ",
        expect![[r#"
            crash
            a: heartbeat
              a: NONE
            a: sync
              a: synced "x"
            crash
            a: heartbeat
              a: NONE
            b: heartbeat
              b: UNKNOWN_MEMBER_ID
            wait 10s
              + g generation 2 - leader - []
            show
              g Empty "classic" "" 2 []
        "#]],
    );
}

#[test]
fn a_generation_without_an_assignment_is_forgotten_and_joined_again() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        .b: join old
        .a: join
        crash
        show
        a: heartbeat
        a: join
        b: join
        ",
        expect![[r#"
            crash
            show
              g Stable "classic" "range" 1 [a-1]
            a: heartbeat
              a: ILLEGAL_GENERATION
            a: join
              a: joined as a-1 generation 2 range leader a-1 of [a-1]
            b: join
              b: UNKNOWN_MEMBER_ID b-3
        "#]],
    );
}

#[test]
fn a_full_group_takes_nobody() {
    check_with(
        GroupSettings {
            max_size: 1,
            ..at_once()
        },
        "
        .a: join old
        .a: sync assign=a=x
        b: join old
        a: join
        b: join
        b: join
        ",
        expect![[r#"
            b: join old
              b: GROUP_MAX_SIZE_REACHED 
            a: join
              a: joined as a-1 generation 2 range leader a-1 of [a-1]
            b: join
              b: GROUP_MAX_SIZE_REACHED 
            b: join
              b: GROUP_MAX_SIZE_REACHED 
        "#]],
    );
}

#[test]
fn sessions_are_held_while_appends_lag() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        hold 20s
        wait 19s
        a: heartbeat
        wait 5s
        a: heartbeat
        wait 10s
        show
        ",
        expect![[r#"
            hold 20s
            wait 19s
            a: heartbeat
              a: NONE
            wait 5s
            a: heartbeat
              a: NONE
            wait 10s
              + g generation 2 - leader - []
            show
              g Empty "classic" "" 2 []
        "#]],
    );
}

#[test]
fn groups_of_other_kinds_than_consumers_work_alike() {
    check_with(
        at_once(),
        "
        a: join old type=connect protocols=sessioned
        a: sync assign=a=x
        show
        ",
        expect![[r#"
            a: join old type=connect protocols=sessioned
              a: joined as a-1 generation 1 sessioned leader a-1 of [a-1]
            a: sync assign=a=x
              + g generation 1 sessioned leader a-1 [a-1=x]
              a: synced "x"
            show
              g Stable "classic" "sessioned" 1 [a-1]
        "#]],
    );
}

#[test]
fn who_does_not_fetch_its_assignment_in_time_is_removed() {
    check_with(
        at_once(),
        "
        .a: join old rebalance=20s session=30s
        .a: sync assign=a=x
        .b: join old rebalance=20s session=30s
        .a: join rebalance=20s session=30s
        a: sync assign=a=x,b=y
        wait 19s
        b: heartbeat
        wait 1s
        b: heartbeat
        a: join rebalance=20s session=30s
        ",
        expect![[r#"
            a: sync assign=a=x,b=y
              + g generation 2 range leader a-1 [a-1=x b-3=y]
              a: synced "x"
            wait 19s
            b: heartbeat
              b: NONE
            wait 1s
            b: heartbeat
              b: UNKNOWN_MEMBER_ID
            a: join rebalance=20s session=30s
              a: joined as a-1 generation 3 range leader a-1 of [a-1]
        "#]],
    );
}

#[test]
fn a_newcomer_whose_client_may_be_gone_does_not_wait_for_ever() {
    check_with(
        at_once(),
        "
        .a: join old rebalance=20m session=20m
        .a: sync assign=a=x
        b: join old rebalance=20m
        wait 4m
        wait 1m
        show
        ",
        expect![[r#"
            b: join old rebalance=20m
            wait 4m
            wait 1m
              b: UNKNOWN_MEMBER_ID b-3
            show
              g PreparingRebalance "classic" "" 1 [a-1]
        "#]],
    );
}

#[test]
fn who_fetched_its_assignment_late_but_in_time_stays() {
    check_with(
        at_once(),
        "
        .a: join old rebalance=20s session=30s
        .a: sync assign=a=x
        .b: join old rebalance=20s session=30s
        .a: join rebalance=20s session=30s
        a: sync assign=a=x,b=y
        wait 19s
        b: sync
        .a: heartbeat
        wait 2s
        b: heartbeat
        ",
        expect![[r#"
            a: sync assign=a=x,b=y
              + g generation 2 range leader a-1 [a-1=x b-3=y]
              a: synced "x"
            wait 19s
            b: sync
              b: synced "y"
            wait 2s
            b: heartbeat
              b: NONE
        "#]],
    );
}

#[test]
fn an_id_that_is_given_back_leaves_a_settled_group_alone() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        b: join
        b: leave
        a: heartbeat
        show
        ",
        expect![[r#"
            b: join
              b: MEMBER_ID_REQUIRED b-3
            b: leave
              b: NONE [NONE]
            a: heartbeat
              a: NONE
            show
              g Stable "classic" "range" 1 [a-1]
        "#]],
    );
}

#[test]
fn an_id_that_was_handed_out_can_be_given_back() {
    check_with(
        at_once(),
        "
        .a: join old
        .a: sync assign=a=x
        b: join
        a: join
        b: leave
        ",
        expect![[r#"
            b: join
              b: MEMBER_ID_REQUIRED b-3
            a: join
            b: leave
              a: joined as a-1 generation 2 range leader a-1 of [a-1]
              b: NONE [NONE]
        "#]],
    );
}
