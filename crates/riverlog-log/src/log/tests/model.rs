//! Random operations, kills and power cuts against a simple model.
//!
//! The model keeps every batch that was ever appended. What must hold: everything below `synced` is there after anything,
//! with its offsets and its bytes; nothing is ever there that wasn't appended; epochs don't fall; producer state is what a
//! replay gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverlog_wire::batch::{Batch, BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

use super::support::{KEY, read_slices, volume_settings};
use crate::disk::CrashDisk;
use crate::log::{AppendAs, Log, LogSettings, ReadError};
use crate::{Disk, DiskError, OpenMode, Volume};

/// splitmix64: a run is its seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Known {
    pub(super) base: i64,
    pub(super) next: i64,
    pub(super) bytes: Vec<u8>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let epoch = Batch::parse(&self.bytes).unwrap().header.leader_epoch;
        write!(f, "{}..{} of {epoch}", self.base, self.next)
    }
}

/// Last sequence and last offset of the batches that are remembered of a producer.
type Window = Vec<(i32, i64)>;
/// Id, epoch, window, and where its transaction began.
type Producer = (i64, i16, Window, Option<i64>);

/// What the log should hold.
#[derive(Default)]
pub(super) struct Model {
    /// From the first offset on, whatever retention has taken since.
    pub(super) log: Vec<Known>,
    /// Every batch that was ever appended.
    pub(super) ever: BTreeSet<Known>,
    start: i64,
    /// A start offset that survives anything.
    start_durable: i64,
    /// Everything below survives anything.
    synced: i64,
    pub(super) epoch: i32,
    pub(super) now_ms: i64,
    sequences: BTreeMap<i64, (i16, i32)>,
    /// Where the log began anew, empty.
    anew: i64,
    /// A power cut took records that no producer's state survives without: it can't be told what is known from here on.
    pub(super) forgotten: bool,
}

impl Model {
    fn end(&self) -> i64 {
        self.log.last().map_or(0, |b| b.next).max(self.anew)
    }
    /// Producers as a replay of everything gives them.
    fn producers(&self) -> Vec<Producer> {
        let mut out: BTreeMap<i64, (i16, Window, Option<i64>)> = BTreeMap::new();
        for known in &self.log {
            let header = Batch::parse(&known.bytes).unwrap().header;
            if header.producer_id >= ProducerId(0) {
                let (epoch, window, open) = out.entry(header.producer_id.0).or_default();
                if *epoch != header.producer_epoch.0 {
                    *epoch = header.producer_epoch.0;
                    window.clear();
                }
                if header.attributes.is_control() {
                    *open = None;
                    continue;
                }
                if header.attributes.is_transactional() {
                    open.get_or_insert(known.base);
                }
                window.push((header.last_sequence().0, header.last_offset().0));
                if window.len() > 5 {
                    window.remove(0);
                }
            }
        }
        let each = out.into_iter();
        each.map(|(id, (e, w, open))| (id, e, w, open)).collect()
    }
    fn cut(&mut self, to: i64) {
        while self.log.last().is_some_and(|b| b.next > to) {
            self.log.pop();
        }
        self.resume_sequences();
    }
    fn resume_sequences(&mut self) {
        self.sequences.clear();
        for (id, epoch, window, _) in self.producers() {
            let last = window.last().map_or(-1, |(sequence, _)| *sequence);
            self.sequences.insert(id, (epoch, Sequence(last).plus(1).0));
        }
    }
}

pub(super) struct Run {
    pub(super) random: Random,
    pub(super) disk: CrashDisk,
    settings: LogSettings,
    volume: Option<Arc<Volume>>,
    pub(super) log: Option<Log>,
    pub(super) model: Model,
}

impl Run {
    pub(super) fn new(seed: u64, sync: bool) -> Run {
        let mut random = Random(seed);
        let settings = LogSettings {
            segment_bytes: 300 + random.below(2000),
            index_interval_bytes: random.below(400) as u32,
            retention_ms: None,
            segment_ms: None,
            sync,
            ..LogSettings::default()
        };
        let mut run = Run {
            disk: CrashDisk::new(seed),
            random,
            settings,
            volume: None,
            log: None,
            model: Model::default(),
        };
        run.open().unwrap();
        run
    }

