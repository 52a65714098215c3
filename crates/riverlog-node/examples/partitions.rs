//! How much memory and time many empty partitions take: `cargo run --release --example partitions [COUNT]`.
//!
//! On the system's disk, in a folder of its own below the temporary folder, which is removed at the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use riverlog_core::metadata::{AdminCommand, NewTopic};
use riverlog_log::disk::SystemDisk;
use riverlog_node::NodeSettings;
use riverlog_node::harness::Harness;
use riverlog_wire::TopicId;

const PER_TOPIC: usize = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(100_000), |n| n.parse())?;
    let folder: PathBuf =
        std::env::temp_dir().join(format!("riverlog-partitions-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let disk = || SystemDisk::open(&folder).map(Arc::new);
    let before = resident()?;
    let started = Instant::now();
    let mut host = Harness::open(disk()?, NodeSettings::default(), 1)?;
    println!("open an empty folder: {:?}", started.elapsed());
    let started = Instant::now();
    let mut made = 0;
    while made < count {
        let partitions = (count - made).min(PER_TOPIC);
        let topic = NewTopic {
            name: format!("topic-{made}"),
            partitions: i32::try_from(partitions)?,
            replication_factor: -1,
            id: TopicId(host.node().random().to_be_bytes()),
            ..NewTopic::default()
        };
        let command = AdminCommand::CreateTopics {
            topics: vec![topic],
            validate_only: false,
        };
        host.get(|node, now, reply| node.admin(command, now, reply))
            .ok_or("no answer")??;
        made += partitions;
    }
    println!("make {count} partitions: {:?}", started.elapsed());
    report("after that", before, count)?;
    let started = Instant::now();
    host.close()?;
    println!("clean stop: {:?}", started.elapsed());
    for how in ["clean stop", "kill"] {
        let started = Instant::now();
        let mut host = Harness::open(disk()?, NodeSettings::default(), 2)?;
        println!("open after a {how}: {:?}", started.elapsed());
        report("after that", before, count)?;
        let started = Instant::now();
        host.advance(Duration::from_secs(3_600));
        println!("an idle hour: {:?} of CPU", started.elapsed());
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn report(what: &str, before: u64, count: usize) -> std::io::Result<()> {
    let now = resident()?;
    let each = now.saturating_sub(before) as f64 / count as f64;
    println!(
        "{what}: {} MiB resident, {each:.0} bytes a partition",
        now >> 20
    );
    Ok(())
}

/// Bytes of this process in memory.
fn resident() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = status
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    Ok(pages * 4096)
}
