//! What quorums say to each other, as bytes: `docs/protocol/quorum.md`.

use bytes::Bytes;
use riverlog_wire::primitives::{Reader, Writer};

use crate::encode::{
    BadBytes, Out, end, get_entries, get_log_id, get_member, get_u64, get_vote, put_entries,
    put_log_id, put_member, put_u64, put_vote,
};
use crate::raft::{
    AppendRequest, AppendResponse, DiskId, LogId, Member, Vote, VoteRequest, VoteResponse,
};

#[cfg(test)]
mod tests;

/// The only version so far.
const VERSION: u32 = 1;

/// A question or an answer. Both carry the disks that they are from and for: what is meant for a node's former disk isn't meant
/// for it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) from: DiskId,
    pub(crate) to: DiskId,
    /// Chosen by whoever asks, and given back.
    pub(crate) number: u64,
    pub(crate) body: Body,
}

/// A part of a snapshot's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) vote: Vote,
    /// Which snapshot.
    pub(crate) last: Option<LogId>,
    pub(crate) at: u64,
    pub(crate) bytes: Bytes,
    pub(crate) is_end: bool,
}

/// What becomes of a question for the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// The leader's address, if one is known.
    NotLeader(Option<String>),
    Refused,
    NumberTaken,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Vote(VoteRequest),
    PreVote(VoteRequest),
    Append(AppendRequest),
    Snapshot(Chunk),
    /// A disk that wants to be a member; asked of whoever leads.
    Join(Member),
    Voted(VoteResponse),
    Appended(AppendResponse),
    Took(Vote),
    Joined(Verdict),
}

mod kind {
    pub(super) const VOTE: u8 = 1;
    pub(super) const PRE_VOTE: u8 = 2;
    pub(super) const APPEND: u8 = 3;
    pub(super) const SNAPSHOT: u8 = 4;
    pub(super) const JOIN: u8 = 5;
    pub(super) const VOTED: u8 = 65;
    pub(super) const APPENDED: u8 = 66;
    pub(super) const TOOK: u8 = 67;
    pub(super) const JOINED: u8 = 68;
}

impl Body {
    pub(crate) fn is_answer(&self) -> bool {
        matches!(
            self,
            Body::Voted(_) | Body::Appended(_) | Body::Took(_) | Body::Joined(_)
        )
    }
}

