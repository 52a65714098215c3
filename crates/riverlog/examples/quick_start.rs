//! Publish, subscribe, poll, commit.

use std::time::Duration;

use riverlog::Broker;

fn main() -> riverlog::Result<()> {
    let broker = Broker::in_memory();
    broker.create_topic("greetings", 3)?;

    for (who, word) in [
        ("ann", "hello"),
        ("bob", "good morning"),
        ("ann", "good night"),
    ] {
        let id = broker.publish("greetings", Some(who.as_bytes()), word.as_bytes())?;
        println!(
            "published to partition {} at offset {}",
            id.partition, id.offset
        );
    }

    let mut consumer = broker.subscribe("greetings", "listeners", "listener-1")?;
    let mut heard = 0;
    while heard < 3 {
        for record in consumer.poll(10, Duration::from_secs(1))? {
            let who = record.key.clone().unwrap_or_default();
            println!(
                "{}: {}",
                String::from_utf8_lossy(&who),
                String::from_utf8_lossy(record.value())
            );
            heard += 1;
        }
        consumer.commit()?;
    }
    Ok(())
}
