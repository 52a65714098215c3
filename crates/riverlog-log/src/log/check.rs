//! The `.check` file beside a segment: a CRC of each 64 KiB block, and a summary of the segment.
//!
//! A batch's own CRC covers neither its base offset nor whose log it belongs to, so a block of another partition, another
//! segment or an earlier life of this one can look sound. The CRCs here are seeded with topic id, partition, base offset
//! and block number. Each entry carries a guard, so that a torn or missing entry is told from a damaged block.
//! Layout: `docs/format/segment.md`.

use riverlog_wire::{LeaderEpoch, Offset};

use super::bytes_at::{get_i32, get_i64, get_u32, get_u64};
use super::crc::{Crc, crc32c};
use crate::LogKey;

/// Bytes that one entry covers.
pub(super) const BLOCK: u64 = 64 * 1024;
/// Bytes before the entries.
pub(super) const CHECK_HEADER: usize = 192;
/// Bytes of an entry.
pub(super) const CHECK_ENTRY: usize = 8;

const MAGIC: &[u8; 8] = b"RLCHECK\x01";
const SUMMARY_AT: usize = 64;
const SUMMARY_LEN: usize = 128;
/// What summaries had before there were transactions.
const SUMMARY_LEN_OLD: usize = 112;

/// Whose segment: what the CRCs are seeded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckSeed {
    /// The log.
    pub key: LogKey,
    /// Base offset of the segment.
    pub base: Offset,
}

impl CheckSeed {
    /// A CRC that goes on with the bytes of block `number`.
    pub(super) fn block(&self, number: u64) -> Crc {
        let mut seed = [0; 36];
        seed[..16].copy_from_slice(&self.key.topic.0);
        seed[16..20].copy_from_slice(&self.key.partition.0.to_be_bytes());
        seed[20..28].copy_from_slice(&self.base.0.to_be_bytes());
        seed[28..].copy_from_slice(&number.to_be_bytes());
        let mut crc = Crc::default();
        crc.update(&seed);
        crc
    }
    /// The entry for a block whose CRC is `crc`.
    pub(super) fn entry(&self, number: u64, crc: u32) -> [u8; CHECK_ENTRY] {
        let mut out = [0; CHECK_ENTRY];
        out[..4].copy_from_slice(&crc.to_be_bytes());
        out[4..].copy_from_slice(&self.guard(number, crc).to_be_bytes());
        out
    }
    /// An entry that says that nothing is known of the block.
    pub(super) fn no_entry(&self, number: u64) -> [u8; CHECK_ENTRY] {
        let mut out = [0; CHECK_ENTRY];
        out[4..].copy_from_slice(&(!self.guard(number, 0)).to_be_bytes());
        out
    }
    fn guard(&self, number: u64, crc: u32) -> u32 {
        let mut guard = self.block(number);
        guard.update(&crc.to_be_bytes());
        guard.value()
    }
    /// The CRC in an entry; `None` when the entry is missing, torn or of another place.
    pub fn parse_entry(&self, number: u64, bytes: &[u8]) -> Option<u32> {
        let crc = get_u32(bytes, 0)?;
        (get_u32(bytes, 4)? == self.guard(number, crc)).then_some(crc)
    }
    fn identity(&self) -> [u8; SUMMARY_AT] {
        let mut out = [0; SUMMARY_AT];
        out[..8].copy_from_slice(MAGIC);
        out[8..24].copy_from_slice(&self.key.topic.0);
        out[24..28].copy_from_slice(&self.key.partition.0.to_be_bytes());
        out[28..36].copy_from_slice(&self.base.0.to_be_bytes());
        out[36..40].copy_from_slice(&(BLOCK as u32).to_be_bytes());
        let crc = crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_be_bytes());
        out
    }
    /// The bytes before the entries.
    pub(super) fn encode_header(&self, summary: &Summary) -> [u8; CHECK_HEADER] {
        let mut out = [0; CHECK_HEADER];
        let identity = self.identity();
        out[..SUMMARY_AT].copy_from_slice(&identity);
        out[SUMMARY_AT..SUMMARY_AT + SUMMARY_LEN].copy_from_slice(&summary.encode(self));
        out
    }
    /// The summary in the bytes before the entries; `None` when there is none that is whole and of this segment.
    pub fn parse_header(&self, bytes: &[u8]) -> Option<Summary> {
        if bytes.get(..SUMMARY_AT)? != self.identity() {
            return None;
        }
        Summary::decode(self, bytes.get(SUMMARY_AT..SUMMARY_AT + SUMMARY_LEN)?)
    }
}

