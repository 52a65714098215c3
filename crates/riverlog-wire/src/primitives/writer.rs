//! Writing, the counterpart of the reader.

use bytes::BytesMut;

use super::{EncodeError, MAX_STRING_LEN, MAX_TAGGED_FIELDS, RawTaggedField};
use crate::TopicId;

/// What a [`Writer`] appends to.
pub trait Buffer {
    /// Bytes so far.
    fn size(&self) -> usize;
    /// Appends.
    fn append(&mut self, bytes: &[u8]);
    /// Cuts back to `size` bytes.
    fn cut(&mut self, size: usize);
    /// All bytes so far.
    fn all(&mut self) -> &mut [u8];
}

impl Buffer for Vec<u8> {
    fn size(&self) -> usize {
        self.len()
    }
    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    fn cut(&mut self, size: usize) {
        self.truncate(size);
    }
    fn all(&mut self) -> &mut [u8] {
        self
    }
}

impl Buffer for BytesMut {
    fn size(&self) -> usize {
        self.len()
    }
    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    fn cut(&mut self, size: usize) {
        self.truncate(size);
    }
    fn all(&mut self) -> &mut [u8] {
        self
    }
}

/// Bytes that [`Writer::unsigned_varint`] takes, 1 to 5.
#[inline]
pub const fn unsigned_varint_size(value: u32) -> usize {
    (38 - (value | 1).leading_zeros() as usize) / 7
}

/// Bytes that [`Writer::varint`] takes, 1 to 5.
#[inline]
pub const fn varint_size(value: i32) -> usize {
    unsigned_varint_size(zigzag(value))
}

/// Bytes that [`Writer::varlong`] takes, 1 to 10.
#[inline]
pub const fn varlong_size(value: i64) -> usize {
    (70 - (zigzag_long(value) | 1).leading_zeros() as usize) / 7
}

/// Bytes that the length prefix of a compact string, byte field or array of `len` takes.
#[inline]
pub const fn compact_len_size(len: usize) -> usize {
    unsigned_varint_size((len as u32).wrapping_add(1))
}

const fn zigzag(value: i32) -> u32 {
    (value << 1 ^ value >> 31) as u32
}

