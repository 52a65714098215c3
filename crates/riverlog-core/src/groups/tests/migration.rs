//! Groups that move between the protocols while their members work.

use expect_test::expect;

use super::{check, check_with};
use crate::groups::{GroupSettings, MigrationPolicy};

/// Two members of the classic protocol, with two partitions each; what they say and are answered is another test's business.
const TWO: &str = "
    .topic orders 4
    .a: join reads=orders old
    .b: join reads=orders old
    .wait 1s
    .a: sync assign=a=orders/0+1,b=orders/2+3
    .b: sync
";

fn after_two(script: &str) -> String {
    format!("{TWO}{script}")
}

#[test]
fn members_of_both_protocols_share_a_group_and_then_there_is_one_protocol() {
    check(
        &after_two(
            "
            c: hb join reads=orders
            show
            a: heartbeat
            a: commit orders/0=7
            a: join reads=orders owns=orders/0+1
            a: sync
            b: heartbeat
            b: join reads=orders owns=orders/2+3
            b: sync
            b: heartbeat
            c: hb
            b: join reads=orders owns=orders/2
            b: sync
            b: heartbeat
            c: hb
            a: leave
            b: leave
            c: hb
            c: hb done
            show
            fetch orders/0
            ",
        ),
        expect![[r#"
            c: hb join reads=orders
              - g generation
              + g a-1 reads orders (classic)
              + g b-2 reads orders (classic)
              + g epoch 1
              + g a-1 target orders/0,1
              + g b-2 target orders/2,3
              + g target epoch 1
              + g a-1 epoch 1 has orders/0,1
              + g b-2 epoch 1 has orders/2,3
              + g c reads orders
              + g epoch 2
              + g b-2 target orders/2
              + g c target orders/3
              + g target epoch 2
              + g c epoch 2 has nothing waits
              c: c epoch 2 may have nothing
            show
              g Reconciling "consumer" "uniform" 2 [a-1 b-2 c]
            a: heartbeat
              a: REBALANCE_IN_PROGRESS
            a: commit orders/0=7
              + g orders/0 = 7
              a: NONE [NONE]
            a: join reads=orders owns=orders/0+1
              + g a-1 reads orders (classic)
              + g a-1 epoch 2 has orders/0,1
              a: joined as a-1 generation 2 range leader 
            a: sync
              a: synced orders/0,1
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
            b: join reads=orders owns=orders/2+3
              + g b-2 reads orders (classic)
              + g b-2 epoch 1 has orders/2 gives back orders/3
              b: joined as b-2 generation 1 range leader 
            b: sync
              b: synced orders/2
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
            c: hb
              c: c epoch 2
            b: join reads=orders owns=orders/2
              + g b-2 reads orders (classic)
              + g b-2 epoch 2 has orders/2
              b: joined as b-2 generation 2 range leader 
            b: sync
              b: synced orders/2
            b: heartbeat
              b: NONE
            c: hb
              + g c epoch 2 has orders/3
              c: c epoch 2 may have orders/3
            a: leave
              - g a-1 has
              - g a-1 target
              - g a-1
              + g epoch 3
              + g b-2 target orders/0,2
              + g c target orders/1,3
              + g target epoch 3
              a: NONE [NONE]
            b: leave
              - g b-2 has
              - g b-2 target
              - g b-2
              + g epoch 4
              + g c target orders/0,1,2,3
              + g target epoch 4
              b: NONE [NONE]
            c: hb
              + g c epoch 4 has orders/0,1,2,3
              c: c epoch 4 may have orders/0,1,2,3
            c: hb done
              c: c epoch 4
            show
              g Stable "consumer" "uniform" 4 [c]
            fetch orders/0
              orders/0 = 7 after 17
        "#]],
    );
}

#[test]
fn the_group_goes_back_when_the_last_member_of_the_newer_protocol_leaves() {
    check(
        &after_two(
            "
            .c: hb join reads=orders
            .a: join reads=orders owns=orders/0+1
            .a: sync
            .b: join reads=orders
            .b: sync
            .c: hb
            c: hb leave
            show
            a: heartbeat
            a: commit orders/0=7
            a: join reads=orders old
            b: join reads=orders old
            a: sync assign=a=orders/0+1,b=orders/2+3
            b: sync
            b: heartbeat
            ",
        ),
        expect![[r#"
            c: hb leave
              - g c has
              - g c target
              - g c
              - g a-1 has
              - g a-1 target
              - g a-1
              - g b-2 has
              - g b-2 target
              - g b-2
              - g target epoch
              - g epoch
              + g generation 2 range leader - [a-1=orders/0,1 b-2=orders/2]
              c: c epoch -1
            show
              g PreparingRebalance "classic" "" 2 [a-1 b-2]
            a: heartbeat
              a: REBALANCE_IN_PROGRESS
            a: commit orders/0=7
              + g orders/0 = 7
              a: NONE [NONE]
            a: join reads=orders old
            b: join reads=orders old
              a: joined as a-1 generation 3 range leader a-1 of [a-1 b-2]
              b: joined as b-2 generation 3 range leader a-1
            a: sync assign=a=orders/0+1,b=orders/2+3
              + g generation 3 range leader a-1 [a-1=orders/0,1 b-2=orders/2,3]
              a: synced orders/0,1
            b: sync
              b: synced orders/2,3
            b: heartbeat
              b: NONE
        "#]],
    );
}

#[test]
fn what_waits_in_a_classic_group_is_told_to_join_again() {
    check(
        &after_two(
            "
            d: join reads=orders old
            a: heartbeat
            c: hb join reads=orders
            d: join reads=orders
            d: sync
            ",
        ),
        expect![[r#"
            d: join reads=orders old
            a: heartbeat
              a: REBALANCE_IN_PROGRESS
            c: hb join reads=orders
              - g generation
              + g a-1 reads orders (classic)
              + g b-2 reads orders (classic)
              + g d-5 reads orders (classic)
              + g epoch 1
              + g a-1 target orders/0,1
              + g b-2 target orders/2,3
              + g d-5 target nothing
              + g target epoch 1
              + g a-1 epoch 1 has orders/0,1
              + g b-2 epoch 1 has orders/2,3
              + g d-5 epoch 1 has nothing
              + g c reads orders
              + g epoch 2
              + g a-1 target orders/0
              + g b-2 target orders/2
              + g c target orders/3
              + g d-5 target orders/1
              + g target epoch 2
              + g c epoch 2 has nothing waits
              d: REBALANCE_IN_PROGRESS d-5
              c: c epoch 2 may have nothing
            d: join reads=orders
              d: MEMBER_ID_REQUIRED d-8
            d: sync
              d: UNKNOWN_MEMBER_ID
        "#]],
    );
}

#[test]
fn a_member_that_was_told_to_give_back_and_has_not_yet_still_holds_it() {
    check(
        "
        .topic orders 4
        .a: join reads=orders old
        .wait 1s
        .a: sync assign=a=orders/0+1+2+3
        .b: join reads=orders old
        a: join reads=orders owns=orders/0+1+2+3 old
        a: sync assign=a=orders/0+1
        b: sync
        c: hb join reads=orders
        c: hb
        a: join reads=orders owns=orders/0+1
        a: sync
        c: hb
        ",
        expect![[r#"
            a: join reads=orders owns=orders/0+1+2+3 old
              a: joined as a-1 generation 2 range leader a-1 of [a-1 b-3]
              b: joined as b-3 generation 2 range leader a-1
            a: sync assign=a=orders/0+1
              + g generation 2 range leader a-1 [a-1=orders/0,1 b-3=]
              a: synced orders/0,1
            b: sync
              b: synced ""
            c: hb join reads=orders
              - g generation
              + g a-1 reads orders (classic)
              + g b-3 reads orders (classic)
              + g epoch 2
              + g a-1 target orders/0,1
              + g b-3 target nothing
              + g target epoch 2
              + g a-1 epoch 2 has orders/0,1 gives back orders/2,3
              + g b-3 epoch 2 has nothing
              + g c reads orders
              + g epoch 3
              + g b-3 target orders/2
              + g c target orders/3
              + g target epoch 3
              + g c epoch 3 has nothing waits
              c: c epoch 3 may have nothing
            c: hb
              c: c epoch 3
            a: join reads=orders owns=orders/0+1
              + g a-1 reads orders (classic)
              + g a-1 epoch 3 has orders/0,1
              a: joined as a-1 generation 3 range leader 
            a: sync
              a: synced orders/0,1
            c: hb
              + g c epoch 3 has orders/3
              c: c epoch 3 may have orders/3
        "#]],
    );
}

#[test]
fn a_static_member_changes_its_protocol_and_keeps_its_partitions() {
    check(
        "
        .topic orders 2
        .a: join instance=i reads=orders old
        .b: join instance=j reads=orders old
        .wait 1s
        .a: sync assign=a=orders/0,b=orders/1
        .b: sync
        a2: hb join instance=i reads=orders
        a: heartbeat
        b: heartbeat
        b: join reads=orders owns=orders/1
        b: sync
        b2: join instance=j reads=orders
        b2: sync
        a3: join instance=i reads=orders old
        show
        b2: join reads=orders old
        ",
        expect![[r#"
            a2: hb join instance=i reads=orders
              - g generation
              + g i-1 reads orders (classic)
              + g j-2 reads orders (classic)
              + g epoch 1
              + g i-1 target orders/0
              + g j-2 target orders/1
              + g target epoch 1
              + g i-1 epoch 1 has orders/0
              + g j-2 epoch 1 has orders/1
              - g i-1 has
              - g i-1 target
              - g i-1
              + g a2 reads orders
              + g a2 target orders/0
              + g a2 epoch 0 has orders/0
              + g epoch 2
              + g target epoch 2
              + g a2 epoch 2 has orders/0
              a2: a2 epoch 2 may have orders/0
            a: heartbeat
              a: FENCED_INSTANCE_ID
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
            b: join reads=orders owns=orders/1
              + g j-2 reads orders (classic)
              + g j-2 epoch 2 has orders/1
              b: joined as j-2 generation 2 range leader 
            b: sync
              b: synced orders/1
            b2: join instance=j reads=orders
              - g j-2 has
              - g j-2 target
              - g j-2
              + g j-a reads orders (classic)
              + g j-a target orders/1
              + g j-a epoch 0 has orders/1
              + g j-a epoch 2 has orders/1
              b2: joined as j-a generation 2 range leader 
            b2: sync
              b2: synced orders/1
            a3: join instance=i reads=orders old
              - g a2 has
              - g a2 target
              - g a2
              - g j-a has
              - g j-a target
              - g j-a
              - g target epoch
              - g epoch
              + g generation 2 range leader - [j-a=orders/1]
            show
              g PreparingRebalance "classic" "" 2 [i-c j-a]
            b2: join reads=orders old
              a3: joined as i-c generation 3 range leader i-c of [i-c j-a]
              b2: joined as j-a generation 3 range leader i-c
        "#]],
    );
}

#[test]
fn who_neither_joins_nor_syncs_in_time_is_removed() {
    check(
        &after_two(
            "
            .c: hb join reads=orders
            .a: join reads=orders owns=orders/0+1 session=300s rebalance=20s
            b: heartbeat
            wait 9s
            b: heartbeat
            .c: hb
            wait 9s
            .b: heartbeat
            .c: hb
            wait 3s
            .b: heartbeat
            .c: hb
            a: sync
            wait 41s
            ",
        ),
        expect![[r#"
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
            wait 9s
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
            wait 9s
            wait 3s
              - g a-1 has
              - g a-1 target
              - g a-1
              + g epoch 3
              + g b-2 target orders/0,2
              + g c target orders/1,3
              + g target epoch 3
            a: sync
              a: UNKNOWN_MEMBER_ID
            wait 41s
              - g b-2 has
              - g b-2 target
              - g b-2
              + g epoch 4
              + g c target orders/0,1,2,3
              + g target epoch 4
        "#]],
    );
}

#[test]
fn the_classic_side_is_refused_what_it_can_not_have() {
    check(
        &after_two(
            "
            .c: hb join reads=orders
            d: join reads=orders
            d: join reads=orders protocols=other
            d: join reads=orders type=connect
            e: join protocols=range
            a: sync protocol=other
            a: sync generation=7
            a: heartbeat generation=7
            c: heartbeat
            c: sync
            ghost: heartbeat
            b: sync
            a: commit orders/0=1 version=3
            a: commit orders/0=1 generation=0
            ",
        ),
        expect![[r#"
            d: join reads=orders
              d: MEMBER_ID_REQUIRED d-6
            d: join reads=orders protocols=other
              d: INCONSISTENT_GROUP_PROTOCOL d-6
            d: join reads=orders type=connect
              d: INCONSISTENT_GROUP_PROTOCOL d-6
            e: join protocols=range
              e: INCONSISTENT_GROUP_PROTOCOL 
            a: sync protocol=other
              a: INCONSISTENT_GROUP_PROTOCOL
            a: sync generation=7
              a: ILLEGAL_GENERATION
            a: heartbeat generation=7
              a: ILLEGAL_GENERATION
            c: heartbeat
              c: UNKNOWN_MEMBER_ID
            c: sync
              c: UNKNOWN_MEMBER_ID
            ghost: heartbeat
              ghost: UNKNOWN_MEMBER_ID
            b: sync
              b: REBALANCE_IN_PROGRESS
            a: commit orders/0=1 version=3
              + g orders/0 = 1
              a: NONE [NONE]
            a: commit orders/0=1 generation=0
              a: ILLEGAL_GENERATION [ILLEGAL_GENERATION]
        "#]],
    );
}

#[test]
fn the_policy_keeps_a_group_where_it_is() {
    let upgrade_only = GroupSettings {
        migration: MigrationPolicy::Upgrade,
        ..GroupSettings::default()
    };
    check_with(
        upgrade_only,
        &after_two(
            "
            .c: hb join reads=orders
            .a: join reads=orders
            .b: join reads=orders
            c: hb leave
            show
            ",
        ),
        expect![[r#"
            c: hb leave
              - g c has
              - g c target
              - g c
              + g epoch 3
              + g b-2 target orders/2,3
              + g target epoch 3
              c: c epoch -1
            show
              g Reconciling "consumer" "uniform" 3 [a-1 b-2]
        "#]],
    );
    let downgrade_only = GroupSettings {
        migration: MigrationPolicy::Downgrade,
        ..GroupSettings::default()
    };
    check_with(
        downgrade_only,
        &after_two("c: hb join reads=orders"),
        expect![[r#"
            c: hb join reads=orders
              c: GROUP_ID_NOT_FOUND
        "#]],
    );
}

#[test]
fn groups_of_another_kind_stay_classic() {
    check(
        "
        .topic orders 2
        .a: join type=connect old
        .wait 1s
        .a: sync assign=a=x
        b: hb join reads=orders
        .c: join reads=orders protocols=stream group=s old
        .wait 1s
        .c: sync assign=c=x group=s
        d: hb join reads=orders group=s
        show
        ",
        expect![[r#"
            b: hb join reads=orders
              b: GROUP_ID_NOT_FOUND
            d: hb join reads=orders group=s
              d: GROUP_ID_NOT_FOUND
            show
              g Stable "classic" "range" 1 [a-1]
        "#]],
    );
}

#[test]
fn a_group_between_the_protocols_survives_a_crash() {
    check(
        &after_two(
            "
            .c: hb join reads=orders
            .a: join reads=orders owns=orders/0+1
            crash
            show
            a: sync
            a: heartbeat
            b: heartbeat
            .a: heartbeat
            c: hb leave
            crash
            show
            a: heartbeat
            a: join reads=orders old
            .b: join reads=orders old
            a: sync assign=a=orders/0+1,b=orders/2+3
            ",
        ),
        expect![[r#"
            crash
            show
              g Reconciling "consumer" "uniform" 2 [a-1 b-2 c]
            a: sync
              a: synced orders/0,1
            a: heartbeat
              a: NONE
            b: heartbeat
              b: REBALANCE_IN_PROGRESS
            c: hb leave
              - g c has
              - g c target
              - g c
              - g a-1 has
              - g a-1 target
              - g a-1
              - g b-2 has
              - g b-2 target
              - g b-2
              - g target epoch
              - g epoch
              + g generation 2 range leader - [a-1=orders/0,1 b-2=orders/2,3]
              c: c epoch -1
            crash
            show
              g PreparingRebalance "classic" "" 2 [a-1 b-2]
            a: heartbeat
              a: REBALANCE_IN_PROGRESS
            a: join reads=orders old
            a: sync assign=a=orders/0+1,b=orders/2+3
              + g generation 3 range leader a-1 [a-1=orders/0,1 b-2=orders/2,3]
              a: synced orders/0,1
        "#]],
    );
}
