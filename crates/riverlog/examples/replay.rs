//! Read again from any point: from the beginning, from an offset, from a time.

use std::time::Duration;

use riverlog::{Broker, Message};

fn main() -> riverlog::Result<()> {
    let broker = Broker::in_memory();
    broker.create_topic("prices", 1)?;
    let noon = 1_767_225_600_000;
    for minute in 0..60 {
        let price = format!("{}", 100 + minute);
        let message = Message::new(None, price.as_bytes()).timestamp(noon + minute * 60_000);
        broker.publish_message("prices", &message)?;
    }

    let mut reader = broker.subscribe("prices", "analysis", "reader")?;
    let first = reader.poll(1, Duration::from_secs(1))?;
    println!("first price: {}", String::from_utf8_lossy(first[0].value()));

    reader.seek_to_time(noon + 30 * 60_000)?;
    let half_past = reader.poll(1, Duration::from_secs(1))?;
    println!(
        "price at half past: {}",
        String::from_utf8_lossy(half_past[0].value())
    );

    reader.seek("prices", 0, 59)?;
    let last = reader.poll(10, Duration::from_secs(1))?;
    println!("last price: {}", String::from_utf8_lossy(last[0].value()));

    reader.seek_to_beginning()?;
    let all = reader.poll(1_000, Duration::from_secs(1))?;
    println!("and all {} again", all.len());
    Ok(())
}
