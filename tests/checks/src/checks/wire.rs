//! Frames, headers, versions: checks 1 to 12.

use std::time::Duration;

use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::{
    AnyRequest, ApiKey, ApiVersionsRequest, ApiVersionsResponse, FetchRequest, MetadataRequest,
    SaslHandshakeRequest,
};
use riverlog_wire::primitives::Writer;
use riverlog_wire::{ErrorCode, TopicId};

use super::Check;
use crate::client::{Client, Failure, Outcome, PATIENCE, QUIET, holds, same};
use crate::wire::Received;

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "1",
        name: "a-client-from-the-future-learns-the-version-range",
        run: from_the_future,
    },
    Check {
        number: "2",
        name: "every-version-of-apiversions-is-answered",
        run: every_version_of_api_versions,
    },
    Check {
        number: "3",
        name: "bad-client-software-names-are-refused",
        run: software_names,
    },
    Check {
        number: "4",
        name: "a-client-of-another-cluster-is-told",
        run: foreign_cluster,
    },
    Check {
        number: "5",
        name: "what-is-not-served-ends-the-connection",
        run: not_served,
    },
    Check {
        number: "6",
        name: "unknown-tags-are-skipped",
        run: unknown_tags,
    },
    Check {
        number: "7",
        name: "announced-counts-are-not-believed",
        run: announced_counts,
    },
    Check {
        number: "8",
        name: "impossible-frame-lengths-end-the-connection",
        run: frame_lengths,
    },
    Check {
        number: "9",
        name: "answers-keep-the-order-of-requests",
        run: order,
    },
    Check {
        number: "10",
        name: "every-advertised-version-answers-an-empty-request",
        run: every_version,
    },
    Check {
        number: "11",
        name: "damaged-requests-harm-nobody",
        run: damaged,
    },
    Check {
        number: "12",
        name: "a-sasl-handshake-on-a-plain-listener-is-refused",
        run: handshake,
    },
];

/// A frame with a header of version 1 and any body.
fn frame(key: i16, version: i16, correlation: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.i32(0);
    w.i16(key);
    w.i16(version);
    w.i32(correlation);
    w.nullable_string(Some("checks"));
    w.raw(body);
    let length = w.position() - 4;
    w.set_i32(0, length as i32);
    bytes
}

fn from_the_future(client: &mut Client<'_>) -> Outcome {
    let mut line = client.connect()?;
    // An empty section of tags ends the header.
    line.send(&frame(18, 99, 7, b"\0\xff\xff what nobody can read yet"));
    let mut expected = Vec::new();
    let mut w = Writer::new(&mut expected);
    w.i32(7);
    w.i16(ErrorCode::UNSUPPORTED_VERSION.0);
    w.array_len(1);
    for n in [18, 0, 5] {
        w.i16(n);
    }
    let answer = line.receive(PATIENCE);
    same("the answer", answer, Received::Frame(expected.into()))?;
    // The client goes on over the same connection.
    let again = line.ask(0, &ApiVersionsRequest::default())?;
    same("error of v0", again.error_code, ErrorCode::NONE)
}

fn api_versions(client: &mut Client<'_>, version: i16) -> Outcome<ApiVersionsResponse> {
    client.ask(
        version,
        &ApiVersionsRequest {
            client_software_name: "riverlog-checks".to_owned(),
            client_software_version: "1.0".to_owned(),
            ..ApiVersionsRequest::default()
        },
    )
}

fn every_version_of_api_versions(client: &mut Client<'_>) -> Outcome {
    for version in 0..=5 {
        let answer = api_versions(client, version)?;
        let what = format!("error of v{version}");
        same(&what, answer.error_code, ErrorCode::NONE)?;
        let produce = answer.api_keys.iter().find(|k| k.api_key == 0);
        let range = produce.map(|k| (k.min_version, k.max_version));
        same("versions of Produce", range, Some((0, 13)))?;
        let hidden = answer
            .api_keys
            .iter()
            .find(|k| ApiKey::from_i16(k.api_key).is_none());
        same("keys of controllers", hidden, None)?;
        if version == 3 {
            let off = answer
                .supported_features
                .iter()
                .find(|f| f.min_version == 0);
            same("features that may be off, in v3", off, None)?;
        }
    }
    Ok(())
}

