//! Share sessions (KIP-932): which partitions a member of a share group reads, named once, then only what changed.
//!
//! A state machine. A session belongs to a member, and ends with the connection that opened it: what the member holds is
//! then offered to others.

use std::collections::BTreeMap;

use riverlog_wire::{ErrorCode, TopicId};

/// Epoch that opens a session.
const OPEN: i32 = 0;
/// Epoch that ends it.
const CLOSE: i32 = -1;

/// A partition of a topic.
pub(crate) type Place = (TopicId, i32);

/// A member of a group.
pub(crate) type Member = (String, String);

#[derive(Debug)]
struct Session {
    /// The next one.
    epoch: i32,
    connection: u64,
    /// In the order in which they were named.
    partitions: Vec<Place>,
}

/// The share sessions of a listener.
#[derive(Debug)]
pub(crate) struct ShareSessions {
    capacity: usize,
    sessions: BTreeMap<Member, Session>,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) member: Member,
    pub(crate) epoch: i32,
    pub(crate) connection: u64,
    /// Partitions named, whether to be read or with acknowledgements alone.
    pub(crate) named: Vec<Place>,
    pub(crate) forgotten: Vec<Place>,
    /// Some records are acknowledged.
    pub(crate) acknowledges: bool,
}

/// What a request means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// To be read, or, when it closes, to be given back.
    pub(crate) partitions: Vec<Place>,
    /// All partitions are part of the answer.
    pub(crate) full: bool,
    /// The session is over.
    pub(crate) closes: bool,
    /// The epoch of the request.
    pub(crate) epoch: i32,
}

impl ShareSessions {
    pub(crate) fn new(capacity: usize) -> ShareSessions {
        ShareSessions {
            capacity,
            sessions: BTreeMap::new(),
        }
    }

    /// ShareFetch: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED; INVALID_REQUEST for
    /// acknowledgements in a session that is only being opened.
    pub(crate) fn fetch(&mut self, ask: Ask) -> Result<Plan, ErrorCode> {
        match ask.epoch {
            OPEN if ask.acknowledges => Err(ErrorCode::INVALID_REQUEST),
            OPEN => {
                let known = self.sessions.contains_key(&ask.member);
                if !known && self.sessions.len() >= self.capacity {
                    return Err(ErrorCode::SHARE_SESSION_LIMIT_REACHED);
                }
                let mut session = Session {
                    epoch: 1,
                    connection: ask.connection,
                    partitions: Vec::new(),
                };
                session.name(ask.named);
                let plan = Plan {
                    partitions: session.partitions.clone(),
                    full: true,
                    closes: false,
                    epoch: OPEN,
                };
                self.sessions.insert(ask.member, session);
                Ok(plan)
            }
            _ => self.go_on(ask, true),
        }
    }

    /// ShareAcknowledge, likewise; it can't open a session.
    pub(crate) fn acknowledge(&mut self, ask: Ask) -> Result<Plan, ErrorCode> {
        match ask.epoch {
            OPEN => Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH),
            _ => self.go_on(ask, false),
        }
    }

    fn go_on(&mut self, ask: Ask, reads: bool) -> Result<Plan, ErrorCode> {
        if ask.epoch == CLOSE {
            let session = self.sessions.remove(&ask.member);
            let session = session.ok_or(ErrorCode::SHARE_SESSION_NOT_FOUND)?;
            return Ok(Plan {
                partitions: session.partitions,
                full: false,
                closes: true,
                epoch: CLOSE,
            });
        }
        let session = self.sessions.get_mut(&ask.member);
        let session = session.ok_or(ErrorCode::SHARE_SESSION_NOT_FOUND)?;
        if session.epoch != ask.epoch {
            return Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH);
        }
        // After the largest one comes the first that doesn't open a session.
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        session.connection = ask.connection;
        if reads {
            session.name(ask.named);
            session.partitions.retain(|p| !ask.forgotten.contains(p));
        }
        Ok(Plan {
            partitions: session.partitions.clone(),
            full: false,
            closes: false,
            epoch: ask.epoch,
        })
    }

    /// A connection is gone: members with their partitions.
    pub(crate) fn disconnect(&mut self, connection: u64) -> Vec<(Member, Vec<Place>)> {
        let gone: Vec<Member> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.connection == connection)
            .map(|(member, _)| member.clone())
            .collect();
        let each = gone.into_iter();
        each.filter_map(|member| {
            let session = self.sessions.remove(&member)?;
            Some((member, session.partitions))
        })
        .collect()
    }
}