/// What is known of a segment without reading it: true for its first `size` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of the segment that this is about.
    pub size: u64,
    /// Offset after the last record in them.
    pub next: Offset,
    /// Timestamp of the first batch (its largest); −1 when there is none.
    pub first_timestamp: i64,
    /// The largest timestamp; −1 when there is none.
    pub max_timestamp: i64,
    /// Last offset of the batch that has it.
    pub max_timestamp_at: Offset,
    /// Wall clock of the last append by a leader; −1 where unknown.
    pub appended_ms: i64,
    /// Epoch of the first batch.
    pub first_epoch: LeaderEpoch,
    /// Epoch of the last batch.
    pub last_epoch: LeaderEpoch,
    /// CRC-32C over epoch and start of each epoch that starts in this segment.
    pub epochs_crc: u32,
    /// Entries of the offset index, and CRC-32C over them.
    pub index: (u32, u32),
    /// Entries of the time index, and CRC-32C over them.
    pub time: (u32, u32),
    /// CRC of the unfinished last block (bytes up to `size`), seeded like an entry; `None` when it is damaged.
    pub tail_crc: Option<u32>,
    /// Bytes since the last entry of the offset index.
    pub since_index: u32,
    /// Timestamp of the last entry of the time index; −1 when there is none.
    pub last_time: i64,
    /// Offsets are missing between batches.
    pub gaps: bool,
    /// Producers known at `next`; 0: there is no producer snapshot to look for.
    pub producers: u32,
    /// Entries of the index of aborted transactions, and CRC-32C over them.
    pub aborted: (u32, u32),
}

impl Summary {
    fn encode(&self, seed: &CheckSeed) -> [u8; SUMMARY_LEN] {
        let mut out = Vec::with_capacity(SUMMARY_LEN);
        out.extend(self.size.to_be_bytes());
        out.extend(self.next.0.to_be_bytes());
        out.extend(self.first_timestamp.to_be_bytes());
        out.extend(self.max_timestamp.to_be_bytes());
        out.extend(self.max_timestamp_at.0.to_be_bytes());
        out.extend(self.appended_ms.to_be_bytes());
        out.extend(self.first_epoch.0.to_be_bytes());
        out.extend(self.last_epoch.0.to_be_bytes());
        out.extend(self.epochs_crc.to_be_bytes());
        for field in [self.index, self.time] {
            out.extend(field.0.to_be_bytes());
            out.extend(field.1.to_be_bytes());
        }
        out.extend(u32::from(self.tail_crc.is_some()).to_be_bytes());
        out.extend(self.tail_crc.unwrap_or(0).to_be_bytes());
        out.extend(self.since_index.to_be_bytes());
        out.extend(self.producers.to_be_bytes());
        out.extend(self.last_time.to_be_bytes());
        out.extend(u32::from(self.gaps).to_be_bytes());
        out.extend(self.aborted.0.to_be_bytes());
        out.extend(self.aborted.1.to_be_bytes());
        out.resize(SUMMARY_LEN - 4, 0);
        out.extend(summary_crc(seed, &out).to_be_bytes());
        let mut fixed = [0; SUMMARY_LEN];
        fixed.copy_from_slice(&out);
        fixed
    }
    fn decode(seed: &CheckSeed, bytes: &[u8]) -> Option<Summary> {
        let sealed = |len: usize| {
            let body = bytes.get(..len - 4)?;
            (get_u32(bytes, len - 4)? == summary_crc(seed, body)).then_some(body)
        };
        let body = sealed(SUMMARY_LEN).or_else(|| sealed(SUMMARY_LEN_OLD))?;
        let aborted = match body.len() > SUMMARY_LEN_OLD {
            true => (get_u32(body, 104)?, get_u32(body, 108)?),
            false => (0, 0),
        };
        Some(Summary {
            size: get_u64(body, 0)?,
            next: Offset(get_i64(body, 8)?),
            first_timestamp: get_i64(body, 16)?,
            max_timestamp: get_i64(body, 24)?,
            max_timestamp_at: Offset(get_i64(body, 32)?),
            appended_ms: get_i64(body, 40)?,
            first_epoch: LeaderEpoch(get_i32(body, 48)?),
            last_epoch: LeaderEpoch(get_i32(body, 52)?),
            epochs_crc: get_u32(body, 56)?,
            index: (get_u32(body, 60)?, get_u32(body, 64)?),
            time: (get_u32(body, 68)?, get_u32(body, 72)?),
            tail_crc: (get_u32(body, 76)? == 1).then_some(get_u32(body, 80)?),
            since_index: get_u32(body, 84)?,
            producers: get_u32(body, 88)?,
            last_time: get_i64(body, 92)?,
            gaps: get_u32(body, 100)? != 0,
            aborted,
        })
    }
}

