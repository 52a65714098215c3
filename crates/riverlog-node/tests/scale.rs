//! Many partitions: cheap to have, quick to open, nothing to do while idle.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use riverlog_log::disk::CrashDisk;
use riverlog_node::harness::Harness;
use riverlog_wire::Offset;

#[test]
fn ten_thousand_partitions_open_quickly_and_idle_for_nothing() {
    let disk = CrashDisk::new(1);
    let mut host = open_with(&disk, settings());
    for topic in 0..10 {
        create(&mut host, &format!("t{topic}"), 1_000, &[]);
    }
    for index in [0, 500, 999] {
        let to = partition(&host, "t3", index);
        assert_eq!(
            produce(&mut host, &to, &["a"]).unwrap().base_offset,
            Offset(0)
        );
    }
    host.close().unwrap();
    let started = Instant::now();
    let mut host = Harness::open(Arc::new(disk.clone()), settings(), 3).unwrap();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    host.advance(Duration::from_secs(5));
    let before = disk.counts();
    let started = Instant::now();
    host.advance(Duration::from_secs(600));
    assert_eq!(disk.counts(), before, "an idle node leaves the disk alone");
    let took = started.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!(read_all(&mut host, "t3", 999).len(), 1);
}