impl Session {
    fn name(&mut self, places: Vec<Place>) {
        for place in places {
            if !self.partitions.contains(&place) {
                self.partitions.push(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(member: &str, epoch: i32, named: &[i32]) -> Ask {
        let topic = TopicId([1; 16]);
        Ask {
            member: ("g".to_owned(), member.to_owned()),
            epoch,
            connection: 1,
            named: named.iter().map(|p| (topic, *p)).collect(),
            forgotten: Vec::new(),
            acknowledges: false,
        }
    }

    fn numbers(plan: Result<Plan, ErrorCode>) -> Result<Vec<i32>, ErrorCode> {
        plan.map(|plan| plan.partitions.iter().map(|(_, p)| *p).collect())
    }

    #[test]
    fn a_session_remembers_its_partitions_and_counts() {
        let mut sessions = ShareSessions::new(2);
        let missing = Err(ErrorCode::SHARE_SESSION_NOT_FOUND);
        let wrong = Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH);
        assert_eq!(numbers(sessions.fetch(ask("a", 3, &[]))), missing);
        assert_eq!(
            numbers(sessions.fetch(ask("a", 0, &[1, 0]))),
            Ok(vec![1, 0])
        );
        assert_eq!(numbers(sessions.fetch(ask("a", 2, &[]))), wrong);
        assert_eq!(
            numbers(sessions.fetch(ask("a", 1, &[2, 1]))),
            Ok(vec![1, 0, 2])
        );
        assert_eq!(numbers(sessions.acknowledge(ask("a", 0, &[]))), wrong);
        assert_eq!(
            numbers(sessions.acknowledge(ask("a", 2, &[7]))),
            Ok(vec![1, 0, 2])
        );
        let forget = Ask {
            forgotten: vec![(TopicId([1; 16]), 0)],
            ..ask("a", 3, &[])
        };
        assert_eq!(numbers(sessions.fetch(forget)), Ok(vec![1, 2]));
        let end = sessions.fetch(ask("a", -1, &[])).expect("a session");
        assert!(end.closes);
        assert_eq!(numbers(sessions.fetch(ask("a", 4, &[]))), missing);
        assert_eq!(numbers(sessions.acknowledge(ask("a", -1, &[]))), missing);
    }

    #[test]
    fn sessions_are_bounded_and_end_with_their_connection() {
        let mut sessions = ShareSessions::new(1);
        let early = Ask {
            acknowledges: true,
            ..ask("a", 0, &[0])
        };
        let invalid = Err(ErrorCode::INVALID_REQUEST);
        assert_eq!(numbers(sessions.fetch(early)), invalid);
        assert!(sessions.fetch(ask("a", 0, &[0])).is_ok());
        let full = Err(ErrorCode::SHARE_SESSION_LIMIT_REACHED);
        assert_eq!(numbers(sessions.fetch(ask("b", 0, &[0]))), full);
        // Opening it anew is no second one.
        assert!(sessions.fetch(ask("a", 0, &[0])).is_ok());
        assert_eq!(sessions.disconnect(2), []);
        let gone = sessions.disconnect(1);
        assert_eq!(
            gone,
            [(
                ("g".to_owned(), "a".to_owned()),
                vec![(TopicId([1; 16]), 0)]
            )]
        );
        assert!(sessions.fetch(ask("b", 0, &[0])).is_ok());
    }
}
