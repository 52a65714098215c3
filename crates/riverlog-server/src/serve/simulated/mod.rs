//! The listener and the connections as they are, on a simulated network: turmoil's hosts, links and virtual time in place of the
//! system's sockets and clock.
//!
//! The node is driven on the same virtual time, on a disk that can be killed and lose its power: nothing here waits for real time.
//! (Which of two branches tokio takes that are ready at once no seed decides.) What the rules do under faults is for the simulator (`riverlog-sim`); here it is about bytes that dribble, links that
//! stand still or break, clients that vanish or don't read, and a server that dies with all that under way.

mod cases;
mod client;
mod history;
mod http;
mod network;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riverlog_api::kafka::{KafkaDoor, KafkaSettings};
use riverlog_core::Now;
use riverlog_http::{HttpDoor, HttpSettings};
use riverlog_log::disk::{CrashDisk, Random};
use riverlog_node::harness::{START_MS, Seeded};
use riverlog_node::{Host, Node, NodeSettings, Notice};
use tokio::sync::{Notify, watch};

use self::network::{Pieces, Port};
use super::connection::Shared;
use super::limits::Limits;
use super::listener;
use super::log::Repeats;

/// Name and port of the server on the simulated network.
const SERVER: &str = "server";
const PORT: u16 = 9092;
/// A connection on which nothing happens ends after this.
const IDLE: Duration = Duration::from_secs(30);
/// The largest frame.
const MAX_FRAME: usize = 1 << 20;

/// The time of the simulation, which goes on while a host is down.
fn now() -> Now {
    let passed = turmoil::sim_elapsed().unwrap_or_default();
    Now {
        mono: Duration::from_secs(1) + passed,
        wall_ms: START_MS + i64::try_from(passed.as_millis()).unwrap_or(i64::MAX),
    }
}

/// The machine that the server runs on: what stays when its process ends.
struct Machine {
    disk: Mutex<CrashDisk>,
    random: Mutex<Random>,
    pieces: Arc<Pieces>,
    /// How long a job of the disk takes at most.
    slow: Mutex<Duration>,
    running: Mutex<Option<Running>>,
}

/// The process.
#[derive(Clone)]
struct Running {
    node: Arc<Node>,
    limits: Arc<Limits>,
    stop: Arc<watch::Sender<bool>>,
}

impl Machine {
    fn new(seed: u64, most_bytes: usize) -> Arc<Machine> {
        Arc::new(Machine {
            disk: Mutex::new(CrashDisk::new(seed)),
            random: Mutex::new(Random::new(seed)),
            pieces: Arc::new(Pieces::new(seed, most_bytes)),
            slow: Mutex::new(Duration::from_millis(3)),
            running: Mutex::default(),
        })
    }

    fn running(&self) -> Running {
        self.running.lock().clone().expect("the server runs")
    }

    /// Connections that the server counts now.
    fn connected(&self) -> usize {
        self.running().limits.connected()
    }

    /// What the process leaves when it ends: all that it wrote, or after a power cut only what the disk happened to keep.
    fn died(&self, power_cut: bool) {
        *self.running.lock() = None;
        let mut disk = self.disk.lock();
        *disk = match power_cut {
            true => disk.crash(self.random.lock().next_u64()),
            false => disk.kill(),
        };
    }

    fn gauge(&self, name: &str) -> f64 {
        let metrics = self.running().node.metrics();
        let found = metrics.iter().find(|metric| metric.name == name);
        found.expect("a metric of the node").value
    }
}

/// Tells the task that drives the node that there is something.
#[derive(Default)]
struct Wakes(Notify);

impl Host for Wakes {
    fn jobs_ready(&self) {
        self.0.notify_one();
    }
    fn deadline_changed(&self) {
        self.0.notify_one();
    }
    fn notice(&self, _: Notice) {}
}

/// Runs the node's jobs, each after a while, and does what time brings.
async fn drive(node: Arc<Node>, wakes: Arc<Wakes>, machine: Arc<Machine>) {
    loop {
        for job in node.take_jobs() {
            let most = machine.slow.lock().as_micros() as u64;
            let took = machine.random.lock().below(most.max(1));
            tokio::time::sleep(Duration::from_micros(took)).await;
            node.on_job_done(job.run(), now());
        }
        let next = node.next_deadline();
        let wait = next.map_or(Duration::from_secs(3_600), |at| {
            at.saturating_sub(now().mono)
        });
        tokio::select! {
            () = wakes.0.notified() => {}
            () = tokio::time::sleep(wait) => {
                node.tick(now());
            }
        }
    }
}

