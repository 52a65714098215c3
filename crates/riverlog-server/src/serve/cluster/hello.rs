//! The first bytes between two nodes: `docs/protocol/quorum.md`.
//!
//! Each side says who it is. With a cluster key both have proved by then, within [TLS](super::tls), that they have it.

use riverlog_quorum::forming::Introduction;
use riverlog_quorum::{DiskId, Member};
use riverlog_wire::BrokerId;
use riverlog_wire::primitives::{DecodeError, Reader, Writer};

/// With what a node begins. No Kafka client can: its first bytes would be a length below zero.
pub(crate) const MAGIC: [u8; 8] = *b"\xf2RLPEER\x01";
/// The same of a connection for requests of its HTTP door.
pub(crate) const REQUESTS: [u8; 8] = *b"\xf2RLHTTP\x01";
/// And of one for records with which copies catch up.
pub(crate) const BULK: [u8; 8] = *b"\xf2RLBULK\x01";
/// The only version so far.
const VERSION: u16 = 1;
/// The most that a hello takes.
pub(crate) const HELLO_BYTES: usize = 4 << 10;
/// Zero, and not looked at.
const RESERVED: [u8; 16] = [0; 16];

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) who: Introduction,
    /// `None` before it is known.
    pub(crate) cluster_id: Option<String>,
    /// The epoch under which the node has registered; below zero before.
    pub(crate) broker_epoch: i64,
    pub(crate) has_key: bool,
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        let mut w = Writer::new(&mut out);
        w.u16(VERSION);
        w.i32(self.who.member.broker.0);
        w.compact_string(&self.who.member.address);
        w.i64(self.who.disk.0.cast_signed());
        w.bool(self.who.formed);
        w.compact_nullable_string(self.cluster_id.as_deref());
        w.i64(self.broker_epoch);
        w.bool(self.has_key);
        w.raw(&RESERVED);
        w.empty_tagged_fields();
        // An address that is too long for a hello leaves it empty, which nobody takes for one.
        let _cut = w.finish();
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Hello, NotHello> {
        let mut r = Reader::new(bytes);
        let version = r.u16()?;
        if version != VERSION {
            return Err(NotHello::Version(version));
        }
        let hello = Hello {
            who: Introduction {
                member: Member {
                    broker: BrokerId(r.i32()?),
                    address: r.compact_string()?.to_owned(),
                },
                disk: DiskId(r.i64()?.cast_unsigned()),
                formed: r.bool()?,
            },
            cluster_id: r.compact_nullable_string()?.map(str::to_owned),
            broker_epoch: r.i64()?,
            has_key: r.bool()?,
        };
        r.raw(RESERVED.len())?;
        r.skip_tagged_fields()?;
        Ok(hello)
    }
}

/// Bytes that aren't a hello of a version that is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotHello {
    #[error(
        "it speaks version {0} of the peer protocol, and this release version {VERSION}; start the same release on both"
    )]
    Version(u16),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Why a node isn't spoken to. Said to it as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it belongs to another cluster; check its seeds, and its data folder")]
    OtherCluster,
    #[error("two nodes have the same node.id; give each its own")]
    SameNumber,
    #[error(
        "one has a cluster key and the other has none, or another; give all nodes the same --cluster-key"
    )]
    Key,
    #[error("it speaks another version of the peer protocol; start the same release on both")]
    Version,
    #[error("it isn't part of a cluster: it was started without --seeds")]
    Alone,
}

impl Refusal {
    pub(crate) fn code(self) -> u8 {
        match self {
            Refusal::OtherCluster => 1,
            Refusal::SameNumber => 2,
            Refusal::Key => 3,
            Refusal::Version => 4,
            Refusal::Alone => 5,
        }
    }

    pub(crate) fn of(code: u8) -> Option<Refusal> {
        [
            Refusal::OtherCluster,
            Refusal::SameNumber,
            Refusal::Key,
            Refusal::Version,
            Refusal::Alone,
        ]
        .into_iter()
        .find(|refusal| refusal.code() == code)
    }
}

/// Whether two nodes may speak; either asks it of the other's hello.
pub(crate) fn may_speak(me: &Hello, other: &Hello) -> Result<(), Refusal> {
    if me.has_key != other.has_key {
        return Err(Refusal::Key);
    }
    if me.who.member.broker == other.who.member.broker && me.who.disk != other.who.disk {
        return Err(Refusal::SameNumber);
    }
    match (&me.cluster_id, &other.cluster_id) {
        (Some(mine), Some(theirs)) if mine != theirs => Err(Refusal::OtherCluster),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(broker: i32, disk: u64) -> Hello {
        Hello {
            who: Introduction {
                member: Member {
                    broker: BrokerId(broker),
                    address: format!("n{broker}:9092"),
                },
                disk: DiskId(disk),
                formed: false,
            },
            cluster_id: None,
            broker_epoch: -1,
            has_key: true,
        }
    }

    #[test]
    fn a_hello_survives_its_bytes_and_hostile_bytes_are_errors() {
        let one = Hello {
            cluster_id: Some("abc".to_owned()),
            ..hello(3, u64::MAX)
        };
        let bytes = one.encode();
        assert_eq!(Hello::decode(&bytes), Ok(one));
        for cut in 0..bytes.len() {
            assert!(Hello::decode(&bytes[..cut]).is_err());
        }
        assert_eq!(Hello::decode(&[0, 9]), Err(NotHello::Version(9)));
    }

    #[test]
    fn the_golden_hello_of_version_1() {
        let hex: String = hello(1, 2)
            .encode()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let reserved = "0".repeat(32);
        let golden = "000100000001086e313a39303932000000000000000200\
                      00ffffffffffffffff01";
        assert_eq!(hex, format!("{golden}{reserved}00"));
    }

    #[test]
    fn who_may_speak() {
        let me = hello(1, 1);
        assert_eq!(may_speak(&me, &hello(2, 2)), Ok(()));
        assert_eq!(may_speak(&me, &me), Ok(()));
        assert_eq!(may_speak(&me, &hello(1, 2)), Err(Refusal::SameNumber));
        let without = Hello {
            has_key: false,
            ..hello(2, 2)
        };
        assert_eq!(may_speak(&me, &without), Err(Refusal::Key));
        let of = |id: &str| Hello {
            cluster_id: Some(id.to_owned()),
            ..hello(2, 2)
        };
        assert_eq!(
            may_speak(
                &of("a"),
                &Hello {
                    who: hello(3, 3).who,
                    ..of("b")
                }
            ),
            Err(Refusal::OtherCluster)
        );
    }
}
