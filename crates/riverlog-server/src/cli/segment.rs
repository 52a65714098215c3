//! `riverlog segment`: the files of a stopped broker. They are Kafka's: record batches, one after the other.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, Subcommand};
use riverlog_log::LogKey;
use riverlog_log::format::{CheckSeed, Difference, compare};
use riverlog_wire::batch::{BatchError, Records, batches};
use riverlog_wire::{Offset, PartitionIndex, TopicId};
use serde_json::{Value, json};

use super::Context;
use super::format::harmless;
use super::output::Table;
use super::values::time_text;
use crate::failure::{Exit, Failure};

/// The most bytes that one decompressed batch may take.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// Looks into the files of a stopped broker.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Segment {
    /// Print batches, or records
    Dump(Dump),
    /// Check every batch; exit code 1 when one is damaged
    Check(Check),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Dump {
    /// A .log file, or a folder of them
    path: PathBuf,
    /// Records in place of batches
    #[arg(short, long)]
    records: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Check {
    /// .log files, or folders of them
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl Segment {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Segment::Dump(dump) => dump.run(context),
            Segment::Check(check) => check.run(context),
        }
    }
}

/// The segments under a path, in order of name. Also those whose `.log` is gone while other files of theirs are there.
pub(super) fn segments(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error: std::io::Error| {
        let exit = if error.kind() == std::io::ErrorKind::NotFound {
            Exit::NotFound
        } else {
            Exit::Finding
        };
        Failure::new(exit, format!("{} can't be read", path.display())).why(error.to_string())
    };
    if std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let entries: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(unreadable)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    let mut out = Vec::new();
    for entry in entries {
        // Links are not followed: a folder can't hold itself then.
        let kind = std::fs::symlink_metadata(&entry)
            .map_err(unreadable)?
            .file_type();
        if kind.is_dir() {
            out.extend(segments(&entry)?);
        } else if kind.is_file() && is_of_segment(&entry) {
            out.push(entry.with_extension("log"));
        }
    }
    out.sort();
    out.dedup();
    Ok(out)
}

/// Whether a file is one of a segment's: its name is the segment's first offset.
fn is_of_segment(path: &Path) -> bool {
    let stem = path
        .file_stem()
        .and_then(|s| s.to_str())
        .unwrap_or_default();
    let extension = path
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default();
    let offset = stem.len() == 20 && stem.bytes().all(|b| b.is_ascii_digit());
    match extension {
        "log" => true,
        "index" | "timeindex" | "txnindex" | "check" => offset,
        _ => false,
    }
}

/// Whose segment a file is, by the names of its folders.
fn seed(path: &Path) -> Option<CheckSeed> {
    let base = path.file_stem()?.to_str()?.parse().ok()?;
    let mut folders = path
        .parent()?
        .components()
        .rev()
        .filter_map(|c| c.as_os_str().to_str());
    let partition = folders.next()?.parse().ok()?;
    let topic = TopicId::parse(folders.next()?)?;
    Some(CheckSeed {
        key: LogKey {
            topic,
            partition: PartitionIndex(partition),
        },
        base: Offset(base),
    })
}

fn read(path: &Path) -> Result<Bytes, Failure> {
    std::fs::read(path).map(Bytes::from).map_err(|error| {
        Failure::new(Exit::Finding, format!("{} can't be read", path.display()))
            .why(error.to_string())
    })
}

fn found(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let segments = segments(path)?;
    if segments.is_empty() {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{} has no segments", path.display()),
        )
        .hint("give a .log file, the folder of a partition or a data folder"));
    }
    Ok(segments)
}

