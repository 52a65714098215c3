//! A planted history for each anomaly, and the legal one beside it.

mod support;

use riverlog_checker::{Kind, check};
use support::history;

/// The kinds that the checker finds in a script, each once.
fn kinds(script: &str) -> Vec<&'static str> {
    let mut kinds: Vec<_> = check(&history(script))
        .anomalies
        .iter()
        .map(|a| a.kind.name())
        .collect();
    kinds.dedup();
    kinds
}

fn finds(kind: Kind, script: &str) {
    assert_eq!(kinds(script), [kind.name()], "{script}");
}

fn legal(script: &str) {
    assert_eq!(kinds(script), [""; 0], "{script}");
}

/// A producer with two acknowledged records, a consumer that gets both and commits.
const ORDINARY: &str = "
    1 p open idempotent retries
    1 c open group=g
    2 c assign t-0
    3 p send t-0 a
    4 p send t-0 b
    5 p ack t-0 a 0
    6 p ack t-0 b 1
    7 c poll 6 t-0 0:a 1:b
    8 c committing g t-0 2
    9 c committed g t-0 2 stored
";

fn then(more: &str) -> String {
    format!("{ORDINARY}\n{more}")
}

#[test]
fn an_ordinary_run_is_legal() {
    legal(&then(
        "
        10 x offset 10 g t-0 2
        10 x drained g
        12 x whole 11 t-0 0:a 1:b
        13 x bounds 12 t-0 0 2",
    ));
}

#[test]
fn lost() {
    finds(Kind::Lost, &then("12 x whole 11 t-0 0:a"));
    finds(Kind::Lost, &then("12 x whole 11 t-0"));
    // Acknowledged with an offset: nowhere else counts.
    finds(
        Kind::Lost,
        "1 p open retries
         2 p send t-0 a
         3 p ack t-0 a 5
         5 x whole 4 t-0 7:a",
    );
}

#[test]
fn a_record_of_unknown_outcome_may_be_missing_or_there() {
    let script = "1 p open idempotent\n2 p send t-0 a\n3 p fail a maybe\n";
    legal(&format!("{script} 5 x whole 4 t-0"));
    legal(&format!("{script} 5 x whole 4 t-0 0:a"));
    legal("1 p open idempotent\n2 p send t-0 a\n5 x whole 4 t-0 0:a");
}

#[test]
fn an_acknowledgement_during_the_last_read_need_not_be_in_it() {
    legal(
        "1 p open idempotent
         2 p send t-0 a
         5 p ack t-0 a 0
         6 x whole 4 t-0",
    );
}

#[test]
fn what_may_be_deleted_may_be_gone_and_no_more() {
    legal(&then("10 x deleting t-0 1\n12 x whole 11 t-0 1:b"));
    finds(Kind::Lost, &then("10 x deleting t-0 1\n12 x whole 11 t-0"));
    legal(&then("10 x deleting t-0 any\n12 x whole 11 t-0"));
    legal(&then("10 x damaged t-0 1 2\n12 x whole 11 t-0 0:a"));
}

#[test]
fn inconsistent_offset() {
    finds(
        Kind::InconsistentOffset,
        "1 p open idempotent
         2 p send t-0 a
         2 p send t-0 b
         4 c poll 3 t-0 0:a
         5 d poll 3 t-0 0:b",
    );
}

#[test]
fn never_sent() {
    finds(Kind::NeverSent, &then("10 d poll 9 t-0 2:z"));
    finds(Kind::NeverSent, "1 p send t-1 a\n2 d poll 1 t-0 0:a");
}

#[test]
fn refused_but_stored() {
    let script = "1 p open\n2 p send t-0 a\n3 p fail a refused\n";
    legal(&format!("{script} 5 x whole 4 t-0"));
    finds(
        Kind::RefusedButStored,
        &format!("{script} 5 x whole 4 t-0 0:a"),
    );
}

