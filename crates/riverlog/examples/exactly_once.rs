//! A step of a pipeline that counts each record once: what it writes, and that its input is done, are one transaction. Whatever
//! happens in between, after a restart it goes on where the last committed transaction ended.
//!
//! `cargo run -p riverlog --example exactly_once`

use std::time::Duration;

use riverlog::{Broker, Result};

fn main() -> Result<()> {
    let broker = Broker::in_memory();
    broker.create_topic("orders", 1)?;
    broker.create_topic("bills", 1)?;
    for order in ["apples", "pears", "plums", "cherries"] {
        broker.publish("orders", None, order.as_bytes())?;
    }

    // The program fails in its first attempt, after it has written bills.
    for attempt in 1..=2 {
        let mut orders = broker.subscribe("orders", "billing", "billing-1")?;
        let mut producer = broker.transaction("billing-1")?;
        let mut transaction = producer.begin();
        for order in orders.poll(100, Duration::from_secs(1))? {
            let bill = format!("bill for {}", String::from_utf8_lossy(order.value()));
            transaction.publish("bills", None, bill.as_bytes())?;
        }
        transaction.commit_offsets(&mut orders)?;
        if attempt == 1 {
            println!("attempt 1 fails; its bills are never seen");
            transaction.abort()?;
        } else {
            transaction.commit()?;
        }
    }

    let mut bills = broker.subscribe("bills", "print", "printer")?;
    let mut count = 0;
    for bill in bills.poll(100, Duration::from_secs(1))? {
        println!("{}", String::from_utf8_lossy(bill.value()));
        count += 1;
    }
    assert_eq!(count, 4, "each order has one bill");
    Ok(())
}