    fn open(&mut self) -> Result<(), String> {
        self.volume = None;
        self.log = None;
        let settings = crate::VolumeSettings {
            tail_cache_bytes: self.random.below(3) as usize * 600,
            ..volume_settings()
        };
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let volume = Volume::open(disk, settings).map_err(|e| e.to_string())?;
        let log = volume
            .open_log(KEY, self.settings.clone())
            .map_err(|e| e.to_string())?;
        volume.recovered().map_err(|e| e.to_string())?;
        self.volume = Some(volume);
        self.log = Some(log);
        Ok(())
    }

    /// One random operation; an error is the disk's.
    fn step(&mut self) -> Result<(), DiskError> {
        let result = self.random_step();
        self.trace();
        result
    }
    /// Shown by the test harness when a run fails.
    fn trace(&mut self) {
        let forgotten = self.model.forgotten;
        let log = self.log();
        let segments: Vec<String> = log
            .loaded
            .get()
            .map(|l| l.segments.iter())
            .into_iter()
            .flatten()
            .map(|s| format!("{}..{}:{}", s.base, s.facts().next, s.facts().size))
            .collect();
        println!(
            "{} start {} written {} end {} synced {} in {segments:?}",
            if forgotten { "~" } else { " " },
            log.log_start_offset(),
            log.written(),
            log.log_end_offset(),
            log.synced(),
        );
    }
    fn random_step(&mut self) -> Result<(), DiskError> {
        match self.random.below(100) {
            0..26 => self.append(),
            26..40 => super::model_transactions::step(self),
            40..60 => self.write(),
            60..72 => self.flush(),
            72..80 => self.sync(),
            80..84 => self.check_reads(),
            84..87 => self.delete_records(),
            87..90 => self.retain(),
            90..93 => self.truncate(),
            93..95 => self.volume().checkpoint(false),
            95..97 => self.volume().upkeep().map(|_| ()),
            _ => {
                self.model.epoch += 1;
                Ok(())
            }
        }
    }
    fn volume(&self) -> &Arc<Volume> {
        self.volume.as_ref().unwrap()
    }
    pub(super) fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }
    fn note_synced(&mut self) {
        let synced = self.log().synced().0;
        assert!(synced <= self.log().written().0);
        self.model.synced = self.model.synced.max(synced.min(self.model.end()));
    }

    fn append(&mut self) -> Result<(), DiskError> {
        print!("append         ");
        let model = &mut self.model;
        let random = &mut self.random;
        model.now_ms += random.below(5) as i64;
        let records = 1 + random.below(3) as usize;
        let mut builder = BatchBuilder::new(Compression::None);
        let mut expected_duplicate = None;
        let mut gap = false;
        let mut producer = None;
        if random.one_in(2) {
            let id = random.below(3) as i64;
            let (epoch, next) = model.sequences.get(&id).copied().unwrap_or((0, 0));
            match random.below(8) {
                0 if !model.forgotten => {
                    // Sends its last batch again.
                    let last = model.log.iter().rev().find(|b| {
                        let h = Batch::parse(&b.bytes).unwrap().header;
                        h.producer_id == ProducerId(id)
                    });
                    if let Some(last) = last.cloned() {
                        expected_duplicate = Some(last);
                    }
                }
                1 if model.sequences.contains_key(&id) => {
                    gap = true;
                    builder.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(next).plus(2));
                }
                2 => {
                    let epoch = epoch + 1;
                    builder.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(0));
                    producer = Some((id, epoch, 0));
                }
                _ => {
                    builder.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(next));
                    producer = Some((id, epoch, next));
                }
            }
        }
        let value = vec![b'x'; random.below(120) as usize];
        for _ in 0..records {
            let unique = random.next().to_be_bytes();
            builder.push(model.now_ms, Some(&unique), Some(&value), &[]);
        }
        let how = AppendAs::Leader {
            epoch: LeaderEpoch(model.epoch),
            now_ms: model.now_ms,
        };
        let bytes = match &expected_duplicate {
            Some(last) => last.bytes.clone(),
            None => builder.build(),
        };
        let log = self.log.as_mut().unwrap();
        let before = log.log_end_offset();
        match log.append(bytes.clone(), how) {
            Ok(done) if done.duplicate => {
                let last = expected_duplicate.expect("not a duplicate");
                assert_eq!((done.first.0, done.next.0), (last.base, last.next));
            }
            Ok(done) => {
                assert!(!gap && expected_duplicate.is_none());
                assert_eq!(done.first, before);
                assert_eq!(done.next - done.first, records as i64);
                let mut bytes = bytes;
                riverlog_wire::batch::set_base_offset(&mut bytes, done.first);
                riverlog_wire::batch::set_leader_epoch(&mut bytes, LeaderEpoch(model.epoch));
                let known = Known {
                    base: done.first.0,
                    next: done.next.0,
                    bytes,
                };
                model.ever.insert(known.clone());
                model.log.push(known);
                if let Some((id, epoch, sequence)) = producer {
                    let next = Sequence(sequence).plus(records as i32).0;
                    model.sequences.insert(id, (epoch, next));
                }
            }
            Err(crate::log::AppendError::OutOfOrderSequence { .. }) => assert!(gap),
            Err(crate::log::AppendError::Disk(error)) => return Err(error),
            Err(other) => panic!("{other}"),
        }
        Ok(())
    }
    fn write(&mut self) -> Result<(), DiskError> {
        print!("write          ");
        let log = self.log();
        if let Some(write) = log.take_write() {
            log.write_done(write.run())?;
        }
        self.note_synced();
        Ok(())
    }
    fn flush(&mut self) -> Result<(), DiskError> {
        print!("flush          ");
        let start = self.log().log_start_offset().0;
        if let Some(flush) = self.volume().take_flush() {
            let done = flush.run();
            for synced in done.synced {
                self.log().on_synced(synced.to);
            }
            if let Some(error) = done.error {
                return Err(error);
            }
            self.model.start_durable = start;
        }
        self.note_synced();
        Ok(())
    }
    fn sync(&mut self) -> Result<(), DiskError> {
        print!("sync           ");
        let upkeep = self.log().sync_segments();
        if let Some(upkeep) = upkeep {
            self.log().upkeep_done(upkeep.run())?;
        }
        self.note_synced();
        Ok(())
    }
    fn delete_records(&mut self) -> Result<(), DiskError> {
        print!("delete_records ");
        let written = self.log().written().0;
        let start = self.model.start;
        if written <= start {
            return Ok(());
        }
        let to = start + self.random.below((written - start) as u64 + 1) as i64;
        self.model.start = to;
        self.log().delete_records(Offset(to))?;
        assert_eq!(self.log().log_start_offset(), Offset(to));
        Ok(())
    }
    fn retain(&mut self) -> Result<(), DiskError> {
        print!("retain         ");
        let mut settings = self.settings.clone();
        match self.random.below(3) {
            0 => settings.retention_records = Some(self.random.below(30)),
            1 => settings.retention_bytes = Some(self.random.below(4000)),
            _ => settings.retention_ms = Some(self.random.below(60)),
        }
        let by_count = settings.retention_records;
        let now = self.model.now_ms;
        let log = self.log.as_mut().unwrap();
        log.set_settings(settings);
        let written = log.written();
        let upkeep = log.retain(now, written);
        log.set_settings(self.settings.clone());
        let start = log.log_start_offset().0;
        assert!(start >= self.model.start && start <= written.0);
        if let Some(keep) = by_count {
            let wanted = (written.0 - keep as i64).max(self.model.start);
            assert_eq!(start, wanted);
        }
        self.model.start = start;
        if let Some(upkeep) = upkeep {
            self.log().upkeep_done(upkeep.run())?;
        }
        Ok(())
    }
    fn truncate(&mut self) -> Result<(), DiskError> {
        print!("truncate       ");
        let (start, end) = (self.model.start, self.log().log_end_offset().0);
        if end <= start {
            return Ok(());
        }
        let to = start + self.random.below((end - start) as u64 + 1) as i64;
        // From here on, whatever happens, less is promised.
        self.model.synced = self.model.synced.min(to);
        let last = self.model.log.iter().filter(|b| b.next <= to);
        let cut_to = last.map(|b| b.next).max().unwrap_or(0).max(start.min(to));
        self.model.synced = self.model.synced.min(cut_to);
        let done = self.log().truncate(Offset(to));
        done?;
        self.model.cut(to);
        if self.model.forgotten {
            self.learn_producers();
        }
        // A new leader follows every cut.
        self.model.epoch += 1;
        let end = self.log().log_end_offset().0;
        if self.model.end() < start {
            // Nothing is left but the start offset.
            assert_eq!(end, start);
            self.model.anew = start;
        }
        assert_eq!(end, self.model.end());
        Ok(())
    }

    /// Everything readable is what the model holds.
    fn check_reads(&mut self) -> Result<(), DiskError> {
        print!("check_reads    ");
        let written = self.log().written().0;
        let start = self.log().log_start_offset().0;
        let found = match self.try_content(start, written) {
            Err(ReadError::Disk(error)) => return Err(error),
            found => found.unwrap(),
        };
        let expected: Vec<&Known> = self
            .model
            .log
            .iter()
            .filter(|b| b.next > start && b.next <= written)
            .collect();
        assert_eq!(
            found.iter().collect::<Vec<_>>(),
            expected,
            "from {start} to {written}"
        );
        match super::model_transactions::check(self, &found) {
            Err(ReadError::Disk(error)) => return Err(error),
            checked => checked.unwrap(),
        }
        // A look-up in the middle gives the batch that holds the offset.
        if written > start {
            let at = start + self.random.below((written - start) as u64) as i64;
            let bytes = match read_slices(self.log(), at, 1).and_then(|s| s.into_bytes()) {
                Err(ReadError::Disk(error)) => return Err(error),
                bytes => bytes.unwrap(),
            };
            let header = Batch::parse(&bytes).unwrap().header;
            assert!(header.base_offset.0 <= at && header.next_offset().0 > at);
        }
        Ok(())
    }
    fn content(&mut self, from: i64, to: i64) -> Vec<Known> {
        self.try_content(from, to).unwrap()
    }
    fn try_content(&mut self, from: i64, to: i64) -> Result<Vec<Known>, ReadError> {
        let mut out = Vec::new();
        let mut at = from;
        while at < to {
            let max = 1 + self.random.below(3000) as usize;
            let slices = read_slices(self.log(), at, max)?;
            assert!(slices.next.0 > at, "no progress at {at} of {to}");
            at = slices.next.0;
            for batch in batches(&slices.into_bytes()?) {
                let batch = batch.unwrap();
                batch.check_crc().unwrap();
                out.push(Known {
                    base: batch.header.base_offset.0,
                    next: batch.header.next_offset().0,
                    bytes: batch.bytes.to_vec(),
                });
            }
        }
        Ok(out)
    }

    /// Opens the disk as it is now, and holds what is found against the model. `kept`: everything below is there, synced
    /// or not.
    fn reopen(&mut self, kept: i64, producers_exact: bool) {
        self.open().unwrap();
        print!("reopen         ");
        self.trace();
        let log = self.log();
        let (start, end) = (log.log_start_offset().0, log.log_end_offset().0);
        assert_eq!(log.written().0, end);
        assert!(log.synced().0 <= end);
        let model = &self.model;
        assert!(start >= model.start_durable, "deleted records came back");
        assert!(start <= model.start, "{start} > {}", model.start);
        let floor = model.synced.max(kept);
        assert!(end >= floor, "{end} < {floor}");
        let found = self.content(start, end);
        let model = &mut self.model;
        let mut at = None;
        let mut epoch = -1;
        for batch in &found {
            assert!(model.ever.contains(batch), "never appended: {}", batch.base);
            assert!(at.is_none_or(|at| at == batch.base));
            at = Some(batch.next);
            let header = Batch::parse(&batch.bytes).unwrap().header;
            assert!(header.leader_epoch.0 >= epoch);
            epoch = header.leader_epoch.0;
            if batch.next <= floor {
                assert!(model.log.contains(batch), "{} was replaced", batch.base);
            }
        }
        if let Some(first) = found.first() {
            assert!(first.base <= start && first.next > start);
            assert_eq!(at, Some(end));
        } else {
            assert_eq!(start, end);
        }
        // From here on, what was found is the log.
        let from = found.first().map_or(end, |b| b.base);
        model.log.retain(|b| b.next <= from);
        // Records that were deleted but never synced may be gone, and what they said of their producers.
        model.forgotten |= floor < from || !producers_exact;
        model.anew = from;
        model.log.extend(found);
        model.start = start;
        model.start_durable = start.min(model.start_durable.max(0));
        model.resume_sequences();
        if model.forgotten {
            self.learn_producers();
        } else {
            let found: Vec<Producer> = (self.log().loaded().unwrap().producers.iter())
                .map(|(id, producer)| {
                    let window = producer.window.iter();
                    let window = window.map(|b| (b.last_sequence.0, b.last_offset.0));
                    let open = producer.transaction.map(|first| first.0);
                    (id.0, producer.epoch.0, window.collect(), open)
                })
                .collect();
            assert_eq!(found, self.model.producers());
        }
        let synced = self.log().synced().0;
        self.model.synced = synced.max(floor);
    }

    /// Takes the log's word for its producers.
    fn learn_producers(&mut self) {
        let producers = self.log().producers();
        self.model.sequences = producers
            .iter()
            .map(|p| (p.id.0, (p.epoch.0, p.last_sequence.plus(1).0)))
            .collect();
    }

    pub(super) fn close(&mut self) {
        self.write_all();
        self.flush().unwrap();
        self.sync().unwrap();
        self.sync().unwrap();
        self.flush().unwrap();
        self.volume().checkpoint(true).unwrap();
        let end = self.model.end();
        self.reopen(end, true);
    }
    fn write_all(&mut self) {
        let log = self.log.as_mut().unwrap();
        while let Some(write) = log.take_write() {
            log.write_done(write.run()).unwrap();
        }
    }
    pub(super) fn kill(&mut self) {
        // What a log with `sync` has only written was not acknowledged either.
        let kept = match self.settings.sync {
            true => self.log().synced().0,
            false => self.log().written().0,
        };
        self.volume = None;
        self.log = None;
        self.disk = self.disk.kill();
        self.reopen(kept, true);
    }
    pub(super) fn crash(&mut self, seed: u64) {
        self.volume = None;
        self.log = None;
        self.disk = self.disk.crash(seed);
        self.reopen(0, true);
    }
    fn steps(&mut self, n: u64) -> Result<(), DiskError> {
        for _ in 0..n {
            self.step()?;
        }
        Ok(())
    }
}