#[test]
fn duplicate() {
    finds(Kind::Duplicate, &then("12 x whole 11 t-0 0:a 1:b 2:a"));
}

#[test]
fn duplicates_of_a_retry_without_idempotence_are_legal() {
    let sent = "2 p send t-0 a\n3 p ack t-0 a 1\n5 x whole 4 t-0 0:a 1:a";
    legal(&format!("1 p open retries\n{sent}"));
    finds(Kind::Duplicate, &format!("1 p open\n{sent}"));
    finds(
        Kind::Duplicate,
        &format!("1 p open idempotent retries\n{sent}"),
    );
    // The program sent it twice.
    legal(
        "1 p open idempotent
         2 p send t-0 a
         3 p fail a maybe
         4 p send t-0 a
         5 p ack t-0 a 1
         7 x whole 6 t-0 0:a 1:a",
    );
}

#[test]
fn non_monotonic_send() {
    let sent = "
        2 p send t-0 a
        3 p send t-0 b
        4 p ack t-0 b 0
        5 p ack t-0 a 1";
    finds(
        Kind::NonMonotonicSend,
        &format!("1 p open idempotent{sent}"),
    );
    legal(&format!("1 p open retries{sent}"));
    // Other partitions are other orders.
    legal(
        "1 p open idempotent
         2 p send t-0 a
         3 p send t-1 b
         4 p ack t-1 b 0
         5 p ack t-0 a 1",
    );
}

/// A transaction of two records in two partitions, whose end follows.
const TRANSACTION: &str = "
    1 p open idempotent retries
    1 c open committed
    2 c assign t-0 t-1
    3 p send t-0 a T
    3 p send t-1 b T
    4 p ack t-0 a 0
    4 p ack t-1 b 0
";

fn transaction(more: &str) -> String {
    format!("{TRANSACTION}\n{more}")
}

#[test]
fn aborted_read() {
    let abort = "5 p ending T abort\n6 p ended T aborted\n";
    legal(&transaction(&format!("{abort} 8 x whole-committed 7 t-0")));
    finds(
        Kind::AbortedRead,
        &transaction(&format!("{abort} 7 c poll 6 t-0 0:a")),
    );
    finds(
        Kind::AbortedRead,
        &transaction(&format!("{abort} 8 x whole-committed 7 t-0 0:a")),
    );
    // Who asks for everything gets everything.
    legal(&transaction(&format!(
        "{abort} 8 d poll 7 t-0 0:a\n9 x whole 8 t-0 0:a"
    )));
}

#[test]
fn precommitted_read() {
    finds(
        Kind::PrecommittedRead,
        &transaction("5 c poll 4 t-0 0:a\n6 p ending T commit\n7 p ended T committed"),
    );
    // Its commit was under way.
    legal(&transaction(
        "5 p ending T commit\n6 c poll 4 t-0 0:a\n7 p ended T committed",
    ));
}

#[test]
fn torn_transaction() {
    let unknown = "5 p ending T commit\n6 p ended T unknown\n";
    for whole in [["0:a", "0:b"], ["", ""]] {
        let [a, b] = whole;
        legal(&transaction(&format!(
            "{unknown} 8 x whole-committed 7 t-0 {a}\n8 x whole-committed 7 t-1 {b}"
        )));
    }
    finds(
        Kind::TornTransaction,
        &transaction(&format!(
            "{unknown} 8 x whole-committed 7 t-0 0:a\n8 x whole-committed 7 t-1"
        )),
    );
}

#[test]
fn a_committed_transaction_that_is_gone_is_lost() {
    let committed = "5 p ending T commit\n6 p ended T committed\n";
    finds(
        Kind::Lost,
        &transaction(&format!(
            "{committed} 8 x whole-committed 7 t-0\n8 x whole-committed 7 t-1"
        )),
    );
    // What was never committed is no promise.
    legal(&transaction(
        "8 x whole-committed 7 t-0\n8 x whole-committed 7 t-1",
    ));
}

