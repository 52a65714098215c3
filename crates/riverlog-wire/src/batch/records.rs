//! The records of one batch, read lazily.
//!
//! ```text
//! record: length varint (of the rest)   attributes i8 = 0
//!         timestamp delta varlong       offset delta varint
//!         key length varint, key        value length varint, value      (−1: null)
//!         header count varint, then for each:
//!           key length varint, key      value length varint, value      (−1: null)
//! ```

use std::fmt;

use bytes::Bytes;

use super::{Batch, BatchError, BatchHeader, HEADER_LEN, TimestampType, expand};
use crate::Offset;
use crate::compression::Compression;
use crate::primitives::{DecodeError, Reader};

/// The least that a record takes: seven fields of a byte each.
const MIN_RECORD_LEN: usize = 7;

/// The records of one batch, decompressed.
#[derive(Clone, Debug)]
pub struct Records {
    header: BatchHeader,
    bytes: Bytes,
}

impl Records {
    pub(super) fn new(header: BatchHeader, bytes: Bytes) -> Result<Records, BatchError> {
        if header.record_count as usize > bytes.len() / MIN_RECORD_LEN {
            return Err(BatchError::Field {
                field: "record count",
                value: i64::from(header.record_count),
            });
        }
        Ok(Records { header, bytes })
    }

    /// The records of the first batch of `bytes`, decompressed to at most `limit` bytes. Records that are not
    /// compressed are slices of `bytes`. The CRC is not looked at.
    pub fn shared(bytes: &Bytes, limit: usize) -> Result<Records, BatchError> {
        let batch = Batch::parse(bytes)?;
        let records = match batch.codec()? {
            Compression::None if batch.encoded_records().len() <= limit => {
                bytes.slice(HEADER_LEN..batch.bytes.len())
            }
            codec => expand(codec, batch.encoded_records(), limit)?,
        };
        Records::new(batch.header, records)
    }

    /// The batch's fixed fields.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Bytes of all records, decompressed.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Goes through the records in order. Exactly `record_count` items, or an error that ends it.
    pub fn iter(&self) -> impl Iterator<Item = Result<RecordView, BatchError>> + '_ {
        self.iter_refs().map(|record| record.map(|r| self.view(&r)))
    }

    /// As [`Records::iter`], with plain slices in place of shared ones: for those who look at records but
    /// don't keep them.
    pub fn iter_refs(&self) -> impl Iterator<Item = Result<RecordRef<'_>, BatchError>> + '_ {
        let mut cursor = Cursor::default();
        std::iter::from_fn(move || cursor.next(&self.header, &self.bytes))
    }

    fn view(&self, record: &RecordRef<'_>) -> RecordView {
        RecordView {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(|key| self.bytes.slice_ref(key)),
            value: record.value.map(|value| self.bytes.slice_ref(value)),
            headers: Headers {
                count: record.headers.count,
                bytes: self.bytes.slice_ref(record.headers.bytes),
            },
        }
    }
}

impl IntoIterator for Records {
    type Item = Result<RecordView, BatchError>;
    type IntoIter = IntoIter;

    /// As [`Records::iter`], for those who keep the iterator.
    fn into_iter(self) -> IntoIter {
        IntoIter {
            records: self,
            cursor: Cursor::default(),
        }
    }
}

/// Goes through the records of a batch and keeps its bytes.
#[derive(Clone, Debug)]
pub struct IntoIter {
    records: Records,
    cursor: Cursor,
}

impl Iterator for IntoIter {
    type Item = Result<RecordView, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Records { header, bytes } = &self.records;
        let record = self.cursor.next(header, bytes)?;
        Some(record.map(|r| self.records.view(&r)))
    }
}

/// Where an iteration stands.
#[derive(Clone, Debug, Default)]
struct Cursor {
    position: usize,
    index: i32,
    /// The least that the next offset delta may be.
    next_delta: i32,
    ended: bool,
}

impl Cursor {
    fn next<'a>(
        &mut self,
        header: &BatchHeader,
        bytes: &'a [u8],
    ) -> Option<Result<RecordRef<'a>, BatchError>> {
        if self.ended {
            return None;
        }
        let mut r = Reader::new(bytes.get(self.position..).unwrap_or_default());
        let index = self.index;
        if index >= header.record_count {
            self.ended = true;
            return (r.remaining() > 0).then_some(Err(BatchError::Record {
                index,
                reason: "bytes follow the last record",
            }));
        }
        match read_record(header, self.next_delta, &mut r) {
            Ok(record) => {
                self.position += r.position();
                self.index += 1;
                self.next_delta = record.offset_delta.saturating_add(1);
                Some(Ok(record))
            }
            Err(reason) => {
                self.ended = true;
                Some(Err(BatchError::Record { index, reason }))
            }
        }
    }
}

