//! Fetch sessions (KIP-227): a client that reads many partitions names them once, then only what changed.
//!
//! A state machine: requests and answers in, partitions to read and partitions to show out. Sessions belong to the listener,
//! not to a connection; their number and what they hold is bounded, and one that has been idle may be taken for a new client. A client whose
//! session is gone is told so, and opens another; one for which there is no room names everything each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverlog_wire::{ErrorCode, TopicId};

/// A session that was used within this time isn't taken away (Kafka's `min.incremental.fetch.session.eviction.ms`).
const KEEP: Duration = Duration::from_secs(120);

/// Bytes that all sessions hold together, at most.
const HELD: usize = 256 << 20;

/// About what a session holds for a partition beside its topic's name.
const IN_SESSION: usize = 200;

/// A partition as the client names it: by id from Fetch v13 on, by name before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) name: Arc<str>,
    pub(crate) id: TopicId,
    pub(crate) partition: i32,
}

impl Place {
    /// About how many bytes a session holds for it.
    fn size(&self) -> usize {
        IN_SESSION + self.name.len()
    }
}

/// What the client wants of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) from: i64,
    pub(crate) max_bytes: i32,
    pub(crate) current_leader_epoch: i32,
    pub(crate) last_fetched_epoch: i32,
}

/// What the client was last told of a partition; a change of it is worth an answer without records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) high_watermark: i64,
    pub(crate) log_start_offset: i64,
}

/// What was read from a partition of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) error: ErrorCode,
    pub(crate) shown: Shown,
    pub(crate) has_records: bool,
    /// Set by [`FetchSessions::answer`]: whether the client is told.
    pub(crate) show: bool,
}

#[derive(Clone, Debug)]
struct Member {
    wish: Wish,
    /// `None`: must be part of the next answer.
    shown: Option<Shown>,
    /// Its topic was there at some time during the session.
    known: bool,
}

impl Member {
    fn new(wish: Wish) -> Member {
        Member {
            wish,
            shown: None,
            known: false,
        }
    }
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    by_id: bool,
    used: Duration,
    partitions: BTreeMap<Place, Member>,
    /// The order in which partitions are read; those that gave records go to the end, so that none starves.
    order: Vec<Place>,
    /// [`Place::size`] of all of them.
    size: usize,
}

/// The sessions of a listener.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    capacity: usize,
    sessions: BTreeMap<i32, Session>,
    /// [`Session::size`] of all of them.
    held: usize,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) session_id: i32,
    pub(crate) session_epoch: i32,
    /// Whether topics are named by id (v13 and later).
    pub(crate) by_id: bool,
    pub(crate) wishes: Vec<(Place, Wish)>,
    pub(crate) forgotten: Vec<Place>,
}

/// What to read, and how to answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// To go into the answer; 0 for none.
    pub(crate) session_id: i32,
    /// Leave out what hasn't changed.
    incremental: bool,
    /// In order.
    pub(crate) partitions: Vec<(Place, Wish)>,
}

impl FetchSessions {
    pub(crate) fn new(capacity: usize) -> FetchSessions {
        FetchSessions {
            capacity,
            sessions: BTreeMap::new(),
            held: 0,
        }
    }

