//! `riverlog bench`: load with batches encoded beforehand, so that the broker is measured and not the client.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, Subcommand};
use hdrhistogram::Histogram;
use riverlog_wire::ErrorCode;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::ProduceResponse;
use serde_json::json;

use super::output::Table;
use super::topic::resolve;
use super::values::{self, Position, now_ms};
use super::{Context, interrupt};
use crate::client::{Batch, Client, Fetcher, Producer, ProducerSettings};
use crate::failure::{Exit, Failure};

/// Measures a broker.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Bench {
    /// Write batches as fast as possible, or at a rate
    Produce(ProduceLoad),
    /// Read a topic from its start to its end
    Consume(ConsumeLoad),
    /// Write records at a rate and read them: the time between
    E2e(EndToEnd),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ProduceLoad {
    /// Topic to write to; made when it is missing
    topic: String,
    /// Records in all
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    records: u64,
    /// Bytes of a record's value
    #[arg(long, default_value = "100", value_parser = values::size, value_name = "BYTES")]
    size: usize,
    /// Bytes of a batch
    #[arg(long, default_value = "128KiB", value_parser = values::size, value_name = "BYTES")]
    batch_size: usize,
    /// Requests under way
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100), value_name = "N")]
    depth: u16,
    /// all, 1 or 0
    #[arg(long, default_value = "all", value_parser = ["all", "1"], value_name = "ACKS")]
    acks: String,
    /// Records a second; latency is counted from when a batch was due (no coordinated omission)
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Compression of batches
    #[arg(short = 'z', long, default_value = "none", value_parser = ["none", "gzip", "snappy", "lz4", "zstd"], value_name = "CODEC")]
    compression: String,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ConsumeLoad {
    /// Topic to read
    topic: String,
    /// Bytes of an answer
    #[arg(long, default_value = "12MiB", value_parser = values::size, value_name = "BYTES")]
    fetch_size: usize,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct EndToEnd {
    /// Topic to write to and read from
    topic: String,
    /// Records in all
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    records: u64,
    /// Bytes of a record's value
    #[arg(long, default_value = "1024", value_parser = values::size, value_name = "BYTES")]
    size: usize,
    /// Records a second; 0: the next when the last has come back
    #[arg(long, default_value_t = 1000.0, value_name = "N")]
    rate: f64,
}

impl Bench {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        interrupt::watch();
        match self {
            Bench::Produce(load) => load.run(context),
            Bench::Consume(load) => load.run(context),
            Bench::E2e(load) => load.run(context),
        }
    }
}

/// Latencies up to ten minutes in microseconds, to three digits.
fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, 600_000_000, 3).map_err(|error| {
        Failure::new(Exit::Bug, "a histogram can't be made").why(error.to_string())
    })
}

const COLUMNS: &[&str] = &[
    "records",
    "seconds",
    "records_per_s",
    "mib_per_s",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "p999_ms",
    "max_ms",
    "+bytes",
    "+requests",
];

struct Result_ {
    records: u64,
    bytes: u64,
    took: Duration,
    latency: Histogram<u64>,
}

fn print(kind: &'static str, result: &Result_, context: &Context) -> Result<(), Failure> {
    let seconds = result.took.as_secs_f64().max(1e-9);
    let ms = |us: u64| json!((us as f64 / 1e3 * 1e3).round() / 1e3);
    let at = |q: f64| ms(result.latency.value_at_quantile(q));
    let mut table = Table::new(kind, COLUMNS);
    let round = |x: f64| json!((x * 100.0).round() / 100.0);
    table.row(vec![
        json!(result.records),
        round(seconds),
        json!((result.records as f64 / seconds).round()),
        round(result.bytes as f64 / seconds / f64::from(1 << 20)),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        ms(result.latency.max()),
        json!(result.bytes),
        json!(result.latency.len()),
    ]);
    table.print(context.output)?;
    if interrupt::asked() {
        return Err(Failure::silent(Exit::Interrupted));
    }
    Ok(())
}

