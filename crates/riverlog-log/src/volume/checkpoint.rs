//! The bytes of `checkpoint.0`, `checkpoint.1`, `clean` and `format`, as in `docs/format/volume.md`.

use bytes::{Buf, BufMut};
use crc_fast::crc32_iscsi;
use riverlog_wire::{LeaderEpoch, Offset, PartitionIndex, TopicId};

use super::{EndCheck, LogKey, LogMark};
use crate::wal::{Lsn, Mark, WalPlace};

const MAGIC: u32 = u32::from_be_bytes(*b"RLCP");
const CLEAN_MAGIC: u32 = u32::from_be_bytes(*b"RLCL");
const VERSION: u16 = 2;
const HEADER: usize = 64;
const LOG: usize = 80;
/// What a log had in version 1.
const LOG_OLD: usize = 64;
const CRC: usize = 4;
const CLEAN_BYTES: usize = 36;

/// The newest format that this release reads and writes.
pub(super) const FORMAT: u32 = 1;

/// A checkpoint without its logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) volume: u128,
    pub(super) sequence: u64,
    pub(super) place: WalPlace,
    pub(super) released: Lsn,
}

impl EndCheck {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(self.records);
        out.put_u32(self.blocks);
        out.put_u32(self.size);
        out.put_u32(self.crc);
    }
    /// `bytes` has at least [`EndCheck::BYTES`].
    pub(crate) fn decode(bytes: &mut impl Buf) -> EndCheck {
        EndCheck {
            records: bytes.get_u32(),
            blocks: bytes.get_u32(),
            size: bytes.get_u32(),
            crc: bytes.get_u32(),
        }
    }
}

/// A whole checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) head: Head,
    /// Of the whole file.
    pub(super) crc: u32,
    /// In order of key.
    pub(super) logs: Vec<(LogKey, Mark)>,
}

pub(super) fn path(sequence: u64) -> &'static str {
    match sequence % 2 {
        0 => "checkpoint.0",
        _ => "checkpoint.1",
    }
}

/// The bytes, and their CRC.
pub(super) fn encode(
    head: &Head,
    logs: impl ExactSizeIterator<Item = (LogKey, Mark)>,
) -> (Vec<u8>, u32) {
    let mut bytes = Vec::with_capacity(HEADER + logs.len() * LOG + CRC);
    bytes.put_u32(MAGIC);
    bytes.put_u16(VERSION);
    bytes.put_u16(0);
    bytes.put_u128(head.volume);
    bytes.put_u64(head.sequence);
    bytes.put_u64(head.place.durable.0);
    bytes.put_u64(head.released.0);
    bytes.put_u64(head.place.segment);
    bytes.put_u32(head.place.previous);
    bytes.put_u32(logs.len() as u32);
    for (key, Mark { mark, covered }) in logs {
        bytes.put_slice(&key.topic.0);
        bytes.put_i32(key.partition.0);
        bytes.put_i32(mark.last_epoch.0);
        bytes.put_i64(mark.start.0);
        bytes.put_i64(mark.end.0);
        bytes.put_i64(mark.segments_synced.0);
        bytes.put_u64(mark.size_bytes);
        bytes.put_u64(covered.0);
        mark.check.encode(&mut bytes);
    }
    let crc = crc32_iscsi(&bytes);
    bytes.put_u32(crc);
    (bytes, crc)
}

/// The checkpoint, or what is wrong with it.
pub(super) fn decode(bytes: &[u8]) -> Result<Checkpoint, &'static str> {
    let (body, crc) = checked(bytes, MAGIC)?;
    if body.len() < HEADER {
        return Err("it is too short");
    }
    let (mut header, mut rest) = body.split_at(HEADER);
    header.advance(4);
    let each = match header.get_u16() {
        1 => LOG_OLD,
        VERSION => LOG,
        _ => return Err("its version is not known"),
    };
    header.advance(2);
    let head = Head {
        volume: header.get_u128(),
        sequence: header.get_u64(),
        place: WalPlace {
            durable: Lsn(header.get_u64()),
            segment: 0,
            previous: 0,
        },
        released: Lsn(header.get_u64()),
    };
    let place = WalPlace {
        segment: header.get_u64(),
        previous: header.get_u32(),
        ..head.place
    };
    if rest.len() != (header.get_u32() as usize).saturating_mul(each) {
        return Err("it has another length than it says");
    }
    let mut logs: Vec<(LogKey, Mark)> = Vec::with_capacity(rest.len() / each);
    while rest.len() >= each {
        let mut topic = [0; 16];
        rest.copy_to_slice(&mut topic);
        let key = LogKey {
            topic: TopicId(topic),
            partition: PartitionIndex(rest.get_i32()),
        };
        let last_epoch = LeaderEpoch(rest.get_i32());
        let mut mark = LogMark {
            start: Offset(rest.get_i64()),
            end: Offset(rest.get_i64()),
            segments_synced: Offset(rest.get_i64()),
            size_bytes: rest.get_u64(),
            last_epoch,
            check: EndCheck::default(),
        };
        let covered = Lsn(rest.get_u64());
        if each > LOG_OLD {
            mark.check = EndCheck::decode(&mut rest);
        }
        if logs.last().is_some_and(|(before, _)| *before >= key) {
            return Err("its logs are out of order");
        }
        logs.push((key, Mark { mark, covered }));
    }
    Ok(Checkpoint {
        head: Head { place, ..head },
        crc,
        logs,
    })
}