const fn zigzag_long(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Writes the varint to `out` from `at` on and returns where it ends. `out` has the room.
#[inline]
pub(crate) fn put_varint(out: &mut [u8], at: usize, value: i32) -> usize {
    put_groups(out, at, zigzag(value).into())
}

/// As [`put_varint`], up to ten bytes.
#[inline]
pub(crate) fn put_varlong(out: &mut [u8], at: usize, value: i64) -> usize {
    put_groups(out, at, zigzag_long(value))
}

#[inline]
fn put_groups(out: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        out[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = value as u8;
    at + 1
}

/// The groups of a varint, and how many there are.
fn encode_varint(value: u64) -> ([u8; 10], usize) {
    let mut groups = [0; 10];
    let len = put_groups(&mut groups, 0, value);
    (groups, len)
}

/// Appends the protocol's types to a buffer.
///
/// What can't be written (a string longer than its length field can say) is remembered, and
/// [`Writer::finish`] returns the first such error, having cut the buffer back to where the writer began; so
/// the many calls in between need no `?`.
#[derive(Debug)]
#[must_use = "finish() tells whether everything could be written"]
pub struct Writer<'a, B: Buffer = Vec<u8>> {
    out: &'a mut B,
    start: usize,
    error: Option<EncodeError>,
}

impl<'a, B: Buffer> Writer<'a, B> {
    /// Appends to `out`.
    pub fn new(out: &'a mut B) -> Writer<'a, B> {
        let start = out.size();
        Writer {
            out,
            start,
            error: None,
        }
    }

    /// Bytes written since [`Writer::new`], or the first error.
    pub fn finish(self) -> Result<usize, EncodeError> {
        match self.error {
            None => Ok(self.position()),
            Some(error) => {
                self.out.cut(self.start);
                Err(error)
            }
        }
    }

    /// Remembers `error`, unless there is an earlier one.
    #[cold]
    pub fn fail(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    /// Bytes written since [`Writer::new`].
    pub fn position(&self) -> usize {
        self.out.size().saturating_sub(self.start)
    }

    /// The bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.append(bytes);
    }

    /// One byte, signed.
    #[inline]
    pub fn i8(&mut self, value: i8) {
        self.raw(&value.to_be_bytes());
    }

    /// One byte, unsigned.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.raw(&[value]);
    }

    /// Two bytes, signed.
    #[inline]
    pub fn i16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    /// Two bytes, unsigned.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    /// Four bytes, signed.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    /// Four bytes, unsigned.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    /// Eight bytes, signed.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// Eight bytes, IEEE 754.
    #[inline]
    pub fn f64(&mut self, value: f64) {
        self.raw(&value.to_be_bytes());
    }

    /// One byte, 0 or 1.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Sixteen bytes.
    #[inline]
    pub fn uuid(&mut self, value: TopicId) {
        self.raw(&value.0);
    }

    /// Base 128, least significant group first.
    #[inline]
    pub fn unsigned_varint(&mut self, value: u32) {
        if value < 0x80 {
            self.raw(&[value as u8]);
        } else {
            self.long_varint(u64::from(value));
        }
    }

    /// Zigzag and base 128.
    #[inline]
    pub fn varint(&mut self, value: i32) {
        self.unsigned_varint(zigzag(value));
    }

    /// Zigzag and base 128.
    #[inline]
    pub fn varlong(&mut self, value: i64) {
        self.long_varint(zigzag_long(value));
    }

    fn long_varint(&mut self, value: u64) {
        let (groups, len) = encode_varint(value);
        self.raw(groups.get(..len).unwrap_or_default());
    }

    fn checked(&mut self, what: &'static str, len: usize, max: usize) -> usize {
        if len > max {
            self.fail(EncodeError::TooLong { what, len, max });
        }
        len.min(max)
    }

    fn compact_len(&mut self, what: &'static str, len: usize) {
        let len = self.checked(what, len, i32::MAX as usize - 1);
        self.unsigned_varint(len as u32 + 1);
    }

    /// i16 length, UTF-8.
    pub fn string(&mut self, value: &str) {
        let len = self.checked("string", value.len(), MAX_STRING_LEN);
        self.i16(len as i16);
        self.raw(value.as_bytes());
    }

    /// i16 length or −1 for null, UTF-8.
    pub fn nullable_string(&mut self, value: Option<&str>) {
        match value {
            Some(value) => self.string(value),
            None => self.i16(-1),
        }
    }

    /// Unsigned varint length + 1, UTF-8. At most 32,767 bytes, as a classic string, since Kafka's decoders
    /// refuse longer ones in either form.
    pub fn compact_string(&mut self, value: &str) {
        let len = self.checked("string", value.len(), MAX_STRING_LEN);
        self.unsigned_varint(len as u32 + 1);
        self.raw(value.as_bytes());
    }

    /// Unsigned varint length + 1 or 0 for null, UTF-8.
    pub fn compact_nullable_string(&mut self, value: Option<&str>) {
        match value {
            Some(value) => self.compact_string(value),
            None => self.unsigned_varint(0),
        }
    }

    /// i32 length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.bytes_len(value.len());
        self.raw(value);
    }

    /// i32 length or −1 for null.
    pub fn nullable_bytes(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.bytes(value),
            None => self.i32(-1),
        }
    }

    /// Unsigned varint length + 1.
    pub fn compact_bytes(&mut self, value: &[u8]) {
        self.compact_bytes_len(value.len());
        self.raw(value);
    }

    /// Unsigned varint length + 1 or 0 for null.
    pub fn compact_nullable_bytes(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.compact_bytes(value),
            None => self.unsigned_varint(0),
        }
    }

    /// The length of a byte field whose bytes the caller sends otherwise.
    pub fn bytes_len(&mut self, len: usize) {
        let len = self.checked("byte field", len, i32::MAX as usize);
        self.i32(len as i32);
    }

    /// The length of a compact byte field whose bytes the caller sends otherwise.
    pub fn compact_bytes_len(&mut self, len: usize) {
        self.compact_len("byte field", len);
    }

    /// i32 count; the elements follow.
    pub fn array_len(&mut self, len: usize) {
        let len = self.checked("array", len, i32::MAX as usize);
        self.i32(len as i32);
    }

    /// i32 count or −1 for null; the elements follow.
    pub fn nullable_array_len(&mut self, len: Option<usize>) {
        match len {
            Some(len) => self.array_len(len),
            None => self.i32(-1),
        }
    }

    /// Unsigned varint count + 1; the elements follow.
    pub fn compact_array_len(&mut self, len: usize) {
        self.compact_len("array", len);
    }

    /// Unsigned varint count + 1 or 0 for null; the elements follow.
    pub fn compact_nullable_array_len(&mut self, len: Option<usize>) {
        match len {
            Some(len) => self.compact_array_len(len),
            None => self.unsigned_varint(0),
        }
    }

    /// The head of a tagged-field section of `len` fields, which follow in ascending order of their tags.
    pub fn tagged_fields_len(&mut self, len: usize) {
        let len = self.checked("tagged-field section", len, MAX_TAGGED_FIELDS);
        self.unsigned_varint(len as u32);
    }

    /// A tagged-field section with nothing in it.
    pub fn empty_tagged_fields(&mut self) {
        self.unsigned_varint(0);
    }

    /// One tagged field: its tag, its size, and what `write` writes.
    pub fn tagged_field(&mut self, tag: u32, write: impl FnOnce(&mut Self)) {
        self.unsigned_varint(tag);
        // The size is known afterwards. Most fields are below 128 bytes, so leave one byte for it and
        // move the field only when that was too little.
        let size_at = self.out.size();
        self.u8(0);
        let field_at = self.out.size();
        write(self);
        let end = self.out.size();
        let size = end.saturating_sub(field_at);
        if size > i32::MAX as usize {
            self.fail(EncodeError::TooLong {
                what: "tagged field",
                len: size,
                max: i32::MAX as usize,
            });
            return;
        }
        let (prefix, len) = encode_varint(size as u64);
        let extra = len - 1;
        self.raw(&[0; 4][..extra]);
        let all = self.out.all();
        all.copy_within(field_at..end, field_at + extra);
        all[size_at..size_at + len].copy_from_slice(&prefix[..len]);
    }

    /// One tagged field whose bytes are there already.
    pub fn raw_tagged_field(&mut self, field: &RawTaggedField) {
        self.unsigned_varint(field.tag);
        let len = self.checked("tagged field", field.bytes.len(), i32::MAX as usize);
        self.unsigned_varint(len as u32);
        self.raw(&field.bytes);
    }

    /// Overwrites four bytes at `position` with a number that was not known when they were written, such as
    /// a frame's length. They must have been written by this writer.
    pub fn set_i32(&mut self, position: usize, value: i32) {
        let at = self.start + position;
        self.out.all()[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
}
