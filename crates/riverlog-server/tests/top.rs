//! `riverlog top` against a real server.

mod common;

use common::Server;
use serde_json::Value;

#[test]
fn top_tells_programs_and_pipes_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.ok(&["topic", "create", "orders", "-p", "2"]);
    server.ok_with(&["produce", "orders", "-p", "0"], "a\nb\nc\n");
    server.ok(&["consume", "orders", "--group", "billing", "-n", "1"]);
    server.ok_with(&["produce", "orders", "-p", "0"], "d\n");
    let text = server.ok(&["top", "--once", "-i", "100ms", "-o", "json"]);
    let top: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&top["kind"], &top["version"]), (&"top".into(), &1.into()));
    let data = &top["data"];
    assert_eq!(data["topics"].as_array().unwrap().len(), 1, "{text}");
    let topic = &data["topics"][0];
    assert_eq!(topic["topic"], "orders");
    assert_eq!(
        (&topic["records"], &topic["partitions"]),
        (&4.into(), &2.into())
    );
    assert_eq!(topic["records_in"], 0.0);
    assert!(topic["size_bytes"].as_i64().unwrap() > 0);
    let group = &data["groups"][0];
    assert_eq!(
        (&group["group"], &group["topics"]),
        (&"billing".into(), &1.into())
    );
    assert_eq!(group["lag"], data["lag"]);
    assert!((1..4).contains(&group["lag"].as_i64().unwrap()), "{text}");
    let broker = &data["brokers"][0];
    assert_eq!(broker["address"], server.kafka);
    assert_eq!(
        (&data["offline"], &data["under_replicated"]),
        (&0.into(), &0.into())
    );
    let text = server.ok(&["top", "--once", "-i", "100ms", "--internal"]);
    assert!(text.contains("__consumer_offsets"), "{text}");
    assert!(text.contains("\nGROUP "), "{text}");
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
}
