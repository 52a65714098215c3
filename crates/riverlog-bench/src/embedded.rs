//! The library in this process.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use riverlog::{Broker, Durability, Message};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;

use crate::measure::{cpu, latencies, print, print_latencies};
use crate::{Result, floor};

const TOPIC: &str = "bench";
const GIB: f64 = (1u64 << 30) as f64;

/// F18.
pub(crate) fn memory(records: usize) -> Result<()> {
    let broker = Broker::in_memory();
    // Bounded, so that the broker and not the allocator is measured.
    broker
        .topic_builder(TOPIC)
        .retention_records(1_000_000)
        .create()?;
    let mut consumer = broker.subscribe(TOPIC, "bench", "one")?;
    let value = [7; 100];
    let messages = vec![Message::new(None, &value); 100];
    let (mut publishing, mut polling) = (Duration::ZERO, Duration::ZERO);
    let mut read = 0;
    let mut published = 0;
    while published < records {
        let began = Instant::now();
        for _ in 0..100 {
            published += broker.publish_batch(TOPIC, &messages)?.len();
        }
        publishing += began.elapsed();
        let began = Instant::now();
        while read < published {
            read += consumer.poll(1_000, Duration::from_secs(1))?.len();
        }
        polling += began.elapsed();
    }
    let per_second = |time: Duration| records as f64 / time.as_secs_f64();
    print(
        "records published and polled a second",
        per_second(publishing + polling),
        "1/s",
    );
    print("records published a second", per_second(publishing), "1/s");
    print("records polled a second", per_second(polling), "1/s");
    Ok(())
}

/// One synced record at a time from more and more threads.
pub(crate) fn publish(seconds: u64) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let time = Duration::from_secs(seconds);
    print(
        "fdatasync a second",
        floor::syncs_per_second(folder.path(), time)?,
        "1/s",
    );
    let broker = Broker::open(folder.path().join("data"))?;
    broker.create_topic(TOPIC, 12)?;
    for threads in [1, 16, 256] {
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let all = std::thread::scope(|scope| -> Result<_> {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    let (broker, stop, count) = (&broker, &stop, &count);
                    scope.spawn(move || -> Result<_> {
                        let mut seen = latencies()?;
                        while !stop.load(Ordering::Relaxed) {
                            let began = Instant::now();
                            broker.publish(TOPIC, None, &[7; 100])?;
                            seen.record(began.elapsed().as_micros() as u64)?;
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(seen)
                    })
                })
                .collect();
            std::thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            let mut all = latencies()?;
            for worker in workers {
                all.add(worker.join().map_err(|_| "a publisher panicked")??)?;
            }
            Ok(all)
        })?;
        let name = format!("{threads} threads, synced publish");
        print(
            &format!("{name}, records a second"),
            count.load(Ordering::Relaxed) as f64 / time.as_secs_f64(),
            "1/s",
        );
        print_latencies(&name, &all);
    }
    Ok(())
}

fn batch(bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None);
    while builder.size() < bytes {
        builder.push(1_700_000_000_000, None, Some(&[7; 1_000]), &[]);
    }
    builder.build()
}

/// CPU of appends and reads beside the floor.
pub(crate) fn append(mib: u64) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let gib = (mib << 20) as f64 / GIB;
    let before = cpu();
    floor::write(folder.path(), &batch(128 << 10), mib)?;
    let floor_write = (cpu() - before).as_secs_f64() / gib;
    let before = cpu();
    floor::read(folder.path())?;
    let floor_read = (cpu() - before).as_secs_f64() / gib;
    std::fs::remove_file(folder.path().join("floor"))?;

    let broker = Broker::open(folder.path().join("data"))?;
    broker
        .topic_builder(TOPIC)
        .durability(Durability::PageCache)
        .create()?;
    let value = [7; 1_000];
    let messages = vec![Message::new(None, &value); 128];
    let before = cpu();
    for _ in 0..(mib << 20) / 128_000 {
        broker.publish_batch(TOPIC, &messages)?;
    }
    let written = (cpu() - before).as_secs_f64() / gib;
    let mut consumer = broker.subscribe(TOPIC, "bench", "one")?;
    let end = broker.topic(TOPIC)?.partition(0)?.high_watermark();
    let before = cpu();
    let mut read = 0;
    while read < end {
        read += consumer.poll(10_000, Duration::from_secs(1))?.len() as i64;
    }
    let polled = (cpu() - before).as_secs_f64() / gib;
    print("append, CPU a GiB", written, "s");
    print("append, floor", floor_write, "s");
    print("append, times the floor", written / floor_write, "ratio");
    print("read, CPU a GiB", polled, "s");
    print("read, floor", floor_read, "s");
    Ok(())
}

/// Fills a data folder, says so, and waits to be killed.
pub(crate) fn fill(data: &Path, mib: u64) -> Result<()> {
    let broker = Broker::open(data)?;
    broker.create_topic(TOPIC, 8)?;
    let value = [7; 1_000];
    let messages = vec![Message::new(None, &value); 1_000];
    for _ in 0..mib {
        broker.publish_batch(TOPIC, &messages)?;
    }
    println!("full");
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}

/// From `kill -9` to the first read of old data.
pub(crate) fn recovery(mib: u64) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let mut child = Command::new(std::env::current_exe()?)
        .args(["fill".as_ref(), data.as_os_str(), mib.to_string().as_ref()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().ok_or("no output")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
    child.kill()?;
    child.wait()?;
    let began = Instant::now();
    let broker = Broker::open(&data)?;
    print(
        "start after a kill",
        began.elapsed().as_secs_f64() * 1e3,
        "ms",
    );
    let mut consumer = broker.subscribe(TOPIC, "bench", "one")?;
    while consumer.poll(1, Duration::from_secs(1))?.is_empty() {}
    print(
        "kill to the first old record",
        began.elapsed().as_secs_f64() * 1e3,
        "ms",
    );
    let stored: i64 = broker
        .topic(TOPIC)?
        .partitions()?
        .iter()
        .map(|p| p.high_watermark())
        .sum();
    print("records found", stored as f64, "records");
    Ok(())
}
