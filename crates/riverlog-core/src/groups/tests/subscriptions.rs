//! The consumer protocol: what members subscribe to, and who assigns it.

use expect_test::expect;

use super::check;

#[test]
fn a_pattern_finds_topics_made_later() {
    check(
        "
        topic logs-eu 1
        a: hb join pattern=logs-.*
        topic logs-us 1
        a: hb
        topic my-logs-us 1
        a: hb
        drop logs-eu
        a: hb
        a: hb done
        a: hb pattern=
        a: hb done
        ",
        expect![[r#"
            topic logs-eu 1
            a: hb join pattern=logs-.*
              + g a reads logs-.*
              + g epoch 1
              + g a target logs-eu/0
              + g target epoch 1
              + g a epoch 1 has logs-eu/0
              a: a epoch 1 may have logs-eu/0
            topic logs-us 1
              + g epoch 2
              + g a target logs-eu/0 logs-us/0
              + g target epoch 2
            a: hb
              + g a epoch 2 has logs-eu/0 logs-us/0
              a: a epoch 2 may have logs-eu/0 logs-us/0
            topic my-logs-us 1
            a: hb
              a: a epoch 2
            drop logs-eu
              + g epoch 3
              + g a target logs-us/0
              + g target epoch 3
            a: hb
              + g a epoch 2 has logs-us/0 gives back #1/0
              a: a epoch 2 may have logs-us/0
            a: hb done
              + g a epoch 3 has logs-us/0
              a: a epoch 3
            a: hb pattern=
              + g a reads 
              + g epoch 4
              + g a target nothing
              + g target epoch 4
              + g a epoch 3 has nothing gives back logs-us/0
              a: a epoch 3 may have nothing
            a: hb done
              + g a epoch 4 has nothing
              a: a epoch 4
        "#]],
    );
}

#[test]
fn partitions_and_topics_that_appear_reach_the_members() {
    check(
        "
        a: hb join reads=orders
        topic orders 2
        a: hb
        topic orders 3
        a: hb
        crash
        a: hb
        ",
        expect![[r#"
            a: hb join reads=orders
              + g a reads orders
              + g epoch 1
              + g a target nothing
              + g target epoch 1
              + g a epoch 1 has nothing
              a: a epoch 1 may have nothing
            topic orders 2
              + g epoch 2
              + g a target orders/0,1
              + g target epoch 2
            a: hb
              + g a epoch 2 has orders/0,1
              a: a epoch 2 may have orders/0,1
            topic orders 3
              + g epoch 3
              + g a target orders/0,1,2
              + g target epoch 3
            a: hb
              + g a epoch 3 has orders/0,1,2
              a: a epoch 3 may have orders/0,1,2
            crash
            a: hb
              a: a epoch 3 may have orders/0,1,2
        "#]],
    );
}

#[test]
fn a_topic_made_anew_is_given_out_anew() {
    check(
        "
        topic orders 1
        .a: hb join reads=orders
        drop orders later
        topic orders 1
        a: hb
        a: hb owns=none
        ",
        expect![[r#"
            topic orders 1
            drop orders later
            topic orders 1
              + g epoch 2
              + g a target orders/0
              + g target epoch 2
            a: hb
              + g a epoch 1 has nothing gives back #1/0
              a: a epoch 1 may have nothing
            a: hb owns=none
              + g a epoch 2 has orders/0
              a: a epoch 2 may have orders/0
        "#]],
    );
}

#[test]
fn members_choose_the_assignor_by_vote() {
    check(
        "
        topic orders 5
        topic bills 5
        a: hb join reads=orders,bills assignor=range
        b: hb join reads=orders,bills
        show
        c: hb join reads=orders,bills assignor=uniform
        d: hb join reads=orders,bills assignor=uniform
        show
        ",
        expect![[r#"
            topic orders 5
            topic bills 5
            a: hb join reads=orders,bills assignor=range
              + g a reads bills,orders
              + g epoch 1
              + g a target orders/0,1,2,3,4 bills/0,1,2,3,4
              + g target epoch 1
              + g a epoch 1 has orders/0,1,2,3,4 bills/0,1,2,3,4
              a: a epoch 1 may have orders/0,1,2,3,4 bills/0,1,2,3,4
            b: hb join reads=orders,bills
              + g b reads bills,orders
              + g epoch 2
              + g a target orders/0,1,2 bills/0,1,2
              + g b target orders/3,4 bills/3,4
              + g target epoch 2
              + g b epoch 2 has nothing waits
              b: b epoch 2 may have nothing
            show
              g Reconciling "consumer" "range" 2 [a b]
            c: hb join reads=orders,bills assignor=uniform
              + g c reads bills,orders
              + g epoch 3
              + g a target orders/0,1 bills/0,1
              + g b target orders/3,4 bills/3
              + g c target orders/2 bills/2,4
              + g target epoch 3
              + g c epoch 3 has nothing waits
              c: c epoch 3 may have nothing
            d: hb join reads=orders,bills assignor=uniform
              + g d reads bills,orders
              + g epoch 4
              + g a target orders/0,1 bills/0
              + g c target orders/2 bills/2
              + g d target bills/1,4
              + g target epoch 4
              + g d epoch 4 has nothing waits
              d: d epoch 4 may have nothing
            show
              g Reconciling "consumer" "uniform" 4 [a b c d]
        "#]],
    );
}

#[test]
fn a_member_that_unsubscribes_stays_but_holds_nothing() {
    check(
        "
        topic orders 1
        .a: hb join reads=orders
        a: hb reads=none
        a: hb owns=none
        show
        ",
        expect![[r#"
            topic orders 1
            a: hb reads=none
              + g a reads 
              + g epoch 2
              + g a target nothing
              + g target epoch 2
              + g a epoch 1 has nothing gives back orders/0
              a: a epoch 1 may have nothing
            a: hb owns=none
              + g a epoch 2 has nothing
              a: a epoch 2
            show
              g Stable "consumer" "uniform" 2 [a]
        "#]],
    );
}

#[test]
fn an_empty_group_changes_its_protocol() {
    check(
        "
        topic orders 1
        .k: join old
        .wait 100ms
        k: sync assign=k=x
        h: hb join reads=orders
        k: leave
        h: hb epoch=1 member=h
        h: hb join reads=orders
        k: join old
        n: join old
        h: hb leave
        n: join old
        crash
        show
        h: hb join reads=orders
        .h: hb leave
        n: join old
        wait 100ms
        n: sync assign=n=x
        crash
        show
        ",
        expect![[r#"
            topic orders 1
            k: sync assign=k=x
              + g generation 1 range leader k-1 [k-1=x]
              k: synced "x"
            h: hb join reads=orders
              h: GROUP_ID_NOT_FOUND
            k: leave
              + g generation 2 - leader - []
              k: NONE [NONE]
            h: hb epoch=1 member=h
              h: GROUP_ID_NOT_FOUND
            h: hb join reads=orders
              - g generation
              + g h reads orders
              + g epoch 3
              + g h target orders/0
              + g target epoch 3
              + g h epoch 3 has orders/0
              h: h epoch 3 may have orders/0
            k: join old
              k: INCONSISTENT_GROUP_PROTOCOL k-1
            n: join old
              n: INCONSISTENT_GROUP_PROTOCOL 
            h: hb leave
              - g h has
              - g h target
              - g h
              + g epoch 4 empty
              + g target epoch 4
              h: h epoch -1
            n: join old
              - g target epoch
              - g epoch
            crash
            show
              no group
            h: hb join reads=orders
              + g h reads orders
              + g epoch 1
              + g h target orders/0
              + g target epoch 1
              + g h epoch 1 has orders/0
              h: h epoch 1 may have orders/0
            n: join old
              - g target epoch
              - g epoch
            wait 100ms
              n: joined as n-d generation 3 range leader n-d of [n-d]
            n: sync assign=n=x
              + g generation 3 range leader n-d [n-d=x]
              n: synced "x"
            crash
            show
              g Stable "classic" "range" 3 [n-d]
        "#]],
    );
}
