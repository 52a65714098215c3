//! The primitive types of Kafka's protocol: fixed-width integers, varints, strings, arrays, tagged fields.
//!
//! [`Reader`] goes through bytes that a client, a peer or a disk gave; it never reads past its end, never
//! panics, and every count it returns has been held against the bytes that are left. [`Writer`] appends the
//! same types to a `Vec<u8>` or a `BytesMut`. All numbers are big-endian.
//!
//! ```
//! use riverlog_wire::primitives::{Reader, Writer};
//!
//! let mut out = Vec::new();
//! let mut w = Writer::new(&mut out);
//! w.i16(7);
//! w.compact_nullable_string(Some("orders"));
//! w.compact_array_len(2);
//! w.i32(1);
//! w.i32(2);
//! w.empty_tagged_fields();
//! w.finish().unwrap();
//!
//! let mut r = Reader::new(&out);
//! assert_eq!(r.i16().unwrap(), 7);
//! assert_eq!(r.compact_nullable_string().unwrap(), Some("orders"));
//! let len = r.compact_array_len(4).unwrap();
//! assert_eq!(r.elements(len, Reader::i32).unwrap(), [1, 2]);
//! r.skip_tagged_fields().unwrap();
//! assert_eq!(r.remaining(), 0);
//! ```

mod reader;
mod writer;

#[cfg(test)]
mod tests;

use bytes::Bytes;

pub(crate) use writer::{put_varint, put_varlong};

pub use reader::{Reader, capacity_hint};
pub use writer::{
    Buffer, Writer, compact_len_size, unsigned_varint_size, varint_size, varlong_size,
};

/// Most elements of one array, as in Kafka 4.4.
pub const MAX_ARRAY_LEN: usize = 1_000_000;

/// Most fields of one tagged-field section, as in Kafka 4.4.
pub const MAX_TAGGED_FIELDS: usize = 10_000;

/// Most bytes of one string, classic or compact.
pub const MAX_STRING_LEN: usize = i16::MAX as usize;

/// A tagged field whose tag this version doesn't know, kept as it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawTaggedField {
    /// Its number.
    pub tag: u32,
    /// Its bytes, without tag and size.
    pub bytes: Bytes,
}

/// Why bytes are not what the protocol wants there. `at` counts bytes from where the reader began.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end too early.
    #[error(
        "{needed} bytes wanted at byte {at} but {have} are left; the message was cut off, send it whole"
    )]
    Short {
        /// Where.
        at: usize,
        /// Bytes wanted.
        needed: usize,
        /// Bytes there.
        have: usize,
    },
    /// A variable-length integer that is longer or larger than its type.
    #[error("the variable-length integer at byte {at} does not fit in {bits} bits; encode it anew")]
    Varint {
        /// Where it starts.
        at: usize,
        /// Width of its type.
        bits: u32,
    },
    /// A length below −1.
    #[error("the {what} at byte {at} has length {value}; lengths are 0 or more, and -1 for null")]
    NegativeLength {
        /// Where the length is.
        at: usize,
        /// What it is the length of.
        what: &'static str,
        /// What it said.
        value: i64,
    },
    /// A length or count that the bytes left can't hold.
    #[error(
        "the {what} at byte {at} has length {value} but only {have} bytes are left; the length is wrong"
    )]
    TooLong {
        /// Where the length is.
        at: usize,
        /// What it is the length of.
        what: &'static str,
        /// What it said: bytes, or elements of an array.
        value: u64,
        /// Bytes left.
        have: usize,
    },
    /// More elements than [`MAX_ARRAY_LEN`], fields than [`MAX_TAGGED_FIELDS`] or bytes than [`MAX_STRING_LEN`].
    #[error("the {what} at byte {at} has length {count}, the most is {max}; split or shorten it")]
    TooMany {
        /// Where the count is.
        at: usize,
        /// What it counts.
        what: &'static str,
        /// What it said.
        count: u64,
        /// The most there may be.
        max: usize,
    },
    /// Null where the schema has none.
    #[error("the {what} at byte {at} is null, which this field can't be; send an empty one")]
    Null {
        /// Where.
        at: usize,
        /// What was null.
        what: &'static str,
    },
    /// Not UTF-8.
    #[error("the string at byte {at} is not UTF-8; encode it as UTF-8")]
    Utf8 {
        /// Where its first byte is.
        at: usize,
    },
    /// Tags that don't ascend.
    #[error(
        "tag {tag} at byte {at} follows tag {previous}; write tagged fields in ascending order"
    )]
    TagOrder {
        /// Where.
        at: usize,
        /// The tag.
        tag: u32,
        /// The one before it.
        previous: u32,
    },
    /// A known tagged field with bytes left over.
    #[error("tagged field {tag} has {left} bytes too many before byte {at}; its size is wrong")]
    TagSize {
        /// Where the field ends.
        at: usize,
        /// Its tag.
        tag: u32,
        /// Bytes that nothing read.
        left: usize,
    },
    /// A value that its field can't have.
    #[error("the {what} at byte {at} is {value}, which has no meaning in this version")]
    Value {
        /// Where the value ends.
        at: usize,
        /// Which field.
        what: &'static str,
        /// What it said.
        value: i64,
    },
    /// A version that the message doesn't have.
    #[error("{message} has no version {version}; ask ApiVersions which there are")]
    Version {
        /// The message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
}

/// Why a message can't be written.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// Longer than the field's length can say.
    #[error("a {what} of {len} bytes or entries is too long, the most is {max}; shorten it")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// Its bytes, or elements of an array.
        len: usize,
        /// The most there may be.
        max: usize,
    },
    /// A field with a value that this version of the message has no place for.
    #[error(
        "version {version} of the message can't carry {field}; use a newer version or leave it out"
    )]
    Version {
        /// The field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// Null where the schema has none in this version.
    #[error("{field} can't be null in this version of the message; give it a value")]
    Null {
        /// The field.
        field: &'static str,
    },
}
