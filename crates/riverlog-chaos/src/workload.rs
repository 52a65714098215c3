//! The clients: a Python process that is told what to do a line at a time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::{Failure, Result, broken};

const PROGRAM: &str = include_str!("../clients/workload.py");

/// Running clients. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Workload {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    pub(crate) history: PathBuf,
}

/// What the clients are to do, where it differs from the usual.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) partitions: u32,
    pub(crate) rate: u32,
    pub(crate) most_bytes: u32,
    /// Copies of the topic; with several, two of them must have what is acknowledged.
    pub(crate) replicas: u32,
    /// What librdkafka is to tell of itself.
    pub(crate) debug: Option<String>,
}

impl Default for Load {
    fn default() -> Self {
        Load {
            partitions: 4,
            rate: 300,
            most_bytes: 1500,
            replicas: 1,
            debug: None,
        }
    }
}

impl Load {
    /// As much as can be read and judged after so many rounds.
    pub(crate) fn for_rounds(rounds: u32) -> Load {
        Load {
            rate: if rounds > 20 { 60 } else { 300 },
            ..Load::default()
        }
    }
}

impl Workload {
    /// Makes the topic and starts all clients. `at`: a server that is asked what it serves; `brokers`: those that clients begin with.
    pub(crate) fn start(
        python: &Path,
        folder: &Path,
        at: SocketAddr,
        brokers: &str,
        seed: u64,
        load: &Load,
    ) -> Result<Workload> {
        let program = folder.join("workload.py");
        fs::write(&program, PROGRAM)?;
        let history = folder.join("clients.jsonl");
        let log = fs::File::create(folder.join("clients.log"))?;
        // EndTxn and ConsumerGroupHeartbeat.
        let apis = crate::server::apis(at)?;
        let more = [(26, "--transactions"), (68, "--modern")];
        let more = more.iter().filter(|(key, _)| apis.contains(key));
        let mut child = Command::new(python)
            .arg(&program)
            .args(more.map(|(_, flag)| *flag))
            .args(["--bootstrap", brokers])
            .arg("--history")
            .arg(&history)
            .args(["--seed", &seed.to_string()])
            .args(["--partitions", &load.partitions.to_string()])
            .args(["--rate", &load.rate.to_string()])
            .args(["--most-bytes", &load.most_bytes.to_string()])
            .args(["--replicas", &load.replicas.to_string()])
            .args(load.debug.iter().flat_map(|what| ["--debug", what]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return broken("the clients have no pipes");
        };
        let mut workload = Workload {
            child,
            to,
            from: BufReader::new(from),
            history,
        };
        workload.answer("start")?;
        Ok(workload)
    }

    /// Tells them something, with the seconds that it may take. Their refusal is a failure.
    pub(crate) fn tell(&mut self, what: &str, seconds: u32) -> Result<String> {
        writeln!(self.to, "{what} {seconds}")
            .map_err(|error| Failure::Broken(format!("{what}: the clients are gone: {error}")))?;
        self.answer(what)
    }

    fn answer(&mut self, to: &str) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
            ("ok", said) => Ok(said.to_owned()),
            ("no", why) => broken(format!("{to}: {why}")),
            _ => broken(format!(
                "{to}: the clients ended; their last words are in clients.log"
            )),
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // It ends by itself after "end".
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
