//! The main job, on real input: the departures of New York's airports in 2013, keyed by carrier.
//!
//! ```text
//! cargo run --release -p riverlog --example flights -- FLIGHTS.jsonl [DATA_FOLDER]
//! ```
//!
//! 1. Publishes every row to a topic of six partitions on disk, while a group of three consumers reads it. Half-way one of
//!    them dies without a word; its partitions go to the others, which go on at the last commit.
//! 2. A second process publishes everything once more, and is killed with `kill -9` in the middle. It is started again and
//!    goes on behind the last record that is in the log.
//! 3. Reads everything back: every acknowledged id is there exactly once, the order of each carrier holds within a load, and the
//!    counts of each carrier are those of the input.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use riverlog::{Broker, Message, Record};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const TOPIC: &str = "flights";
const GROUP: &str = "departures";
const BATCH: usize = 1_000;

/// One row of the input.
struct Flight {
    id: u64,
    carrier: String,
    json: String,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["load", input, data] => load(
            &read_flights(input)?,
            &open(data)?,
            2,
            Some(&mut std::io::stdout()),
        ),
        [input] => run(
            input,
            &std::env::temp_dir().join(format!("riverlog-flights-{}", std::process::id())),
        ),
        [input, data] => run(input, &PathBuf::from(data)),
        _ => Err(
            "usage: flights FLIGHTS.jsonl [DATA_FOLDER]; `cargo xtask flights` makes the input"
                .into(),
        ),
    }
}

fn open(data: impl AsRef<Path>) -> Result<Broker> {
    Ok(Broker::builder()
        .session_timeout(Duration::from_secs(1))
        .open(data)?)
}

fn read_flights(path: &str) -> Result<Vec<Flight>> {
    let file = std::fs::File::open(path)
        .map_err(|e| format!("{path}: {e}; `cargo xtask flights` makes it"))?;
    let mut flights = Vec::new();
    for line in BufReader::new(file).lines() {
        let json = line?;
        let row: serde_json::Value = serde_json::from_str(&json)?;
        let id = row["id"].as_u64().ok_or("a row has no id")?;
        let carrier = row["carrier"]
            .as_str()
            .ok_or("a row has no carrier")?
            .to_owned();
        flights.push(Flight { id, carrier, json });
    }
    Ok(flights)
}

fn run(input: &str, data: &Path) -> Result<()> {
    let flights = read_flights(input)?;
    println!(
        "{} flights of {} carriers",
        flights.len(),
        counts(&flights).len()
    );
    let began = Instant::now();
    let broker = open(data)?;
    first_load(&flights, &broker)?;
    // The consumer that died still holds the broker, as a thread that hangs would: closing lets the data folder go.
    broker.close()?;
    println!(
        "first load published and read by the group in {:.1} s",
        began.elapsed().as_secs_f64()
    );

    let acknowledged = second_load(input, data, flights.len())?;
    println!(
        "second load killed after {acknowledged} acknowledged flights, then finished by a new process"
    );

    verify(&flights, &open(data)?)?;
    println!("every flight of both loads is in the log exactly once, in the order of its carrier");
    println!("counts a carrier: {:?}", counts(&flights));
    std::fs::remove_dir_all(data)?;
    Ok(())
}

/// Publishes all flights of one load that are not in the log yet; says how many are acknowledged after each batch.
fn load(
    flights: &[Flight],
    broker: &Broker,
    load: u8,
    mut progress: Option<&mut dyn Write>,
) -> Result<()> {
    let header = load.to_string();
    let stored = stored_ids(broker, &header)?;
    let left: Vec<&Flight> = flights.iter().filter(|f| !stored.contains(&f.id)).collect();
    for batch in left.chunks(BATCH) {
        let messages: Vec<Message<'_>> = batch
            .iter()
            .map(|f| {
                Message::new(Some(f.carrier.as_bytes()), f.json.as_bytes())
                    .header("load", Some(header.as_bytes()))
            })
            .collect();
        broker.publish_batch(TOPIC, &messages)?;
        if let Some(out) = &mut progress {
            for flight in batch {
                writeln!(out, "{}", flight.id)?;
            }
            out.flush()?;
        }
    }
    Ok(())
}

/// What is in the log of one load.
fn stored_ids(broker: &Broker, load: &str) -> Result<BTreeSet<u64>> {
    let mut ids = BTreeSet::new();
    read_all(broker, |record| {
        if record
            .header("load")
            .is_some_and(|l| l.as_ref() == load.as_bytes())
        {
            ids.insert(id_of(record)?);
        }
        Ok(())
    })?;
    Ok(ids)
}

fn id_of(record: &Record) -> Result<u64> {
    let row: serde_json::Value = serde_json::from_slice(record.value())?;
    row["id"]
        .as_u64()
        .ok_or_else(|| "a record has no id".into())
}

/// Replays the whole topic with a group of its own.
fn read_all(broker: &Broker, mut each: impl FnMut(&Record) -> Result<()>) -> Result<()> {
    let end: i64 = broker
        .topic(TOPIC)?
        .partitions()?
        .iter()
        .map(|p| p.high_watermark())
        .sum();
    let mut reader = broker.subscribe(TOPIC, "replay", "reader")?;
    reader.seek_to_beginning()?;
    let mut read = 0;
    while read < end {
        for record in reader.poll(10_000, Duration::from_secs(10))? {
            each(&record)?;
            read += 1;
        }
    }
    Ok(())
}

