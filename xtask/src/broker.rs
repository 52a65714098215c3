//! A broker on 127.0.0.1 for tests and measurements: Riverlog, or a real Apache Kafka.

use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::Result;
use crate::nets::Net;
use crate::peer::{kafka, nats};
use crate::run::{self, Run, cargo, program};

/// How long a broker may take until it answers; a JVM on a busy small machine needs tens of seconds.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// How long a broker may take to end after SIGTERM before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Kind {
    Riverlog,
    Kafka,
    /// Only measured beside, by programs that speak its protocol.
    #[value(skip)]
    Nats,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Riverlog => "Riverlog",
            Kind::Kafka => "Kafka",
            Kind::Nats => "NATS",
        })
    }
}

/// How a broker is to be started.
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    /// The folder for its data, settings and log; made if needed, kept afterwards.
    pub(crate) dir: PathBuf,
    /// Where it listens, on `host`.
    pub(crate) port: u16,
    /// 127.0.0.1, or its address on a network of its own.
    pub(crate) host: IpAddr,
    /// What it is started with, to be on that network.
    under: Vec<String>,
    /// The port that its metadata names when it isn't `port`: that of a relay before it.
    pub(crate) advertised: Option<u16>,
    /// Further settings under Kafka's key names; they win over those set here.
    pub(crate) settings: Vec<(String, String)>,
    /// Riverlog only: the release build, for measurements.
    pub(crate) release: bool,
    /// Its place among several; alone without.
    pub(crate) member: Option<Member>,
}

/// One broker of a cluster, where each is a controller too.
#[derive(Clone)]
pub(crate) struct Member {
    /// From 1.
    pub(crate) node: usize,
    /// What storage is formatted with (Kafka).
    pub(crate) cluster_id: String,
    /// Of all, in the order of the nodes: where clients and where controllers reach them.
    pub(crate) places: Vec<(SocketAddr, SocketAddr)>,
}

impl Spec {
    /// A broker of the kind with a free port and its defaults, in `dir`.
    pub(crate) fn new(kind: Kind, dir: impl Into<PathBuf>) -> Result<Self> {
        Ok(Self {
            kind,
            dir: dir.into(),
            port: free_port()?,
            host: HERE,
            under: Vec::new(),
            advertised: None,
            settings: Vec::new(),
            release: false,
            member: None,
        })
    }

    /// `nodes` brokers that are one cluster, each in a rack of its own (`rack-1` and so on) and, where there are some, on a network of its own, once
    /// each of them knows all.
    pub(crate) fn start_cluster(
        kind: Kind,
        dir: &Path,
        nodes: usize,
        settings: &[(&str, &str)],
        nets: &[Net],
    ) -> Result<Vec<Broker>> {
        let cluster_id = kafka::new_cluster_id()?;
        // All at once: a port that was free is given out again.
        let held: Vec<TcpListener> = (0..2 * nodes)
            .map(|_| TcpListener::bind(address(0)))
            .collect::<std::io::Result<_>>()?;
        let ports: Vec<u16> = held
            .iter()
            .map(|listener| Ok(listener.local_addr()?.port()))
            .collect::<std::io::Result<_>>()?;
        drop(held);
        let host = |node: usize| nets.get(node).map_or(HERE, |net| net.address);
        let at = |(node, pair): (usize, &[u16])| {
            let on = |port| SocketAddr::new(host(node), port);
            (on(pair[0]), on(pair[1]))
        };
        let mut member = Member {
            node: 0,
            cluster_id,
            places: ports.chunks(2).enumerate().map(at).collect(),
        };
        let mut brokers = Vec::new();
        for node in 1..=nodes {
            member.node = node;
            let mut spec = Spec::new(kind, dir.join(node.to_string()))?;
            let place = member.places[node - 1].0;
            (spec.host, spec.port) = (place.ip(), place.port());
            if let Some(net) = nets.get(node - 1) {
                spec.under.clone_from(&net.under);
            }
            spec.release = true;
            spec.member = Some(member.clone());
            spec = spec.set("broker.rack", &format!("rack-{node}"));
            spec.settings
                .extend(settings.iter().map(|(k, v)| ((*k).into(), (*v).into())));
            brokers.push(spec.spawn(false)?);
        }
        for broker in &mut brokers {
            broker.wait_ready(i32::try_from(nodes)?)?;
        }
        Ok(brokers)
    }

    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    fn log(&self) -> PathBuf {
        self.dir.join("broker.log")
    }

