//! What compaction costs a broker: CPU seconds for each GiB that is new.

use std::time::{Duration, Instant};

use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::DescribeLogDirsRequest;
use riverlog_wire::messages::describe_log_dirs_request::DescribableLogDirTopic;

use crate::Result;
use crate::measure::{broker_pid, cpu_seconds, print};
use crate::wire::{Connection, now_ms, produce_one, topic};

const LOG_DIRS: i16 = 1;
/// Of each partition's records, one in so many has a key that comes only once.
const ONCE: u64 = 20;
/// Keys that come again and again.
const KEYS: u64 = 10_000;

/// Writes `mib` MiB of keyed records to one compacted partition, waits until that is compacted, and says what the
/// process `broker_pid` used meanwhile.
pub(crate) fn run(broker: &str, mib: u64) -> Result<()> {
    let pid = broker_pid()?;
    let mut connection = Connection::open(broker)?;
    let configs = [
        "cleanup.policy=compact",
        "min.cleanable.dirty.ratio=0.01",
        "segment.bytes=67108864",
        "segment.ms=3600000",
    ]
    .map(str::to_owned);
    let name = topic(&mut connection, 1, &configs)?;
    let before = cpu_seconds(pid)?;
    let mut written = 0;
    let mut number = 0_u64;
    while written < mib << 20 {
        let mut batch = BatchBuilder::new(Compression::None);
        while batch.size() < 128 << 10 {
            number += 1;
            let key = match number % ONCE {
                0 => format!("once-{number}"),
                _ => format!("key-{}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS),
            };
            batch.push(now_ms(), Some(key.as_bytes()), Some(&[7; 500]), &[]);
        }
        let batch = batch.build();
        written += batch.len() as u64;
        produce_one(&mut connection, &name, batch.into())?;
    }
    let filled = cpu_seconds(pid)?;
    let began = Instant::now();
    let (mut least, mut since) = (u64::MAX, Instant::now());
    let mut used = filled;
    let mut took = Duration::ZERO;
    // Done: much smaller than what was written, and no smaller for a while.
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let size = size_of(&mut connection, &name)?;
        if size < least {
            (least, since) = (size, Instant::now());
            used = cpu_seconds(pid)?;
            took = began.elapsed();
        }
        if least < written * 7 / 10 && since.elapsed() > Duration::from_secs(5) {
            break;
        }
        if began.elapsed() > Duration::from_secs(200) {
            return Err(
                format!("{least} of {written} bytes are left, nothing is compacted").into(),
            );
        }
    }
    let gib = written as f64 / f64::from(1 << 30);
    print("CPU to write", (filled - before) / gib, "CPU-s/GiB");
    print("CPU to compact", (used - filled) / gib, "CPU-s/GiB");
    print("time to compact", took.as_secs_f64() / gib, "s/GiB");
    print("left", least as f64 / written as f64 * 100.0, "%");
    Ok(())
}

fn size_of(connection: &mut Connection, topic: &str) -> Result<u64> {
    let request = DescribeLogDirsRequest {
        topics: Some(vec![DescribableLogDirTopic {
            topic: topic.to_owned(),
            partitions: vec![0],
        }]),
    };
    let answer = connection.call(LOG_DIRS, &request)?;
    let topics = answer.results.iter().flat_map(|r| &r.topics);
    let sizes = topics.flat_map(|t| &t.partitions).map(|p| p.partition_size);
    Ok(u64::try_from(sizes.sum::<i64>()).unwrap_or(0))
}
