//! Random keyed records, tombstones, transactions and passes of the cleaner, with kills, clean stops and power cuts, against a
//! model.
//!
//! The model keeps every record that was ever appended. What must hold after anything: what is read is what was appended, at its
//! offset; a record that is missing has a newer one of its key, or is a tombstone; when the newest record of a key is gone,
//! nothing of that key is left; what was aborted counts for nothing, and is told of as long as it is there; nothing of an open
//! transaction goes; whoever reads reaches the end; sequences go on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverlog_wire::batch::{BatchBuilder, Records, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};

use super::clean::rules;
use super::model::Random;
use super::support::{KEY, read_slices, volume_settings};
use crate::disk::CrashDisk;
use crate::log::clean::{Clean, CleanError, CleanRules, CleanStep};
use crate::log::{AppendAs, Log, LogSettings, Marker, ReadError, Upkeep};
use crate::{Disk, DiskError, Volume};

type Value = Option<Vec<u8>>;

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Committed,
    Aborted,
}

struct Run {
    random: Random,
    disk: CrashDisk,
    settings: LogSettings,
    volume: Arc<Volume>,
    log: Log,
    /// Every record that may be in the log, by its offset.
    ever: BTreeMap<i64, (u8, Value)>,
    /// Whose transaction a record is part of.
    transactional: BTreeMap<i64, i64>,
    /// Markers: whose transaction they end, and how.
    markers: BTreeMap<i64, (i64, bool)>,
    sequences: BTreeMap<i64, i32>,
    synced: i64,
    now_ms: i64,
    epoch: i32,
    pass: Option<Box<Clean>>,
    /// An upkeep that a host has in its hands.
    out: Option<Upkeep>,
    /// As a host would keep it: never before a pass is over.
    cleaned: i64,
}

impl Run {
    fn new(seed: u64, sync: bool) -> Run {
        let mut random = Random(seed);
        let settings = LogSettings {
            segment_bytes: 200 + random.below(1500),
            index_interval_bytes: random.below(300) as u32,
            retention_ms: None,
            segment_ms: None,
            delete: false,
            sync,
            ..LogSettings::default()
        };
        let disk = CrashDisk::new(seed);
        let (volume, log) = open(&disk, &settings, 0);
        Run {
            random,
            disk,
            settings,
            volume,
            log,
            ever: BTreeMap::new(),
            transactional: BTreeMap::new(),
            markers: BTreeMap::new(),
            sequences: BTreeMap::new(),
            synced: 0,
            now_ms: 1_000_000,
            epoch: 0,
            pass: None,
            out: None,
            cleaned: 0,
        }
    }

    fn step(&mut self) -> Result<(), DiskError> {
        match self.random.below(100) {
            0..28 => self.append(None)?,
            28..32 => self.append(Some(10))?,
            32..36 => self.append(Some(11))?,
            36..40 => self.end()?,
            40..60 => self.write()?,
            60..70 => self.flush()?,
            70..78 => self.sync()?,
            78..95 => self.clean()?,
            95..97 => self.volume.checkpoint(false)?,
            97..98 => self.volume.upkeep().map(|_| ())?,
            98..99 => self.epoch += 1,
            _ => self.check()?,
        }
        self.synced = self.synced.max(self.log.synced().0);
        self.trace();
        Ok(())
    }
    /// Shown by the test harness when a run fails.
    fn trace(&self) {
        let segments: Vec<String> = self
            .log
            .loaded
            .get()
            .map(|l| l.segments.iter())
            .into_iter()
            .flatten()
            .map(|s| format!("{}..{}:{}", s.base, s.facts().next, s.facts().size))
            .collect();
        println!(
            "written {} end {} synced {} cleaned {} in {segments:?}",
            self.log.written(),
            self.log.log_end_offset(),
            self.log.synced(),
            self.cleaned,
        );
    }

