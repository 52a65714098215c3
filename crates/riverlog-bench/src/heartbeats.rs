//! Groups of the consumer protocol (KIP-848): how long an assignment takes, and what members cost that do nothing but live.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use riverlog_wire::messages::consumer_group_heartbeat_request::TopicPartitions;
use riverlog_wire::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use riverlog_wire::{ErrorCode, TopicId};

use crate::Result;
use crate::measure::{broker_pid, cpu_seconds, latencies, print, print_latencies};
use crate::wire::{Connection, topic};

const HEARTBEAT: i16 = 1;
/// Connections that share the members of many groups.
const CONNECTIONS: usize = 20;

/// What a member tells: its number, its epoch, how many partitions it has.
type Told = (usize, i32, usize, Instant);

/// A member, and what it was told last.
struct Member {
    group: String,
    id: String,
    topic: String,
    epoch: i32,
    owned: Vec<(TopicId, Vec<i32>)>,
    /// What it has is to be said with the next heartbeat.
    report: bool,
    /// When the broker wants to hear of it again.
    asked: Duration,
}

impl Member {
    fn new(group: &str, topic: &str, number: usize) -> Member {
        Member {
            group: group.to_owned(),
            id: format!("bench-member-{number:012}"),
            topic: topic.to_owned(),
            epoch: 0,
            owned: Vec::new(),
            report: true,
            asked: Duration::MAX,
        }
    }

    fn held(&self) -> usize {
        self.owned
            .iter()
            .map(|(_, partitions)| partitions.len())
            .sum()
    }

