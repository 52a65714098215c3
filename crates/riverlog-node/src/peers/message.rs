//! Peer messages as bytes: `docs/protocol/peer.md`.

use std::time::Duration;

use bytes::Bytes;
use riverlog_core::metadata::{AdminAnswer, AdminCommand, AdminResult, Roundabout};
use riverlog_core::replica::FollowerAnswer;
use riverlog_core::transactions::{TransactionAnswer, TransactionCommand};
use riverlog_log::{LogKey, Marker};
use riverlog_wire::primitives::{DecodeError, Reader, Writer};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex};

use crate::groups::least::{Least, LeastAsk};
use crate::replication::{PeerAsk, PeerPart, Stamp};
use crate::share::{ShareQuestion, ShareSaid};

mod command;
mod least;
mod share;
#[cfg(test)]
mod tests;
mod transaction;

/// The only version so far. Fields that another release may do without are tagged.
const VERSION: u32 = 1;

mod kind {
    pub(super) const FORWARD: u32 = 1;
    pub(super) const FORWARDED: u32 = 2;
    pub(super) const ASK: u32 = 3;
    pub(super) const RECORDS: u32 = 4;
    pub(super) const REPORT: u32 = 5;
    pub(super) const TRANSACTION: u32 = 6;
    pub(super) const MARKER: u32 = 7;
    pub(super) const TOLD: u32 = 8;
    pub(super) const SHARE_ASK: u32 = 9;
    pub(super) const SHARE_SAID: u32 = 10;
    pub(super) const PASS_ON: u32 = 11;
    pub(super) const PASSED_ON: u32 = 12;
    pub(super) const LEAST_ASK: u32 = 13;
    pub(super) const LEAST: u32 = 14;
    pub(super) const ROOM: u32 = 15;
}

mod answer {
    pub(super) const FAILED: u32 = 0;
    pub(super) const RESULTS: u32 = 1;
    pub(super) const REGISTERED: u32 = 2;
    pub(super) const PRODUCER_IDS: u32 = 3;
    pub(super) const HEARTBEAT: u32 = 4;
}

/// The tag of a heartbeat of a node whose disk is ailing.
const AILING: u32 = 0;
/// The tag of an answer's position.
const POSITION: u32 = 0;
/// The tag of an answer to a heartbeat: for how long no majority has answered the controller, in nanoseconds.
const SILENT: u32 = 1;
/// The tag of the log starts of what is asked, in its order.
const STARTS: u32 = 0;
/// The tag of an ask of copies that catch up: how much they take at once.
const CATCHES_UP: u32 = 1;
/// The tag of the stamp of an answer with records, and of what a follower says after it.
const STAMP: u32 = 2;

mod outcome {
    pub(super) const FAILED: u8 = 0;
    pub(super) const MATCHES: u8 = 1;
    pub(super) const DIVERGING: u8 = 2;
    pub(super) const OUT_OF_RANGE: u8 = 3;
}

/// What one node says to another.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A command for the controller.
    Forward { number: i64, command: AdminCommand },
    /// Its answer.
    Forwarded {
        number: i64,
        answer: Result<AdminAnswer, ErrorCode>,
        /// How much of the metadata the controller has applied; what was changed is in that.
        position: Offset,
    },
    /// A follower asks its leader for what is new, in all that it follows there.
    Ask {
        number: i64,
        broker_epoch: i64,
        asks: Vec<PeerAsk>,
        /// In the conversation of copies that catch up: the most bytes that they take at once.
        catches_up: Option<usize>,
        /// Of the latest answer of this leader.
        stamp: Option<Stamp>,
    },
    /// The leader's answer, for those partitions that have one.
    Records {
        number: i64,
        parts: Vec<PeerPart>,
        stamp: Option<Stamp>,
    },
    /// A follower says how far it is, and asks for nothing.
    Report {
        broker_epoch: i64,
        asks: Vec<PeerAsk>,
        stamp: Option<Stamp>,
    },
    /// A partition's leader asks the coordinator of a transactional id: Add or Verify.
    Transaction {
        number: i64,
        command: TransactionCommand,
    },
    /// The coordinator has the end of a transaction written into a partition.
    Marker {
        number: i64,
        topic: String,
        partition: i32,
        marker: Marker,
    },
    /// The answer to both.
    Told {
        number: i64,
        answer: TransactionAnswer,
    },
    /// Something of share groups, for the leader of a partition in that epoch.
    ShareAsk {
        number: i64,
        broker_epoch: i64,
        epoch: LeaderEpoch,
        question: ShareQuestion,
    },
    /// Its answer.
    ShareSaid {
        number: i64,
        answer: Result<ShareSaid, ErrorCode>,
    },
    /// The leader of a bounded partition asks who coordinates groups what all have committed there.
    LeastAsk { number: i64, ask: LeastAsk },
    /// The answer.
    Least { number: i64, answer: Least },
    /// A coordinator that was asked that may have another answer now.
    Room { key: LogKey },
    /// To be passed on to another node.
    PassOn { to: BrokerId, message: Bytes },
    /// What another node has sent to be passed on.
    PassedOn { from: BrokerId, message: Bytes },
}

