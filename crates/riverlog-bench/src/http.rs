//! The HTTP door: JSON and record batches in and out over connections that are kept, beside the same batches over Kafka's protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;

use crate::Result;
use crate::measure::{broker_pid, cpu_seconds, latencies, print, print_latencies};
use crate::wire::{Connection, now_ms, produce_one, topic};

const PARTITIONS: i32 = 12;
/// Connections; each waits for its answer before it asks again.
pub(crate) const CONNECTIONS: usize = 4;
/// Bytes of a value.
const VALUE: usize = 1_000;

/// What is published and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// A document of records.
    Json,
    /// A record batch as Kafka's clients send it, and then the same over Kafka's protocol.
    Raw,
}

/// A connection to the HTTP listener.
struct Http {
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

/// Of an answer, what matters here.
struct Answered {
    status: u16,
    next: Option<u64>,
}

impl Http {
    fn open(address: &str) -> Result<Http> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Http {
            stream: BufReader::with_capacity(256 << 10, stream),
            body: Vec::new(),
        })
    }

    /// Sends a whole request and takes the whole answer; its body is in `body`.
    fn call(&mut self, request: &[u8]) -> Result<Answered> {
        self.stream.get_mut().write_all(request)?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).unwrap_or_default().parse()?;
        let (mut length, mut next) = (0, None);
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            match name {
                "content-length" => length = value.trim().parse()?,
                "riverlog-next-offset" => next = Some(value.trim().parse()?),
                _ => {}
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(Answered { status, next })
    }
}

/// Where the HTTP listener is: the Kafka listener tells whoever speaks HTTP to it.
fn http_of(broker: &str) -> Result<String> {
    let mut stream = TcpStream::connect(broker)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    let at = said
        .split_once("HTTP is at ")
        .and_then(|(_, rest)| rest.trim_end().strip_suffix('.'))
        .ok_or_else(|| format!("the broker doesn't say where its HTTP is: {said}"))?;
    Ok(at
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .to_owned())
}

