//! `riverlog serve`: sockets, threads and signals around a node.

mod cluster;
mod connection;
mod console;
mod descriptors;
mod http;
mod limits;
mod listener;
pub(crate) mod log;
mod metrics;
pub(crate) mod notices;
mod past;
mod reach;
mod settings;
mod stream;
mod traces;
mod web;

#[cfg(test)]
mod simulated;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use riverlog_api::kafka::{KafkaDoor, KafkaSettings, Voters};
use riverlog_host::{DriveError, Driver};
use riverlog_http::HttpDoor;
use riverlog_log::disk::SystemDisk;
use riverlog_log::{Disk, OpenError};
use riverlog_node::{Reply, StartError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::client::{address, place};
use crate::config::{Config, Listeners};
use crate::failure::{Exit, Failure};

use cluster::{Cluster, Running, Together};
use connection::Shared;
use descriptors::Descriptors;
use http::Health;
use limits::Limits;
use log::Repeats;
use metrics::{MetricsSettings, Times};

#[cfg(test)]
pub(crate) use settings::node_settings;

/// Threads for sockets.
const SOCKET_THREADS: usize = 2;
/// Threads for the node's jobs, beside the one for the group commit.
const JOB_THREADS: usize = 2;
/// The least that a write-ahead log is made, however small the disk.
const SMALLEST_WAL: u64 = 1 << 20;
/// How long connections may take at a stop.
const STOP: Duration = Duration::from_secs(2);
/// How long a node of a cluster may take to give its leaderships away. Without a controller there is nobody to give them to.
const HAND_OVER: Duration = Duration::from_secs(3);

/// What to serve.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// Where the data is unless `log.dirs` says.
    pub(crate) data: PathBuf,
    /// `host:port`; `None`: no HTTP.
    pub(crate) http: Option<String>,
    /// Others than this machine may connect, though nobody is asked who they are.
    pub(crate) insecure: bool,
    /// Say the lines that tools wait for in Kafka's log.
    pub(crate) kafka_lines: bool,
    /// End when standard input does.
    pub(crate) with_parent: bool,
    /// Addresses of the nodes that form a cluster; empty: those that the data folder knows, or none.
    pub(crate) seeds: Vec<String>,
    /// What only the nodes of the cluster know.
    pub(crate) cluster_key: Option<PathBuf>,
}

/// What is known once it serves.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// What clients of the first listener are told.
    pub(crate) kafka: String,
    pub(crate) http: Option<String>,
}

struct Bound {
    name: String,
    /// For other nodes: clients aren't told of it.
    for_nodes: bool,
    socket: std::net::TcpListener,
    advertised: (String, u16),
    bound: SocketAddr,
}

/// What was bound at the start.
struct Sockets {
    kafka: Vec<Bound>,
    http: Option<(std::net::TcpListener, SocketAddr)>,
}

/// Serves until a signal or until `when_ready` says that it is enough.
pub(crate) fn run(
    plan: &Plan,
    when_ready: impl FnOnce(&Served) + Send + 'static,
) -> Result<(), Failure> {
    let start = Instant::now();
    let descriptors = Descriptors::granted();
    for warning in &plan.config.warnings {
        tracing::warn!("{warning}");
    }
    let values = plan.config.broker();
    let listeners = Listeners::read(values).map_err(|mistakes| config_failure(&mistakes))?;
    for warning in &listeners.warnings {
        tracing::info!("{warning}");
    }
    let backlog = i32::try_from(values.number("socket.listen.backlog.size").unwrap_or(50))
        .unwrap_or(50)
        .max(1024);
    let together = together(plan)?;
    let bound = bind_all(&listeners, plan, backlog, together.is_some())?;
    let http = match &plan.http {
        None => None,
        Some(at) => {
            let (host, port) = address(at).map_err(|failure| {
                failure.hint("give --http (or riverlog.http.address) host:port, for instance 127.0.0.1:8082, or none")
            })?;
            let (socket, bound) = listener::bind(&host, port, 128, "--http")?;
            refuse_open(bound.ip(), at, "--http", plan.insecure)?;
            Some((socket, bound))
        }
    };
    let (driver, running) = open(plan, together, &bound, descriptors)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SOCKET_THREADS)
        .thread_name("riverlog-net")
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::new(Exit::Finding, "threads can't be started").why(error.to_string())
        })?;
    let served = Served {
        kafka: bound
            .first()
            .map_or_else(String::new, |b| place(&b.advertised.0, b.advertised.1)),
        http: http.as_ref().map(|(_, at)| at.to_string()),
    };
    let ended = runtime.block_on(serve(
        plan,
        descriptors,
        (Arc::clone(&driver), running.as_ref().map(Running::cluster)),
        Sockets { kafka: bound, http },
        start,
        served,
        when_ready,
    ));
    runtime.shutdown_timeout(Duration::from_millis(200));
    if let Some(running) = running {
        running.stop();
    }
    ended?;
    driver
        .close()
        .map_err(|error| start_failure(&error, &plan.data))?;
    tracing::info!("stopped");
    Ok(())
}

