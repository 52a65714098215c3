//! Three servers on one machine, and writers that keep what was acknowledged to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use riverlog_wire::ErrorCode;
use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::metadata_response::{MetadataResponse, MetadataResponsePartition};
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{MetadataRequest, ProduceRequest};
use tempfile::TempDir;

use crate::common::{Server, eventually, run_with, try_ask};

/// How long one request may take; a writer goes on with another node then.
const REQUEST: Duration = Duration::from_secs(5);
/// A pause between two tries of a writer.
const AGAIN: Duration = Duration::from_millis(20);

/// Addresses whose ports are free now, and stay so while a server is down: not among those that the system gives to connections.
pub fn places(n: usize) -> Vec<String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other processes of this test begin elsewhere.
    let own = u16::try_from(std::process::id() % 1_000).unwrap() * 20;
    let next = || 10_000 + own + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000;
    std::iter::repeat_with(next)
        .map(|port| format!("127.0.0.1:{port}"))
        .filter(|place| TcpListener::bind(place).is_ok())
        .take(n)
        .collect()
}

pub fn start(folder: &Path, places: &[String], id: usize) -> Server {
    start_with(folder, places, id, &[])
}

fn start_with(folder: &Path, places: &[String], id: usize, flags: &[String]) -> Server {
    let (number, seeds) = (id.to_string(), places.join(","));
    let data = folder.join(&number);
    let mut more = vec!["--node-id", &number, "--seeds", &seeds];
    more.extend(flags.iter().map(String::as_str));
    Server::start_at(&data, &places[id - 1], &more)
}

/// (node, whether it votes, whether it leads) of each member, as a server tells it; empty when nobody leads.
pub fn members(server: &Server) -> BTreeSet<(i64, bool, bool)> {
    let output = server.run(&["cluster", "quorum", "-o", "json"]);
    if !output.status.success() {
        return BTreeSet::new();
    }
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = table["data"].as_array().unwrap().iter();
    rows.map(|row| {
        let voter = row["role"] == "voter";
        let leads = row["leader"] == true;
        (row["id"].as_i64().unwrap(), voter, leads)
    })
    .collect()
}

/// The disk that votes for a node, once no other one of that node is there.
pub fn voting_disk(server: &Server, id: usize) -> Option<String> {
    let output = server.run(&["cluster", "quorum", "-o", "json"]);
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let rows = table["data"].as_array()?.iter();
    let mut disks = rows.filter(|row| row["id"].as_u64() == u64::try_from(id).ok());
    match (disks.next(), disks.next()) {
        (Some(row), None) if row["role"] == "voter" => Some(row["directory"].as_str()?.to_owned()),
        _ => None,
    }
}

/// The leader of three voters on whom all servers agree.
fn leader(servers: &[&Server]) -> Option<i64> {
    let told: Vec<_> = servers.iter().map(|s| members(s)).collect();
    let first = told.first()?;
    let voters = first.iter().filter(|m| m.1).count();
    let same = told.iter().all(|t| t == first);
    let leader = first.iter().find(|m| m.2)?.0;
    (same && voters == 3).then_some(leader)
}

pub fn agree(servers: &[&Server]) -> i64 {
    let mut found = None;
    assert!(
        eventually(|| {
            found = leader(servers);
            found.is_some()
        }),
        "{:?}",
        servers.iter().map(|s| members(s)).collect::<Vec<_>>()
    );
    found.unwrap()
}

pub fn has_topic(server: &Server, name: &str) -> bool {
    let output = server.run(&["topic", "list", "-o", "name"]);
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    names.lines().any(|line| line == name)
}

/// Makes a topic; a cluster that has just lost its controller, or lacks nodes yet, is asked again.
pub fn create(server: &Server, name: &str, replicas: &str) {
    assert!(eventually(|| {
        let made = server.run(&["topic", "create", name, "-p", "3", "-r", replicas]);
        made.status.success() || has_topic(server, name)
    }));
}

/// What a node says of a topic; `None` when it doesn't answer, or doesn't know it.
pub fn partitions_at(place: &str, topic: &str) -> Option<Vec<MetadataResponsePartition>> {
    let metadata = metadata_at(place, topic)?;
    let topic = metadata.topics.into_iter().next()?;
    (topic.error_code == ErrorCode::NONE && !topic.partitions.is_empty())
        .then_some(topic.partitions)
}

fn metadata_at(place: &str, topic: &str) -> Option<MetadataResponse> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(topic.to_owned()),
            ..MetadataRequestTopic::default()
        }]),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    try_ask(place, 9, &request, REQUEST).ok()
}

/// A cluster of three.
pub struct Trio {
    folder: TempDir,
    pub places: Vec<String>,
    nodes: Vec<Option<Server>>,
    /// Further flags of a node.
    flags: fn(usize) -> Vec<String>,
}

impl Trio {
    /// Three empty nodes that have formed a cluster.
    pub fn form() -> Trio {
        Trio::form_with(|_| Vec::new())
    }

