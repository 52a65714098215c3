//! Finding out what a log's folder holds: at its first use after a clean stop, and at recovery.
//!
//! Nothing beside the segments is believed before it is compared with what it is about; what is missing or wrong is made
//! again from the segments.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::batch::{BatchHeader, EndTxnMarker};
use riverlog_wire::{LeaderEpoch, Offset};

use super::check::{BLOCK, BlockCrc, Summary};
use super::epochs::{Epochs, parse_epochs};
use super::facts::Facts;
use super::producers::{Looked, Producers, Told};
use super::proof::{Known, compare, ends_as};
use super::queue::{Gate, Queued};
use super::scan::{Scan, ScanRules, Step, Walker, from_start, scan};
use super::segment::{Segment, Trust, disk_error, remove_file};
use super::snapshot::{parse_snapshot, restore};
use super::swap::{Swap, finish_swaps};
use super::tail::Tail;
use super::transactions::AbortedTransaction;
use crate::volume::EndCheck;
use crate::{DiskError, DiskFile, LogKey, OpenMode, Volume};

/// Kafka's name for the file of epochs.
pub(super) const EPOCHS_FILE: &str = "leader-epoch-checkpoint";

/// Everything of a log that is only in memory once the log is used.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) dir: Arc<str>,
    /// In order of base offset, never empty; the last one is written to. Shared with readers, so replaced and not changed.
    pub(super) segments: Arc<Vec<Arc<Segment>>>,
    /// Facts of the last segment, as they will be when the queue is written.
    pub(super) planned: Facts,
    pub(super) queue: VecDeque<Queued>,
    /// What the write that is out has taken from the queue.
    pub(super) in_flight: VecDeque<Queued>,
    pub(super) tail: Tail,
    pub(super) epochs: Epochs,
    pub(super) epochs_dirty: bool,
    pub(super) producers: Producers,
    /// When silent producers were last looked for, in this life.
    pub(super) looked: Option<Looked>,
    /// The snapshot that `producers` began with: what lies before it has nothing to add.
    pub(super) producers_since: Offset,
    /// Producer snapshots in the folder.
    pub(super) snapshots: BTreeSet<Offset>,
    /// Segments that are no longer part of the log, and whose files wait to be removed.
    pub(super) doomed: Vec<Arc<Segment>>,
    /// A segment whose file must be made before those of `doomed` go.
    pub(super) make: Option<Arc<Segment>>,
    /// What the mark says of the end of what is synced.
    pub(super) check: EndCheck,
    /// A cleaned segment that waits for its place.
    pub(super) swap: Option<Arc<Swap>>,
    /// A pass of the cleaner is under way.
    pub(super) cleaning: bool,
    /// The last segment's file goes on beyond its facts.
    pub(super) needs_cut: bool,
    pub(super) folder_made: bool,
    /// Entries of the folder (and of those above) that a power cut could take.
    pub(super) folder_unsynced: bool,
    /// The life that the upkeep which is out belongs to.
    pub(super) upkeep_out: Option<u64>,
    pub(super) gate: Arc<Gate>,
}

impl Loaded {
    /// A log without files whose next record gets `end`.
    pub(super) fn empty(key: LogKey, end: Offset) -> Loaded {
        let dir: Arc<str> = key.folder().into();
        let segment = Arc::new(Segment::new(key, dir.clone(), end));
        Loaded {
            planned: segment.facts(),
            segments: Arc::new(vec![segment]),
            dir,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            tail: Tail::default(),
            epochs: Epochs::default(),
            epochs_dirty: false,
            producers: Producers::default(),
            looked: None,
            producers_since: Offset(0),
            snapshots: BTreeSet::new(),
            doomed: Vec::new(),
            make: None,
            check: EndCheck::default(),
            swap: None,
            cleaning: false,
            needs_cut: false,
            folder_made: false,
            folder_unsynced: false,
            upkeep_out: None,
            gate: Arc::default(),
        }
    }
    pub(super) fn active(&self) -> &Arc<Segment> {
        // Never empty.
        &self.segments[self.segments.len() - 1]
    }
    pub(super) fn push_segment(&mut self, segment: Arc<Segment>) {
        self.planned = segment.facts();
        Arc::make_mut(&mut self.segments).push(segment);
    }
    /// Bytes in all segments, without what is queued.
    pub(super) fn written_bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.facts().size).sum()
    }
}