fn summary_crc(seed: &CheckSeed, body: &[u8]) -> u32 {
    // A number that no block has, so that a summary is never taken for a block.
    let mut crc = seed.block(u64::MAX);
    crc.update(body);
    crc.value()
}

/// What a segment's `.check` file says against the segment: that bytes are missing at its end, or the number of the first
/// whole block that isn't the one that was written. `None`: nothing; of blocks without a whole entry nothing is known.
///
/// - `check`: the whole `.check` file.
/// - `segment`: the whole segment.
pub fn compare(seed: &CheckSeed, check: &[u8], segment: &[u8]) -> Option<Difference> {
    if let Some(summary) = seed.parse_header(check)
        && summary.size > segment.len() as u64
    {
        let missing = summary.size - segment.len() as u64;
        return Some(Difference::Missing(missing));
    }
    let entries = check.get(CHECK_HEADER..).unwrap_or_default();
    let blocks = segment.chunks_exact(BLOCK as usize);
    let differs = |(number, (bytes, entry)): &(u64, (&[u8], &[u8]))| {
        let mut crc = seed.block(*number);
        crc.update(bytes);
        seed.parse_entry(*number, entry)
            .is_some_and(|expected| expected != crc.value())
    };
    let mut each = (0..).zip(blocks.zip(entries.chunks_exact(CHECK_ENTRY)));
    each.find(differs)
        .map(|(number, _)| Difference::Block(number))
}

/// See [`compare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The segment lacks so many bytes at its end.
    Missing(u64),
    /// The block of 64 KiB with this number isn't what was written there.
    Block(u64),
}

/// The running CRC of the block that is being filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockCrc {
    seed: CheckSeed,
    at: u64,
    /// `None`: the block holds damaged bytes, which must never get a CRC that fits them.
    crc: Option<Crc>,
}

impl BlockCrc {
    /// At the start of a segment.
    pub(super) fn start(seed: CheckSeed) -> BlockCrc {
        BlockCrc {
            seed,
            at: 0,
            crc: Some(seed.block(0)),
        }
    }
    /// At `at`, where the CRC of the unfinished block is `tail_crc`.
    pub(super) fn resume(seed: CheckSeed, at: u64, tail_crc: Option<u32>) -> BlockCrc {
        BlockCrc {
            seed,
            at,
            crc: tail_crc.map(Crc::resume),
        }
    }
    pub(super) fn position(&self) -> u64 {
        self.at
    }
    /// The CRC of the unfinished block so far.
    pub(super) fn tail_crc(&self) -> Option<u32> {
        self.crc.map(Crc::value)
    }
    /// Takes the bytes that follow; each finished block's CRC is added to `done`.
    pub(super) fn update(&mut self, mut bytes: &[u8], done: &mut Vec<Option<u32>>) {
        while !bytes.is_empty() {
            let room = (BLOCK - self.at % BLOCK) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if let Some(crc) = &mut self.crc {
                crc.update(now);
            }
            bytes = later;
            self.advance(now.len() as u64, done);
        }
    }
    /// Passes over `len` bytes that are damaged, or weren't looked at: their blocks get no CRC.
    pub(super) fn skip(&mut self, mut len: u64, done: &mut Vec<Option<u32>>) {
        while len > 0 {
            let now = len.min(BLOCK - self.at % BLOCK);
            self.crc = None;
            len -= now;
            self.advance(now, done);
        }
    }
    /// From here on the unfinished block's CRC is wrong for what was read of it, and stays so whatever follows: what is there
    /// isn't what was written.
    pub(super) fn spoil(&mut self) {
        let wrong = !self.crc.map_or(0, Crc::value);
        self.crc = Some(Crc::resume(wrong));
    }
    fn advance(&mut self, len: u64, done: &mut Vec<Option<u32>>) {
        self.at += len;
        if self.at.is_multiple_of(BLOCK) {
            done.push(self.tail_crc());
            self.crc = Some(self.seed.block(self.at / BLOCK));
        }
    }
}

#[cfg(test)]
mod tests {
    use riverlog_wire::{PartitionIndex, TopicId};

    use super::*;

    fn seed(partition: i32) -> CheckSeed {
        CheckSeed {
            key: LogKey {
                topic: TopicId([7; 16]),
                partition: PartitionIndex(partition),
            },
            base: Offset(1000),
        }
    }

