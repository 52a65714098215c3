//! Files that are cut off, damaged, and found again.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use riverlog_log::OpenMode;
use riverlog_log::disk::{CrashDisk, Random};
use riverlog_node::quorum::MetadataSnapshot;
use riverlog_wire::Offset;

use super::*;
use crate::raft::{Member, Payload, Records};

const JOURNAL: &str = "quorum/journal";

/// Inline writes are done when they return: nothing waits.
fn now<T>(f: impl Future<Output = T>) -> T {
    match pin!(f).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("an inline write waits"),
    }
}

fn open(disk: &CrashDisk) -> Result<Store, QuorumError> {
    Store::open(Arc::new(disk.clone()), BrokerId(1), Writes::Inline)
}

fn id(term: u64, index: u64) -> LogId {
    LogId::new(Term::new(term), index)
}

fn entry(term: u64, index: u64, what: &str) -> Entry {
    Entry {
        log_id: id(term, index),
        payload: Payload::Normal(Records(vec![Bytes::copy_from_slice(what.as_bytes())])),
    }
}

fn append(store: &mut Store, entries: Vec<Entry>) {
    now(store.append(entries, IOFlushed::noop())).unwrap();
}

fn length(disk: &CrashDisk) -> u64 {
    disk.open(JOURNAL, OpenMode::Read).unwrap().len().unwrap()
}

/// What a store says of itself, as it lies in memory.
fn said(store: &Store) -> Memory {
    store.shared.memory.lock().clone()
}

#[test]
fn votes_and_entries_are_found_again() {
    let disk = CrashDisk::new(1);
    let mut store = open(&disk).unwrap();
    let drawn = store.disk_id();
    assert!(store.is_blank());
    now(store.save_vote(&vote(3, drawn, false))).unwrap();
    append(
        &mut store,
        vec![entry(3, 0, "a"), entry(3, 1, "b"), entry(3, 2, "c")],
    );
    now(store.truncate_after(Some(id(3, 0)))).unwrap();
    append(&mut store, vec![entry(4, 1, "d")]);
    now(store.save_committed(Some(id(3, 0)))).unwrap();
    let before = said(&store);
    drop(store);
    for left in [disk.crash(1), disk.crash(2)] {
        let store = open(&left).unwrap();
        assert_eq!(store.disk_id(), drawn);
        let mut after = said(&store);
        // The hint may be lost.
        after.committed = before.committed;
        assert_eq!(format!("{after:?}"), format!("{before:?}"));
    }
}

#[test]
fn a_folder_that_is_open_is_not_opened_twice() {
    let disk = CrashDisk::new(1);
    let store = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(QuorumError::InUse)));
    drop(store);
    open(&disk).unwrap();
}