/// What to load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadRules {
    pub(super) key: LogKey,
    pub(super) start: Offset,
    /// Everything before it is durable; what is missing there is damage and stays part of the log.
    pub(super) trusted: Offset,
    /// Nothing at or after it belongs to the log; [`Offset`]'s largest value at recovery.
    pub(super) limit: Offset,
    /// The newest epoch before `trusted`.
    pub(super) epoch: LeaderEpoch,
    /// A producer snapshot beyond it may be of a life that a cut has ended.
    pub(super) snapshots_until: Offset,
    /// `index.interval.bytes`.
    pub(super) interval: u32,
    /// Of what is durable, when nobody knows whether it is still that.
    pub(super) check: EndCheck,
}

impl LoadRules {
    /// What `check` says of the segment that begins at `base`.
    fn check_of(&self, base: Offset) -> Option<EndCheck> {
        let check = self.check;
        (check.size > 0 && base + i64::from(check.records) == self.trusted).then_some(check)
    }
}

/// The base offset in a file's name.
pub(super) fn base_of(name: &str, extension: &str) -> Option<Offset> {
    let digits = name.strip_suffix(extension)?.strip_suffix('.')?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}

/// Loads a log. Its end is the `next` of the last segment's facts.
pub(super) fn load(volume: &Volume, rules: LoadRules) -> Result<Loaded, DiskError> {
    // What is missing before the start is missed by nobody, when something comes behind it.
    let reach = rules.trusted.max(rules.start);
    let mut out = Loaded::empty(rules.key, rules.trusted);
    let list = || {
        let listed = volume.disk().list(&out.dir);
        listed.map_err(disk_error("list", &out.dir))
    };
    let mut entries = list()?;
    let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    if finish_swaps(volume, rules.key, &out.dir, &names)? {
        entries = list()?;
    }
    let mut bases: Vec<Offset> = Vec::new();
    for entry in entries.iter().filter(|e| !e.is_dir) {
        bases.extend(base_of(&entry.name, "log"));
        out.snapshots.extend(base_of(&entry.name, "snapshot"));
    }
    bases.sort();
    out.folder_made = !entries.is_empty();
    let epochs_path = format!("{}/{EPOCHS_FILE}", out.dir);
    let checkpoint = Epochs::new(
        read_small(volume, &epochs_path)?
            .and_then(|bytes| parse_epochs(&bytes))
            .unwrap_or_default(),
    );
    let mut loader = Loader {
        volume,
        rules,
        dir: out.dir.clone(),
        checkpoint: &checkpoint,
        epochs: Epochs::default(),
        segments: Vec::new(),
        needs_cut: false,
        hole_at_end: false,
        empty_of_producers: None,
        gaps_until: Offset(0),
        whole_until: Offset(0),
        check: None,
        proven: false,
        spoiled: false,
    };
    let mut doomed = Vec::new();
    match bases.first() {
        // Nothing leads from the start to them: what lay between was never durable.
        Some(first) if *first > reach => std::mem::swap(&mut bases, &mut doomed),
        Some(first) if *first > rules.start => loader.lose_until(*first),
        // Gone by retention, or by a power cut.
        _ => {}
    }
    for (i, base) in bases.iter().enumerate() {
        if *base > rules.limit || !loader.segment(*base, bases.get(i + 1).copied())? {
            let from = i + usize::from(*base <= rules.limit);
            doomed = bases.get(from..).unwrap_or(&[]).to_vec();
            break;
        }
    }
    loader.close_hole();
    if loader.proven {
        out.check = rules.check;
    }
    let (needs_cut, empty_of_producers) = (loader.needs_cut, loader.empty_of_producers);
    out.epochs_dirty = loader.epochs != checkpoint;
    out.epochs = loader.epochs;
    let segments = loader.segments;
    if !segments.is_empty() {
        out.segments = Arc::new(segments);
        out.planned = out.active().facts();
        out.needs_cut = needs_cut;
    }
    for base in doomed {
        let segment = Segment::new(rules.key, out.dir.clone(), base);
        out.doomed.push(Arc::new(segment));
    }
    let end = out.planned.next;
    out.producers = load_producers(
        volume,
        &mut out,
        end.max(rules.start).min(rules.snapshots_until),
        empty_of_producers,
    )?;
    rebuild_aborted(volume, &out)?;
    Ok(out)
}

