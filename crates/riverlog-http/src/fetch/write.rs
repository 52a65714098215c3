//! Records as JSON.

use riverlog_wire::batch::RecordView;

use super::read::Fetched;
use crate::int64::Digits;
use crate::value::{self, Embed};

/// How an answer holds records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) embed: Embed,
    pub(crate) digits: Digits,
}

impl Form {
    /// Writes one record as an object, without a line's end in it.
    pub(crate) fn record(self, out: &mut Vec<u8>, fetched: &Fetched) {
        out.push(b'{');
        self.fields(out, fetched);
        out.push(b'}');
    }

    /// Its fields alone.
    pub(crate) fn fields(self, out: &mut Vec<u8>, fetched: &Fetched) {
        let Fetched {
            record,
            leader_epoch,
        } = fetched;
        out.extend_from_slice(b"\"offset\":");
        self.digits.write(out, record.offset.0);
        out.extend_from_slice(b",\"timestamp\":");
        self.digits.write(out, record.timestamp);
        out.push(b',');
        value::write(out, self.embed, "key", record.key.as_deref());
        out.push(b',');
        value::write(out, self.embed, "value", record.value.as_deref());
        self.headers(out, record);
        out.extend_from_slice(b",\"leader_epoch\":");
        Digits::Number.write(out, i64::from(leader_epoch.0));
    }

    fn headers(self, out: &mut Vec<u8>, record: &RecordView) {
        out.extend_from_slice(b",\"headers\":[");
        for (n, (name, header)) in record.headers.refs().iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            out.push(b'{');
            value::write(out, Embed::Utf8, "name", Some(name));
            out.push(b',');
            value::write(out, Embed::Typed, "value", header);
            out.push(b'}');
        }
        out.push(b']');
    }
}
