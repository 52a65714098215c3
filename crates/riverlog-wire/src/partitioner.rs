//! Which partition a key belongs to, as Kafka's own producer decides it, so that the same key lands on the same
//! partition from every door.

use crate::PartitionIndex;

/// Kafka's murmur2 (32 bits, seed 0x9747b28c).
pub fn murmur2(key: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;

    let mut h = SEED ^ key.len() as u32;
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (i, byte) in tail.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^= h >> 15;
    h as i32
}

/// The partition of `key` among `partitions` partitions, numbered from 0. With fewer than one it is 0.
pub fn partition_for_key(key: &[u8], partitions: i32) -> PartitionIndex {
    // Kafka clears the sign bit rather than negate, which would have one value without a counterpart.
    PartitionIndex((murmur2(key) & i32::MAX) % partitions.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_is_kafkas() {
        for (key, hash) in [
            ("21", -973932308),
            ("foobar", -790332482),
            ("abc", 479470107),
            ("", 275646681),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58897971,
            ),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn partitions_are_within_their_number() {
        assert_eq!(partition_for_key(b"foobar", 10), PartitionIndex(6));
        assert_eq!(partition_for_key(b"foobar", 1), PartitionIndex(0));
        assert_eq!(partition_for_key(b"foobar", 0), PartitionIndex(0));
        assert_eq!(partition_for_key(b"foobar", -3), PartitionIndex(0));
        for i in 0..1000_u32 {
            let partition = partition_for_key(&i.to_le_bytes(), 7);
            assert!((0..7).contains(&partition.0));
        }
    }
}
