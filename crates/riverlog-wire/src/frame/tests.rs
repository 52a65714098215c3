use super::*;
use crate::messages::{ApiVersionsResponse, HeartbeatRequest, HeartbeatResponse, MetadataRequest};

#[test]
fn a_length_outside_the_bounds_is_refused() {
    let of = |len: i32| frame_length(len.to_be_bytes(), 1000);
    assert_eq!(of(1), Ok(1));
    assert_eq!(of(1000), Ok(1000));
    assert_eq!(of(0), Err(FrameError::Empty));
    assert_eq!(
        of(-1),
        Err(FrameError::Negative {
            len: -1,
            speaks: None
        })
    );
    assert_eq!(
        of(1001),
        Err(FrameError::TooLarge {
            len: 1001,
            max: 1000,
            speaks: None
        })
    );
    let limit = frame_length(
        (101 * 1024 * 1024_i32).to_be_bytes(),
        DEFAULT_MAX_FRAME_BYTES,
    );
    assert!(limit.is_err());
}

#[test]
fn another_protocol_on_this_port_is_named() {
    let told = |first: &[u8; 4]| {
        frame_length(*first, DEFAULT_MAX_FRAME_BYTES)
            .unwrap_err()
            .to_string()
    };
    assert!(told(b"GET ").contains("HTTP"));
    assert!(told(b"POST").contains("HTTP"));
    assert!(told(b"PRI ").contains("HTTP"));
    assert!(told(&[0x16, 0x03, 0x01, 0x02]).contains("TLS"));
    assert!(told(b"SSH-").contains("SSH"));
    assert!(!told(&[0x7f, 0xff, 0xff, 0xff]).contains("the bytes are"));
}

#[test]
fn frames_come_out_whole_and_in_order() {
    let mut sent = Vec::new();
    for body in [&b"first"[..], b"2"] {
        encode_frame(&mut sent, |w| w.raw(body)).unwrap();
    }
    let mut received = BytesMut::new();
    let mut frames = Vec::new();
    for byte in sent {
        received.extend_from_slice(&[byte]);
        while let Some(frame) = split_frame(&mut received, 100).unwrap() {
            frames.push(frame);
        }
    }
    assert_eq!(frames, [&b"first"[..], b"2"]);
    assert!(received.is_empty());
}

/// Bytes of the classic and the flexible header, as the protocol guide lays them out.
#[test]
fn a_request_has_the_header_of_its_version() {
    let mut out = Vec::new();
    encode_request(&mut out, 0, 7, Some("me"), &HeartbeatRequest::default()).unwrap();
    assert_eq!(
        out[..16],
        [0, 0, 0, 20, 0, 12, 0, 0, 0, 0, 0, 7, 0, 2, b'm', b'e']
    );
    assert_eq!(out.len(), 24);

    out.clear();
    encode_request(&mut out, 4, 7, None, &HeartbeatRequest::default()).unwrap();
    // Null client id as i16 −1 even here, then the header's own tags.
    assert_eq!(
        out[..15],
        [0, 0, 0, 19, 0, 12, 0, 4, 0, 0, 0, 7, 0xff, 0xff, 0]
    );

    let mut r = Reader::new(&out[LENGTH_BYTES..]);
    let header = RequestHeader::decode(&mut r).unwrap();
    assert_eq!(header, request_header(ApiKey::Heartbeat, 4, 7, None));
    assert_eq!(
        HeartbeatRequest::decode(&mut r, 4),
        Ok(HeartbeatRequest::default())
    );
    assert_eq!(r.remaining(), 0);
}

#[test]
fn unknown_tags_in_a_header_are_skipped() {
    let bytes = [
        0, 12, 0, 4, 0, 0, 0, 7, 0xff, 0xff, 2, 9, 3, 1, 2, 3, 77, 0, 0xaa,
    ];
    let mut r = Reader::new(&bytes);
    assert!(RequestHeader::decode(&mut r).is_ok());
    assert_eq!(r.rest(), [0xaa]);
}

#[test]
fn unknown_keys_and_versions_still_have_a_header() {
    for (key, version) in [(200, 0), (52, 2), (3, 50), (18, 99), (-1, -1)] {
        let header = RequestHeader {
            api_key: key,
            api_version: version,
            correlation_id: -5,
            client_id: Some("probe"),
        };
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        header.encode(&mut w);
        w.finish().unwrap();
        assert_eq!(RequestHeader::decode(&mut Reader::new(&out)), Ok(header));
    }
}

#[test]
fn a_response_has_the_header_of_its_version_and_api_versions_never_tags() {
    let mut out = Vec::new();
    encode_response(&mut out, 3, 7, &HeartbeatResponse::default()).unwrap();
    assert_eq!(out, [0, 0, 0, 10, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0]);
    out.clear();
    encode_response(&mut out, 4, 7, &HeartbeatResponse::default()).unwrap();
    assert_eq!(out, [0, 0, 0, 12, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);

    for version in ApiKey::ApiVersions.versions() {
        assert_eq!(ApiKey::ApiVersions.response_header_version(version), 0);
        out.clear();
        encode_response(&mut out, version, 7, &ApiVersionsResponse::default()).unwrap();
        let mut r = Reader::new(&out[LENGTH_BYTES..]);
        let header = ResponseHeader::decode(&mut r, ApiKey::ApiVersions, version).unwrap();
        assert_eq!(header.correlation_id, 7);
        assert_eq!(r.position(), 4);
        assert!(ApiVersionsResponse::decode(&mut r, version).is_ok());
        assert_eq!(r.remaining(), 0);
    }
    assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
}

#[test]
fn what_a_version_can_not_carry_leaves_nothing_behind() {
    let mut out = vec![1, 2, 3];
    let request = MetadataRequest {
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let refused = encode_request(&mut out, 3, 7, None, &request);
    assert_eq!(
        refused,
        Err(EncodeError::Version {
            field: "MetadataRequest.AllowAutoTopicCreation",
            version: 3
        })
    );
    assert_eq!(out, [1, 2, 3]);
    encode_request(&mut out, 4, 7, None, &request).unwrap();
    assert!(out.len() > 3);
}

#[test]
fn any_and_typed_messages_are_the_same_bytes() {
    let request = HeartbeatRequest {
        group_id: "g".into(),
        ..Default::default()
    };
    let (mut typed, mut any) = (Vec::new(), Vec::new());
    encode_request(&mut typed, 4, 1, Some("c"), &request).unwrap();
    encode_any_request(&mut any, 4, 1, Some("c"), &request.into()).unwrap();
    assert_eq!(typed, any);
    typed.clear();
    any.clear();
    encode_response(&mut typed, 4, 1, &HeartbeatResponse::default()).unwrap();
    encode_any_response(&mut any, 4, 1, &HeartbeatResponse::default().into()).unwrap();
    assert_eq!(typed, any);
}