    /// One heartbeat; whether anything is new.
    fn beat(&mut self, connection: &mut Connection) -> Result<bool> {
        let joins = self.epoch == 0;
        let owned = self.owned.iter();
        let owned = owned.map(|(topic_id, partitions)| TopicPartitions {
            topic_id: *topic_id,
            partitions: partitions.clone(),
        });
        let request = ConsumerGroupHeartbeatRequest {
            group_id: self.group.clone(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            rebalance_timeout_ms: if joins { 60_000 } else { -1 },
            subscribed_topic_names: joins.then(|| vec![self.topic.clone()]),
            topic_partitions: self.report.then(|| owned.collect()),
            ..ConsumerGroupHeartbeatRequest::default()
        };
        let answer: ConsumerGroupHeartbeatResponse = connection.call(HEARTBEAT, &request)?;
        match answer.error_code {
            ErrorCode::NONE => {}
            error if error.retriable() => {
                std::thread::sleep(Duration::from_millis(20));
                return Ok(false);
            }
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_MEMBER_EPOCH => {
                self.epoch = 0;
                self.owned.clear();
                self.report = true;
                return Ok(false);
            }
            error => return Err(format!("heartbeat: {}", error.name()).into()),
        }
        let mut news = self.epoch != answer.member_epoch;
        self.epoch = answer.member_epoch;
        self.report = false;
        let asked = u64::try_from(answer.heartbeat_interval_ms).unwrap_or(u64::MAX);
        self.asked = Duration::from_millis(asked);
        if let Some(assignment) = answer.assignment {
            let each = assignment.topic_partitions.into_iter();
            let owned: Vec<_> = each.map(|t| (t.topic_id, t.partitions)).collect();
            self.report = owned != self.owned;
            news |= self.report;
            self.owned = owned;
        }
        Ok(news)
    }
}

/// F21 with the consumer protocol: a cold start, one more member. A heartbeat comes each `heartbeat`, or sooner where the broker asks for it.
pub(crate) fn changes(
    broker: &str,
    members: usize,
    partitions: usize,
    heartbeat: Duration,
) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let name = topic(&mut connection, i32::try_from(partitions)?, &[])?;
    connection.find_coordinator(0, &name)?;
    let mut warm = Member::new(&format!("{name}-warm"), &name, 0);
    while warm.epoch == 0 {
        warm.beat(&mut connection)?;
    }
    let (tell, told) = mpsc::channel();
    let mut stops = Vec::new();
    let start = |n: usize, tell: &Sender<Told>| -> Result<Arc<AtomicBool>> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut member = Member::new(&name, &name, n);
        let mut connection = Connection::open(broker)?;
        let (tell, stopped) = (tell.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match member.beat(&mut connection) {
                    Ok(true) => {
                        let held = member.held();
                        if tell.send((n, member.epoch, held, Instant::now())).is_err() {
                            return;
                        }
                    }
                    Ok(false) => std::thread::sleep(heartbeat.min(member.asked)),
                    Err(error) => return eprintln!("member {n}: {error}"),
                }
            }
        });
        Ok(stop)
    };
    let ms = |at: Instant, since: Instant| at.saturating_duration_since(since).as_secs_f64() * 1e3;
    let began = Instant::now();
    for n in 0..members {
        stops.push(start(n, &tell)?);
    }
    let whole = wait_for(&told, members, partitions)?;
    print("cold start", ms(whole, began), "ms");
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    stops.push(start(members, &tell)?);
    let whole = wait_for(&told, members + 1, partitions)?;
    print("one more joins", ms(whole, began), "ms");
    for stop in stops {
        stop.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits until so many members at one epoch have all partitions, and each its share; when the last of them did. One may have all and the
/// others none, at the same epoch, where the broker puts off the next assignment.
fn wait_for(told: &Receiver<Told>, members: usize, partitions: usize) -> Result<Instant> {
    let mut latest = std::collections::BTreeMap::new();
    loop {
        let (member, epoch, held, at) = told
            .recv_timeout(Duration::from_secs(120))
            .map_err(|_| format!("{latest:?} after two minutes"))?;
        latest.insert(member, (epoch, held));
        let newest = latest.values().map(|(epoch, _)| *epoch).max();
        let of_it = latest.values().filter(|(epoch, _)| Some(*epoch) == newest);
        let all: usize = of_it.clone().map(|(_, held)| held).sum();
        let shared = of_it.clone().all(|(_, held)| *held >= partitions / members);
        if of_it.count() == members && all == partitions && shared {
            return Ok(at);
        }
    }
}

/// `members` over `groups`, each with a heartbeat every `interval`: CPU of the broker (BROKER_PID), and how long an answer takes.
pub(crate) fn steady(
    broker: &str,
    members: usize,
    groups: usize,
    seconds: u64,
    interval: Duration,
) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let each = members.div_ceil(groups.max(1)).max(1);
    let name = topic(&mut connection, i32::try_from(each)?, &[])?;
    let group = |n: usize| format!("{name}-{}", n / each);
    connection.find_coordinator(0, &group(0))?;
    let mut lanes: Vec<Vec<Member>> = (0..CONNECTIONS).map(|_| Vec::new()).collect();
    for n in 0..members {
        lanes[n % CONNECTIONS].push(Member::new(&group(n), &name, n));
    }
    // Everyone joins, and has what it is to have.
    let joined: Vec<_> = lanes
        .into_iter()
        .map(|mut lane| {
            let broker = broker.to_owned();
            std::thread::spawn(move || -> Result<(Connection, Vec<Member>)> {
                let mut connection = Connection::open(&broker)?;
                for _ in 0..4 {
                    for member in &mut lane {
                        while member.beat(&mut connection)? || member.epoch == 0 {}
                    }
                }
                Ok((connection, lane))
            })
        })
        .collect();
    let mut ready = Vec::new();
    for thread in joined {
        ready.push(thread.join().map_err(|_| "a thread panicked")??);
    }
    let pid = broker_pid()?;
    let (began, before) = (Instant::now(), cpu_seconds(pid)?);
    let until = began + Duration::from_secs(seconds);
    let threads: Vec<_> = ready
        .into_iter()
        .map(|(mut connection, mut lane)| {
            std::thread::spawn(move || -> Result<Histogram<u64>> {
                let mut waits = latencies()?;
                let count = lane.len().max(1);
                let mut turn = 0_u32;
                loop {
                    for (n, member) in lane.iter_mut().enumerate() {
                        let part = interval.mul_f64(n as f64 / count as f64);
                        let due = began + interval * turn + part;
                        if due > until {
                            return Ok(waits);
                        }
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        member.beat(&mut connection)?;
                        waits.record((due.elapsed().as_micros() as u64).max(1))?;
                    }
                    turn += 1;
                }
            })
        })
        .collect();
    let mut all = latencies()?;
    for thread in threads {
        all.add(thread.join().map_err(|_| "a thread panicked")??)?;
    }
    let (took, used) = (began.elapsed().as_secs_f64(), cpu_seconds(pid)? - before);
    print_latencies("heartbeat", &all);
    print("heartbeats a second", all.len() as f64 / took, "1/s");
    print("CPU of the broker", used / took, "cores");
    Ok(())
}
