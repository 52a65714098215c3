//! Stories of one transactional id. Codes were compared with Kafka 4.4.

use expect_test::expect;

use super::*;

const ONE: TransactionVersion = TransactionVersion::ONE;
const TWO: TransactionVersion = TransactionVersion::TWO;

#[test]
fn a_client_of_version_2_gets_a_new_epoch_with_each_end() {
    story(
        TWO,
        "
        a: init pay
        a: add2 pay p q
        a: add2 pay p
        a: quietly-commit2 pay
        a: commit2 pay
        a: abort2 pay
        written pay
        a: commit2 pay
        a: add2 pay p
        a: abort2 pay
        written pay
        ",
        expect![[r#"
            a: init pay
                + pay Empty 1000/0
              1000/0
            a: add2 pay p q
                + pay Ongoing 1000/0 p-0 q-0
              NONE
            a: add2 pay p
              NONE
            a: quietly-commit2 pay
                + pay PrepareCommit 1000/1 p-0 q-0
                ! commit pay 1000/1 p-0 q-0
              1000/1
            a: commit2 pay
              CONCURRENT_TRANSACTIONS
            a: abort2 pay
              CONCURRENT_TRANSACTIONS
            written pay
                + pay CompleteCommit 1000/1
              NONE
            a: commit2 pay
              1000/1
            a: add2 pay p
                + pay Ongoing 1000/1 p-0
              NONE
            a: abort2 pay
                + pay PrepareAbort 1000/2 p-0
                ! abort pay 1000/2 p-0
              1000/2
            written pay
                + pay CompleteAbort 1000/2
              NONE
        "#]],
    );
}

#[test]
fn a_client_of_version_1_keeps_its_epoch() {
    story(
        ONE,
        "
        a: init pay
        a: commit pay
        a: add pay p
        a: verify pay p q
        a: commit pay
        a: commit pay
        written pay
        a: commit pay
        a: abort pay
        a: verify pay p
        a: add pay q
        a: abort pay
        written pay
        ",
        expect![[r#"
            a: init pay
                + pay Empty 1000/0
              1000/0
            a: commit pay
              INVALID_TXN_STATE
            a: add pay p
                + pay Ongoing 1000/0 p-0
              NONE
            a: verify pay p q
              NONE TRANSACTION_ABORTABLE
            a: commit pay
                + pay PrepareCommit 1000/0 p-0
                ! commit pay 1000/0 p-0
              1000/0
            a: commit pay
              CONCURRENT_TRANSACTIONS
            written pay
                + pay CompleteCommit 1000/0
              NONE
            a: commit pay
              1000/0
            a: abort pay
              INVALID_TXN_STATE
            a: verify pay p
              TRANSACTION_ABORTABLE
            a: add pay q
                + pay Ongoing 1000/0 q-0
              NONE
            a: abort pay
                + pay PrepareAbort 1000/0 q-0
                ! abort pay 1000/0 q-0
              1000/0
            written pay
                + pay CompleteAbort 1000/0
              NONE
        "#]],
    );
}

#[test]
fn the_next_transaction_waits_for_the_end_of_the_one_before() {
    story(
        ONE,
        "
        a: init pay
        a: add pay p
        a: commit pay
        a: add pay q
        a: add pay r
        a: abort pay
        written pay
        a: abort pay
        a: add pay p
        wait 999
        wait 1
        a: add pay p
        reload
        written pay
        ",
        expect![[r#"
            a: init pay
                + pay Empty 1000/0
              1000/0
            a: add pay p
                + pay Ongoing 1000/0 p-0
              NONE
            a: commit pay
                + pay PrepareCommit 1000/0 p-0
                ! commit pay 1000/0 p-0
              1000/0
            a: add pay q
              …
            a: add pay r
              …
            a: abort pay
              CONCURRENT_TRANSACTIONS
            written pay
                + pay CompleteCommit 1000/0
                + pay Ongoing 1000/0 q-0
                = NONE
                + pay Ongoing 1000/0 q-0 r-0
                = NONE
              NONE
            a: abort pay
                + pay PrepareAbort 1000/0 q-0 r-0
                ! abort pay 1000/0 q-0 r-0
              1000/0
            a: add pay p
              …
            wait 999
            wait 1
                = CONCURRENT_TRANSACTIONS
            a: add pay p
              …
            reload
                ! abort pay 1000/0 q-0 r-0
            written pay
                + pay CompleteAbort 1000/0
              NONE
        "#]],
    );
}

#[test]
fn a_new_instance_fences_the_old_one_and_aborts_its_transaction() {
    story(
        TWO,
        "
        old: init pay
        old: add2 pay p
        new: init pay
        new: init pay
        written pay
        new: init pay
        old: add2 pay p
        old: verify pay p
        old: commit2 pay
        old: resume pay
        new: resume pay
        ",
        expect![[r#"
            old: init pay
                + pay Empty 1000/0
              1000/0
            old: add2 pay p
                + pay Ongoing 1000/0 p-0
              NONE
            new: init pay
                + pay PrepareAbort 1000/1 p-0
                ! abort pay 1000/1 p-0
              CONCURRENT_TRANSACTIONS
            new: init pay
              CONCURRENT_TRANSACTIONS
            written pay
                + pay CompleteAbort 1000/1
              NONE
            new: init pay
                + pay Empty 1000/2
              1000/2
            old: add2 pay p
              PRODUCER_FENCED
            old: verify pay p
              PRODUCER_FENCED
            old: commit2 pay
              PRODUCER_FENCED
            old: resume pay
              PRODUCER_FENCED
            new: resume pay
                + pay Empty 1000/3
              1000/3
        "#]],
    );
}

#[test]
fn an_old_instance_that_goes_on_aborts_what_the_newer_one_has_open_and_is_refused_then() {
    story(
        TWO,
        "
        old: init pay
        new: init pay
        new: add2 pay p
        old: resume pay
        written pay
        old: resume pay
        new: commit2 pay
        ",
        expect![[r#"
            old: init pay
                + pay Empty 1000/0
              1000/0
            new: init pay
                + pay Empty 1000/1
              1000/1
            new: add2 pay p
                + pay Ongoing 1000/1 p-0
              NONE
            old: resume pay
                + pay PrepareAbort 1000/2 p-0
                ! abort pay 1000/2 p-0
              CONCURRENT_TRANSACTIONS
            written pay
                + pay CompleteAbort 1000/2
              NONE
            old: resume pay
              PRODUCER_FENCED
            new: commit2 pay
              INVALID_TXN_STATE
        "#]],
    );
}

#[test]
fn a_producer_that_gives_up_its_own_transaction_goes_on_and_another_instance_still_fences_it() {
    story(
        TWO,
        "
        a: init pay
        a: add2 pay p
        a: resume pay
        written pay
        reload
        a: resume pay
        a: add2 pay p
        a: resume pay
        written pay
        b: init pay
        a: resume pay
        ",
        expect![[r#"
            a: init pay
                + pay Empty 1000/0
              1000/0
            a: add2 pay p
                + pay Ongoing 1000/0 p-0
              NONE
            a: resume pay
                + pay PrepareAbort 1000/1 p-0
                ! abort pay 1000/1 p-0
              CONCURRENT_TRANSACTIONS
            written pay
                + pay CompleteAbort 1000/1
              NONE
            reload
            a: resume pay
                + pay Empty 1000/1
              1000/1
            a: add2 pay p
                + pay Ongoing 1000/1 p-0
              NONE
            a: resume pay
                + pay PrepareAbort 1000/2 p-0
                ! abort pay 1000/2 p-0
              CONCURRENT_TRANSACTIONS
            written pay
                + pay CompleteAbort 1000/2
              NONE
            b: init pay
                + pay Empty 1000/3
              1000/3
            a: resume pay
              PRODUCER_FENCED
        "#]],
    );
}

/// Its markers wait for a leader that nobody hears, and what the next one sends there isn't answered.
#[test]
fn a_producer_that_gives_up_its_next_transaction_before_the_last_one_has_ended_goes_on() {
    story(
        TWO,
        "
        a: init pay
        a: add2 pay p
        a: commit2 pay
        a: abort2 pay
        written pay
        a: abort2 pay
        a: add2 pay p
        ",
        expect![[r#"
            a: init pay
                + pay Empty 1000/0
              1000/0
            a: add2 pay p
                + pay Ongoing 1000/0 p-0
              NONE
            a: commit2 pay
                + pay PrepareCommit 1000/1 p-0
                ! commit pay 1000/1 p-0
              1000/1
            a: abort2 pay
              CONCURRENT_TRANSACTIONS
            written pay
                + pay CompleteCommit 1000/1
              NONE
            a: abort2 pay
                + pay PrepareAbort 1000/2
                + pay CompleteAbort 1000/2
              1000/2
            a: add2 pay p
                + pay Ongoing 1000/2 p-0
              NONE
        "#]],
    );
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    story(
        TWO,
        "
        a: init pay
        b: is 1000 0
        a: resume pay
        b: resume pay
        b: is 1000 1
        b: init pay
        a: resume pay
        reload
        a: is 1000 2
        b: is 1000 2
        a: resume pay
        reload
        b: resume pay
        ",
        expect![[r#"
            a: init pay
                + pay Empty 1000/0
              1000/0
            b: is 1000 0
            a: resume pay
                + pay Empty 1000/1
              1000/1
            b: resume pay
                + pay Empty 1000/1
              1000/1
            b: is 1000 1
            b: init pay
                + pay Empty 1000/2
              1000/2
            a: resume pay
              PRODUCER_FENCED
            reload
            a: is 1000 2
            b: is 1000 2
            a: resume pay
                + pay Empty 1000/3
              1000/3
            reload
            b: resume pay
                + pay Empty 1000/3
              1000/3
        "#]],
    );
}

#[test]
fn used_up_epochs_bring_a_new_producer_id() {
    // Straight to the last epochs, as a folder of Kafka may hold them.
    let mut world = World::new(TWO);
    let value = TransactionValue {
        epoch: ProducerEpoch(i16::MAX - 1),
        ..TransactionValue::new(ProducerId(7), 60_000, world.now.wall_ms)
    };
    let stored = records::encode("pay", Some(&value), TWO).unwrap();
    world
        .shard
        .apply(&stored.key, stored.value.as_deref(), Offset(0), world.now);
    world.log.push(stored);
    let place = vec![("p".to_owned(), 0)];
    let last = ProducerEpoch(i16::MAX - 1);
    let add = TransactionCommand::Add {
        id: "pay".to_owned(),
        producer_id: ProducerId(7),
        epoch: last,
        partitions: place.clone(),
        version: TWO,
    };
    assert_eq!(
        world.tell(add).answer,
        Some(TransactionAnswer::Error(ErrorCode::NONE))
    );
    let end = TransactionCommand::End {
        id: "pay".to_owned(),
        producer_id: ProducerId(7),
        epoch: last,
        commit: true,
        version: TWO,
        fresh: None,
    };
    let next = TransactionAnswer::Producer {
        error: ErrorCode::NONE,
        producer_id: ProducerId(1_000),
        epoch: ProducerEpoch(0),
    };
    let step = world.tell(end.clone());
    assert_eq!(step.answer.as_ref(), Some(&next));
    assert_eq!(
        (step.effects[0].producer_id, step.effects[0].epoch.0),
        (ProducerId(7), i16::MAX)
    );
    let written = TransactionCommand::MarkersWritten {
        id: "pay".to_owned(),
        prepared_at: step.effects[0].prepared_at,
        done: place,
    };
    world.tell(written);
    // The answer was lost: it is given again, not a second producer id.
    assert_eq!(world.tell(end).answer, Some(next));
    let resume = TransactionCommand::Init {
        id: "pay".to_owned(),
        timeout_ms: 60_000,
        resume: Some((ProducerId(7), last)),
        fresh: None,
    };
    let again = TransactionAnswer::Producer {
        error: ErrorCode::NONE,
        producer_id: ProducerId(1_000),
        epoch: ProducerEpoch(0),
    };
    assert_eq!(world.tell(resume).answer, Some(again));
}

#[test]
fn markers_are_written_until_all_partitions_have_them() {
    story(
        TWO,
        "
        a: init pay
        a: add2 pay p q r
        a: commit2 pay
        written pay q r
        wait 99
        wait 1
        reload
        written pay
        ",
        expect![[r#"
            a: init pay
                + pay Empty 1000/0
              1000/0
            a: add2 pay p q r
                + pay Ongoing 1000/0 p-0 q-0 r-0
              NONE
            a: commit2 pay
                + pay PrepareCommit 1000/1 p-0 q-0 r-0
                ! commit pay 1000/1 p-0 q-0 r-0
              1000/1
            written pay q r
              NONE
            wait 99
            wait 1
                ! commit pay 1000/1 q-0 r-0
            reload
                ! commit pay 1000/1 p-0 q-0 r-0
            written pay
                + pay CompleteCommit 1000/1
              NONE
        "#]],
    );
}

#[test]
fn a_transaction_over_its_time_is_aborted_and_its_producer_fenced() {
    story(
        TWO,
        "
        a: init pay 5000
        a: add2 pay p
        wait 4999
        a: add2 pay q
        wait 1
        a: commit2 pay
        written pay
        a: commit2 pay
        b: init pay
        ",
        expect![[r#"
            a: init pay 5000
                + pay Empty 1000/0
              1000/0
            a: add2 pay p
                + pay Ongoing 1000/0 p-0
              NONE
            wait 4999
            a: add2 pay q
                + pay Ongoing 1000/0 p-0 q-0
              NONE
            wait 1
                + pay PrepareAbort 1000/1 p-0 q-0
                ! abort pay 1000/1 p-0 q-0
            a: commit2 pay
              CONCURRENT_TRANSACTIONS
            written pay
                + pay CompleteAbort 1000/1
              NONE
            a: commit2 pay
              INVALID_TXN_STATE
            b: init pay
                + pay Empty 1000/2
              1000/2
        "#]],
    );
}

#[test]
fn a_wall_clock_that_jumps_neither_ends_a_transaction_nor_keeps_it_open() {
    story(
        TWO,
        "
        a: init pay 5000
        a: add2 pay p
        jump 86400000
        a: add2 pay q
        wait 4999
        jump -172800000
        a: add2 pay r
        wait 1
        ",
        expect![[r#"
            a: init pay 5000
                + pay Empty 1000/0
              1000/0
            a: add2 pay p
                + pay Ongoing 1000/0 p-0
              NONE
            jump 86400000
            a: add2 pay q
                + pay Ongoing 1000/0 p-0 q-0
              NONE
            wait 4999
            jump -172800000
            a: add2 pay r
                + pay Ongoing 1000/0 p-0 q-0 r-0
              NONE
            wait 1
                + pay PrepareAbort 1000/1 p-0 q-0 r-0
                ! abort pay 1000/1 p-0 q-0 r-0
        "#]],
    );
}

#[test]
fn a_load_gives_an_open_transaction_time_however_far_the_wall_clock_went() {
    story(
        TWO,
        "
        a: init short 5000
        a: add2 short p
        b: init default
        b: add2 default p
        c: init long 900000
        c: add2 long p
        wait 4000
        jump 86400000
        reload
        wait 4999
        wait 1
        wait 54999
        wait 1
        ",
        expect![[r#"
            a: init short 5000
                + short Empty 1000/0
              1000/0
            a: add2 short p
                + short Ongoing 1000/0 p-0
              NONE
            b: init default
                + default Empty 1001/0
              1001/0
            b: add2 default p
                + default Ongoing 1001/0 p-0
              NONE
            c: init long 900000
                + long Empty 1002/0
              1002/0
            c: add2 long p
                + long Ongoing 1002/0 p-0
              NONE
            wait 4000
            jump 86400000
            reload
            wait 4999
            wait 1
                + short PrepareAbort 1000/1 p-0
                ! abort short 1000/1 p-0
            wait 54999
            wait 1
                + default PrepareAbort 1001/1 p-0
                + long PrepareAbort 1002/1 p-0
                ! abort default 1001/1 p-0
                ! abort long 1002/1 p-0
        "#]],
    );
}

#[test]
fn a_transaction_goes_on_growing_older_over_loads() {
    story(
        TWO,
        "
        a: init pay 900000
        a: add2 pay p
        wait 800000
        reload
        wait 99999
        wait 1
        ",
        expect![[r#"
            a: init pay 900000
                + pay Empty 1000/0
              1000/0
            a: add2 pay p
                + pay Ongoing 1000/0 p-0
              NONE
            wait 800000
            reload
            wait 99999
            wait 1
                + pay PrepareAbort 1000/1 p-0
                ! abort pay 1000/1 p-0
        "#]],
    );
}

#[test]
fn a_wall_clock_that_was_set_back_before_a_load_gives_no_more_than_the_time_out() {
    story(
        TWO,
        "
        a: init pay 5000
        a: add2 pay p
        jump -86400000
        reload
        wait 4999
        wait 1
        ",
        expect![[r#"
            a: init pay 5000
                + pay Empty 1000/0
              1000/0
            a: add2 pay p
                + pay Ongoing 1000/0 p-0
              NONE
            jump -86400000
            reload
            wait 4999
            wait 1
                + pay PrepareAbort 1000/1 p-0
                ! abort pay 1000/1 p-0
        "#]],
    );
}

#[test]
fn nobody_runs_out_of_time_for_what_the_disk_is_slow_at() {
    story(
        ONE,
        "
        a: init pay 5000
        a: add pay p
        hold
        wait 99000
        a: commit pay
        wait 1000
        ",
        expect![[r#"
            a: init pay 5000
                + pay Empty 1000/0
              1000/0
            a: add pay p
                + pay Ongoing 1000/0 p-0
              NONE
            hold
            wait 99000
            a: commit pay
                + pay PrepareCommit 1000/0 p-0
              1000/0
            wait 1000
                ! commit pay 1000/0 p-0
        "#]],
    );
}

#[test]
fn an_id_that_nobody_uses_is_forgotten() {
    story(
        TWO,
        "
        a: init pay
        wait 604799999
        a: init other
        wait 1
        a: add2 pay p
        ",
        expect![[r#"
            a: init pay
                + pay Empty 1000/0
              1000/0
            wait 604799999
            a: init other
                + other Empty 1001/0
              1001/0
            wait 1
                - pay
            a: add2 pay p
              INVALID_PRODUCER_ID_MAPPING
        "#]],
    );
}

#[test]
fn a_load_forgets_no_id_at_once_however_far_the_wall_clock_went() {
    story(
        TWO,
        "
        a: init idle
        b: init used
        jump 864000000
        reload
        wait 3599999
        b: add2 used p
        b: commit2 used
        wait 1
        ",
        expect![[r#"
            a: init idle
                + idle Empty 1000/0
              1000/0
            b: init used
                + used Empty 1001/0
              1001/0
            jump 864000000
            reload
            wait 3599999
            b: add2 used p
                + used Ongoing 1001/0 p-0
              NONE
            b: commit2 used
                + used PrepareCommit 1001/1 p-0
                ! commit used 1001/1 p-0
              1001/1
            wait 1
                - idle
        "#]],
    );
}

#[test]
fn who_asks_for_nonsense_is_told_so() {
    story(
        TWO,
        "
        a: init pay 900001
        a: init pay 0
        a: commit2 pay
        a: verify pay p
        a: init pay
        b: is 2000 0
        b: commit2 pay
        b: add2 pay p
        b: resume pay
        a: commit2 pay
        a: abort2 pay
        ",
        expect![[r#"
            a: init pay 900001
              INVALID_TRANSACTION_TIMEOUT
            a: init pay 0
              INVALID_TRANSACTION_TIMEOUT
            a: commit2 pay
              INVALID_PRODUCER_ID_MAPPING
            a: verify pay p
              INVALID_PRODUCER_ID_MAPPING
            a: init pay
                + pay Empty 1000/0
              1000/0
            b: is 2000 0
            b: commit2 pay
              INVALID_PRODUCER_ID_MAPPING
            b: add2 pay p
              INVALID_PRODUCER_ID_MAPPING
            b: resume pay
              PRODUCER_FENCED
            a: commit2 pay
              INVALID_TXN_STATE
            a: abort2 pay
                + pay PrepareAbort 1000/1
                + pay CompleteAbort 1000/1
              1000/1
        "#]],
    );
    let mut world = World::new(TWO);
    let long = "x".repeat(40_000);
    for (id, error) in [
        ("", ErrorCode::INVALID_REQUEST),
        (&long, ErrorCode::INVALID_REQUEST),
    ] {
        let command = TransactionCommand::Init {
            id: id.to_owned(),
            timeout_ms: 1,
            resume: None,
            fresh: None,
        };
        let answer = world.tell(command).answer;
        assert_eq!(answer, Some(TransactionAnswer::no_producer(error)));
    }
    assert!(world.log.is_empty());
}
