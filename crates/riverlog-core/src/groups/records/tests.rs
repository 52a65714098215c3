use proptest::prelude::*;

use super::*;
use proptest::option::of as maybe;

fn unhex(hex: &str) -> Bytes {
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

const ID: TopicId = TopicId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

/// Kafka 4.4's own serializers made the bytes; `ours` must read from them, and write them when `written`.
#[track_caller]
fn golden(key: &str, value: &str, ours: Record, written: bool) {
    let (key, value) = (unhex(key), unhex(value));
    assert_eq!(
        Record::decode(&key, Some(&value)).unwrap(),
        Some(ours.clone())
    );
    let stored = ours.encode().unwrap();
    assert_eq!(stored.key, key);
    if written {
        assert_eq!(stored.value, Some(value.clone()));
    }
    for cut in 0..value.len() {
        assert!(
            Record::decode(&key, Some(&value[..cut])).is_err(),
            "{cut} bytes of a value"
        );
    }
    for cut in 0..key.len() {
        assert!(
            Record::decode(&key[..cut], Some(&value)).is_err(),
            "{cut} bytes of a key"
        );
    }
    assert!(Record::decode(&key, None).unwrap().is_some());
}

#[test]
fn committed_offsets_are_kafkas_bytes() {
    let value = OffsetValue {
        offset: Offset(42),
        leader_epoch: LeaderEpoch(5),
        metadata: "note".into(),
        commit_timestamp: 1000,
        expire_timestamp: None,
        topic_id: ID,
    };
    let key = "000100016700066f726465727300000003";
    let record = |value| Record::Offset {
        group: "g".into(),
        topic: "orders".into(),
        partition: 3,
        value: Some(value),
    };
    let v3 = OffsetValue {
        topic_id: TopicId::ZERO,
        ..value.clone()
    };
    let v2 = OffsetValue {
        leader_epoch: LeaderEpoch::NONE,
        ..v3.clone()
    };
    let v1 = OffsetValue {
        expire_timestamp: Some(2000),
        ..v2.clone()
    };
    golden(
        key,
        "0004000000000000002a00000005056e6f746500000000000003e80100100102030405060708090a0b0c0d0e0f10",
        record(value),
        true,
    );
    golden(
        key,
        "0003000000000000002a0000000500046e6f746500000000000003e8",
        record(v3),
        false,
    );
    golden(
        key,
        "0002000000000000002a00046e6f746500000000000003e8",
        record(v2.clone()),
        false,
    );
    golden(
        key,
        "0001000000000000002a00046e6f746500000000000003e800000000000007d0",
        record(v1),
        true,
    );
    golden(
        key,
        "0000000000000000002a00046e6f746500000000000003e8",
        record(v2),
        false,
    );
}

#[test]
fn the_legacy_key_of_an_offset_is_read_too() {
    let key = unhex("000000016700066f726465727300000003");
    let value = unhex("0000000000000000002a00046e6f746500000000000003e8");
    let record = Record::decode(&key, Some(&value)).unwrap().unwrap();
    assert_eq!(record.group(), "g");
    assert!(
        matches!(record, Record::Offset { topic, partition: 3, value: Some(v), .. } if topic == "orders" && v.offset == Offset(42))
    );
}

#[test]
fn classic_groups_are_kafkas_bytes() {
    let member = GroupMemberValue {
        member: "m1".into(),
        instance: Some("i1".into()),
        client_id: "c".into(),
        client_host: "/h".into(),
        rebalance_timeout_ms: 300,
        session_timeout_ms: 100,
        subscription: Bytes::from_static(&[1, 2]),
        assignment: Bytes::from_static(&[3]),
    };
    let value = GroupValue {
        protocol_type: "consumer".into(),
        generation: 7,
        protocol: Some("range".into()),
        leader: Some("m1".into()),
        state_timestamp: 1234,
        members: vec![member.clone()],
    };
    let record = |state_timestamp, member| Record::Group {
        group: "g".into(),
        value: Some(GroupValue {
            state_timestamp,
            members: vec![member],
            ..value.clone()
        }),
    };
    let v2 = GroupMemberValue {
        instance: None,
        ..member.clone()
    };
    let v0 = GroupMemberValue {
        rebalance_timeout_ms: -1,
        ..v2.clone()
    };
    let key = "0002000167";
    golden(
        key,
        "000409636f6e73756d6572000000070672616e6765036d3100000000000004d202036d310369310263032f680000012c0000006403010202030000",
        record(1234, member.clone()),
        false,
    );
    golden(
        key,
        "00030008636f6e73756d657200000007000572616e676500026d3100000000000004d20000000100026d310002693100016300022f680000012c000000640000000201020000000103",
        record(1234, member),
        true,
    );
    golden(
        key,
        "00020008636f6e73756d657200000007000572616e676500026d3100000000000004d20000000100026d3100016300022f680000012c000000640000000201020000000103",
        record(1234, v2.clone()),
        false,
    );
    golden(
        key,
        "00010008636f6e73756d657200000007000572616e676500026d310000000100026d3100016300022f680000012c000000640000000201020000000103",
        record(-1, v2),
        false,
    );
    golden(
        key,
        "00000008636f6e73756d657200000007000572616e676500026d310000000100026d3100016300022f68000000640000000201020000000103",
        record(-1, v0),
        false,
    );
}

#[test]
fn consumer_groups_are_kafkas_bytes() {
    golden(
        "0003000167",
        "000000000009010008000000000000004d",
        Record::ConsumerGroup {
            group: "g".into(),
            value: Some(ConsumerGroupValue {
                epoch: 9,
                metadata_hash: 77,
                empty_since: None,
            }),
        },
        true,
    );
    let named = ConsumerMemberValue {
        instance: Some("i".into()),
        rack: None,
        client_id: "c".into(),
        client_host: "/h".into(),
        topics: vec!["a".into(), "b".into()],
        pattern: Some("x.*".into()),
        rebalance_timeout_ms: 45_000,
        assignor: Some("uniform".into()),
        classic: None,
    };
    let classic = ConsumerMemberValue {
        instance: None,
        rack: Some("r".into()),
        topics: vec![],
        pattern: None,
        assignor: None,
        classic: Some((10_000, vec![("range".into(), Bytes::from_static(&[1]))])),
        ..named.clone()
    };
    let member = |value| Record::ConsumerMember {
        group: "g".into(),
        member: "m".into(),
        value: Some(value),
    };
    golden(
        "000500016700016d",
        "00000269000263032f68030261026204782e2a0000afc808756e69666f726d00",
        member(named),
        true,
    );
    golden(
        "000500016700016d",
        "00000002720263032f6801000000afc8000100100100002710020672616e676502010000",
        member(classic),
        true,
    );
    golden(
        "0006000167",
        "0000000000090100080000000000000037",
        Record::TargetEpoch {
            group: "g".into(),
            value: Some(TargetEpochValue {
                epoch: 9,
                timestamp: 55,
            }),
        },
        true,
    );
    golden(
        "000700016700016d",
        "0000020102030405060708090a0b0c0d0e0f100300000000000000010000",
        Record::TargetMember {
            group: "g".into(),
            member: "m".into(),
            value: Some(TargetMemberValue {
                partitions: vec![(ID, vec![0, 1])],
            }),
        },
        true,
    );
    // The second topic has no assignment epochs: the member's own epoch stands in.
    golden(
        "000800016700016d",
        "0000000000090000000801020102030405060708090a0b0c0d0e0f10030000000000000001010009030000000800000009020102030405060708090a0b0c0d0e0f1002000000020000",
        Record::CurrentMember {
            group: "g".into(),
            member: "m".into(),
            value: Some(CurrentMemberValue {
                epoch: 9,
                previous_epoch: 8,
                state: 1,
                assigned: vec![(ID, vec![(0, 8), (1, 9)])],
                revoking: vec![(ID, vec![(2, 9)])],
            }),
        },
        false,
    );
}

#[test]
fn what_a_newer_release_wrote_is_skipped_or_refused() {
    // Kind 4, and a kind that doesn't exist yet.
    assert_eq!(
        Record::decode(&unhex("0004000167"), Some(&[0, 0, 1])),
        Ok(None)
    );
    assert_eq!(Record::decode(&unhex("0063ff"), None), Ok(None));
    // A version that may be laid out in any way.
    assert!(Record::decode(&unhex("0003000167"), Some(&unhex("00010000000900"))).is_err());
    // An unknown tagged field.
    let tagged = unhex("00000000000901630102");
    assert_eq!(
        Record::decode(&unhex("0003000167"), Some(&tagged)).unwrap(),
        Some(Record::ConsumerGroup {
            group: "g".into(),
            value: Some(ConsumerGroupValue {
                epoch: 9,
                ..Default::default()
            })
        })
    );
}

#[test]
fn a_count_that_lies_reserves_nothing() {
    // 2³¹−1 members in a few bytes.
    let value = unhex("00030001780000000700016100016100000000000004d27fffffff");
    assert!(Record::decode(&unhex("0002000167"), Some(&value)).is_err());
}

#[test]
fn a_name_that_is_too_long_is_an_error() {
    let record = Record::Group {
        group: "x".repeat(40_000),
        value: None,
    };
    assert!(record.encode().is_err());
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<char>(), 0..6).prop_map(|c| c.into_iter().collect())
}

