//! `riverlog txn` against a real server: what is listed and described, and a transaction that hangs is found and ended.

mod common;

use common::{Server, ask, eventually, open_transaction};
use riverlog_wire::messages::ListOffsetsRequest;
use riverlog_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use serde_json::Value;

/// Where readers of committed records are kept from going on.
fn stable_end(server: &Server) -> i64 {
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level: 1,
        topics: vec![ListOffsetsTopic {
            name: "t".to_owned(),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                current_leader_epoch: -1,
                timestamp: -1,
            }],
        }],
        ..ListOffsetsRequest::default()
    };
    ask(&server.kafka, 5, &request).topics[0].partitions[0].offset
}

fn rows(text: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(text).unwrap();
    all["data"].as_array().unwrap().clone()
}

#[test]
fn transactions_are_listed_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t"]);
    assert_eq!(server.ok(&["txn", "list"]), "");
    let pay = open_transaction(&server, "pay");
    let ship = open_transaction(&server, "ship");
    assert_eq!(
        server.ok(&["txn", "list"]),
        format!("pay\tOngoing\t{}\nship\tOngoing\t{}\n", pay.id, ship.id)
    );
    assert_eq!(server.ok(&["txn", "list", "--state", "CompleteAbort"]), "");
    assert_eq!(
        server.ok(&["txn", "list", "--producer-id", &ship.id.to_string()]),
        format!("ship\tOngoing\t{}\n", ship.id)
    );
    assert_eq!(
        server.ok(&["txn", "list", "--pattern", "p.*"]),
        format!("pay\tOngoing\t{}\n", pay.id)
    );
    assert_eq!(server.ok(&["txn", "list", "--longer-than", "1h"]), "");
    let described = rows(&server.ok(&["txn", "describe", "pay", "ship", "-o", "json"]));
    assert_eq!(described.len(), 2);
    let first = &described[0];
    assert_eq!(
        (&first["state"], &first["producer_id"], &first["epoch"]),
        (&"Ongoing".into(), &pay.id.into(), &pay.epoch.into())
    );
    assert_eq!(
        (&first["timeout_ms"], &first["partitions"]),
        (&600_000.into(), &"t-0".into())
    );
    assert!(first["started"].as_i64().unwrap() > 0);
    let unknown = server.run(&["txn", "describe", "nobody"]);
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success());
    assert!(error.contains("TRANSACTIONAL_ID_NOT_FOUND"), "{error}");
    assert!(error.contains("txn list"), "{error}");
}

#[test]
fn a_transaction_that_hangs_is_found_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "t"]);
    server.ok_with(&["produce", "t"], "before\n");
    let lost = open_transaction(&server, "lost");
    assert_eq!(stable_end(&server), 1);
    // Open, but its coordinator knows of it: it is for that to end.
    assert_eq!(
        server.ok(&["txn", "hanging", "--older-than", "0s"]),
        "",
        "what a coordinator knows doesn't hang"
    );
    // The coordinator's memory goes, as after a disaster: nobody will end it any more.
    server.ok(&["topic", "delete", "__transaction_state", "--yes"]);
    let mut found = server.run(&["txn", "hanging", "--older-than", "0s", "-o", "json"]);
    assert!(
        eventually(|| {
            found = server.run(&["txn", "hanging", "--older-than", "0s", "-o", "json"]);
            found.status.code() == Some(1)
        }),
        "{found:?}"
    );
    let hanging = rows(&String::from_utf8_lossy(&found.stdout));
    assert_eq!(hanging.len(), 1, "{hanging:?}");
    let row = &hanging[0];
    assert_eq!(
        (&row["topic"], &row["partition"], &row["producer_id"]),
        (&"t".into(), &0.into(), &lost.id.into())
    );
    assert_eq!(row["start_offset"], 1);
    // Too young by the usual measure, and none in another topic.
    assert_eq!(server.ok(&["txn", "hanging"]), "");
    server.ok(&["topic", "create", "other"]);
    assert_eq!(
        server.ok(&["txn", "hanging", "--older-than", "0s", "--topic", "other"]),
        ""
    );
    // Nothing happens by a look, a wrong offset, or without a yes.
    server.ok(&["txn", "abort", "t", "0", "--start-offset", "1", "--dry-run"]);
    let wrong = server.run(&["txn", "abort", "t", "0", "--start-offset", "0", "--yes"]);
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert!(!wrong.status.success());
    assert!(
        error.contains("no transaction begins at offset 0"),
        "{error}"
    );
    let unasked = server.run(&["txn", "abort", "t", "0", "--start-offset", "1"]);
    assert!(!unasked.status.success());
    assert_eq!(stable_end(&server), 1);
    server.ok(&["txn", "abort", "t", "0", "--start-offset", "1", "--yes"]);
    // The record and its marker are behind the readers of committed records.
    assert_eq!(stable_end(&server), 3);
    assert_eq!(server.ok(&["txn", "hanging", "--older-than", "0s"]), "");
    let again = server.run(&["txn", "abort", "t", "0", "--start-offset", "1", "--yes"]);
    assert!(!again.status.success());
    server.ok_with(&["produce", "t"], "after\n");
    assert_eq!(stable_end(&server), 4);
}
