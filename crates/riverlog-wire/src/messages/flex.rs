//! What the generated codecs call: each primitive in its classic or its flexible (KIP-482) form, as owned values.

use bytes::Bytes;

use crate::primitives::{DecodeError, Reader, Writer};

/// Writes the records of a response: called with whether lengths are compact, and the message's own records.
pub(super) type WriteRecords<'a> = dyn FnMut(&mut Writer<'_>, bool, Option<&[u8]>) + 'a;

/// Records lie in the message.
pub(super) fn copy_records(w: &mut Writer<'_>, flex: bool, records: Option<&[u8]>) {
    w.nullable_bytes_in(flex, records);
}

impl<'a> Reader<'a> {
    pub(super) fn string_in(&mut self, flex: bool) -> Result<String, DecodeError> {
        if flex {
            self.compact_string().map(str::to_owned)
        } else {
            self.string().map(str::to_owned)
        }
    }

    pub(super) fn nullable_string_in(&mut self, flex: bool) -> Result<Option<String>, DecodeError> {
        let text = if flex {
            self.compact_nullable_string()?
        } else {
            self.nullable_string()?
        };
        Ok(text.map(str::to_owned))
    }

    pub(super) fn bytes_in(&mut self, flex: bool) -> Result<Bytes, DecodeError> {
        if flex {
            self.compact_shared_bytes()
        } else {
            self.shared_bytes()
        }
    }

    pub(super) fn nullable_bytes_in(&mut self, flex: bool) -> Result<Option<Bytes>, DecodeError> {
        if flex {
            self.compact_nullable_shared_bytes()
        } else {
            self.nullable_shared_bytes()
        }
    }

    /// The count of an array whose elements take at least `min` bytes each.
    pub(super) fn array_len_in(&mut self, flex: bool, min: usize) -> Result<usize, DecodeError> {
        if flex {
            self.compact_array_len(min)
        } else {
            self.array_len(min)
        }
    }

    pub(super) fn array_in<T>(
        &mut self,
        flex: bool,
        min: usize,
        read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let len = self.array_len_in(flex, min)?;
        self.elements(len, read)
    }

    pub(super) fn nullable_array_in<T>(
        &mut self,
        flex: bool,
        min: usize,
        read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let len = if flex {
            self.compact_nullable_array_len(min)?
        } else {
            self.nullable_array_len(min)?
        };
        len.map(|len| self.elements(len, read)).transpose()
    }

    /// A struct behind a byte that is negative for null.
    pub(super) fn nullable_struct<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.i8()? < 0 {
            return Ok(None);
        }
        read(self).map(Some)
    }
}

impl Writer<'_> {
    pub(super) fn string_in(&mut self, flex: bool, value: &str) {
        if flex {
            self.compact_string(value);
        } else {
            self.string(value);
        }
    }

    pub(super) fn nullable_string_in(&mut self, flex: bool, value: Option<&str>) {
        if flex {
            self.compact_nullable_string(value);
        } else {
            self.nullable_string(value);
        }
    }

    pub(super) fn bytes_in(&mut self, flex: bool, value: &[u8]) {
        if flex {
            self.compact_bytes(value);
        } else {
            self.bytes(value);
        }
    }

    pub(super) fn nullable_bytes_in(&mut self, flex: bool, value: Option<&[u8]>) {
        if flex {
            self.compact_nullable_bytes(value);
        } else {
            self.nullable_bytes(value);
        }
    }

    pub(super) fn array_len_in(&mut self, flex: bool, len: usize) {
        if flex {
            self.compact_array_len(len);
        } else {
            self.array_len(len);
        }
    }

    pub(super) fn array_in<T>(
        &mut self,
        flex: bool,
        values: &[T],
        mut write: impl FnMut(&mut Self, &T),
    ) {
        self.array_len_in(flex, values.len());
        for value in values {
            write(self, value);
        }
    }

    pub(super) fn nullable_array_in<T>(
        &mut self,
        flex: bool,
        values: Option<&[T]>,
        write: impl FnMut(&mut Self, &T),
    ) {
        match values {
            Some(values) => self.array_in(flex, values, write),
            None if flex => self.compact_nullable_array_len(None),
            None => self.nullable_array_len(None),
        }
    }

    /// A struct behind a byte that is negative for null.
    pub(super) fn nullable_struct<T>(
        &mut self,
        value: Option<&T>,
        write: impl FnOnce(&mut Self, &T),
    ) {
        match value {
            Some(value) => {
                self.i8(1);
                write(self, value);
            }
            None => self.i8(-1),
        }
    }
}