/// `None`: this node is alone, and nothing of a cluster runs.
fn together(plan: &Plan) -> Result<Option<Together>, Failure> {
    let member = plan.data.join("quorum/journal").exists();
    if plan.seeds.is_empty() && !member {
        return match &plan.cluster_key {
            None => Ok(None),
            Some(_) => Err(Failure::usage("a cluster key without a cluster")
                .why("--cluster-key is for nodes that were told of others")
                .hint("name the nodes with --seeds HOST:PORT,HOST:PORT,HOST:PORT")),
        };
    }
    Together::new(plan.seeds.clone(), plan.cluster_key.as_deref()).map(Some)
}

fn bind_all(
    listeners: &Listeners,
    plan: &Plan,
    backlog: i32,
    in_cluster: bool,
) -> Result<Vec<Bound>, Failure> {
    let mut out = Vec::new();
    let for_nodes = listeners.controllers.iter().filter(|_| in_cluster);
    let all = listeners.all.iter().map(|one| (one, false));
    for (one, for_nodes) in all.chain(for_nodes.map(|one| (one, true))) {
        let (socket, bound) = listener::bind(&one.host, one.port, backlog, "--listen")?;
        let at = place(&one.host, one.port);
        refuse_open(bound.ip(), &at, "--listen", plan.insecure).map_err(
            |refused| match in_cluster && plan.cluster_key.is_none() {
                true => refused.hint(NO_KEY),
                false => refused,
            },
        )?;
        if in_cluster && !bound.ip().is_loopback() && plan.cluster_key.is_none() {
            tracing::warn!(
                "whoever reaches {at} can speak as a node of this cluster: give all nodes the same --cluster-key FILE"
            );
        }
        let advertised = match &one.advertised {
            Some((host, 0)) => (host.clone(), bound.port()),
            Some(advertised) => advertised.clone(),
            None if bound.ip().is_unspecified() => {
                let host = rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned();
                tracing::warn!(
                    "listener {} is open on all addresses, and clients are told {}: set advertised.listeners to what they can reach",
                    one.name,
                    place(&host, bound.port())
                );
                (host, bound.port())
            }
            None => (one.host.clone(), bound.port()),
        };
        out.push(Bound {
            name: one.name.clone(),
            for_nodes,
            socket,
            advertised,
            bound,
        });
    }
    Ok(out)
}

const NO_KEY: &str = "bind to 127.0.0.1 with --listen; or give all nodes the same --cluster-key FILE, so that nobody else can speak as one of them, and accept with --insecure that clients aren't asked who they are";

/// Nobody is asked who they are yet, so only this machine is served unless told otherwise (P14).
fn refuse_open(ip: IpAddr, at: &str, flag: &str, insecure: bool) -> Result<(), Failure> {
    if ip.is_loopback() || insecure {
        return Ok(());
    }
    Err(Failure::usage(format!("{at} would be open to other machines"))
        .why("there is no authentication yet, so everyone who reaches this port could read and write everything")
        .hint(format!("bind to 127.0.0.1 with {flag}, or accept it with --insecure on a network that you trust")))
}

