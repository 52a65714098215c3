//! Groups that commit once a second, and groups that a broker has to load after a start.

use std::io::Write as _;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use riverlog_wire::ErrorCode;
use riverlog_wire::frame::encode_request;
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::offset_fetch_request::OffsetFetchRequestTopic;
use riverlog_wire::messages::{
    ApiKey, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
};

use crate::Result;
use crate::measure::{latencies, print, print_latencies};
use crate::wire::{Connection, decode, topic};

const COMMIT: i16 = 7;
const FETCH: i16 = 5;
/// Connections that share the groups; each has its commits under way in order.
const CONNECTIONS: usize = 4;

fn group_name(prefix: &str, n: usize) -> String {
    format!("{prefix}-{n}")
}

fn commit_of(group: String, topic: &str, offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: group,
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.to_owned(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: offset,
                committed_leader_epoch: -1,
                committed_metadata: Some(String::new()),
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    }
}

fn error_of(response: &OffsetCommitResponse) -> ErrorCode {
    let first = response.topics.first().and_then(|t| t.partitions.first());
    first.map_or(ErrorCode::UNKNOWN_SERVER_ERROR, |p| p.error_code)
}

/// Commits once for a group, and again while its coordinator comes.
fn commit_patiently(
    connection: &mut Connection,
    group: &str,
    topic: &str,
    offset: i64,
) -> Result<()> {
    connection.find_coordinator(0, group)?;
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let request = commit_of(group.to_owned(), topic, offset);
        let error = error_of(&connection.call(COMMIT, &request)?);
        if error == ErrorCode::NONE {
            return Ok(());
        }
        if !error.retriable() || Instant::now() > until {
            return Err(format!("a commit of {group}: {}", error.name()).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `groups` groups commit one offset a second each, spread over the second whether answers come or not, for `seconds`.
pub(crate) fn run(broker: &str, groups: usize, seconds: u64) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let topic = topic(&mut connection, 1, &[])?;
    // Every partition of the coordinator's topic is made and loaded before the clock runs.
    for n in 0..groups.min(200) {
        commit_patiently(&mut connection, &group_name(&topic, n), &topic, 0)?;
    }
    let began = Instant::now() + Duration::from_millis(100);
    let mut threads = Vec::new();
    for at in 0..CONNECTIONS {
        let (broker, topic) = (broker.to_owned(), topic.clone());
        threads.push(std::thread::spawn(move || {
            commit_on_time(&broker, &topic, at, groups, seconds, began)
        }));
    }
    let mut all = latencies()?;
    for thread in threads {
        let one = thread.join().map_err(|_| "a thread panicked")??;
        all.add(one)?;
    }
    let took = began.elapsed().as_secs_f64();
    print_latencies("commit", &all);
    print("commits a second", all.len() as f64 / took, "1/s");
    print("commits", all.len() as f64, "commits");
    Ok(())
}

/// One connection's share. Latency counts from the moment when a commit was due, so that a broker that stalls is charged for
/// those that wait behind it.
fn commit_on_time(
    broker: &str,
    topic: &str,
    at: usize,
    groups: usize,
    seconds: u64,
    began: Instant,
) -> Result<Histogram<u64>> {
    let connection = Connection::open(broker)?;
    let mut reader = Connection(connection.0.try_clone()?);
    let mut writer = connection.0;
    let (sent, due) = mpsc::channel::<Instant>();
    let answers = std::thread::spawn(move || -> Result<Histogram<u64>> {
        let mut latency = latencies()?;
        for due in due {
            let frame = reader.receive()?;
            let response: OffsetCommitResponse = decode(ApiKey::OffsetCommit, COMMIT, &frame)?;
            let error = error_of(&response);
            if error != ErrorCode::NONE {
                return Err(format!("a commit: {}", error.name()).into());
            }
            latency.record(due.elapsed().as_micros() as u64)?;
        }
        Ok(latency)
    });
    let mine: Vec<usize> = (at..groups).step_by(CONNECTIONS).collect();
    let mut frame = Vec::new();
    for second in 0..seconds {
        for n in &mine {
            let part = *n as f64 / groups as f64;
            let due = began + Duration::from_secs(second) + Duration::from_secs_f64(part);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let request = commit_of(group_name(topic, *n), topic, second as i64 + 1);
            frame.clear();
            encode_request(&mut frame, COMMIT, 1, Some("riverlog-bench"), &request)?;
            writer.write_all(&frame)?;
            sent.send(due)?;
        }
    }
    drop(sent);
    answers.join().map_err(|_| "a thread panicked")?
}

/// Prefix of the groups that [`fill`] leaves behind for [`load`].
const KEPT: &str = "bench-kept";
/// Commits of each of them, so that the log is longer than what it says.
const COMMITS: i64 = 20;

/// Leaves `groups` groups with some commits behind.
pub(crate) fn fill(broker: &str, groups: usize) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let topic = topic(&mut connection, 1, &[])?;
    for offset in 0..COMMITS {
        for n in 0..groups {
            commit_patiently(&mut connection, &group_name(KEPT, n), &topic, offset)?;
        }
    }
    print("commits", groups as f64 * COMMITS as f64, "commits");
    Ok(())
}

/// Asks for what each of them has committed, until all have answered; the time from the first question to the last answer.
pub(crate) fn load(broker: &str, groups: usize) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let began = Instant::now();
    let mut first = None;
    for n in 0..groups {
        loop {
            let request = OffsetFetchRequest {
                group_id: group_name(KEPT, n),
                topics: None::<Vec<OffsetFetchRequestTopic>>,
                ..OffsetFetchRequest::default()
            };
            let response = connection.call(FETCH, &request)?;
            let offset = response.topics.iter().flat_map(|t| &t.partitions).next();
            match (response.error_code, offset) {
                (ErrorCode::NONE, Some(offset)) => {
                    if offset.committed_offset != COMMITS - 1 {
                        let what = format!("group {n} has {}", offset.committed_offset);
                        return Err(what.into());
                    }
                    break;
                }
                (ErrorCode::NONE, None) => return Err(format!("group {n} is gone").into()),
                (error, _) if error.retriable() => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                (error, _) => return Err(format!("group {n}: {}", error.name()).into()),
            }
        }
        first.get_or_insert_with(|| began.elapsed());
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    print("first group known", ms(first.unwrap_or_default()), "ms");
    print("all groups known", ms(began.elapsed()), "ms");
    Ok(())
}
