//! `riverlog produce`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use riverlog_wire::Sequence;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::partitioner::partition_for_key;
use serde_json::{Value, json};

use super::output::Table;
use super::values::{self, now_ms};
use super::{Context, interrupt};
use crate::client::{Ack, Batch, Client, Producer, ProducerSettings};
use crate::failure::{Exit, Failure};

/// Lines that wait between the reader and the sender.
const QUEUE: usize = 8192;

/// Writes records: one for each line of standard input or of files.
#[derive(Clone, Debug, Args)]
pub(crate) struct Produce {
    /// Topic to write to
    topic: String,
    /// Files to read; standard input when there is none, or for -
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Splits a line into key and value at the first of these
    #[arg(short = 'K', long, value_name = "TEXT")]
    key_delimiter: Option<String>,
    /// The key of every record
    #[arg(short = 'k', long, conflicts_with_all = ["key_delimiter", "key_field"], value_name = "KEY")]
    key: Option<String>,
    /// A header of every record; may be repeated
    #[arg(short = 'H', long, value_parser = values::pair, value_name = "NAME=VALUE")]
    header: Vec<(String, String)>,
    /// This partition; by the key, or in turn, unless given
    #[arg(short, long, value_parser = clap::value_parser!(i32).range(0..), value_name = "N")]
    partition: Option<i32>,
    /// Ends a record in place of the line end
    #[arg(
        short = 'D',
        long,
        default_value = "\n",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    delimiter: String,
    /// Each file is one record
    #[arg(long)]
    whole_files: bool,
    /// An empty value is a tombstone, an empty key is none
    #[arg(short = 'Z', long)]
    tombstones: bool,
    /// Lines are JSON: {"key", "value", "headers": {…}, "partition", "timestamp"}
    #[arg(long, conflicts_with_all = ["key_delimiter", "key_field"])]
    json: bool,
    /// Lines are JSON objects; this field of each is its key, the whole line its value
    #[arg(long, value_name = "FIELD")]
    key_field: Option<String>,
    /// Compression of batches
    #[arg(short = 'z', long, default_value = "none", value_parser = ["none", "gzip", "snappy", "lz4", "zstd"], value_name = "CODEC")]
    compression: String,
    /// Who must have a record before it counts: all, 1 or 0
    #[arg(long, default_value = "all", value_parser = ["all", "-1", "1", "0"], allow_hyphen_values = true, value_name = "ACKS")]
    acks: String,
    /// Records a second at most
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Bytes of a batch, before compression
    #[arg(long, default_value = "256KiB", value_parser = values::size, value_name = "BYTES")]
    batch_size: usize,
    /// How long a record waits for others
    #[arg(long, default_value = "5ms", value_parser = values::duration, value_name = "TIME")]
    linger: Duration,
    /// How long a batch is tried
    #[arg(long, default_value = "120s", value_parser = values::duration, value_name = "TIME")]
    delivery_timeout: Duration,
    /// Print where each batch was stored
    #[arg(long)]
    report: bool,
}

/// A record on its way.
#[derive(Debug, Default, PartialEq)]
struct Item {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    partition: Option<i32>,
    timestamp: Option<i64>,
    place: Place,
}

/// Where a record comes from: which of the files, and its number in it, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Place {
    file: usize,
    line: u64,
}

/// What is known of a batch's records, should they be refused.
#[derive(Debug, Default)]
struct Origin {
    first: Place,
    last: Place,
    /// Bytes of the largest record, and where that comes from.
    largest: (usize, Place),
}

