//! Drills with three nodes, each with a network and a disk of its own.
//!
//! Clients see all of them. While a fault lasts that leaves a majority, everyone must get on; in the end all that was acknowledged is there
//! once, at its place, and all three are in sync.

mod faults;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use riverlog_checker::{Event, What};

use crate::disk::{self, Image};
use crate::net::{self, Net};
use crate::play::{self, Played};
use crate::server::{Launch, Server};
use crate::system::{Random, now, until};
use crate::workload::{Clients, Load, Workload};
use crate::{Options, Result, broken};

pub(crate) use faults::ALL;

/// Nodes.
const NODES: usize = 3;
/// MiB of each node's disk, which is a file with holes. Forty-seven rounds with a slow disk, of half a minute each, write 384.
const DISK_MIB: u64 = 1_024;
const PORT: u16 = 9092;
/// Seconds that anything may take after a fault: 30 by promise, and some for a busy machine.
const PATIENCE_S: u32 = 60;
/// How long it may take until all copies are in sync again.
const IN_SYNC: Duration = Duration::from_secs(90);
/// How old what a superseded leader tells may be: its session, and a second until a controller that is cut off notices that (`docs/adr/0012`).
const LAG: Duration = Duration::from_millis(4_000);
/// How long a stop may take.
const STOP: Duration = Duration::from_secs(20);

/// A fault that can be played against three nodes.
#[derive(Debug)]
pub(crate) struct ClusterDrill {
    pub(crate) name: &'static str,
    /// How often it comes unless that is said.
    pub(crate) rounds: u32,
    run: fn(&mut Trio) -> Result<()>,
}

/// A node.
#[derive(Debug)]
struct Node {
    launch: Launch,
    // Dropped in this order.
    server: Option<Server>,
    disk: Image,
}

/// Three nodes under way, and their clients.
#[derive(Debug)]
struct Trio {
    folder: PathBuf,
    clients: Clients,
    binary: PathBuf,
    random: Random,
    rounds: u32,
    notes: Vec<String>,
    seed: u64,
    events: Vec<Event>,
    // Dropped in this order: clients, nodes, networks.
    workload: Option<Workload>,
    nodes: Vec<Node>,
    net: Net,
}

/// Plays a drill to its end and judges it.
pub(crate) fn play(drill: &ClusterDrill, options: &Options) -> Result<String> {
    disk::needs()?;
    net::needs()?;
    play::play(
        drill.name,
        options,
        |folder| Trio::new(drill, options, folder),
        |trio| {
            trio.begin()?;
            (drill.run)(trio)?;
            trio.verdict()
        },
    )
}

impl Played for Trio {
    fn notes(&self) -> &[String] {
        &self.notes
    }
    fn events(&self) -> &[Event] {
        &self.events
    }
}

impl Trio {
    fn new(drill: &ClusterDrill, options: &Options, folder: &Path) -> Result<Trio> {
        let net = Net::new(NODES)?;
        let key = folder.join("cluster.key");
        fs::write(&key, "of a drill; ".repeat(8))?;
        let seeds: Vec<String> = (1..=NODES)
            .map(|node| SocketAddr::new(net.address(node), PORT).to_string())
            .collect();
        let settings = [
            // As small as it can be: used again and again.
            "riverlog.wal.bytes=8388608",
            "offsets.topic.num.partitions=3",
            "transaction.state.log.num.partitions=3",
            "group.initial.rebalance.delay.ms=0",
            "replica.lag.time.max.ms=3000",
        ];
        let mut nodes = Vec::new();
        for node in 1..=NODES {
            let place = folder.join(node.to_string());
            fs::create_dir_all(&place)?;
            let disk = Image::new(&place, DISK_MIB, &options.clients.python)?;
            let more = [
                "--insecure".to_owned(),
                format!("--node-id={node}"),
                format!("--seeds={}", seeds.join(",")),
                format!("--cluster-key={}", key.display()),
            ];
            let launch = Launch {
                binary: options.server.clone(),
                data: disk.mount.join("data"),
                log: folder.join(format!("server-{node}.log")),
                host: net.address(node),
                port: PORT,
                settings: settings
                    .into_iter()
                    .map(str::to_owned)
                    .chain(options.set.iter().cloned())
                    .collect(),
                more: more.to_vec(),
                under: net.under(node),
                environment: Vec::new(),
            };
            nodes.push(Node {
                launch,
                server: None,
                disk,
            });
        }
        Ok(Trio {
            folder: folder.to_owned(),
            clients: options.clients.clone(),
            binary: options.server.clone(),
            random: Random::new(options.seed),
            rounds: options.rounds.unwrap_or(drill.rounds),
            notes: Vec::new(),
            seed: options.seed,
            events: Vec::new(),
            workload: None,
            nodes,
            net,
        })
    }