fn software_names(client: &mut Client<'_>) -> Outcome {
    for (name, software_version) in [("-bad-", "1"), ("", ""), ("good", "1.0-")] {
        let request = ApiVersionsRequest {
            client_software_name: name.to_owned(),
            client_software_version: software_version.to_owned(),
            ..ApiVersionsRequest::default()
        };
        let answer = client.ask(3, &request)?;
        let what = format!("{name:?} {software_version:?}");
        let got = (answer.error_code, answer.api_keys.len());
        same(&what, got, (ErrorCode::INVALID_REQUEST, 0))?;
    }
    Ok(())
}

fn foreign_cluster(client: &mut Client<'_>) -> Outcome {
    let metadata = client.ask(12, &MetadataRequest::default())?;
    let (cluster, node) = (metadata.cluster_id, metadata.controller_id);
    let ask = |client: &mut Client<'_>, cluster_id: Option<String>, node_id| {
        let request = ApiVersionsRequest {
            client_software_name: "riverlog-checks".to_owned(),
            client_software_version: "1.0".to_owned(),
            cluster_id,
            node_id,
        };
        Ok::<_, Failure>(client.ask(5, &request)?.error_code)
    };
    let told = ErrorCode::REBOOTSTRAP_REQUIRED;
    let elsewhere = Some("another-cluster".to_owned());
    same(
        "another cluster",
        ask(client, elsewhere.clone(), node)?,
        told,
    )?;
    same(
        "another node",
        ask(client, cluster.clone(), node + 7)?,
        told,
    )?;
    let half = ErrorCode::INVALID_REQUEST;
    same("a node without cluster", ask(client, None, node)?, half)?;
    same(
        "another cluster, no node",
        ask(client, elsewhere, -1)?,
        half,
    )?;
    same(
        "this cluster, no node",
        ask(client, cluster.clone(), -1)?,
        half,
    )?;
    same("neither", ask(client, None, -1)?, ErrorCode::NONE)?;
    same("both", ask(client, cluster, node)?, ErrorCode::NONE)
}

fn not_served(client: &mut Client<'_>) -> Outcome {
    client.ends("key 200", &frame(200, 0, 1, &[]))?;
    client.ends("Metadata v50", &frame(3, 50, 1, &[0; 16]))?;
    client.ends("Produce v2", &frame(0, 2, 1, &[0; 16]))?;
    client.ends("Vote", &frame(52, 0, 1, &[0; 16]))?;
    client.ends("InitProducerId v6", &frame(22, 6, 1, &[0; 32]))
}

fn unknown_tags(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let tags = |w: &mut Writer<'_>| {
        w.tagged_fields_len(2);
        for tag in [900, 70_000] {
            w.tagged_field(tag, |w| w.raw(b"who knows"));
        }
    };
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.i32(0);
    w.i16(ApiKey::Metadata.number());
    w.i16(12);
    w.i32(1);
    w.nullable_string(Some("checks"));
    tags(&mut w);
    w.compact_array_len(1);
    w.uuid(TopicId::ZERO);
    w.compact_nullable_string(Some(&topic.name));
    tags(&mut w);
    w.bool(false);
    w.bool(false);
    tags(&mut w);
    let length = w.position() - 4;
    w.set_i32(0, length as i32);
    let mut line = client.connect()?;
    line.send(&bytes);
    let answer = line.answer::<MetadataRequest>(12, 1, PATIENCE)?;
    let ids: Vec<TopicId> = answer.topics.iter().map(|t| t.topic_id).collect();
    same("topics", ids, vec![topic.id])
}

fn announced_counts(client: &mut Client<'_>) -> Outcome {
    let body = |write: &dyn Fn(&mut Writer<'_>)| {
        let mut bytes = Vec::new();
        write(&mut Writer::new(&mut bytes));
        bytes
    };
    let plain = body(&|w| w.i32(i32::MAX));
    client.ends("2^31-1 topics, v4", &frame(3, 4, 1, &plain))?;
    // Header v2 has its tags in front of the body.
    let compact = body(&|w| {
        w.empty_tagged_fields();
        w.unsigned_varint(u32::MAX);
    });
    client.ends("2^32-1 topics, v12", &frame(3, 12, 1, &compact))?;
    let nested = body(&|w| {
        w.nullable_string(None);
        w.i16(1);
        w.i32(1_000);
        w.array_len(1);
        w.string("t");
        w.i32(i32::MAX);
    });
    client.ends("2^31-1 partitions of a topic", &frame(0, 3, 1, &nested))
}