/// Two transactions in one partition, their records interleaved, each committed.
const TWO: &str = "
    1 p open idempotent
    1 q open idempotent
    2 p send t-0 a T
    2 q send t-0 b U
    3 p send t-0 c T
    4 p ack t-0 a 0
    4 q ack t-0 b 1
    4 p ack t-0 c 2
    20 p ending T commit
    20 q ending U commit
    21 p ended T committed
    21 q ended U committed
";

#[test]
fn interleaved_writes_of_transactions_are_legal() {
    legal(&format!("{TWO}\n23 x whole-committed 22 t-0 0:a 1:b 2:c"));
}

#[test]
fn g1c() {
    let one_way = format!("{TWO}\n9 p poll 8 t-0 1:b in=T");
    legal(&one_way);
    finds(Kind::G1c, &format!("{one_way}\n9 q poll 8 t-0 0:a in=U"));
    // What it wrote itself makes no circle.
    legal(&format!("{one_way}\n9 q poll 8 t-0 1:b in=U"));
}

#[test]
fn poll_skip() {
    let sent = then("10 p send t-0 c\n11 p ack t-0 c 2");
    finds(
        Kind::PollSkip,
        &format!("{sent}\n1 d assign t-0\n12 d poll 11 t-0 0:a 2:c"),
    );
    finds(
        Kind::PollSkip,
        &format!("{sent}\n1 d assign t-0\n12 d poll 11 t-0 0:a\n13 d poll 12 t-0 2:c"),
    );
    // Across a rebalance.
    legal(&format!(
        "{sent}\n1 d assign t-0\n12 d poll 11 t-0 0:a\n13 d assign t-0\n14 d poll 13 t-0 2:c"
    ));
    // A gap where nobody knows of a record: a marker, or compaction.
    legal("1 p open retries\n2 p send t-0 a\n2 p send t-0 b\n4 c poll 3 t-0 0:a 5:b");
    // Deleted meanwhile.
    legal(&format!(
        "{sent}\n12 x deleting t-0 2\n14 d poll 13 t-0 0:a 2:c"
    ));
}

#[test]
fn a_reader_of_committed_records_passes_over_aborted_ones() {
    let run = transaction(
        "5 p ending T abort
         6 p ended T aborted
         7 q open idempotent
         7 q send t-0 d
         7 q send t-0 e
         8 q ack t-0 d 2
         8 q ack t-0 e 3",
    );
    legal(&format!("{run}\n9 c poll 8 t-0 2:d 3:e"));
    let late = "1 o open idempotent\n1 o send t-0 z\n2 o ack t-0 z 7";
    finds(
        Kind::PollSkip,
        &format!("{run}\n{late}\n9 c poll 8 t-0 2:d 7:z"),
    );
}

#[test]
fn non_monotonic_poll() {
    finds(Kind::NonMonotonicPoll, &then("10 c poll 9 t-0 1:b"));
    finds(Kind::NonMonotonicPoll, &then("10 c poll 9 t-0 0:a"));
    legal(&then("10 c assign t-0\n11 c poll 10 t-0 1:b"));
}

#[test]
fn commit_lost() {
    finds(Kind::CommitLost, &then("11 x offset 10 g t-0 none"));
    finds(Kind::CommitLost, &then("11 x offset 10 g t-0 1"));
    // A later one whose answer never came, or that was under way.
    let later = then("10 c committing g t-0 3");
    legal(&format!("{later}\n12 x offset 11 g t-0 2"));
    legal(&format!("{later}\n12 x offset 11 g t-0 3"));
    // An earlier one that was overwritten.
    let overwritten = then("10 c committing g t-0 3\n11 c committed g t-0 3 stored");
    legal(&format!("{overwritten}\n13 x offset 12 g t-0 3"));
    finds(
        Kind::CommitLost,
        &format!("{overwritten}\n13 x offset 12 g t-0 2"),
    );
    // Asked while it was being answered.
    legal(&format!("{overwritten}\n12 x offset 10 g t-0 2"));
}