impl Produce {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        if self.delimiter.is_empty() || self.key_delimiter.as_deref() == Some("") {
            return Err(Failure::usage("a delimiter can't be empty"));
        }
        if self.rate.is_some_and(|r| r.is_nan() || r <= 0.0) {
            return Err(Failure::usage("--rate must be above 0"));
        }
        for file in &self.files {
            if file.as_os_str() != "-" && !file.exists() {
                return Err(Failure::new(Exit::NotFound, format!("there is no file {}", file.display()))
                    .hint("the first word is the topic, the others are files: `riverlog produce TOPIC FILE…`"));
            }
        }
        let mut client = context.client()?;
        let acks = match self.acks.as_str() {
            "0" => 0,
            "1" => 1,
            _ => -1,
        };
        let settings = ProducerSettings {
            acks,
            idempotent: acks == -1,
            delivery: self.delivery_timeout,
            stop: interrupt::asked,
        };
        let producer = Producer::new(&mut client, &self.topic, settings)?;
        if let Some(partition) = self.partition {
            producer.leader(partition)?;
        }
        interrupt::watch();
        let (lines, incoming) = sync_channel(QUEUE);
        let source = self.clone();
        std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || source.read(&lines))
            .map_err(|error| {
                Failure::new(Exit::Finding, "a thread can't be started").why(error.to_string())
            })?;
        let mut sending = Sending {
            table: Table::new("produce", &["topic", "partition", "base_offset", "records"]),
            plan: &self,
            client,
            producer,
            batches: BTreeMap::new(),
            origins: BTreeMap::new(),
            sticky: 0,
            sent: 0,
        };
        let ended = sending.pump(&incoming);
        let finished = ended.and_then(|interrupted| sending.flush().map(|()| interrupted));
        if self.report || context.output.is_some() {
            sending.table.print(context.output)?;
        } else {
            let plural = if sending.sent == 1 { "" } else { "s" };
            context.note(&format!(
                "{} record{plural} to {}",
                sending.sent, self.topic
            ));
        }
        if finished? {
            return Err(Failure::silent(Exit::Interrupted));
        }
        Ok(())
    }

    /// Reads all input. Ends early when nobody takes it any more.
    fn read(&self, lines: &SyncSender<Result<Item, Failure>>) {
        let input: [PathBuf; 1] = ["-".into()];
        let files = if self.files.is_empty() {
            &input[..]
        } else {
            &self.files
        };
        for (number, file) in files.iter().enumerate() {
            let read = if file.as_os_str() == "-" {
                self.read_one(number, &mut std::io::stdin().lock(), lines)
            } else {
                std::fs::File::open(file).and_then(|f| {
                    let mut f = BufReader::with_capacity(1 << 18, f);
                    self.read_one(number, &mut f, lines)
                })
            };
            match read {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let failure =
                        Failure::new(Exit::Finding, format!("{} can't be read", file.display()))
                            .why(error.to_string());
                    // Nobody waits any more.
                    let _ = lines.send(Err(failure));
                    return;
                }
            }
        }
    }

    /// The place in words.
    fn words(&self, place: Place) -> String {
        let file = self.files.get(place.file).filter(|f| f.as_os_str() != "-");
        match file {
            Some(file) if self.whole_files => file.display().to_string(),
            Some(file) => format!("line {} of {}", place.line, file.display()),
            None => format!("line {}", place.line),
        }
    }

    fn read_one(
        &self,
        file: usize,
        input: &mut impl BufRead,
        lines: &SyncSender<Result<Item, Failure>>,
    ) -> std::io::Result<bool> {
        if self.whole_files {
            let mut all = Vec::new();
            input.read_to_end(&mut all)?;
            let place = Place { file, line: 1 };
            return Ok(lines.send(self.item(all, place)).is_ok());
        }
        let mut place = Place { file, line: 0 };
        let delimiter = self.delimiter.as_bytes();
        let last = delimiter.last().copied().unwrap_or(b'\n');
        let mut line = Vec::new();
        loop {
            let read = input.read_until(last, &mut line)?;
            let whole = line.ends_with(delimiter);
            if read > 0 && !whole && line.last() == Some(&last) {
                // The delimiter's last byte within a record.
                continue;
            }
            if whole {
                line.truncate(line.len() - delimiter.len());
            }
            let at_end = read == 0 || !whole;
            if at_end && line.is_empty() {
                return Ok(true);
            }
            place.line += 1;
            let item = self.item(std::mem::take(&mut line), place);
            if lines.send(item).is_err() {
                return Ok(false);
            }
            if at_end {
                return Ok(true);
            }
        }
    }

    /// A line as a record.
    fn item(&self, line: Vec<u8>, place: Place) -> Result<Item, Failure> {
        let not_json = |line: &[u8], why: &str| not_json(&self.words(place), line, why);
        let mut item = if self.json {
            from_json(&line).map_err(|why| not_json(&line, &why))?
        } else if let Some(field) = &self.key_field {
            let value: Value =
                serde_json::from_slice(&line).map_err(|e| not_json(&line, &e.to_string()))?;
            let key = match value.get(field) {
                Some(Value::String(text)) => Some(text.clone().into_bytes()),
                Some(Value::Null) => None,
                Some(other) => Some(other.to_string().into_bytes()),
                None => return Err(not_json(&line, &format!("it has no field {field:?}"))),
            };
            Item {
                key,
                value: Some(line),
                ..Item::default()
            }
        } else if let Some(at) = self
            .key_delimiter
            .as_ref()
            .and_then(|d| find(&line, d.as_bytes()).map(|at| (at, d.len())))
        {
            let key = line.get(..at.0).unwrap_or_default().to_vec();
            let value = line.get(at.0 + at.1..).unwrap_or_default().to_vec();
            Item {
                key: Some(key),
                value: Some(value),
                ..Item::default()
            }
        } else {
            Item {
                key: self.key.clone().map(String::into_bytes),
                value: Some(line),
                ..Item::default()
            }
        };
        item.place = place;
        if self.tombstones {
            item.key = item.key.filter(|k| !k.is_empty());
            item.value = item.value.filter(|v| !v.is_empty());
        }
        for (name, value) in &self.header {
            item.headers
                .push((name.clone().into_bytes(), Some(value.clone().into_bytes())));
        }
        Ok(item)
    }
}

