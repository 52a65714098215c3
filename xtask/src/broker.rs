//! A broker on 127.0.0.1 for tests and measurements: Riverlog, or a real Apache Kafka.

use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::Result;
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
    /// Where it listens on 127.0.0.1.
    pub(crate) port: u16,
    /// The port that its metadata names when it isn't `port`: that of a relay before it.
    pub(crate) advertised: Option<u16>,
    /// Further settings under Kafka's key names; they win over those set here.
    pub(crate) settings: Vec<(String, String)>,
    /// Riverlog only: the release build, for measurements.
    pub(crate) release: bool,
}

impl Spec {
    /// A broker of the kind with a free port and its defaults, in `dir`.
    pub(crate) fn new(kind: Kind, dir: impl Into<PathBuf>) -> Result<Self> {
        Ok(Self {
            kind,
            dir: dir.into(),
            port: free_port()?,
            advertised: None,
            settings: Vec::new(),
            release: false,
        })
    }

    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    fn log(&self) -> PathBuf {
        self.dir.join("broker.log")
    }

    fn riverlog(&self) -> Result<Run> {
        let own = address(self.port);
        let advertised = address(self.advertised.unwrap_or(self.port));
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
        Ok(program(riverlog_binary(self.release)?)
            .arg("serve")
            .args(words.flat_map(|setting| ["--set".to_owned(), setting])))
    }

    /// Starts it and returns once it answers. `detached`: it outlives this process.
    pub(crate) fn start(&self, detached: bool) -> Result<Broker> {
        fs::create_dir_all(&self.dir)?;
        if TcpStream::connect(address(self.port)).is_ok() {
            return Err(format!("port {} is in use: choose another", self.port).into());
        }
        let command = match self.kind {
            Kind::Kafka => kafka::launch(self)?,
            Kind::Riverlog => self.riverlog()?,
            Kind::Nats => nats::launch(self)?,
        };
        let started = Instant::now();
        let child = command.spawn_logged(&self.log(), detached)?;
        let mut broker = Broker {
            kind: self.kind,
            port: self.port,
            child: Some(child),
            log: self.log(),
            ready_after: Duration::ZERO,
        };
        broker.wait_ready()?;
        broker.ready_after = started.elapsed();
        Ok(broker)
    }
}

/// A running broker; stopped when dropped.
pub(crate) struct Broker {
    pub(crate) kind: Kind,
    pub(crate) port: u16,
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

    /// `127.0.0.1:PORT`.
    pub(crate) fn bootstrap(&self) -> String {
        address(self.port).to_string()
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

    fn wait_ready(&mut self) -> Result<()> {
        let end = Instant::now() + READY_LIMIT;
        let log_end = |log: &Path| {
            let text = fs::read_to_string(log).unwrap_or_default();
            run::last_lines(&text, 15)
        };
        let answers = match self.kind {
            Kind::Riverlog | Kind::Kafka => answers,
            Kind::Nats => nats::answers,
        };
        while !answers(self.port) {
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

pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
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

/// Whether the broker at `port` answers a Metadata request and names at least one broker.
fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut socket = TcpStream::connect_timeout(&address(port), Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.write_all(&METADATA_REQUEST)?;
        // Length, correlation id, number of brokers.
        let mut head = [0; 12];
        socket.read_exact(&mut head)?;
        let [.., a, b, c, d] = head;
        Ok(head[4..8] == [0, 0, 0, 1] && i32::from_be_bytes([a, b, c, d]) > 0)
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_answers_on_a_free_port() {
        assert!(!answers(free_port().unwrap()));
    }

    #[test]
    fn an_answer_that_names_a_broker_counts_and_an_empty_one_does_not() {
        for (brokers, expected) in [(1, true), (0, false)] {
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
            assert_eq!(answers(port), expected);
            server.join().unwrap();
        }
    }
}
