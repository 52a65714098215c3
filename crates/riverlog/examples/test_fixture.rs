//! How a unit test uses the log: a fresh broker for each test, in memory, ready at once.

use std::time::Duration;

use riverlog::Broker;

/// What is under test: copies orders above a limit to another topic.
fn copy_large_orders(broker: &Broker, limit: u32) -> riverlog::Result<usize> {
    let mut orders = broker.subscribe("orders", "copier", "copier-1")?;
    let mut copied = 0;
    loop {
        let records = orders.poll(100, Duration::from_millis(50))?;
        if records.is_empty() {
            return Ok(copied);
        }
        for record in records {
            let amount: u32 = String::from_utf8_lossy(record.value()).parse().unwrap_or(0);
            if amount > limit {
                broker.publish("large-orders", record.key.as_deref(), record.value())?;
                copied += 1;
            }
        }
        orders.commit()?;
    }
}

fn main() -> riverlog::Result<()> {
    let broker = Broker::in_memory();
    broker.create_topic("orders", 4)?;
    broker.create_topic("large-orders", 1)?;
    for amount in ["5", "5000", "70", "900"] {
        broker.publish("orders", Some(amount.as_bytes()), amount.as_bytes())?;
    }

    assert_eq!(copy_large_orders(&broker, 100)?, 2);
    assert_eq!(
        broker.topic("large-orders")?.partition(0)?.log_end_offset(),
        2
    );
    println!("ok");
    Ok(())
}
