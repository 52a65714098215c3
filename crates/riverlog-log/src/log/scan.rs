//! Walking a segment batch by batch: to find a place, to check bytes, to make lost facts again.

use std::sync::Arc;

use riverlog_wire::batch::{Batch, BatchHeader, EndTxnMarker, HEADER_LEN};
use riverlog_wire::{LeaderEpoch, Offset};

use super::check::BlockCrc;
use super::facts::{BatchInfo, Facts};
use super::proof::Hurt;
use super::segment::{Rebuilt, Segment, disk_error};
use super::transactions::marker_of;
use crate::{DiskError, DiskFile};

/// Bytes read at once when only headers are wanted.
const STRIDE: usize = 4096;
/// Bytes read at once when everything is wanted.
const GULP: usize = 256 * 1024;

/// A step of a [`Walker`].
#[derive(Debug)]
pub(super) enum Step {
    /// A batch whose header is plausible.
    Batch { header: BatchHeader, at: u64 },
    /// What lies at `at` can't be the next batch.
    Bad { at: u64, reason: String },
    /// Nothing more.
    End,
}

/// Goes through the batches of a segment's file between two positions.
#[derive(Debug)]
pub(super) struct Walker {
    file: Arc<dyn DiskFile>,
    path: String,
    base: Offset,
    pub(super) at: u64,
    end: u64,
    /// The offset that the next batch begins at, or, where gaps are legal, at the earliest.
    pub(super) expected: Offset,
    gaps: bool,
    /// No batch behind damage reaches beyond it.
    pub(super) until: Offset,
    /// But one may begin there.
    more: bool,
    buffer: Vec<u8>,
    buffer_at: u64,
}

impl Walker {
    /// `at` is where a batch begins, `expected` its offset (or an earlier one, with `gaps`).
    pub(super) fn new(
        segment: &Segment,
        file: Arc<dyn DiskFile>,
        at: u64,
        end: u64,
        expected: Offset,
        gaps: bool,
    ) -> Walker {
        Walker {
            file,
            path: segment.path("log"),
            base: segment.base,
            at,
            end,
            expected,
            gaps,
            until: Offset(i64::MAX),
            more: false,
            buffer: Vec::new(),
            buffer_at: 0,
        }
    }

