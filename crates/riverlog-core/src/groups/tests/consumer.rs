//! The consumer protocol (KIP-848).

use expect_test::expect;

use super::{check, check_with};
use crate::groups::GroupSettings;

#[test]
fn a_first_member_gets_everything_at_once() {
    check(
        "
        topic orders 3
        a: hb join reads=orders
        a: hb
        a: hb done
        show
        ",
        expect![[r#"
            topic orders 3
            a: hb join reads=orders
              + g a reads orders
              + g epoch 1
              + g a target orders/0,1,2
              + g target epoch 1
              + g a epoch 1 has orders/0,1,2
              a: a epoch 1 may have orders/0,1,2
            a: hb
              a: a epoch 1
            a: hb done
              a: a epoch 1
            show
              g Stable "consumer" "uniform" 1 [a]
        "#]],
    );
}

#[test]
fn only_what_must_move_moves_and_only_once_it_is_given_back() {
    check(
        "
        topic orders 4
        a: hb join reads=orders
        b: hb join reads=orders
        b: hb
        a: hb
        a: hb
        b: hb
        a: hb done
        b: hb
        show
        c: hb join reads=orders
        a: hb
        b: hb
        b: hb done
        c: hb
        ",
        expect![[r#"
            topic orders 4
            a: hb join reads=orders
              + g a reads orders
              + g epoch 1
              + g a target orders/0,1,2,3
              + g target epoch 1
              + g a epoch 1 has orders/0,1,2,3
              a: a epoch 1 may have orders/0,1,2,3
            b: hb join reads=orders
              + g b reads orders
              + g epoch 2
              + g a target orders/0,1
              + g b target orders/2,3
              + g target epoch 2
              + g b epoch 2 has nothing waits
              b: b epoch 2 may have nothing
            b: hb
              b: b epoch 2
            a: hb
              + g a epoch 1 has orders/0,1 gives back orders/2,3
              a: a epoch 1 may have orders/0,1
            a: hb
              a: a epoch 1
            b: hb
              b: b epoch 2
            a: hb done
              + g a epoch 2 has orders/0,1
              a: a epoch 2
            b: hb
              + g b epoch 2 has orders/2,3
              b: b epoch 2 may have orders/2,3
            show
              g Stable "consumer" "uniform" 2 [a b]
            c: hb join reads=orders
              + g c reads orders
              + g epoch 3
              + g b target orders/2
              + g c target orders/3
              + g target epoch 3
              + g c epoch 3 has nothing waits
              c: c epoch 3 may have nothing
            a: hb
              + g a epoch 3 has orders/0,1
              a: a epoch 3
            b: hb
              + g b epoch 2 has orders/2 gives back orders/3
              b: b epoch 2 may have orders/2
            b: hb done
              + g b epoch 3 has orders/2
              b: b epoch 3
            c: hb
              + g c epoch 3 has orders/3
              c: c epoch 3 may have orders/3
        "#]],
    );
}

#[test]
fn partitions_of_a_member_that_leaves_go_to_the_others() {
    check(
        "
        topic orders 4
        .a: hb join reads=orders
        .b: hb join reads=orders
        .a: hb
        .a: hb done
        .b: hb
        a: hb leave
        b: hb
        b: hb leave
        show
        ",
        expect![[r#"
            topic orders 4
            a: hb leave
              - g a has
              - g a target
              - g a
              + g epoch 3
              + g b target orders/0,1,2,3
              + g target epoch 3
              a: a epoch -1
            b: hb
              + g b epoch 3 has orders/0,1,2,3
              b: b epoch 3 may have orders/0,1,2,3
            b: hb leave
              - g b has
              - g b target
              - g b
              + g epoch 4 empty
              + g target epoch 4
              b: b epoch -1
            show
              g Empty "consumer" "uniform" 4 []
        "#]],
    );
}

#[test]
fn a_silent_member_is_gone_after_its_session() {
    check(
        "
        topic orders 2
        .a: hb join reads=orders
        .b: hb join reads=orders
        wait 30s
        b: hb
        wait 14s
        wait 1s
        b: hb
        ",
        expect![[r#"
            topic orders 2
            wait 30s
            b: hb
              b: b epoch 2
            wait 14s
            wait 1s
              - g a has
              - g a target
              - g a
              + g epoch 3
              + g b target orders/0,1
              + g target epoch 3
            b: hb
              + g b epoch 3 has orders/0,1
              b: b epoch 3 may have orders/0,1
        "#]],
    );
}

#[test]
fn a_fail_over_keeps_epochs_assignments_and_what_has_to_be_given_back() {
    check(
        "
        topic orders 4
        .a: hb join reads=orders
        .b: hb join reads=orders
        a: hb
        crash
        a: hb
        b: hb
        a: hb done
        b: hb
        show
        ",
        expect![[r#"
            topic orders 4
            a: hb
              + g a epoch 1 has orders/0,1 gives back orders/2,3
              a: a epoch 1 may have orders/0,1
            crash
            a: hb
              a: a epoch 1 may have orders/0,1
            b: hb
              b: b epoch 2 may have nothing
            a: hb done
              + g a epoch 2 has orders/0,1
              a: a epoch 2
            b: hb
              + g b epoch 2 has orders/2,3
              b: b epoch 2 may have orders/2,3
            show
              g Stable "consumer" "uniform" 2 [a b]
        "#]],
    );
}

#[test]
fn a_member_that_was_not_told_its_partitions_before_a_fail_over_held_nothing_for_ever() {
    check(
        "
        topic orders 2
        .a: hb join reads=orders
        .b: hb join reads=orders
        .a: hb
        .a: hb done
        b: hb
        crash
        b: hb
        b: hb
        ",
        expect![[r#"
            topic orders 2
            b: hb
              + g b epoch 2 has orders/1
              b: b epoch 2 may have orders/1
            crash
            b: hb
              b: b epoch 2 may have orders/1
            b: hb
              b: b epoch 2
        "#]],
    );
}

#[test]
fn heartbeats_are_refused_for_many_reasons() {
    check(
        "
        topic orders 1
        a: hb epoch=3
        b: hb epoch=3 member=b
        a: hb join reads=orders group=''
        a: hb join reads=orders no-timeout
        a: hb join reads=orders no-owned
        a: hb join reads=orders owns=orders/0
        a: hb join
        c: hb leave
        a: hb join reads=orders assignor=sticky
        a: hb join pattern=[
        d: hb away member=d
        d: hb epoch=-3
        e: hb join reads=orders instance=
        v1: hb join reads=orders version=1
        v0: hb join reads=orders version=0
        a: hb epoch=9 member=a
        a: hb join reads=orders
        a: hb epoch=9
        ghost: hb epoch=1 member=ghost
        ghost: hb leave
        ghost: hb leave instance=i9
        ",
        expect![[r#"
            topic orders 1
            a: hb epoch=3
              a: INVALID_REQUEST
            b: hb epoch=3 member=b
              b: GROUP_ID_NOT_FOUND
            a: hb join reads=orders group=''
              a: INVALID_REQUEST
            a: hb join reads=orders no-timeout
              a: INVALID_REQUEST
            a: hb join reads=orders no-owned
              a: INVALID_REQUEST
            a: hb join reads=orders owns=orders/0
              a: INVALID_REQUEST
            a: hb join
              a: INVALID_REQUEST
            c: hb leave
              c: INVALID_REQUEST
            a: hb join reads=orders assignor=sticky
              a: UNSUPPORTED_ASSIGNOR
            a: hb join pattern=[
              a: INVALID_REGULAR_EXPRESSION
            d: hb away member=d
              d: INVALID_REQUEST
            d: hb epoch=-3
              d: INVALID_REQUEST
            e: hb join reads=orders instance=
              e: INVALID_REQUEST
            v1: hb join reads=orders version=1
              v1: INVALID_REQUEST
            v0: hb join reads=orders version=0
              + g AAAAAAAAAAAAAAAAAAAADw reads orders
              + g epoch 1
              + g AAAAAAAAAAAAAAAAAAAADw target orders/0
              + g target epoch 1
              + g AAAAAAAAAAAAAAAAAAAADw epoch 1 has orders/0
              v0: AAAAAAAAAAAAAAAAAAAADw epoch 1 may have orders/0
            a: hb epoch=9 member=a
              a: UNKNOWN_MEMBER_ID
            a: hb join reads=orders
              + g a reads orders
              + g epoch 2
              + g a target nothing
              + g target epoch 2
              + g a epoch 2 has nothing
              a: a epoch 2 may have nothing
            a: hb epoch=9
              a: FENCED_MEMBER_EPOCH
            ghost: hb epoch=1 member=ghost
              ghost: UNKNOWN_MEMBER_ID
            ghost: hb leave
              ghost: UNKNOWN_MEMBER_ID
            ghost: hb leave instance=i9
              ghost: UNKNOWN_MEMBER_ID
        "#]],
    );
}

#[test]
fn a_member_whose_answer_was_lost_may_say_its_last_epoch_again() {
    check(
        "
        topic orders 2
        .a: hb join reads=orders
        .b: hb join reads=orders
        .a: hb
        a: hb done
        a: hb epoch=1
        a: hb epoch=1 owns=orders/0,orders/1
        a: hb epoch=1 owns=orders/0
        a: hb join reads=orders
        ",
        expect![[r#"
            topic orders 2
            a: hb done
              + g a epoch 2 has orders/0
              a: a epoch 2
            a: hb epoch=1
              a: FENCED_MEMBER_EPOCH
            a: hb epoch=1 owns=orders/0,orders/1
              a: FENCED_MEMBER_EPOCH
            a: hb epoch=1 owns=orders/0
              a: a epoch 2 may have orders/0
            a: hb join reads=orders
              a: a epoch 2 may have orders/0
        "#]],
    );
}

#[test]
fn a_static_member_may_go_for_a_while_and_come_back_under_another_id() {
    check(
        "
        topic orders 2
        .a: hb join reads=orders instance=i1
        .b: hb join reads=orders instance=i2
        .a: hb
        .a: hb done
        .b: hb
        late: hb join reads=orders instance=i1
        a: hb away
        b: hb
        a2: hb join reads=orders instance=i1
        a: hb epoch=2
        a2: hb
        a2: hb away
        wait 44s
        b: hb
        wait 2s
        b: hb
        a3: hb join reads=orders instance=i1
        a3: hb leave
        ",
        expect![[r#"
            topic orders 2
            late: hb join reads=orders instance=i1
              late: UNRELEASED_INSTANCE_ID
            a: hb away
              + g a epoch -2 has orders/0
              a: a epoch -2
            b: hb
              b: b epoch 2
            a2: hb join reads=orders instance=i1
              - g a has
              - g a target
              - g a
              + g a2 reads orders
              + g a2 target orders/0
              + g a2 epoch 0 has orders/0
              + g a2 epoch 2 has orders/0
              a2: a2 epoch 2 may have orders/0
            a: hb epoch=2
              a: FENCED_INSTANCE_ID
            a2: hb
              a2: a2 epoch 2
            a2: hb away
              + g a2 epoch -2 has orders/0
              a2: a2 epoch -2
            wait 44s
            b: hb
              b: b epoch 2
            wait 2s
              - g a2 has
              - g a2 target
              - g a2
              + g epoch 3
              + g b target orders/0,1
              + g target epoch 3
            b: hb
              + g b epoch 3 has orders/0,1
              b: b epoch 3 may have orders/0,1
            a3: hb join reads=orders instance=i1
              + g a3 reads orders
              + g epoch 4
              + g a3 target orders/1
              + g b target orders/0
              + g target epoch 4
              + g a3 epoch 4 has nothing waits
              a3: a3 epoch 4 may have nothing
            a3: hb leave
              - g a3 has
              - g a3 target
              - g a3
              + g epoch 5
              + g b target orders/0,1
              + g target epoch 5
              a3: a3 epoch -1
        "#]],
    );
}

#[test]
fn a_full_group_takes_nobody() {
    check_with(
        GroupSettings {
            max_size: 1,
            ..GroupSettings::default()
        },
        "
        topic orders 1
        .a: hb join reads=orders
        b: hb join reads=orders
        ",
        expect![[r#"
            topic orders 1
            b: hb join reads=orders
              b: GROUP_MAX_SIZE_REACHED
        "#]],
    );
}

#[test]
fn commits_are_fenced_by_the_member_epoch() {
    check(
        "
        topic orders 4
        .a: hb join reads=orders
        a: commit orders/0=5
        a: commit orders/0=5 version=8
        a: commit orders/0=5 epoch=2
        .b: hb join reads=orders
        .a: hb
        .a: hb done
        b: commit orders/3=1
        b: commit orders/3=1 epoch=1
        a: commit orders/0=6 epoch=1
        a: commit orders/3=6 epoch=1
        a: commit orders/0=7
        ghost: commit orders/0=1 member=ghost
        : commit orders/0=9
        : commit orders/0=9 generation=1
        a: fetch orders/0
        a: fetch orders/0 epoch=1
        ghost: fetch orders/0
        fetch orders/0
        ",
        expect![[r#"
            topic orders 4
            a: commit orders/0=5
              + g orders/0 = 5
              a: NONE [NONE]
            a: commit orders/0=5 version=8
              a: UNSUPPORTED_VERSION [UNSUPPORTED_VERSION]
            a: commit orders/0=5 epoch=2
              a: STALE_MEMBER_EPOCH [STALE_MEMBER_EPOCH]
            b: commit orders/3=1
              + g orders/3 = 1
              b: NONE [NONE]
            b: commit orders/3=1 epoch=1
              b: STALE_MEMBER_EPOCH [STALE_MEMBER_EPOCH]
            a: commit orders/0=6 epoch=1
              + g orders/0 = 6
              a: NONE [NONE]
            a: commit orders/3=6 epoch=1
              a: STALE_MEMBER_EPOCH [STALE_MEMBER_EPOCH]
            a: commit orders/0=7
              + g orders/0 = 7
              a: NONE [NONE]
            ghost: commit orders/0=1 member=ghost
              ghost: UNKNOWN_MEMBER_ID [UNKNOWN_MEMBER_ID]
            : commit orders/0=9
              : UNKNOWN_MEMBER_ID [UNKNOWN_MEMBER_ID]
            : commit orders/0=9 generation=1
              : UNKNOWN_MEMBER_ID [UNKNOWN_MEMBER_ID]
            a: fetch orders/0
              orders/0 = 7 after 17
            a: fetch orders/0 epoch=1
              STALE_MEMBER_EPOCH
            ghost: fetch orders/0
              UNKNOWN_MEMBER_ID
            fetch orders/0
              orders/0 = 7 after 17
        "#]],
    );
}

#[test]
fn operators_remove_members_by_name() {
    check(
        "
        topic orders 1
        .a: hb join reads=orders instance=i1
        .b: hb join reads=orders
        op: leave members=@i1,@i9,b,ghost
        show
        ",
        expect![[r#"
            topic orders 1
            op: leave members=@i1,@i9,b,ghost
              - g a has
              - g a target
              - g a
              - g b has
              - g b target
              - g b
              + g epoch 3 empty
              + g target epoch 3
              op: NONE [NONE UNKNOWN_MEMBER_ID NONE UNKNOWN_MEMBER_ID]
            show
              g Empty "consumer" "uniform" 3 []
        "#]],
    );
}

#[test]
fn sessions_are_held_while_appends_lag() {
    check(
        "
        topic orders 1
        .a: hb join reads=orders
        hold 60s
        wait 59s
        show
        wait 1s
        show
        ",
        expect![[r#"
            topic orders 1
            hold 60s
            wait 59s
            show
              g Stable "consumer" "uniform" 1 [a]
            wait 1s
              - g a has
              - g a target
              - g a
              + g epoch 2 empty
              + g target epoch 2
            show
              g Empty "consumer" "uniform" 2 []
        "#]],
    );
}

#[test]
fn a_member_that_gives_nothing_back_is_gone_in_time() {
    check(
        "
        topic orders 2
        .a: hb join reads=orders
        .b: hb join reads=orders
        a: hb
        .wait 30s
        .a: hb
        .b: hb
        wait 29s
        a: hb
        b: hb
        wait 1s
        a: hb
        b: hb
        ",
        expect![[r#"
            topic orders 2
            a: hb
              + g a epoch 1 has orders/0 gives back orders/1
              a: a epoch 1 may have orders/0
            wait 29s
            a: hb
              a: a epoch 1
            b: hb
              b: b epoch 2
            wait 1s
              - g a has
              - g a target
              - g a
              + g epoch 3
              + g b target orders/0,1
              + g target epoch 3
            a: hb
              a: UNKNOWN_MEMBER_ID
            b: hb
              + g b epoch 3 has orders/0,1
              b: b epoch 3 may have orders/0,1
        "#]],
    );
}

#[test]
fn a_member_that_gave_back_in_time_stays() {
    check(
        "
        topic orders 2
        .a: hb join reads=orders
        .b: hb join reads=orders
        a: hb
        .wait 30s
        a: hb done
        .b: hb
        .wait 30s
        .a: hb
        .b: hb
        .wait 10s
        show
        ",
        expect![[r#"
            topic orders 2
            a: hb
              + g a epoch 1 has orders/0 gives back orders/1
              a: a epoch 1 may have orders/0
            a: hb done
              + g a epoch 2 has orders/0
              a: a epoch 2
            show
              g Stable "consumer" "uniform" 2 [a b]
        "#]],
    );
}

#[test]
fn what_has_to_be_given_back_can_still_be_committed() {
    check(
        "
        topic orders 3
        .a: hb join reads=orders
        .b: hb join reads=orders
        .a: hb
        .a: hb done
        .c: hb join reads=orders
        .a: hb
        a: commit orders/1=5 epoch=1
        a: hb
        a: commit orders/1=6 epoch=1
        a: commit orders/0=7 epoch=1
        a: hb done
        a: commit orders/1=8 epoch=1
        ",
        expect![[r#"
            topic orders 3
            a: commit orders/1=5 epoch=1
              + g orders/1 = 5
              a: NONE [NONE]
            a: hb
              a: a epoch 2
            a: commit orders/1=6 epoch=1
              + g orders/1 = 6
              a: NONE [NONE]
            a: commit orders/0=7 epoch=1
              + g orders/0 = 7
              a: NONE [NONE]
            a: hb done
              + g a epoch 3 has orders/0
              a: a epoch 3
            a: commit orders/1=8 epoch=1
              a: STALE_MEMBER_EPOCH [STALE_MEMBER_EPOCH]
        "#]],
    );
}

#[test]
fn a_full_heartbeat_is_told_the_assignment_again() {
    check(
        "
        topic orders 1
        .a: hb join reads=orders
        a: hb reads=orders owns=orders/0 timeout
        a: hb reads=orders owns=orders/0
        ",
        expect![[r#"
            topic orders 1
            a: hb reads=orders owns=orders/0 timeout
              a: a epoch 1 may have orders/0
            a: hb reads=orders owns=orders/0
              a: a epoch 1
        "#]],
    );
}
