use bytes::Bytes;

use super::*;
use crate::messages::fetch_request::{FetchTopic, ForgottenTopic};
use crate::primitives::Writer;

/// The owned form of what a view shows.
fn owned(view: &FetchRequestView<'_>) -> FetchRequest {
    FetchRequest {
        cluster_id: view.cluster_id.map(str::to_owned),
        replica_id: view.replica_id,
        replica_state: view.replica_state.clone(),
        max_wait_ms: view.max_wait_ms,
        min_bytes: view.min_bytes,
        max_bytes: view.max_bytes,
        isolation_level: view.isolation_level,
        session_id: view.session_id,
        session_epoch: view.session_epoch,
        topics: view
            .topics()
            .map(|topic| FetchTopic {
                topic: topic.topic.to_owned(),
                topic_id: topic.topic_id,
                partitions: topic.partitions().collect(),
            })
            .collect(),
        forgotten_topics_data: view
            .forgotten_topics()
            .map(|topic| ForgottenTopic {
                topic: topic.topic.to_owned(),
                topic_id: topic.topic_id,
                partitions: topic.partitions().collect(),
            })
            .collect(),
        rack_id: view.rack_id.to_owned(),
    }
}

fn request(version: i16) -> FetchRequest {
    let name = |n: u8| {
        if version < 13 {
            (format!("topic-{n}"), TopicId::ZERO)
        } else {
            (String::new(), TopicId([n; 16]))
        }
    };
    let topic = |n: u8, partitions| {
        let (topic, topic_id) = name(n);
        FetchTopic {
            topic,
            topic_id,
            partitions,
        }
    };
    let partition = |partition| FetchPartition {
        partition,
        fetch_offset: 5,
        log_start_offset: if version >= 5 { 2 } else { -1 },
        partition_max_bytes: 1 << 20,
        current_leader_epoch: if version >= 9 { 3 } else { -1 },
        ..Default::default()
    };
    let (forgotten, forgotten_id) = name(9);
    FetchRequest {
        cluster_id: (version >= 12).then(|| "cluster".to_owned()),
        replica_id: if version < 15 { 4 } else { -1 },
        replica_state: ReplicaState {
            replica_id: if version < 15 { -1 } else { 4 },
            ..Default::default()
        },
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 50 << 20,
        isolation_level: 1,
        session_id: if version >= 7 { 8 } else { 0 },
        session_epoch: if version >= 7 { 2 } else { -1 },
        topics: vec![topic(1, vec![partition(0), partition(1)]), topic(2, vec![])],
        forgotten_topics_data: if version >= 7 {
            vec![ForgottenTopic {
                topic: forgotten,
                topic_id: forgotten_id,
                partitions: vec![3, 1, 2],
            }]
        } else {
            vec![]
        },
        rack_id: if version >= 11 { "rack" } else { "" }.to_owned(),
    }
}

fn encoded(request: &FetchRequest, version: i16) -> Bytes {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    request.encode(&mut w, version);
    w.finish().unwrap();
    out.into()
}

#[test]
fn a_view_shows_what_the_owned_form_holds() {
    for version in ApiKey::Fetch.versions() {
        let request = request(version);
        let bytes = encoded(&request, version);
        let mut r = Reader::new(&bytes);
        let view = FetchRequestView::decode(&mut r, version).unwrap();
        assert_eq!(r.remaining(), 0);
        assert_eq!(owned(&view), request, "version {version}");
    }
}

/// Whatever the bytes, the view and the owned decoder accept the same and see the same.
#[test]
fn view_and_owned_form_agree_on_damaged_bytes() {
    let mut accepted = 0;
    for version in ApiKey::Fetch.versions() {
        let good = encoded(&request(version), version);
        for at in 0..good.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff, good[at] ^ 1] {
                let mut bytes = good.to_vec();
                bytes[at] = value;
                let whole = FetchRequest::decode(&mut Reader::new(&bytes), version);
                let view = FetchRequestView::decode(&mut Reader::new(&bytes), version);
                assert_eq!(view.is_ok(), whole.is_ok(), "version {version}, byte {at}");
                if let (Ok(view), Ok(whole)) = (view, whole) {
                    assert_eq!(owned(&view), whole);
                    accepted += 1;
                }
            }
        }
    }
    assert!(accepted > 1000);
}
