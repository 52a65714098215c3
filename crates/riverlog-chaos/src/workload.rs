//! The clients: a Python process of librdkafka's, and where that is asked for one of Java's and one of Go's beside it, which are told what to do a
//! line at a time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use riverlog_checker::Event;

use crate::{Failure, Result, broken};

const PYTHON: &str = include_str!("../clients/workload.py");
const JAVA: &str = include_str!("../clients/Workload.java");

/// What the clients are made of.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Clients {
    /// A Python that has confluent-kafka
    #[arg(long)]
    pub(crate) python: PathBuf,
    /// The folder of Kafka's jars: its Java client takes part
    #[arg(long, value_name = "JARS")]
    java: Option<PathBuf>,
    /// The program that `clients/go` makes: franz-go takes part
    #[arg(long, value_name = "PROGRAM")]
    go: Option<PathBuf>,
    /// A setting of librdkafka's clients; what `debug=cgrp,protocol` has them tell is in clients.log
    #[arg(long, value_name = "KEY=VALUE")]
    client: Vec<String>,
}

impl Clients {
    /// The commands, each with a name. The first makes the topic.
    fn commands(&self, folder: &Path) -> Result<Vec<(&'static str, Command)>> {
        let program = folder.join("workload.py");
        fs::write(&program, PYTHON)?;
        let mut python = Command::new(&self.python);
        python.arg(&program);
        python.args(self.client.iter().flat_map(|setting| ["--set", setting]));
        let mut all = vec![("clients", python)];
        if let Some(jars) = &self.java {
            let program = folder.join("Workload.java");
            fs::write(&program, JAVA)?;
            let mut java = Command::new("java");
            // What the machine itself warns of isn't an answer.
            let quiet = ["-Xlog:disable", "-Xlog:all=warning:stderr"];
            java.args(["-XX:TieredStopAtLevel=1", "-Xmx192m"])
                .args(quiet)
                .arg("-cp")
                .arg(jars.join("*"))
                .arg(&program);
            all.push(("java", java));
        }
        if let Some(go) = &self.go {
            all.push(("go", Command::new(go)));
        }
        Ok(all)
    }
}

/// Running clients.
#[derive(Debug)]
pub(crate) struct Workload(Vec<Program>);

/// A process of clients. Killed when dropped.
#[derive(Debug)]
struct Program {
    name: &'static str,
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    history: PathBuf,
}

/// What the clients are to do, where it differs from the usual.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) partitions: u32,
    pub(crate) rate: u32,
    pub(crate) most_bytes: u32,
    /// Copies of the topic; with several, two of them must have what is acknowledged.
    pub(crate) replicas: u32,
}

impl Default for Load {
    fn default() -> Self {
        Load {
            partitions: 4,
            rate: 300,
            most_bytes: 1500,
            replicas: 1,
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
        clients: &Clients,
        folder: &Path,
        at: SocketAddr,
        brokers: &str,
        seed: u64,
        load: &Load,
    ) -> Result<Workload> {
        // EndTxn and ConsumerGroupHeartbeat.
        let apis = crate::server::apis(at)?;
        let more = [(26, "--transactions"), (68, "--modern")];
        let more = more.iter().filter(|(key, _)| apis.contains(key));
        let more: Vec<&str> = more.map(|(_, flag)| *flag).collect();
        let mut programs = Vec::new();
        for (name, mut command) in clients.commands(folder)? {
            let history = folder.join(format!("{name}.jsonl"));
            let log = fs::File::create(folder.join(format!("{name}.log")))?;
            let mut child = command
                .args(["--bootstrap", brokers])
                .arg("--history")
                .arg(&history)
                .args(["--seed", &seed.to_string()])
                .args(["--partitions", &load.partitions.to_string()])
                .args(["--rate", &load.rate.to_string()])
                .args(["--most-bytes", &load.most_bytes.to_string()])
                .args(["--replicas", &load.replicas.to_string()])
                .args(&more)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(log)
                .spawn()?;
            let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
                return broken("the clients have no pipes");
            };
            let mut program = Program {
                name,
                child,
                to,
                from: BufReader::new(from),
                history,
            };
            // The topic is there when the first has answered.
            program.answer("start")?;
            programs.push(program);
        }
        Ok(Workload(programs))
    }

    /// Tells them something, with the seconds that it may take. Their refusal is a failure; what they say is the first one's word.
    pub(crate) fn tell(&mut self, what: &str, seconds: u32) -> Result<String> {
        for program in &mut self.0 {
            program.ask(what, seconds)?;
        }
        // All are heard: none is left with an answer that would be taken for that to the next question.
        let answers: Vec<Result<String>> = self.0.iter_mut().map(|p| p.answer(what)).collect();
        let mut said = answers.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
        Ok(said.next().unwrap_or_default())
    }

    /// What all of them have written down.
    pub(crate) fn history(self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for program in &self.0 {
            let file = fs::File::open(&program.history)?;
            events.extend(riverlog_checker::read(BufReader::new(file))?);
        }
        Ok(events)
    }
}

impl Program {
    fn ask(&mut self, what: &str, seconds: u32) -> Result<()> {
        let name = self.name;
        writeln!(self.to, "{what} {seconds}")
            .map_err(|error| Failure::Broken(format!("{what}: {name} is gone: {error}")))
    }

    fn answer(&mut self, to: &str) -> Result<String> {
        let name = self.name;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
            ("ok", said) => Ok(said.to_owned()),
            ("no", why) => broken(format!("{to}: {name}: {why}")),
            ("", _) => broken(format!(
                "{to}: {name} ended; its last words are in {name}.log"
            )),
            _ => broken(format!("{to}: {name} says {line:?}")),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends by itself after "end".
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