#[test]
fn random_operations_with_clean_stops_and_kills() {
    for seed in 0..150 {
        println!("seed {seed}");
        let mut run = Run::new(seed, seed % 2 == 0);
        for _ in 0..8 {
            let n = 5 + run.random.below(60);
            run.steps(n).unwrap();
            match run.random.below(3) {
                0 => run.close(),
                1 => run.kill(),
                _ => run.check_reads().unwrap(),
            }
            run.check_reads().unwrap();
        }
    }
}

#[test]
fn power_cuts_take_nothing_that_was_synced() {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut run = Run::new(1000 + seed, seed % 4 != 0);
        for _ in 0..6 {
            let n = 5 + run.random.below(60);
            run.steps(n).unwrap();
            let crash = run.random.next();
            run.crash(crash);
            run.check_reads().unwrap();
        }
    }
}

#[test]
fn a_power_cut_at_any_change_of_the_disk() {
    for seed in 0..12 {
        for at in 0..120 {
            println!("seed {seed} at {at}");
            let mut run = Run::new(7000 + seed, seed % 3 != 0);
            run.disk.fail_after(at);
            while run.step().is_ok() {}
            run.crash(seed ^ at << 8);
            run.check_reads().unwrap();
            // And life goes on.
            run.steps(20).unwrap();
            run.close();
        }
    }
}

