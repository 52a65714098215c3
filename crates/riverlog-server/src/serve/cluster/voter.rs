//! The quorum's threads: one for its messages and timers, which never waits for a disk, and one that tells the node.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use riverlog_host::Driver;
use riverlog_log::{Disk, OpenMode};
use riverlog_node::NodeSettings;
use riverlog_node::quorum::{MetadataSnapshot, Quorum as Agreed};
use riverlog_quorum::{Member, Opened, Quorum, QuorumError, QuorumSettings, Step, Writes};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc, watch};

use super::{Cluster, Together, Trouble, bulk};
use crate::failure::{Exit, Failure};
use crate::serve::log::Repeats;

/// The file that a data folder has once it was formatted.
const FORMAT_FILE: &str = "format";
/// Where a voter's files are, and the first of them.
const FOLDER: &str = "quorum";
const JOURNAL: &str = "quorum/journal";
/// A mark beside them: the data folder was made by a node in a cluster, and never belonged to one alone.
const TOGETHER: &str = "quorum/together";

fn failure(error: &QuorumError, data: &Path) -> Failure {
    Failure::new(
        Exit::Finding,
        format!("the metadata quorum of {} can't be opened", data.display()),
    )
    .why(error.to_string())
}

fn no_thread(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Finding, "threads can't be started").why(error.to_string())
}

/// A voter that was opened, and isn't running yet.
pub(crate) struct Voting {
    pub(crate) cluster: Arc<Cluster>,
    opened: Opened,
}

/// Opens the quorum's files. A data folder that a node has had alone gives its metadata to a quorum of its own, which others join.
///
/// - `advertised`: where others reach this node.
/// - `start`: opens the node as it was alone.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    together: Together,
    settings: &NodeSettings,
    advertised: String,
    data: &Path,
    start: impl FnOnce(NodeSettings) -> Result<Arc<Driver>, Failure>,
) -> Result<Voting, Failure> {
    let said = |error: QuorumError| failure(&error, data);
    let open = || Quorum::open(Arc::clone(disk), settings.broker, Writes::Thread).map_err(said);
    let has = |path: &str| disk.open(path, OpenMode::Read).is_ok();
    let was_alone = has(FORMAT_FILE) && !has(TOGETHER);
    // A start that was cut short has made the quorum's files, and nothing has come of them.
    if was_alone && has(JOURNAL) && open()?.is_blank() {
        disk.remove_file(JOURNAL)
            .and_then(|()| disk.sync_dir(FOLDER))
            .map_err(|error| not_written(&error))?;
    }
    let alone = match was_alone && !has(JOURNAL) {
        true => Some(metadata_of_one(start(settings.clone())?)?),
        false => None,
    };
    let opened = open()?;
    if opened.broker() != settings.broker {
        let found = opened.broker().0;
        return Err(Failure::usage(format!(
            "the data folder {} belongs to node {found}",
            data.display()
        ))
        .hint(format!(
            "start with --node-id {found}, or name another folder with --data"
        )));
    }
    if let Some(metadata) = alone {
        let me = Member {
            broker: settings.broker,
            address: advertised.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(|error| no_thread(&error))?;
        runtime.block_on(opened.found(metadata, me)).map_err(said)?;
        tracing::info!("this node's metadata is now that of a cluster, which others may join");
    }
    let cluster = Cluster {
        broker: settings.broker,
        disk_id: opened.disk_id(),
        advertised,
        own_seed: OnceLock::new(),
        led_at: Mutex::default(),
        was_formed: !opened.is_blank(),
        together,
        disk: Arc::clone(disk),
        driver: OnceLock::new(),
        quorum: OnceLock::new(),
        links: Default::default(),
        bulk: OnceLock::new(),
        guests: Default::default(),
        next_link: Default::default(),
        proposals: Notify::new(),
        outbox: Notify::new(),
        requests: Default::default(),
        failed: watch::channel(None).0,
        repeats: Repeats::new(Duration::from_secs(60), 5),
    };
    Ok(Voting {
        cluster: Arc::new(cluster),
        opened,
    })
}

/// What a node that was alone knows; it is closed again.
fn metadata_of_one(alone: Arc<Driver>) -> Result<MetadataSnapshot, Failure> {
    let metadata = alone.node.metadata_snapshot();
    alone.close().map_err(|error| {
        Failure::new(Exit::Finding, "the data folder can't be closed").why(error.to_string())
    })?;
    Ok(metadata)
}

fn not_written(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Finding, "the data folder can't be written").why(error.to_string())
}

/// The threads of a running voter.
pub(crate) struct Running {
    cluster: Arc<Cluster>,
    stop: Arc<Notify>,
    threads: Vec<JoinHandle<()>>,
    bulk: Runtime,
}

