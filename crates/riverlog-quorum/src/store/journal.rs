//! The file in which votes and entries are: `docs/format/quorum.md`.

use std::io;
use std::sync::Arc;

use riverlog_log::{Disk, DiskFile, OpenMode};
use riverlog_mutants::{Mutant, active};
use riverlog_wire::BrokerId;
use riverlog_wire::primitives::{Reader, Writer};

use super::frame::{self, Found, HEADER};
use crate::encode::{
    self, BadBytes, get_entries, get_log_id, get_u64, get_vote, put_entries, put_log_id, put_u64,
    put_vote,
};
use crate::error::QuorumError;
use crate::raft::{DiskId, Entry, LogId, Vote, io_error};

pub(crate) const FOLDER: &str = "quorum";
const JOURNAL: &str = "quorum/journal";
const JOURNAL_NEW: &str = "quorum/journal.new";
const VERSION: u16 = 1;

/// Whose file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) disk: DiskId,
    pub(crate) broker: BrokerId,
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    Identity(Identity),
    Vote(Vote),
    Entries(Vec<Entry>),
    /// The entries behind this index are gone; `None`: all.
    Cut(Option<u64>),
    /// The entries up to this one are in a snapshot.
    Purged(LogId),
}

mod kind {
    pub(super) const IDENTITY: u8 = 1;
    pub(super) const VOTE: u8 = 2;
    pub(super) const ENTRIES: u8 = 3;
    pub(super) const CUT: u8 = 4;
    pub(super) const PURGED: u8 = 5;
}

impl Line {
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(64);
        let mut w = Writer::new(&mut out);
        match self {
            Line::Identity(identity) => {
                w.u8(kind::IDENTITY);
                w.u16(VERSION);
                put_u64(&mut w, identity.disk.0);
                w.i32(identity.broker.0);
            }
            Line::Vote(vote) => {
                w.u8(kind::VOTE);
                put_vote(&mut w, vote);
            }
            Line::Entries(entries) => {
                w.u8(kind::ENTRIES);
                put_entries(&mut w, entries);
            }
            Line::Cut(after) => {
                w.u8(kind::CUT);
                w.bool(after.is_some());
                put_u64(&mut w, after.unwrap_or_default());
            }
            Line::Purged(upto) => {
                w.u8(kind::PURGED);
                put_log_id(&mut w, Some(upto));
            }
        }
        w.finish().map_err(io_error)?;
        Ok(out)
    }

    fn decode(bytes: &[u8]) -> Result<Line, BadBytes> {
        let mut r = Reader::new(bytes);
        let line = match r.u8()? {
            kind::IDENTITY => {
                let version = r.u16()?;
                if version != VERSION {
                    return Err(BadBytes::Unknown {
                        what: "version",
                        value: version.into(),
                    });
                }
                Line::Identity(Identity {
                    disk: DiskId(get_u64(&mut r)?),
                    broker: BrokerId(r.i32()?),
                })
            }
            kind::VOTE => Line::Vote(get_vote(&mut r)?),
            kind::ENTRIES => Line::Entries(get_entries(&mut r)?),
            kind::CUT => {
                let some = r.bool()?;
                let index = get_u64(&mut r)?;
                Line::Cut(some.then_some(index))
            }
            kind::PURGED => match get_log_id(&mut r)? {
                Some(upto) => Line::Purged(upto),
                None => {
                    return Err(BadBytes::Unknown {
                        what: "purge",
                        value: 0,
                    });
                }
            },
            value => {
                return Err(BadBytes::Unknown {
                    what: "kind",
                    value: value.into(),
                });
            }
        };
        encode::end(&r)?;
        Ok(line)
    }
}

/// The open file. After a failed write or sync it takes nothing any more: what lies on the disk isn't known.
#[derive(Debug)]
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    len: u64,
    next: u64,
    failed: bool,
}