/// Bytes that aren't a message of a version that is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("it is of version {0}")]
    Version(u32),
    #[error("{what} {value} is not known")]
    Unknown { what: &'static str, value: u32 },
    #[error("it has {0} bytes too many")]
    TooLong(usize),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

type Out<'a> = Writer<'a, Vec<u8>>;

impl Message {
    /// Whether a command can be sent to the controller. What it tells itself can't.
    pub(crate) fn can_forward(command: &AdminCommand) -> bool {
        !matches!(command, AdminCommand::Fence { .. })
    }

    /// What a message is if it may go by way of another node: it does no harm when it comes twice, late or out of order, and is about what
    /// both nodes know by epochs. Reads only its beginning: the rest is for the one that is meant, and need not be a message of this kind.
    pub(crate) fn may_go_round(bytes: &Bytes) -> Option<Roundabout> {
        let mut r = Reader::shared(bytes);
        if r.unsigned_varint().ok()? != VERSION {
            return None;
        }
        match r.unsigned_varint().ok()? {
            kind::TRANSACTION | kind::MARKER | kind::LEAST_ASK => Some(Roundabout::Question),
            kind::SHARE_ASK => {
                let (_number, _broker_epoch) = (r.i64().ok()?, r.i64().ok()?);
                let _leader_epoch = r.i32().ok()?;
                share::may_come_twice(r.u8().ok()?).then_some(Roundabout::Question)
            }
            kind::TOLD | kind::SHARE_SAID | kind::LEAST => Some(Roundabout::Answer),
            // What goes round already doesn't do so again.
            _ => None,
        }
    }

    /// `None` for what can't be said: a command that isn't forwarded, or a string that is too long.
    pub(crate) fn encode(&self) -> Option<Bytes> {
        let mut out = Vec::with_capacity(64);
        let mut w = Writer::new(&mut out);
        w.unsigned_varint(VERSION);
        match self {
            Message::Forward { number, command } => {
                w.unsigned_varint(kind::FORWARD);
                w.i64(*number);
                command::write(&mut w, command)?;
            }
            Message::Forwarded { number, answer, .. } => {
                w.unsigned_varint(kind::FORWARDED);
                w.i64(*number);
                write_answer(&mut w, answer);
            }
            Message::Ask {
                number,
                broker_epoch,
                asks,
                ..
            } => {
                w.unsigned_varint(kind::ASK);
                w.i64(*number);
                w.i64(*broker_epoch);
                write_asks(&mut w, asks);
            }
            Message::Records { number, parts, .. } => {
                w.unsigned_varint(kind::RECORDS);
                w.i64(*number);
                w.compact_array_len(parts.len());
                for part in parts {
                    write_part(&mut w, part);
                }
            }
            Message::Report {
                broker_epoch, asks, ..
            } => {
                w.unsigned_varint(kind::REPORT);
                w.i64(*broker_epoch);
                write_asks(&mut w, asks);
            }
            Message::Transaction { number, command } => {
                w.unsigned_varint(kind::TRANSACTION);
                w.i64(*number);
                transaction::write_command(&mut w, command)?;
            }
            Message::Marker {
                number,
                topic,
                partition,
                marker,
            } => {
                w.unsigned_varint(kind::MARKER);
                w.i64(*number);
                w.compact_string(topic);
                w.i32(*partition);
                transaction::write_marker(&mut w, marker);
            }
            Message::Told { number, answer } => {
                w.unsigned_varint(kind::TOLD);
                w.i64(*number);
                transaction::write_answer(&mut w, answer)?;
            }
            Message::ShareAsk {
                number,
                broker_epoch,
                epoch,
                question,
            } => {
                w.unsigned_varint(kind::SHARE_ASK);
                w.i64(*number);
                w.i64(*broker_epoch);
                w.i32(epoch.0);
                share::write_question(&mut w, question);
            }
            Message::ShareSaid { number, answer } => {
                w.unsigned_varint(kind::SHARE_SAID);
                w.i64(*number);
                share::write_answer(&mut w, answer);
            }
            Message::LeastAsk { number, ask } => {
                w.unsigned_varint(kind::LEAST_ASK);
                w.i64(*number);
                least::write_ask(&mut w, ask);
            }
            Message::Least { number, answer } => {
                w.unsigned_varint(kind::LEAST);
                w.i64(*number);
                least::write_answer(&mut w, *answer);
            }
            Message::Room { key } => {
                w.unsigned_varint(kind::ROOM);
                write_key(&mut w, *key);
            }
            Message::PassOn { to, message } => {
                w.unsigned_varint(kind::PASS_ON);
                w.i32(to.0);
                w.compact_bytes(message);
            }
            Message::PassedOn { from, message } => {
                w.unsigned_varint(kind::PASSED_ON);
                w.i32(from.0);
                w.compact_bytes(message);
            }
        }
        match self {
            Message::Forward {
                command: AdminCommand::Heartbeat { ailing: true, .. },
                ..
            } => {
                w.tagged_fields_len(1);
                w.tagged_field(AILING, |w| w.bool(true));
            }
            Message::Forwarded {
                position, answer, ..
            } => {
                let silent = match answer {
                    Ok(AdminAnswer::Heartbeat { silent, .. }) => Some(*silent),
                    _ => None,
                };
                w.tagged_fields_len(1 + usize::from(silent.is_some()));
                w.tagged_field(POSITION, |w| w.i64(position.0));
                if let Some(silent) = silent {
                    w.tagged_field(SILENT, |w| w.i64(nanos(silent)));
                }
            }
            Message::Ask { asks, stamp, .. } | Message::Report { asks, stamp, .. } => {
                let most = match self {
                    Message::Ask { catches_up, .. } => *catches_up,
                    _ => None,
                };
                let further = usize::from(most.is_some()) + usize::from(stamp.is_some());
                w.tagged_fields_len(1 + further);
                w.tagged_field(STARTS, |w| {
                    w.compact_array_len(asks.len());
                    for ask in asks {
                        w.i64(ask.log_start.0);
                    }
                });
                if let Some(most) = most {
                    let most = u32::try_from(most).unwrap_or(u32::MAX);
                    w.tagged_field(CATCHES_UP, |w| w.u32(most));
                }
                if let Some(stamp) = stamp {
                    write_stamp(&mut w, *stamp);
                }
            }
            Message::Records {
                stamp: Some(stamp), ..
            } => {
                w.tagged_fields_len(1);
                write_stamp(&mut w, *stamp);
            }
            _ => w.empty_tagged_fields(),
        }
        w.finish().ok()?;
        Some(out.into())
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Message, MessageError> {
        let mut r = Reader::shared(bytes);
        let version = r.unsigned_varint()?;
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        let mut message = match r.unsigned_varint()? {
            kind::FORWARD => Message::Forward {
                number: r.i64()?,
                command: command::read(&mut r)?,
            },
            kind::FORWARDED => Message::Forwarded {
                number: r.i64()?,
                answer: read_answer(&mut r)?,
                position: Offset::ZERO,
            },
            kind::ASK => Message::Ask {
                number: r.i64()?,
                broker_epoch: r.i64()?,
                asks: read_asks(&mut r)?,
                catches_up: None,
                stamp: None,
            },
            kind::RECORDS => Message::Records {
                number: r.i64()?,
                parts: {
                    let len = r.compact_array_len(22)?;
                    let mut parts = Vec::new();
                    for _ in 0..len {
                        parts.push(read_part(&mut r)?);
                    }
                    parts
                },
                stamp: None,
            },
            kind::REPORT => Message::Report {
                broker_epoch: r.i64()?,
                asks: read_asks(&mut r)?,
                stamp: None,
            },
            kind::TRANSACTION => Message::Transaction {
                number: r.i64()?,
                command: transaction::read_command(&mut r)?,
            },
            kind::MARKER => Message::Marker {
                number: r.i64()?,
                topic: r.compact_string()?.to_owned(),
                partition: r.i32()?,
                marker: transaction::read_marker(&mut r)?,
            },
            kind::TOLD => Message::Told {
                number: r.i64()?,
                answer: transaction::read_answer(&mut r)?,
            },
            kind::SHARE_ASK => Message::ShareAsk {
                number: r.i64()?,
                broker_epoch: r.i64()?,
                epoch: LeaderEpoch(r.i32()?),
                question: share::read_question(&mut r)?,
            },
            kind::SHARE_SAID => Message::ShareSaid {
                number: r.i64()?,
                answer: share::read_answer(&mut r)?,
            },
            kind::LEAST_ASK => Message::LeastAsk {
                number: r.i64()?,
                ask: least::read_ask(&mut r)?,
            },
            kind::LEAST => Message::Least {
                number: r.i64()?,
                answer: least::read_answer(&mut r)?,
            },
            kind::ROOM => Message::Room {
                key: read_key(&mut r)?,
            },
            kind::PASS_ON => Message::PassOn {
                to: BrokerId(r.i32()?),
                message: r.compact_shared_bytes()?,
            },
            kind::PASSED_ON => Message::PassedOn {
                from: BrokerId(r.i32()?),
                message: r.compact_shared_bytes()?,
            },
            value => return Err(unknown("kind", value)),
        };
        r.tagged_fields(|tag, r| {
            match (&mut message, tag) {
                (
                    Message::Forward {
                        command: AdminCommand::Heartbeat { ailing, .. },
                        ..
                    },
                    AILING,
                ) => *ailing = r.bool()?,
                (Message::Forwarded { position, .. }, POSITION) => *position = Offset(r.i64()?),
                (
                    Message::Forwarded {
                        answer: Ok(AdminAnswer::Heartbeat { silent, .. }),
                        ..
                    },
                    SILENT,
                ) => *silent = read_nanos(r)?,
                (Message::Ask { asks, .. } | Message::Report { asks, .. }, STARTS) => {
                    let len = r.compact_array_len(8)?;
                    let starts = r.elements(len, Reader::i64)?;
                    for (ask, start) in asks.iter_mut().zip(starts) {
                        ask.log_start = Offset(start);
                    }
                }
                (Message::Ask { catches_up, .. }, CATCHES_UP) => {
                    *catches_up = Some(usize::try_from(r.u32()?).unwrap_or(usize::MAX));
                }
                (
                    Message::Ask { stamp, .. }
                    | Message::Report { stamp, .. }
                    | Message::Records { stamp, .. },
                    STAMP,
                ) => *stamp = Some(read_stamp(r)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        match r.remaining() {
            0 => Ok(message),
            left => Err(MessageError::TooLong(left)),
        }
    }
}

fn unknown(what: &'static str, value: u32) -> MessageError {
    MessageError::Unknown { what, value }
}

fn write_stamp(w: &mut Out<'_>, stamp: Stamp) {
    w.tagged_field(STAMP, |w| {
        w.i64(stamp.broker_epoch);
        w.i64(nanos(stamp.at));
    });
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn read_nanos(r: &mut Reader<'_>) -> Result<Duration, DecodeError> {
    Ok(Duration::from_nanos(u64::try_from(r.i64()?).unwrap_or(0)))
}

fn read_stamp(r: &mut Reader<'_>) -> Result<Stamp, DecodeError> {
    Ok(Stamp {
        broker_epoch: r.i64()?,
        at: read_nanos(r)?,
    })
}

fn write_key(w: &mut Out<'_>, key: LogKey) {
    w.uuid(key.topic);
    w.i32(key.partition.0);
}

fn read_key(r: &mut Reader<'_>) -> Result<LogKey, DecodeError> {
    Ok(LogKey {
        topic: r.uuid()?,
        partition: PartitionIndex(r.i32()?),
    })
}

fn write_asks(w: &mut Out<'_>, asks: &[PeerAsk]) {
    w.compact_array_len(asks.len());
    for ask in asks {
        write_key(w, ask.key);
        w.i32(ask.epoch.0);
        w.i64(ask.from.0);
        w.i32(ask.last_epoch.0);
        w.i64(ask.written.0);
        w.i64(ask.synced.0);
    }
}

fn read_asks(r: &mut Reader<'_>) -> Result<Vec<PeerAsk>, DecodeError> {
    let len = r.compact_array_len(52)?;
    r.elements(len, |r| {
        Ok(PeerAsk {
            key: read_key(r)?,
            epoch: LeaderEpoch(r.i32()?),
            from: Offset(r.i64()?),
            last_epoch: LeaderEpoch(r.i32()?),
            written: Offset(r.i64()?),
            synced: Offset(r.i64()?),
            log_start: Offset(-1),
        })
    })
}

fn write_part(w: &mut Out<'_>, part: &PeerPart) {
    write_key(w, part.key);
    match &part.answer {
        Err(error) => {
            w.u8(outcome::FAILED);
            w.i16(error.0);
        }
        Ok(FollowerAnswer::Matches {
            high_watermark,
            log_start,
        }) => {
            w.u8(outcome::MATCHES);
            w.i64(high_watermark.0);
            w.i64(log_start.0);
            w.compact_bytes(&part.records);
        }
        Ok(FollowerAnswer::Diverging { epoch, end }) => {
            w.u8(outcome::DIVERGING);
            w.i32(epoch.0);
            w.i64(end.0);
        }
        Ok(FollowerAnswer::OutOfRange { log_start, log_end }) => {
            w.u8(outcome::OUT_OF_RANGE);
            w.i64(log_start.0);
            w.i64(log_end.0);
        }
    }
}

fn read_part(r: &mut Reader<'_>) -> Result<PeerPart, MessageError> {
    let key = read_key(r)?;
    let mut records = Bytes::new();
    let answer = match r.u8()? {
        outcome::FAILED => Err(ErrorCode(r.i16()?)),
        outcome::MATCHES => {
            let matches = FollowerAnswer::Matches {
                high_watermark: Offset(r.i64()?),
                log_start: Offset(r.i64()?),
            };
            records = r.compact_shared_bytes()?;
            Ok(matches)
        }
        outcome::DIVERGING => Ok(FollowerAnswer::Diverging {
            epoch: LeaderEpoch(r.i32()?),
            end: Offset(r.i64()?),
        }),
        outcome::OUT_OF_RANGE => Ok(FollowerAnswer::OutOfRange {
            log_start: Offset(r.i64()?),
            log_end: Offset(r.i64()?),
        }),
        value => return Err(unknown("outcome", u32::from(value))),
    };
    Ok(PeerPart {
        key,
        answer,
        records,
    })
}

fn write_answer(w: &mut Out<'_>, answer: &Result<AdminAnswer, ErrorCode>) {
    match answer {
        Err(error) => {
            w.unsigned_varint(answer::FAILED);
            w.i16(error.0);
        }
        Ok(AdminAnswer::Results(results)) => {
            w.unsigned_varint(answer::RESULTS);
            w.compact_array_len(results.len());
            for result in results {
                w.i16(result.error.0);
                w.compact_nullable_string(result.message.as_deref());
            }
        }
        Ok(AdminAnswer::Registered { epoch }) => {
            w.unsigned_varint(answer::REGISTERED);
            w.i64(*epoch);
        }
        Ok(AdminAnswer::Heartbeat {
            fenced,
            may_stop,
            position,
            ..
        }) => {
            w.unsigned_varint(answer::HEARTBEAT);
            w.bool(*fenced);
            w.bool(*may_stop);
            w.i64(position.0);
        }
        Ok(AdminAnswer::ProducerIds { first, count }) => {
            w.unsigned_varint(answer::PRODUCER_IDS);
            w.i64(*first);
            w.i64(*count);
        }
        Ok(_) => {
            w.unsigned_varint(answer::FAILED);
            w.i16(ErrorCode::UNKNOWN_SERVER_ERROR.0);
        }
    }
}

fn read_answer(r: &mut Reader<'_>) -> Result<Result<AdminAnswer, ErrorCode>, MessageError> {
    Ok(match r.unsigned_varint()? {
        answer::FAILED => Err(ErrorCode(r.i16()?)),
        answer::RESULTS => {
            let len = r.compact_array_len(3)?;
            Ok(AdminAnswer::Results(r.elements(len, |r| {
                Ok(AdminResult {
                    error: ErrorCode(r.i16()?),
                    message: r.compact_nullable_string()?.map(str::to_owned),
                    // It is in the image by the time that anybody asks for it.
                    topic: None,
                })
            })?))
        }
        answer::REGISTERED => Ok(AdminAnswer::Registered { epoch: r.i64()? }),
        answer::PRODUCER_IDS => Ok(AdminAnswer::ProducerIds {
            first: r.i64()?,
            count: r.i64()?,
        }),
        answer::HEARTBEAT => Ok(AdminAnswer::Heartbeat {
            fenced: r.bool()?,
            may_stop: r.bool()?,
            position: Offset(r.i64()?),
            silent: Duration::ZERO,
        }),
        value => return Err(unknown("answer", value)),
    })
}