    fn end(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.held -= session.size;
        }
    }

    /// Takes a request. `random` becomes the id of a new session.
    pub(crate) fn ask(&mut self, ask: Ask, random: u128, now: Duration) -> Result<Plan, ErrorCode> {
        match ask.session_epoch {
            // A full fetch: a new session (0), or none (−1); either ends the one that is named.
            0 | -1 => {
                if ask.session_id != 0 {
                    self.end(ask.session_id);
                }
                let session_id = if ask.session_epoch == 0 {
                    self.open(&ask, random, now)
                } else {
                    0
                };
                Ok(Plan {
                    session_id,
                    incremental: false,
                    partitions: ask.wishes,
                })
            }
            epoch => self.go_on(ask, epoch, now),
        }
    }

    fn open(&mut self, ask: &Ask, random: u128, now: Duration) -> i32 {
        if self.capacity == 0 {
            return 0;
        }
        let size = ask.wishes.iter().map(|(place, _)| place.size()).sum();
        if size > HELD {
            return 0;
        }
        while self.sessions.len() >= self.capacity || self.held + size > HELD {
            let oldest = self
                .sessions
                .iter()
                .min_by_key(|(_, s)| s.used)
                .map(|(id, s)| (*id, s.used));
            match oldest {
                Some((id, used)) if now.saturating_sub(used) >= KEEP => self.end(id),
                // All are in use: this client goes on without a session.
                _ => return 0,
            }
        }
        let mut id = (random as i32) & i32::MAX;
        while id == 0 || self.sessions.contains_key(&id) {
            id = id.wrapping_add(1) & i32::MAX;
        }
        let mut partitions = BTreeMap::new();
        let mut order = Vec::with_capacity(ask.wishes.len());
        for (place, wish) in &ask.wishes {
            // Asked twice: the last wish counts.
            if partitions
                .insert(place.clone(), Member::new(*wish))
                .is_none()
            {
                order.push(place.clone());
            }
        }
        let session = Session {
            epoch: 1,
            by_id: ask.by_id,
            used: now,
            partitions,
            order,
            size,
        };
        self.held += size;
        self.sessions.insert(id, session);
        id
    }

    fn go_on(&mut self, ask: Ask, epoch: i32, now: Duration) -> Result<Plan, ErrorCode> {
        let session = self
            .sessions
            .get_mut(&ask.session_id)
            .ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.epoch != epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != ask.by_id && !(ask.wishes.is_empty() && ask.forgotten.is_empty()) {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        session.used = now;
        let before = session.size;
        for (place, wish) in ask.wishes {
            match session.partitions.get_mut(&place) {
                Some(member) => member.wish = wish,
                None => {
                    session.size += place.size();
                    session.order.push(place.clone());
                    session.partitions.insert(place, Member::new(wish));
                }
            }
        }
        if !ask.forgotten.is_empty() {
            for place in &ask.forgotten {
                if session.partitions.remove(place).is_some() {
                    session.size -= place.size();
                }
            }
            let left = &session.partitions;
            session.order.retain(|place| left.contains_key(place));
        }
        let wish = |place: &Place| Some((place.clone(), session.partitions.get(place)?.wish));
        let partitions: Vec<_> = session.order.iter().filter_map(wish).collect();
        self.held = self.held - before + session.size;
        if self.held > HELD {
            self.end(ask.session_id);
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        if partitions.is_empty() {
            // Nothing is left to read: the session ends.
            self.end(ask.session_id);
            return Ok(Plan {
                session_id: 0,
                incremental: true,
                partitions,
            });
        }
        Ok(Plan {
            session_id: ask.session_id,
            incremental: true,
            partitions,
        })
    }

    /// Takes what was read from each partition of a plan, in its order: says what is shown to the client, and with which error.
    pub(crate) fn answer(&mut self, plan: &Plan, read: &mut [Read]) {
        let session = self.sessions.get_mut(&plan.session_id);
        let Some(session) = session else {
            read.iter_mut().for_each(|read| read.show = true);
            return;
        };
        let mut gave = BTreeSet::new();
        for ((place, _), read) in plan.partitions.iter().zip(read) {
            let Some(member) = session.partitions.get_mut(place) else {
                read.show = !plan.incremental;
                continue;
            };
            if read.error != ErrorCode::UNKNOWN_TOPIC_ID {
                member.known = true;
            } else if member.known {
                // The topic was there when the session began: the client's name for it may have a new id by now.
                read.error = ErrorCode::INCONSISTENT_TOPIC_ID;
            }
            let failed = read.error != ErrorCode::NONE;
            let changed = member.shown != Some(read.shown);
            read.show = !plan.incremental || failed || read.has_records || changed;
            // An error is shown again with each answer until it is over.
            member.shown = (!failed).then_some(read.shown);
            if read.has_records {
                gave.insert(place);
            }
        }
        // Those that gave records wait behind the others.
        let (behind, mut order): (Vec<Place>, Vec<Place>) = std::mem::take(&mut session.order)
            .into_iter()
            .partition(|place| gave.contains(place));
        order.extend(behind);
        session.order = order;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn place(partition: i32) -> Place {
        Place {
            name: "t".into(),
            id: TopicId::ZERO,
            partition,
        }
    }

    fn ask(session_id: i32, session_epoch: i32, wishes: &[i32], forgotten: &[i32]) -> Ask {
        let wish = Wish {
            from: 0,
            max_bytes: 1_000,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
        };
        Ask {
            session_id,
            session_epoch,
            by_id: false,
            wishes: wishes.iter().map(|p| (place(*p), wish)).collect(),
            forgotten: forgotten.iter().map(|p| place(*p)).collect(),
        }
    }

    fn read(high_watermark: i64, has_records: bool) -> Read {
        Read {
            error: ErrorCode::NONE,
            shown: Shown {
                high_watermark,
                log_start_offset: 0,
            },
            has_records,
            show: false,
        }
    }

    fn failed(error: ErrorCode) -> Read {
        Read {
            error,
            ..read(-1, false)
        }
    }

    /// What is shown: the error, or nothing.
    fn answer<const N: usize>(
        sessions: &mut FetchSessions,
        plan: &Plan,
        mut read: [Read; N],
    ) -> [Option<ErrorCode>; N] {
        sessions.answer(plan, &mut read);
        read.map(|read| read.show.then_some(read.error))
    }

    const SHOWN: Option<ErrorCode> = Some(ErrorCode::NONE);

    fn partitions(plan: &Plan) -> Vec<i32> {
        plan.partitions.iter().map(|(p, _)| p.partition).collect()
    }

    #[test]
    fn sessions_hold_no_more_than_they_may() {
        let mut sessions = FetchSessions::new(1_000);
        let wish = ask(0, 0, &[0], &[]).wishes[0].1;
        let long: Arc<str> = "n".repeat(1 << 20).into();
        let named = |session, epoch, partitions: std::ops::Range<i32>| Ask {
            wishes: partitions
                .map(|partition| {
                    let name = long.clone();
                    (
                        Place {
                            name,
                            ..place(partition)
                        },
                        wish,
                    )
                })
                .collect(),
            ..ask(session, epoch, &[], &[])
        };
        let all = named(0, 0, 0..300);
        assert_eq!(sessions.ask(all, 7, SECOND).unwrap().session_id, 0);
        let first = sessions.ask(named(0, 0, 0..200), 7, SECOND).unwrap();
        assert_ne!(first.session_id, 0);
        let second = sessions.ask(named(0, 0, 0..100), 8, SECOND).unwrap();
        assert_eq!(second.session_id, 0);
        // One that grows too much ends, and makes room.
        let grows = sessions.ask(named(first.session_id, 1, 200..300), 0, SECOND);
        assert_eq!(grows, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
        let third = sessions.ask(named(0, 0, 0..200), 9, SECOND).unwrap();
        assert_ne!(third.session_id, 0);
        // An idle one is ended for another.
        let later = SECOND + KEEP;
        assert_ne!(
            sessions
                .ask(named(0, 0, 0..100), 10, later)
                .unwrap()
                .session_id,
            0
        );
        let ended = sessions.ask(named(third.session_id, 1, 0..1), 0, later);
        assert_eq!(ended, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
        // What isn't read any more isn't held.
        let fourth = sessions.ask(named(0, 0, 0..100), 11, later).unwrap();
        assert_ne!(fourth.session_id, 0);
        let gone = named(0, 0, 0..100)
            .wishes
            .into_iter()
            .map(|(place, _)| place);
        let without = Ask {
            forgotten: gone.collect(),
            ..ask(fourth.session_id, 1, &[], &[])
        };
        assert_eq!(sessions.ask(without, 0, later).unwrap().session_id, 0);
        assert_ne!(
            sessions
                .ask(named(0, 0, 0..100), 12, later)
                .unwrap()
                .session_id,
            0
        );
    }

    #[test]
    fn what_has_not_changed_is_left_out() {
        let mut sessions = FetchSessions::new(10);
        let plan = sessions.ask(ask(0, 0, &[0, 1], &[]), 7, SECOND).unwrap();
        assert_eq!((plan.session_id, partitions(&plan)), (7, vec![0, 1]));
        let first = answer(&mut sessions, &plan, [read(5, false), read(5, false)]);
        assert_eq!(first, [SHOWN, SHOWN]);

        let plan = sessions.ask(ask(7, 1, &[], &[]), 0, SECOND).unwrap();
        assert_eq!(partitions(&plan), [0, 1]);
        let second = answer(&mut sessions, &plan, [read(5, false), read(6, false)]);
        assert_eq!(second, [None, SHOWN]);
    }

    #[test]
    fn an_error_is_shown_until_it_is_over_and_so_is_its_end() {
        let mut sessions = FetchSessions::new(10);
        let plan = sessions.ask(ask(0, 0, &[0], &[]), 7, SECOND).unwrap();
        assert_eq!(answer(&mut sessions, &plan, [read(5, false)]), [SHOWN]);
        let moved = ErrorCode::NOT_LEADER_OR_FOLLOWER;
        for epoch in [1, 2] {
            let plan = sessions.ask(ask(7, epoch, &[], &[]), 0, SECOND).unwrap();
            assert_eq!(answer(&mut sessions, &plan, [failed(moved)]), [Some(moved)]);
        }
        let plan = sessions.ask(ask(7, 3, &[], &[]), 0, SECOND).unwrap();
        assert_eq!(answer(&mut sessions, &plan, [read(5, false)]), [SHOWN]);
        let plan = sessions.ask(ask(7, 4, &[], &[]), 0, SECOND).unwrap();
        assert_eq!(answer(&mut sessions, &plan, [read(5, false)]), [None]);
    }

    #[test]
    fn a_topic_that_goes_during_a_session_is_another_error_than_one_that_never_was() {
        let unknown = ErrorCode::UNKNOWN_TOPIC_ID;
        let mut sessions = FetchSessions::new(10);
        let plan = sessions.ask(ask(0, 0, &[0, 1], &[]), 7, SECOND).unwrap();
        let first = answer(&mut sessions, &plan, [read(5, false), failed(unknown)]);
        assert_eq!(first, [SHOWN, Some(unknown)]);
        let plan = sessions.ask(ask(7, 1, &[], &[]), 0, SECOND).unwrap();
        let second = answer(&mut sessions, &plan, [failed(unknown), failed(unknown)]);
        assert_eq!(
            second,
            [Some(ErrorCode::INCONSISTENT_TOPIC_ID), Some(unknown)]
        );
    }

    #[test]
    fn a_partition_that_is_asked_twice_is_read_once() {
        let mut sessions = FetchSessions::new(10);
        sessions.ask(ask(0, 0, &[0, 1, 0], &[]), 7, SECOND).unwrap();
        let plan = sessions.ask(ask(7, 1, &[], &[]), 0, SECOND).unwrap();
        assert_eq!(partitions(&plan), [0, 1]);
    }

    #[test]
    fn a_partition_that_gave_records_waits_behind_the_others() {
        let mut sessions = FetchSessions::new(10);
        let plan = sessions.ask(ask(0, 0, &[0, 1, 2], &[]), 7, SECOND).unwrap();
        let reads = [read(5, true), read(5, false), read(5, false)];
        answer(&mut sessions, &plan, reads);
        let plan = sessions.ask(ask(7, 1, &[], &[]), 0, SECOND).unwrap();
        assert_eq!(partitions(&plan), [1, 2, 0]);
    }

    #[test]
    fn partitions_come_and_go() {
        let mut sessions = FetchSessions::new(10);
        sessions.ask(ask(0, 0, &[0, 1], &[]), 7, SECOND).unwrap();
        let plan = sessions.ask(ask(7, 1, &[3], &[0]), 0, SECOND).unwrap();
        assert_eq!(partitions(&plan), [1, 3]);
        let plan = sessions.ask(ask(7, 2, &[], &[1, 3]), 0, SECOND).unwrap();
        assert_eq!(plan.session_id, 0);
        let gone = sessions.ask(ask(7, 3, &[], &[]), 0, SECOND);
        assert_eq!(gone, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    }

    #[test]
    fn epochs_ids_and_topic_ids_are_checked() {
        let mut sessions = FetchSessions::new(10);
        sessions.ask(ask(0, 0, &[0], &[]), 7, SECOND).unwrap();
        assert_eq!(
            sessions.ask(ask(8, 1, &[], &[]), 0, SECOND),
            Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)
        );
        assert_eq!(
            sessions.ask(ask(7, 2, &[], &[]), 0, SECOND),
            Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH)
        );
        let by_id = Ask {
            by_id: true,
            ..ask(7, 1, &[0], &[])
        };
        assert_eq!(
            sessions.ask(by_id, 0, SECOND),
            Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR)
        );
        // Closing answers without a session, and ends it.
        assert_eq!(
            sessions
                .ask(ask(7, -1, &[0], &[]), 0, SECOND)
                .unwrap()
                .session_id,
            0
        );
        assert_eq!(
            sessions.ask(ask(7, 1, &[], &[]), 0, SECOND),
            Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)
        );
    }

    #[test]
    fn the_number_of_sessions_is_bounded_and_idle_ones_make_room() {
        let mut sessions = FetchSessions::new(2);
        for id in [1, 2] {
            assert_eq!(
                sessions
                    .ask(ask(0, 0, &[0], &[]), id, SECOND)
                    .unwrap()
                    .session_id,
                id as i32
            );
        }
        assert_eq!(
            sessions
                .ask(ask(0, 0, &[0], &[]), 3, SECOND)
                .unwrap()
                .session_id,
            0
        );
        let later = SECOND + KEEP;
        assert_eq!(
            sessions
                .ask(ask(0, 0, &[0], &[]), 3, later)
                .unwrap()
                .session_id,
            3
        );
    }
}
