//! A real Kafka broker inside a unit test: for code that talks to Kafka with a client of any language.
//!
//! `cargo run -p riverlog --features listen --example kafka_in_a_test`

use std::time::Instant;

use riverlog::Broker;

fn main() -> riverlog::Result<()> {
    let start = Instant::now();
    let broker = Broker::in_memory();
    let kafka = broker.listen("127.0.0.1:0")?;
    println!(
        "bootstrap.servers={} after {:?}",
        kafka.address(),
        start.elapsed()
    );

    // What the code under test would be given as its broker; here kcat, if it is installed.
    let address = kafka.address().to_string();
    let produced = std::process::Command::new("sh")
        .args(["-c", "printf 'two apples\\n' | kcat -P -b \"$0\" -t orders"])
        .arg(&address)
        .status();
    match produced {
        Ok(status) if status.success() => {
            // The test looks at the same broker from inside.
            let end = broker.topic("orders")?.partition(0)?.log_end_offset();
            assert_eq!(end, 1);
            println!("kcat wrote a record");
        }
        _ => println!("kcat isn't installed: nothing was written"),
    }
    Ok(())
}
