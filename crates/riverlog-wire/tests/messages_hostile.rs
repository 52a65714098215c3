//! Messages from someone who means harm, or whose bytes were damaged: an answer or an error, never a panic.

mod golden_messages;

use bytes::Bytes;
use golden_messages::{Shape, Vector, vectors};
use riverlog_wire::messages::fetch_view::FetchRequestView;
use riverlog_wire::messages::produce_view::ProduceRequestView;
use riverlog_wire::messages::{AnyRequest, AnyResponse, ApiKey, MetadataRequest};
use riverlog_wire::primitives::Reader;

/// A small random source (SplitMix64): the same seed, the same run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Lengths and counts that have broken decoders before.
const NASTY: [&[u8]; 8] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80],
    &[0xff, 0xff],
    &[0x80, 0x00],
    &[0x00, 0x0f, 0x42, 0x40],
    &[0x00, 0x00],
];

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 => {
                let nasty = NASTY[random.below(NASTY.len())];
                let end = bytes.len().min(at + nasty.len());
                bytes.splice(at..end, nasty.iter().copied());
            }
            3 if at < bytes.len() => {
                bytes.remove(at);
            }
            4 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ if at < bytes.len() => bytes[at] = random.next() as u8,
            _ => {}
        }
    }
}

/// What was accepted must be writable, and reading that again gives the same bytes.
fn decode_and_settle(vector: &Vector) -> bool {
    let Ok(message) = vector.decode(&mut Reader::shared(&vector.bytes)) else {
        return false;
    };
    let once = message
        .encode(vector.version)
        .expect("what was read can be written");
    let again = Vector {
        bytes: once.clone(),
        ..vector.clone()
    };
    let mut r = Reader::shared(&again.bytes);
    let message = again.decode(&mut r).expect("what was written can be read");
    assert_eq!(r.remaining(), 0, "{vector}");
    assert_eq!(message.encode(vector.version), Ok(once), "{vector}");
    true
}

#[test]
fn damaged_messages_are_an_answer_or_an_error() {
    let mut random = Random(7);
    let (mut accepted, mut refused) = (0, 0);
    for vector in vectors() {
        for _ in 0..100 {
            let mut bytes = vector.bytes.to_vec();
            damage(&mut bytes, &mut random);
            let damaged = Vector {
                bytes: Bytes::from(bytes),
                ..vector.clone()
            };
            if decode_and_settle(&damaged) {
                accepted += 1;
            } else {
                refused += 1;
            }
        }
    }
    // Both must happen, or the damage is of the wrong kind.
    assert!(
        accepted > 10_000 && refused > 10_000,
        "{accepted} {refused}"
    );
}

#[test]
fn noise_is_an_answer_or_an_error() {
    let mut random = Random(11);
    for key in ApiKey::ALL {
        for version in key.versions() {
            for _ in 0..30 {
                // Small values, as they occur, make noise that gets further.
                let mask = [0xff, 0x03, 0x01][random.below(3)];
                let len = random.below(200);
                let noise: Vec<u8> = (0..len).map(|_| random.next() as u8 & mask).collect();
                for response in [false, true] {
                    let vector = Vector {
                        key: *key,
                        version,
                        response,
                        shape: Shape::Filled,
                        bytes: Bytes::copy_from_slice(&noise),
                    };
                    decode_and_settle(&vector);
                }
            }
        }
    }
}

#[test]
fn views_of_damaged_requests_are_an_answer_or_an_error() {
    let mut random = Random(13);
    for vector in vectors().iter().filter(|v| !v.response) {
        for _ in 0..200 {
            let mut bytes = vector.bytes.to_vec();
            damage(&mut bytes, &mut random);
            let bytes = Bytes::from(bytes);
            let r = &mut Reader::shared(&bytes);
            match vector.key {
                ApiKey::Produce => {
                    if let Ok(view) = ProduceRequestView::decode(r, vector.version) {
                        let promised = view.topics().len();
                        let topics: Vec<_> = view.topics().collect();
                        assert_eq!(topics.len(), promised);
                        for topic in topics {
                            assert_eq!(topic.partitions().count(), topic.partitions().len());
                        }
                    }
                }
                ApiKey::Fetch => {
                    if let Ok(view) = FetchRequestView::decode(r, vector.version) {
                        let promised = view.topics().len();
                        let topics: Vec<_> = view.topics().collect();
                        assert_eq!(topics.len(), promised);
                        for topic in topics {
                            assert_eq!(topic.partitions().count(), topic.partitions().len());
                        }
                        assert_eq!(
                            view.forgotten_topics().count(),
                            view.forgotten_topics().len()
                        );
                    }
                }
                _ => {}
            }
        }
    }
}

/// Tags that this release doesn't know, at the end of every message.
#[test]
fn unknown_tagged_fields_are_skipped() {
    let mut seen = 0;
    for vector in vectors() {
        // A default message writes no tagged field, so a flexible one ends with the count 0.
        if vector.shape != Shape::Defaults || !vector.key.is_flexible(vector.version) {
            continue;
        }
        let mut bytes = vector.bytes.to_vec();
        assert_eq!(bytes.pop(), Some(0), "{vector}");
        bytes.extend_from_slice(&[2, 100, 3, 1, 2, 3, 101, 0]);
        let tagged = Vector {
            bytes: Bytes::from(bytes),
            ..vector.clone()
        };
        let mut r = Reader::shared(&tagged.bytes);
        let message = tagged
            .decode(&mut r)
            .unwrap_or_else(|e| panic!("{vector}: {e}"));
        assert_eq!(r.remaining(), 0);
        assert_eq!(message.encode(vector.version).as_ref(), Ok(&vector.bytes));
        seen += 1;
    }
    assert!(seen > 300, "{seen}");
}

#[test]
fn unknown_tagged_fields_are_skipped_within_a_message() {
    // Metadata request v9: one topic "a" with tags 0 and 9 of its own, three booleans, no tags.
    let bytes = [2, 2, b'a', 2, 0, 1, 7, 9, 2, 7, 7, 1, 0, 1, 0];
    let mut r = Reader::new(&bytes);
    let request = MetadataRequest::decode(&mut r, 9).unwrap();
    assert_eq!(r.remaining(), 0);
    let topics = request.topics.unwrap();
    assert_eq!(topics.len(), 1);
    assert_eq!(topics[0].name.as_deref(), Some("a"));
    assert!(request.allow_auto_topic_creation);
    assert!(!request.include_cluster_authorized_operations);
    assert!(request.include_topic_authorized_operations);
}

/// The decoders of both directions agree with the table about which versions there are.
#[test]
fn empty_input_is_an_error_unless_the_message_is_empty() {
    for key in ApiKey::ALL {
        for version in key.versions() {
            let request = AnyRequest::decode(*key, version, &mut Reader::new(&[]));
            let response = AnyResponse::decode(*key, version, &mut Reader::new(&[]));
            let empty = [(ApiKey::ApiVersions, 0..=2), (ApiKey::ListGroups, 0..=2)];
            let may = empty
                .iter()
                .any(|(k, versions)| k == key && versions.contains(&version));
            assert_eq!(request.is_ok(), may, "{key} {version}");
            assert!(response.is_err(), "{key} {version}");
        }
    }
}