    /// The same, with further flags for each.
    pub fn form_with(flags: fn(usize) -> Vec<String>) -> Trio {
        let folder = tempfile::tempdir().unwrap();
        let places = places(3);
        let node = |id| Some(start_with(folder.path(), &places, id, &flags(id)));
        let trio = Trio {
            nodes: (1..=3).map(node).collect(),
            folder,
            places,
            flags,
        };
        agree(&trio.up());
        trio.all_let_in();
        trio
    }

    /// All know that all are let in.
    fn all_let_in(&self) {
        let count = self.up().len();
        let all =
            |node: &&Server| metadata_at(&node.kafka, "").is_some_and(|m| m.brokers.len() == count);
        assert!(eventually(|| self.up().iter().all(all)));
    }

    /// One more node.
    pub fn grow(&mut self) -> usize {
        self.places.extend(places(1));
        self.nodes.push(None);
        let id = self.nodes.len();
        self.start(id);
        self.all_let_in();
        id
    }

    /// A node's data folder.
    pub fn data(&self, id: usize) -> PathBuf {
        self.folder.path().join(id.to_string())
    }

    pub fn up(&self) -> Vec<&Server> {
        self.nodes.iter().flatten().collect()
    }

    pub fn kill(&mut self, id: usize) {
        self.nodes[id - 1].take().unwrap().kill();
    }

    /// Asks one to stop, and waits for its end.
    pub fn stop(&mut self, id: usize) {
        let (code, log) = self.nodes[id - 1].take().unwrap().stop();
        assert_eq!(code, Some(0), "{log}");
    }

    /// All at once: none of them sees another go.
    pub fn kill_all(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            node.child.kill().unwrap();
        }
        for node in &mut self.nodes {
            node.take().unwrap().kill();
        }
    }

    /// A stopped node's disk is replaced by an empty one.
    pub fn empty(&self, id: usize) {
        std::fs::remove_dir_all(self.folder.path().join(id.to_string())).unwrap();
    }

    pub fn start(&mut self, id: usize) {
        let flags = (self.flags)(id);
        self.nodes[id - 1] = Some(start_with(self.folder.path(), &self.places, id, &flags));
    }

    /// One that was stopped comes back with its disk at another port, of which nobody was told: the seeds of all name the old one.
    pub fn start_elsewhere(&mut self, id: usize) {
        let (number, seeds) = (id.to_string(), self.places.join(","));
        self.places[id - 1] = places(1).remove(0);
        let more = ["--node-id", &number, "--seeds", &seeds];
        let started = Server::start_at(&self.data(id), &self.places[id - 1], &more);
        self.nodes[id - 1] = Some(started);
    }

    /// The controller, as all that are up know it.
    pub fn controller(&self) -> usize {
        let mut found = None;
        assert!(eventually(|| {
            let told: BTreeSet<i32> = self
                .up()
                .iter()
                .map(|node| metadata_at(&node.kafka, "").map_or(-1, |m| m.controller_id))
                .collect();
            found = told
                .first()
                .copied()
                .filter(|id| told.len() == 1 && *id > 0);
            found.is_some()
        }));
        usize::try_from(found.unwrap()).unwrap()
    }

    /// The partitions of a topic as all that are up know them, once `is` is true of each.
    pub fn partitions(
        &self,
        topic: &str,
        is: impl Fn(&MetadataResponsePartition) -> bool,
    ) -> Vec<MetadataResponsePartition> {
        let mut seen = Vec::new();
        let as_wanted = eventually(|| {
            let at = |node: &&Server| partitions_at(&node.kafka, topic);
            seen = self.up().iter().map(at).collect();
            let first = seen.first().cloned().flatten();
            first.is_some_and(|first| first.iter().all(&is))
                && seen.windows(2).all(|two| two[0] == two[1])
        });
        assert!(as_wanted, "{seen:#?}");
        seen.into_iter().next().flatten().unwrap()
    }

    /// Waits until all three are in sync everywhere.
    pub fn in_sync(&self, topic: &str) -> Vec<MetadataResponsePartition> {
        self.partitions(topic, |p| p.leader_id > 0 && p.isr_nodes.len() == 3)
    }

    /// Everything in a topic: (partition, offset) → value.
    pub fn read(&self, topic: &str) -> BTreeMap<(i32, i64), String> {
        let mut text = String::new();
        // A leader that has just come doesn't know at once where its partition ends.
        let read = || {
            let read = self.up()[0].run(&["consume", topic, "-e", "-f", "%p %o %s\\n"]);
            text = String::from_utf8_lossy(&read.stdout).into_owned();
            read.status.success()
        };
        assert!(eventually(read), "{text}");
        let line = |line: &str| {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap();
            let at = (word().parse().unwrap(), word().parse().unwrap());
            (at, word().to_owned())
        };
        text.lines().map(line).collect()
    }

    /// A command against any node that is there, which does what it is asked.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {words}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The rows of a command's answer.
    pub fn rows(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let all = [args, &["-o", "json"]].concat();
        let table: serde_json::Value = serde_json::from_str(&self.ok(&all)).unwrap();
        table["data"].as_array().unwrap().clone()
    }

    /// A command against any node that is there.
    pub fn run(&self, args: &[&str]) -> std::process::Output {
        let brokers = self.places.join(",");
        let mut all = vec!["-b", &brokers, "--timeout", "30s"];
        all.extend(args);
        run_with(&all, "")
    }
}