fn frame_lengths(client: &mut Client<'_>) -> Outcome {
    let too_long = 101 << 20;
    client.ends("a frame of 101 MiB", &i32::to_be_bytes(too_long))?;
    client.ends("a frame of -1 bytes", &i32::to_be_bytes(-1))?;
    client.ends("a frame of no bytes", &i32::to_be_bytes(0))?;
    let mut line = client.connect()?;
    line.send(&frame(18, 0, 1, &[])[..9]);
    same("half a frame", line.receive(QUIET), Received::Nothing)?;
    drop(line);
    client.is_healthy()
}

fn order(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let mut line = client.connect()?;
    let fetch = FetchRequest {
        max_wait_ms: 1_000,
        min_bytes: 1,
        topics: vec![FetchTopic {
            topic: topic.name,
            partitions: vec![FetchPartition {
                partition_max_bytes: 1_000,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let begun = client.broker().clock();
    let first = line.say(12, &fetch)?;
    let second = line.say(12, &MetadataRequest::default())?;
    line.answer::<FetchRequest>(12, first, PATIENCE)?;
    line.answer::<MetadataRequest>(12, second, PATIENCE)?;
    let took = client.broker().clock() - begun;
    holds(took >= Duration::from_millis(900), || {
        format!("a fetch that may wait 1 s was answered after {took:?}")
    })
}

fn every_version(client: &mut Client<'_>) -> Outcome {
    let advertised = api_versions(client, 3)?.api_keys;
    let mut failed = Vec::new();
    for api in advertised {
        let Some(key) = ApiKey::from_i16(api.api_key) else {
            continue;
        };
        for version in api.min_version.max(key.min_version())..=api.max_version {
            // Kafka 4.4 never answers this one.
            if key == ApiKey::AddPartitionsToTxn && version >= 4 {
                continue;
            }
            let answer = client.connect()?.ask_any(version, &smallest(key));
            if let Err(Failure::Wrong(reason)) = answer {
                failed.push(reason);
            }
        }
    }
    same("unanswered", failed, Vec::new())?;
    client.is_healthy()
}

/// An empty request that is valid all the same.
fn smallest(key: ApiKey) -> AnyRequest {
    let mut request = AnyRequest::default_of(key);
    match &mut request {
        // acks=0 has no answer.
        AnyRequest::Produce(produce) => produce.acks = 1,
        // 0 is no kind of anything, 1 is any.
        AnyRequest::DescribeAcls(filter) => {
            filter.resource_type_filter = 1;
            filter.pattern_type_filter = 1;
            filter.operation = 1;
            filter.permission_type = 1;
        }
        _ => {}
    }
    request
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

fn damaged(client: &mut Client<'_>) -> Outcome {
    let mut dice = Dice(20_240_611);
    let keys = [
        ApiKey::Metadata,
        ApiKey::ListOffsets,
        ApiKey::OffsetFetch,
        ApiKey::DescribeConfigs,
        ApiKey::DescribeGroups,
        ApiKey::ApiVersions,
    ];
    for round in 0..300 {
        let key = keys[round % keys.len()];
        let span = (key.max_stable_version() - key.min_version() + 1) as usize;
        let version = key.min_version() + dice.below(span) as i16;
        let mut bytes = frame(key.number(), version, 1, &[0; 24]);
        for _ in 0..=dice.below(4) {
            // The length stays: what is cut off only waits for more.
            let at = 4 + dice.below(bytes.len() - 4);
            bytes[at] = dice.below(256) as u8;
        }
        let mut line = client.connect()?;
        line.send(&bytes);
        // Whether it can be read is the broker's business, that it says so or goes is the check's. What
        // has become a join or a fetch may wait.
        line.receive(Duration::from_millis(20));
    }
    client.is_healthy()
}

fn handshake(client: &mut Client<'_>) -> Outcome {
    for version in 0..=1 {
        let request = SaslHandshakeRequest {
            mechanism: "PLAIN".to_owned(),
        };
        let answer = client.connect()?.ask(version, &request)?;
        same("error", answer.error_code, ErrorCode::ILLEGAL_SASL_STATE)?;
    }
    Ok(())
}
