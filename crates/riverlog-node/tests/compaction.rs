//! Compaction: of each key the newest record stays, beside whatever else the node does.

mod common;

use std::time::Duration;

use common::*;
use riverlog_core::Now;
use riverlog_log::disk::CrashDisk;
use riverlog_log::{Disk, OpenMode};
use riverlog_node::harness::Harness;
use riverlog_node::{Lane, NodeSettings, PartitionRef};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, Offset};

const COMPACT: (&str, &str) = ("cleanup.policy", "compact");

fn with(configs: &[(&str, &str)]) -> NodeSettings {
    let mut settings = settings();
    for (key, value) in configs {
        settings
            .configs
            .insert((*key).to_owned(), (*value).to_owned());
    }
    settings
}

/// Sends one record.
fn put(host: &mut Harness, to: &PartitionRef, key: &str, value: Option<&str>) {
    send(host, to, key, value).expect("appended");
}

fn send(host: &mut Harness, to: &PartitionRef, key: &str, value: Option<&str>) -> Appended {
    let mut batch = BatchBuilder::new(Compression::None);
    let now = host.now().wall_ms;
    batch.push(now, Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    let batch = batch.build();
    host.get(|node, now, reply| node.append(to, command(batch, -1), now, reply))
        .expect("an answer")
}

/// Fills some segments with few keys.
fn fill(host: &mut Harness, to: &PartitionRef, records: usize) {
    let value = "v".repeat(150);
    for i in 0..records {
        put(host, to, &format!("k{}", i % 5), Some(&value));
    }
}

/// Offset and key of everything that can be read; whoever reads reaches the end.
fn keys(host: &mut Harness, name: &str) -> Vec<(i64, String)> {
    let here = partition(host, name, 0);
    let described = host.node().describe_partition(&here);
    let mut at = described.log_start_offset.0;
    let mut all = Vec::new();
    while at < described.high_watermark.0 {
        let mut answer = fetch(host, fetch_command(vec![ask_from(name, 0, at)], 0));
        let records = answer.partitions.remove(0).records.into_bytes().unwrap();
        assert!(!records.is_empty(), "no way on from {at}");
        for batch in batches(&records) {
            let batch = batch.unwrap();
            at = batch.header.next_offset().0;
            for record in batch.records(1 << 20).unwrap().iter() {
                let record = record.unwrap();
                let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
                all.push((record.offset.0, key));
            }
        }
    }
    all
}

fn metric(host: &Harness, name: &str) -> f64 {
    let metrics = host.node().metrics();
    metrics.iter().find(|m| m.name == name).unwrap().value
}

fn size(host: &Harness, name: &str) -> u64 {
    let here = partition(host, name, 0);
    host.node().describe_partition(&here).size_bytes
}

fn wait_for_pass(host: &mut Harness) {
    for _ in 0..600 {
        if metric(host, "cleaner_passes_running") > 0.0 {
            return;
        }
        host.advance(Duration::from_secs(1));
    }
    panic!("no pass has begun");
}

#[test]
fn a_compacted_topic_keeps_the_newest_of_each_key() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[COMPACT]);
    create(&mut host, "other", 1, &[]);
    let (to, other) = (partition(&host, "t", 0), partition(&host, "other", 0));
    fill(&mut host, &to, 100);
    fill(&mut host, &other, 100);
    assert_eq!(keys(&mut host, "t").len(), 100);
    let before = size(&host, "t");
    host.advance(Duration::from_secs(120));
    let kept = keys(&mut host, "t");
    assert!(kept.len() < 20, "{kept:?}");
    assert!(kept.iter().any(|(offset, _)| *offset == 99));
    assert_eq!(keys(&mut host, "other").len(), 100);
    assert!(size(&host, "t") < before / 3);
    assert!(metric(&host, "cleaner_passes_total") >= 1.0);
    assert!(metric(&host, "cleaner_removed_records_total") >= 80.0);
    assert!(metric(&host, "cleaner_removed_bytes_total") > 0.0);
    // Offsets in a gap lead on.
    let answer = fetch(&mut host, fetch_command(vec![ask_from("t", 0, 3)], 0));
    assert!(answer.partitions[0].records.len > 0);
    // A second round begins where the first one ended, also after a restart.
    fill(&mut host, &to, 100);
    host.close().unwrap();
    let mut host = open(&disk);
    host.advance(Duration::from_secs(120));
    let kept = keys(&mut host, "t");
    assert!(kept.len() < 25, "{kept:?}");
    assert!(kept.iter().all(|(offset, _)| *offset > 80));
    let host = open(&disk.crash(3));
    assert_eq!(metric(&host, "cleaner_uncleanable_partitions"), 0.0);
}

