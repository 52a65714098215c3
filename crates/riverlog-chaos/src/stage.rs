//! What all drills share: a server on its disk, clients, a record of the faults, and the verdict in the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riverlog_checker::{Event, What};

use crate::disk::Image;
use crate::play::{self, Played};
use crate::server::{Launch, Server, address, free_port};
use crate::system::{Random, now};
use crate::workload::{Clients, Load, Workload};
use crate::{Options, Result, broken};

/// Seconds that anything may take after the last fault: 30 by promise, and some for a busy machine.
const PATIENCE_S: u32 = 45;

/// How long a stop may take.
const STOP: Duration = Duration::from_secs(20);

/// A fault that can be played.
#[derive(Debug)]
pub(crate) struct Drill {
    pub(crate) name: &'static str,
    /// Size of the image that the data lies on; `None`: an ordinary folder is enough.
    pub(crate) disk_mib: Option<u64>,
    /// How often the fault comes unless that is said.
    pub(crate) rounds: u32,
    pub(crate) run: fn(&mut Stage) -> Result<()>,
}

/// A drill under way.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) folder: PathBuf,
    pub(crate) clients: Clients,
    pub(crate) launch: Launch,
    pub(crate) random: Random,
    pub(crate) rounds: u32,
    /// What the drill has to tell besides the checker, "3 kills" say.
    pub(crate) notes: Vec<String>,
    seed: u64,
    events: Vec<Event>,
    // Dropped in this order: clients, server, disk.
    pub(crate) workload: Option<Workload>,
    pub(crate) server: Option<Server>,
    pub(crate) disk: Option<Image>,
    held: Vec<Box<dyn std::fmt::Debug>>,
}

/// Plays a drill to its end and judges it.
pub(crate) fn play(drill: &Drill, options: &Options) -> Result<String> {
    play::play(
        drill.name,
        options,
        |folder| Stage::new(drill, options, folder),
        |stage| (drill.run)(stage).and_then(|()| stage.verdict()),
    )
}

impl Played for Stage {
    fn notes(&self) -> &[String] {
        &self.notes
    }
    fn events(&self) -> &[Event] {
        &self.events
    }
}

impl Stage {
    fn new(drill: &Drill, options: &Options, folder: &Path) -> Result<Stage> {
        let data = match drill.disk_mib {
            Some(_) => folder.join("disk/data"),
            None => folder.join("data"),
        };
        let disk = match drill.disk_mib {
            Some(mib) => Some(Image::new(folder, mib, &options.clients.python)?),
            None => None,
        };
        let settings = [
            // As small as it can be: used again and again.
            "riverlog.wal.bytes=8388608",
            "offsets.topic.num.partitions=3",
            "group.initial.rebalance.delay.ms=0",
        ];
        let launch = Launch {
            binary: options.server.clone(),
            data,
            log: folder.join("server.log"),
            host: address(0).ip(),
            port: free_port()?,
            settings: settings
                .into_iter()
                .map(str::to_owned)
                .chain(options.set.iter().cloned())
                .collect(),
            more: Vec::new(),
            under: Vec::new(),
            environment: Vec::new(),
        };
        Ok(Stage {
            folder: folder.to_owned(),
            clients: options.clients.clone(),
            launch,
            random: Random::new(options.seed),
            rounds: options.rounds.unwrap_or(drill.rounds),
            notes: Vec::new(),
            seed: options.seed,
            events: Vec::new(),
            workload: None,
            server: None,
            disk,
            held: Vec::new(),
        })
    }

    /// Keeps something that must outlive the server.
    pub(crate) fn keep_until_the_end(&mut self, what: Box<dyn std::fmt::Debug>) {
        self.held.push(what);
    }

    /// Starts the server, and the clients with it the first time.
    pub(crate) fn begin(&mut self, load: &Load) -> Result<()> {
        self.start()?;
        let port = self.launch.port;
        let at = address(port);
        let brokers = at.to_string();
        let workload = Workload::start(&self.clients, &self.folder, at, &brokers, self.seed, load)?;
        self.workload = Some(workload);
        self.tell("progress", PATIENCE_S)?;
        Ok(())
    }