    /// Ends a transaction that is open, if any.
    fn end(&mut self) -> Result<(), DiskError> {
        let open = self.transactional.iter().rev();
        let open = open.filter(|(offset, _)| self.fate(**offset) == Some(Fate::Open));
        let Some(producer) = open.map(|(_, producer)| *producer).next() else {
            return Ok(());
        };
        let committed = self.random.below(2) == 0;
        let marker = Marker {
            producer_id: ProducerId(producer),
            producer_epoch: ProducerEpoch(0),
            coordinator_epoch: 1,
            committed,
            transaction_version: 1,
        };
        let epoch = LeaderEpoch(self.epoch);
        match self.log.append_marker(&marker, epoch, self.now_ms) {
            Ok(appended) => {
                assert!(!appended.duplicate);
                self.markers.insert(appended.first.0, (producer, committed));
                Ok(())
            }
            Err(crate::AppendError::Disk(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    /// What became of the transaction of the record at `offset`; `None`: it has none.
    fn fate(&self, offset: i64) -> Option<Fate> {
        let producer = self.transactional.get(&offset)?;
        let mut later = self.markers.range(offset..);
        let marker = later.find(|(_, (id, _))| id == producer);
        Some(match marker {
            None => Fate::Open,
            Some((_, (_, true))) => Fate::Committed,
            Some((_, (_, false))) => Fate::Aborted,
        })
    }

    /// Up to where everything is synced and decided.
    fn stable(&mut self) -> Result<Offset, DiskError> {
        let synced = self.log.synced();
        self.log.loaded()?;
        Ok(self.log.first_unstable_offset(synced).unwrap_or(synced))
    }

    /// Appends some records, as part of the transaction of a producer or without one.
    fn append(&mut self, transactional: Option<i64>) -> Result<(), DiskError> {
        let codec = match self.random.below(4) {
            0 => Compression::Lz4,
            1 => Compression::Gzip,
            _ => Compression::None,
        };
        let mut builder = BatchBuilder::new(codec);
        let producer = transactional.unwrap_or(self.random.below(6) as i64);
        let count = 1 + self.random.below(4) as i32;
        if transactional.is_some() {
            builder.transactional();
        }
        if producer < 2 || transactional.is_some() {
            let next = self.sequences.entry(producer).or_insert(0);
            builder.producer(ProducerId(producer), ProducerEpoch(0), Sequence(*next));
            *next += count;
        }
        let end = self.log.log_end_offset().0;
        for i in 0..i64::from(count) {
            let key = self.random.below(12) as u8;
            let value = (self.random.below(4) > 0).then(|| {
                let len = self.random.below(60) as usize;
                let mut value = vec![b'v'; len];
                value.extend((end + i).to_be_bytes());
                value
            });
            builder.push(self.now_ms, Some(&[key]), value.as_deref(), &[(b"h", None)]);
            self.ever.insert(end + i, (key, value));
            if let Some(producer) = transactional {
                self.transactional.insert(end + i, producer);
            }
        }
        self.now_ms += self.random.below(20) as i64;
        let (epoch, now_ms) = (LeaderEpoch(self.epoch), self.now_ms);
        let how = match transactional {
            None => AppendAs::Leader { epoch, now_ms },
            Some(_) => AppendAs::Transaction {
                epoch,
                now_ms,
                verified: Offset(end),
            },
        };
        match self.log.append(builder.build(), how) {
            Ok(appended) => assert_eq!(appended.first.0, end),
            Err(crate::AppendError::Disk(error)) => return Err(error),
            Err(error) => panic!("{error}"),
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), DiskError> {
        match self.log.take_write() {
            Some(write) => self.log.write_done(write.run()),
            None => Ok(()),
        }
    }
    fn flush(&mut self) -> Result<(), DiskError> {
        let Some(flush) = self.volume.take_flush() else {
            return Ok(());
        };
        let done = flush.run();
        for synced in done.synced {
            self.log.on_synced(synced.to);
        }
        done.error.map_or(Ok(()), Err)
    }
    /// Much may happen before an upkeep is run.
    fn sync(&mut self) -> Result<(), DiskError> {
        if self.out.is_some() {
            return self.finish_upkeep();
        }
        self.out = self.log.sync_segments();
        match self.random.below(3) {
            0 => Ok(()),
            _ => self.finish_upkeep(),
        }
    }
    fn finish_upkeep(&mut self) -> Result<(), DiskError> {
        match self.out.take() {
            Some(upkeep) => self.log.upkeep_done(upkeep.run()),
            None => Ok(()),
        }
    }

    /// Begins a pass, or goes on with one; appends come in between.
    fn clean(&mut self) -> Result<(), DiskError> {
        let result = self.clean_some();
        match result {
            Err(CleanError::Disk(error)) => Err(error),
            Err(error) => panic!("{error}"),
            Ok(()) => Ok(()),
        }
    }
    fn clean_some(&mut self) -> Result<(), CleanError> {
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => {
                let rules = CleanRules {
                    now_ms: self.now_ms,
                    until: self.stable()?,
                    cleaned: Offset(self.cleaned),
                    min_lag_ms: self.random.below(3) * 30,
                    max_lag_ms: [None, None, Some(0), Some(100)][self.random.below(4) as usize],
                    delete_retention_ms: self.random.below(200),
                    map_bytes: [100, 400, 1 << 16][self.random.below(3) as usize],
                };
                if self.random.below(2) == 0 {
                    self.log.cleanable(&rules)?;
                }
                match self.log.clean(rules)? {
                    Some(pass) => Box::new(pass),
                    None => return Ok(()),
                }
            }
        };
        for _ in 0..=self.random.below(6) {
            match pass.step(1 + self.random.below(3000))? {
                CleanStep::More => {}
                CleanStep::Done(done) => {
                    self.cleaned = done.cleaned.0;
                    self.log.clean_over();
                    return Ok(());
                }
                CleanStep::Replace(cleaned) => {
                    match self.log.replace_cleaned(cleaned) {
                        Some(upkeep) => self.log.upkeep_done(upkeep.run())?,
                        None => assert!(self.log.is_replacing()),
                    }
                    // Another upkeep is out: the next one does it.
                    while self.log.is_replacing() {
                        self.finish_upkeep()?;
                        self.out = self.log.sync_segments();
                    }
                }
            }
        }
        self.pass = Some(pass);
        Ok(())
    }

    fn found(&mut self) -> Result<BTreeMap<i64, (u8, Value)>, ReadError> {
        let mut out = BTreeMap::new();
        let (mut at, written) = (self.log.log_start_offset().0, self.log.written().0);
        let mut epoch = -1;
        while at < written {
            let max = 1 + self.random.below(2000) as usize;
            let slices = read_slices(&mut self.log, at, max)?;
            assert!(slices.next.0 > at, "no progress at {at} of {written}");
            let mut from = at;
            at = slices.next.0;
            for batch in batches(&slices.into_bytes()?) {
                let batch = batch.unwrap();
                batch.check_crc().unwrap();
                let header = batch.header;
                assert!(header.base_offset.0 >= from || from == header.base_offset.0);
                assert!(header.leader_epoch.0 >= epoch);
                epoch = header.leader_epoch.0;
                from = header.next_offset().0;
                if header.attributes.is_control() {
                    continue;
                }
                let bytes = bytes::Bytes::copy_from_slice(batch.bytes);
                for record in Records::shared(&bytes, 1 << 20).unwrap().iter() {
                    let record = record.unwrap();
                    assert_eq!(record.headers.iter().count(), 1);
                    let key = record.key.unwrap()[0];
                    let value = record.value.map(|v| v.to_vec());
                    assert!(out.insert(record.offset.0, (key, value)).is_none());
                }
            }
        }
        assert_eq!(at, written);
        Ok(out)
    }

    /// Holds what can be read against the model.
    fn check(&mut self) -> Result<(), DiskError> {
        let found = match self.found() {
            Err(ReadError::Disk(error)) => return Err(error),
            found => found.unwrap(),
        };
        let written = self.log.written().0;
        let mut newest: BTreeMap<u8, i64> = BTreeMap::new();
        for (offset, (key, _)) in self.ever.range(..written) {
            match self.fate(*offset) {
                Some(Fate::Aborted) => continue,
                Some(Fate::Open) => {
                    assert!(found.contains_key(offset), "open at {offset} is gone");
                    continue;
                }
                Some(Fate::Committed) | None => {}
            }
            newest.insert(*key, *offset);
        }
        let aborted = self
            .log
            .aborted(self.log.log_start_offset(), Offset(written));
        for (offset, record) in &found {
            assert_eq!(self.ever.get(offset), Some(record), "at {offset}");
            let Some(producer) = self.transactional.get(offset) else {
                continue;
            };
            let mut markers = self.markers.range(*offset..written);
            if let Some((end, (_, false))) = markers.find(|(_, (id, _))| id == producer) {
                let told = aborted.iter().any(|a| {
                    a.producer_id.0 == *producer && a.first.0 <= *offset && a.last.0 == *end
                });
                assert!(told, "nobody hears that {offset} was aborted: {aborted:?}");
            }
        }
        let found: BTreeMap<i64, (u8, Value)> = found
            .into_iter()
            .filter(|(offset, _)| !matches!(self.fate(*offset), Some(Fate::Aborted | Fate::Open)))
            .collect();
        let gone: BTreeSet<u8> = newest
            .iter()
            .filter(|(_, offset)| !found.contains_key(offset))
            .map(|(key, _)| *key)
            .collect();
        for key in &gone {
            let (_, value) = &self.ever[&newest[key]];
            assert_eq!(value, &None, "the newest of key {key} is gone");
            let left: Vec<_> = found.iter().filter(|(_, (k, _))| k == key).collect();
            assert!(left.is_empty(), "key {key} returned: {left:?}");
        }
        // Any offset leads on.
        if written > 0 {
            let at = self.random.below(written as u64) as i64;
            match read_slices(&mut self.log, at, 1) {
                Err(ReadError::Disk(error)) => return Err(error),
                slices => assert!(slices.unwrap().next.0 > at),
            }
        }
        Ok(())
    }

    fn reopen(&mut self, disk: CrashDisk, kept: i64) {
        self.pass = None;
        self.out = None;
        self.disk = disk;
        let cache = self.random.below(3) as usize * 600;
        (self.volume, self.log) = open(&self.disk, &self.settings, cache);
        let end = self.log.log_end_offset().0;
        assert!(end >= kept, "{end} < {kept}");
        self.ever.split_off(&end);
        self.transactional.split_off(&end);
        self.markers.split_off(&end);
        self.cleaned = match self.random.below(4) {
            // The file was damaged.
            0 => 0,
            _ => self.cleaned.min(end),
        };
        let producers = self.log.producers();
        for producer in producers {
            let next = producer.last_sequence.plus(1).0;
            let known = self.sequences.insert(producer.id.0, next);
            assert!(known.is_some_and(|known| next <= known));
        }
        self.check().unwrap();
        self.synced = self.log.synced().0;
    }

    fn kill(&mut self) {
        let kept = match self.settings.sync {
            true => self.log.synced().0,
            false => self.log.written().0,
        };
        let disk = self.disk.kill();
        self.reopen(disk, kept);
    }
    fn crash(&mut self) {
        let disk = self.disk.crash(self.random.next());
        let synced = self.synced;
        self.reopen(disk, synced);
    }
    fn close(&mut self) {
        self.pass = None;
        while let Some(write) = self.log.take_write() {
            self.log.write_done(write.run()).unwrap();
        }
        self.flush().unwrap();
        for _ in 0..3 {
            self.finish_upkeep().unwrap();
            self.out = self.log.sync_segments();
        }
        self.finish_upkeep().unwrap();
        self.flush().unwrap();
        self.volume.checkpoint(true).unwrap();
        let end = self.log.log_end_offset().0;
        let disk = self.disk.kill();
        self.reopen(disk, end);
    }
}

fn open(disk: &CrashDisk, settings: &LogSettings, cache: usize) -> (Arc<Volume>, Log) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let volume_settings = crate::VolumeSettings {
        tail_cache_bytes: cache,
        ..volume_settings()
    };
    let volume = Volume::open(disk, volume_settings).unwrap();
    let log = volume.open_log(KEY, settings.clone()).unwrap();
    volume.recovered().unwrap();
    (volume, log)
}

/// Those that a run of the tests plays; others with `RIVERLOG_LOG_SEEDS=FROM..TO`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(others) = std::env::var("RIVERLOG_LOG_SEEDS") else {
        return 0..count;
    };
    let (from, to) = others.split_once("..").expect("FROM..TO");
    let number = |text: &str| text.parse().expect("a number");
    number(from)..number(to)
}

#[test]
fn random_passes_with_stops_kills_and_power_cuts() {
    for seed in seeds(250) {
        println!("seed {seed}");
        let mut run = Run::new(50_000 + seed, seed % 4 != 0);
        for _ in 0..6 {
            for _ in 0..20 + run.random.below(120) {
                run.step().unwrap();
            }
            match run.random.below(4) {
                0 => run.close(),
                1 => run.kill(),
                2 => run.crash(),
                _ => run.check().unwrap(),
            }
        }
    }
}

#[test]
fn a_power_cut_at_any_change_of_the_disk_during_a_pass() {
    for seed in 0..20 {
        for at in 0..60 {
            println!("seed {seed} at {at}");
            let mut run = Run::new(60_000 + seed, seed % 4 != 0);
            for _ in 0..80 {
                run.step().unwrap();
            }
            run.pass = None;
            run.log.clean_over();
            run.append(None).unwrap();
            for _ in 0..4 {
                while let Some(write) = run.log.take_write() {
                    run.log.write_done(write.run()).unwrap();
                }
                run.flush().unwrap();
                run.sync().unwrap();
            }
            run.synced = run.synced.max(run.log.synced().0);
            run.disk.fail_after(at);
            let mut steps = 0;
            while run.clean().is_ok() && steps < 40 {
                steps += 1;
            }
            run.crash();
            // And life goes on.
            run.disk.heal();
            for _ in 0..40 {
                run.step().unwrap();
            }
            run.close();
        }
    }
}

#[test]
fn a_whole_pass_leaves_one_record_of_each_key() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut run = Run::new(70_000 + seed, true);
        for _ in 0..150 {
            run.step().unwrap();
        }
        for _ in 0..2 {
            run.end().unwrap();
        }
        run.close();
        let last = run.log.loaded().unwrap().active().base.0;
        let whole = CleanRules {
            now_ms: run.now_ms + 1_000_000,
            ..rules()
        };
        super::clean::clean(&mut run.log, whole).unwrap();
        let found = run.found().unwrap();
        let mut keys = BTreeSet::new();
        for (offset, (key, _)) in found.range(..last) {
            assert_ne!(run.fate(*offset), Some(Fate::Aborted), "at {offset}");
            assert!(keys.insert(*key), "key {key} is there twice");
        }
        run.check().unwrap();
    }
}