#[test]
fn what_was_not_synced_at_the_look_is_cleaned_after_the_next() {
    let mut host = open(&CrashDisk::new(1));
    create(&mut host, "t", 1, &[COMPACT]);
    let to = partition(&host, "t", 0);
    let now = host.now();
    let mut answers = Vec::new();
    for i in 0..100 {
        let mut batch = BatchBuilder::new(Compression::None);
        let (key, value) = (format!("k{}", i % 5), "v".repeat(150));
        batch.push(
            now.wall_ms,
            Some(key.as_bytes()),
            Some(value.as_bytes()),
            &[],
        );
        let batch = batch.build();
        answers.push(host.ask(|node, now, reply| node.append(&to, command(batch, -1), now, reply)));
    }
    // The time for a look comes while the disk is slow.
    let later = Now {
        mono: now.mono + Duration::from_secs(16),
        wall_ms: now.wall_ms + 16_000,
    };
    host.node().tick(later);
    let look = host.jobs().iter().position(|job| job.lane() == Lane::Clean);
    assert!(host.run_job(look.expect("a look")));
    assert!(!answers.iter().any(|answer| answer.is_ready()));
    host.advance(Duration::from_secs(120));
    assert!(answers.iter().all(|answer| answer.is_ready()));
    let kept = keys(&mut host, "t");
    assert!(kept.len() < 20, "{kept:?}");
}

#[test]
fn a_partition_that_was_clean_is_looked_at_again_after_the_next_append() {
    let mut settings = settings();
    settings.retention_check_ms = 300_000;
    let mut host = open_with(&CrashDisk::new(1), settings);
    create(&mut host, "t", 1, &[COMPACT]);
    let to = partition(&host, "t", 0);
    for round in 1..=3 {
        fill(&mut host, &to, 100);
        host.advance(Duration::from_secs(40));
        let kept = keys(&mut host, "t");
        assert!(kept.len() < 30, "round {round}: {kept:?}");
    }
}

#[test]
fn a_batch_that_a_full_disk_took_back_does_not_end_the_compaction_of_a_topic_that_nobody_writes_to()
{
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    create(&mut host, "t", 1, &[COMPACT]);
    let to = partition(&host, "t", 0);
    fill(&mut host, &to, 100);
    disk.fill_up();
    let refused = send(&mut host, &to, "k0", Some(&"v".repeat(150)));
    assert_eq!(refused.unwrap_err().error, ErrorCode::KAFKA_STORAGE_ERROR);
    disk.set_capacity(None);
    host.advance(Duration::from_secs(120));
    let kept = keys(&mut host, "t");
    assert!(kept.len() < 20, "{kept:?}");
}

#[test]
fn a_deleted_key_never_returns() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    let configs = [COMPACT, ("delete.retention.ms", "60000")];
    create(&mut host, "t", 1, &configs);
    let to = partition(&host, "t", 0);
    put(&mut host, &to, "gone", Some("a value"));
    fill(&mut host, &to, 50);
    put(&mut host, &to, "gone", None);
    fill(&mut host, &to, 50);
    host.advance(Duration::from_secs(30));
    let has = |kept: &[(i64, String)]| kept.iter().filter(|(_, key)| key == "gone").count();
    let kept = keys(&mut host, "t");
    assert_eq!(has(&kept), 1, "the tombstone");
    assert!(kept.contains(&(51, "gone".to_owned())));
    let mut host = open(&disk.crash(1));
    host.advance(Duration::from_secs(60));
    let to = partition(&host, "t", 0);
    fill(&mut host, &to, 50);
    host.advance(Duration::from_secs(150));
    assert_eq!(has(&keys(&mut host, "t")), 0);
}

