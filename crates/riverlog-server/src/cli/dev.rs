//! `riverlog dev`: a broker to try things with.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;

use super::Context;
use super::values::now_ms;
use crate::client::{Batch, Client, Producer, ProducerSettings, Settings};
use crate::config::{self, Inputs};
use crate::failure::{Exit, Failure};
use crate::serve::log::{self, LogFormat};
use crate::serve::{Plan, Served, config_failure, run};

/// The sample topic.
const SAMPLE: &str = "hello";

/// Runs a broker in a temporary folder, which is removed at Ctrl-C.
#[derive(Clone, Debug, Args)]
pub(crate) struct Dev {
    /// Keep the data in this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where to listen for Kafka clients; another port when this one is taken
    #[arg(
        short,
        long,
        default_value = "127.0.0.1:9092",
        value_name = "HOST:PORT"
    )]
    listen: String,
    /// Where to listen for HTTP, or none; another port when this one is taken
    #[arg(long, default_value = "127.0.0.1:8082", value_name = "HOST:PORT")]
    http: String,
    /// Run a cluster of so many nodes, each a process of its own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
}

impl Dev {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        log::start(
            LogFormat::Auto,
            if context.verbose { "info" } else { "warn" },
        )?;
        let temporary = match &self.dir {
            Some(_) => None,
            None => Some(
                tempfile::Builder::new()
                    .prefix("riverlog-dev-")
                    .tempdir()
                    .map_err(|error| {
                        Failure::new(Exit::Finding, "a temporary folder can't be made")
                            .why(error.to_string())
                            .hint("name one with --dir")
                    })?,
            ),
        };
        let data = match (&self.dir, &temporary) {
            (Some(dir), _) => dir.clone(),
            (None, Some(folder)) => folder.path().to_owned(),
            (None, None) => PathBuf::from("./riverlog-data"),
        };
        if self.nodes > 1 {
            let ended = super::dev_cluster::run(self.nodes, &self.listen, &data, context.verbose);
            drop(temporary);
            return ended;
        }
        let flags = vec![(
            "listeners".to_owned(),
            format!("PLAINTEXT://{}", free(&self.listen)?),
            "--listen",
        )];
        let config = config::load(&Inputs {
            flags,
            ..Inputs::default()
        })
        .map_err(|m| config_failure(&m))?;
        let http = if self.http == "none" {
            None
        } else {
            Some(free(&self.http)?)
        };
        let plan = Plan {
            config,
            data,
            http,
            insecure: false,
            kafka_lines: false,
            with_parent: false,
            seeds: Vec::new(),
            cluster_key: None,
        };
        let kept = self.dir.is_some();
        let ended = run(&plan, move |served| {
            let served = served.clone();
            // The broker's own threads must not wait for themselves.
            std::thread::spawn(move || match sample(&served) {
                Ok(()) => greet(&served, kept),
                Err(failure) => eprintln!("{failure}"),
            });
        });
        if let Some(folder) = temporary
            && let Err(error) = folder.close()
        {
            eprintln!("the temporary folder can't be removed: {error}");
        }
        ended
    }
}

/// That address, or another port of it when it is taken.
fn free(at: &str) -> Result<String, Failure> {
    let (host, port) = crate::client::address(at)?;
    let taken = std::net::TcpListener::bind((host.as_str(), port))
        .is_err_and(|e| e.kind() == std::io::ErrorKind::AddrInUse);
    Ok(crate::client::place(&host, if taken { 0 } else { port }))
}

/// A topic with a few records, unless it is there from an earlier time.
fn sample(served: &Served) -> Result<(), Failure> {
    let settings = Settings {
        brokers: served.kafka.clone(),
        timeout: Duration::from_secs(10),
        trace: false,
    };
    let mut client = Client::connect(settings)?;
    let there = client
        .metadata(None, false)?
        .topics
        .into_iter()
        .any(|t| t.name.as_deref() == Some(SAMPLE));
    if there {
        return Ok(());
    }
    let acks = ProducerSettings {
        acks: -1,
        idempotent: true,
        delivery: Duration::from_secs(10),
        stop: || false,
    };
    let mut producer = Producer::new(&mut client, SAMPLE, acks)?;
    let mut batch = BatchBuilder::new(Compression::None);
    if let Some((id, epoch)) = producer.id {
        batch.producer(id, epoch, riverlog_wire::Sequence(0));
    }
    for words in [
        "hello",
        "this is a log",
        "records stay until retention drops them",
    ] {
        batch.push(now_ms(), None, Some(words.as_bytes()), &[]);
    }
    let (records, bytes) = (batch.len(), Bytes::from(batch.build()));
    producer
        .send(
            &mut client,
            vec![Batch {
                partition: 0,
                bytes,
                records,
                origin: String::new(),
            }],
        )
        .map(|_| ())
}

fn greet(served: &Served, kept: bool) {
    let brokers = if served.kafka == "127.0.0.1:9092" {
        String::new()
    } else {
        format!(" -b {}", served.kafka)
    };
    let http = served
        .http
        .as_ref()
        .map_or_else(String::new, |at| format!("HTTP    http://{at}\n"));
    let text = format!(
        "Kafka   {kafka}\n{http}\n\
         In another terminal:\n\
         \x20 riverlog consume {SAMPLE} --from start{brokers}\n\
         \x20 echo hi | riverlog produce {SAMPLE}{brokers}\n\
         \x20 riverlog topic list{brokers}\n\
         \x20 kcat -b {kafka} -C -t {SAMPLE} -o beginning -e\n\n\
         Ctrl-C ends it{end}.\n",
        kafka = served.kafka,
        end = if kept { "" } else { "; the data is gone then" },
    );
    let mut out = std::io::stdout().lock();
    // Whoever doesn't look may still use the broker.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