fn maybe_text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of(text())
}

fn blob() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..6).prop_map(Bytes::from)
}

fn id() -> impl Strategy<Value = TopicId> {
    any::<[u8; 16]>().prop_map(TopicId)
}

fn held() -> impl Strategy<Value = Held> {
    proptest::collection::vec(
        (
            id(),
            proptest::collection::vec((any::<i32>(), any::<i32>()), 0..4),
        ),
        0..3,
    )
}

fn offset_value() -> impl Strategy<Value = OffsetValue> {
    let v4 = (any::<i64>(), any::<i32>(), text(), any::<i64>(), id()).prop_map(
        |(offset, epoch, metadata, commit_timestamp, topic_id)| OffsetValue {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(epoch),
            metadata,
            commit_timestamp,
            expire_timestamp: None,
            topic_id,
        },
    );
    (v4, proptest::option::of(0..i64::MAX)).prop_map(|(value, expire)| match expire {
        None => value,
        Some(_) => OffsetValue {
            leader_epoch: LeaderEpoch::NONE,
            topic_id: TopicId::ZERO,
            expire_timestamp: expire,
            ..value
        },
    })
}

fn group_value() -> impl Strategy<Value = GroupValue> {
    let member = (
        (text(), maybe_text(), text(), text()),
        (any::<i32>(), any::<i32>(), blob(), blob()),
    )
        .prop_map(|(who, what)| GroupMemberValue {
            member: who.0,
            instance: who.1,
            client_id: who.2,
            client_host: who.3,
            rebalance_timeout_ms: what.0,
            session_timeout_ms: what.1,
            subscription: what.2,
            assignment: what.3,
        });
    (
        text(),
        any::<i32>(),
        maybe_text(),
        maybe_text(),
        any::<i64>(),
        proptest::collection::vec(member, 0..4),
    )
        .prop_map(
            |(protocol_type, generation, protocol, leader, state_timestamp, members)| GroupValue {
                protocol_type,
                generation,
                protocol,
                leader,
                state_timestamp,
                members,
            },
        )
}

