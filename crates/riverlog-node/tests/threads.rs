//! Several threads at once: producers, readers that wait, a group commit of its own. Real time, so bounded by it.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::*;
use riverlog_core::Now;
use riverlog_core::metadata::{AdminCommand, NewTopic, TopicRef};
use riverlog_log::disk::MemoryDisk;
use riverlog_node::harness::{START_MS, Seeded};
use riverlog_node::{Host, Node, Reply};
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::{ErrorCode, TopicId};

const PRODUCERS: usize = 3;
const BATCHES: usize = 400;
const PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

/// The workers look for themselves.
struct Quiet;

impl Host for Quiet {
    fn jobs_ready(&self) {}
    fn deadline_changed(&self) {}
}

fn wait<T: Send + 'static>(send: impl FnOnce(Reply<T>)) -> T {
    let (answer, answered) = mpsc::channel();
    send(Reply::new(move |value| {
        let _gone = answer.send(value);
    }));
    answered.recv_timeout(PATIENCE).expect("an answer in time")
}

#[test]
fn threads_lose_nothing_and_wait_for_nothing_that_has_come() {
    let started = Instant::now();
    let now = move || Now {
        mono: started.elapsed(),
        wall_ms: START_MS + started.elapsed().as_millis() as i64,
    };
    let disk = Arc::new(MemoryDisk::new());
    let entropy = Arc::new(Seeded::new(1));
    let mut few = settings();
    few.volume.wal_bytes = 8 << 20;
    let node = Node::open(disk, entropy, Arc::new(Quiet), few, now()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (node, stop) = (&node, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let jobs = node.take_jobs();
                    if jobs.is_empty() {
                        node.tick(now());
                        std::thread::sleep(Duration::from_micros(50));
                    }
                    for job in jobs {
                        node.on_job_done(job.run(), now());
                    }
                }
            });
        }
        let topic = NewTopic {
            name: "t".to_owned(),
            partitions: PARTITIONS,
            replication_factor: -1,
            id: TopicId([7; 16]),
            ..NewTopic::default()
        };
        let command = AdminCommand::CreateTopics {
            topics: vec![topic],
            validate_only: false,
        };
        wait(|reply| node.admin(command, now(), reply)).unwrap();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let node = &node;
                scope.spawn(move || {
                    for i in 0..BATCHES {
                        let index = (i % PARTITIONS as usize) as i32;
                        let to = node
                            .partition(&TopicRef::Name("t".to_owned()), index)
                            .unwrap();
                        let mut batch = BatchBuilder::new(Compression::None);
                        let value = format!("{producer}:{i}");
                        batch.push(now().wall_ms, None, Some(value.as_bytes()), &[]);
                        let batch = command_of(batch.build());
                        wait(|reply| node.append(&to, batch, now(), reply)).unwrap();
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let node = &node;
                scope.spawn(move || {
                    let mut next = [0; PARTITIONS as usize];
                    let mut seen = Vec::new();
                    while seen.len() < PRODUCERS * BATCHES {
                        let asked = (0..PARTITIONS)
                            .map(|p| ask_from("t", p, next[p as usize]))
                            .collect();
                        // Longer than the test may take: only a wake-up ends the wait in time.
                        let command = fetch_command(asked, 120_000);
                        let answer = wait(|reply| node.fetch(command, now(), reply));
                        let mut answer = answer.partitions;
                        for (p, partition) in answer.drain(..).enumerate() {
                            assert_eq!(partition.error, ErrorCode::NONE);
                            let one = riverlog_node::FetchAnswer {
                                partitions: vec![partition],
                            };
                            for (offset, value) in values(one, 0) {
                                if offset >= next[p] {
                                    assert_eq!(offset, next[p], "a gap");
                                    next[p] += 1;
                                    seen.push(value);
                                }
                            }
                        }
                    }
                    seen.sort();
                    seen.dedup();
                    assert_eq!(seen.len(), PRODUCERS * BATCHES);
                })
            })
            .collect();
        let mut all = producers;
        all.extend(readers);
        let results: Vec<_> = all.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    node.close(now()).unwrap();
}

fn command_of(batch: Vec<u8>) -> riverlog_node::AppendCommand {
    command(batch, -1)
}