    /// A port on its network.
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.host, port)
    }

    fn riverlog(&self) -> Result<Run> {
        let own = self.at(self.port);
        let advertised = self.at(self.advertised.unwrap_or(self.port));
        let settings = [
            format!("listeners=PLAINTEXT://{own}"),
            format!("advertised.listeners=PLAINTEXT://{advertised}"),
            format!("log.dirs={}", self.dir.join("data").display()),
            // Whoever runs a broker of their own has the usual port.
            "riverlog.http.address=127.0.0.1:0".to_owned(),
        ];
        let given = self
            .settings
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let words = settings.into_iter().chain(given);
        let mut more = Vec::new();
        if let Some(member) = &self.member {
            let seeds = member.places.iter().map(|(place, _)| place.to_string());
            let seeds: Vec<String> = seeds.collect();
            if !self.host.is_loopback() {
                // On a network that nobody else is on.
                more.push("--insecure".to_owned());
            }
            more.push(format!("--node-id={}", member.node));
            more.push(format!("--seeds={}", seeds.join(",")));
        }
        Ok(program(riverlog_binary(self.release)?)
            .arg("serve")
            .args(more)
            .args(words.flat_map(|setting| ["--set".to_owned(), setting])))
    }

    /// Starts it and returns once it answers. `detached`: it outlives this process.
    pub(crate) fn start(&self, detached: bool) -> Result<Broker> {
        let started = Instant::now();
        let mut broker = self.spawn(detached)?;
        broker.wait_ready(1)?;
        broker.ready_after = started.elapsed();
        Ok(broker)
    }

    fn spawn(&self, detached: bool) -> Result<Broker> {
        fs::create_dir_all(&self.dir)?;
        if TcpStream::connect(self.at(self.port)).is_ok() {
            return Err(format!("port {} is in use: choose another", self.port).into());
        }
        let command = match self.kind {
            Kind::Kafka => kafka::launch(self)?,
            Kind::Riverlog => self.riverlog()?,
            Kind::Nats => nats::launch(self)?,
        };
        let child = command
            .under(&self.under)
            .spawn_logged(&self.log(), detached)?;
        Ok(Broker {
            kind: self.kind,
            at: self.at(self.port),
            child: Some(child),
            log: self.log(),
            ready_after: Duration::ZERO,
        })
    }
}

/// A running broker; stopped when dropped.
pub(crate) struct Broker {
    pub(crate) kind: Kind,
    /// Where it listens.
    at: SocketAddr,
    /// From the start of the process to its first answer.
    pub(crate) ready_after: Duration,
    child: Option<Child>,
    log: PathBuf,
}

impl Broker {
    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// `HOST:PORT`.
    pub(crate) fn bootstrap(&self) -> String {
        self.at.to_string()
    }

    pub(crate) fn port(&self) -> u16 {
        self.at.port()
    }

