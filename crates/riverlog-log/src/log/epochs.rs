//! Which epoch wrote which offsets (KIP-101, KIP-279), and the file that Kafka keeps it in.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use riverlog_wire::{LeaderEpoch, Offset};

use super::EpochEnd;
use super::crc::Crc;

/// An epoch and the offset of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its first offset.
    pub start: Offset,
}

/// The epochs of a log, rising in both fields. Cheap to share with readers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Epochs {
    entries: Arc<Vec<EpochStart>>,
}

impl Epochs {
    pub(super) fn new(entries: Vec<EpochStart>) -> Epochs {
        Epochs {
            entries: Arc::new(entries),
        }
    }
    pub(super) fn entries(&self) -> &[EpochStart] {
        &self.entries
    }
    pub(super) fn last(&self) -> LeaderEpoch {
        self.entries.last().map_or(LeaderEpoch::NONE, |e| e.epoch)
    }
    /// A batch of `epoch` begins at `start`. True: that is a new epoch.
    pub(super) fn on_batch(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if epoch <= self.last() {
            return false;
        }
        Arc::make_mut(&mut self.entries).push(EpochStart { epoch, start });
        true
    }
    /// Forgets epochs that begin at or after `end`. True: something was forgotten.
    pub(super) fn truncate(&mut self, end: Offset) -> bool {
        let keep = self.entries.partition_point(|e| e.start < end);
        if keep == self.entries.len() {
            return false;
        }
        Arc::make_mut(&mut self.entries).truncate(keep);
        true
    }
    /// Forgets epochs that ended at or before `start`. The one that is current there keeps its own start, so that what
    /// the segments' summaries say of it stays true.
    pub(super) fn start_at(&mut self, start: Offset) -> bool {
        let after = self.entries.partition_point(|e| e.start <= start);
        if after <= 1 {
            return false;
        }
        Arc::make_mut(&mut self.entries).drain(..after - 1);
        true
    }
    pub(super) fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        self.entry_at(offset).map_or(LeaderEpoch::NONE, |e| e.epoch)
    }
    /// See [`EpochEnd`]. `log`: the log's start and end.
    pub(super) fn end_of(&self, epoch: LeaderEpoch, log: Range<Offset>) -> Option<EpochEnd> {
        let last = self.entries.last()?;
        if epoch < LeaderEpoch(0) || epoch > last.epoch {
            return None;
        }
        if epoch == last.epoch {
            return Some(EpochEnd {
                epoch,
                end: log.end,
            });
        }
        let after = self.entries.partition_point(|e| e.epoch <= epoch);
        let end = self.entries.get(after)?.start.max(log.start);
        // Older than everything that is left: its records are gone, so the reader has to begin at our start.
        let epoch = match after.checked_sub(1).and_then(|i| self.entries.get(i)) {
            Some(floor) => floor.epoch,
            None => epoch,
        };
        Some(EpochEnd { epoch, end })
    }
    /// CRC-32C over the epochs that begin in `from..to`.
    pub(super) fn crc_between(&self, from: Offset, to: Offset) -> u32 {
        let mut crc = Crc::default();
        for e in self.between(from, to) {
            crc.update(&e.epoch.0.to_be_bytes());
            crc.update(&e.start.0.to_be_bytes());
        }
        crc.value()
    }
    /// The epoch that is current at `offset`.
    pub(super) fn entry_at(&self, offset: Offset) -> Option<EpochStart> {
        let after = self.entries.partition_point(|e| e.start <= offset);
        after
            .checked_sub(1)
            .and_then(|i| self.entries.get(i))
            .copied()
    }
    pub(super) fn between(&self, from: Offset, to: Offset) -> &[EpochStart] {
        let a = self.entries.partition_point(|e| e.start < from);
        let b = self.entries.partition_point(|e| e.start < to);
        self.entries.get(a..b).unwrap_or(&[])
    }
}