fn open(
    plan: &Plan,
    together: Option<Together>,
    bound: &[Bound],
    descriptors: Descriptors,
) -> Result<(Arc<Driver>, Option<Running>), Failure> {
    let disk = SystemDisk::open(&plan.data).map_err(|error| folder_failure(&error, &plan.data))?;
    let disk = Arc::new(disk) as Arc<dyn Disk>;
    let mut settings = settings::node_settings(&plan.config);
    let asked = settings.volume.open_files;
    settings.volume.open_files = descriptors.files(asked);
    if settings.volume.open_files < asked {
        tracing::warn!(
            "of the open files that the system grants {} are for the logs, which would take {asked}; raise the limit of open files (ulimit -n, LimitNOFILE)",
            settings.volume.open_files
        );
    }
    settings.listeners = bound
        .iter()
        .filter(|b| !b.for_nodes)
        .map(|b| (b.name.clone(), b.advertised.0.clone(), b.advertised.1))
        .collect();
    // A write-ahead log that is written through in advance must leave room for what it is there for.
    let total = disk.total().unwrap_or(u64::MAX);
    if settings.volume.wal_bytes > total / 4 {
        let wanted = settings.volume.wal_bytes;
        settings.volume.wal_bytes = (total / 4).max(SMALLEST_WAL);
        tracing::warn!(
            "the write-ahead log takes {} MiB in place of {} MiB: the disk has {} MiB in all",
            settings.volume.wal_bytes >> 20,
            wanted >> 20,
            total >> 20
        );
    }
    let sockets: Vec<_> = bound.iter().map(|b| (b.name.as_str(), b.bound)).collect();
    settings::say_what_is_used(&mut settings, &sockets, &plan.data);
    let (data, repeats) = (plan.data.clone(), Repeats::new(Duration::from_secs(60), 5));
    let tell = Arc::new(move |notice| notices::say(&notice, &data, &repeats));
    let start = |settings, neighbours| {
        let tell = Arc::clone(&tell);
        let tell = move |notice| tell(notice);
        Driver::start_in_cluster(Arc::clone(&disk), settings, JOB_THREADS, tell, neighbours)
            .map_err(|error| start_failure(&error, &plan.data))
    };
    let voting = match together {
        None => None,
        Some(together) => {
            let reached = bound.iter().rfind(|b| b.for_nodes).or(bound.first());
            let advertised =
                reached.map_or_else(String::new, |b| place(&b.advertised.0, b.advertised.1));
            let alone = |settings| start(settings, None);
            let voting = cluster::open(&disk, together, &settings, advertised, &plan.data, alone)?;
            voting.mark()?;
            Some(voting)
        }
    };
    let neighbours = voting.as_ref().map(|v| v.prepare(&mut settings));
    let driver = start(settings, neighbours)?;
    let running = match voting {
        None => None,
        Some(voting) => Some(voting.start(&driver)?),
    };
    // Coordinators read their logs when they are first asked: better now than when the first client waits.
    let load = Reply::new(|_| {});
    driver.node.groups(driver.now(), load);
    Ok((driver, running))
}