impl Journal {
    /// Reads what is there, without the last frame if its write was cut off; `None` when there is no file.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> Result<Option<(Journal, Vec<Line>)>, QuorumError> {
        let file = match disk.open(JOURNAL, OpenMode::Write) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(QuorumError::disk(JOURNAL)(error)),
        };
        let bytes = read_whole(&*file).map_err(QuorumError::disk(JOURNAL))?;
        let (lines, len) = read_lines(&bytes)?;
        if len < bytes.len() {
            file.set_len(len as u64)
                .and_then(|()| file.sync())
                .map_err(QuorumError::disk(JOURNAL))?;
        }
        let journal = Journal {
            disk,
            file,
            len: len as u64,
            next: lines.len() as u64,
            failed: false,
        };
        Ok(Some((journal, lines)))
    }

    /// A new file in place of the old one, if any; all of it or nothing.
    pub(crate) fn create(disk: Arc<dyn Disk>, lines: &[Line]) -> Result<Journal, QuorumError> {
        let make = || {
            disk.create_dir_all(FOLDER)?;
            let written = write_anew(&*disk, lines)?;
            disk.sync_dir("")?;
            Ok(written)
        };
        let (file, len) = make().map_err(QuorumError::disk(JOURNAL_NEW))?;
        Ok(Journal {
            disk,
            file,
            len,
            next: lines.len() as u64,
            failed: false,
        })
    }

    /// Durable when it returns.
    pub(crate) fn append(&mut self, line: &Line) -> io::Result<()> {
        self.usable()?;
        let bytes = frame::frame(self.next, &line.encode()?)
            .ok_or_else(|| io_error("an entry is too long for the quorum's journal"))?;
        // One frame is written and synced at a time, so that only the last can be torn.
        let written = self
            .file
            .write_at(&[&bytes], self.len)
            .and_then(|()| match line {
                Line::Entries(_) if active(Mutant::EntriesNotSynced) => Ok(()),
                _ => self.file.sync(),
            });
        self.failed = written.is_err();
        written?;
        self.len += bytes.len() as u64;
        self.next += 1;
        Ok(())
    }

    /// Replaces the file by one with these lines.
    pub(crate) fn rewrite(&mut self, lines: &[Line]) -> io::Result<()> {
        self.usable()?;
        match write_anew(&*self.disk, lines) {
            Ok((file, len)) => {
                (self.file, self.len) = (file, len);
                self.next = lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.failed = true;
                Err(error)
            }
        }
    }

    fn usable(&self) -> io::Result<()> {
        match self.failed {
            true => Err(io_error(
                "the quorum's journal failed before and isn't trusted any more",
            )),
            false => Ok(()),
        }
    }
}

fn write_anew(disk: &dyn Disk, lines: &[Line]) -> io::Result<(Arc<dyn DiskFile>, u64)> {
    let mut bytes = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let one = frame::frame(number as u64, &line.encode()?);
        bytes.extend(one.ok_or_else(|| io_error("an entry is too long for the quorum's journal"))?);
    }
    let file = disk.open(JOURNAL_NEW, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(&[&bytes], 0)?;
    file.sync()?;
    disk.rename(JOURNAL_NEW, JOURNAL)?;
    disk.sync_dir(FOLDER)?;
    Ok((file, bytes.len() as u64))
}

pub(crate) fn read_whole(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).map_err(io_error)?;
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The lines, and where the last whole one ends.
fn read_lines(bytes: &[u8]) -> Result<(Vec<Line>, usize), QuorumError> {
    let damaged = |at: usize, why: &dyn ToString| {
        QuorumError::damaged(JOURNAL, format!("at byte {at}, {}", why.to_string()))
    };
    let mut lines = Vec::new();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match frame::read(rest) {
            Found::End => break,
            Found::Whole { number, payload } => {
                if number != lines.len() as u64 {
                    return Err(damaged(at, &format!("frame {number} isn't the next")));
                }
                lines.push(Line::decode(payload).map_err(|error| damaged(at, &error))?);
                at += HEADER + payload.len();
            }
            Found::Torn => {
                // Only the last frame can have been cut off by a crash; it was answered to nobody.
                if lines.is_empty() || frame::any_after(rest, lines.len() as u64) {
                    return Err(damaged(at, &"a frame that was synced isn't whole"));
                }
                break;
            }
        }
    }
    match lines.first() {
        Some(Line::Identity(_)) => Ok((lines, at)),
        _ => Err(damaged(0, &"it doesn't say whose it is")),
    }
}