#[test]
fn what_is_sent_or_written_at_once_is_bounded_in_bytes_and_never_nothing() {
    let disk = CrashDisk::new(7);
    let mut store = open(&disk).unwrap();
    found(&store, 1);
    let large = "x".repeat(400 << 10);
    let larger = "y".repeat(3 << 20);
    let sizes = [&large, &large, &large, &larger, &large, &large];
    for (index, what) in (2..).zip(sizes) {
        append(&mut store, vec![entry(2, index, what)]);
    }
    let mut read = |start, end| -> Vec<u64> {
        let entries = now(store.limited_get_log_entries(start, end)).unwrap();
        entries.iter().map(|e| e.log_id.index).collect()
    };
    assert_eq!(read(2, 8), [2, 3]);
    assert_eq!(read(2, 3), [2]);
    assert_eq!(read(4, 8), [4]);
    assert_eq!(read(5, 8), [5], "one that is longer goes alone");
    assert_eq!(read(6, 8), [6, 7]);
    // The journal that is written anew: a single frame of everything might be longer than a frame can be.
    let (mut meta, state) = store.snapshot().unwrap();
    meta.last_log_id = Some(id(2, 2));
    now(store.save_snapshot(meta, state)).unwrap();
    now(store.purge(id(2, 2))).unwrap();
    let lines = said(&store).lines(&store.shared.identity);
    let lengths = lines.iter().map(|line| match line {
        Line::Entries(entries) => entries.len(),
        _ => 0,
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [0, 0, 0, 2, 1, 2]);
    let before = said(&store);
    drop(store);
    let after = said(&open(&disk.crash(1)).unwrap());
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
}

#[test]
fn a_last_frame_that_was_cut_off_is_dropped_and_a_middle_one_stops_the_voter() {
    let disk = CrashDisk::new(2);
    let mut store = open(&disk).unwrap();
    append(&mut store, vec![entry(1, 0, "first")]);
    let first = length(&disk);
    append(&mut store, vec![entry(1, 1, "second")]);
    let second = length(&disk);
    drop(store);
    for cut in first..second {
        let left = disk.crash(cut);
        let file = left.open(JOURNAL, OpenMode::Write).unwrap();
        file.set_len(cut).unwrap();
        let mut store = open(&left).unwrap();
        assert_eq!(said(&store).last(), Some(id(1, 0)));
        // And what comes next is found behind what stayed.
        append(&mut store, vec![entry(2, 1, "other")]);
        drop(store);
        assert_eq!(said(&open(&left).unwrap()).last(), Some(id(2, 1)));
    }
    for at in 0..first {
        let left = disk.crash(at);
        left.flip(JOURNAL, at, 0x40).unwrap();
        assert!(
            matches!(open(&left), Err(QuorumError::Damaged { .. })),
            "{at}"
        );
    }
}

#[test]
fn a_journal_that_is_gone_beside_its_snapshot_stops_the_voter() {
    let disk = CrashDisk::new(3);
    let store = open(&disk).unwrap();
    found(&store, 2);
    drop(store);
    disk.remove_file(JOURNAL).unwrap();
    assert!(matches!(open(&disk), Err(QuorumError::Damaged { .. })));
}

fn found(store: &Store, records: usize) {
    let member = Member {
        broker: BrokerId(1),
        address: "a:1".to_owned(),
    };
    let disk = store.disk_id();
    let voters = vec![std::collections::BTreeSet::from([disk])];
    let members = Membership::new(voters, BTreeMap::from([(disk, member)])).unwrap();
    let state = State::new(MetadataSnapshot {
        index: 0,
        position: Offset(7),
        records: vec![Bytes::from_static(b"r"); records],
    });
    now(store.found(state, members)).unwrap();
}

#[test]
fn a_snapshot_is_the_old_or_the_new_and_never_damaged() {
    for crash_at in 0..12 {
        let disk = CrashDisk::new(4);
        let mut store = open(&disk).unwrap();
        found(&store, 1);
        append(&mut store, vec![entry(2, 2, "x"), entry(2, 3, "y")]);
        disk.fail_after(crash_at);
        let (mut meta, state) = store.snapshot().unwrap();
        meta.last_log_id = Some(id(2, 3));
        // Fails where the power does.
        let _ = now(store.save_snapshot(meta, state));
        let _ = now(store.purge(id(2, 2)));
        let left = disk.crash(crash_at);
        let after = said(&open(&left).unwrap());
        let held = after.snapshot.clone().unwrap().0.last_log_id;
        assert!([Some(id(1, 1)), Some(id(2, 3))].contains(&held));
        assert_eq!(after.last(), Some(id(2, 3)));
    }
    let disk = CrashDisk::new(4);
    found(&open(&disk).unwrap(), 3);
    disk.flip("quorum/snapshot", 30, 1).unwrap();
    assert!(matches!(open(&disk), Err(QuorumError::Damaged { .. })));
}

#[test]
fn random_histories_survive_power_cuts_as_they_were_answered() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let disk = CrashDisk::new(seed);
        let mut store = open(&disk).unwrap();
        let mut term = 1;
        for _ in 0..random.below(30) {
            let last = said(&store).last();
            let next = last.map_or(0, |l| l.index + 1);
            match random.below(6) {
                0 => {
                    term += 1;
                    now(store.save_vote(&vote(term, DiskId(random.below(3)), true))).unwrap();
                }
                1 if next > 0 => {
                    let purged = said(&store).purged.map_or(0, |p| p.index);
                    let keep = purged + random.below(next - purged);
                    let last = said(&store)
                        .entries
                        .get(&keep)
                        .map(|e| e.log_id)
                        .or(said(&store).purged);
                    now(store.truncate_after(last)).unwrap();
                }
                2 if !said(&store).entries.is_empty() => {
                    let (meta, upto) = {
                        let memory = said(&store);
                        let (_, first) = memory.entries.first_key_value().unwrap();
                        let meta = SnapshotMeta {
                            last_log_id: Some(first.log_id),
                            last_membership: StoredMembership::default(),
                        };
                        (meta, first.log_id)
                    };
                    now(store.save_snapshot(meta, State::default())).unwrap();
                    now(store.purge(upto)).unwrap();
                }
                _ => {
                    let many = 1 + random.below(4);
                    let entries = (next..next + many).map(|at| entry(term, at, "e")).collect();
                    append(&mut store, entries);
                }
            }
        }
        let before = said(&store);
        drop(store);
        let after = said(&open(&disk.crash(random.next_u64())).unwrap());
        assert_eq!(format!("{after:?}"), format!("{before:?}"), "seed {seed}");
    }
}

#[test]
fn hostile_bytes_are_errors() {
    let meta = SnapshotMeta {
        last_log_id: Some(id(3, 9)),
        last_membership: StoredMembership::default(),
    };
    let state = State {
        position: Offset(4),
        records: Arc::new(vec![Bytes::from_static(b"record"); 3]),
    };
    let whole = Bytes::from(encode_snapshot(&meta, &state).unwrap());
    let (found, read) = decode_snapshot(&whole).unwrap();
    assert_eq!((found, read), (meta, state));
    let mut random = Random::new(5);
    for cut in 0..whole.len() {
        assert!(decode_snapshot(&whole.slice(..cut)).is_err());
        let mut bad = whole.to_vec();
        bad[cut] ^= 1 << random.below(8);
        // Whatever comes of it, nothing panics.
        let _ = decode_snapshot(&bad.into());
    }
}