async fn serve(
    plan: &Plan,
    descriptors: Descriptors,
    (driver, cluster): (Arc<Driver>, Option<Arc<Cluster>>),
    Sockets { kafka: bound, http }: Sockets,
    start: Instant,
    served: Served,
    when_ready: impl FnOnce(&Served) + Send + 'static,
) -> Result<(), Failure> {
    let values = plan.config.broker();
    let broken = |error: std::io::Error| {
        Failure::new(Exit::Finding, "a socket can't be used").why(error.to_string())
    };
    let size =
        |name: &str| usize::try_from(values.number(name).unwrap_or(i64::MAX)).unwrap_or(usize::MAX);
    let (connections, web) = descriptors.connections(
        size("max.connections"),
        descriptors.files(size("riverlog.open.files")),
    );
    let limits = Limits::new(
        size("riverlog.receive.memory.bytes"),
        connections,
        size("max.connections.per.ip"),
    );
    let web = Limits::new(0, web, web);
    let idle = values
        .number("connections.max.idle.ms")
        .and_then(|ms| u64::try_from(ms).ok());
    let (stopping, stop) = watch::channel(false);
    let repeats = Arc::new(Repeats::new(Duration::from_secs(10), 5));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut kafka = Vec::new();
    let advertised: Vec<_> = bound
        .iter()
        .filter(|b| b.advertised != (b.bound.ip().to_string(), b.bound.port()))
        .map(|b| (b.name.clone(), b.advertised.clone()))
        .collect();
    for one in bound {
        let at = place(&one.advertised.0, one.advertised.1);
        if one.for_nodes {
            tracing::info!(listener = one.name, bound = %one.bound, "other nodes at {at}");
        } else {
            tracing::info!(listener = one.name, bound = %one.bound, "Kafka at {at}");
            kafka.push(at);
        }
        let door = KafkaDoor::new(
            Arc::clone(&driver.node),
            KafkaSettings {
                listener: one.name,
                max_frame_bytes: size("socket.request.max.bytes"),
                auto_create_topics: values.is_true("auto.create.topics.enable"),
                fetch_sessions: size("max.incremental.fetch.session.cache.slots"),
                share_sessions: size("group.share.max.share.sessions"),
                max_fetch_bytes: size("fetch.max.bytes"),
                max_described_partitions: size("max.request.partition.size.limit"),
                voters: cluster.as_ref().map(voters),
                ..KafkaSettings::default()
            },
        );
        let clock = Arc::clone(&driver);
        let shared = Arc::new(Shared {
            door,
            clock: Box::new(move || clock.now()),
            limits: Arc::clone(&limits),
            // A value below zero never ends a connection; a year is as good.
            idle: Duration::from_millis(idle.unwrap_or(365 * 86_400_000)),
            cluster: cluster.clone(),
            http_address: served.http.clone(),
            stop: stop.clone(),
        });
        let listener = tokio::net::TcpListener::from_std(one.socket).map_err(broken)?;
        tokio::spawn(listener::accept(listener, shared, Arc::clone(&repeats)));
    }
    let loopback = http.as_ref().is_none_or(|(_, at)| at.ip().is_loopback());
    let clock = Arc::clone(&driver);
    let door = HttpDoor::new(
        Arc::clone(&driver.node),
        move || clock.now(),
        settings::http_settings(values, loopback),
    );
    if let Some(cluster) = &cluster {
        cluster.join_doors(&door);
    }
    let health = Arc::new(Health {
        driver: Arc::clone(&driver),
        limits: Arc::clone(&limits),
        serving: AtomicBool::new(true),
        kafka,
        door,
        web: Arc::clone(&web),
        metrics: MetricsSettings::new(
            values.text("riverlog.metrics.detail").unwrap_or_default(),
            values.text("riverlog.metrics.aliases").unwrap_or_default(),
        ),
        traces: http.as_ref().and_then(|_| traces::Traces::start()),
        times: Times::default(),
    });
    let mut served_http = false;
    if let Some((socket, at)) = http {
        past::recall(&health.door, &plan.data);
        tokio::spawn(look(Arc::clone(&health.door), plan.data.clone()));
        served_http = true;
        tracing::info!("HTTP at http://{at}");
        let listener = tokio::net::TcpListener::from_std(socket).map_err(broken)?;
        let routes = http::routes(Arc::clone(&health));
        tokio::spawn(web::accept(listener, routes, web, stop.clone(), repeats));
    }
    if let Some(cluster) = &cluster {
        tokio::spawn(Arc::clone(cluster).run());
    }
    tokio::spawn(reach::check(advertised));
    let ready_ms = start.elapsed().as_millis() as u64;
    tracing::info!(ready_ms, data = %plan.data.display(), "ready");
    if plan.kafka_lines {
        kafka_lines(&driver);
    }
    // Not started by systemd: nobody to tell.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    when_ready(&served);
    let mut broken = Ok(());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = orphaned(plan.with_parent) => {}
        why = ended(cluster.as_ref()) => broken = Err(why),
    }
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Stopping]);
    tracing::info!("stopping; a second signal ends it at once");
    health.serving.store(false, Ordering::Release);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(Exit::Interrupted as i32);
    });
    if cluster.is_some() && broken.is_ok() {
        hand_over(&driver).await;
    }
    // Nobody listens any more if all connections are gone.
    let _ = stopping.send(true);
    let deadline = Instant::now() + STOP;
    while limits.connected() + health.web.connected() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if let Some(traces) = &health.traces {
        traces.stop().await;
    }
    if served_http {
        past::keep(&health.door, &plan.data).await;
    }
    broken
}

/// Returns when the process that has started this one is gone, if it is to be ended then.
async fn orphaned(with_parent: bool) {
    let (gone, is_gone) = tokio::sync::oneshot::channel();
    if with_parent {
        // It waits for as long as this process lives.
        let watch = move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = gone.send(());
        };
        if std::thread::Builder::new().spawn(watch).is_ok() {
            let _ = is_gone.await;
            return;
        }
    }
    std::future::pending().await
}

/// The quorum as the doors ask it.
fn voters(cluster: &Arc<Cluster>) -> Voters {
    let (asked, changed) = (Arc::clone(cluster), Arc::clone(cluster));
    Voters {
        now: Arc::new(move || asked.electorate()),
        change: Arc::new(move |change, answer| {
            let cluster = Arc::clone(&changed);
            tokio::spawn(async move { answer(cluster.change(change).await) });
        }),
    }
}

/// Why a node in a cluster can't go on; never returns for one that can, or is alone.
async fn ended(cluster: Option<&Arc<Cluster>>) -> Failure {
    match cluster {
        Some(cluster) => cluster.failed().await,
        None => std::future::pending().await,
    }
}