/// Makes the indexes of aborted transactions again that are missing or damaged, or end before their segments do: from the
/// newest producer snapshot that lies before them, and the batches that follow it.
pub(super) fn rebuild_aborted(volume: &Volume, log: &Loaded) -> Result<(), DiskError> {
    if active(Mutant::AbortedForgotten) {
        for segment in log.segments.iter() {
            segment.rebuilt_aborted(Vec::new());
        }
        return Ok(());
    }
    let unknown = log.segments.iter().filter(|s| !s.state().knows_aborted);
    let unknown: Vec<&Arc<Segment>> = unknown.collect();
    let (Some(first), Some(last)) = (unknown.first(), unknown.last()) else {
        return Ok(());
    };
    let mut producers = Producers::default();
    let mut from = Offset(0);
    for at in log.snapshots.range(..=first.base).rev() {
        let bytes = read_small(volume, &snapshot_path(&log.dir, *at))?;
        if let Some(entries) = bytes.and_then(|b| parse_snapshot(&b)) {
            (producers, from) = (restore(&entries), *at);
            break;
        }
    }
    let range = from..last.facts().next;
    let all = replay(volume, &log.segments, range, &[], &mut producers)?;
    for segment in unknown {
        let next = segment.facts().next;
        let here = |a: &&AbortedTransaction| a.last >= segment.base && a.last < next;
        segment.rebuilt_aborted(all.iter().filter(here).copied().collect());
    }
    Ok(())
}

struct Loader<'a> {
    volume: &'a Volume,
    rules: LoadRules,
    dir: Arc<str>,
    checkpoint: &'a Epochs,
    epochs: Epochs,
    segments: Vec<Arc<Segment>>,
    needs_cut: bool,
    /// The last segment ends before the log does.
    hole_at_end: bool,
    /// Up to where no producer was known.
    empty_of_producers: Option<Offset>,
    /// Offsets may be missing in the segment up to here.
    gaps_until: Offset,
    /// No offsets are missing in the segment up to here.
    whole_until: Offset,
    /// What the mark says of the segment.
    check: Option<EndCheck>,
    /// What lies beside the segment says the same.
    proven: bool,
    /// The end of the segment isn't that.
    spoiled: bool,
}

