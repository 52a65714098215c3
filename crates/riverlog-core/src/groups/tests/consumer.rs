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
        a: hb done
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
            a: hb done
              a: a epoch 3
            c: hb
              c: c epoch 3
        "#]],
    );
}
