//! The same key lands on the same partition from every door.

#[path = "../../riverlog-wire/tests/golden_partitions/mod.rs"]
#[allow(dead_code)]
mod golden;
mod support;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use support::World;

#[tokio::test]
async fn ten_thousand_keys_go_where_the_java_client_puts_them() {
    let world = World::new();
    world.topic("t", 12).await;
    let placed = golden::placed();
    for part in placed.chunks(2_500) {
        let records: Vec<_> = part
            .iter()
            .map(|p| json!({"key": {"base64": STANDARD.encode(p.key)}, "value": ""}))
            .collect();
        let body = json!({ "records": records }).to_string();
        let answer = world.post("/v1/topics/t/records", &body).await;
        let answer = answer.is(200).json();
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results.len(), part.len());
        for (placed, result) in part.iter().zip(results) {
            assert_eq!(result["partition"], placed.of_12, "{:?}", placed.key);
        }
    }
    // The other ways to publish, with some of them.
    for placed in placed.iter().step_by(100) {
        let key: String = placed.key.iter().map(|b| format!("%{b:02X}")).collect();
        let headers = [
            ("content-type", "application/octet-stream"),
            ("riverlog-key", key.as_str()),
        ];
        let answer = world
            .send("POST", "/v1/topics/t/records", &headers, "v")
            .await;
        let answer = answer.is(200).json();
        assert_eq!(answer["results"][0]["partition"], placed.of_12);
        let line = json!({"key": {"base64": STANDARD.encode(placed.key)}, "value": ""});
        let headers = [("content-type", "application/x-ndjson")];
        let answer = world
            .send(
                "POST",
                "/v1/topics/t/records",
                &headers,
                format!("{line}\n"),
            )
            .await;
        assert_eq!(answer.is(207).json()["partition"], placed.of_12);
    }
}
