//! Reading, bounded by what is there.

use bytes::Bytes;

use super::{DecodeError, MAX_ARRAY_LEN, MAX_STRING_LEN, MAX_TAGGED_FIELDS, RawTaggedField};
use crate::TopicId;

/// Goes through bytes from front to back.
///
/// Methods without `compact_` read the classic encodings (i16 or i32 lengths), those with it the flexible
/// ones of KIP-482 (unsigned varint of length + 1, 0 for null). Methods with `shared_` give [`Bytes`]: slices
/// without a copy when made with [`Reader::shared`], copies otherwise.
///
/// After an error the position is unspecified: drop the reader.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
    parent: Option<&'a Bytes>,
}

/// Elements to reserve for an array that announces `len`: never more than 1,000, since an element takes more
/// memory than bytes and the announcement may be a lie.
pub fn capacity_hint(len: usize) -> usize {
    len.min(1_000)
}

impl<'a> Reader<'a> {
    /// Reads `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            bytes,
            pos: 0,
            parent: None,
        }
    }

    /// Reads `bytes`, and gives shared slices of it.
    pub fn shared(bytes: &'a Bytes) -> Reader<'a> {
        Reader {
            bytes,
            pos: 0,
            parent: Some(bytes),
        }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.pos)
    }

    /// Bytes already read.
    pub fn position(&self) -> usize {
        self.pos
    }

    /// The bytes not yet read, without reading them.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.pos..).unwrap_or_default()
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest().first_chunk::<N>() {
            Some(chunk) => {
                self.pos += N;
                Ok(*chunk)
            }
            None => Err(self.short(N)),
        }
    }

    fn short(&self, needed: usize) -> DecodeError {
        DecodeError::Short {
            at: self.pos,
            needed,
            have: self.remaining(),
        }
    }

    /// One byte, signed.
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.fixed().map(i8::from_be_bytes)
    }

    /// One byte, unsigned.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.fixed().map(u8::from_be_bytes)
    }

    /// Two bytes, signed.
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.fixed().map(i16::from_be_bytes)
    }

    /// Two bytes, unsigned.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.fixed().map(u16::from_be_bytes)
    }

    /// Four bytes, signed.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.fixed().map(i32::from_be_bytes)
    }

    /// Four bytes, unsigned.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.fixed().map(u32::from_be_bytes)
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.fixed().map(i64::from_be_bytes)
    }

    /// Eight bytes, IEEE 754.
    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.fixed().map(f64::from_be_bytes)
    }

    /// One byte; everything but 0 is true, as for Kafka.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        self.u8().map(|b| b != 0)
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self) -> Result<TopicId, DecodeError> {
        self.fixed().map(TopicId)
    }

    /// Base 128, least significant group first, at most 32 bits.
    #[inline]
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        // Most varints are lengths and deltas below 128.
        if let Some(&first) = self.bytes.get(self.pos)
            && first < 0x80
        {
            self.pos += 1;
            return Ok(u32::from(first));
        }
        self.long_varint(32).map(|v| v as u32)
    }

    /// Zigzag and base 128, at most 32 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<i32, DecodeError> {
        self.unsigned_varint()
            .map(|v| (v >> 1) as i32 ^ -((v & 1) as i32))
    }

    /// Zigzag and base 128, at most 64 bits.
    #[inline]
    pub fn varlong(&mut self) -> Result<i64, DecodeError> {
        let value = match self.bytes.get(self.pos) {
            Some(&first) if first < 0x80 => {
                self.pos += 1;
                u64::from(first)
            }
            _ => self.long_varint(64)?,
        };
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn long_varint(&mut self, bits: u32) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        let mut shift = 0;
        for (i, &byte) in self.rest().iter().enumerate() {
            let group = u64::from(byte & 0x7f);
            if bits - shift < 7 && group >> (bits - shift) != 0 {
                break;
            }
            value |= group << shift;
            if byte < 0x80 {
                self.pos += i + 1;
                return Ok(value);
            }
            shift += 7;
            if shift >= bits {
                break;
            }
        }
        // Either the bytes ended within the number, or the number went on past its type.
        if self.rest().len() < bits.div_ceil(7) as usize && self.rest().iter().all(|b| *b >= 0x80) {
            return Err(self.short(self.remaining() + 1));
        }
        Err(DecodeError::Varint { at: self.pos, bits })
    }

    /// The next `len` bytes.
    #[inline]
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest().get(..len) {
            Some(bytes) => {
                self.pos += len;
                Ok(bytes)
            }
            None => Err(self.short(len)),
        }
    }

    /// The next `len` bytes, shared.
    pub fn raw_shared(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        let start = self.pos;
        let bytes = self.raw(len)?;
        Ok(match self.parent {
            Some(parent) => parent.slice(start..self.pos),
            None => Bytes::copy_from_slice(bytes),
        })
    }

    /// A reader of the next `len` bytes only; this one goes on after them. Positions stay those of the whole.
    pub fn sub(&mut self, len: usize) -> Result<Reader<'a>, DecodeError> {
        let start = self.pos;
        self.raw(len)?;
        Ok(Reader {
            bytes: self.bytes.get(..self.pos).unwrap_or_default(),
            pos: start,
            parent: self.parent,
        })
    }

    /// A signed length, −1 for null.
    fn length(
        &self,
        at: usize,
        what: &'static str,
        value: i64,
    ) -> Result<Option<usize>, DecodeError> {
        match usize::try_from(value) {
            Ok(len) => Ok(Some(len)),
            Err(_) if value == -1 => Ok(None),
            Err(_) => Err(DecodeError::NegativeLength { at, what, value }),
        }
    }

    /// The unsigned varint of a compact type, 0 for null.
    fn compact_length(&mut self) -> Result<Option<usize>, DecodeError> {
        Ok((self.unsigned_varint()? as usize).checked_sub(1))
    }

    fn fits(&self, at: usize, what: &'static str, len: usize) -> Result<usize, DecodeError> {
        if len > self.remaining() {
            return Err(DecodeError::TooLong {
                at,
                what,
                value: len as u64,
                have: self.remaining(),
            });
        }
        Ok(len)
    }

    fn short_len(&mut self) -> Result<Option<usize>, DecodeError> {
        let at = self.pos;
        let value = i64::from(self.i16()?);
        match self.length(at, STRING, value)? {
            Some(len) => self.fits(at, STRING, len).map(Some),
            None => Ok(None),
        }
    }

    fn int_len(&mut self) -> Result<Option<usize>, DecodeError> {
        let at = self.pos;
        let value = i64::from(self.i32()?);
        match self.length(at, BYTES, value)? {
            Some(len) => self.fits(at, BYTES, len).map(Some),
            None => Ok(None),
        }
    }

    fn compact_len(&mut self, what: &'static str) -> Result<Option<usize>, DecodeError> {
        let at = self.pos;
        match self.compact_length()? {
            Some(len) => self.fits(at, what, len).map(Some),
            None => Ok(None),
        }
    }

    fn utf8(&mut self, len: usize) -> Result<&'a str, DecodeError> {
        let at = self.pos;
        std::str::from_utf8(self.raw(len)?).map_err(|_| DecodeError::Utf8 { at })
    }

    /// i16 length, UTF-8.
    pub fn string(&mut self) -> Result<&'a str, DecodeError> {
        let at = self.pos;
        self.nullable_string()?
            .ok_or(DecodeError::Null { at, what: STRING })
    }

    /// i16 length or −1 for null, UTF-8.
    pub fn nullable_string(&mut self) -> Result<Option<&'a str>, DecodeError> {
        match self.short_len()? {
            Some(len) => self.utf8(len).map(Some),
            None => Ok(None),
        }
    }

    /// Unsigned varint length + 1, UTF-8, at most [`MAX_STRING_LEN`] bytes.
    pub fn compact_string(&mut self) -> Result<&'a str, DecodeError> {
        let at = self.pos;
        self.compact_nullable_string()?
            .ok_or(DecodeError::Null { at, what: STRING })
    }

    /// Unsigned varint length + 1 or 0 for null, UTF-8.
    pub fn compact_nullable_string(&mut self) -> Result<Option<&'a str>, DecodeError> {
        let at = self.pos;
        match self.compact_len(STRING)? {
            // Kafka's decoders hold compact strings to the limit of classic ones.
            Some(count) if count > MAX_STRING_LEN => Err(DecodeError::TooMany {
                at,
                what: STRING,
                count: count as u64,
                max: MAX_STRING_LEN,
            }),
            Some(len) => self.utf8(len).map(Some),
            None => Ok(None),
        }
    }

    /// i32 length.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let at = self.pos;
        self.nullable_bytes()?
            .ok_or(DecodeError::Null { at, what: BYTES })
    }

    /// i32 length or −1 for null.
    pub fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.int_len()? {
            Some(len) => self.raw(len).map(Some),
            None => Ok(None),
        }
    }

    /// Unsigned varint length + 1.
    pub fn compact_bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let at = self.pos;
        self.compact_nullable_bytes()?
            .ok_or(DecodeError::Null { at, what: BYTES })
    }

    /// Unsigned varint length + 1 or 0 for null.
    pub fn compact_nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.compact_len(BYTES)? {
            Some(len) => self.raw(len).map(Some),
            None => Ok(None),
        }
    }

    /// As [`Reader::bytes`], shared.
    pub fn shared_bytes(&mut self) -> Result<Bytes, DecodeError> {
        let at = self.pos;
        self.nullable_shared_bytes()?
            .ok_or(DecodeError::Null { at, what: BYTES })
    }

    /// As [`Reader::nullable_bytes`], shared.
    pub fn nullable_shared_bytes(&mut self) -> Result<Option<Bytes>, DecodeError> {
        match self.int_len()? {
            Some(len) => self.raw_shared(len).map(Some),
            None => Ok(None),
        }
    }

    /// As [`Reader::compact_bytes`], shared.
    pub fn compact_shared_bytes(&mut self) -> Result<Bytes, DecodeError> {
        let at = self.pos;
        self.compact_nullable_shared_bytes()?
            .ok_or(DecodeError::Null { at, what: BYTES })
    }

    /// As [`Reader::compact_nullable_bytes`], shared.
    pub fn compact_nullable_shared_bytes(&mut self) -> Result<Option<Bytes>, DecodeError> {
        match self.compact_len(BYTES)? {
            Some(len) => self.raw_shared(len).map(Some),
            None => Ok(None),
        }
    }

    /// A count of elements of at least `min_element` bytes each (0 counts as 1): an error when there are
    /// more than [`MAX_ARRAY_LEN`] or the bytes left can't hold them.
    fn count(&self, at: usize, count: usize, min_element: usize) -> Result<usize, DecodeError> {
        if count > self.remaining() / min_element.max(1) {
            return Err(DecodeError::TooLong {
                at,
                what: ARRAY,
                value: count as u64,
                have: self.remaining(),
            });
        }
        if count > MAX_ARRAY_LEN {
            return Err(DecodeError::TooMany {
                at,
                what: ARRAY,
                count: count as u64,
                max: MAX_ARRAY_LEN,
            });
        }
        Ok(count)
    }

    /// i32 count of an array whose elements take at least `min_element` bytes each. The count is at most
    /// [`MAX_ARRAY_LEN`] and what the bytes left can hold; see [`capacity_hint`] before reserving by it.
    pub fn array_len(&mut self, min_element: usize) -> Result<usize, DecodeError> {
        let at = self.pos;
        self.nullable_array_len(min_element)?
            .ok_or(DecodeError::Null { at, what: ARRAY })
    }

    /// As [`Reader::array_len`], −1 for null.
    pub fn nullable_array_len(&mut self, min_element: usize) -> Result<Option<usize>, DecodeError> {
        let at = self.pos;
        let value = i64::from(self.i32()?);
        match self.length(at, ARRAY, value)? {
            Some(count) => self.count(at, count, min_element).map(Some),
            None => Ok(None),
        }
    }

    /// As [`Reader::array_len`], unsigned varint of count + 1.
    pub fn compact_array_len(&mut self, min_element: usize) -> Result<usize, DecodeError> {
        let at = self.pos;
        self.compact_nullable_array_len(min_element)?
            .ok_or(DecodeError::Null { at, what: ARRAY })
    }

    /// As [`Reader::compact_array_len`], 0 for null.
    pub fn compact_nullable_array_len(
        &mut self,
        min_element: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let at = self.pos;
        match self.compact_length()? {
            Some(count) => self.count(at, count, min_element).map(Some),
            None => Ok(None),
        }
    }

    /// `len` elements, each read by `read`. Memory grows with what was really read.
    pub fn elements<T>(
        &mut self,
        len: usize,
        mut read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let mut elements = Vec::with_capacity(capacity_hint(len));
        for _ in 0..len {
            elements.push(read(self)?);
        }
        Ok(elements)
    }

    /// A tagged-field section. `field` gets each tag with a reader of its bytes alone; it reads a tag that it
    /// knows to its end and returns true, and returns false for others, which are then skipped.
    pub fn tagged_fields(
        &mut self,
        mut field: impl FnMut(u32, &mut Reader<'a>) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        self.each_tagged_field(|tag, mut bytes| {
            if field(tag, &mut bytes)? && bytes.remaining() > 0 {
                return Err(DecodeError::TagSize {
                    at: bytes.bytes.len(),
                    tag,
                    left: bytes.remaining(),
                });
            }
            Ok(())
        })
    }

    /// As [`Reader::tagged_fields`]; those that `field` doesn't know are appended to `unknown`.
    pub fn tagged_fields_keeping(
        &mut self,
        unknown: &mut Vec<RawTaggedField>,
        mut field: impl FnMut(u32, &mut Reader<'a>) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        self.each_tagged_field(|tag, mut bytes| {
            let mut whole = bytes.clone();
            if !field(tag, &mut bytes)? {
                let bytes = whole.raw_shared(whole.remaining())?;
                unknown.push(RawTaggedField { tag, bytes });
            } else if bytes.remaining() > 0 {
                return Err(DecodeError::TagSize {
                    at: bytes.bytes.len(),
                    tag,
                    left: bytes.remaining(),
                });
            }
            Ok(())
        })
    }

    /// A tagged-field section of which nothing is wanted.
    pub fn skip_tagged_fields(&mut self) -> Result<(), DecodeError> {
        self.each_tagged_field(|_, _| Ok(()))
    }

    fn each_tagged_field(
        &mut self,
        mut each: impl FnMut(u32, Reader<'a>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let at = self.pos;
        let count = self.unsigned_varint()? as usize;
        // A field takes at least its tag and its size.
        if count > self.remaining() / 2 {
            return Err(DecodeError::TooLong {
                at,
                what: TAGS,
                value: count as u64,
                have: self.remaining(),
            });
        }
        if count > MAX_TAGGED_FIELDS {
            return Err(DecodeError::TooMany {
                at,
                what: TAGS,
                count: count as u64,
                max: MAX_TAGGED_FIELDS,
            });
        }
        let mut previous = None;
        for _ in 0..count {
            let at = self.pos;
            let tag = self.unsigned_varint()?;
            if let Some(previous) = previous
                && tag <= previous
            {
                return Err(DecodeError::TagOrder { at, tag, previous });
            }
            previous = Some(tag);
            let at = self.pos;
            let size = self.unsigned_varint()? as usize;
            let size = self.fits(at, "tagged field", size)?;
            each(tag, self.sub(size)?)?;
        }
        Ok(())
    }
}

const STRING: &str = "string";
const BYTES: &str = "byte field";
const ARRAY: &str = "array";
const TAGS: &str = "tagged-field section";
