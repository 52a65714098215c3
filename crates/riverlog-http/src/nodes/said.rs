//! What doors ask each other, below `/node`: a head of JSON, and behind it records as they are stored.
//!
//! A body is the length of the head (u32, big-endian), the head, and the records of the parts that the head names, one after the other.

use axum::body::Body;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The most that one node takes from another at once: a fetch may come with one batch more than was asked for.
const LARGEST: usize = 256 << 20;

/// What is asked, as a path.
pub(super) const FETCH: &str = "/node/fetch";
pub(super) const APPEND: &str = "/node/append";
pub(super) const OFFSET: &str = "/node/offset";
pub(super) const PARTITIONS: &str = "/node/partitions";
pub(super) const COMMITTED: &str = "/node/committed";
pub(super) const GROUPS: &str = "/node/groups";

/// A partition: topic by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct At {
    pub(super) topic: String,
    pub(super) partition: i32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FetchAsk {
    pub(super) partitions: Vec<FetchPart>,
    pub(super) wait_ms: u64,
    pub(super) max_bytes: usize,
    pub(super) committed_only: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FetchPart {
    pub(super) at: At,
    pub(super) from: i64,
    pub(super) max_bytes: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FetchTold {
    /// In the order of what was asked.
    pub(super) parts: Vec<FetchedPart>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FetchedPart {
    /// Kafka's number.
    pub(super) error: i16,
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    pub(super) log_start_offset: i64,
    pub(super) next: i64,
    /// Producer and first offset of aborted transactions.
    pub(super) aborted: Vec<(i64, i64)>,
    /// Bytes of its records.
    pub(super) len: usize,
}

/// The batch follows.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AppendAsk {
    pub(super) at: At,
    pub(super) acks: i16,
    pub(super) timeout_ms: u64,
    pub(super) transactional_id: Option<String>,
    /// Only if the next record gets this offset.
    pub(super) next: Option<i64>,
    /// Of what producer to tell what is known of it, after a refusal.
    pub(super) producer: Option<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AppendTold {
    Stored {
        base_offset: i64,
        log_append_time_ms: i64,
        log_start_offset: i64,
        duplicate: bool,
    },
    Refused {
        error: i16,
        message: String,
        records: Vec<(i32, String)>,
        retry_after_ms: Option<u64>,
        after: Afterwards,
    },
}

/// What a client may want to know after a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Afterwards {
    pub(crate) log_end_offset: i64,
    /// Epoch and last sequence of the producer.
    pub(crate) producer: Option<(i16, i32)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OffsetAsk {
    pub(super) at: At,
    /// Kafka's numbers: −1 latest, −2 earliest; else a time.
    pub(super) time: i64,
    pub(super) committed_only: bool,
}

/// Kafka's number of an error, and an offset.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OffsetTold {
    pub(super) error: i16,
    pub(super) offset: i64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PartitionsAsk {
    pub(super) partitions: Vec<At>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PartitionsTold {
    /// In the order of what was asked; nothing for what isn't led there.
    pub(super) partitions: Vec<Option<Positions>>,
}

/// Where a partition begins and ends.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Positions {
    pub(crate) log_start_offset: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) high_watermark: i64,
    pub(crate) log_end_offset: i64,
    pub(crate) size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CommittedAsk {
    pub(super) group: String,
    pub(super) topic: String,
    pub(super) at: At,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CommittedTold {
    pub(super) error: i16,
    pub(super) offset: Option<i64>,
}

/// A body of a head and records.
pub(super) fn body(head: &impl Serialize, records: &[Bytes]) -> Body {
    // Structs of numbers and text always have a JSON form.
    let head = serde_json::to_vec(head).unwrap_or_default();
    let mut out = BytesMut::with_capacity(4 + head.len());
    out.put_u32(u32::try_from(head.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(&head);
    if records.is_empty() {
        return Body::from(out.freeze());
    }
    let pieces: Vec<Result<Bytes, std::convert::Infallible>> = std::iter::once(out.freeze())
        .chain(records.iter().cloned())
        .map(Ok)
        .collect();
    Body::from_stream(futures_util::stream::iter(pieces))
}

/// The head and the records of a body, taken as they come.
pub(super) async fn read<T: DeserializeOwned>(mut body: Body) -> Result<(T, Bytes), String> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the body broke off: {error}"))?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > LARGEST {
                return Err(format!("it has more than {LARGEST} bytes"));
            }
            all.extend_from_slice(&data);
        }
    }
    let mut all = all.freeze();
    let len = match all.first_chunk::<4>() {
        Some(len) => usize::try_from(u32::from_be_bytes(*len)).unwrap_or(usize::MAX),
        None => return Err("it has no head".to_owned()),
    };
    all.advance(4);
    if len > all.len() {
        return Err("its head broke off".to_owned());
    }
    let head = all.split_to(len);
    let head = serde_json::from_slice(&head).map_err(|error| error.to_string())?;
    Ok((head, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_head_comes_with_its_records() {
        let at = At {
            topic: "x".to_owned(),
            partition: 3,
        };
        let records = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        let (head, rest) = read::<At>(body(&at, &records)).await.unwrap();
        assert_eq!((head, &rest[..]), (at.clone(), &b"onetwo"[..]));
        let (head, rest) = read::<At>(body(&at, &[])).await.unwrap();
        assert_eq!((head, rest.len()), (at, 0));
        for broken in [
            &b""[..],
            b"\0\0\0",
            b"\0\0\0\x05{}",
            b"\0\0\0\x02{}",
            b"\xff\xff\xff\xff{}",
        ] {
            assert!(read::<At>(Body::from(broken)).await.is_err(), "{broken:?}");
        }
    }
}