/// The text of `leader-epoch-checkpoint`: version 0, number of lines, then `epoch start` lines.
pub(super) fn encode_epochs(entries: &[EpochStart]) -> String {
    let mut text = format!("0\n{}\n", entries.len());
    for e in entries {
        let _ = writeln!(text, "{} {}", e.epoch, e.start);
    }
    text
}

/// Reads `leader-epoch-checkpoint`; `None` unless it is of version 0, whole, and rises in both fields.
pub fn parse_epochs(bytes: &[u8]) -> Option<Vec<EpochStart>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    if lines.next()? != "0" {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let mut out: Vec<EpochStart> = Vec::new();
    for line in lines {
        let (epoch, start) = line.split_once(' ')?;
        let entry = EpochStart {
            epoch: LeaderEpoch(epoch.parse().ok()?),
            start: Offset(start.parse().ok()?),
        };
        let rises = match out.last() {
            Some(last) => entry.epoch > last.epoch && entry.start > last.start,
            None => entry.epoch >= LeaderEpoch(0) && entry.start >= Offset(0),
        };
        if !rises {
            return None;
        }
        out.push(entry);
    }
    (out.len() == count).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(list: &[(i32, i64)]) -> Epochs {
        let mut out = Epochs::default();
        for (epoch, start) in list {
            out.on_batch(LeaderEpoch(*epoch), Offset(*start));
        }
        out
    }
    fn end(e: &Epochs, epoch: i32) -> Option<(i32, i64)> {
        e.end_of(LeaderEpoch(epoch), Offset(15)..Offset(100))
            .map(|e| (e.epoch.0, e.end.0))
    }

    #[test]
    fn the_end_of_an_epoch_is_the_start_of_the_next() {
        let e = epochs(&[(2, 10), (4, 20), (7, 50)]);
        assert_eq!(end(&e, -1), None);
        assert_eq!(end(&e, 0), Some((0, 15)));
        assert_eq!(end(&e, 2), Some((2, 20)));
        assert_eq!(end(&e, 3), Some((2, 20)));
        assert_eq!(end(&e, 6), Some((4, 50)));
        assert_eq!(end(&e, 7), Some((7, 100)));
        assert_eq!(end(&e, 8), None);
        assert_eq!(end(&Epochs::default(), 0), None);
    }

    #[test]
    fn cutting_and_dropping_keep_the_epoch_of_what_is_left() {
        let mut e = epochs(&[(2, 10), (4, 20), (7, 50)]);
        assert!(e.truncate(Offset(50)));
        assert_eq!(e, epochs(&[(2, 10), (4, 20)]));
        assert!(e.start_at(Offset(25)));
        assert_eq!(e, epochs(&[(4, 20)]));
        assert!(!e.start_at(Offset(25)));
        assert_eq!(e.epoch_at(Offset(19)), LeaderEpoch::NONE);
        assert_eq!(e.epoch_at(Offset(25)), LeaderEpoch(4));
        assert!(!e.on_batch(LeaderEpoch(4), Offset(30)));
    }

    #[test]
    fn the_checkpoint_is_kafkas_text() {
        assert_eq!(encode_epochs(epochs(&[(0, 0)]).entries()), "0\n1\n0 0\n");
        let e = epochs(&[(0, 0), (3, 17)]);
        assert_eq!(
            parse_epochs(encode_epochs(e.entries()).as_bytes()).as_deref(),
            Some(e.entries())
        );
        for bad in [
            "",
            "0",
            "0\n",
            "1\n0\n",
            "0\n2\n0 0\n",
            "0\n1\n0 0\n1 1\n",
            "0\n1\n0\n",
            "0\n1\n-1 0\n",
            "0\n2\n1 0\n1 5\n",
            "0\n2\n1 5\n2 5\n",
            "0\n1\nx 0\n",
            "0\n1\n0 99999999999999999999\n",
        ] {
            assert_eq!(parse_epochs(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(parse_epochs(&[0xff, 0]), None);
    }
}
