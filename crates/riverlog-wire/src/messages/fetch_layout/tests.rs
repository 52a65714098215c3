use super::*;
use crate::frame::encode_response;
use crate::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use crate::messages::{ShareFetchResponse, share_fetch_response};
use crate::{ErrorCode, TopicId};

/// What goes over the socket when every gap is filled.
fn sent(layout: &Layout, records: &[Option<Bytes>]) -> Vec<u8> {
    let mut out = Vec::new();
    for segment in &layout.segments {
        match segment {
            Segment::Bytes(bytes) => out.extend_from_slice(bytes),
            Segment::Records(partition) => {
                out.extend_from_slice(records[*partition].as_ref().unwrap());
            }
        }
    }
    assert_eq!(out.len(), layout.len);
    out
}

fn partition(index: i32, records: Option<&'static [u8]>) -> PartitionData {
    PartitionData {
        partition_index: index,
        high_watermark: 77,
        aborted_transactions: None,
        records: records.map(Bytes::from_static),
        ..Default::default()
    }
}

fn response(version: i16) -> FetchResponse {
    let mut not_leader = partition(3, None);
    not_leader.error_code = ErrorCode(6);
    if version >= 12 {
        not_leader.current_leader = LeaderIdAndEpoch {
            leader_id: 2,
            leader_epoch: 9,
        };
        not_leader.diverging_epoch = EpochEndOffset {
            epoch: 8,
            end_offset: 5,
        };
    }
    let topic = |id: u8, partitions| FetchableTopicResponse {
        topic: format!("topic-{id}"),
        topic_id: TopicId([id; 16]),
        partitions,
    };
    FetchResponse {
        throttle_time_ms: 5,
        session_id: if version >= 7 { 11 } else { 0 },
        responses: vec![
            topic(
                1,
                vec![
                    partition(0, Some(&[7; 300])),
                    partition(1, Some(b"")),
                    partition(2, Some(b"tail")),
                ],
            ),
            topic(2, vec![]),
            topic(3, vec![not_leader, partition(4, Some(&[9; 20_000]))]),
        ],
        node_endpoints: if version >= 16 {
            vec![NodeEndpoint {
                node_id: 2,
                host: "b2".into(),
                port: 9092,
                rack: None,
            }]
        } else {
            vec![]
        },
        ..Default::default()
    }
}

#[test]
fn a_filled_layout_is_what_the_plain_encoder_writes() {
    for version in ApiKey::Fetch.versions() {
        let whole = response(version);
        let mut plain = Vec::new();
        encode_response(&mut plain, version, 42, &whole).unwrap();

        let mut without = whole.clone();
        let mut records = Vec::new();
        for topic in &mut without.responses {
            for partition in &mut topic.partitions {
                records.push(partition.records.take());
            }
        }
        let mut asked = Vec::new();
        let layout = fetch_response(version, 42, &without, |i| {
            asked.push(i);
            records[i].as_ref().map(Bytes::len)
        })
        .unwrap();
        assert_eq!(asked, [0, 1, 2, 3, 4]);
        assert_eq!(sent(&layout, &records), plain, "version {version}");
        let gaps: Vec<usize> = layout
            .segments
            .iter()
            .filter_map(|s| match s {
                Segment::Records(i) => Some(*i),
                Segment::Bytes(_) => None,
            })
            .collect();
        assert_eq!(gaps, [0, 2, 4]);
    }
}

#[test]
fn a_response_without_records_is_one_segment() {
    let layout = fetch_response(17, 1, &FetchResponse::default(), |_| None).unwrap();
    assert_eq!(layout.segments.len(), 1);
    let mut plain = Vec::new();
    encode_response(&mut plain, 17, 1, &FetchResponse::default()).unwrap();
    assert_eq!(sent(&layout, &[]), plain);
}

#[test]
fn a_frame_that_its_length_can_not_say_is_refused() {
    let response = response(17);
    for each in [i32::MAX as usize / 2, i32::MAX as usize, usize::MAX] {
        let refused = fetch_response(17, 1, &response, |_| Some(each));
        assert!(matches!(refused, Err(EncodeError::TooLong { .. })));
    }
    // A gigabyte costs nothing here.
    let layout = fetch_response(17, 1, &response, |i| Some(usize::from(i == 0) << 30)).unwrap();
    assert!(layout.len > 1 << 30);
    assert_eq!(layout.segments.len(), 3);
}

#[test]
fn share_fetch_is_laid_out_alike() {
    for version in ApiKey::ShareFetch.versions() {
        let partition = |records: &'static [u8]| share_fetch_response::PartitionData {
            records: Bytes::from_static(records),
            ..Default::default()
        };
        let whole = ShareFetchResponse {
            responses: vec![share_fetch_response::ShareFetchableTopicResponse {
                topic_id: TopicId([1; 16]),
                partitions: vec![partition(b"one"), partition(b""), partition(&[3; 200])],
            }],
            ..Default::default()
        };
        let mut plain = Vec::new();
        encode_response(&mut plain, version, 8, &whole).unwrap();
        let records = [&b"one"[..], b"", &[3; 200]].map(|r| Some(Bytes::from_static(r)));
        let layout = super::share_fetch_response(version, 8, &whole, |i| {
            records[i].as_ref().map_or(0, Bytes::len)
        })
        .unwrap();
        assert_eq!(sent(&layout, &records), plain, "version {version}");
    }
}
