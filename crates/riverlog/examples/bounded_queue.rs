//! A partition that holds at most ten records: publishers wait for consumers, or hear at once that it is full.

use std::time::Duration;

use riverlog::{Broker, Error, Full};

fn main() -> riverlog::Result<()> {
    let broker = Broker::in_memory();

    broker
        .topic_builder("strict")
        .max_records(10, Full::Error)
        .create()?;
    let stored = (0..20)
        .take_while(|_| broker.publish("strict", None, b"x").is_ok())
        .count();
    println!("strict took {stored} records");
    assert!(matches!(
        broker.publish("strict", None, b"x"),
        Err(Error::Full { .. })
    ));

    broker
        .topic_builder("patient")
        .max_records(10, Full::Block(Duration::from_secs(5)))
        .create()?;
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| -> riverlog::Result<()> {
            for number in 0..100 {
                broker.publish("patient", None, format!("{number}").as_bytes())?;
            }
            Ok(())
        });
        let mut consumer = broker.subscribe("patient", "slow", "consumer")?;
        let mut read = 0;
        while read < 100 {
            read += consumer.poll(5, Duration::from_secs(1))?.len();
            // What every group has committed makes room.
            consumer.commit()?;
        }
        println!("patient passed {read} records through ten places");
        publisher.join().expect("the publisher panicked")
    })
}