fn member_value() -> impl Strategy<Value = ConsumerMemberValue> {
    (
        (maybe_text(), maybe_text(), text(), text()),
        (
            proptest::collection::vec(text(), 0..4),
            maybe_text(),
            any::<i32>(),
            maybe_text(),
        ),
        proptest::option::of((
            any::<i32>(),
            proptest::collection::vec((text(), blob()), 0..3),
        )),
    )
        .prop_map(|(who, what, classic)| ConsumerMemberValue {
            instance: who.0,
            rack: who.1,
            client_id: who.2,
            client_host: who.3,
            topics: what.0,
            pattern: what.1,
            rebalance_timeout_ms: what.2,
            assignor: what.3,
            classic,
        })
}

pub(in crate::groups) fn record() -> impl Strategy<Value = Record> {
    let ids = || (text(), text());
    prop_oneof![
        (ids(), any::<i32>(), maybe(offset_value())).prop_map(
            |((group, topic), partition, value)| {
                Record::Offset {
                    group,
                    topic,
                    partition,
                    value,
                }
            }
        ),
        (text(), maybe(group_value())).prop_map(|(group, value)| Record::Group { group, value }),
        (
            text(),
            maybe((any::<i32>(), any::<i64>(), maybe(any::<i64>())))
        )
            .prop_map(|(group, v)| Record::ConsumerGroup {
                group,
                value: v.map(|(epoch, metadata_hash, empty_since)| ConsumerGroupValue {
                    epoch,
                    metadata_hash,
                    empty_since
                })
            }),
        (ids(), maybe(member_value())).prop_map(|((group, member), value)| {
            Record::ConsumerMember {
                group,
                member,
                value,
            }
        }),
        (text(), maybe((any::<i32>(), any::<i64>()))).prop_map(|(group, v)| Record::TargetEpoch {
            group,
            value: v.map(|(epoch, timestamp)| TargetEpochValue { epoch, timestamp })
        }),
        (
            ids(),
            maybe(proptest::collection::vec(
                (id(), proptest::collection::vec(any::<i32>(), 0..4)),
                0..3
            ))
        )
            .prop_map(|((group, member), v)| Record::TargetMember {
                group,
                member,
                value: v.map(|partitions| TargetMemberValue { partitions })
            }),
        (
            ids(),
            maybe((any::<i32>(), any::<i32>(), any::<i8>(), held(), held()))
        )
            .prop_map(|((group, member), v)| Record::CurrentMember {
                group,
                member,
                value: v.map(|(epoch, previous_epoch, state, assigned, revoking)| {
                    CurrentMemberValue {
                        epoch,
                        previous_epoch,
                        state,
                        assigned,
                        revoking,
                    }
                })
            }),
    ]
}

proptest! {
    #[test]
    fn every_record_reads_back(record in record()) {
        let stored = record.encode().unwrap();
        prop_assert_eq!(Record::decode(&stored.key, stored.value.as_deref()).unwrap(), Some(record));
    }

    #[test]
    fn hostile_bytes_are_errors_at_worst(record in record(), at in any::<prop::sample::Index>(), byte in any::<u8>(), tail in blob()) {
        let stored = record.encode().unwrap();
        let mut key = stored.key.to_vec();
        let mut value = stored.value.unwrap_or_default().to_vec();
        let broken = at.index(key.len() + value.len());
        match key.get_mut(broken) {
            Some(b) => *b = byte,
            None => value[broken - stored.key.len()] = byte,
        }
        let _ = Record::decode(&key, Some(&value));
        value.truncate(broken);
        value.extend_from_slice(&tail);
        let _ = Record::decode(&key, Some(&value));
        for kind in 0..24_u8 {
            let mut key = vec![0, kind];
            key.extend_from_slice(&stored.key[2..]);
            let _ = Record::decode(&key, Some(&value));
        }
    }
}
