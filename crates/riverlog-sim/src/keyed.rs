//! The compacted topic: what is written for each key, and what a reader of all of it may find.

use std::collections::BTreeMap;

use riverlog_log::disk::Random;
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{ProducerEpoch, ProducerId, Sequence, TopicId};

use crate::model::Violation;
use crate::swarm;

/// The compacted topic; one client writes to it.
pub(crate) const TOPIC: &str = "keyed";
/// Its id.
pub(crate) const ID: TopicId = TopicId(*b"a-compacted-one!");
/// Its partitions.
pub(crate) const PARTITIONS: i32 = 2;
/// Keys of a partition.
pub(crate) const KEYS: u64 = 8;
/// Records that a partition has at most once all that may be cleaned is: one for each key, and those of the last segment and
/// of the one that recovery compares.
const CLEANED: usize = KEYS as usize + 72;

/// A record: the number that the writer gave it, counted over all keys; a tombstone or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: u64,
    pub(crate) number: i64,
    pub(crate) tombstone: bool,
}

/// Makes a batch of a few records, counting them in `count`.
pub(crate) fn compose(
    random: &mut Random,
    count: &mut i64,
    (id, epoch): (ProducerId, ProducerEpoch),
    sequence: i32,
    now_ms: i64,
) -> (Vec<Entry>, Vec<u8>) {
    let size = 1 + random.below(4);
    let codec = match random.chance(1, 4) {
        true => Compression::Lz4,
        false => Compression::None,
    };
    let mut batch = BatchBuilder::new(codec);
    batch.producer(id, epoch, Sequence(sequence));
    let mut entries = Vec::new();
    for _ in 0..size {
        *count += 1;
        // Some keys are written often, others seldom: those are what compaction carries along.
        let most = match random.chance(1, 8) {
            true => KEYS,
            false => KEYS / 2,
        };
        let entry = Entry {
            key: random.below(most),
            number: *count,
            tombstone: random.chance(1, 5),
        };
        let number = entry.number.to_string();
        batch.push(
            now_ms,
            Some(format!("key-{}", entry.key).as_bytes()),
            (!entry.tombstone).then_some(b"value".as_slice()),
            &[(b"n".as_slice(), Some(number.as_bytes()))],
        );
        entries.push(entry);
    }
    (entries, batch.build())
}

/// What is in such batches, with offsets.
pub(crate) fn entries_of(bytes: &[u8]) -> Result<Vec<(i64, Entry)>, Violation> {
    let damaged = |what: String| Violation::new("damage is found, never served", what);
    let mut out = Vec::new();
    for batch in batches(bytes) {
        let batch = batch.map_err(|e| damaged(e.to_string()))?;
        batch.check_crc().map_err(|e| damaged(e.to_string()))?;
        let records = batch.records(1 << 20).map_err(|e| damaged(e.to_string()))?;
        for record in records.iter() {
            let record = record.map_err(|e| damaged(e.to_string()))?;
            let text = |bytes: Option<&[u8]>| {
                String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
            };
            let key = text(record.key.as_deref());
            let number = record.headers.iter().next().and_then(|(_, value)| value);
            let parsed = key
                .strip_prefix("key-")
                .and_then(|key| key.parse().ok())
                .zip(text(number.as_deref()).parse().ok());
            let Some((key, number)) = parsed else {
                return Err(damaged(format!("{record:?}")));
            };
            let entry = Entry {
                key,
                number,
                tombstone: record.value.is_none(),
            };
            out.push((record.offset.0, entry));
        }
    }
    Ok(out)
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// By number.
    sent: BTreeMap<i64, Entry>,
    /// Acknowledged or read, by offset.
    contents: BTreeMap<i64, Entry>,
    /// The last that was acknowledged for each key, and its offset.
    latest: BTreeMap<u64, (i64, Entry)>,
    /// The last that was acknowledged or read for each key, and its offset.
    newest: BTreeMap<u64, (i64, Entry)>,
    /// The last tombstone that was sent for each key.
    last_tombstone: BTreeMap<u64, i64>,
}

/// What is known of the topic.
#[derive(Clone, Debug)]
pub(crate) struct Keyed(Vec<Known>);

/// What a reader found between the first record and the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    /// The last of each key that was acknowledged or read when it began.
    latest: BTreeMap<u64, (i64, Entry)>,
    acknowledged: BTreeMap<i64, Entry>,
    found: BTreeMap<i64, Entry>,
}

impl Pass {
    /// Records found so far.
    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }
}

impl Keyed {
    pub(crate) fn new() -> Keyed {
        Keyed(vec![Known::default(); PARTITIONS as usize])
    }