/// Files of the log's folder other than segments.
fn small_files(disk: &CrashDisk) -> Vec<String> {
    let dir = KEY.folder();
    disk.list(&dir)
        .unwrap()
        .into_iter()
        .filter(|e| !e.name.ends_with(".log"))
        .map(|e| format!("{dir}/{}", e.name))
        .collect()
}

#[test]
fn damage_to_files_beside_the_segments_loses_nothing() {
    for seed in 0..250 {
        println!("seed {seed}");
        let mut run = Run::new(20_000 + seed, seed % 2 == 0);
        for _ in 0..4 {
            run.steps(60).unwrap();
            run.write_all();
            run.flush().unwrap();
            let clean = run.random.one_in(2);
            if clean {
                run.sync().unwrap();
                run.sync().unwrap();
                run.flush().unwrap();
                run.volume().checkpoint(true).unwrap();
            }
            let end = run.model.end();
            run.volume = None;
            run.log = None;
            run.disk = run.disk.kill();
            let files = small_files(&run.disk);
            for path in files {
                let file = run.disk.open(&path, OpenMode::Write).unwrap();
                let len = file.len().unwrap();
                match run.random.below(6) {
                    0 => run.disk.remove_file(&path).unwrap(),
                    1 => file.set_len(run.random.below(len + 1)).unwrap(),
                    2 => run.disk.zero(&path, 0, len).unwrap(),
                    3 => {
                        let at = run.random.below(len.max(1));
                        run.disk.flip(&path, at, 1 << run.random.below(8)).unwrap();
                    }
                    4 => {
                        let at = run.random.below(len.max(1));
                        run.disk.zero(&path, at, len - at.min(len)).unwrap();
                    }
                    _ => {}
                }
            }
            // Snapshots may be among them: a producer that is forgotten may go on with any sequence.
            run.reopen(end, false);
            run.check_reads().unwrap();
        }
    }
}