#[test]
fn both_policies_together_drop_old_segments_too() {
    let mut host = open(&CrashDisk::new(1));
    let configs = [
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "600000"),
    ];
    create(&mut host, "t", 1, &configs);
    let to = partition(&host, "t", 0);
    fill(&mut host, &to, 100);
    host.advance(Duration::from_secs(120));
    assert!(keys(&mut host, "t").len() < 20);
    host.advance(Duration::from_secs(900));
    let described = host.node().describe_partition(&to);
    assert_eq!(described.log_start_offset, Offset(100));
}

#[test]
fn lags_and_the_dirty_ratio_say_when() {
    let mut host = open(&CrashDisk::new(1));
    let configs = [COMPACT, ("min.compaction.lag.ms", "300000")];
    create(&mut host, "later", 1, &configs);
    let configs = [
        COMPACT,
        ("min.cleanable.dirty.ratio", "1"),
        ("max.compaction.lag.ms", "400000"),
    ];
    create(&mut host, "latest", 1, &configs);
    let (later, latest) = (partition(&host, "later", 0), partition(&host, "latest", 0));
    fill(&mut host, &later, 60);
    fill(&mut host, &latest, 60);
    host.advance(Duration::from_secs(200));
    assert_eq!(keys(&mut host, "later").len(), 60);
    assert_eq!(keys(&mut host, "latest").len(), 60);
    assert_eq!(metric(&host, "cleaner_max_dirty_ratio"), 1.0);
    host.advance(Duration::from_secs(170));
    assert!(keys(&mut host, "later").len() < 20);
    assert_eq!(keys(&mut host, "latest").len(), 60);
    host.advance(Duration::from_secs(100));
    assert!(keys(&mut host, "latest").len() < 20);
}

#[test]
fn an_idle_topic_is_compacted_to_its_last_record_once_it_has_waited() {
    let disk = CrashDisk::new(1);
    let large = || NodeSettings {
        segment_bytes_limit: None,
        ..settings()
    };
    let mut host = open_with(&disk, large());
    let lag = ("max.compaction.lag.ms", "60000");
    create(&mut host, "bounded", 1, &[COMPACT, lag]);
    create(&mut host, "open", 1, &[COMPACT]);
    let (bounded, other) = (partition(&host, "bounded", 0), partition(&host, "open", 0));
    fill(&mut host, &bounded, 60);
    fill(&mut host, &other, 60);
    host.advance(Duration::from_secs(50));
    assert_eq!(keys(&mut host, "bounded").len(), 60);
    host.advance(Duration::from_secs(60));
    let kept = keys(&mut host, "bounded");
    assert!(kept.len() < 20, "{kept:?}");
    assert_eq!(keys(&mut host, "open").len(), 60);
    // So it is after a power cut, and the log goes on.
    let mut host = open_with(&disk.crash(7), large());
    assert_eq!(keys(&mut host, "bounded"), kept);
    let bounded = partition(&host, "bounded", 0);
    fill(&mut host, &bounded, 1);
    assert_eq!(keys(&mut host, "bounded").len(), kept.len() + 1);
}

#[test]
fn what_cannot_be_read_sets_one_partition_aside_and_no_other() {
    let disk = CrashDisk::new(1);
    let mut host = open(&disk);
    for name in ["bad", "good"] {
        create(
            &mut host,
            name,
            1,
            &[COMPACT, ("min.cleanable.dirty.ratio", "0.9")],
        );
        let to = partition(&host, name, 0);
        fill(&mut host, &to, 60);
    }
    let bad = partition(&host, "bad", 0);
    let path = format!("{}/0/{:020}.log", bad.topic(), 0);
    host.close().unwrap();
    let file = disk.open(&path, OpenMode::Read).unwrap();
    assert!(file.len().unwrap() > 500);
    disk.flip(&path, 300, 4).unwrap();
    let mut host = open(&disk);
    host.advance(Duration::from_secs(120));
    assert!(keys(&mut host, "good").len() < 20);
    assert_eq!(metric(&host, "cleaner_uncleanable_partitions"), 1.0);
    assert_eq!(metric(&host, "cleaner_failures_total"), 1.0);
    let aside = host.node().uncleanable();
    assert_eq!((aside[0].0, aside[0].1), (bad.topic(), 0));
    let notices = host.take_notices();
    assert_eq!(notices.len(), 1);
    let said = notices[0].to_string();
    assert!(said.contains("bad-0") && said.contains("damaged"), "{said}");
    // Writing goes on, and a change of the settings tries again.
    let bad = partition(&host, "bad", 0);
    put(&mut host, &bad, "k", Some("v"));
    disk.flip(&path, 300, 4).unwrap();
    set(&mut host, "bad", "min.cleanable.dirty.ratio", "0.5");
    host.advance(Duration::from_secs(60));
    assert_eq!(metric(&host, "cleaner_uncleanable_partitions"), 0.0);
}