    fn known(&mut self, partition: i32) -> &mut Known {
        &mut self.0[partition as usize]
    }

    /// A batch is on its way, for the first time or again.
    pub(crate) fn sent(&mut self, partition: i32, entries: &[Entry]) {
        let known = self.known(partition);
        for entry in entries {
            known.sent.insert(entry.number, *entry);
            if entry.tombstone {
                known.last_tombstone.insert(entry.key, entry.number);
            }
        }
    }

    /// It is stored there.
    pub(crate) fn acknowledged(
        &mut self,
        partition: i32,
        base: i64,
        entries: &[Entry],
    ) -> Result<(), Violation> {
        for (offset, entry) in (base..).zip(entries) {
            self.is_at(partition, offset, *entry)?;
            let latest = &mut self.known(partition).latest;
            let before = latest.insert(entry.key, (offset, *entry));
            if before.is_some_and(|(at, _)| at >= offset) {
                let what = format!("partition {partition}: {entry:?} at {offset} after {before:?}");
                return Err(Violation::new("offsets only grow", what));
            }
        }
        Ok(())
    }

    fn is_at(&mut self, partition: i32, offset: i64, entry: Entry) -> Result<(), Violation> {
        let known = self.known(partition);
        if known.sent.get(&entry.number) != Some(&entry) {
            let what = format!("partition {partition} at {offset}: {entry:?}");
            return Err(Violation::new("only what was sent is stored", what));
        }
        let newest = known.newest.entry(entry.key).or_insert((offset, entry));
        if newest.0 < offset {
            *newest = (offset, entry);
        }
        let before = known.contents.insert(offset, entry);
        if before.is_some_and(|before| before != entry) {
            let what = format!("partition {partition} at {offset}: {before:?}, then {entry:?}");
            return Err(Violation::new("records keep their offsets", what));
        }
        Ok(())
    }

    /// A reader begins anew.
    pub(crate) fn begin(&self, partition: i32) -> Pass {
        let known = &self.0[partition as usize];
        Pass {
            latest: known.newest.clone(),
            acknowledged: known.contents.clone(),
            found: BTreeMap::new(),
        }
    }

    /// It was shown this.
    pub(crate) fn read(
        &mut self,
        pass: &mut Pass,
        partition: i32,
        offset: i64,
        entry: Entry,
    ) -> Result<(), Violation> {
        self.is_at(partition, offset, entry)?;
        if pass
            .found
            .last_key_value()
            .is_some_and(|(last, _)| *last >= offset)
        {
            let what = format!("partition {partition}: {offset} after {:?}", pass.found);
            return Err(Violation::new("readers go forward", what));
        }
        pass.found.insert(offset, entry);
        Ok(())
    }

    /// It came to the end; the log began at `start` then. `quick`: no tombstone can have gone since it met what that deletes.
    /// Returns whether a deleted key has left nothing.
    pub(crate) fn ended(
        &self,
        pass: &Pass,
        partition: i32,
        start: i64,
        plan: swarm::Keyed,
        quick: bool,
    ) -> Result<bool, Violation> {
        let known = &self.0[partition as usize];
        let mut gone = false;
        for (key, (at, latest)) in &pass.latest {
            let last = pass.found.values().rev().find(|e| e.key == *key);
            let what = || {
                format!(
                    "partition {partition}, from {start}: {latest:?} at {at}, {last:?} was the last that was read"
                )
            };
            let tombstone = known.last_tombstone.get(key).copied();
            let deleted_later = tombstone.is_some_and(|number| number > latest.number);
            let newest = last.is_some_and(|e| e.number >= latest.number);
            gone |= latest.tombstone && last.is_none();
            if newest || *at < start {
                continue;
            }
            if !latest.tombstone && !deleted_later {
                return Err(Violation::new("the latest value of a key is there", what()));
            }
            if quick && last.is_some() {
                return Err(Violation::new("a deleted key never returns", what()));
            }
            if quick && !latest.tombstone {
                return Err(Violation::new("the latest value of a key is there", what()));
            }
        }
        if plan.min_lag_ms > 0 && quick {
            let missing = pass
                .acknowledged
                .iter()
                .find(|(offset, entry)| **offset >= start && pass.found.get(offset) != Some(entry));
            if let Some(missing) = missing {
                let what = format!("partition {partition}: {missing:?}");
                return Err(Violation::new("what is too new is not compacted", what));
            }
        }
        Ok(gone)
    }

    /// Whether no more was found than has to be there.
    pub(crate) fn is_clean(pass: &Pass, plan: swarm::Keyed) -> bool {
        plan.min_lag_ms > 0 || pass.found.len() <= CLEANED
    }
}
