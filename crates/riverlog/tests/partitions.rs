//! The same key lands on the same partition from every door.

#[path = "../../riverlog-wire/tests/golden_partitions/mod.rs"]
#[allow(dead_code)]
mod golden;

use riverlog::{Broker, Message};

#[test]
fn ten_thousand_keys_go_where_the_java_client_puts_them() {
    let broker = Broker::in_memory();
    broker.create_topic("t", 12).unwrap();
    let placed = golden::placed();
    let message = |key| Message::new(Some(key), b"");
    let messages: Vec<Message<'_>> = placed.iter().map(|p| message(p.key)).collect();
    let stored = broker.publish_batch("t", &messages).unwrap();
    assert_eq!(stored.len(), placed.len());
    for (placed, stored) in placed.iter().zip(stored) {
        assert_eq!(stored.partition, placed.of_12, "{:?}", placed.key);
    }
}