impl Origin {
    fn words(&self, plan: &Produce) -> String {
        let first = plan.words(self.first);
        let (bytes, at) = self.largest;
        if self.first == self.last {
            return format!("{first}, {bytes} bytes");
        }
        format!(
            "{first} to {}; the largest is {}, {bytes} bytes",
            plan.words(self.last),
            plan.words(at)
        )
    }
}

fn find(in_: &[u8], what: &[u8]) -> Option<usize> {
    in_.windows(what.len()).position(|w| w == what)
}

fn not_json(place: &str, line: &[u8], why: &str) -> Failure {
    let text: String = String::from_utf8_lossy(line).chars().take(60).collect();
    Failure::usage(format!("{place} can't be sent: {text:?}"))
        .why(why.to_owned())
        .hint("each line must be one JSON object")
}

/// A record as JSON says it, or what is wrong.
fn from_json(line: &[u8]) -> Result<Item, String> {
    let value: Value = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    let object = value.as_object().ok_or("it isn't an object")?;
    let bytes = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone().into_bytes()),
        other => Some(other.to_string().into_bytes()),
    };
    let mut item = Item::default();
    for (name, value) in object {
        match name.as_str() {
            "key" => item.key = bytes(value),
            "value" => item.value = bytes(value),
            "partition" | "timestamp" if value.is_null() => {}
            "partition" => {
                let partition = value.as_i64().and_then(|p| i32::try_from(p).ok());
                item.partition = Some(partition.ok_or("its partition isn't a number of one")?);
            }
            "timestamp" => {
                item.timestamp = Some(value.as_i64().ok_or("its timestamp isn't milliseconds")?);
            }
            "headers" => {
                if let Some(map) = value.as_object() {
                    item.headers
                        .extend(map.iter().map(|(n, v)| (n.clone().into_bytes(), bytes(v))));
                } else {
                    // The form that `consume -o json` writes.
                    for header in value.as_array().into_iter().flatten() {
                        let name = header
                            .get("name")
                            .and_then(Value::as_str)
                            .unwrap_or_default();
                        item.headers.push((
                            name.to_owned().into_bytes(),
                            header.get("value").and_then(bytes),
                        ));
                    }
                }
            }
            "topic" | "offset" => {}
            other => {
                return Err(format!("it has an unknown field {other:?}"));
            }
        }
    }
    Ok(item)
}

struct Sending<'a> {
    plan: &'a Produce,
    client: Client,
    producer: Producer,
    /// A builder for each partition; its sequence goes on from batch to batch.
    batches: BTreeMap<i32, BatchBuilder>,
    origins: BTreeMap<i32, Origin>,
    sticky: i32,
    sent: usize,
    table: Table,
}