/// Gives what this node leads to others, so that clients find the new leaders before this one is gone.
async fn hand_over(driver: &Driver) {
    let node = &driver.node;
    node.prepare_to_stop(driver.now());
    let deadline = Instant::now() + HAND_OVER;
    while !node.may_stop() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Looks at the node again and again, for those who want to see how it was, and keeps what it saw.
async fn look(door: Arc<HttpDoor>, data: PathBuf) {
    let mut every = tokio::time::interval(HttpDoor::LOOK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut looks = 0_u32;
    loop {
        every.tick().await;
        door.look().await;
        looks += 1;
        if looks.is_multiple_of(past::LOOKS) {
            past::keep(&door, &data).await;
        }
    }
}

/// What Testcontainers' modules wait for in Kafka's log; said only when this truly serves.
fn kafka_lines(driver: &Driver) {
    let id = driver.node.settings().broker;
    let lines = format!(
        "[BrokerLifecycleManager id={id}] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.\n\
         [KafkaServer id={id}] started (kafka.server.KafkaServer)\n\
         [KafkaRaftServer nodeId={id}] Kafka Server started (kafka.server.KafkaRaftServer)\n"
    );
    let mut out = std::io::stdout().lock();
    // Nobody reads: then nobody waits for them.
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
}

/// Everything that is wrong with a configuration.
pub(crate) fn config_failure(mistakes: &[impl ToString]) -> Failure {
    let lines: Vec<String> = mistakes
        .iter()
        .map(|m| format!("- {}", m.to_string()))
        .collect();
    let what = match lines.len() {
        1 => "the configuration has a mistake".to_owned(),
        n => format!("the configuration has {n} mistakes"),
    };
    Failure::usage(format!("{what}\n{}", lines.join("\n")))
        .hint("`riverlog config explain KEY` says what a key means; `riverlog config lint FILE` checks a file")
}

pub(crate) fn folder_failure(error: &std::io::Error, data: &Path) -> Failure {
    let what = format!("the data folder {} can't be used", data.display());
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Failure::new(Exit::Auth, what)
            .why("this user may not read or write it")
            .hint("give it to this user (chown), or name another folder with --data"),
        std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
            Failure::usage(what)
                .why("it isn't a folder")
                .hint("name a folder with --data")
        }
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Failure::new(Exit::Finding, what)
                .why("the disk is full")
                .hint("make room, or name a folder on another disk with --data")
        }
        std::io::ErrorKind::ReadOnlyFilesystem => Failure::new(Exit::Auth, what)
            .why("the file system is read-only")
            .hint("mount it for writing, or name another folder with --data"),
        _ => Failure::new(Exit::Finding, what).why(error.to_string()),
    }
}

pub(crate) fn start_failure(error: &DriveError, data: &Path) -> Failure {
    let what = format!("the data folder {} can't be used", data.display());
    match error {
        DriveError::Start(StartError::Open(OpenError::InUse)) => Failure::new(Exit::Conflict, what)
            .why("another riverlog process uses it")
            .hint("stop that process, or name another folder with --data"),
        DriveError::Start(StartError::Open(OpenError::Foreign { found })) => {
            let kafka = found == "meta.properties";
            let hint = if kafka {
                "this release doesn't take over Kafka's folders: name a new one with --data, and copy topics with a client"
            } else {
                "name an empty folder or a new one with --data"
            };
            Failure::new(Exit::Conflict, what)
                .why(format!(
                    "it holds {found:?} and no data of riverlog, so another folder may be meant"
                ))
                .hint(hint)
        }
        DriveError::Start(StartError::Open(OpenError::Newer { found, known })) => {
            Failure::new(Exit::Conflict, what)
                .why(format!(
                    "it has format {found}, and this release knows formats up to {known}"
                ))
                .hint("start a newer release of riverlog")
        }
        DriveError::Start(StartError::Open(OpenError::Disk(disk)))
            if disk.source.kind() == std::io::ErrorKind::IsADirectory =>
        {
            Failure::new(Exit::Conflict, what)
                .why(format!(
                    "{:?} in it is a folder, and has to be a file",
                    disk.path
                ))
                .hint("move that folder away, or name another data folder with --data")
        }
        DriveError::Start(StartError::Open(OpenError::Disk(disk))) => {
            let failure = folder_failure(&disk.source, data);
            match failure.reason() {
                Some(why) => {
                    let why = format!("{why} ({} {})", disk.action, disk.path);
                    failure.why(why)
                }
                None => failure,
            }
        }
        DriveError::Start(StartError::OtherNode { found, asked }) => {
            Failure::new(Exit::Conflict, what)
                .why(format!(
                    "it belongs to node {}, and this is node {}",
                    found.0, asked.0
                ))
                .hint(format!(
                    "start with node.id={}, or name another folder with --data",
                    found.0
                ))
        }
        DriveError::Start(StartError::ClusterMember) => Failure::new(Exit::Conflict, what)
            .why("it belongs to a member of a cluster, and can't be opened alone")
            .hint("start it with `riverlog serve`, which finds the others by itself, or name another folder"),
        other => Failure::new(Exit::Finding, what).why(other.to_string()),
    }
}