impl Loader<'_> {
    /// Loads one segment. False: it ends the log, and the ones after it don't belong to it.
    fn segment(&mut self, base: Offset, successor: Option<Offset>) -> Result<bool, DiskError> {
        let LoadRules { key, trusted, .. } = self.rules;
        self.spoiled = false;
        let fresh = Segment::new(key, self.dir.clone(), base);
        let path = fresh.path("log");
        let file = self.volume.file(&path, OpenMode::Read)?;
        let len = file.len().map_err(disk_error("look at", &path))?;
        let limit = successor.map_or(self.rules.limit, |s| s.min(self.rules.limit));
        // Whatever a segment's successor's base says, everything before it was durable when the mark went beyond it.
        let settled = successor.is_some_and(|s| s <= trusted);
        let trusted = trusted.min(limit);
        let summary = fresh.read_summary(self.volume)?;
        // Where nothing says any more what is durable, a segment's own word tells gaps that compaction made from an end.
        let next_where = |gaps| {
            summary
                .filter(|s| s.gaps == gaps)
                .map_or(Offset(0), |s| s.next)
        };
        self.gaps_until = next_where(true);
        self.whole_until = next_where(false);
        self.check = self
            .rules
            .check_of(base)
            .filter(|c| u64::from(c.size) <= len);
        let crc = !settled || self.check.is_some();
        let summary = summary.filter(|s| s.next <= trusted && s.next >= base);
        let (segment, scanned) = match summary {
            // Behind it lies at most what can't be read.
            Some(summary) if settled && (summary.size >= len || summary.next == limit) => {
                self.add_summarized(base, &summary)?
            }
            Some(summary) if summary.size <= len => {
                let segment = Segment::found(key, self.dir.clone(), base, &summary);
                if segment.check_indexes(self.volume)? {
                    segment.state().trust = Trust::Good;
                    let (segment, _) = self.add_segment(segment, &summary)?;
                    let scanned = self.scan_rest(&segment, file, &summary, trusted, limit, crc)?;
                    (segment, scanned)
                } else {
                    self.scan_all(fresh, file, trusted, limit, crc)?
                }
            }
            _ => self.scan_all(fresh, file, trusted, limit, crc)?,
        };
        let mut state = segment.state();
        state.made = true;
        let reached = state.facts.next;
        if self.rules.limit > reached && reached > trusted {
            // A process that died may have left it in the system's memory only.
            state.unsynced = Some(self.volume.file(&path, OpenMode::Write)?);
        }
        let goes_on = match successor {
            // A batch that reaches into the next segment: that one is of a life that a crash has undone.
            Some(next) if reached == next => true,
            // What is missing lies before the start.
            Some(next) if next <= self.rules.start => {
                state.facts.next = next;
                true
            }
            // Something durable is missing: readers must be told, and no offset is given twice.
            _ if reached < trusted => {
                state.facts.next = trusted;
                self.hole_at_end = successor != Some(trusted);
                !self.hole_at_end
            }
            _ => {
                self.needs_cut = scanned.is_some_and(|s| s.stray);
                if self.needs_cut {
                    sometimes(Mark::TornTailCut);
                }
                false
            }
        };
        if self.spoiled && !goes_on {
            // What comes next is not to be doubted with it.
            self.hole_at_end = true;
        }
        state.sealed = goes_on;
        drop(state);
        self.segments.push(segment);
        Ok(goes_on)
    }

    /// A segment that was complete when its summary was written.
    fn add_summarized(
        &mut self,
        base: Offset,
        summary: &Summary,
    ) -> Result<(Arc<Segment>, Option<Scan>), DiskError> {
        let segment = Segment::found(self.rules.key, self.dir.clone(), base, summary);
        self.add_segment(segment, summary)
    }

    /// Takes a summary's word for a segment's epochs, once the checkpoint agrees with it.
    fn add_segment(
        &mut self,
        segment: Segment,
        summary: &Summary,
    ) -> Result<(Arc<Segment>, Option<Scan>), DiskError> {
        let segment = Arc::new(segment);
        if summary.aborted.0 > 0
            && let Some(all) = segment.read_aborted(self.volume, summary.aborted)?
        {
            segment.found_aborted(all);
        }
        if summary.producers == 0 {
            self.empty_of_producers = Some(summary.next);
        }
        if summary.size == 0 {
            return Ok((segment, None));
        }
        let (from, to) = (segment.base, summary.next);
        let agrees = self.checkpoint.crc_between(from, to) == summary.epochs_crc
            && self.checkpoint.epoch_at(from) == summary.first_epoch
            && self.checkpoint.epoch_at(to + -1) == summary.last_epoch;
        if agrees {
            if let Some(floor) = self.checkpoint.entry_at(from) {
                self.epochs.on_batch(floor.epoch, floor.start);
            }
            for entry in self.checkpoint.between(from, to) {
                self.epochs.on_batch(entry.epoch, entry.start);
            }
        } else {
            let file = segment.file(self.volume)?;
            walk_headers(&segment, file, 0, segment.base, |h, _| {
                self.epochs.on_batch(h.leader_epoch, h.base_offset);
            })?;
        }
        Ok((segment, None))
    }

    /// Goes on where the summary ends.
    fn scan_rest(
        &mut self,
        segment: &Segment,
        file: Arc<dyn DiskFile>,
        summary: &Summary,
        trusted: Offset,
        limit: Offset,
        crc: bool,
    ) -> Result<Option<Scan>, DiskError> {
        let facts = Facts::from_summary(summary);
        let block = BlockCrc::resume(segment.seed, summary.size, summary.tail_crc);
        let mut scan = self.scan(segment, file.clone(), facts, block, trusted, limit, crc)?;
        let known = match self.check {
            // Readers compare with the summary and the entries.
            Some(c)
                if u64::from(c.size) == summary.size && segment.has_entries(self.volume, c)? =>
            {
                self.proven = true;
                Known::Nothing
            }
            Some(check) => Known::Checked(check),
            None => Known::Nothing,
        };
        let first = summary.size / BLOCK;
        self.spoiled = compare(self.volume, segment, &file, known, first, &mut scan.rebuilt)?
            || !ends_as(segment, &file, summary);
        let clean = self.rules.limit == self.rules.trusted;
        segment.extended(&mut scan.rebuilt, !clean);
        Ok(Some(scan))
    }

    fn scan_all(
        &mut self,
        segment: Segment,
        file: Arc<dyn DiskFile>,
        trusted: Offset,
        limit: Offset,
        crc: bool,
    ) -> Result<(Arc<Segment>, Option<Scan>), DiskError> {
        let (facts, block) = from_start(&segment);
        let mut scan = self.scan(&segment, file.clone(), facts, block, trusted, limit, crc)?;
        let known = match self.check {
            Some(check) => Known::Checked(check),
            None if limit <= trusted => Known::Settled,
            _ => Known::Nothing,
        };
        self.spoiled = compare(self.volume, &segment, &file, known, 0, &mut scan.rebuilt)?;
        segment.rebuilt(&mut scan.rebuilt);
        Ok((Arc::new(segment), Some(scan)))
    }

    #[allow(clippy::too_many_arguments)]
    fn scan(
        &mut self,
        segment: &Segment,
        file: Arc<dyn DiskFile>,
        facts: Facts,
        block: BlockCrc,
        trusted: Offset,
        limit: Offset,
        crc: bool,
    ) -> Result<Scan, DiskError> {
        // A batch that reaches into the next segment tells that this one is not the log's any more; but not where the next
        // one is durable, nor where the log was cut in the middle of the batch that held its start.
        let reach = if limit <= self.rules.start.max(self.rules.trusted) {
            limit
        } else {
            Offset(i64::MAX)
        };
        let rules = ScanRules {
            trusted,
            limit,
            reach,
            epoch: self.rules.epoch,
            gaps_until: self.gaps_until,
            whole_until: self.whole_until,
            crc,
            interval: self.rules.interval,
        };
        let mut facts = facts;
        // Epochs never fall from one segment to the next either.
        if facts.is_empty() {
            facts.last_epoch = self.epochs.last();
        }
        scan(segment, file, facts, block, rules, |h| {
            self.epochs.on_batch(h.leader_epoch, h.base_offset);
        })
    }

    /// Where the log's end is missing, the next record goes into a segment of its own behind the hole.
    fn close_hole(&mut self) {
        let trusted = self.rules.trusted;
        if self.segments.is_empty() && self.rules.start < trusted {
            // All files are gone, though there were records.
            self.lose_until(trusted);
            self.hole_at_end = true;
        }
        if self.hole_at_end
            && let Some(last) = self.segments.last()
        {
            let end = {
                let mut state = last.state();
                state.sealed = true;
                state.facts.next
            };
            self.needs_cut = false;
            self.begin_segment(end);
        }
    }

    /// The files that held what lies between the start and `to` are gone.
    fn lose_until(&mut self, to: Offset) {
        let LoadRules { key, start, .. } = self.rules;
        let lost = Segment::new(key, self.dir.clone(), start);
        {
            let mut state = lost.state();
            state.facts.next = to;
            state.sealed = true;
        }
        self.segments.push(Arc::new(lost));
    }

    fn begin_segment(&mut self, base: Offset) {
        let segment = Segment::new(self.rules.key, self.dir.clone(), base);
        self.segments.push(Arc::new(segment));
    }
}

