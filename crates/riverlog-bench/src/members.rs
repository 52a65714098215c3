//! Members of a classic group: a cold start, one more that joins, one that crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::join_group_request::JoinGroupRequestProtocol;
use riverlog_wire::messages::sync_group_request::SyncGroupRequestAssignment;
use riverlog_wire::messages::{HeartbeatRequest, JoinGroupRequest, SyncGroupRequest};

use crate::Result;
use crate::measure::print;
use crate::wire::{Connection, topic};

const JOIN: i16 = 4;
const SYNC: i16 = 2;
const HEARTBEAT: i16 = 2;

/// What a member tells: its number, the generation that it has its assignment of, and how much that is.
type Told = (usize, i32, usize, Instant);

/// F21: `members` members, `partitions` partitions; heartbeats each `heartbeat`, a session of six seconds.
pub(crate) fn run(
    broker: &str,
    members: usize,
    partitions: usize,
    heartbeat: Duration,
) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let group = topic(&mut connection, 1, &[])?;
    connection.find_coordinator(0, &group)?;
    // The coordinator is at work before the clock runs.
    let mut warm = Member::new(broker, format!("{group}-warm"), 1)?;
    warm.join()?;
    drop(warm);
    let (tell, told) = mpsc::channel();
    let mut stops = Vec::new();
    let start = |n: usize, tell: &Sender<Told>| -> Result<Arc<AtomicBool>> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut member = Member::new(broker, group.clone(), partitions)?;
        let (tell, stopped) = (tell.clone(), stop.clone());
        std::thread::spawn(move || {
            if let Err(error) = member.stay(n, heartbeat, &tell, &stopped) {
                eprintln!("member {n}: {error}");
            }
        });
        Ok(stop)
    };
    let began = Instant::now();
    for n in 0..members {
        stops.push(start(n, &tell)?);
    }
    let ms = |at: Instant, since: Instant| at.saturating_duration_since(since).as_secs_f64() * 1e3;
    let whole = wait_for(&told, members, partitions)?;
    print("cold start", ms(whole, began), "ms");
    // Quiet, as a group that has worked for a while.
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    stops.push(start(members, &tell)?);
    let whole = wait_for(&told, members + 1, partitions)?;
    print("one more joins", ms(whole, began), "ms");
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    if let Some(stop) = stops.pop() {
        stop.store(true, Ordering::Relaxed);
    }
    let whole = wait_for(&told, members, partitions)?;
    print("one crashes", ms(whole, began), "ms");
    for stop in stops {
        stop.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits until so many members of one generation have all partitions; when the last of them did.
fn wait_for(told: &Receiver<Told>, members: usize, partitions: usize) -> Result<Instant> {
    let mut latest = 0;
    let mut of_it: Vec<(usize, usize)> = Vec::new();
    loop {
        let (member, generation, held, at) = told
            .recv_timeout(Duration::from_secs(60))
            .map_err(|_| format!("{of_it:?} of generation {latest} after a minute"))?;
        if generation > latest {
            latest = generation;
            of_it.clear();
        }
        if generation == latest {
            of_it.retain(|(m, _)| *m != member);
            of_it.push((member, held));
        }
        let all: usize = of_it.iter().map(|(_, held)| held).sum();
        if of_it.len() == members && all == partitions {
            return Ok(at);
        }
    }
}

struct Member {
    connection: Connection,
    group: String,
    partitions: usize,
    id: String,
    generation: i32,
}

impl Member {
    fn new(broker: &str, group: String, partitions: usize) -> Result<Member> {
        Ok(Member {
            connection: Connection::open(broker)?,
            group,
            partitions,
            id: String::new(),
            generation: -1,
        })
    }

    /// Joins and fetches its assignment; how many partitions it was given.
    fn join(&mut self) -> Result<usize> {
        loop {
            let request = JoinGroupRequest {
                group_id: self.group.clone(),
                session_timeout_ms: 6_000,
                rebalance_timeout_ms: 60_000,
                member_id: self.id.clone(),
                protocol_type: "bench".to_owned(),
                protocols: vec![JoinGroupRequestProtocol {
                    name: "even".to_owned(),
                    metadata: Bytes::from_static(b"all"),
                }],
                ..JoinGroupRequest::default()
            };
            let joined = self.connection.call(JOIN, &request)?;
            match joined.error_code {
                ErrorCode::NONE => {}
                ErrorCode::MEMBER_ID_REQUIRED => {
                    self.id = joined.member_id;
                    continue;
                }
                ErrorCode::UNKNOWN_MEMBER_ID => {
                    self.id.clear();
                    continue;
                }
                error if error.retriable() => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                error => return Err(format!("join: {}", error.name()).into()),
            }
            self.id = joined.member_id;
            self.generation = joined.generation_id;
            let count = joined.members.len();
            let members = joined.members.into_iter().enumerate();
            let sync = SyncGroupRequest {
                group_id: self.group.clone(),
                generation_id: self.generation,
                member_id: self.id.clone(),
                assignments: members
                    .map(|(n, member)| SyncGroupRequestAssignment {
                        member_id: member.member_id,
                        // A byte for each partition of its share.
                        assignment: vec![0; (self.partitions + count - 1 - n) / count].into(),
                    })
                    .collect(),
                ..SyncGroupRequest::default()
            };
            let synced = self.connection.call(SYNC, &sync)?;
            match synced.error_code {
                ErrorCode::NONE => return Ok(synced.assignment.len()),
                ErrorCode::UNKNOWN_MEMBER_ID => self.id.clear(),
                error if error.retriable() || error == ErrorCode::ILLEGAL_GENERATION => {}
                error => return Err(format!("sync: {}", error.name()).into()),
            }
        }
    }

    /// Is a member until it is stopped, which it is as by a crash: without a word.
    fn stay(
        &mut self,
        number: usize,
        heartbeat: Duration,
        tell: &Sender<Told>,
        stop: &AtomicBool,
    ) -> Result<()> {
        loop {
            let held = self.join()?;
            if tell
                .send((number, self.generation, held, Instant::now()))
                .is_err()
            {
                return Ok(());
            }
            loop {
                std::thread::sleep(heartbeat);
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let request = HeartbeatRequest {
                    group_id: self.group.clone(),
                    generation_id: self.generation,
                    member_id: self.id.clone(),
                    ..HeartbeatRequest::default()
                };
                let answer = self.connection.call(HEARTBEAT, &request)?;
                match answer.error_code {
                    ErrorCode::NONE => {}
                    ErrorCode::UNKNOWN_MEMBER_ID => {
                        self.id.clear();
                        break;
                    }
                    _ => break,
                }
            }
        }
    }
}
