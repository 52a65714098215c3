//! Every request and response in every version, against the bytes that Kafka's own Java client makes.
//!
//! The vectors are made by `golden_messages/MakeGolden.java` (kafka-clients 4.4.0) through
//! `cargo xtask codegen --golden`; this test needs no Java.

mod golden_messages;

use std::collections::BTreeSet;

use bytes::Bytes;
use golden_messages::{Shape, Vector, vectors};
use riverlog_wire::messages::describe_cluster_response::DescribeClusterBroker;
use riverlog_wire::messages::{ApiKey, DescribeClusterResponse, FetchResponse};
use riverlog_wire::primitives::{Reader, Writer};

#[test]
fn java_bytes_decode_whole_and_encode_to_the_same_bytes() {
    let mut wrong = Vec::new();
    for vector in vectors() {
        let mut r = Reader::shared(&vector.bytes);
        let message = match vector.decode(&mut r) {
            Ok(message) => message,
            Err(error) => {
                wrong.push(format!("{vector}: {error}"));
                continue;
            }
        };
        if r.remaining() > 0 {
            wrong.push(format!("{vector}: {} bytes left over", r.remaining()));
            continue;
        }
        match message.encode(vector.version) {
            Err(error) => wrong.push(format!("{vector}: {error}")),
            Ok(bytes) if bytes != vector.bytes => {
                wrong.push(format!("{vector}: differs from Java's: {message:?}"));
            }
            Ok(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn there_is_a_filled_vector_for_every_version_of_every_message() {
    let have: BTreeSet<_> = vectors()
        .iter()
        .filter(|v| v.shape == Shape::Filled)
        .map(|v| (v.key, v.version, v.response))
        .collect();
    let want: BTreeSet<_> = ApiKey::ALL
        .iter()
        .flat_map(|key| key.versions().map(move |version| (*key, version)))
        .flat_map(|(key, version)| [(key, version, false), (key, version, true)])
        .collect();
    assert_eq!(have, want);
}

#[test]
fn our_defaults_encode_to_javas() {
    let mut compared = 0;
    for vector in vectors().iter().filter(|v| v.shape == Shape::Defaults) {
        let ours = vector.default_message();
        assert_eq!(
            ours.encode(vector.version).as_ref(),
            Ok(&vector.bytes),
            "{vector}"
        );
        compared += 1;
    }
    assert!(compared > 400, "{compared}");
}

#[test]
fn a_message_cut_short_is_refused() {
    for vector in vectors().iter().filter(|v| v.shape == Shape::Filled) {
        for len in 0..vector.bytes.len() {
            let cut = Bytes::copy_from_slice(&vector.bytes[..len]);
            assert!(
                vector.decode(&mut Reader::shared(&cut)).is_err(),
                "{vector} cut at {len}"
            );
        }
    }
}

#[test]
fn a_version_that_does_not_exist_is_an_error_both_ways() {
    for key in ApiKey::ALL {
        for version in [
            key.min_version() - 1,
            key.max_version() + 1,
            i16::MAX,
            i16::MIN,
        ] {
            for response in [false, true] {
                let vector = Vector {
                    key: *key,
                    version,
                    response,
                    shape: Shape::Defaults,
                    bytes: Bytes::new(),
                };
                assert!(
                    vector.decode(&mut Reader::new(&[0; 64])).is_err(),
                    "{vector}"
                );
                assert!(
                    vector.default_message().encode(version).is_err(),
                    "{vector}"
                );
            }
        }
    }
}

/// So that the other tests can't pass on vectors that hold little.
#[test]
fn the_filled_vectors_reach_into_tagged_fields() {
    let all = vectors();
    let filled = all
        .iter()
        .find(|v| {
            (v.key, v.version, v.response, v.shape) == (ApiKey::Fetch, 18, true, Shape::Filled)
        })
        .unwrap();
    let message = FetchResponse::decode(&mut Reader::shared(&filled.bytes), 18).unwrap();
    assert_eq!(message.node_endpoints.len(), 2);
    let partition = &message.responses[1].partitions[1];
    assert_ne!(partition.diverging_epoch, Default::default());
    assert_ne!(partition.current_leader, Default::default());
    assert_ne!(partition.snapshot_id, Default::default());
    assert_eq!(partition.aborted_transactions.as_ref().unwrap().len(), 2);
    assert!(!partition.records.as_ref().unwrap().is_empty());
}

/// Java's client passes over tags that it doesn't know; without the flag nothing is there that it doesn't.
#[test]
fn a_flag_of_our_own_is_a_tag_far_from_kafkas_and_said_only_when_it_is_set() {
    let said = |disk_ailing, version| {
        let broker = DescribeClusterBroker {
            disk_ailing,
            ..DescribeClusterBroker::default()
        };
        let response = DescribeClusterResponse {
            brokers: vec![broker],
            ..DescribeClusterResponse::default()
        };
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        response.encode(&mut w, version);
        w.finish().expect("it can be said");
        let mut r = Reader::new(&bytes);
        let read = DescribeClusterResponse::decode(&mut r, version).expect("it can be read");
        assert_eq!(read, response);
        bytes
    };
    for version in 0..=2 {
        let (without, with) = (said(false, version), said(true, version));
        // One tag instead of none: its number (10,000) in two bytes, its length, and the flag. The response has none.
        let end = without.len() - 5;
        assert_eq!(with[..end - 1], without[..end - 1]);
        assert_eq!(with[end - 1..end + 4], [1, 0x90, 0x4e, 1, 1]);
        assert_eq!(with[end + 4..], without[end..]);
    }
}