type Acknowledged = Mutex<BTreeMap<(i32, i64), String>>;

/// Threads that write with acks=all, one for each partition, as a client does that knows where the leader is and asks when it doesn't.
pub struct Writers {
    topic: String,
    partitions: i32,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Acknowledged>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    pub fn start(places: &[String], topic: &str, partitions: i32) -> Writers {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let writer = |partition| {
            let (stop, kept) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            let (places, topic) = (places.to_vec(), topic.to_owned());
            std::thread::spawn(move || write(&places, &topic, partition, &stop, &kept))
        };
        Writers {
            threads: (0..partitions).map(writer).collect(),
            topic: topic.to_owned(),
            partitions,
            stop,
            acknowledged,
        }
    }

    fn counts(&self) -> Vec<usize> {
        let kept = self.acknowledged.lock().unwrap();
        let of = |p| kept.keys().filter(|at| at.0 == p).count();
        (0..self.partitions).map(of).collect()
    }

    /// Waits until each partition has taken some more.
    pub fn go_on(&self) {
        let before = self.counts();
        let more = eventually(|| {
            let now = self.counts();
            now.iter()
                .zip(&before)
                .all(|(now, before)| *now > before + 20)
        });
        assert!(more, "from {before:?} to {:?}", self.counts());
    }

    /// Everything that was acknowledged by now is where it was said to be.
    pub fn check(&self, trio: &Trio) {
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        let there = trio.read(&self.topic);
        let lost: Vec<_> = acknowledged
            .iter()
            .filter(|(at, value)| there.get(at) != Some(value))
            .map(|(at, value)| (at, value, there.get(at)))
            .collect();
        assert!(
            lost.is_empty(),
            "{} of {} records: {lost:?}",
            lost.len(),
            acknowledged.len()
        );
    }

    /// Ends the writers. Nothing was acknowledged at an offset at which something else had been. What was, by partition and offset.
    pub fn stop(mut self) -> BTreeSet<(i32, i64)> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
        self.acknowledged.lock().unwrap().keys().copied().collect()
    }
}

fn write(
    places: &[String],
    topic: &str,
    partition: i32,
    stop: &AtomicBool,
    acknowledged: &Acknowledged,
) {
    let mut leader: Option<String> = None;
    // Every try has values of its own: of one that got no answer nobody knows what became of it.
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let place = match leader.take() {
            Some(place) => place,
            None => match find_leader(places, topic, partition, number) {
                Some(place) => place,
                None => {
                    std::thread::sleep(AGAIN);
                    continue;
                }
            },
        };
        let values: Vec<String> = (0..3)
            .map(|i| format!("{partition}/{number}/{i}"))
            .collect();
        let Some(base) = produce(&place, topic, partition, &values) else {
            std::thread::sleep(AGAIN);
            continue;
        };
        let mut kept = acknowledged.lock().unwrap();
        for (offset, value) in (base..).zip(values) {
            let before = kept.insert((partition, offset), value);
            assert_eq!(
                before, None,
                "offset {offset} of {partition} was given twice"
            );
        }
        drop(kept);
        leader = Some(place);
    }
}

pub fn find_leader(places: &[String], topic: &str, partition: i32, number: u64) -> Option<String> {
    let ask = &places[usize::try_from(number).unwrap() % places.len()];
    let metadata = metadata_at(ask, topic)?;
    let partitions = &metadata.topics.first()?.partitions;
    let leads = partitions.iter().find(|p| p.partition_index == partition)?;
    let broker = metadata
        .brokers
        .iter()
        .find(|b| b.node_id == leads.leader_id)?;
    Some(format!("{}:{}", broker.host, broker.port))
}

/// The offset of the first, once all that are in sync have them.
pub fn produce(place: &str, topic: &str, partition: i32, values: &[String]) -> Option<i64> {
    let now = jiff::Timestamp::now().as_millisecond();
    let mut batch = BatchBuilder::new(Compression::None);
    for value in values {
        batch.push(now, None, Some(value.as_bytes()), &[]);
    }
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 3_000,
        topic_data: vec![TopicProduceData {
            name: topic.to_owned(),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(batch.build().into()),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    };
    let answer = try_ask(place, 9, &request, REQUEST).ok()?;
    let part = answer
        .responses
        .first()?
        .partition_responses
        .first()?
        .clone();
    (part.error_code == ErrorCode::NONE).then_some(part.base_offset)
}