impl Voting {
    /// Marks a folder that is about to be formatted.
    pub(crate) fn mark(&self) -> Result<(), Failure> {
        let disk = &self.cluster.disk;
        if disk.open(FORMAT_FILE, OpenMode::Read).is_ok() {
            return Ok(());
        }
        disk.open(TOGETHER, OpenMode::Create)
            .and_then(|file| file.sync())
            .and_then(|()| disk.sync_dir(FOLDER))
            .map_err(|error| not_written(&error))
    }

    /// For the node: who agrees on its metadata, and whom it wakes.
    pub(crate) fn prepare(&self, settings: &mut NodeSettings) -> riverlog_host::Neighbours {
        settings.quorum = Agreed::Shared;
        self.cluster.neighbours()
    }

    /// Starts the threads. The quorum has begun to take part when this returns.
    pub(crate) fn start(self, driver: &Arc<Driver>) -> Result<Running, Failure> {
        let cluster = self.cluster;
        // Set once, here.
        let _ = cluster.driver.set(Arc::clone(driver));
        let bulk = bulk::threads().map_err(|error| no_thread(&error))?;
        let _ = cluster.bulk.set(bulk.handle().clone());
        let (steps, told) = mpsc::unbounded_channel();
        let stop = Arc::new(Notify::new());
        let (started, starts) = std::sync::mpsc::channel();
        let quorum = {
            let (cluster, stop) = (Arc::clone(&cluster), Arc::clone(&stop));
            let opened = self.opened;
            std::thread::Builder::new()
                .name("riverlog-quorum".to_owned())
                .spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_time()
                        .build();
                    match runtime {
                        Err(error) => {
                            let _ = started.send(Err(no_thread(&error)));
                        }
                        Ok(runtime) => {
                            runtime.block_on(vote(&cluster, opened, steps, &stop, &started));
                        }
                    }
                })
                .map_err(|error| no_thread(&error))?
        };
        let teller = {
            let (cluster, driver) = (Arc::clone(&cluster), Arc::clone(driver));
            std::thread::Builder::new()
                .name("riverlog-meta".to_owned())
                .spawn(move || tell(&cluster, &driver, told))
                .map_err(|error| no_thread(&error))?
        };
        starts.recv().unwrap_or_else(|_| {
            Err(Failure::new(
                Exit::Finding,
                "the thread of the metadata quorum is gone",
            ))
        })?;
        Ok(Running {
            cluster,
            stop,
            threads: vec![quorum, teller],
            bulk,
        })
    }
}

impl Running {
    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster)
    }

    /// Stops taking part, and waits until the node has been told everything.
    pub(crate) fn stop(self) {
        self.stop.notify_one();
        for thread in self.threads {
            // A panic there has already been reported by the panic hook.
            let _ = thread.join();
        }
        self.bulk.shutdown_background();
    }
}

async fn vote(
    cluster: &Arc<Cluster>,
    opened: Opened,
    steps: mpsc::UnboundedSender<Step>,
    stop: &Notify,
    started: &std::sync::mpsc::Sender<Result<(), Failure>>,
) {
    let voters: BTreeSet<String> = cluster.together.seeds.iter().cloned().collect();
    let settings = QuorumSettings {
        voters,
        seed: cluster.disk.draw_id().unwrap_or_default() as u64,
        ..QuorumSettings::default()
    };
    let carrier = Arc::clone(cluster) as Arc<dyn riverlog_quorum::Carrier>;
    let quorum = match opened.start(settings, carrier, steps).await {
        Ok(quorum) => quorum,
        Err(error) => {
            let words = Failure::new(Exit::Finding, "the metadata quorum doesn't start");
            let _ = started.send(Err(words.why(error.to_string())));
            return;
        }
    };
    // Set once, here.
    let _ = cluster.quorum.set(quorum.clone());
    let _ = started.send(Ok(()));
    loop {
        tokio::select! {
            () = cluster.proposals.notified() => {
                if let Some(driver) = cluster.driver.get() {
                    quorum.propose(driver.node.take_proposals());
                }
            }
            () = stop.notified() => break,
        }
    }
    quorum.stop().await;
}

/// Takes the quorum's steps to the node, one after the other, until the quorum is gone.
fn tell(cluster: &Cluster, driver: &Driver, mut told: mpsc::UnboundedReceiver<Step>) {
    while let Some(step) = told.blocking_recv() {
        if let Err(error) = step.take(&driver.node, driver.now()) {
            cluster.fail(Trouble::Ended(error.to_string()));
        }
    }
}
