//! What a node counts. Cheap to count, summed up only when somebody looks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::node::Node;

/// Whether a value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Grows from 0 at the start of the process.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A value with its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// In Prometheus' style, without a prefix; the unit is part of it.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// One line.
    pub help: &'static str,
    /// Now.
    pub value: f64,
}

macro_rules! counters {
    ($($name:ident $metric:literal $help:literal)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }
        impl Counters {
            fn read(&self) -> Vec<Metric> {
                vec![$(Metric {
                    name: $metric,
                    kind: MetricKind::Counter,
                    help: $help,
                    value: self.$name.load(Ordering::Relaxed) as f64,
                },)*]
            }
        }
    };
}

counters! {
    append_requests "append_requests_total" "Batches that were sent to this node"
    append_failures "append_failures_total" "Batches that were refused or not made durable"
    batches_in "batches_in_total" "Batches that were acknowledged"
    bytes_in "bytes_in_total" "Bytes of the batches that were acknowledged"
    fetch_requests "fetch_requests_total" "Fetches"
    cold_fetches "cold_fetches_total" "Fetches that had to read files"
    bytes_out "bytes_out_total" "Bytes of the batches in answers to fetches"
    flushes "flushes_total" "Group commits of the write-ahead log"
    flush_failures "flush_failures_total" "Group commits that failed"
    write_failures "write_failures_total" "Segment writes that failed"
    upkeep_failures "upkeep_failures_total" "Segment syncs, removals and checkpoints that failed"
    read_failures "read_failures_total" "Reads of segments that the disk failed"
    damage_found "damage_found_total" "Ranges of segments whose bytes are not what was written"
    load_failures "group_load_failures_total" "Loads of groups that failed and are tried again"
    peer_messages_refused "peer_messages_refused_total" "Messages of other nodes that could not be read"
    peer_messages_passed_on "peer_messages_passed_on_total" "Messages that were passed on between two other nodes that don't hear each other"
    replica_cuts "replica_cuts_total" "Times that the tail of a copy was cut, since its leader's log went another way"
    replica_restarts "replica_restarts_total" "Times that a copy began anew, since its leader had removed what came next"
    open_failures "partition_open_failures_total" "Partitions whose log could not be opened"
    metadata_commits "metadata_commits_total" "Batches of metadata records that were committed"
    cleaner_passes "cleaner_passes_total" "Passes of the cleaner over compacted partitions"
    cleaner_failures "cleaner_failures_total" "Compacted partitions that were set aside because a pass failed"
    cleaner_io "cleaner_io_bytes_total" "Bytes that the cleaner has read and written"
    cleaner_removed_bytes "cleaner_removed_bytes_total" "Bytes that compaction has freed"
    cleaner_removed_records "cleaner_removed_records_total" "Records that compaction has removed"
    dead_letters "share_dead_letters_total" "Records of share groups that were put into their topic for dead letters"
    dead_letter_failures "share_dead_letter_failures_total" "Records of share groups that were archived because they could not become dead letters"
    groups_overtaken "groups_overtaken_total" "Times that retention deleted records of a partition that a group had not committed"
    flush_nanos "flush_seconds_total" "Time that group commits took"
}

impl Node {
    /// All counters and gauges, in a fixed order. Looks at no partition that is sound.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.metrics.read();
        for metric in &mut metrics {
            if metric.name == "flush_seconds_total" {
                metric.value /= 1e9;
            }
        }
        let mut gauge = |name, help, value: f64| {
            metrics.push(Metric {
                name,
                kind: MetricKind::Gauge,
                help,
                value,
            });
        };
        let image = self.image.load();
        let partitions: usize = image.topics.values().map(|t| t.partitions.len()).sum();
        gauge("topics", "Topics", image.topics.len() as f64);
        gauge("partitions", "Partitions of all topics", partitions as f64);
        gauge(
            "append_bytes_held",
            "Bytes of batches between their arrival and their answer (bound: append_bytes)",
            self.append_bytes.used() as f64,
        );
        gauge(
            "parked",
            "Fetches and commands of coordinators that wait (bound: parked, for each of the two)",
            (self.parked.used() + self.coordinating.used()) as f64,
        );
        gauge(
            "cold_read_bytes_held",
            "Bytes that cold reads may hold now (bound: cold_read_bytes)",
            self.cold_bytes.used() as f64,
        );
        gauge(
            "cold_reads_queued",
            "Fetches that wait for the bound of cold reads",
            self.cold_queue.lock().len() as f64,
        );
        gauge(
            "disk_full",
            "1 while appends are refused because the disk has no room",
            f64::from(u8::from(
                self.is_tight() || self.disk_full.load(Ordering::Relaxed),
            )),
        );
        let (used, capacity) = self.volume.wal_bytes();
        gauge(
            "wal_used_bytes",
            "Bytes of the write-ahead log that are in use",
            used as f64,
        );
        gauge(
            "wal_capacity_bytes",
            "Bytes that the write-ahead log may have",
            capacity as f64,
        );
        gauge(
            "wal_queued_bytes",
            "Bytes that wait for a group commit, or are in one",
            self.volume.queued_bytes() as f64,
        );
        gauge(
            "disk_failed",
            "1 once a sync has failed: nothing can be written until a restart",
            f64::from(u8::from(self.has_failed())),
        );
        let (dirty, aside, passes) = self.cleaner.gauges();
        gauge(
            "cleaner_max_dirty_ratio",
            "Largest dirty share of the compacted partitions that wait for the cleaner",
            dirty,
        );
        gauge(
            "cleaner_uncleanable_partitions",
            "Compacted partitions that are set aside because they can't be cleaned",
            aside as f64,
        );
        gauge(
            "cleaner_passes_running",
            "Partitions that are being compacted",
            passes as f64,
        );
        let (near, overtaken) = self.losses.gauges();
        gauge(
            "groups_near_loss",
            "Partitions of groups of which retention deletes uncommitted records within riverlog.loss.warning.ms",
            near as f64,
        );
        gauge(
            "groups_overtaken",
            "Partitions of groups of which retention has deleted uncommitted records",
            overtaken as f64,
        );
        gauge(
            "damaged_ranges",
            "Damaged ranges that were found since the start and could still be asked for",
            self.damages().len() as f64,
        );
        gauge(
            "unavailable_coordinators",
            "Partitions of internal topics whose groups (or what else they keep) can't be served",
            self.unavailable_coordinators().len() as f64,
        );
        gauge(
            "registered",
            "1 once this node has its leader epochs",
            f64::from(u8::from(self.is_registered())),
        );
        metrics
    }
}