/// The server's process, from its start until it is told to stop.
async fn serve(machine: Arc<Machine>) -> turmoil::Result {
    let wakes = Arc::new(Wakes::default());
    let mut settings = NodeSettings {
        listeners: vec![("PLAINTEXT".into(), SERVER.into(), PORT)],
        offsets_partitions: 1,
        transactions_partitions: 1,
        segment_bytes_limit: Some(64 << 10),
        ..NodeSettings::default()
    };
    settings.volume.wal_bytes = 1 << 20;
    // So little that readers of old records are given ranges of files.
    settings.volume.tail_cache_bytes = 64 << 10;
    let disk = Arc::new(machine.disk.lock().clone());
    let entropy = Arc::new(Seeded::new(machine.random.lock().next_u64()));
    let host: Arc<dyn Host> = Arc::clone(&wakes) as Arc<dyn Host>;
    let node = Node::open(disk, entropy, host, settings, now())?;
    tokio::spawn(drive(Arc::clone(&node), wakes, Arc::clone(&machine)));
    let limits = Limits::new(4 << 20, 1_000, 1_000);
    let (stop, stopped) = watch::channel(false);
    let settings = KafkaSettings {
        max_frame_bytes: MAX_FRAME,
        auto_create_topics: false,
        ..KafkaSettings::default()
    };
    let http = HttpDoor::new(Arc::clone(&node), now, HttpSettings::default());
    let shared = Arc::new(Shared {
        door: KafkaDoor::new(Arc::clone(&node), settings),
        clock: Box::new(now),
        limits: Arc::clone(&limits),
        idle: IDLE,
        cluster: None,
        http_address: None,
        stop: stopped.clone(),
    });
    *machine.running.lock() = Some(Running {
        node,
        limits: Arc::clone(&limits),
        stop: Arc::new(stop),
    });
    let port = Port::bind(PORT, Arc::clone(&machine.pieces)).await?;
    tokio::spawn(http::accept(http, Arc::clone(&machine.pieces), stopped));
    let repeats = Arc::new(Repeats::new(Duration::from_secs(10), 5));
    listener::accept(port, shared, repeats).await;
    // As `serve` in the module above: connections have a moment.
    while limits.connected() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A simulation with a server, and clients to be added.
struct Story {
    sim: turmoil::Sim<'static>,
    machine: Arc<Machine>,
}

impl Story {
    /// `most_bytes`: in one piece of what is sent, drawn for each.
    fn new(seed: u64, most_bytes: usize) -> Story {
        Story::with(seed, most_bytes, |_| {})
    }

    fn with(seed: u64, most_bytes: usize, change: impl FnOnce(&mut turmoil::Builder)) -> Story {
        let mut builder = turmoil::Builder::new();
        builder
            .rng_seed(seed)
            .epoch(std::time::UNIX_EPOCH)
            .simulation_duration(Duration::from_secs(1_200))
            .tick_duration(Duration::from_millis(1))
            .min_message_latency(Duration::from_micros(100))
            .max_message_latency(Duration::from_millis(4))
            .tcp_capacity(256)
            .enable_random_order();
        change(&mut builder);
        let mut sim = builder.build();
        let machine = Machine::new(seed, most_bytes);
        let on = Arc::clone(&machine);
        sim.host(SERVER, move || serve(Arc::clone(&on)));
        Story { sim, machine }
    }

    /// A client that plays its part; the story ends when all have.
    fn client<F>(&mut self, name: &str, part: impl FnOnce(Arc<Machine>) -> F)
    where
        F: Future<Output = turmoil::Result> + 'static,
    {
        self.sim.client(name, part(Arc::clone(&self.machine)));
    }

    /// Plays until all clients are done.
    fn play(mut self) {
        let begun = Instant::now();
        self.sim.run().expect("every client plays its part");
        bounded(begun);
    }
}

/// A story that takes long has got lost.
fn bounded(begun: Instant) {
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "it took {took:?}");
}
