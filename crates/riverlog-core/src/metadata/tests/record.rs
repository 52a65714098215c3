//! Bytes of records.

use expect_test::expect;
use proptest::prelude::*;

use super::*;

fn samples() -> Vec<MetadataRecord> {
    let partition = PartitionImage {
        replicas: brokers(&[1, 2, 300]),
        isr: brokers(&[2]),
        leader: None,
        leader_epoch: LeaderEpoch(5),
        partition_epoch: 6,
        elr: Vec::new(),
        adding: Vec::new(),
        removing: Vec::new(),
    };
    let config = |resource, value: Option<&str>| MetadataRecord::Config {
        resource,
        key: "retention.ms".to_owned(),
        value: value.map(str::to_owned),
    };
    vec![
        MetadataRecord::Cluster {
            cluster_id: "abc".to_owned(),
        },
        MetadataRecord::Broker(BrokerImage {
            rack: Some("r1".to_owned()),
            epoch: 9,
            ..broker(1)
        }),
        MetadataRecord::Broker(BrokerImage {
            incarnation: 7,
            disk: u128::MAX,
            stopping: true,
            ailing: true,
            ..broker(1)
        }),
        MetadataRecord::Partition {
            topic: id(1),
            index: 1,
            partition: PartitionImage {
                elr: brokers(&[1, 300]),
                ..partition.clone()
            },
        },
        MetadataRecord::Partition {
            topic: id(1),
            index: 1,
            partition: PartitionImage {
                adding: brokers(&[300]),
                removing: brokers(&[1, 2]),
                elr: brokers(&[1]),
                ..partition.clone()
            },
        },
        MetadataRecord::BrokerRemoved(BrokerId(1)),
        MetadataRecord::Topic {
            id: id(1),
            tenant: Tenant(3),
            name: "t".to_owned(),
        },
        MetadataRecord::TopicRemoved(id(1)),
        MetadataRecord::Partition {
            topic: id(1),
            index: 2,
            partition: partition.clone(),
        },
        MetadataRecord::Partition {
            topic: id(1),
            index: 0,
            partition: PartitionImage {
                leader: Some(BrokerId(2)),
                ..partition
            },
        },
        config(Resource::Topic(id(1)), Some("5")),
        config(Resource::Broker(None), None),
        config(Resource::Broker(Some(BrokerId(1))), Some("")),
        config(Resource::Group("g".to_owned()), Some("1")),
        MetadataRecord::Feature {
            name: "group.version".to_owned(),
            level: 1,
        },
        MetadataRecord::ProducerIds { next: 1000 },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn the_bytes_are_those_that_the_format_tells() {
    let all: String = samples()
        .iter()
        .map(|r| format!("{}\n", hex(&r.encode())))
        .collect();
    expect![[r#"
        0101000461626300
        01020000000001000000000000000903723100020a504c41494e544558540a6c6f63616c686f737423840000
        0102000000000100000000000000000000020a504c41494e544558540a6c6f63616c686f7374238400040010000000000000000000000000000000070110ffffffffffffffffffffffffffffffff020101030101
        01060007070707070707070707070707070701000000010400000001000000020000012c0200000002ffffffff000000050000000601000903000000010000012c
        01060107070707070707070707070707070701000000010400000001000000020000012c0200000002ffffffff0000000500000006020000012c0300000001000000020100050200000001
        0103000000000100
        0104000707070707070707070707070707070100000003027400
        0105000707070707070707070707070707070100
        01060007070707070707070707070707070701000000020400000001000000020000012c0200000002ffffffff000000050000000600
        01060007070707070707070707070707070701000000000400000001000000020000012c020000000200000002000000050000000600
        01070002070707070707070707070707070707010d726574656e74696f6e2e6d73023500
        01070004ffffffff0d726574656e74696f6e2e6d730000
        01070004000000010d726574656e74696f6e2e6d730100
        0107002002670d726574656e74696f6e2e6d73023100
        0108000e67726f75702e76657273696f6e000100
        01090000000000000003e800
    "#]].assert_eq(&all);
}

#[test]
fn every_record_reads_back_and_none_reads_when_cut_or_lengthened() {
    for record in samples() {
        let bytes = record.encode();
        assert_eq!(MetadataRecord::decode(&bytes), Ok(Some(record.clone())));
        for cut in 0..bytes.len() {
            assert!(
                MetadataRecord::decode(&bytes[..cut]).is_err(),
                "{record:?} cut to {cut}"
            );
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(MetadataRecord::decode(&longer).is_err(), "{record:?}");
    }
}

fn said(bytes: &[u8]) -> String {
    match MetadataRecord::decode(bytes) {
        Ok(record) => format!("{record:?}\n"),
        Err(error) => format!("{error}\n"),
    }
}

#[test]
fn what_a_newer_release_wrote_is_skipped_only_when_it_may_be() {
    // BrokerRemoved(1), and variations of its head and tail.
    let sound = [1, 3, 0, 0, 0, 0, 1, 0];
    assert_eq!(
        MetadataRecord::decode(&sound),
        Ok(Some(MetadataRecord::BrokerRemoved(BrokerId(1))))
    );
    let all = [
        ("frame 2", vec![2, 3, 0, 0, 0, 0, 1, 0]),
        ("version 1", vec![1, 3, 1, 0, 0, 0, 1, 0]),
        ("kind 10", vec![1, 10, 0, 0]),
        ("kind 127", vec![1, 127, 0, 0]),
        ("kind 0", vec![1, 0, 0, 0]),
        ("kind 128", vec![1, 0x80, 1, 0, 9, 9, 9]),
        ("kind 200, version 7", vec![1, 0xc8, 1, 7]),
        ("an unknown tag", vec![1, 3, 0, 0, 0, 0, 1, 1, 5, 2, 9, 9]),
        ("broker -1", vec![1, 3, 0, 0xff, 0xff, 0xff, 0xff, 0]),
        ("resource 5", vec![1, 7, 0, 5, 0]),
    ]
    .map(|(what, bytes)| format!("{what}: {}", said(&bytes)));
    expect![[r#"
        frame 2: metadata record can't be read: it has frame 2, this release reads frame 1; start the release that wrote it, or restore the metadata log
        version 1: metadata record can't be read: it is of kind 3 in version 1, this release reads versions up to 0; start the release that wrote it, or restore the metadata log
        kind 10: metadata record can't be read: it is of kind 10, which this release doesn't know; start the release that wrote it, or restore the metadata log
        kind 127: metadata record can't be read: it is of kind 127, which this release doesn't know; start the release that wrote it, or restore the metadata log
        kind 0: metadata record can't be read: it is of kind 0, which this release doesn't know; start the release that wrote it, or restore the metadata log
        kind 128: None
        kind 200, version 7: None
        an unknown tag: Some(BrokerRemoved(BrokerId(1)))
        broker -1: metadata record can't be read: its broker id is -1; start the release that wrote it, or restore the metadata log
        resource 5: metadata record can't be read: it configures a resource of type 5; start the release that wrote it, or restore the metadata log
    "#]].assert_eq(&all.concat());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_reserve_what_they_announce(
        kind in 0u8..12,
        body in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let bytes = [&[1, kind, 0], &body[..]].concat();
        if let Ok(Some(record)) = MetadataRecord::decode(&bytes) {
            // What was understood is written as it was read, but for tags that this release doesn't know.
            prop_assert_eq!(MetadataRecord::decode(&record.encode()), Ok(Some(record)));
        }
    }

    #[test]
    fn a_damaged_record_is_an_error_or_another_record(
        which in 0usize..13,
        at in 0usize..60,
        bit in 0u8..8,
    ) {
        let mut bytes = samples()[which].encode().to_vec();
        let len = bytes.len();
        bytes[at % len] ^= 1 << bit;
        // The batch's CRC finds it before; here it only must not panic.
        let _ = MetadataRecord::decode(&bytes);
    }
}