impl Dump {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut table = if self.records {
            Table::new(
                "segment.records",
                &[
                    "offset",
                    "time",
                    "key",
                    "value",
                    "headers",
                    "+file",
                    "+timestamp",
                ],
            )
        } else {
            Table::new(
                "segment.batches",
                &[
                    "base_offset",
                    "last_offset",
                    "records",
                    "bytes",
                    "epoch",
                    "codec",
                    "max_time",
                    "producer",
                    "sequence",
                    "crc",
                    "+file",
                    "+position",
                    "+transactional",
                    "+control",
                ],
            )
        };
        let mut damage: Option<Failure> = None;
        for path in found(&self.path)? {
            let bytes = match read(&path) {
                Ok(bytes) => bytes,
                Err(failure) => {
                    damage.get_or_insert(failure);
                    continue;
                }
            };
            let mut position = 0;
            for batch in batches(&bytes) {
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(error) => {
                        damage.get_or_insert_with(|| damaged(&path, position, &error));
                        break;
                    }
                };
                if let Err(error) = batch.check_crc() {
                    damage.get_or_insert_with(|| damaged(&path, position, &error));
                }
                let header = batch.header;
                if self.records {
                    let records = Records::shared(&bytes.slice_ref(batch.bytes), MAX_BATCH_BYTES)
                        .and_then(|records| records.into_iter().collect::<Result<Vec<_>, _>>());
                    match records {
                        Ok(records) => {
                            for r in records {
                                let text = |b: Option<&Bytes>| {
                                    b.map_or(Value::Null, |b| json!(harmless(b)))
                                };
                                table.row(vec![
                                    json!(r.offset.0),
                                    json!(time_text(r.timestamp)),
                                    text(r.key.as_ref()),
                                    text(r.value.as_ref()),
                                    json!(r.headers.len()),
                                    json!(path.display().to_string()),
                                    json!(r.timestamp),
                                ]);
                            }
                        }
                        Err(error) => {
                            damage.get_or_insert_with(|| damaged(&path, position, &error));
                        }
                    }
                } else {
                    let codec = header
                        .attributes
                        .compression()
                        .map_or("unknown", |c| c.name());
                    table.row(vec![
                        json!(header.base_offset.0),
                        json!(header.last_offset().0),
                        json!(header.record_count),
                        json!(header.size()),
                        json!(header.leader_epoch.0),
                        json!(codec),
                        json!(time_text(header.max_timestamp)),
                        json!(header.producer_id.0),
                        json!(header.base_sequence.0),
                        json!(if batch.check_crc().is_ok() {
                            "ok"
                        } else {
                            "wrong"
                        }),
                        json!(path.display().to_string()),
                        json!(position),
                        json!(header.attributes.is_transactional()),
                        json!(header.attributes.is_control()),
                    ]);
                }
                position += batch.bytes.len();
            }
        }
        table.print(context.output)?;
        damage.map_or(Ok(()), Err)
    }
}

pub(super) const REMEDY: &str =
    "a broker cuts a torn end when it starts; other damage needs a copy or a backup";

fn damaged(path: &Path, position: usize, error: &BatchError) -> Failure {
    Failure::new(
        Exit::Finding,
        format!("{} is damaged at byte {position}", path.display()),
    )
    .why(error.to_string())
    .hint(REMEDY)
}

/// What is wrong with a segment: the first finding, and what was sound before it.
fn check(path: &Path, bytes: &Bytes) -> (usize, usize, Option<String>) {
    let (mut count, mut records) = (0, 0);
    // A segment is named after its first offset; the batches in it go on from there.
    let mut next: i64 = path
        .file_stem()
        .and_then(|s| s.to_str())
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    let mut position = 0;
    for batch in batches(bytes) {
        let at = |error: &dyn std::fmt::Display| format!("byte {position}: {error}");
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return (count, records, Some(at(&error))),
        };
        if let Err(error) = batch.check_crc() {
            return (count, records, Some(at(&error)));
        }
        if batch.header.base_offset.0 < next {
            let words = format!(
                "offset {} after offset {}",
                batch.header.base_offset,
                next - 1
            );
            return (count, records, Some(at(&words)));
        }
        let opened = Records::shared(&bytes.slice_ref(batch.bytes), MAX_BATCH_BYTES)
            .and_then(|r| r.iter_refs().try_fold(0, |n, record| record.map(|_| n + 1)));
        match opened {
            Ok(n) => records += n,
            Err(error) => return (count, records, Some(at(&error))),
        }
        next = batch.header.next_offset().0;
        count += 1;
        position += batch.bytes.len();
    }
    (count, records, None)
}

/// What lies beside a segment, against it.
fn beside(path: &Path, bytes: &Bytes) -> Option<String> {
    // A segment of Kafka's has no such file; one that is missing or damaged is made again.
    let check = std::fs::read(path.with_extension("check")).ok()?;
    match compare(&seed(path)?, &check, bytes)? {
        Difference::Missing(missing) => Some(format!("{missing} bytes are missing at its end")),
        Difference::Block(number) => Some(format!(
            "byte {}: the block isn't the one that was written there",
            number << 16
        )),
    }
}

/// Batches and records of a segment up to the first finding, and that.
pub(super) fn check_file(file: &Path) -> (usize, usize, Option<String>) {
    match std::fs::read(file).map(Bytes::from) {
        Ok(bytes) => {
            let (count, records, finding) = check(file, &bytes);
            (count, records, finding.or_else(|| beside(file, &bytes)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let words = "the file is missing, and others of its segment are there";
            (0, 0, Some(words.to_owned()))
        }
        Err(error) => (0, 0, Some(error.to_string())),
    }
}

impl Check {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut table = Table::new("segment.check", &["file", "batches", "records", "state"]);
        let mut findings = 0;
        for path in &self.paths {
            for file in found(path)? {
                let (count, records, finding) = check_file(&file);
                findings += usize::from(finding.is_some());
                table.row(vec![
                    json!(file.display().to_string()),
                    json!(count),
                    json!(records),
                    json!(finding.as_deref().unwrap_or("ok")),
                ]);
            }
        }
        table.print(context.output)?;
        let words = match findings {
            0 => return Ok(()),
            1 => "1 segment is damaged".to_owned(),
            n => format!("{n} segments are damaged"),
        };
        Err(Failure::new(Exit::Finding, words).hint(REMEDY))
    }
}
