use super::*;
use crate::messages::produce_request::{PartitionProduceData, TopicProduceData};
use crate::messages::{ApiKey, ProduceRequest};
use crate::primitives::Writer;

/// The owned form of what a view shows.
fn owned(view: &ProduceRequestView<'_>) -> ProduceRequest {
    ProduceRequest {
        transactional_id: view.transactional_id.map(str::to_owned),
        acks: view.acks,
        timeout_ms: view.timeout_ms,
        topic_data: view
            .topics()
            .map(|topic| TopicProduceData {
                name: topic.name.to_owned(),
                topic_id: topic.topic_id,
                partition_data: topic
                    .partitions()
                    .map(|(index, records)| PartitionProduceData { index, records })
                    .collect(),
            })
            .collect(),
    }
}

fn request(version: i16) -> ProduceRequest {
    let topic = |n: u8, partition_data| TopicProduceData {
        name: if version < 13 {
            format!("topic-{n}")
        } else {
            String::new()
        },
        topic_id: if version < 13 {
            TopicId::ZERO
        } else {
            TopicId([n; 16])
        },
        partition_data,
    };
    let partition = |index, records| PartitionProduceData { index, records };
    ProduceRequest {
        transactional_id: (version % 2 == 0).then(|| "tx".to_owned()),
        acks: -1,
        timeout_ms: 1500,
        topic_data: vec![
            topic(
                1,
                vec![
                    partition(0, Some(Bytes::from_static(&[5; 200]))),
                    partition(7, None),
                ],
            ),
            topic(2, vec![]),
            topic(3, vec![partition(-1, Some(Bytes::new()))]),
        ],
    }
}

fn encoded(request: &ProduceRequest, version: i16) -> Bytes {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    request.encode(&mut w, version);
    w.finish().unwrap();
    out.into()
}

#[test]
fn a_view_shows_what_the_owned_form_holds() {
    for version in ApiKey::Produce.versions() {
        let request = request(version);
        let bytes = encoded(&request, version);
        let mut r = Reader::shared(&bytes);
        let view = ProduceRequestView::decode(&mut r, version).unwrap();
        assert_eq!(r.remaining(), 0);
        assert_eq!(owned(&view), request, "version {version}");
        assert_eq!(view.topics().len(), 3);
    }
}

#[test]
fn records_are_slices_of_the_frame() {
    let bytes = encoded(&request(12), 12);
    let view = ProduceRequestView::decode(&mut Reader::shared(&bytes), 12).unwrap();
    let topic = view.topics().next().unwrap();
    let (_, records) = topic.partitions().next().unwrap();
    assert!(bytes.as_ptr_range().contains(&records.unwrap().as_ptr()));
}

/// Whatever the bytes, the view and the owned decoder accept the same and see the same.
#[test]
fn view_and_owned_form_agree_on_damaged_bytes() {
    let mut accepted = 0;
    for version in ApiKey::Produce.versions() {
        let good = encoded(&request(version), version);
        for at in 0..good.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff, good[at] ^ 1] {
                let mut bytes = good.to_vec();
                bytes[at] = value;
                let bytes = Bytes::from(bytes);
                let whole = ProduceRequest::decode(&mut Reader::shared(&bytes), version);
                let view = ProduceRequestView::decode(&mut Reader::shared(&bytes), version);
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

#[test]
fn a_version_that_produce_does_not_have_is_refused() {
    for version in [-1, 0, 2, 14] {
        let refused = ProduceRequestView::decode(&mut Reader::new(&[0; 64]), version);
        assert!(matches!(refused, Err(DecodeError::Version { .. })));
    }
}
