//! A work queue: many workers on one partition, order per key, a poison record that ends among the dead letters.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use riverlog::{Broker, SharedSubscription};

const JOBS: usize = 400;

fn main() -> riverlog::Result<()> {
    let broker = Broker::in_memory();
    broker.create_topic("jobs", 1)?;
    broker
        .topic_builder("dlq.jobs")
        .config("errors.deadletterqueue.group.enable", "true")
        .create()?;
    for job in 0..JOBS {
        let customer = format!("customer-{}", job % 20);
        let work = if job == 77 {
            "nonsense".to_owned()
        } else {
            job.to_string()
        };
        broker.publish("jobs", Some(customer.as_bytes()), work.as_bytes())?;
    }

    // What each customer's last job was: it only grows, however many workers there are.
    let last: Mutex<BTreeMap<Vec<u8>, usize>> = Mutex::default();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| -> riverlog::Result<()> {
        let workers: Vec<_> = (0..8)
            .map(|number| {
                let (broker, last, done) = (&broker, &last, &done);
                scope.spawn(move || work(broker, number, last, done))
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker panicked"))
    })?;

    let dead = broker
        .subscribe("dlq.jobs", "inspectors", "inspector")?
        .poll(10, Duration::from_secs(5))?;
    for record in &dead {
        println!(
            "given up: {:?} at offset {:?}",
            String::from_utf8_lossy(record.value()),
            record.header("__dlq.errors.offset")
        );
    }
    assert_eq!(dead.len(), 1);
    println!(
        "{} jobs done, in order for each customer",
        done.load(Ordering::SeqCst) - 1
    );
    Ok(())
}

fn work(
    broker: &Broker,
    number: usize,
    last: &Mutex<BTreeMap<Vec<u8>, usize>>,
    done: &AtomicUsize,
) -> riverlog::Result<()> {
    let subscription = SharedSubscription::new(&["jobs"], "workers", &format!("worker-{number}"))
        .key_order(true)
        .delivery_limit(3)
        .dead_letters("dlq.jobs");
    let mut consumer = broker.subscribe_shared_with(subscription)?;
    while done.load(Ordering::SeqCst) < JOBS {
        for job in consumer.poll(5, Duration::from_millis(50))? {
            let text = String::from_utf8_lossy(job.value()).into_owned();
            let Ok(at) = text.parse::<usize>() else {
                // Somebody else may know what to do with it; the third one to try gives up.
                consumer.release(&job, Duration::from_millis(10))?;
                if job.delivery_count == 3 {
                    done.fetch_add(1, Ordering::SeqCst);
                }
                continue;
            };
            let customer = job.key.as_deref().unwrap_or_default().to_vec();
            let before = last.lock().expect("no worker panics").insert(customer, at);
            assert!(before.is_none_or(|before| before < at), "out of order");
            consumer.ack(&job)?;
            done.fetch_add(1, Ordering::SeqCst);
        }
    }
    Ok(())
}