    /// Starts all nodes, and the clients once they are one cluster.
    fn begin(&mut self) -> Result<()> {
        for node in 1..=NODES {
            self.spawn(node)?;
        }
        for node in 1..=NODES {
            self.answers(node)?;
        }
        self.in_sync()?;
        let most = u64::try_from(LAG.as_nanos()).unwrap_or(u64::MAX);
        self.note(What::Lags { most });
        let brokers = self.brokers();
        let load = Load {
            replicas: 3,
            ..Load::for_rounds(self.rounds)
        };
        let (clients, folder, at) = (&self.clients, &self.folder, self.place(1));
        let workload = Workload::start(clients, folder, at, &brokers, self.seed, &load)?;
        self.workload = Some(workload);
        self.progress()
    }

    fn node(&mut self, node: usize) -> Result<&mut Node> {
        match self.nodes.get_mut(node - 1) {
            Some(node) => Ok(node),
            None => broken(format!("there is no node {node}")),
        }
    }

    fn place(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.net.address(node), PORT)
    }

    fn brokers(&self) -> String {
        let places: Vec<String> = (1..=NODES).map(|n| self.place(n).to_string()).collect();
        places.join(",")
    }

    /// Any of them.
    fn any(&mut self) -> usize {
        1 + self.random.below(NODES as u64) as usize
    }

    /// Any two of them, in an order.
    fn two(&mut self) -> (usize, usize) {
        let first = self.any();
        let step = 1 + self.random.below(NODES as u64 - 1) as usize;
        (first, (first - 1 + step) % NODES + 1)
    }

    fn spawn(&mut self, node: usize) -> Result<()> {
        let node = self.node(node)?;
        node.server = None;
        node.server = Some(node.launch.spawn()?);
        Ok(())
    }

    fn answers(&mut self, node: usize) -> Result<()> {
        let node = self.node(node)?;
        match &mut node.server {
            Some(server) => node.launch.wait(server),
            None => broken("no server is running"),
        }
    }

    fn start(&mut self, node: usize) -> Result<()> {
        self.spawn(node)?;
        self.answers(node)
    }

    fn kill(&mut self, node: usize) -> Result<()> {
        if let Some(server) = self.node(node)?.server.take() {
            server.kill();
        }
        Ok(())
    }

    fn server(&mut self, node: usize) -> Result<&mut Server> {
        match &mut self.node(node)?.server {
            Some(server) => Ok(server),
            None => broken("no server is running"),
        }
    }

    /// The power of some nodes goes, of all at the same moment; their disks are there again when this returns.
    fn power_cut(&mut self, nodes: &[usize]) -> Result<()> {
        for node in nodes {
            self.server(*node)?.freeze()?;
        }
        for node in nodes {
            self.node(*node)?.disk.shut_down()?;
        }
        for node in nodes {
            self.kill(*node)?;
            let disk = &self.node(*node)?.disk;
            disk.unmount()?;
            disk.mount()?;
        }
        Ok(())
    }

    /// Waits until all copies of everything are in sync.
    fn in_sync(&mut self) -> Result<()> {
        let (binary, brokers) = (self.binary.clone(), self.brokers());
        let healthy = || {
            Command::new(&binary)
                .args(["-b", &brokers, "--timeout", "10s", "cluster", "health"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        let pause = || std::thread::sleep(Duration::from_millis(100));
        match until(IN_SYNC, || {
            healthy() || {
                pause();
                false
            }
        }) {
            true => Ok(()),
            false => broken(format!(
                "`cluster health` finds something {} s after all is well again",
                IN_SYNC.as_secs()
            )),
        }
    }

    fn tell(&mut self, what: &str, seconds: u32) -> Result<String> {
        match &mut self.workload {
            Some(workload) => workload.tell(what, seconds),
            None => broken("no clients are running"),
        }
    }

    /// Every producer is answered and every group gets something.
    fn progress(&mut self) -> Result<()> {
        self.tell("progress", PATIENCE_S).map(drop)
    }

    fn note(&mut self, what: What) {
        self.events.push(Event {
            at: now(),
            client: "drill".into(),
            what,
        });
    }

    /// A fault begins now.
    fn fault(&mut self, what: &str) {
        self.note(What::Fault { what: what.into() });
    }

    /// Heals, demands that all move again, reads everything, and lets the checker judge.
    fn verdict(&mut self) -> Result<String> {
        self.note(What::Healed);
        let moved = self.progress();
        let quiet = self.tell("quiet", PATIENCE_S);
        let drained = self.tell("drain", PATIENCE_S);
        moved?;
        quiet?;
        drained?;
        self.in_sync()?;
        self.tell("whole", 30)?;
        self.tell("end", PATIENCE_S)?;
        let mut stopped = true;
        for node in &mut self.nodes {
            stopped &= node.server.take().is_none_or(|server| server.stop(STOP));
        }
        if !stopped {
            return broken("a node doesn't stop when it is asked to");
        }
        let mut events = self.events.clone();
        if let Some(workload) = self.workload.take() {
            events.extend(workload.history()?);
        }
        for node in &self.nodes {
            let said = fs::read_to_string(&node.launch.log).unwrap_or_default();
            if let Some(line) = said.lines().find(|line| line.contains("panicked at")) {
                return broken(format!("a node panicked: {line}"));
            }
        }
        let report = riverlog_checker::check(&events);
        match report.anomalies.is_empty() {
            true => Ok(report.to_string()),
            false => broken(report.to_string()),
        }
    }
}
