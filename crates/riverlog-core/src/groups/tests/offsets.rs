//! Committed offsets.

use std::time::Duration;

use expect_test::expect;

use super::check_with;
use crate::groups::GroupSettings;

/// No wait for more members, and offsets that live for a day.
fn a_day() -> GroupSettings {
    GroupSettings {
        initial_rebalance_delay: Duration::ZERO,
        offsets_retention: Duration::from_secs(24 * 3600),
        ..GroupSettings::default()
    }
}

#[test]
fn who_may_commit() {
    check_with(
        a_day(),
        "
        topic orders 3
        : commit orders/0=1
        : commit orders/0=1 generation=3 version=8 group=new
        : commit orders/0=1 generation=3 version=9 group=new
        .a: join old reads=orders
        a: commit orders/0=2
        .a: sync assign=a=x
        a: commit orders/0=2 orders/1=3
        : commit orders/0=9
        a: commit orders/0=9 generation=7
        ghost: commit orders/0=9 generation=1 member=ghost
        .b: join old reads=orders
        a: commit orders/0=4
        .a: leave
        .b: leave
        : commit orders/0=0
        a: commit orders/0=9 generation=1
        fetch orders/0 orders/1 orders/2
        fetch all
        fetch orders/0 group=new
        ",
        expect![[r#"
            topic orders 3
            : commit orders/0=1
              + g orders/0 = 1
              : NONE [NONE]
            : commit orders/0=1 generation=3 version=8 group=new
              : ILLEGAL_GENERATION [ILLEGAL_GENERATION]
            : commit orders/0=1 generation=3 version=9 group=new
              : GROUP_ID_NOT_FOUND [GROUP_ID_NOT_FOUND]
            a: commit orders/0=2
              a: REBALANCE_IN_PROGRESS [REBALANCE_IN_PROGRESS]
            a: commit orders/0=2 orders/1=3
              + g orders/0 = 2
              + g orders/1 = 3
              a: NONE [NONE NONE]
            : commit orders/0=9
              : UNKNOWN_MEMBER_ID [UNKNOWN_MEMBER_ID]
            a: commit orders/0=9 generation=7
              a: ILLEGAL_GENERATION [ILLEGAL_GENERATION]
            ghost: commit orders/0=9 generation=1 member=ghost
              ghost: UNKNOWN_MEMBER_ID [UNKNOWN_MEMBER_ID]
            a: commit orders/0=4
              + g orders/0 = 4
              a: NONE [NONE]
            : commit orders/0=0
              + g orders/0 = 0
              : NONE [NONE]
            a: commit orders/0=9 generation=1
              a: UNKNOWN_MEMBER_ID [UNKNOWN_MEMBER_ID]
            fetch orders/0 orders/1 orders/2
              orders/0 = 0, orders/1 = 3, orders/2 = none after 7
            fetch all
              orders/0 = 0, orders/1 = 3 after 7
            fetch orders/0 group=new
              orders/0 = none after 0
        "#]],
    );
}

#[test]
fn what_can_not_be_committed() {
    check_with(
        a_day(),
        "
        topic orders 1
        : commit orders/0=1 orders/1=1 bills/0=1
        : commit orders/0=2 note=4097
        : commit orders/0=3 note=4096
        : commit orders/0=-1
        ",
        expect![[r#"
            topic orders 1
            : commit orders/0=1 orders/1=1 bills/0=1
              + g orders/0 = 1
              : NONE [NONE UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_OR_PARTITION]
            : commit orders/0=2 note=4097
              : NONE [OFFSET_METADATA_TOO_LARGE]
            : commit orders/0=3 note=4096
              + g orders/0 = 3
              : NONE [NONE]
            : commit orders/0=-1
              + g orders/0 = -1
              : NONE [NONE]
        "#]],
    );
}

#[test]
fn any_name_is_good_for_offsets() {
    check_with(
        a_day(),
        "
        topic orders 1
        : commit group='' orders/0=1
        : commit group=%2F orders/0=2
        : commit group=a/b orders/0=3
        : commit group=x#y orders/0=4
        list
        fetch group='' orders/0
        : delete group=''
        : delete group=a/b
        : delete group=a/b
        list
        ",
        expect![[r#"
            topic orders 1
            : commit group='' orders/0=1
              +  orders/0 = 1
              : NONE [NONE]
            : commit group=%2F orders/0=2
              + %2F orders/0 = 2
              : NONE [NONE]
            : commit group=a/b orders/0=3
              + a/b orders/0 = 3
              : NONE [NONE]
            : commit group=x#y orders/0=4
              + x#y orders/0 = 4
              : NONE [NONE]
            list
              "" "%2F" "a/b" "x#y"
            fetch group='' orders/0
              orders/0 = 1 after 1
            : delete group=''
              -  orders/0
              -  generation
              : NONE
            : delete group=a/b
              - a/b orders/0
              - a/b generation
              : NONE
            : delete group=a/b
              : GROUP_ID_NOT_FOUND
            list
              "%2F" "x#y"
        "#]],
    );
}

#[test]
fn a_topic_made_anew_has_none_of_the_old_offsets() {
    check_with(
        a_day(),
        "
        topic orders 1
        : commit orders/0=10
        drop orders later
        .topic orders 1
        fetch orders/0
        : commit orders/0=10
        : drop orders later
        fetch all
        topic orders 1
        fetch all
        : commit orders/0=5
        fetch orders/0
        ",
        expect![[r#"
            topic orders 1
            : commit orders/0=10
              + g orders/0 = 10
              : NONE [NONE]
            drop orders later
            fetch orders/0
              orders/0 = none after 2
            : commit orders/0=10
              + g orders/0 = 10
              : NONE [NONE]
            : drop orders later
            fetch all
              orders/0 = 10 after 3
            topic orders 1
              - g orders/0
            fetch all
               after 4
            : commit orders/0=5
              + g orders/0 = 5
              : NONE [NONE]
            fetch orders/0
              orders/0 = 5 after 5
        "#]],
    );
}

#[test]
fn an_old_offset_is_not_the_new_topics_even_before_it_is_dropped() {
    check_with(
        a_day(),
        "
        topic orders 1
        : commit orders/0=10
        drop orders later
        topic orders 1 later
        fetch orders/0
        fetch orders/0 by-id
        topic bills 1
        ",
        expect![[r#"
            topic orders 1
            : commit orders/0=10
              + g orders/0 = 10
              : NONE [NONE]
            drop orders later
            topic orders 1 later
            fetch orders/0
              orders/0 = 10 after 1
            fetch orders/0 by-id
              orders/0 = none after 0
            topic bills 1
              - g orders/0
        "#]],
    );
}

#[test]
fn an_empty_group_loses_its_offsets_a_retention_after_it_became_empty() {
    check_with(
        a_day(),
        "
        topic orders 1
        .a: join old reads=orders session=20m
        .a: sync assign=a=x
        .a: commit orders/0=1
        .wait 19m
        .a: leave
        wait 23m
        .wait 1410m
        fetch orders/0
        crash
        wait 9m
        fetch orders/0
        wait 25m
        show
        ",
        expect![[r#"
            topic orders 1
            wait 23m
            fetch orders/0
              orders/0 = 1 after 2
            crash
            wait 9m
            fetch orders/0
              orders/0 = 1 after 2
            wait 25m
              - g orders/0
              - g generation
            show
              no group
        "#]],
    );
}

#[test]
fn a_live_group_loses_nothing() {
    check_with(
        GroupSettings {
            offsets_retention: Duration::from_secs(600),
            ..a_day()
        },
        "
        topic orders 1
        topic bills 1
        .a: join old reads=orders,bills session=30m
        .a: sync assign=a=x
        a: commit orders/0=1 bills/0=1
        .wait 25m
        .a: heartbeat
        .wait 25m
        .a: heartbeat
        fetch all
        ",
        expect![[r#"
            topic orders 1
            topic bills 1
            a: commit orders/0=1 bills/0=1
              + g orders/0 = 1
              + g bills/0 = 1
              a: NONE [NONE NONE]
            fetch all
              bills/0 = 1, orders/0 = 1 after 3
        "#]],
    );
}

#[test]
fn a_live_group_drops_what_it_no_longer_reads() {
    check_with(
        GroupSettings {
            offsets_retention: Duration::from_secs(600),
            ..a_day()
        },
        "
        topic orders 1
        topic bills 1
        .a: join old reads=orders session=30m
        .a: sync assign=a=x
        a: commit orders/0=1 bills/0=1
        wait 20m
        fetch all
        ",
        expect![[r#"
            topic orders 1
            topic bills 1
            a: commit orders/0=1 bills/0=1
              + g orders/0 = 1
              + g bills/0 = 1
              a: NONE [NONE NONE]
            wait 20m
              - g bills/0
            fetch all
              orders/0 = 1 after 4
        "#]],
    );
}

#[test]
fn a_consumer_group_keeps_what_it_reads_and_then_from_when_it_became_empty() {
    check_with(
        GroupSettings {
            offsets_retention: Duration::from_secs(1500),
            consumer_session_timeout: Duration::from_secs(6000),
            ..a_day()
        },
        "
        topic orders 1
        topic bills 1
        .a: hb join reads=orders
        a: commit orders/0=1 bills/0=1
        wait 20m
        fetch all
        a: hb leave
        wait 15m
        fetch all
        crash
        wait 30m
        show
        ",
        expect![[r#"
            topic orders 1
            topic bills 1
            a: commit orders/0=1 bills/0=1
              + g orders/0 = 1
              + g bills/0 = 1
              a: NONE [NONE NONE]
            wait 20m
            fetch all
              bills/0 = 1, orders/0 = 1 after 7
            a: hb leave
              - g a has
              - g a target
              - g a
              + g epoch 2 empty
              + g target epoch 2
              a: a epoch -1
            wait 15m
            fetch all
              bills/0 = 1, orders/0 = 1 after 7
            crash
            wait 30m
              - g bills/0
              - g orders/0
              - g target epoch
              - g epoch
            show
              no group
        "#]],
    );
}

#[test]
fn offsets_set_by_hand_live_from_their_last_commit_and_old_clients_say_how_long() {
    check_with(
        a_day(),
        "
        topic orders 2
        : commit orders/0=1
        : commit orders/1=1 expire=5m version=2
        wait 20m
        fetch all
        .wait 1400m
        : commit orders/0=2
        wait 60m
        fetch all
        .wait 1360m
        show
        wait 40m
        show
        ",
        expect![[r#"
            topic orders 2
            : commit orders/0=1
              + g orders/0 = 1
              : NONE [NONE]
            : commit orders/1=1 expire=5m version=2
              + g orders/1 = 1 expires 1300000
              : NONE [NONE]
            wait 20m
              - g orders/1
            fetch all
              orders/0 = 1 after 3
            : commit orders/0=2
              + g orders/0 = 2
              : NONE [NONE]
            wait 60m
            fetch all
              orders/0 = 2 after 4
            show
              g Empty "classic" "" 0 []
            wait 40m
              - g orders/0
              - g generation
            show
              no group
        "#]],
    );
}

#[test]
fn offsets_are_deleted_one_by_one_or_with_their_group() {
    check_with(
        a_day(),
        "
        topic orders 2
        topic bills 1
        : delete-offsets orders/0
        .a: join old reads=orders
        .a: sync assign=a=x
        .a: commit orders/0=1 orders/1=2 bills/0=3
        : delete-offsets orders/0 bills/0 nothing/0
        : delete
        .a: leave
        : delete-offsets orders/0 orders/0
        fetch all
        : delete
        : delete
        fetch all
        show
        ",
        expect![[r#"
            topic orders 2
            topic bills 1
            : delete-offsets orders/0
              : GROUP_ID_NOT_FOUND [GROUP_ID_NOT_FOUND]
            : delete-offsets orders/0 bills/0 nothing/0
              - g bills/0
              : NONE [GROUP_SUBSCRIBED_TO_TOPIC NONE UNKNOWN_TOPIC_OR_PARTITION]
            : delete
              : NON_EMPTY_GROUP
            : delete-offsets orders/0 orders/0
              - g orders/0
              : NONE [NONE NONE]
            fetch all
              orders/1 = 2 after 7
            : delete
              - g orders/1
              - g generation
              : NONE
            : delete
              : GROUP_ID_NOT_FOUND
            fetch all
               after 9
            show
              no group
        "#]],
    );
}

#[test]
fn a_live_group_of_another_kind_keeps_its_offsets() {
    check_with(
        a_day(),
        "
        topic orders 1
        .a: join old type=connect
        .a: sync assign=a=x
        .a: commit orders/0=1
        : delete-offsets orders/0
        ",
        expect![[r#"
            topic orders 1
            : delete-offsets orders/0
              : NON_EMPTY_GROUP [NON_EMPTY_GROUP]
        "#]],
    );
}

#[test]
fn a_consumer_group_keeps_the_offsets_of_what_it_reads() {
    check_with(
        a_day(),
        "
        topic orders 1
        topic bills 1
        .a: hb join reads=orders
        .a: commit orders/0=1 bills/0=1
        : delete-offsets orders/0 bills/0
        : delete
        a: hb leave
        : delete
        ",
        expect![[r#"
            topic orders 1
            topic bills 1
            : delete-offsets orders/0 bills/0
              - g bills/0
              : NONE [GROUP_SUBSCRIBED_TO_TOPIC NONE]
            : delete
              : NON_EMPTY_GROUP
            a: hb leave
              - g a has
              - g a target
              - g a
              + g epoch 2 empty
              + g target epoch 2
              a: a epoch -1
            : delete
              - g orders/0
              - g target epoch
              - g epoch
              : NONE
        "#]],
    );
}

#[test]
fn an_offset_fetch_waits_for_what_it_read() {
    check_with(
        a_day(),
        "
        topic orders 2
        : commit orders/0=1
        : commit orders/1=1
        : commit group=other orders/0=1
        fetch orders/0
        fetch orders/1
        fetch group=nobody orders/0
        : delete-offsets orders/0
        fetch orders/0
        fetch orders/1
        : delete group=other
        fetch group=other orders/0
        ",
        expect![[r#"
            topic orders 2
            : commit orders/0=1
              + g orders/0 = 1
              : NONE [NONE]
            : commit orders/1=1
              + g orders/1 = 1
              : NONE [NONE]
            : commit group=other orders/0=1
              + other orders/0 = 1
              : NONE [NONE]
            fetch orders/0
              orders/0 = 1 after 1
            fetch orders/1
              orders/1 = 1 after 2
            fetch group=nobody orders/0
              orders/0 = none after 0
            : delete-offsets orders/0
              - g orders/0
              : NONE [NONE]
            fetch orders/0
              orders/0 = none after 4
            fetch orders/1
              orders/1 = 1 after 4
            : delete group=other
              - other orders/0
              - other generation
              : NONE
            fetch group=other orders/0
              orders/0 = none after 6
        "#]],
    );
}

#[test]
fn the_least_committed_offset_is_over_all_groups() {
    check_with(
        a_day(),
        "
        topic orders 1
        least orders/0
        .: commit group=x orders/0=10
        .: commit group=y orders/0=7
        least orders/0
        .: commit group=y orders/0=12
        least orders/0
        crash
        least orders/0
        .: delete group=x
        least orders/0
        ",
        expect![[r#"
            topic orders 1
            least orders/0
              None
            least orders/0
              Some(Offset(7))
            least orders/0
              Some(Offset(10))
            crash
            least orders/0
              Some(Offset(10))
            least orders/0
              Some(Offset(12))
        "#]],
    );
}