/// Publishes, and reads with three consumers of which one dies half-way.
fn first_load(flights: &[Flight], broker: &Broker) -> Result<()> {
    broker.create_topic(TOPIC, 6)?;
    let read = AtomicUsize::new(0);
    let died = AtomicBool::new(false);
    // For each partition: the offsets that were processed and committed, by whom.
    let processed: Mutex<BTreeMap<i32, Vec<(i64, usize)>>> = Mutex::default();
    std::thread::scope(|scope| -> Result<()> {
        let consumers: Vec<_> = (0..3)
            .map(|who| {
                let (read, died, processed) = (&read, &died, &processed);
                scope.spawn(move || consume(who, flights.len(), broker, read, died, processed))
            })
            .collect();
        load(flights, broker, 1, None)?;
        consumers
            .into_iter()
            .try_for_each(|c| c.join().map_err(|_| "a consumer panicked")?)
    })?;
    for (partition, offsets) in processed.into_inner().map_err(|_| "a consumer panicked")? {
        // Nothing was committed twice or left out: each new owner went on at the last commit.
        let in_order = offsets
            .iter()
            .enumerate()
            .all(|(i, (offset, _))| *offset == i as i64);
        if !in_order {
            return Err(
                format!("partition {partition} wasn't read on from the last commit").into(),
            );
        }
        let owners: BTreeSet<usize> = offsets.iter().map(|(_, who)| *who).collect();
        println!(
            "partition {partition}: {} flights, read by consumers {owners:?}",
            offsets.len()
        );
    }
    Ok(())
}

fn consume(
    who: usize,
    total: usize,
    broker: &Broker,
    read: &AtomicUsize,
    died: &AtomicBool,
    processed: &Mutex<BTreeMap<i32, Vec<(i64, usize)>>>,
) -> Result<()> {
    let mut consumer = broker.subscribe(TOPIC, GROUP, &format!("consumer-{who}"))?;
    while read.load(Ordering::SeqCst) < total {
        let records = consumer.poll(2_000, Duration::from_millis(100))?;
        if who == 0 && read.load(Ordering::SeqCst) > total / 2 {
            // Dies with records in hand: no goodbye, no commit. The group notices by the session time-out.
            died.store(true, Ordering::SeqCst);
            std::mem::forget(consumer);
            return Ok(());
        }
        // What is processed counts once it is committed; a consumer that lost its partitions drops its work.
        match consumer.commit() {
            Ok(()) => {
                let mut done = processed.lock().map_err(|_| "a consumer panicked")?;
                for record in &records {
                    done.entry(record.partition)
                        .or_default()
                        .push((record.offset, who));
                }
                read.fetch_add(records.len(), Ordering::SeqCst);
            }
            Err(riverlog::Error::Fenced { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Runs the second load in another process, kills it in the middle, and runs it again to the end. Returns how many flights had
/// been acknowledged when it was killed.
fn second_load(input: &str, data: &Path, total: usize) -> Result<usize> {
    let start = || -> Result<Child> {
        Ok(Command::new(std::env::current_exe()?)
            .args(["load".as_ref(), input.as_ref(), data.as_os_str()])
            .stdout(Stdio::piped())
            .spawn()?)
    };
    let acknowledged = |child: &mut Child, until: usize| -> Result<Vec<u64>> {
        let out = child.stdout.take().ok_or("no output")?;
        let mut ids = Vec::new();
        for line in BufReader::new(out).lines() {
            // The last line may be cut off by the kill: that id was not acknowledged to us.
            let Ok(id) = line?.parse() else { break };
            ids.push(id);
            if ids.len() == until {
                child.kill()?;
            }
        }
        child.wait()?;
        Ok(ids)
    };
    let before = acknowledged(&mut start()?, total / 3)?;
    let after = acknowledged(&mut start()?, usize::MAX)?;
    // What the first process had been told is stored must not be published again by the second.
    let before_set: BTreeSet<u64> = before.iter().copied().collect();
    match after.iter().find(|id| before_set.contains(id)) {
        Some(id) => Err(format!(
            "flight {id} was acknowledged before the kill and not in the log after it"
        )
        .into()),
        None => Ok(before.len()),
    }
}

fn verify(flights: &[Flight], broker: &Broker) -> Result<()> {
    let mut seen: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let mut last: BTreeMap<(String, Vec<u8>), u64> = BTreeMap::new();
    let mut carriers: BTreeMap<(String, String), usize> = BTreeMap::new();
    read_all(broker, |record| {
        let id = id_of(record)?;
        let load = record.header("load").ok_or("a record has no load")?;
        let load = String::from_utf8_lossy(&load).into_owned();
        let key = record.key.clone().unwrap_or_default().to_vec();
        if !seen.entry(load.clone()).or_default().insert(id) {
            return Err(format!("flight {id} of load {load} is in the log twice").into());
        }
        if last
            .insert((load.clone(), key.clone()), id)
            .is_some_and(|before| before >= id)
        {
            return Err(format!("flight {id} of load {load} is out of order").into());
        }
        *carriers
            .entry((load, String::from_utf8_lossy(&key).into_owned()))
            .or_default() += 1;
        Ok(())
    })?;
    for load in ["1", "2"] {
        let ids = seen.get(load).map_or(0, BTreeSet::len);
        if ids != flights.len() {
            return Err(format!(
                "load {load} has {ids} flights in the log, the input {}",
                flights.len()
            )
            .into());
        }
        for (carrier, count) in counts(flights) {
            let found = carriers
                .get(&(load.to_owned(), carrier.clone()))
                .copied()
                .unwrap_or_default();
            if found != count {
                return Err(format!(
                    "load {load} has {found} flights of {carrier}, the input {count}"
                )
                .into());
            }
        }
    }
    Ok(())
}

fn counts(flights: &[Flight]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for flight in flights {
        *counts.entry(flight.carrier.clone()).or_default() += 1;
    }
    counts
}