    /// `need` bytes at `at`, fewer where the walk's end cuts them; reads `want` when it must read.
    pub(super) fn bytes(&mut self, at: u64, need: usize, want: usize) -> Result<&[u8], DiskError> {
        let need = need.min(usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX));
        let inside =
            at >= self.buffer_at && at + need as u64 <= self.buffer_at + self.buffer.len() as u64;
        if !inside {
            let want = want
                .max(need)
                .min(usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX));
            self.buffer.clear();
            self.buffer.resize(want, 0);
            let n = self
                .file
                .read_at(&mut self.buffer, at)
                .map_err(disk_error("read", &self.path))?;
            self.buffer.truncate(n);
            self.buffer_at = at;
        }
        let from = (at - self.buffer_at) as usize;
        let to = (from + need).min(self.buffer.len());
        Ok(self.buffer.get(from..to).unwrap_or(&[]))
    }

    /// The header of the batch at the walk's place. Doesn't move.
    pub(super) fn look(&mut self, want: usize) -> Result<Step, DiskError> {
        let (at, end, base, expected, gaps) =
            (self.at, self.end, self.base, self.expected, self.gaps);
        if at >= end {
            return Ok(Step::End);
        }
        let bytes = self.bytes(at, HEADER_LEN, want)?;
        let header = match BatchHeader::parse(bytes) {
            Ok(header) => header,
            Err(e) => {
                return Ok(Step::Bad {
                    at,
                    reason: e.to_string(),
                });
            }
        };
        let reason = implausible(&header, base, end - at).or_else(|| {
            let fits = if gaps {
                header.base_offset >= expected
            } else {
                header.base_offset == expected
            };
            (!fits).then(|| {
                format!(
                    "a batch of offset {} lies where offset {expected} was expected",
                    header.base_offset
                )
            })
        });
        Ok(match reason {
            Some(reason) => Step::Bad { at, reason },
            None => Step::Batch { header, at },
        })
    }

    /// Goes past a batch.
    pub(super) fn pass(&mut self, header: &BatchHeader) {
        self.at += header.size() as u64;
        self.expected = header.next_offset();
    }

    /// The next batch, header only.
    pub(super) fn next(&mut self) -> Result<Step, DiskError> {
        let step = self.look(STRIDE)?;
        if let Step::Batch { header, .. } = &step {
            self.pass(header);
        }
        Ok(step)
    }

    /// What the control batch at `at` marks, see [`marker_of`].
    pub(super) fn marker(
        &mut self,
        header: &BatchHeader,
        at: u64,
    ) -> Result<Option<EndTxnMarker>, DiskError> {
        if !header.attributes.is_control() {
            return Ok(None);
        }
        let bytes = self.bytes(at, header.size(), STRIDE)?;
        Ok(marker_of(header, bytes))
    }

    /// The next batch with its bytes, whose CRC is right.
    pub(super) fn next_checked(&mut self) -> Result<(Step, &[u8]), DiskError> {
        let step = self.look(GULP)?;
        let Step::Batch { header, at } = step else {
            return Ok((step, &[]));
        };
        let size = header.size();
        let short = {
            let bytes = self.bytes(at, size, GULP)?;
            match (Batch { header, bytes }).check_crc() {
                _ if bytes.len() < size => Some("the file ends inside a batch".to_owned()),
                Err(e) => Some(e.to_string()),
                Ok(()) => None,
            }
        };
        if let Some(reason) = short {
            return Ok((Step::Bad { at, reason }, &[]));
        }
        self.pass(&header);
        let bytes = self.bytes(at, size, GULP)?;
        Ok((Step::Batch { header, at }, bytes))
    }

    /// Whether a batch that was passed just now, and lies behind a gap that begins at `expected`, is not of the offsets that it
    /// says. Gaps end at batches, the last of them no later than what is durable.
    fn strays(
        &mut self,
        header: &BatchHeader,
        expected: Offset,
        rules: &ScanRules,
    ) -> Result<bool, DiskError> {
        let beyond = header.next_offset() > rules.trusted.max(rules.gaps_until);
        if expected < rules.whole_until || beyond {
            return Ok(true);
        }
        let (at, base, end) = (self.at, self.base, self.end);
        let bytes = self.bytes(at, HEADER_LEN, STRIDE)?;
        // The one behind it goes on from before the gap.
        Ok(BatchHeader::parse(bytes).is_ok_and(|next| {
            implausible(&next, base, end.saturating_sub(at)).is_none()
                && (expected.0..header.next_offset().0).contains(&next.base_offset.0)
        }))
    }

    /// Looks, from one byte after the walk's place, for the next sound batch that may belong there, and goes to it.
    /// False: there is none.
    pub(super) fn resync(&mut self) -> Result<bool, DiskError> {
        let mut at = self.at + 1;
        while at + HEADER_LEN as u64 <= self.end {
            let window = self.bytes(at, GULP, GULP)?;
            if window.len() < HEADER_LEN {
                break;
            }
            let places = window.len() - HEADER_LEN + 1;
            // The magic is the cheapest thing to look at.
            let found = (0..places).find(|i| window.get(i + 16) == Some(&2));
            match found {
                None => at += places as u64,
                Some(i) => {
                    at += i as u64;
                    if let Some(base) = self.sound_at(at)? {
                        self.at = at;
                        self.expected = base;
                        return Ok(true);
                    }
                    at += 1;
                }
            }
        }
        Ok(false)
    }

    /// The offset of a sound batch that may follow, if one begins at `at` with another one (or the end) right behind it:
    /// bytes inside a record can look like a batch.
    fn sound_at(&mut self, at: u64) -> Result<Option<Offset>, DiskError> {
        let (base, end, expected) = (self.base, self.end, self.expected);
        let plausible = |header: &BatchHeader, at: u64, expected: Offset| {
            implausible(header, base, end - at).is_none() && header.base_offset >= expected
        };
        let (until, more) = (self.until, self.more);
        let Ok(header) = BatchHeader::parse(self.bytes(at, HEADER_LEN, GULP)?) else {
            return Ok(None);
        };
        // What was written to the wrong place is as sound, but its offsets are another log's, or of elsewhere in this one.
        let inside = header.next_offset() <= until || (more && header.base_offset == until);
        if !inside || !plausible(&header, at, expected) {
            return Ok(None);
        }
        let bytes = self.bytes(at, header.size(), GULP)?;
        if bytes.len() < header.size() || (Batch { header, bytes }).check_crc().is_err() {
            return Ok(None);
        }
        let behind = at + header.size() as u64;
        let goes_on = behind == end
            || match BatchHeader::parse(self.bytes(behind, HEADER_LEN, GULP)?) {
                Ok(next) => plausible(&next, behind, header.next_offset()),
                Err(_) => false,
            };
        Ok(goes_on.then_some(header.base_offset))
    }
}

/// What no batch of a segment that begins at `base`, with `room` bytes left, can say.
fn implausible(header: &BatchHeader, base: Offset, room: u64) -> Option<String> {
    if header.size() as u64 > room {
        return Some(format!(
            "a batch of {} bytes lies where {room} bytes are left",
            header.size()
        ));
    }
    let reach = header.last_offset() - base;
    if header.base_offset < base || reach > i64::from(i32::MAX) {
        return Some(format!(
            "a batch of offset {} can't be in this segment",
            header.base_offset
        ));
    }
    None
}

