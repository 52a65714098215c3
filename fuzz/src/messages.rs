//! Bytes in place of requests and responses. The first byte chooses the API, the second its version.

use bytes::{Bytes, BytesMut};
use riverlog_wire::frame::{RequestHeader, split_frame};
use riverlog_wire::messages::fetch_view::FetchRequestView;
use riverlog_wire::messages::produce_view::ProduceRequestView;
use riverlog_wire::messages::{AnyRequest, AnyResponse, ApiKey};
use riverlog_wire::primitives::{EncodeError, Reader, Writer};

/// What a client sends: as a frame, as a header, and as the body of a request.
pub fn requests(data: &[u8]) {
    frames(data);
    let _ = RequestHeader::decode(&mut Reader::new(data));
    let Some((key, version, body)) = choose(data) else {
        return;
    };
    let decoded = AnyRequest::decode(key, version, &mut Reader::shared(&body));
    match key {
        ApiKey::Produce => {
            let view = ProduceRequestView::decode(&mut Reader::shared(&body), version);
            assert_eq!(view.is_ok(), decoded.is_ok());
            if let Ok(view) = view {
                for topic in view.topics() {
                    assert_eq!(topic.partitions().count(), topic.partitions().len());
                }
            }
        }
        ApiKey::Fetch => {
            let view = FetchRequestView::decode(&mut Reader::shared(&body), version);
            assert_eq!(view.is_ok(), decoded.is_ok());
            if let Ok(view) = view {
                for topic in view.topics() {
                    assert_eq!(topic.partitions().count(), topic.partitions().len());
                }
            }
        }
        _ => {}
    }
    let Ok(request) = decoded else { return };
    let Some(once) = written(|w| request.encode(w, version)) else {
        return;
    };
    let again = AnyRequest::decode(key, version, &mut Reader::shared(&once));
    let again = again.expect("what was just written");
    assert_eq!(Some(once), written(|w| again.encode(w, version)));
}

/// What a broker answers.
pub fn responses(data: &[u8]) {
    let Some((key, version, body)) = choose(data) else {
        return;
    };
    let Ok(response) = AnyResponse::decode(key, version, &mut Reader::shared(&body)) else {
        return;
    };
    let Some(once) = written(|w| response.encode(w, version)) else {
        return;
    };
    let again = AnyResponse::decode(key, version, &mut Reader::shared(&once));
    let again = again.expect("what was just written");
    assert_eq!(Some(once), written(|w| again.encode(w, version)));
}

/// Splits the bytes into frames as they would come from a socket.
fn frames(data: &[u8]) {
    let mut received = BytesMut::from(data);
    let mut taken = 0;
    while let Ok(Some(frame)) = split_frame(&mut received, 1 << 20) {
        taken += 4 + frame.len();
    }
    assert_eq!(taken + received.len(), data.len());
}

fn choose(data: &[u8]) -> Option<(ApiKey, i16, Bytes)> {
    let [api, version, body @ ..] = data else {
        return None;
    };
    let key = ApiKey::ALL[usize::from(*api) % ApiKey::ALL.len()];
    let versions = key.max_version() - key.min_version() + 1;
    let version = key.min_version() + i16::from(*version) % versions;
    Some((key, version, Bytes::copy_from_slice(body)))
}

/// `None`: a string longer than Kafka lets one be, which the reader takes and the writer doesn't.
fn written(write: impl FnOnce(&mut Writer<'_>)) -> Option<Bytes> {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    write(&mut w);
    match w.finish() {
        Ok(_) => Some(out.into()),
        Err(EncodeError::TooLong { .. }) => None,
        Err(error) => panic!("what was read can't be written: {error}"),
    }
}