#[test]
fn a_bound_on_bytes_a_second_makes_passes_slow_and_the_off_switch_stops_them() {
    let settings = with(&[("log.cleaner.io.max.bytes.per.second", "1000")]);
    let mut host = open_with(&CrashDisk::new(1), settings);
    create(&mut host, "t", 1, &[COMPACT]);
    let to = partition(&host, "t", 0);
    fill(&mut host, &to, 200);
    host.advance(Duration::from_secs(200));
    let moved = metric(&host, "cleaner_io_bytes_total");
    // About 30 KB to read twice and some to write.
    assert!(metric(&host, "cleaner_passes_running") + metric(&host, "cleaner_passes_total") > 0.0);
    assert!(moved > 1_000.0);
    host.advance(Duration::from_secs(200));
    assert!(keys(&mut host, "t").len() < 30);

    let settings = with(&[("log.cleaner.enable", "false")]);
    let mut host = open_with(&CrashDisk::new(1), settings);
    create(&mut host, "t", 1, &[COMPACT]);
    let to = partition(&host, "t", 0);
    fill(&mut host, &to, 100);
    host.advance(Duration::from_secs(300));
    assert_eq!(keys(&mut host, "t").len(), 100);
}

#[test]
fn deletion_and_another_policy_end_a_pass() {
    let settings = || with(&[("log.cleaner.io.max.bytes.per.second", "100")]);
    let disk = CrashDisk::new(1);
    let mut host = open_with(&disk, settings());
    let id = create(&mut host, "t", 1, &[COMPACT]);
    create(&mut host, "u", 1, &[COMPACT]);
    let (to, other) = (partition(&host, "t", 0), partition(&host, "u", 0));
    fill(&mut host, &to, 60);
    wait_for_pass(&mut host);
    delete(&mut host, "t").unwrap();
    host.advance(Duration::from_secs(600));
    assert_eq!(metric(&host, "cleaner_passes_running"), 0.0);
    assert!(disk.list(&id.to_string()).unwrap().is_empty());

    fill(&mut host, &other, 60);
    wait_for_pass(&mut host);
    set(&mut host, "u", "cleanup.policy", "delete");
    host.advance(Duration::from_secs(600));
    assert_eq!(metric(&host, "cleaner_passes_running"), 0.0);
    assert_eq!(metric(&host, "cleaner_uncleanable_partitions"), 0.0);
    let files = disk.list(&format!("{}/0", other.topic())).unwrap();
    assert!(
        !files.iter().any(|f| f.name.contains("cleaned")),
        "{files:?}"
    );
    // A stop doesn't wait for a pass.
    set(&mut host, "u", "cleanup.policy", "compact");
    fill(&mut host, &other, 60);
    wait_for_pass(&mut host);
    host.close().unwrap();
    let mut host = open_with(&disk, settings());
    assert!(keys(&mut host, "u").len() >= 60);
}

#[test]
fn what_is_written_after_a_look_is_cleaned_without_waiting_for_upkeep() {
    let disk = CrashDisk::new(1);
    let mut settings = with(&[("log.cleaner.backoff.ms", "1000")]);
    settings.retention_check_ms = 3_600_000;
    let mut host = open_with(&disk, settings);
    create(&mut host, "t", 1, &[COMPACT]);
    let to = partition(&host, "t", 0);
    fill(&mut host, &to, 3);
    // The cleaner has looked, and found nothing to do.
    host.advance(Duration::from_secs(5));
    fill(&mut host, &to, 100);
    host.advance(Duration::from_secs(10));
    let kept = keys(&mut host, "t");
    assert!(kept.len() < 20, "{kept:?}");
}