    pub(crate) fn start(&mut self) -> Result<()> {
        self.server = None;
        self.server = Some(self.launch.start()?);
        Ok(())
    }

    pub(crate) fn server(&mut self) -> Result<&mut Server> {
        match &mut self.server {
            Some(server) => Ok(server),
            None => broken("no server is running"),
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// Asks the server to stop, and waits for its end.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let stopped = self.server.take().is_none_or(|server| server.stop(STOP));
        match stopped {
            true => Ok(()),
            false => broken("the server doesn't stop when it is asked to"),
        }
    }

    pub(crate) fn disk(&self) -> Result<&Image> {
        match &self.disk {
            Some(disk) => Ok(disk),
            None => broken("this drill has no disk of its own"),
        }
    }

    /// Tells the clients something.
    pub(crate) fn tell(&mut self, what: &str, seconds: u32) -> Result<String> {
        match &mut self.workload {
            Some(workload) => workload.tell(what, seconds),
            None => broken("no clients are running"),
        }
    }

    /// Records acknowledged so far.
    pub(crate) fn acknowledged(&mut self) -> Result<u64> {
        Ok(self.tell("count", PATIENCE_S)?.parse()?)
    }

    /// Waits until nothing is acknowledged any more for a while. False: it goes on.
    pub(crate) fn falls_silent(&mut self, limit: Duration) -> Result<bool> {
        let end = Instant::now() + limit;
        let mut before = self.acknowledged()?;
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = self.acknowledged()?;
            if now == before {
                return Ok(true);
            }
            if Instant::now() > end {
                return Ok(false);
            }
            before = now;
        }
    }

    /// Waits until more is acknowledged than `before`. False: it isn't.
    pub(crate) fn goes_on(&mut self, before: u64, limit: Duration) -> Result<bool> {
        let end = Instant::now() + limit;
        while self.acknowledged()? <= before {
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(true)
    }

    /// Every producer is answered and every group gets something.
    pub(crate) fn progress(&mut self) -> Result<()> {
        self.tell("progress", PATIENCE_S).map(drop)
    }

    /// Writes an event of the drill itself into the history.
    pub(crate) fn note(&mut self, what: What) {
        self.events.push(Event {
            at: now(),
            client: "drill".into(),
            what,
        });
    }

    /// A fault begins now.
    pub(crate) fn fault(&mut self, what: &str) {
        self.note(What::Fault { what: what.into() });
    }

    /// Heals, demands that all move again, reads everything, and lets the checker judge.
    pub(crate) fn verdict(&mut self) -> Result<String> {
        self.settle()?;
        self.read_whole(20)?;
        self.judge()
    }

    /// From here on everyone must move; in the end everything is read, and nothing is under way.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.note(What::Healed);
        let moved = self.progress();
        let quiet = self.tell("quiet", PATIENCE_S);
        let drained = self.tell("drain", PATIENCE_S);
        moved?;
        quiet?;
        drained.map(drop)
    }

    /// Reads every partition from its start to its end.
    pub(crate) fn read_whole(&mut self, seconds: u32) -> Result<()> {
        self.tell("whole", seconds).map(drop)
    }

    fn judge(&mut self) -> Result<String> {
        self.tell("end", PATIENCE_S)?;
        self.stop()?;
        let mut events = self.events.clone();
        if let Some(workload) = self.workload.take() {
            events.extend(workload.history()?);
        }
        let report = riverlog_checker::check(&events);
        let said = fs::read_to_string(&self.launch.log).unwrap_or_default();
        if let Some(line) = said.lines().find(|line| line.contains("panicked at")) {
            return broken(format!("the server panicked: {line}"));
        }
        match report.anomalies.is_empty() {
            true => Ok(report.to_string()),
            false => broken(report.to_string()),
        }
    }
}
