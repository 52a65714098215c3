//! Producer snapshots: Kafka's `<offset>.snapshot`, state as of that offset.
//!
//! Kafka keeps the last batch of each producer there. We write one entry for each batch of the window, oldest first:
//! Kafka's reader keeps the last entry of a producer, so the file means the same to it, and our window of five survives.

use riverlog_wire::{Offset, ProducerEpoch, ProducerId, Sequence};

use super::bytes_at::{get_i16, get_i32, get_i64, get_u32};
use super::crc::crc32c;
use super::producers::{Producer, Producers, Seen, Stored, WINDOW};

const VERSION: i16 = 1;
const HEADER: usize = 10;
const ENTRY: usize = 46;

/// One line of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The producer.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of the batch's last record; −1 when the producer has none of this epoch.
    pub last_sequence: Sequence,
    /// Offset of that record; −1 likewise.
    pub last_offset: Offset,
    /// Last offset minus first.
    pub offset_delta: i32,
    /// In ms since the epoch.
    pub timestamp: i64,
    /// Of the coordinator that wrote the last marker; −1 for none.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction; −1 for none.
    pub transaction_start: Offset,
}

/// The bytes of a snapshot.
pub(super) fn encode_snapshot(producers: &Producers) -> Vec<u8> {
    let mut out = vec![0; HEADER];
    let mut count: u32 = 0;
    let mut put = |id: ProducerId, producer: &Producer, batch: &Stored, timestamp: i64| {
        out.extend(id.0.to_be_bytes());
        out.extend(producer.epoch.0.to_be_bytes());
        out.extend(batch.last_sequence.0.to_be_bytes());
        out.extend(batch.last_offset.0.to_be_bytes());
        out.extend(batch.offset_delta.to_be_bytes());
        out.extend(timestamp.to_be_bytes());
        out.extend(producer.coordinator_epoch.to_be_bytes());
        let transaction = producer.transaction.unwrap_or(Offset(-1));
        out.extend(transaction.0.to_be_bytes());
        count += 1;
    };
    for (id, producer) in producers.iter() {
        match producer.window.split_last() {
            Some((last, older)) => {
                for batch in older {
                    put(id, producer, batch, batch.timestamp);
                }
                put(id, producer, last, producer.seen.ms());
            }
            None => {
                let none = Stored {
                    last_sequence: Sequence::NONE,
                    last_offset: Offset(-1),
                    offset_delta: 0,
                    timestamp: -1,
                };
                put(id, producer, &none, producer.seen.ms());
            }
        }
    }
    out[..2].copy_from_slice(&VERSION.to_be_bytes());
    out[6..HEADER].copy_from_slice(&count.to_be_bytes());
    let crc = crc32c(&out[6..]);
    out[2..6].copy_from_slice(&crc.to_be_bytes());
    out
}

/// The entries of a snapshot; `None` unless it is of version 1, whole, and its CRC is right.
pub fn parse_snapshot(bytes: &[u8]) -> Option<Vec<SnapshotEntry>> {
    if get_i16(bytes, 0)? != VERSION || get_u32(bytes, 2)? != crc32c(bytes.get(6..)?) {
        return None;
    }
    let entries = bytes.get(HEADER..)?;
    let count = usize::try_from(get_i32(bytes, 6)?).ok()?;
    if entries.len() % ENTRY != 0 || entries.len() / ENTRY != count {
        return None;
    }
    entries
        .chunks_exact(ENTRY)
        .map(|e| {
            Some(SnapshotEntry {
                id: ProducerId(get_i64(e, 0)?),
                epoch: ProducerEpoch(get_i16(e, 8)?),
                last_sequence: Sequence(get_i32(e, 10)?),
                last_offset: Offset(get_i64(e, 14)?),
                offset_delta: get_i32(e, 22)?,
                timestamp: get_i64(e, 26)?,
                coordinator_epoch: get_i32(e, 34)?,
                transaction_start: Offset(get_i64(e, 38)?),
            })
        })
        .collect()
}

/// State from the entries of a snapshot.
pub(super) fn restore(entries: &[SnapshotEntry]) -> Producers {
    let mut out = Producers::default();
    for e in entries {
        let batch = (e.last_sequence >= Sequence(0) && e.offset_delta >= 0).then_some(Stored {
            last_sequence: e.last_sequence,
            last_offset: e.last_offset,
            offset_delta: e.offset_delta,
            timestamp: e.timestamp,
        });
        let known = out.get_mut(e.id).filter(|known| known.epoch == e.epoch);
        let mut producer = match known {
            Some(known) => known.clone(),
            None => Producer::new(e.epoch, Seen::At(e.timestamp)),
        };
        producer.seen = Seen::At(e.timestamp);
        producer.coordinator_epoch = e.coordinator_epoch;
        producer.transaction = (e.transaction_start >= Offset(0)).then_some(e.transaction_start);
        if producer.window.len() >= WINDOW {
            producer.window.remove(0);
        }
        producer.window.extend(batch);
        out.insert(e.id, producer);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written by Apache Kafka 4.4.0 after one idempotent producer had sent 1,024 records.
    const KAFKA: [u8; 56] = [
        0x00, 0x01, 0x45, 0xff, 0x07, 0x3f, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x03,
        0xff, 0, 0, 0, 0, 0, 0, 0x03, 0xff, 0, 0, 0, 0x0f, 0, 0, 0x01, 0xa2, 0x27, 0xa4, 0xe8,
        0x7b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ];

    #[test]
    fn kafkas_own_snapshot_is_read_and_written_the_same() {
        let entries = parse_snapshot(&KAFKA).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].last_sequence, Sequence(1023));
        assert_eq!(entries[0].last_offset, Offset(1023));
        assert_eq!(entries[0].offset_delta, 15);
        assert_eq!(encode_snapshot(&restore(&entries)), KAFKA);
    }

    #[test]
    fn damage_anywhere_is_found() {
        for at in 0..KAFKA.len() {
            let mut damaged = KAFKA;
            damaged[at] ^= 0x10;
            assert_eq!(parse_snapshot(&damaged), None, "byte {at}");
            assert_eq!(parse_snapshot(&KAFKA[..at]), None);
        }
        assert_eq!(parse_snapshot(&[0; 4096]), None);
    }

    #[test]
    fn the_whole_window_survives() {
        let mut producers = Producers::default();
        let mut window: Vec<Stored> = Vec::new();
        for i in 0..WINDOW as i32 {
            window.push(Stored {
                last_sequence: Sequence(i * 2 + 1),
                last_offset: Offset(i64::from(i) * 10),
                offset_delta: 1,
                timestamp: 1000 + i64::from(i),
            });
        }
        producers.insert(
            ProducerId(5),
            Producer {
                window: window.iter().copied().collect(),
                coordinator_epoch: 9,
                transaction: Some(Offset(20)),
                ..Producer::new(ProducerEpoch(3), Seen::At(1004))
            },
        );
        producers.insert(ProducerId(6), Producer::new(ProducerEpoch(1), Seen::At(77)));
        let bytes = encode_snapshot(&producers);
        assert_eq!(restore(&parse_snapshot(&bytes).unwrap()), producers);
    }
}