impl Message {
    /// `None` when something in it is longer than it may be.
    pub(crate) fn encode(&self) -> Option<Bytes> {
        let mut out = Vec::with_capacity(96);
        let mut w = Writer::new(&mut out);
        w.unsigned_varint(VERSION);
        put_u64(&mut w, self.from.0);
        put_u64(&mut w, self.to.0);
        put_u64(&mut w, self.number);
        put_body(&mut w, &self.body);
        w.empty_tagged_fields();
        w.finish().ok()?;
        Some(out.into())
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Message, BadBytes> {
        let mut r = Reader::shared(bytes);
        let version = r.unsigned_varint()?;
        if version != VERSION {
            return Err(BadBytes::Unknown {
                what: "version",
                value: version.into(),
            });
        }
        let message = Message {
            from: DiskId(get_u64(&mut r)?),
            to: DiskId(get_u64(&mut r)?),
            number: get_u64(&mut r)?,
            body: get_body(&mut r)?,
        };
        r.skip_tagged_fields()?;
        end(&r)?;
        Ok(message)
    }
}

fn put_body(w: &mut Out<'_>, body: &Body) {
    match body {
        Body::Vote(request) | Body::PreVote(request) => {
            w.u8(match body {
                Body::Vote(_) => kind::VOTE,
                _ => kind::PRE_VOTE,
            });
            put_vote(w, &request.vote);
            put_log_id(w, request.last_log_id.as_ref());
            w.bool(request.leadership_transfer);
        }
        Body::Append(request) => {
            w.u8(kind::APPEND);
            put_vote(w, &request.vote);
            put_log_id(w, request.prev_log_id.as_ref());
            put_log_id(w, request.leader_commit.as_ref());
            put_entries(w, &request.entries);
        }
        Body::Snapshot(chunk) => {
            w.u8(kind::SNAPSHOT);
            put_vote(w, &chunk.vote);
            put_log_id(w, chunk.last.as_ref());
            put_u64(w, chunk.at);
            w.bool(chunk.is_end);
            w.compact_bytes(&chunk.bytes);
        }
        Body::Join(member) => {
            w.u8(kind::JOIN);
            put_member(w, member);
        }
        Body::Voted(response) => {
            w.u8(kind::VOTED);
            put_vote(w, &response.vote);
            w.bool(response.vote_granted);
            put_log_id(w, response.last_log_id.as_ref());
        }
        Body::Appended(response) => {
            w.u8(kind::APPENDED);
            match response {
                AppendResponse::Success => w.u8(0),
                AppendResponse::PartialSuccess(upto) => {
                    w.u8(1);
                    put_log_id(w, upto.as_ref());
                }
                AppendResponse::Conflict => w.u8(2),
                AppendResponse::HigherVote(vote) => {
                    w.u8(3);
                    put_vote(w, vote);
                }
            }
        }
        Body::Took(vote) => {
            w.u8(kind::TOOK);
            put_vote(w, vote);
        }
        Body::Joined(verdict) => {
            w.u8(kind::JOINED);
            w.u8(match verdict {
                Verdict::Done => 0,
                Verdict::NotLeader(_) => 1,
                Verdict::Refused => 2,
                Verdict::NumberTaken => 3,
            });
            if let Verdict::NotLeader(leader) = verdict {
                w.compact_nullable_string(leader.as_deref());
            }
        }
    }
}

fn get_body(r: &mut Reader<'_>) -> Result<Body, BadBytes> {
    let which = r.u8()?;
    Ok(match which {
        kind::VOTE | kind::PRE_VOTE => {
            let request = VoteRequest {
                vote: get_vote(r)?,
                last_log_id: get_log_id(r)?,
                leadership_transfer: r.bool()?,
            };
            match which {
                kind::VOTE => Body::Vote(request),
                _ => Body::PreVote(request),
            }
        }
        kind::APPEND => Body::Append(AppendRequest {
            vote: get_vote(r)?,
            prev_log_id: get_log_id(r)?,
            leader_commit: get_log_id(r)?,
            entries: get_entries(r)?,
        }),
        kind::SNAPSHOT => Body::Snapshot(Chunk {
            vote: get_vote(r)?,
            last: get_log_id(r)?,
            at: get_u64(r)?,
            is_end: r.bool()?,
            bytes: r.compact_shared_bytes()?,
        }),
        kind::JOIN => Body::Join(get_member(r)?),
        kind::VOTED => Body::Voted(VoteResponse {
            vote: get_vote(r)?,
            vote_granted: r.bool()?,
            last_log_id: get_log_id(r)?,
        }),
        kind::APPENDED => Body::Appended(match r.u8()? {
            0 => AppendResponse::Success,
            1 => AppendResponse::PartialSuccess(get_log_id(r)?),
            2 => AppendResponse::Conflict,
            3 => AppendResponse::HigherVote(get_vote(r)?),
            value => return Err(unknown("answer", value)),
        }),
        kind::TOOK => Body::Took(get_vote(r)?),
        kind::JOINED => Body::Joined(match r.u8()? {
            0 => Verdict::Done,
            1 => Verdict::NotLeader(r.compact_nullable_string()?.map(str::to_owned)),
            2 => Verdict::Refused,
            3 => Verdict::NumberTaken,
            value => return Err(unknown("verdict", value)),
        }),
        value => return Err(unknown("kind", value)),
    })
}

fn unknown(what: &'static str, value: u8) -> BadBytes {
    BadBytes::Unknown {
        what,
        value: value.into(),
    }
}