    /// As a power cut for the process: kill -9.
    pub(crate) fn kill(mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Lets it run on when this process ends; its pid.
    pub(crate) fn leave_running(mut self) -> u32 {
        let pid = self.pid();
        self.child = None;
        pid
    }

    /// Until it answers and knows `brokers` of them, itself included.
    fn wait_ready(&mut self, brokers: i32) -> Result<()> {
        let end = Instant::now() + READY_LIMIT;
        let log_end = |log: &Path| {
            let text = fs::read_to_string(log).unwrap_or_default();
            run::last_lines(&text, 15)
        };
        let answers = || match self.kind {
            Kind::Riverlog | Kind::Kafka => known(self.at) >= brokers,
            Kind::Nats => nats::answers(self.at.port()),
        };
        while !answers() {
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                let said = log_end(&self.log);
                return Err(format!("{} ended at its start: {status}\n{said}", self.kind).into());
            }
            if Instant::now() > end {
                let said = log_end(&self.log);
                let limit = READY_LIMIT.as_secs();
                return Err(format!("{} didn't answer in {limit} s\n{said}", self.kind).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// `PID@PORT,…`, as the programs that stop brokers take it.
pub(crate) fn pids(brokers: &[Broker]) -> String {
    let each = brokers.iter().map(|b| format!("{}@{}", b.pid(), b.port()));
    each.collect::<Vec<_>>().join(",")
}

impl Drop for Broker {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        terminate(child.id());
        if !matches!(run::wait(child, STOP_LIMIT), Ok(Some(_))) {
            let log = self.log.display();
            eprintln!(
                "xtask: {} didn't end after SIGTERM and is killed; see {log}",
                self.kind
            );
            // An error means that it ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends SIGTERM to one process of ours.
pub(crate) fn terminate(pid: u32) {
    let pid = i32::try_from(pid).ok();
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        // One that has ended already is what is wanted.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::new(HERE, port)
}

/// A port that nobody listens on now.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(address(0))?;
    Ok(listener.local_addr()?.port())
}

/// Builds the server (a moment when it is built already) and returns the binary's path; with `XTASK_RIVERLOG` set
/// that binary is taken as it is.
pub(crate) fn riverlog_binary(release: bool) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("XTASK_RIVERLOG") {
        return Ok(std::path::absolute(given)?);
    }
    let build = cargo().args(["build", "--quiet", "--package", "riverlog-server"]);
    let (build, profile) = match release {
        true => (build.arg("--release"), "release"),
        false => (build, "debug"),
    };
    build.limit(1800).output()?;
    Ok(crate::place::target().join(profile).join("riverlog"))
}

/// Metadata version 1 for no topics, as the oldest clients ask.
const METADATA_REQUEST: [u8; 18] = [
    0, 0, 0, 14, // length
    0, 3, 0, 1, // api key, version
    0, 0, 0, 1, // correlation id
    0xff, 0xff, // client id: null
    0, 0, 0, 0, // no topics
];

/// How many brokers the one at that place names when it is asked for metadata; 0 when it doesn't answer.
fn known(at: SocketAddr) -> i32 {
    let ask = || -> std::io::Result<i32> {
        let mut socket = TcpStream::connect_timeout(&at, Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.write_all(&METADATA_REQUEST)?;
        // Length, correlation id, number of brokers.
        let mut head = [0; 12];
        socket.read_exact(&mut head)?;
        let [.., a, b, c, d] = head;
        match head[4..8] == [0, 0, 0, 1] {
            true => Ok(i32::from_be_bytes([a, b, c, d])),
            false => Ok(0),
        }
    };
    ask().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_answers_on_a_free_port() {
        assert_eq!(known(address(free_port().unwrap())), 0);
    }

    #[test]
    fn the_brokers_that_an_answer_names_are_counted() {
        for brokers in [3, 1, 0] {
            let listener = TcpListener::bind(address(0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = std::thread::spawn(move || {
                let (mut socket, _) = listener.accept().unwrap();
                let mut request = [0; METADATA_REQUEST.len()];
                socket.read_exact(&mut request).unwrap();
                assert_eq!(request, METADATA_REQUEST);
                socket
                    .write_all(&[0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, brokers])
                    .unwrap();
            });
            assert_eq!(known(address(port)), i32::from(brokers));
            server.join().unwrap();
        }
    }
}
