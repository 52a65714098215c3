//! The pieces that files and messages have in common, as bytes: `docs/format/quorum.md`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use riverlog_wire::BrokerId;
use riverlog_wire::primitives::{DecodeError, Reader, Writer, capacity_hint};

use crate::raft::{
    DiskId, Entry, LogId, Member, Membership, Payload, Records, StoredMembership, Term, Vote, vote,
};

pub(crate) type Out<'a> = Writer<'a, Vec<u8>>;

/// Bytes that don't say what they should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadBytes {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("{what} {value} is not known")]
    Unknown { what: &'static str, value: u64 },
    #[error("the voters aren't all members")]
    Voters,
    #[error("it has {0} bytes too many")]
    TooLong(usize),
}

type Read<T> = Result<T, BadBytes>;

pub(crate) fn put_u64(w: &mut Out<'_>, value: u64) {
    w.i64(value.cast_signed());
}

pub(crate) fn get_u64(r: &mut Reader<'_>) -> Read<u64> {
    Ok(r.i64()?.cast_unsigned())
}

/// Says that nothing may follow.
pub(crate) fn end(r: &Reader<'_>) -> Read<()> {
    match r.remaining() {
        0 => Ok(()),
        left => Err(BadBytes::TooLong(left)),
    }
}

fn unknown(what: &'static str, value: u8) -> BadBytes {
    BadBytes::Unknown {
        what,
        value: value.into(),
    }
}

pub(crate) fn put_log_id(w: &mut Out<'_>, id: Option<&LogId>) {
    w.bool(id.is_some());
    if let Some(id) = id {
        put_u64(w, id.leader_id.term);
        put_u64(w, id.index);
    }
}

pub(crate) fn get_log_id(r: &mut Reader<'_>) -> Read<Option<LogId>> {
    if !r.bool()? {
        return Ok(None);
    }
    let term = get_u64(r)?;
    let index = get_u64(r)?;
    Ok(Some(LogId::new(Term::new(term), index)))
}

pub(crate) fn put_vote(w: &mut Out<'_>, vote: &Vote) {
    put_u64(w, vote.leader_id.term);
    put_u64(w, vote.leader_id.voted_for.0);
    w.bool(vote.committed);
}

pub(crate) fn get_vote(r: &mut Reader<'_>) -> Read<Vote> {
    let term = get_u64(r)?;
    let node = DiskId(get_u64(r)?);
    Ok(vote(term, node, r.bool()?))
}

pub(crate) fn put_member(w: &mut Out<'_>, member: &Member) {
    w.i32(member.broker.0);
    w.compact_string(&member.address);
}

pub(crate) fn get_member(r: &mut Reader<'_>) -> Read<Member> {
    Ok(Member {
        broker: BrokerId(r.i32()?),
        address: r.compact_string()?.to_owned(),
    })
}

pub(crate) fn put_membership(w: &mut Out<'_>, membership: &Membership) {
    let nodes: Vec<_> = membership.nodes().collect();
    w.compact_array_len(nodes.len());
    for (id, member) in nodes {
        put_u64(w, id.0);
        put_member(w, member);
    }
    let configs = membership.get_joint_config();
    w.compact_array_len(configs.len());
    for voters in configs {
        w.compact_array_len(voters.len());
        for id in voters {
            put_u64(w, id.0);
        }
    }
}

pub(crate) fn get_membership(r: &mut Reader<'_>) -> Read<Membership> {
    let mut nodes = BTreeMap::new();
    for _ in 0..r.compact_array_len(13)? {
        let id = DiskId(get_u64(r)?);
        nodes.insert(id, get_member(r)?);
    }
    let len = r.compact_array_len(1)?;
    let mut configs = Vec::with_capacity(capacity_hint(len));
    for _ in 0..len {
        let mut voters = BTreeSet::new();
        for _ in 0..r.compact_array_len(8)? {
            voters.insert(DiskId(get_u64(r)?));
        }
        configs.push(voters);
    }
    Membership::new(configs, nodes).map_err(|_| BadBytes::Voters)
}

pub(crate) fn put_stored_membership(w: &mut Out<'_>, membership: &StoredMembership) {
    put_log_id(w, membership.log_id().as_ref());
    put_membership(w, membership.membership());
}

pub(crate) fn get_stored_membership(r: &mut Reader<'_>) -> Read<StoredMembership> {
    let at = get_log_id(r)?;
    // The first start has no members, which isn't a membership that may be proposed.
    let mut nobody = r.clone();
    if at.is_none() && nobody.compact_array_len(13)? == 0 && nobody.compact_array_len(1)? == 0 {
        *r = nobody;
        return Ok(StoredMembership::default());
    }
    Ok(StoredMembership::new(at, get_membership(r)?))
}

pub(crate) fn put_records(w: &mut Out<'_>, records: &[Bytes]) {
    w.compact_array_len(records.len());
    for record in records {
        w.compact_bytes(record);
    }
}

pub(crate) fn get_records(r: &mut Reader<'_>) -> Read<Vec<Bytes>> {
    let len = r.compact_array_len(1)?;
    Ok(r.elements(len, |r| r.compact_shared_bytes())?)
}

/// Bytes of an entry's position and of what it is.
const ENTRY: usize = 17;
/// The most that the length of a record takes.
const LENGTH: usize = 5;

mod payload {
    pub(super) const BLANK: u8 = 0;
    pub(super) const RECORDS: u8 = 1;
    pub(super) const MEMBERSHIP: u8 = 2;
}

/// About how many bytes [`put_entry`] takes for it: exact in what can be large.
pub(crate) fn entry_size(entry: &Entry) -> usize {
    let payload = match &entry.payload {
        Payload::Normal(Records(records)) => {
            records.iter().map(|record| record.len() + LENGTH).sum()
        }
        Payload::Blank | Payload::Membership(_) => 0,
    };
    ENTRY + payload
}

pub(crate) fn put_entry(w: &mut Out<'_>, entry: &Entry) {
    put_u64(w, entry.log_id.leader_id.term);
    put_u64(w, entry.log_id.index);
    match &entry.payload {
        Payload::Blank => w.u8(payload::BLANK),
        Payload::Normal(Records(records)) => {
            w.u8(payload::RECORDS);
            put_records(w, records);
        }
        Payload::Membership(membership) => {
            w.u8(payload::MEMBERSHIP);
            put_membership(w, membership);
        }
    }
}

pub(crate) fn get_entry(r: &mut Reader<'_>) -> Read<Entry> {
    let term = get_u64(r)?;
    let index = get_u64(r)?;
    let payload = match r.u8()? {
        payload::BLANK => Payload::Blank,
        payload::RECORDS => Payload::Normal(Records(get_records(r)?)),
        payload::MEMBERSHIP => Payload::Membership(get_membership(r)?),
        value => return Err(unknown("payload", value)),
    };
    Ok(Entry {
        log_id: LogId::new(Term::new(term), index),
        payload,
    })
}

pub(crate) fn put_entries(w: &mut Out<'_>, entries: &[Entry]) {
    w.compact_array_len(entries.len());
    for entry in entries {
        put_entry(w, entry);
    }
}

pub(crate) fn get_entries(r: &mut Reader<'_>) -> Read<Vec<Entry>> {
    let len = r.compact_array_len(ENTRY)?;
    let mut entries = Vec::with_capacity(capacity_hint(len));
    for _ in 0..len {
        entries.push(get_entry(r)?);
    }
    Ok(entries)
}