fn post(topic: &str, partition: Option<i32>, kind: &str, body: &[u8]) -> Vec<u8> {
    let place = partition.map_or(String::new(), |p| format!("/partitions/{p}"));
    let mut request = format!(
        "POST /v1/topics/{topic}{place}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// Values that differ, of letters that JSON takes as they are.
pub(crate) fn value(n: usize) -> Vec<u8> {
    (0..VALUE)
        .map(|i| b'a' + ((n * 7 + i * 31) % 26) as u8)
        .collect()
}

fn json(records: usize) -> Vec<u8> {
    let mut body = b"{\"records\":[".to_vec();
    for n in 0..records {
        if n > 0 {
            body.push(b',');
        }
        body.extend_from_slice(format!("{{\"key\":\"key-{n}\",\"value\":\"").as_bytes());
        body.extend_from_slice(&value(n));
        body.extend_from_slice(b"\"}");
    }
    body.extend_from_slice(b"]}");
    body
}

fn batch(records: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None);
    for n in 0..records {
        let key = format!("key-{n}");
        builder.push(now_ms(), Some(key.as_bytes()), Some(&value(n)), &[]);
    }
    builder.build().into()
}

/// Runs `work` on each of the connections' threads, by number; what it took is told under `name`, with the broker's CPU for each of
/// `records` records.
pub(crate) fn measured(
    name: &str,
    records: usize,
    work: impl Fn(usize, &mut Histogram<u64>) -> Result<()> + Send + Sync + 'static,
) -> Result<f64> {
    let work = Arc::new(work);
    let pid = broker_pid()?;
    let before = cpu_seconds(pid)?;
    let began = Instant::now();
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|n| {
            let work = Arc::clone(&work);
            std::thread::spawn(move || -> Result<Histogram<u64>> {
                let mut latency = latencies()?;
                work(n, &mut latency)?;
                Ok(latency)
            })
        })
        .collect();
    let mut latency = latencies()?;
    for thread in threads {
        let part = thread
            .join()
            .map_err(|_| "a connection's thread panicked")??;
        latency.add(&part)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = (cpu_seconds(pid)? - before) * 1e6 / records as f64;
    print(
        &format!("{name}, records a second"),
        records as f64 / seconds,
        "1/s",
    );
    print(&format!("{name}, broker CPU a record"), cpu, "us");
    print_latencies(name, &latency);
    Ok(cpu)
}

/// Publishes `records` records of 1 KiB in requests of `many`, and reads them again.
pub(crate) fn run(broker: &str, form: Form, many: usize, records: usize) -> Result<()> {
    let address = http_of(broker)?;
    let mut kafka = Connection::open(broker)?;
    let configs = ["riverlog.durability=page-cache".to_owned()];
    let requests = (records / many / CONNECTIONS).max(1);
    let records = requests * many * CONNECTIONS;
    match form {
        Form::Json => {
            let topic = topic(&mut kafka, PARTITIONS, &configs)?;
            publish(
                &address,
                "publish",
                post(&topic, None, "application/json", &json(many)),
                requests,
                records,
            )?;
            fetch(&address, "fetch", &topic, "application/json", many, records)?;
        }
        Form::Raw => {
            let kind = "application/vnd.kafka.recordbatch";
            let batch = batch(many);
            let over_http = topic(&mut kafka, PARTITIONS, &configs)?;
            let request = post(&over_http, Some(0), kind, &batch);
            let http = publish(&address, "publish", request, requests, records)?;
            let over_kafka = topic(&mut kafka, PARTITIONS, &configs)?;
            let broker = broker.to_owned();
            let direct = measured(
                "publish over Kafka's protocol",
                records,
                move |_, latency| {
                    let mut connection = Connection::open(&broker)?;
                    for _ in 0..requests {
                        let began = Instant::now();
                        produce_one(&mut connection, &over_kafka, batch.clone())?;
                        latency.record(began.elapsed().as_micros() as u64)?;
                    }
                    Ok(())
                },
            )?;
            print(
                "publish, CPU beside Kafka's protocol",
                http / direct.max(1e-9),
                "times",
            );
            fetch(&address, "fetch", &over_http, kind, many, records)?;
        }
    }
    Ok(())
}

fn publish(
    address: &str,
    name: &str,
    request: Vec<u8>,
    requests: usize,
    records: usize,
) -> Result<f64> {
    let address = address.to_owned();
    measured(name, records, move |_, latency| {
        let mut http = Http::open(&address)?;
        for _ in 0..requests {
            let began = Instant::now();
            let answered = http.call(&request)?;
            latency.record(began.elapsed().as_micros() as u64)?;
            if answered.status != 200 {
                return Err(refusal(&http, answered.status));
            }
        }
        Ok(())
    })
}

/// Reads each partition to its end; the partitions are dealt out to the connections.
fn fetch(
    address: &str,
    name: &str,
    topic: &str,
    accept: &str,
    many: usize,
    records: usize,
) -> Result<f64> {
    let (address, topic, accept) = (address.to_owned(), topic.to_owned(), accept.to_owned());
    measured(name, records, move |connection, latency| {
        let mut http = Http::open(&address)?;
        for partition in (0..PARTITIONS as usize).filter(|p| p % CONNECTIONS == connection) {
            let mut next = 0;
            loop {
                // The smallest answer holds a record whole.
                let max_bytes = (many * (VALUE + 100)).min(16 << 20);
                let request = format!(
                    "GET /v1/topics/{topic}/partitions/{partition}?offset={next}&limit={many}&max_bytes={max_bytes} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n"
                );
                let began = Instant::now();
                let answered = http.call(request.as_bytes())?;
                latency.record(began.elapsed().as_micros() as u64)?;
                if answered.status != 200 {
                    return Err(refusal(&http, answered.status));
                }
                let after = match answered.next {
                    Some(next) => next,
                    None => next_offset(&http.body)?,
                };
                if after == next {
                    break;
                }
                next = after;
            }
        }
        Ok(())
    })
}

/// `next_offset` stands behind the records: it is looked for from the end.
fn next_offset(body: &[u8]) -> Result<u64> {
    let end = String::from_utf8_lossy(&body[body.len().saturating_sub(400)..]);
    let at = end.rsplit_once("\"next_offset\":").map(|(_, rest)| rest);
    let digits = at.and_then(|rest| rest.split(',').next());
    Ok(digits.ok_or("an answer without next_offset")?.parse()?)
}

fn refusal(http: &Http, status: u16) -> Box<dyn std::error::Error + Send + Sync> {
    format!("{status}: {}", String::from_utf8_lossy(&http.body)).into()
}
