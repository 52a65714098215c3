//! `riverlog doctor`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use riverlog_log::Disk;
use riverlog_log::disk::SystemDisk;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::{ApiKey, MetadataRequest};
use serde_json::{Value, json};

use super::Context;
use super::output::Table;
use super::segment;
use crate::client::{Link, addresses, place};
use crate::failure::{Exit, Failure};
use crate::serve::folder_failure;

/// Finds out what is wrong.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Doctor {
    /// Walk from the bootstrap address to each advertised one, and say which hop fails
    Connect,
    /// Check the data folder of a stopped broker: format, room, every segment
    Data(Data),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Data {
    /// The data folder
    #[arg(value_name = "DIR", default_value = "./riverlog-data")]
    data: PathBuf,
}

impl Doctor {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Doctor::Connect => connect(context),
            Doctor::Data(data) => data.run(context),
        }
    }
}

/// What was found at a hop.
fn found(table: &mut Table, hop: &str, at: &str, result: Result<String, &Failure>) {
    let (state, detail, hint) = match result {
        Ok(detail) => ("ok", detail, Value::Null),
        Err(failure) => {
            let detail = failure.reason().unwrap_or(failure.what()).to_owned();
            ("failed", detail, json!(failure.remedy()))
        }
    };
    table.row(vec![
        json!(hop),
        json!(at),
        json!(state),
        json!(detail),
        hint,
    ]);
}

fn connect(context: &Context) -> Result<(), Failure> {
    let mut table = Table::new(
        "doctor.connect",
        &["hop", "address", "state", "detail", "try"],
    );
    let mut bad = None;
    let mut first = None;
    for (host, port) in addresses(&context.brokers)? {
        let at = place(&host, port);
        match Link::open(&host, port, context.timeout, context.verbose) {
            Ok(link) => {
                found(
                    &mut table,
                    "bootstrap",
                    &at,
                    Ok(format!(
                        "serves {} kinds of requests",
                        link.versions().len()
                    )),
                );
                first.get_or_insert(link);
            }
            Err(failure) => {
                found(&mut table, "bootstrap", &at, Err(&failure));
                bad = Some(failure.exit);
            }
        }
    }
    let Some(mut link) = first else {
        table.print(context.output)?;
        return Err(Failure::silent(bad.unwrap_or(Exit::Unreachable)));
    };
    // No topic at all: brokers alone.
    let topics = if link.version(ApiKey::Metadata)? >= 1 {
        Some(Vec::new())
    } else {
        None
    };
    let metadata = link.ask(&MetadataRequest {
        topics,
        ..MetadataRequest::default()
    });
    match metadata {
        Ok(metadata) if metadata.error_code == ErrorCode::NONE => {
            let names: Vec<String> = metadata
                .brokers
                .iter()
                .map(|b| b.node_id.to_string())
                .collect();
            found(
                &mut table,
                "metadata",
                &link.place,
                Ok(format!("names brokers {}", names.join(", "))),
            );
            for broker in metadata.brokers {
                let hop = format!("broker {}", broker.node_id);
                let port = u16::try_from(broker.port).unwrap_or_default();
                let at = place(&broker.host, port);
                match Link::open(&broker.host, port, context.timeout, context.verbose) {
                    Ok(_) => found(
                        &mut table,
                        &hop,
                        &at,
                        Ok("answers at its advertised address".to_owned()),
                    ),
                    Err(failure) => {
                        let failure = Failure::new(failure.exit, failure.what())
                            .why(failure.reason().unwrap_or_default())
                            .hint("the broker tells clients an address that can't be reached from here: set advertised.listeners on it");
                        found(&mut table, &hop, &at, Err(&failure));
                        bad = Some(Exit::Finding);
                    }
                }
            }
        }
        Ok(metadata) => {
            let failure = Failure::kafka("metadata", metadata.error_code, None);
            found(&mut table, "metadata", &link.place, Err(&failure));
            bad = Some(failure.exit);
        }
        Err(failure) => {
            found(&mut table, "metadata", &link.place, Err(&failure));
            bad = Some(failure.exit);
        }
    }
    table.print(context.output)?;
    match bad {
        // One answering address is enough to work with; the others are findings.
        Some(_) => Err(Failure::silent(Exit::Finding)),
        None => Ok(()),
    }
}

/// Less room than this is worth a word: a write-ahead log alone may take it.
const LITTLE: u64 = 64 << 20;

impl Data {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let at = self.data.display().to_string();
        let none = |why: &str| {
            Failure::new(Exit::NotFound, format!("{at} is no data folder"))
                .why(why)
                .hint("give the folder that the broker was started with (--data, log.dirs)")
        };
        if !self.data.is_dir() {
            return Err(none("there is no such folder"));
        }
        let format = match std::fs::read(self.data.join("format")) {
            Ok(bytes) => String::from_utf8_lossy(&bytes)
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
            Err(_) if !self.data.join("wal").exists() => {
                return Err(none("it has neither the file format nor a write-ahead log"));
            }
            Err(error) => format!("the file format can't be read: {error}"),
        };
        let disk =
            SystemDisk::open(&self.data).map_err(|error| folder_failure(&error, &self.data))?;
        let _lock = disk.lock("lock").map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => {
                Failure::new(Exit::Conflict, format!("{at} can't be checked"))
                    .why("a running broker uses it")
                    .hint("stop it; or ask it what it has found so far: curl http://localhost:8082/readyz?verbose")
            }
            _ => folder_failure(&error, &self.data),
        })?;
        let mut table = Table::new("doctor.data", &["check", "place", "state", "detail", "try"]);
        let mut bad = false;
        let mut row = |check: &str, place: &str, ok: bool, detail: String, remedy: &str| {
            bad |= !ok;
            let state = if ok { "ok" } else { "failed" };
            let remedy = if ok { Value::Null } else { json!(remedy) };
            table.row(vec![
                json!(check),
                json!(place),
                json!(state),
                json!(detail),
                remedy,
            ]);
        };
        let known = format.starts_with("riverlog format ");
        row(
            "format",
            &at,
            known,
            format,
            "start the broker: it takes the id from a checkpoint and writes the file again",
        );
        let room = disk
            .available()
            .map_err(|error| folder_failure(&error, &self.data))?;
        row(
            "room",
            &at,
            room >= LITTLE,
            format!("{} MiB are free", room >> 20),
            "make room, or lower a retention",
        );
        let (mut sound, mut records) = (0, 0);
        for file in segment::segments(&self.data)? {
            match segment::check_file(&file) {
                (_, count, None) => {
                    sound += 1;
                    records += count;
                }
                (.., Some(finding)) => {
                    let place = file.display().to_string();
                    row("segment", &place, false, finding, segment::REMEDY);
                }
            }
        }
        let words = format!("{sound} segments with {records} records are sound");
        row("segments", &at, true, words, "");
        table.print(context.output)?;
        match bad {
            true => Err(Failure::silent(Exit::Finding)),
            false => Ok(()),
        }
    }
}