/// The content of a small file; `None` when it is missing.
pub(super) fn read_small(volume: &Volume, path: &str) -> Result<Option<Vec<u8>>, DiskError> {
    let file = match volume.disk().open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(disk_error("open", path)(e)),
    };
    let len = file.len().map_err(disk_error("look at", path))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let n = file
        .read_at(&mut bytes, 0)
        .map_err(disk_error("read", path))?;
    bytes.truncate(n);
    Ok(Some(bytes))
}

/// Gives every readable batch header, and what markers mark, from position `at` (where a batch of offset `from` or later
/// begins) to the end of the segment. Damaged places are passed over.
fn walk_headers(
    segment: &Segment,
    file: Arc<dyn DiskFile>,
    at: u64,
    from: Offset,
    mut each: impl FnMut(&BatchHeader, Option<EndTxnMarker>),
) -> Result<(), DiskError> {
    let facts = segment.facts();
    let mut walker = Walker::new(segment, file, at, facts.size, from, true);
    walker.until = facts.next;
    loop {
        let expected = walker.expected;
        let step = walker.next()?;
        match step {
            // Nothing of the segment is: also one that lies where a batch begins may be of another place.
            Step::Batch { header, at } if header.next_offset() > facts.next => {
                walker.at = at;
                walker.expected = expected;
                if !walker.resync()? {
                    return Ok(());
                }
            }
            Step::Batch { header, at } => each(&header, walker.marker(&header, at)?),
            Step::End => return Ok(()),
            Step::Bad { .. } => {
                if !walker.resync()? {
                    return Ok(());
                }
            }
        }
    }
}

