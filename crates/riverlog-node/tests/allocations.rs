//! What an append may allocate: nothing for each record, little for each batch. One test, so that nothing else counts.

mod common;

use std::alloc::System;
use std::sync::Arc;

use common::*;
use riverlog_log::disk::MemoryDisk;
use riverlog_node::harness::Harness;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BATCHES: usize = 1_000;

fn per_batch(topic: &str, records: usize) -> f64 {
    let mut few = settings();
    few.segment_bytes_limit = None;
    few.volume.wal_bytes = 64 << 20;
    let mut host = Harness::open(Arc::new(MemoryDisk::new()), few, 1).expect("the node opens");
    create(&mut host, "pc", 1, &[("riverlog.durability", "page-cache")]);
    create(&mut host, "sync", 1, &[]);
    let to = partition(&host, topic, 0);
    let mut batch = BatchBuilder::new(Compression::None);
    for _ in 0..records {
        batch.push(host.now().wall_ms, None, Some(b"0123456789"), &[]);
    }
    let batch = batch.build();
    let mut total = 0;
    for i in 0..2 * BATCHES {
        let batch = batch.clone();
        let region = Region::new(ALLOCATOR);
        let sent = host.ask(|node, now, reply| node.append(&to, command(batch, -1), now, reply));
        let change = region.change();
        if i >= BATCHES {
            total += change.allocations;
        }
        host.run();
        assert!(sent.take().expect("an answer").is_ok());
    }
    total as f64 / BATCHES as f64
}

#[test]
fn an_append_allocates_little_and_nothing_for_a_record() {
    for topic in ["pc", "sync"] {
        let (few, many) = (per_batch(topic, 1), per_batch(topic, 100));
        // Two of them are the test's own: the reply, and where it puts the answer.
        assert!(few <= 4.0, "{topic}: {few} allocations a batch");
        assert!(
            many - few < 1.0,
            "{topic}: {few} with one record, {many} with a hundred"
        );
    }
}
