//! Responses that carry records, laid out with gaps where the records go.
//!
//! Records come from a cache or a file and may be large; copying them into the frame would be the most
//! expensive thing a fetch does. So the frame is encoded around them, with their lengths, and whoever sends it
//! puts them in between: from memory, or straight from the file.

use bytes::Bytes;

use super::flex::WriteRecords;
use super::{ApiKey, FetchResponse, ShareFetchResponse};
use crate::frame::{LENGTH_BYTES, ResponseHeader};
use crate::primitives::{EncodeError, Writer};

#[cfg(test)]
mod tests;

/// A piece of a frame, in the order in which the pieces are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// These bytes.
    Bytes(Bytes),
    /// The records of the partition with this number, of just the length that was announced for it.
    Records(usize),
}

/// A whole frame, its own length in front included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Never empty; records of length 0 have no segment.
    pub segments: Vec<Segment>,
    /// Bytes of all segments together.
    pub len: usize,
}

/// Lays out a Fetch response with its header.
///
/// - `records_len`: the length in bytes of the records of each partition, `None` for null. Partitions are
///   counted from 0 through all topics, in the order of `response`; asked once for each, in order.
/// - What `response` itself holds as records is not looked at.
/// - Errors: a field that the version can't carry, or a frame above 2³¹−1 bytes.
pub fn fetch_response(
    version: i16,
    correlation_id: i32,
    response: &FetchResponse,
    records_len: impl FnMut(usize) -> Option<usize>,
) -> Result<Layout, EncodeError> {
    let header = ResponseHeader { correlation_id };
    lay_out(records_len, |w, records| {
        header.encode(w, ApiKey::Fetch, version);
        response.encode_with(w, version, records);
    })
}

/// Lays out a ShareFetch response with its header; as [`fetch_response`], except that records are never null.
pub fn share_fetch_response(
    version: i16,
    correlation_id: i32,
    response: &ShareFetchResponse,
    mut records_len: impl FnMut(usize) -> usize,
) -> Result<Layout, EncodeError> {
    let header = ResponseHeader { correlation_id };
    let records_len = |partition| Some(records_len(partition));
    lay_out(records_len, |w, records| {
        header.encode(w, ApiKey::ShareFetch, version);
        response.encode_with(w, version, records);
    })
}

/// Records that go in front of the byte `at` of what was written.
struct Gap {
    at: usize,
    partition: usize,
}

fn lay_out(
    mut records_len: impl FnMut(usize) -> Option<usize>,
    write: impl FnOnce(&mut Writer<'_>, &mut WriteRecords<'_>),
) -> Result<Layout, EncodeError> {
    let mut written = Vec::new();
    let mut gaps: Vec<Gap> = Vec::new();
    let mut in_gaps = 0_usize;
    let mut partitions = 0;
    let mut w = Writer::new(&mut written);
    w.i32(0);
    write(&mut w, &mut |w, flex, _| {
        let partition = partitions;
        partitions += 1;
        let Some(len) = records_len(partition) else {
            w.nullable_bytes_in(flex, None);
            return;
        };
        if flex {
            w.compact_bytes_len(len);
        } else {
            w.bytes_len(len);
        }
        if len > 0 {
            in_gaps = in_gaps.saturating_add(len);
            gaps.push(Gap {
                at: w.position(),
                partition,
            });
        }
    });
    let len = w.position().saturating_add(in_gaps);
    match i32::try_from(len - LENGTH_BYTES) {
        Ok(after_length) => w.set_i32(0, after_length),
        Err(_) => w.fail(EncodeError::TooLong {
            what: "frame",
            len,
            max: i32::MAX as usize,
        }),
    }
    w.finish()?;

    let mut rest = Bytes::from(written);
    let mut segments = Vec::with_capacity(2 * gaps.len() + 1);
    let mut taken = 0;
    for gap in gaps {
        segments.push(Segment::Bytes(rest.split_to(gap.at - taken)));
        segments.push(Segment::Records(gap.partition));
        taken = gap.at;
    }
    // Fetch and ShareFetch end with something after the records in flexible versions only.
    if !rest.is_empty() {
        segments.push(Segment::Bytes(rest));
    }
    Ok(Layout { segments, len })
}