impl ProduceLoad {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        let acks = if self.acks == "1" { 1 } else { -1 };
        let settings = ProducerSettings {
            acks,
            idempotent: false,
            delivery: context.timeout,
            stop: || false,
        };
        let producer = Producer::new(&mut client, &self.topic, settings)?;
        let (batch, records) = self.batch();
        let total = self.records.div_ceil(records as u64);
        let mut latency = histogram()?;
        let start = Instant::now();
        let mut under_way: BTreeMap<i32, VecDeque<(crate::client::Sent, Instant)>> =
            BTreeMap::new();
        let (mut waiting, mut sent) = (0, 0_u64);
        while sent < total && !interrupt::asked() {
            let mut due = Instant::now();
            if let Some(rate) = self.rate {
                due =
                    start + Duration::from_secs_f64(sent as f64 * records as f64 / rate.max(1e-3));
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let partition =
                i32::try_from(sent % u64::from(producer.partitions().max(1).unsigned_abs()))
                    .unwrap_or(0);
            let leader = producer.leader(partition)?;
            let one = Batch {
                partition,
                bytes: batch.clone(),
                records,
                origin: String::new(),
            };
            let request = producer.request(client.timeout_ms(), &[one]);
            let handle = client.node(leader)?.send(&request)?;
            under_way
                .entry(leader)
                .or_default()
                .push_back((handle, due));
            (sent, waiting) = (sent + 1, waiting + 1);
            if waiting >= self.depth {
                self.answer(&mut client, &mut under_way, leader, &mut latency)?;
                waiting -= 1;
            }
        }
        let leaders: Vec<i32> = under_way.keys().copied().collect();
        for leader in leaders {
            while under_way.get(&leader).is_some_and(|q| !q.is_empty()) {
                self.answer(&mut client, &mut under_way, leader, &mut latency)?;
            }
        }
        let bytes = sent * batch.len() as u64;
        let result = Result_ {
            records: sent * records as u64,
            bytes,
            took: start.elapsed(),
            latency,
        };
        print("bench.produce", &result, context)
    }

    /// One batch, and how many records are in it.
    fn batch(&self) -> (Bytes, usize) {
        let codec = Compression::from_name(&self.compression).unwrap_or_default();
        let mut builder = BatchBuilder::new(codec);
        // Compressible like text: words from a small set.
        let value: Vec<u8> = (0..self.size)
            .map(|i| b"the quick brown fox jumps over the lazy dog "[(i * i + i / 7) % 44])
            .collect();
        let wanted = usize::try_from(self.records).unwrap_or(usize::MAX).max(1);
        while builder.is_empty()
            || (builder.size() + value.len() < self.batch_size && builder.len() < wanted)
        {
            builder.push(now_ms(), None, Some(&value), &[]);
        }
        let records = builder.len();
        (builder.build().into(), records)
    }

    /// Takes the oldest answer of a leader.
    fn answer(
        &self,
        client: &mut Client,
        under_way: &mut BTreeMap<i32, VecDeque<(crate::client::Sent, Instant)>>,
        leader: i32,
        latency: &mut Histogram<u64>,
    ) -> Result<(), Failure> {
        let Some((handle, due)) = under_way.get_mut(&leader).and_then(VecDeque::pop_front) else {
            return Ok(());
        };
        let timeout = client.settings.timeout;
        let response: ProduceResponse = client.node(leader)?.receive(handle, timeout)?;
        for p in response
            .responses
            .into_iter()
            .flat_map(|t| t.partition_responses)
        {
            if p.error_code != ErrorCode::NONE {
                return Err(Failure::kafka(
                    format!(
                        "topic {:?}, partition {}: a batch was refused",
                        self.topic, p.index
                    ),
                    p.error_code,
                    p.error_message.as_deref(),
                ));
            }
        }
        latency.saturating_record(u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX));
        Ok(())
    }
}