#[test]
fn went_back() {
    let first = "2 x bounds 1 t-0 3 9\n";
    legal(&format!("{first} 4 y bounds 3 t-0 3 9"));
    finds(Kind::WentBack, &format!("{first} 4 y bounds 3 t-0 2 9"));
    finds(Kind::WentBack, &format!("{first} 4 y bounds 3 t-0 3 8"));
    finds(Kind::WentBack, "2 x bounds 1 t-0 3 2");
    // Asked at the same time.
    legal("2 x bounds 1 t-0 3 9\n3 y bounds 1 t-0 3 8");
}

#[test]
fn a_superseded_leader_may_tell_what_is_old_and_not_too_old() {
    let first = "1 run lags 4\n2 x bounds 1 t-0 3 9\n";
    legal(&format!("{first} 7 y bounds 6 t-0 3 8"));
    finds(Kind::WentBack, &format!("{first} 8 y bounds 7 t-0 3 8"));
    let committed = "1 run lags 4
        1 c committing g t-0 3
        2 c committed g t-0 3 stored
        3 c committing g t-0 5
        4 c committed g t-0 5 stored\n";
    legal(&format!("{committed} 9 x offset 8 g t-0 3"));
    finds(
        Kind::CommitLost,
        &format!("{committed} 10 x offset 9 g t-0 3"),
    );
}

#[test]
fn unseen() {
    let sent = then("10 p send t-0 c\n11 p ack t-0 c 2");
    finds(Kind::Unseen, &format!("{sent}\n12 x drained g"));
    legal(&format!("{sent}\n12 c poll 11 t-0 2:c\n13 x drained g"));
    // Another member's.
    legal(&format!(
        "{sent}\n1 d open group=g\n12 d assign t-0\n13 d poll 12 t-0 2:c\n14 x drained g"
    ));
    // A partition that the group doesn't read.
    legal(&then("10 p send u-0 c\n11 p ack u-0 c 2\n12 x drained g"));
}

#[test]
fn stuck() {
    let healed = then("10 x fault kill\n11 x healed\n11 p send t-0 c\n");
    let alive = "12 c poll 11 t-0\n12 x drained g\n";
    // Too early to tell.
    legal(&format!("{healed}{alive} 30 x close"));
    finds(Kind::Stuck, &format!("{healed}{alive} 45 x close"));
    legal(&format!("{healed}{alive} 40 p ack t-0 c 2\n45 x close"));
    // The producer moves; the consumer doesn't, or its group never ends.
    let moves = "40 p ack t-0 c 2\n";
    finds(
        Kind::Stuck,
        &format!("{healed}{moves} 12 x drained g\n45 x close"),
    );
    finds(
        Kind::Stuck,
        &format!("{healed}{moves} 12 c poll 11 t-0\n45 x close"),
    );
    // Who has closed owes nothing.
    legal(&format!("{healed}{moves} 12 c close\n45 x close"));
}

#[test]
fn a_report_names_what_was_looked_at_and_keeps_short() {
    let many: String = (0..30)
        .map(|i| format!("3 q send t-0 v{i}\n4 q ack t-0 v{i} {}\n", i + 10))
        .collect();
    let report = check(&history(&then(&format!(
        "{many} 12 x whole 11 t-0 0:a 1:b"
    ))));
    assert_eq!(report.counts.sent, 32);
    assert_eq!(report.counts.acknowledged, 32);
    assert_eq!(report.anomalies.len(), 30);
    let text = report.to_string();
    assert!(
        text.contains("30 anomalies") && text.contains("and 20 more"),
        "{text}"
    );
}

#[test]
fn every_kind_has_a_planted_history() {
    let tests = include_str!("planted.rs");
    for kind in Kind::ALL {
        assert!(
            tests.contains(&format!("finds(Kind::{kind:?},"))
                || tests.contains(&format!("Kind::{kind:?},\n")),
            "{kind:?}"
        );
    }
}
