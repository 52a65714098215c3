//! One content for each offset, and no value twice; what was acknowledged is there.

use std::collections::BTreeSet;

use riverlog_wire::Offset;

use super::{Model, Place, Violation};

impl Model {
    /// A publish was answered.
    pub(crate) fn acknowledged(
        &mut self,
        place: Place,
        base: Offset,
        values: &[String],
    ) -> Result<(), Violation> {
        for (i, value) in values.iter().enumerate() {
            self.content(place, base.0 + i as i64, value, "an acknowledgement")?;
        }
        Ok(())
    }

    /// A value was read at an offset, below the high watermark.
    pub(crate) fn read(
        &mut self,
        place: Place,
        offset: Offset,
        value: &str,
    ) -> Result<(), Violation> {
        self.content(place, offset.0, value, "a read")
    }

    fn content(
        &mut self,
        place: Place,
        offset: i64,
        value: &str,
        who: &str,
    ) -> Result<(), Violation> {
        self.checked += 1;
        let known = self.known(place);
        if let Some(before) = known.contents.get(&offset)
            && before != value
        {
            let what = format!("{place:?} offset {offset} was {before:?}, {who} says {value:?}");
            return Err(Violation::new("one content for each offset", what));
        }
        if let Some(before) = known.places.get(value)
            && *before != offset
        {
            let what = format!("{place:?} has {value:?} at {before} and, by {who}, at {offset}");
            return Err(Violation::new(
                "no duplicates from idempotent producers",
                what,
            ));
        }
        known.contents.insert(offset, value.to_owned());
        known.places.insert(value.to_owned(), offset);
        Ok(())
    }

    /// A partition was read from its start to its high watermark: everything known must have been there.
    pub(crate) fn read_whole(
        &mut self,
        place: Place,
        log_start: Offset,
        found: &[(Offset, String)],
    ) -> Result<(), Violation> {
        for (offset, value) in found {
            self.read(place, *offset, value)?;
        }
        let offsets: BTreeSet<i64> = found.iter().map(|(o, _)| o.0).collect();
        let known = self.known(place);
        for (offset, value) in known.contents.range(log_start.0..) {
            if !offsets.contains(offset) {
                let what = format!(
                    "{place:?} offset {offset}, {value:?}; start {log_start}, {} found",
                    offsets.len()
                );
                return Err(Violation::new("what was acknowledged is there", what));
            }
        }
        Ok(())
    }
}
