//! Several workers share a topic; when one leaves, the others take its partitions over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use riverlog::Broker;

const JOBS: usize = 1_000;

fn main() -> riverlog::Result<()> {
    let broker = Broker::in_memory();
    broker.create_topic("jobs", 8)?;
    let done = AtomicUsize::new(0);

    std::thread::scope(|scope| -> riverlog::Result<()> {
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let (broker, done) = (&broker, &done);
                scope.spawn(move || work(broker, number, done))
            })
            .collect();
        for job in 0..JOBS {
            broker.publish(
                "jobs",
                Some(format!("customer-{}", job % 50).as_bytes()),
                b"work",
            )?;
        }
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker panicked"))
    })?;

    for partition in broker.group("workers")?.lag()? {
        println!(
            "partition {} committed up to {:?}",
            partition.partition, partition.committed
        );
    }
    Ok(())
}

fn work(broker: &Broker, number: usize, done: &AtomicUsize) -> riverlog::Result<()> {
    let mut consumer = broker.subscribe("jobs", "workers", &format!("worker-{number}"))?;
    let mut mine = 0;
    while done.load(Ordering::SeqCst) < JOBS {
        let jobs = consumer.poll(10, Duration::from_millis(50))?;
        match consumer.commit() {
            Ok(()) => {
                mine += jobs.len();
                done.fetch_add(jobs.len(), Ordering::SeqCst);
            }
            // Another worker has these partitions now, and does these jobs.
            Err(riverlog::Error::Fenced { .. }) => {}
            Err(other) => return Err(other),
        }
        if number == 0 && mine > 50 {
            println!("worker 0 goes home after {mine} jobs");
            return consumer.close();
        }
    }
    println!("worker {number} did {mine} jobs");
    Ok(())
}