fn read_record<'a>(
    header: &BatchHeader,
    least_delta: i32,
    r: &mut Reader<'a>,
) -> Result<RecordRef<'a>, &'static str> {
    let len = r.varint().map_err(reason)?;
    let len = usize::try_from(len).map_err(|_| "its length is negative")?;
    let mut r = Reader::new(r.raw(len).map_err(reason)?);
    // No attributes of single records are defined.
    r.i8().map_err(reason)?;
    let timestamp_delta = r.varlong().map_err(reason)?;
    let offset_delta = r.varint().map_err(reason)?;
    if offset_delta < least_delta {
        return Err("its offset is not above that of the record before it");
    }
    if offset_delta > header.last_offset_delta {
        return Err("its offset is above the batch's last offset");
    }
    let key = nullable(&mut r)?;
    let value = nullable(&mut r)?;
    let count = r.varint().map_err(reason)?;
    let headers = r.rest();
    let mut h = Reader::new(headers);
    check_headers(count, &mut h)?;
    if h.remaining() > 0 {
        return Err("its length is more than its fields take");
    }
    let timestamp = match header.attributes.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp,
        TimestampType::CreateTime => header.base_timestamp.wrapping_add(timestamp_delta),
    };
    Ok(RecordRef {
        offset: header.base_offset + i64::from(offset_delta),
        offset_delta,
        timestamp,
        key,
        value,
        headers: HeaderRefs {
            count,
            bytes: headers,
        },
    })
}

fn check_headers(count: i32, r: &mut Reader<'_>) -> Result<(), &'static str> {
    let count = usize::try_from(count).map_err(|_| "its header count is negative")?;
    if count > r.remaining() / 2 {
        return Err("its header count is more than its bytes can hold");
    }
    for _ in 0..count {
        nullable(r)?.ok_or("a header's key is null")?;
        nullable(r)?;
    }
    Ok(())
}

/// A varint length, −1 for null, and so many bytes.
fn nullable<'a>(r: &mut Reader<'a>) -> Result<Option<&'a [u8]>, &'static str> {
    let len = r.varint().map_err(reason)?;
    match usize::try_from(len) {
        Ok(len) => r.raw(len).map(Some).map_err(reason),
        Err(_) if len == -1 => Ok(None),
        Err(_) => Err("a length in it is below -1"),
    }
}

fn reason(error: DecodeError) -> &'static str {
    match error {
        DecodeError::Short { .. } => "a length in it goes beyond its end",
        DecodeError::Varint { .. } => "a number in it is too large for its type",
        _ => "it is malformed",
    }
}

/// One record: slices of the batch's (decompressed) bytes, without a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// Base offset plus its delta.
    pub offset: Offset,
    /// In ms since the epoch; the batch's max timestamp under log append time.
    pub timestamp: i64,
    /// Absent and empty differ.
    pub key: Option<Bytes>,
    /// Absent (a tombstone) and empty differ.
    pub value: Option<Bytes>,
    /// In order, duplicates and null values kept.
    pub headers: Headers,
}

/// A record's headers, still encoded; well-formed, since the record was checked when it was read.
#[derive(Clone, Default)]
pub struct Headers {
    count: i32,
    bytes: Bytes,
}

impl Headers {
    /// Number of headers.
    pub fn len(&self) -> usize {
        self.count as usize
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// In order: key, and value or null.
    pub fn iter(&self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> + '_ {
        self.refs().iter().map(|(key, value)| {
            let value = value.map(|v| self.bytes.slice_ref(v));
            (self.bytes.slice_ref(key), value)
        })
    }
    /// As plain slices.
    pub fn refs(&self) -> HeaderRefs<'_> {
        HeaderRefs {
            count: self.count,
            bytes: &self.bytes,
        }
    }
}

/// One record, as [`RecordView`], of plain slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Base offset plus its delta.
    pub offset: Offset,
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// In ms since the epoch; the batch's max timestamp under log append time.
    pub timestamp: i64,
    /// Absent and empty differ.
    pub key: Option<&'a [u8]>,
    /// Absent (a tombstone) and empty differ.
    pub value: Option<&'a [u8]>,
    /// In order, duplicates and null values kept.
    pub headers: HeaderRefs<'a>,
}

/// A record's headers, as [`Headers`], of plain slices.
#[derive(Clone, Copy, Default)]
pub struct HeaderRefs<'a> {
    count: i32,
    bytes: &'a [u8],
}

impl<'a> HeaderRefs<'a> {
    /// Number of headers.
    pub fn len(&self) -> usize {
        self.count as usize
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// In order: key, and value or null.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut r = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| {
            let key = nullable(&mut r).ok()??;
            let value = nullable(&mut r).ok()?;
            Some((key, value))
        })
    }
    /// As they lie in the record, without their count.
    pub(super) fn encoded(&self) -> &'a [u8] {
        self.bytes
    }
}

impl PartialEq for HeaderRefs<'_> {
    /// By what they say: one length can be encoded in several ways.
    fn eq(&self, other: &HeaderRefs<'_>) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

impl Eq for HeaderRefs<'_> {}

impl PartialEq for Headers {
    fn eq(&self, other: &Headers) -> bool {
        self.refs() == other.refs()
    }
}

impl Eq for Headers {}

impl fmt::Debug for HeaderRefs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
