//! Writing single records; their layout is at the head of `records.rs`.

use super::HeaderRefs;
use crate::primitives::{put_varint, put_varlong, varint_size, varlong_size};

const MAX_VARINT: usize = 5;
const MAX_VARLONG: usize = 10;

/// Length, attributes, timestamp delta, offset delta, key length.
const MAX_HEAD: usize = MAX_VARINT + 1 + MAX_VARLONG + MAX_VARINT + MAX_VARINT;

/// A record without its headers.
pub(super) struct Fields<'a> {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
}

impl Fields<'_> {
    pub(super) fn size(&self) -> usize {
        1 + varlong_size(self.timestamp_delta)
            + varint_size(self.offset_delta)
            + field_size(self.key)
            + field_size(self.value)
    }
}

/// Headers that a record can be given.
pub(super) trait EncodeHeaders {
    /// Bytes, the count included.
    fn size(&self) -> usize;
    /// Appends them, the count included.
    fn append(&self, out: &mut Vec<u8>);
}

impl EncodeHeaders for [(&[u8], Option<&[u8]>)] {
    fn size(&self) -> usize {
        self.iter()
            .fold(varint_size(self.len() as i32), |sum, (name, value)| {
                sum + field_size(Some(name)) + field_size(*value)
            })
    }
    fn append(&self, out: &mut Vec<u8>) {
        append_varint(out, self.len() as i32);
        for (name, value) in self {
            append_field(out, Some(name));
            append_field(out, *value);
        }
    }
}

impl EncodeHeaders for HeaderRefs<'_> {
    fn size(&self) -> usize {
        varint_size(self.len() as i32) + self.encoded().len()
    }
    fn append(&self, out: &mut Vec<u8>) {
        append_varint(out, self.len() as i32);
        out.extend_from_slice(self.encoded());
    }
}

/// Appends one record to a batch. Panics when the batch would pass 2 GiB.
#[inline]
pub(super) fn append_record(
    batch: &mut Vec<u8>,
    fields: &Fields<'_>,
    headers: &(impl EncodeHeaders + ?Sized),
) {
    let body_len = fields.size() + headers.size();
    let fits = body_len + batch.len() < i32::MAX as usize - MAX_HEAD;
    assert!(fits, "a batch is smaller than 2 GiB");
    batch.reserve(body_len + MAX_VARINT);
    // Put together on the stack, so that the Vec's length is looked at once and not per byte.
    let mut head = [0; MAX_HEAD];
    let mut len = put_varint(&mut head, 0, body_len as i32);
    // The attributes of a record, none of which is defined, stay 0.
    len += 1;
    len = put_varlong(&mut head, len, fields.timestamp_delta);
    len = put_varint(&mut head, len, fields.offset_delta);
    len = put_varint(&mut head, len, length_of(fields.key));
    batch.extend_from_slice(&head[..len]);
    batch.extend_from_slice(fields.key.unwrap_or_default());
    append_field(batch, fields.value);
    headers.append(batch);
}

fn append_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    append_varint(out, length_of(field));
    out.extend_from_slice(field.unwrap_or_default());
}

#[inline]
fn append_varint(out: &mut Vec<u8>, value: i32) {
    let mut bytes = [0; MAX_VARINT];
    let len = put_varint(&mut bytes, 0, value);
    out.extend_from_slice(&bytes[..len]);
}

fn field_size(field: Option<&[u8]>) -> usize {
    varint_size(length_of(field)) + field.map_or(0, <[u8]>::len)
}

/// −1 for null. Longer fields than the type holds are caught by the bound on the batch's size.
fn length_of(field: Option<&[u8]>) -> i32 {
    field.map_or(-1, |field| field.len() as i32)
}