/// How to scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanRules {
    /// Below it everything is durable: what doesn't fit there is damage. From it on it is a torn tail.
    pub(super) trusted: Offset,
    /// Nothing at or after it belongs to the log.
    pub(super) limit: Offset,
    /// No batch of the log reaches beyond it.
    pub(super) reach: Offset,
    /// Offsets may also be missing up to here.
    pub(super) gaps_until: Offset,
    /// None are missing up to here.
    pub(super) whole_until: Offset,
    /// The newest epoch that what is durable can be of.
    pub(super) epoch: LeaderEpoch,
    /// Read and check every byte; otherwise headers only, and the blocks get no CRC.
    pub(super) crc: bool,
    /// `index.interval.bytes`.
    pub(super) interval: u32,
}

/// What a scan found.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) rebuilt: Rebuilt,
    /// Bytes follow that don't belong to the log.
    pub(super) stray: bool,
}

/// Goes on from what is known of a segment's first `facts.size` bytes to the end of its file. `each` gets every batch.
pub(super) fn scan(
    segment: &Segment,
    file: Arc<dyn DiskFile>,
    facts: Facts,
    block: BlockCrc,
    rules: ScanRules,
    mut each: impl FnMut(&BatchHeader),
) -> Result<Scan, DiskError> {
    let path = segment.path("log");
    let end = file.len().map_err(disk_error("look at", &path))?;
    let mut walker = Walker::new(segment, file, facts.size, end, facts.next, false);
    // What is durable ends there, and what comes behind it has no gaps.
    walker.until = rules.limit.min(rules.trusted.max(rules.gaps_until));
    walker.more = walker.until < rules.limit;
    let mut rebuilt = Rebuilt {
        own_from: if rules.crc { facts.size } else { u64::MAX },
        facts,
        index: Vec::new(),
        time: Vec::new(),
        blocks: Vec::new(),
        block,
        markers: false,
        bad: Vec::new(),
    };
    loop {
        // Compaction and erasure leave gaps, but only in what has been durable for long.
        walker.gaps = walker.expected < rules.trusted.max(rules.gaps_until);
        let expected = walker.expected;
        let step = match rules.crc {
            true => walker.next_checked()?.0,
            false => walker.next()?,
        };
        match step {
            Step::End => break,
            // The CRC doesn't cover the epoch, and nobody has had this one yet; nor does it cover the base offset.
            Step::Batch { header, at }
                if (header.leader_epoch > rules.epoch && header.base_offset < rules.trusted)
                    || (header.base_offset > expected
                        && walker.strays(&header, expected, &rules)?) =>
            {
                walker.at = at;
                walker.expected = expected;
                if !walker.resync()? {
                    break;
                }
                pass_over(&mut rebuilt, &walker, at, rules.crc);
            }
            Step::Batch { header, .. }
                if header.base_offset >= rules.limit
                    || header.next_offset() > rules.reach
                    || (header.leader_epoch < rebuilt.facts.last_epoch
                        && header.base_offset >= rules.trusted) =>
            {
                // Of an earlier life, or of a later one that was cut.
                break;
            }
            Step::Batch { header, at } => {
                if rules.crc {
                    let bytes = walker.bytes(at, header.size(), GULP)?;
                    rebuilt.block.update(bytes, &mut rebuilt.blocks);
                } else {
                    rebuilt
                        .block
                        .skip(header.size() as u64, &mut rebuilt.blocks);
                }
                let info = BatchInfo::new(&header, -1);
                let attributes = header.attributes;
                rebuilt.markers |= attributes.is_control() && attributes.is_transactional();
                let marks = rebuilt.facts.add(segment.base, &info, rules.interval);
                rebuilt.index.extend(marks.index);
                rebuilt.time.extend(marks.time);
                each(&header);
            }
            Step::Bad { at, .. } => {
                if walker.expected >= rules.trusted || !walker.resync()? {
                    break;
                }
                pass_over(&mut rebuilt, &walker, at, rules.crc);
            }
        }
    }
    Ok(Scan {
        stray: rebuilt.facts.size < end,
        rebuilt,
    })
}

/// Damage in what was durable, from `at` on. The readable rest goes on behind it.
fn pass_over(rebuilt: &mut Rebuilt, walker: &Walker, at: u64, crc: bool) {
    let skipped = walker.at - at;
    rebuilt.block.skip(skipped, &mut rebuilt.blocks);
    rebuilt.bad.push(Hurt {
        at: at..walker.at,
        base: rebuilt.facts.next,
        epoch: None,
    });
    rebuilt.facts.size += skipped;
    rebuilt.facts.next = walker.expected;
    rebuilt.own_from = if crc { walker.at } else { u64::MAX };
}

/// Facts of nothing, for a scan from the start.
pub(super) fn from_start(segment: &Segment) -> (Facts, BlockCrc) {
    (Facts::new(segment.base), BlockCrc::start(segment.seed))
}