/// Takes the CRC off.
fn checked(bytes: &[u8], magic: u32) -> Result<(&[u8], u32), &'static str> {
    let Some((body, crc)) = bytes.split_last_chunk::<CRC>() else {
        return Err("it is too short");
    };
    if !body.starts_with(&magic.to_be_bytes()) {
        return Err("it begins with something else");
    }
    let crc = u32::from_be_bytes(*crc);
    if crc32_iscsi(body) != crc {
        return Err("its checksum is wrong");
    }
    Ok((body, crc))
}

/// `crc`: that of the checkpoint it belongs to. The sequence alone would not do: after a checkpoint was damaged, the next one
/// has the same.
pub(super) fn encode_clean(volume: u128, sequence: u64, crc: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CLEAN_BYTES);
    bytes.put_u32(CLEAN_MAGIC);
    bytes.put_u128(volume);
    bytes.put_u64(sequence);
    bytes.put_u32(crc);
    let crc = crc32_iscsi(&bytes);
    bytes.put_u32(crc);
    bytes
}

/// Whether the mark of a clean stop belongs to that checkpoint.
pub(super) fn is_clean(bytes: &[u8], checkpoint: &Checkpoint) -> bool {
    let head = &checkpoint.head;
    bytes == encode_clean(head.volume, head.sequence, checkpoint.crc)
}

pub(super) fn encode_format(volume: u128) -> String {
    let lines = format!("riverlog format {FORMAT}\nid {volume:032x}\n");
    let crc = crc32_iscsi(lines.as_bytes());
    format!("{lines}crc32c {crc:08x}\n")
}

/// What the file `format` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The id of the folder.
    Known(u128),
    /// The number of a later format.
    Newer(u32),
    /// It can't be used, for this reason.
    Damaged(&'static str),
}

pub(super) fn decode_format(bytes: &[u8]) -> Format {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Format::Damaged("it is not text");
    };
    let last = text
        .strip_suffix('\n')
        .and_then(|text| text.rfind('\n'))
        .map_or(0, |at| at + 1);
    let (lines, crc) = text.split_at(last);
    if crc != format!("crc32c {:08x}\n", crc32_iscsi(lines.as_bytes())) {
        return Format::Damaged("its checksum is wrong");
    }
    let number = lines
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("riverlog format ")?.parse().ok());
    match number {
        Some(FORMAT) => {}
        Some(newer) if newer > FORMAT => return Format::Newer(newer),
        _ => return Format::Damaged("it has no number of a format"),
    }
    let id = lines
        .lines()
        .nth(1)
        .and_then(|line| u128::from_str_radix(line.strip_prefix("id ")?, 16).ok());
    match id {
        Some(id) => Format::Known(id),
        None => Format::Damaged("it has no id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_of_version_1_is_read_without_its_checks() {
        let mark = Mark {
            mark: LogMark {
                start: Offset(3),
                end: Offset(9),
                segments_synced: Offset(7),
                size_bytes: 4096,
                last_epoch: LeaderEpoch(5),
                check: EndCheck {
                    records: 1,
                    blocks: 2,
                    size: 3,
                    crc: 4,
                },
            },
            covered: Lsn(11),
        };
        let key = |partition| LogKey {
            topic: TopicId([7; 16]),
            partition: PartitionIndex(partition),
        };
        let head = Head {
            volume: 1,
            sequence: 2,
            place: WalPlace {
                durable: Lsn(3),
                segment: 4,
                previous: 5,
            },
            released: Lsn(6),
        };
        let (now, _) = encode(&head, vec![(key(0), mark), (key(1), mark)].into_iter());
        let mut old = now[..HEADER].to_vec();
        old[4..6].copy_from_slice(&1u16.to_be_bytes());
        for log in now[HEADER..now.len() - CRC].chunks(LOG) {
            old.extend_from_slice(&log[..LOG_OLD]);
        }
        old.extend_from_slice(&crc32_iscsi(&old).to_be_bytes());
        let read = decode(&old).expect("version 1 is known");
        let unchecked = Mark {
            mark: LogMark {
                check: EndCheck::default(),
                ..mark.mark
            },
            ..mark
        };
        assert_eq!(read.head, head);
        assert_eq!(read.logs, [(key(0), unchecked), (key(1), unchecked)]);
        assert_eq!(decode(&now).expect("ours").logs[0].1, mark);
    }
}
