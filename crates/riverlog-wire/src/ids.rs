//! Ids and positions. Each is its own type, so that mixing an offset and an epoch is a compile error.

use std::fmt;
use std::ops::{Add, Sub};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

id!(
    /// The position of a record in a partition; dense when appended, with gaps after compaction.
    Offset(i64)
);
id!(
    /// Which leader wrote a batch, counted from 0; −1 where unknown.
    LeaderEpoch(i32)
);
id!(
    /// An idempotent producer; −1 for none.
    ProducerId(i64)
);
id!(
    /// Fences older instances of one producer id; −1 for none.
    ProducerEpoch(i16)
);
id!(
    /// A producer's own count of records in a partition; wraps from 2³¹−1 to 0; −1 for none.
    Sequence(i32)
);
id!(
    /// A partition's number within its topic.
    PartitionIndex(i32)
);
id!(
    /// A node of the cluster.
    BrokerId(i32)
);
id!(
    /// Counts the assignments of a group; fences members of older ones.
    Generation(i32)
);

impl Offset {
    /// The first offset of every log.
    pub const ZERO: Offset = Offset(0);
    /// The offset `n` records later; stays at the largest offset rather than wrap.
    #[must_use]
    pub fn plus(self, n: i64) -> Offset {
        Offset(self.0.saturating_add(n))
    }
}

impl Add<i64> for Offset {
    type Output = Offset;
    fn add(self, n: i64) -> Offset {
        self.plus(n)
    }
}

impl Sub for Offset {
    type Output = i64;
    fn sub(self, other: Offset) -> i64 {
        self.0.saturating_sub(other.0)
    }
}

impl LeaderEpoch {
    /// No epoch known.
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);
}

impl ProducerId {
    /// Not an idempotent producer.
    pub const NONE: ProducerId = ProducerId(-1);
    /// The first of the ids that nobody hands out: each stands for one idempotency key of a client without a producer of its
    /// own, and is forgotten sooner. The controller's ids, counted from 0, don't come near.
    pub const KEYED: ProducerId = ProducerId(1 << 62);

    /// For so long an idempotency key is remembered, and hardly longer: there is one for each request.
    pub const KEYED_FOR_MS: i64 = 3_600_000;

    /// Whether it stands for an idempotency key.
    pub fn is_keyed(self) -> bool {
        self >= ProducerId::KEYED
    }
}

impl ProducerEpoch {
    /// Not an idempotent producer.
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl Sequence {
    /// Not an idempotent producer.
    pub const NONE: Sequence = Sequence(-1);

    /// The sequence `n` records later, wrapping from 2³¹−1 to 0.
    #[must_use]
    pub fn plus(self, n: i32) -> Sequence {
        Sequence((i64::from(self.0) + i64::from(n)).rem_euclid(1 << 31) as i32)
    }

    /// Whether it comes after another one: what is farther ahead than half of all sequences lies behind.
    pub fn is_after(self, other: Sequence) -> bool {
        (1..=1 << 30).contains(&self.plus(-other.0).0)
    }
}

/// A topic for life: a deleted and re-created topic has a new id (KIP-516). Shown as Kafka shows it,
/// in URL-safe base64 without padding; folders carry that form too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// "No id": names decide.
    pub const ZERO: TopicId = TopicId([0; 16]);
    /// The metadata log's topic, as Kafka numbers it.
    pub const METADATA: TopicId = TopicId([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    /// Parses the 22-character form that [`fmt::Display`] gives.
    pub fn parse(text: &str) -> Option<TopicId> {
        if text.len() != 22 {
            return None;
        }
        let mut bits: u128 = 0;
        for (i, c) in text.bytes().enumerate() {
            let six = BASE64.iter().position(|b| *b == c)? as u128;
            // 22 characters hold 132 bits; the last four must be zero.
            if i < 21 {
                bits = bits << 6 | six;
            } else {
                if six & 0xf != 0 {
                    return None;
                }
                bits = bits << 2 | six >> 4;
            }
        }
        Some(TopicId(bits.to_be_bytes()))
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        for i in 0..22 {
            let six = if i < 21 {
                bits >> (122 - 6 * i)
            } else {
                bits << 4
            } & 0x3f;
            f.write_str(std::str::from_utf8(&BASE64[six as usize..=six as usize]).unwrap_or("?"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_id_reads_back_from_its_text() {
        for bytes in [
            [0; 16],
            [255; 16],
            TopicId::METADATA.0,
            *b"0123456789abcdef",
        ] {
            let id = TopicId(bytes);
            assert_eq!(TopicId::parse(&id.to_string()), Some(id));
        }
        assert_eq!(TopicId::METADATA.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(TopicId::parse("AAAAAAAAAAAAAAAAAAAAA"), None);
        assert_eq!(TopicId::parse("AAAAAAAAAAAAAAAAAAAAA!"), None);
    }

    #[test]
    fn a_sequence_wraps_to_zero() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).plus(3), Sequence(1));
    }
}