impl ConsumeLoad {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        let topic = client.topic(&self.topic, false)?;
        let starts = resolve(&mut client, &self.topic, &topic, Position::Start)?;
        let mut ends = resolve(&mut client, &self.topic, &topic, Position::End)?;
        ends.retain(|p, end| starts.get(p).is_some_and(|s| s < end));
        let mut fetcher = Fetcher::new();
        fetcher.max_bytes = i32::try_from(self.fetch_size).unwrap_or(i32::MAX);
        for p in &topic.partitions {
            if let (Some(start), true) = (
                starts.get(&p.partition_index),
                ends.contains_key(&p.partition_index),
            ) {
                fetcher.add(&self.topic, p.partition_index, p.leader_id, *start);
            }
        }
        let mut latency = histogram()?;
        let (mut records, mut bytes) = (0, 0);
        let start = Instant::now();
        while !fetcher.is_empty() && !interrupt::asked() {
            let asked = Instant::now();
            for fetched in fetcher.poll(&mut client, Duration::from_millis(500))? {
                records += fetched.records.len() as u64;
                bytes += fetched
                    .records
                    .iter()
                    .map(|r| {
                        r.key.as_ref().map_or(0, Bytes::len)
                            + r.value.as_ref().map_or(0, Bytes::len)
                    })
                    .sum::<usize>() as u64;
                if ends
                    .get(&fetched.partition)
                    .is_none_or(|end| fetched.next >= *end)
                {
                    fetcher.remove(&self.topic, fetched.partition);
                }
            }
            latency
                .saturating_record(u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        print(
            "bench.consume",
            &Result_ {
                records,
                bytes,
                took: start.elapsed(),
                latency,
            },
            context,
        )
    }
}

impl EndToEnd {
    fn run(self, context: &Context) -> Result<(), Failure> {
        if self.size < 16 {
            return Err(Failure::usage(
                "--size must be at least 16: a record carries its number and its time",
            ));
        }
        let mut client = context.client()?;
        let topic = client.topic(&self.topic, true)?;
        let mut fetcher = Fetcher::new();
        let ends = resolve(&mut client, &self.topic, &topic, Position::End)?;
        for p in &topic.partitions {
            let end = ends.get(&p.partition_index).copied().unwrap_or_default();
            fetcher.add(&self.topic, p.partition_index, p.leader_id, end);
        }
        let start = Instant::now();
        let (closed, plan, settings) = (self.rate <= 0.0, self.clone(), context.settings());
        let (back, returned) = std::sync::mpsc::channel::<()>();
        let writer = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || plan.write(settings, start, &returned))
            .map_err(|error| {
                Failure::new(Exit::Finding, "a thread can't be started").why(error.to_string())
            })?;
        let mut latency = histogram()?;
        let mut records = 0;
        while records < self.records && !interrupt::asked() {
            if writer.is_finished()
                && records == 0
                && latency.is_empty()
                && start.elapsed() > context.timeout
            {
                break;
            }
            for fetched in fetcher.poll(&mut client, Duration::from_millis(500))? {
                let now = start.elapsed();
                for record in &fetched.records {
                    // Records of others in the same topic have no time of ours.
                    let Some(due) = record.value.as_deref().and_then(|v| v.first_chunk::<16>())
                    else {
                        continue;
                    };
                    let (mark, at) = due.split_at(8);
                    if mark != MARK {
                        continue;
                    }
                    let due =
                        Duration::from_nanos(u64::from_be_bytes(at.try_into().unwrap_or_default()));
                    let took = now.saturating_sub(due);
                    latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                    records += 1;
                    if closed {
                        // The writer has all it wanted.
                        let _ = back.send(());
                    }
                }
            }
        }
        drop(back);
        match writer.join() {
            Ok(Err(failure)) => return Err(failure),
            Ok(Ok(())) => {}
            Err(_) => return Err(Failure::new(Exit::Bug, "the writer panicked")),
        }
        let bytes = records * self.size as u64;
        print(
            "bench.e2e",
            &Result_ {
                records,
                bytes,
                took: start.elapsed(),
                latency,
            },
            context,
        )
    }

    /// Sends records when they are due.
    fn write(
        &self,
        settings: crate::client::Settings,
        start: Instant,
        returned: &std::sync::mpsc::Receiver<()>,
    ) -> Result<(), Failure> {
        let patience = settings.timeout;
        let mut client = Client::connect(settings)?;
        let acks = ProducerSettings {
            acks: -1,
            idempotent: true,
            delivery: patience,
            stop: || false,
        };
        let mut producer = Producer::new(&mut client, &self.topic, acks)?;
        let mut builders: BTreeMap<i32, BatchBuilder> = BTreeMap::new();
        let mut sent = 0_u64;
        let first = start.elapsed();
        while sent < self.records && !interrupt::asked() {
            // All that are due by now go in one request.
            let mut batches: BTreeMap<i32, usize> = BTreeMap::new();
            loop {
                let due = if self.rate > 0.0 {
                    first + Duration::from_secs_f64(sent as f64 / self.rate)
                } else {
                    start.elapsed()
                };
                let early = due.saturating_sub(start.elapsed());
                if early > Duration::ZERO && !batches.is_empty() {
                    break;
                }
                std::thread::sleep(early);
                let mut value = vec![b'.'; self.size];
                let stamp = u64::try_from(due.as_nanos())
                    .unwrap_or(u64::MAX)
                    .to_be_bytes();
                value.splice(..16, MARK.iter().copied().chain(stamp));
                let partition =
                    i32::try_from(sent % u64::from(producer.partitions().max(1).unsigned_abs()))
                        .unwrap_or(0);
                let id = producer.id;
                let builder = builders.entry(partition).or_insert_with(|| {
                    let mut builder = BatchBuilder::new(Compression::None);
                    if let Some((id, epoch)) = id {
                        builder.producer(id, epoch, riverlog_wire::Sequence(0));
                    }
                    builder
                });
                builder.push(now_ms(), None, Some(&value), &[]);
                *batches.entry(partition).or_default() += 1;
                sent += 1;
                if sent >= self.records || self.rate <= 0.0 || builder.size() > 256 << 10 {
                    break;
                }
            }
            let batches = batches
                .into_iter()
                .filter_map(|(partition, records)| {
                    let bytes = Bytes::from(builders.get_mut(&partition)?.build());
                    Some(Batch {
                        partition,
                        bytes,
                        records,
                        origin: String::new(),
                    })
                })
                .collect();
            producer.send(&mut client, batches)?;
            if self.rate <= 0.0 && returned.recv_timeout(patience).is_err() {
                return Err(Failure::new(
                    Exit::Timeout,
                    "a record didn't come back in time",
                ));
            }
        }
        Ok(())
    }
}

/// Begins the value of every record of this benchmark.
const MARK: &[u8; 8] = b"RVLGe2e\n";