/// The name of a producer snapshot.
pub(super) fn snapshot_path(dir: &str, at: Offset) -> String {
    format!("{dir}/{:020}.snapshot", at.0)
}

/// Producer state at the log's end: the newest snapshot that can be believed, and a replay of what follows it.
///
/// A snapshot is only written once the segments are durable up to it; those beyond `usable` are of records that were cut, and
/// are removed. `empty_at`: no producer was known there.
pub(super) fn load_producers(
    volume: &Volume,
    log: &mut Loaded,
    usable: Offset,
    empty_at: Option<Offset>,
) -> Result<Producers, DiskError> {
    if active(Mutant::ProducersForgotten) {
        return Ok(Producers::default());
    }
    let doubtful = log.snapshots.split_off(&(usable + 1));
    for at in doubtful {
        remove_file(volume, &snapshot_path(&log.dir, at))?;
        log.folder_unsynced = true;
    }
    let mut from = log.segments.first().map_or(usable, |s| s.base);
    let mut producers = Producers::default();
    log.producers_since = Offset(0);
    for at in log.snapshots.iter().rev() {
        if empty_at.is_some_and(|empty| empty >= *at) {
            break;
        }
        let bytes = read_small(volume, &snapshot_path(&log.dir, *at))?;
        if let Some(entries) = bytes.and_then(|b| parse_snapshot(&b)) {
            producers = restore(&entries);
            from = *at;
            log.producers_since = from;
            break;
        }
    }
    if let Some(empty) = empty_at.filter(|e| *e >= from) {
        producers = Producers::default();
        from = empty;
        log.producers_since = from;
    }
    let all = Offset(i64::MAX);
    replay(volume, &log.segments, from..all, &[], &mut producers)?;
    Ok(producers)
}

/// Producer state at `at`: from the snapshot at `older`, if it is sound, and the batches of `segments`.
pub(super) fn producers_at(
    volume: &Volume,
    dir: &str,
    segments: &[Arc<Segment>],
    older: Option<Offset>,
    at: Offset,
) -> Result<Producers, DiskError> {
    let bytes = match older {
        Some(older) => read_small(volume, &snapshot_path(dir, older))?,
        None => None,
    };
    let (mut producers, from) = match bytes.and_then(|b| parse_snapshot(&b)) {
        Some(entries) => (restore(&entries), older.unwrap_or_default()),
        None => (Producers::default(), Offset(0)),
    };
    replay(volume, segments, from..at, &[], &mut producers)?;
    Ok(producers)
}

/// Applies the batches that begin in `range`: those of `segments`, and in their places those of `gone`, which are not in them
/// any more and in order. Returns the transactions that were aborted.
pub(super) fn replay(
    volume: &Volume,
    segments: &[Arc<Segment>],
    range: Range<Offset>,
    gone: &[Told],
    producers: &mut Producers,
) -> Result<Vec<AbortedTransaction>, DiskError> {
    let from = range.start;
    let mut aborted = Vec::new();
    let mut gone = gone.iter().peekable();
    let mut apply = |producers: &mut Producers, told: &Told| {
        let at = told.header.base_offset;
        if range.contains(&at) {
            while let Some(earlier) = gone.next_if(|g| g.header.base_offset < at) {
                earlier.tell(producers);
            }
            aborted.extend(told.tell(producers).aborted);
        }
    };
    for segment in segments {
        let facts = segment.facts();
        if facts.next <= from || facts.is_empty() || segment.base >= range.end {
            continue;
        }
        let start = segment
            .floor_index(volume, |e| e.last_offset(segment.base) < from)?
            .map_or(0, |e| e.position as u64);
        let file = segment.file(volume)?;
        let mut believed = start == 0;
        let mut first = true;
        walk_headers(segment, file.clone(), start, segment.base, |h, marker| {
            // An index that led into the middle of something shows at the first step.
            if std::mem::take(&mut first) && h.base_offset <= from {
                believed = true;
            }
            if believed {
                apply(producers, &Told { header: *h, marker });
            }
        })?;
        if !believed {
            walk_headers(segment, file, 0, segment.base, |h, marker| {
                apply(producers, &Told { header: *h, marker });
            })?;
        }
    }
    for told in gone {
        told.tell(producers);
    }
    Ok(aborted)
}