impl Sending<'_> {
    /// Takes records until input ends. Returns whether Ctrl-C ended it.
    fn pump(&mut self, incoming: &Receiver<Result<Item, Failure>>) -> Result<bool, Failure> {
        let start = Instant::now();
        let mut taken = 0_u64;
        let mut oldest: Option<Instant> = None;
        loop {
            if interrupt::asked() {
                return Ok(true);
            }
            let wait = match oldest {
                Some(since) => (since + self.plan.linger).saturating_duration_since(Instant::now()),
                None => Duration::from_millis(100),
            };
            match incoming.recv_timeout(wait) {
                Ok(item) => {
                    if let Some(rate) = self.plan.rate {
                        let due = start + Duration::from_secs_f64(taken as f64 / rate);
                        let early = due.saturating_duration_since(Instant::now());
                        if early > self.plan.linger {
                            self.flush()?;
                            oldest = None;
                        }
                        std::thread::sleep(early);
                    }
                    taken += 1;
                    let full = self.add(item?)?;
                    oldest.get_or_insert_with(Instant::now);
                    if full
                        || oldest.is_some_and(|o| {
                            o.elapsed() >= self.plan.linger.max(Duration::from_millis(50))
                        })
                    {
                        self.flush()?;
                        oldest = None;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    if oldest.is_some() {
                        self.flush()?;
                        oldest = None;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }

    /// Adds a record to its partition's batch. Returns whether that is full.
    fn add(&mut self, item: Item) -> Result<bool, Failure> {
        let partition = match (item.partition.or(self.plan.partition), &item.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_for_key(key, self.producer.partitions()).0,
            (None, None) => self.sticky % self.producer.partitions().max(1),
        };
        self.producer.leader(partition)?;
        let builder = self.batches.entry(partition).or_insert_with(|| {
            // The name was checked when the command line was read.
            let codec = Compression::from_name(&self.plan.compression).unwrap_or_default();
            let mut builder = BatchBuilder::new(codec);
            if let Some((id, epoch)) = self.producer.id {
                builder.producer(id, epoch, Sequence(0));
            }
            builder
        });
        let headers: Vec<(&[u8], Option<&[u8]>)> = item
            .headers
            .iter()
            .map(|(n, v)| (n.as_slice(), v.as_deref()))
            .collect();
        let timestamp = item.timestamp.unwrap_or_else(now_ms);
        let headers_len: usize = item
            .headers
            .iter()
            .map(|(n, v)| n.len() + v.as_ref().map_or(0, Vec::len))
            .sum();
        let bytes = item.key.as_ref().map_or(0, Vec::len)
            + item.value.as_ref().map_or(0, Vec::len)
            + headers_len;
        let origin = self.origins.entry(partition).or_insert_with(|| Origin {
            first: item.place,
            ..Origin::default()
        });
        origin.last = item.place;
        if bytes >= origin.largest.0 {
            origin.largest = (bytes, item.place);
        }
        builder.push(
            timestamp,
            item.key.as_deref(),
            item.value.as_deref(),
            &headers,
        );
        Ok(builder.size() >= self.plan.batch_size)
    }

    /// Sends all batches.
    fn flush(&mut self) -> Result<(), Failure> {
        let mut batches = Vec::new();
        for (partition, builder) in &mut self.batches {
            if !builder.is_empty() {
                let records = builder.len();
                let origin = self.origins.remove(partition).unwrap_or_default();
                batches.push(Batch {
                    partition: *partition,
                    bytes: Bytes::from(builder.build()),
                    records,
                    origin: origin.words(self.plan),
                });
            }
        }
        if batches.is_empty() {
            return Ok(());
        }
        self.sticky = (self.sticky + 1) % self.producer.partitions().max(1);
        for Ack {
            partition,
            base_offset,
            records,
        } in self.producer.send(&mut self.client, batches)?
        {
            self.sent += records;
            if self.plan.report {
                let offset = if base_offset < 0 {
                    Value::Null
                } else {
                    json!(base_offset)
                };
                self.table.row(vec![
                    json!(self.plan.topic),
                    json!(partition),
                    offset,
                    json!(records),
                ]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_may_say_everything() {
        let item = from_json(br#"{"key":"k","value":{"a":1},"headers":{"h":"1","n":null},"partition":2,"timestamp":5}"#).unwrap();
        assert_eq!(item.key.as_deref(), Some(b"k".as_slice()));
        assert_eq!(item.value.as_deref(), Some(br#"{"a":1}"#.as_slice()));
        assert_eq!(
            item.headers,
            [(b"h".to_vec(), Some(b"1".to_vec())), (b"n".to_vec(), None)]
        );
        assert_eq!((item.partition, item.timestamp), (Some(2), Some(5)));
        assert!(from_json(b"[]").is_err());
        assert!(from_json(br#"{"valeu":1}"#).is_err());
    }
}
