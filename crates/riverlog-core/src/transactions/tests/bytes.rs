//! Kafka 4.4's own serializers made the bytes.

use proptest::prelude::*;

use super::*;

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

#[track_caller]
fn golden(cluster: i16, bytes: &str, value: TransactionValue) {
    let (key, bytes) = (unhex("00000003706179"), unhex(bytes));
    let read = records::decode(&key, Some(&bytes)).unwrap();
    assert_eq!(read, Some(("pay".to_owned(), Some(value.clone()))));
    let stored = records::encode("pay", Some(&value), TransactionVersion(cluster)).unwrap();
    assert_eq!(stored.key, key);
    assert_eq!(stored.value.unwrap(), bytes);
    for cut in 0..bytes.len() {
        assert!(records::decode(&key, Some(&bytes[..cut])).is_err(), "{cut}");
    }
    for cut in 0..key.len() {
        assert!(records::decode(&key[..cut], Some(&bytes)).is_err(), "{cut}");
    }
}

fn empty() -> TransactionValue {
    TransactionValue {
        epoch: ProducerEpoch(7),
        ..TransactionValue::new(ProducerId(1000), 60_000, 1_767_225_600_000)
    }
}

fn ongoing() -> TransactionValue {
    let places = [("a", 0), ("a", 2), ("orders", 1)];
    TransactionValue {
        state: TransactionState::Ongoing,
        partitions: places.map(|(t, p)| (t.to_owned(), p)).into(),
        started_ms: 1_767_225_599_000,
        version: TransactionVersion::TWO,
        ..empty()
    }
}

#[test]
fn values_are_kafkas_bytes() {
    golden(
        0,
        "000000000000000003e800070000ea6000ffffffff0000019b76daa800ffffffffffffffff",
        empty(),
    );
    for cluster in [1, 2] {
        golden(
            cluster,
            "000100000000000003e800070000ea6000000000019b76daa800ffffffffffffffff00",
            empty(),
        );
    }
    golden(
        2,
        "000100000000000003e800070000ea600103026103000000000000000200076f7264657273020000000100\
         0000019b76daa8000000019b76daa4180102020002",
        ongoing(),
    );
    let prepared = TransactionValue {
        state: TransactionState::PrepareCommit,
        previous_producer_id: ProducerId(999),
        next_producer_id: ProducerId(1001),
        ..ongoing()
    };
    golden(
        2,
        "000100000000000003e800070000ea600203026103000000000000000200076f7264657273020000000100\
         0000019b76daa8000000019b76daa4180300080000\
         0000000003e7010800000000000003e902020002",
        prepared.clone(),
    );
    golden(
        0,
        "000000000000000003e800070000ea60020000000200016100000002000000000000000200066f72646572\
         7300000001000000010000019b76daa8000000019b76daa418",
        TransactionValue {
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            version: TransactionVersion::ONE,
            ..prepared
        },
    );
}

#[test]
fn what_a_newer_release_wrote_is_not_guessed_at() {
    assert_eq!(records::decode(&[0, 1, 0, 0], None).unwrap(), None);
    let key = unhex("00000003706179");
    assert!(records::decode(&key, Some(&[0, 2, 0, 0])).is_err());
    let tombstone = records::decode(&key, None).unwrap();
    assert_eq!(tombstone, Some(("pay".to_owned(), None)));
}

fn values() -> impl Strategy<Value = TransactionValue> {
    let ids = (any::<[i64; 3]>(), any::<[i16; 2]>(), any::<[i64; 2]>());
    let state = 0..8_i8;
    let places = proptest::collection::btree_set(("[a-c]{1,2}", any::<i32>()), 0..6);
    (ids, state, places, any::<i32>(), any::<i16>()).prop_map(
        |((ids, epochs, times), state, partitions, timeout_ms, version)| {
            let state = TransactionState::from_id(state).unwrap();
            TransactionValue {
                producer_id: ProducerId(ids[0]),
                previous_producer_id: ProducerId(ids[1]),
                next_producer_id: ProducerId(ids[2]),
                epoch: ProducerEpoch(epochs[0]),
                last_epoch: ProducerEpoch(epochs[1]),
                timeout_ms,
                state,
                partitions: match state {
                    TransactionState::Empty => BTreeSet::new(),
                    _ => partitions,
                },
                updated_ms: times[0],
                started_ms: times[1],
                version: TransactionVersion(version),
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in values()) {
        let stored = records::encode("id", Some(&value), TransactionVersion::TWO).unwrap();
        let read = records::decode(&stored.key, stored.value.as_deref()).unwrap();
        prop_assert_eq!(read, Some(("id".to_owned(), Some(value))));
    }

    #[test]
    fn damaged_records_are_errors_or_values(key: Vec<u8>, mut value: Vec<u8>, version in 0..2_u8) {
        let _anything = records::decode(&key, Some(&value));
        value.splice(0..0, [0, version]);
        let _anything = records::decode(&unhex("00000003706179"), Some(&value));
    }
}