    fn summary() -> Summary {
        Summary {
            size: 70_000,
            next: Offset(1234),
            first_timestamp: 5,
            max_timestamp: 9,
            max_timestamp_at: Offset(1200),
            appended_ms: 77,
            first_epoch: LeaderEpoch(1),
            last_epoch: LeaderEpoch(3),
            epochs_crc: 1,
            index: (2, 3),
            time: (4, 5),
            tail_crc: Some(6),
            since_index: 7,
            producers: 8,
            last_time: 9,
            gaps: true,
            aborted: (10, 11),
        }
    }

    #[test]
    fn a_summary_from_before_there_were_transactions_is_read() {
        let mut bytes = seed(1).encode_header(&summary());
        let at = SUMMARY_AT + SUMMARY_LEN_OLD - 4;
        bytes[at - 4..].fill(0);
        let crc = summary_crc(&seed(1), &bytes[SUMMARY_AT..at]);
        bytes[at..at + 4].copy_from_slice(&crc.to_be_bytes());
        let expected = Summary {
            aborted: (0, 0),
            ..summary()
        };
        assert_eq!(seed(1).parse_header(&bytes), Some(expected));
    }

    #[test]
    fn a_header_reads_back_only_for_its_own_segment_and_undamaged() {
        let bytes = seed(1).encode_header(&summary());
        assert_eq!(seed(1).parse_header(&bytes), Some(summary()));
        assert_eq!(seed(2).parse_header(&bytes), None);
        for at in 0..SUMMARY_AT + SUMMARY_LEN {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(seed(1).parse_header(&damaged), None, "byte {at}");
            assert_eq!(seed(1).parse_header(&bytes[..at]), None);
        }
    }

    #[test]
    fn a_block_that_is_not_the_one_that_was_written_differs() {
        let segment: Vec<u8> = (0..150_000_u32).map(|i| (i % 251) as u8).collect();
        let mut check = seed(1).encode_header(&summary()).to_vec();
        for (number, block) in (0..).zip(segment.chunks_exact(BLOCK as usize)) {
            let mut crc = seed(1).block(number);
            crc.update(block);
            check.extend(seed(1).entry(number, crc.value()));
        }
        assert_eq!(compare(&seed(1), &check, &segment), None);
        // Of another segment's file nothing is known.
        assert_eq!(compare(&seed(2), &check, &segment), None);
        let mut hurt = segment.clone();
        hurt[70_000] ^= 1;
        let block = Some(Difference::Block(1));
        assert_eq!(compare(&seed(1), &check, &hurt), block);
        let short = Some(Difference::Missing(10_000));
        assert_eq!(compare(&seed(1), &check, &segment[..60_000]), short);
        for cut in 0..check.len() {
            let _never_panics = compare(&seed(1), &check[..cut], &segment);
        }
    }

    #[test]
    fn an_entry_is_of_one_block_of_one_segment_only() {
        let entry = seed(1).entry(4, 99);
        assert_eq!(seed(1).parse_entry(4, &entry), Some(99));
        assert_eq!(seed(1).parse_entry(5, &entry), None);
        assert_eq!(seed(2).parse_entry(4, &entry), None);
        assert_eq!(seed(1).parse_entry(4, &[0; 8]), None);
        assert_eq!(seed(1).parse_entry(4, &seed(1).no_entry(4)), None);
        assert_eq!(seed(1).parse_entry(4, &entry[..7]), None);
    }

    #[test]
    fn block_crcs_dont_depend_on_how_the_bytes_arrive() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 100).map(|i| (i % 251) as u8).collect();
        let mut whole = Vec::new();
        let mut a = BlockCrc::start(seed(1));
        a.update(&bytes, &mut whole);
        let mut pieces = Vec::new();
        let mut b = BlockCrc::start(seed(1));
        for piece in bytes.chunks(10_007) {
            b.update(piece, &mut pieces);
            b = BlockCrc::resume(seed(1), b.position(), b.tail_crc());
        }
        assert_eq!(whole, pieces);
        assert_eq!(whole.len(), 3);
        assert_eq!(a.tail_crc(), b.tail_crc());
        assert_ne!(whole[0], whole[1]);
    }

    #[test]
    fn a_block_with_damaged_bytes_gets_no_crc() {
        let bytes = vec![1; 2 * BLOCK as usize];
        let mut crc = BlockCrc::start(seed(1));
        let mut done = Vec::new();
        crc.update(&bytes[..100], &mut done);
        crc.skip(BLOCK, &mut done);
        crc.update(&bytes[..BLOCK as usize], &mut done);
        assert_eq!(done, [None, None]);
        crc.update(&bytes, &mut done);
        assert!(done[2].is_some() && done[3].is_some());
    }
}
