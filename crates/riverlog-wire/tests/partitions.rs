//! Keys go where Kafka's own client puts them.

#[path = "golden_partitions/mod.rs"]
mod golden;

use riverlog_wire::partitioner::partition_for_key;

#[test]
fn ten_thousand_keys_go_where_the_java_client_puts_them() {
    for placed in golden::placed() {
        let found = [12, 1_000].map(|count| partition_for_key(placed.key, count).0);
        assert_eq!(found, [placed.of_12, placed.of_1000], "{:?}", placed.key);
    }
}
