//! Several brokers: throughput and latency with copies, how long nobody is answered when one dies or freezes, and catching up.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use riverlog_wire::messages::describe_quorum_request::{PartitionData, TopicData};
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::{DescribeQuorumRequest, MetadataRequest};
use rustix::process::{Pid, Signal, kill_process};

use crate::Result;
use crate::measure::{cpu_seconds, latencies, print, print_latencies};
use crate::wire::{Connection, DEPTH, Load, batch, check_produced, produce_frame, topic_with};

const METADATA: i16 = 9;
const QUORUM: i16 = 1;
/// As long a client waits for one answer before it asks elsewhere.
const ANSWER: Duration = Duration::from_secs(1);
/// And for its first one: a broker that has just started is slower than it will be.
const FIRST_ANSWER: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);
/// Until a cluster has to be whole.
const WHOLE: Duration = Duration::from_secs(120);
/// Requests under way on one connection at a steady pace, before whoever sends them waits.
const PACED_DEPTH: usize = 1_000;

/// What a topic looks like to one broker.
struct View {
    /// Addresses by node.
    brokers: BTreeMap<i32, String>,
    /// Of each partition.
    leaders: Vec<i32>,
    isr: Vec<Vec<i32>>,
}

impl View {
    fn of(address: &str, topic: &str) -> Result<View> {
        let mut connection = Connection::open(address)?;
        connection.0.set_read_timeout(Some(ANSWER))?;
        let request = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(topic.to_owned()),
                ..MetadataRequestTopic::default()
            }]),
            ..MetadataRequest::default()
        };
        let answer = connection.call(METADATA, &request)?;
        let brokers = answer.brokers.iter();
        let brokers = brokers.map(|b| (b.node_id, format!("{}:{}", b.host, b.port)));
        let topic = answer.topics.first().ok_or("no such topic")?;
        let mut partitions: Vec<_> = topic.partitions.iter().collect();
        partitions.sort_by_key(|p| p.partition_index);
        Ok(View {
            brokers: brokers.collect(),
            leaders: partitions.iter().map(|p| p.leader_id).collect(),
            isr: partitions.iter().map(|p| p.isr_nodes.clone()).collect(),
        })
    }

    /// From the first of these brokers that answers so.
    fn when(addresses: &[&str], topic: &str, is: impl Fn(&View) -> bool) -> Result<View> {
        let until = Instant::now() + WHOLE;
        loop {
            for address in addresses {
                match View::of(address, topic) {
                    Ok(view) if is(&view) => return Ok(view),
                    _ => {}
                }
            }
            if Instant::now() > until {
                return Err(format!("{topic} isn't as it should be after {WHOLE:?}").into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn led_by(&self, node: i32) -> Vec<i32> {
        let each = (0..).zip(&self.leaders);
        each.filter(|(_, leader)| **leader == node)
            .map(|(partition, _)| partition)
            .collect()
    }
}

/// A topic whose copies are all in sync.
fn whole_topic(
    addresses: &[&str],
    partitions: i32,
    replicas: i16,
    configs: &[String],
) -> Result<(String, View)> {
    let first = addresses.first().ok_or("no broker is named")?;
    let mut connection = Connection::open(first)?;
    let topic = topic_with(&mut connection, partitions, replicas, configs)?;
    let view = View::when(addresses, &topic, |view| {
        view.leaders.len() == partitions as usize
            && view.leaders.iter().all(|leader| *leader >= 0)
            && view.isr.iter().all(|isr| isr.len() == replicas as usize)
    })?;
    Ok((topic, view))
}

/// A broker may hear of what it leads later than others do: waits until each has taken a batch for each partition.
fn each_takes_one(topic: &str, view: &View) -> Result<()> {
    let (records, until) = (batch(&Load::small())?.0, Instant::now() + WHOLE);
    for (node, address) in &view.brokers {
        let mut connection = Connection::open(address)?;
        for partition in view.led_by(*node) {
            let frame = produce_frame(topic, partition, &records)?;
            loop {
                connection.0.write_all(&frame)?;
                match check_produced(&connection.receive()?) {
                    Ok(()) => break,
                    Err(error) if Instant::now() > until => return Err(error),
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        }
    }
    Ok(())
}

/// Sends `requests` of these frames in turn; one every `pace`, or as fast as they are answered. Latencies count from when a
/// request was due.
fn send(
    address: &str,
    frames: &[Vec<u8>],
    requests: u64,
    pace: Option<Duration>,
    stop: &AtomicBool,
    latency: &mut Histogram<u64>,
) -> Result<()> {
    let mut reader = Connection::open(address)?;
    let mut writer = reader.0.try_clone()?;
    let depth = pace.map_or(DEPTH, |_| PACED_DEPTH);
    let (due, sent) = sync_channel::<Instant>(depth - 1);
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || -> Result<()> {
            let mut next = Instant::now();
            for frame in frames.iter().cycle().take(requests as usize) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if let Some(pace) = pace {
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                    due.send(next)?;
                    next += pace;
                } else {
                    due.send(Instant::now())?;
                }
                writer.write_all(frame)?;
            }
            Ok(())
        });
        for at in sent {
            check_produced(&reader.receive()?)?;
            latency.record(at.elapsed().as_micros() as u64)?;
        }
        writing.join().map_err(|_| "a writer broke")?
    })
}

/// What is produced to a cluster.
pub(crate) struct Copies {
    pub(crate) partitions: i32,
    pub(crate) replicas: i16,
    /// Requests a second at all brokers together; as fast as they are answered without.
    pub(crate) rate: Option<u32>,
    /// As much before it counts.
    pub(crate) warm_up: bool,
}

/// Produces to the leaders on all brokers at once, five requests under way at each.
pub(crate) fn produce(brokers: &str, load: &Load, copies: &Copies) -> Result<()> {
    let addresses: Vec<&str> = brokers.split(',').collect();
    let (topic, view) = whole_topic(
        &addresses,
        copies.partitions,
        copies.replicas,
        &load.topic_config,
    )?;
    each_takes_one(&topic, &view)?;
    if copies.warm_up {
        spread(&topic, &view, load, copies.rate)?;
    }
    let cpu = || -> Result<f64> {
        let each = view.brokers.values();
        let each = each.map(|address| cpu_seconds(process(address)?.as_raw_nonzero().get() as u32));
        each.sum()
    };
    let before = cpu()?;
    let (latency, bytes, seconds) = spread(&topic, &view, load, copies.rate)?;
    let used = cpu()? - before;
    print_latencies("produce", &latency);
    let mib = bytes as f64 / f64::from(1 << 20);
    print("CPU a GiB, all brokers", used / mib * 1024.0, "CPU-s/GiB");
    print("cores used, all brokers", used / seconds, "cores");
    print("MiB a second", mib / seconds, "MiB/s");
    print("GiB", mib / 1024.0, "GiB");
    Ok(())
}

fn spread(
    topic: &str,
    view: &View,
    load: &Load,
    rate: Option<u32>,
) -> Result<(Histogram<u64>, u64, f64)> {
    let (records, logical) = batch(load)?;
    let requests = ((load.mib << 20) / logical.max(1)).max(1);
    let leading: Vec<(&String, Vec<i32>)> = view
        .brokers
        .iter()
        .map(|(node, address)| (address, view.led_by(*node)))
        .filter(|(_, partitions)| !partitions.is_empty())
        .collect();
    let pace = rate.map(|rate| Duration::from_secs(leading.len() as u64) / rate);
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let all = std::thread::scope(|scope| -> Result<_> {
        let mut senders = Vec::new();
        for (address, partitions) in &leading {
            let frames: Vec<Vec<u8>> = partitions
                .iter()
                .map(|p| produce_frame(topic, *p, &records))
                .collect::<Result<_>>()?;
            let (part, stop) = (requests / leading.len() as u64, &stop);
            senders.push(scope.spawn(move || {
                let mut latency = latencies()?;
                send(address, &frames, part, pace, stop, &mut latency).map(|()| latency)
            }));
        }
        let mut all = latencies()?;
        for sender in senders {
            all.add(sender.join().map_err(|_| "a sender broke")??)?;
        }
        Ok(all)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    Ok((all.clone(), logical * all.len(), seconds))
}

/// What happens to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Freeze,
    /// Its network is cut from all others.
    CutOff,
}

impl Fault {
    fn happens(self, address: &str) -> Result<()> {
        match self {
            Fault::Kill => kill_process(process(address)?, Signal::KILL)?,
            Fault::Freeze => kill_process(process(address)?, Signal::STOP)?,
            Fault::CutOff => set_link(address, "down")?,
        }
        Ok(())
    }

    fn ends(self, address: &str) -> Result<()> {
        match self {
            Fault::Kill => {}
            Fault::Freeze => kill_process(process(address)?, Signal::CONT)?,
            Fault::CutOff => set_link(address, "up")?,
        }
        Ok(())
    }
}

/// What `variable` names for the broker with this address: it holds `NAME@PORT,…`.
fn named(variable: &str, address: &str) -> Result<String> {
    let all = std::env::var(variable)
        .map_err(|_| format!("{variable} isn't set: cargo xtask bench does that"))?;
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    let mut each = all.split(',').filter_map(|one| one.split_once('@'));
    let found = each.find(|(_, of)| *of == port);
    let found = found.ok_or_else(|| format!("{variable} doesn't name the broker {address}"))?;
    Ok(found.0.to_owned())
}

/// The process of the broker with this address.
fn process(address: &str) -> Result<Pid> {
    let pid: i32 = named("BROKER_PIDS", address)?.parse()?;
    Pid::from_raw(pid).ok_or_else(|| "not a process".into())
}

/// Cuts off the network of the broker with this address (`down`), or joins it again (`up`).
fn set_link(address: &str, state: &str) -> Result<()> {
    let link = named("BROKER_LINKS", address)?;
    let done = Command::new("ip")
        .args(["link", "set", &link, state])
        .status()?;
    match done.success() {
        true => Ok(()),
        false => Err(format!("ip link set {link} {state}: {done}").into()),
    }
}

/// The node that leads the metadata quorum.
fn controller(address: &str) -> Result<i32> {
    let request = DescribeQuorumRequest {
        topics: vec![TopicData {
            topic_name: "__cluster_metadata".to_owned(),
            partitions: vec![PartitionData { partition_index: 0 }],
        }],
    };
    let answer = Connection::open(address)?.call(QUORUM, &request)?;
    let mut partitions = answer.topics.iter().flat_map(|t| &t.partitions);
    let partition = partitions.next().ok_or("no metadata quorum")?;
    Ok(partition.leader_id)
}

/// How long nobody was answered in the partitions that the broker led.
pub(crate) fn failover(
    brokers: &str,
    fault: Fault,
    with_controller: bool,
    partitions: i32,
    watched: usize,
) -> Result<()> {
    let addresses: Vec<&str> = brokers.split(',').collect();
    let configs = ["min.insync.replicas=2".to_owned()];
    let (topic, view) = whole_topic(&addresses, partitions, 3, &configs)?;
    let controller = controller(addresses.first().ok_or("no broker is named")?)?;
    let nodes = view.brokers.keys();
    let victim = *nodes
        .filter(|node| (**node == controller) == with_controller)
        .find(|node| !view.led_by(**node).is_empty())
        .ok_or("no such broker leads")?;
    let victims = &view.brokers[&victim];
    let led: Vec<i32> = view.led_by(victim).into_iter().take(watched).collect();
    let records = batch(&Load::small())?.0;
    let stop = &AtomicBool::new(false);
    let leaders = &Leaders::new(&addresses, &topic);
    let begun = &AtomicUsize::new(0);
    let mut gaps = std::thread::scope(|scope| -> Result<Vec<Duration>> {
        let mut writers = Vec::new();
        for partition in &led {
            let frame = produce_frame(&topic, *partition, &records)?;
            let writer = move || answered(leaders, *partition, &frame, begun, stop);
            writers.push(scope.spawn(writer));
        }
        let patience = Instant::now() + WHOLE;
        while begun.load(Ordering::Relaxed) < led.len() && Instant::now() < patience {
            std::thread::sleep(PAUSE);
        }
        let began = begun.load(Ordering::Relaxed);
        if began < led.len() {
            // Without a first answer there is no gap to measure.
            stop.store(true, Ordering::Relaxed);
            let why = leaders.why.lock().map_err(|_| "a writer broke")?.clone();
            return Err(format!("{began} of {} writers were answered; {why}", led.len()).into());
        }
        std::thread::sleep(Duration::from_secs(3));
        let at = Instant::now();
        let happens = fault.happens(victims);
        // Whatever broke, the writers are to end.
        std::thread::sleep(Duration::from_secs(25));
        stop.store(true, Ordering::Relaxed);
        let end = Instant::now();
        happens?;
        fault.ends(victims)?;
        let mut gaps = Vec::new();
        for writer in writers {
            let mut times = writer.join().map_err(|_| "a writer broke")?;
            times.push(end);
            let pairs = times.windows(2).filter(|pair| pair[1] > at);
            gaps.extend(pairs.map(|pair| pair[1] - pair[0]).max());
        }
        Ok(gaps)
    })?;
    gaps.sort_unstable();
    let of = |share: f64| {
        let place = ((gaps.len() as f64 * share).ceil() as usize).max(1) - 1;
        gaps.get(place)
            .map_or(f64::NAN, |gap| gap.as_secs_f64() * 1e3)
    };
    print("gap p50", of(0.5), "ms");
    print("gap p99", of(0.99), "ms");
    print("gap longest", of(1.0), "ms");
    print(
        "partitions that lost their leader",
        gaps.len() as f64,
        "partitions",
    );
    Ok(())
}

/// Who leads what, as all writers know it together: those of one producer ask once.
struct Leaders<'a> {
    addresses: &'a [&'a str],
    topic: &'a str,
    known: Mutex<Known>,
    /// Why a writer has no first answer.
    why: Mutex<String>,
}

struct Known {
    asked: Option<Instant>,
    view: Option<View>,
    /// Another one is asked each time: one of them may be frozen.
    next: usize,
}

impl<'a> Leaders<'a> {
    fn new(addresses: &'a [&'a str], topic: &'a str) -> Leaders<'a> {
        let known = Known {
            asked: None,
            view: None,
            next: 0,
        };
        Leaders {
            addresses,
            topic,
            known: Mutex::new(known),
            why: Mutex::default(),
        }
    }

    fn refused(&self, partition: i32, why: &str) {
        if let Ok(mut last) = self.why.lock() {
            *last = format!("partition {partition}: {why}");
        }
    }

    /// Where the leader of a partition is, as of a moment behind `since`.
    fn place(&self, partition: i32, since: Instant) -> Result<String> {
        let mut known = self.known.lock().map_err(|_| "a writer broke")?;
        if known.asked.is_none_or(|asked| asked < since) {
            let address = self.addresses.get(known.next % self.addresses.len());
            known.next += 1;
            let asked = Instant::now();
            known.view = Some(View::of(address.ok_or("no broker is named")?, self.topic)?);
            known.asked = Some(asked);
        }
        let view = known.view.as_ref().ok_or("nobody was asked")?;
        let leader = view.leaders.get(partition as usize).ok_or("too few")?;
        Ok(view.brokers.get(leader).ok_or("nobody leads")?.clone())
    }
}

/// Sends to one partition wherever it is led, again and again; when answers came that all is well.
fn answered(
    leaders: &Leaders<'_>,
    partition: i32,
    frame: &[u8],
    begun: &AtomicUsize,
    stop: &AtomicBool,
) -> Vec<Instant> {
    let mut times = Vec::new();
    let mut connection: Option<Connection> = None;
    let mut failed = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let open = || -> Result<Connection> {
            let found = Connection::open(&leaders.place(partition, failed)?)?;
            let patience = if times.is_empty() {
                FIRST_ANSWER
            } else {
                ANSWER
            };
            found.0.set_read_timeout(Some(patience))?;
            Ok(found)
        };
        let there = match connection.take() {
            Some(there) => Ok(there),
            None => open(),
        };
        let once = there.and_then(|mut there| {
            there.0.write_all(frame)?;
            check_produced(&there.receive()?)?;
            Ok(there)
        });
        match once {
            Ok(there) => {
                if times.is_empty() {
                    begun.fetch_add(1, Ordering::Relaxed);
                    // One that can't be set is a connection that is gone.
                    let _ = there.0.set_read_timeout(Some(ANSWER));
                }
                times.push(Instant::now());
                connection = Some(there);
            }
            Err(error) => {
                failed = Instant::now();
                if times.is_empty() {
                    leaders.refused(partition, &error.to_string());
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
    times
}

/// A follower that was frozen while `mib` MiB came: how fast it catches up, and what the others' writers feel of it.
pub(crate) fn catch_up(brokers: &str, mib: u64, topic_config: &[String]) -> Result<()> {
    const RATE: u32 = 500;
    const QUIET: Duration = Duration::from_secs(10);
    /// A broker that is busy may lose leaderships: what waits then isn't measured, how often it happened is.
    const MOVES: usize = 20;
    let addresses: Vec<&str> = brokers.split(',').collect();
    let mut configs = topic_config.to_vec();
    configs.push("min.insync.replicas=2".to_owned());
    let (bulk, view) = whole_topic(&addresses, 12, 3, &configs)?;
    let (tail, _) = whole_topic(&addresses, 12, 3, &configs)?;
    let controller = controller(addresses.first().ok_or("no broker is named")?)?;
    let nodes = view.brokers.keys();
    let victim = *nodes
        .filter(|node| **node != controller)
        .max()
        .ok_or("too few brokers")?;
    let pid = process(&view.brokers[&victim])?;
    let others: Vec<&str> = view
        .brokers
        .iter()
        .filter(|(node, _)| **node != victim)
        .map(|(_, address)| address.as_str())
        .collect();
    kill_process(pid, Signal::STOP)?;
    let result = (|| -> Result<()> {
        let without = |view: &View| {
            view.isr.iter().all(|isr| !isr.contains(&victim)) && view.led_by(victim).is_empty()
        };
        let view = View::when(&others, &bulk, without)?;
        let load = Load {
            batch: 128 << 10,
            mib,
            ..Load::small()
        };
        spread(&bulk, &view, &load, None)?;
        View::when(&others, &tail, without)?;
        let moved = AtomicUsize::new(0);
        // To those partitions that the controller's node leads, as long as it leads them.
        let write = |stop: &AtomicBool| -> Result<Histogram<u64>> {
            let mut latency = latencies()?;
            loop {
                let leads = |view: &View| !view.led_by(controller).is_empty();
                let view = View::when(&others, &tail, leads)?;
                let records = batch(&Load::small())?.0;
                let led = view.led_by(controller).into_iter();
                let frames: Result<Vec<Vec<u8>>> =
                    led.map(|p| produce_frame(&tail, p, &records)).collect();
                let (address, pace) = (&view.brokers[&controller], Duration::from_secs(1) / RATE);
                let sent = send(address, &frames?, u64::MAX, Some(pace), stop, &mut latency);
                let again = moved.load(Ordering::Relaxed) < MOVES && !stop.load(Ordering::Relaxed);
                match sent {
                    Err(_) if again => moved.fetch_add(1, Ordering::Relaxed),
                    sent => return sent.map(|()| latency),
                };
            }
        };
        let meanwhile = |until: &dyn Fn() -> Result<()>| -> Result<Histogram<u64>> {
            let stop = &AtomicBool::new(false);
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| write(stop));
                let ended = until();
                stop.store(true, Ordering::Relaxed);
                let latency = sending.join().map_err(|_| "a sender broke")??;
                ended.map(|()| latency)
            })
        };
        let quiet = meanwhile(&|| {
            std::thread::sleep(QUIET);
            Ok(())
        })?;
        kill_process(pid, Signal::CONT)?;
        let began = Instant::now();
        let busy = meanwhile(&|| {
            let whole = |view: &View| view.isr.iter().all(|isr| isr.contains(&victim));
            View::when(&others, &bulk, whole).map(|_| ())
        })?;
        let seconds = began.elapsed().as_secs_f64();
        print("caught up", seconds, "s");
        print("caught up, MiB a second", mib as f64 / seconds, "MiB/s");
        print_latencies("quiet tail", &quiet);
        print_latencies("tail meanwhile", &busy);
        print("leaders that moved", moved.into_inner() as f64, "times");
        let p99 = |of: &Histogram<u64>| of.value_at_quantile(0.99) as f64;
        print(
            "tail p99, of the quiet one's",
            p99(&busy) / p99(&quiet),
            "times",
        );
        Ok(())
    })();
    // A frozen broker couldn't be stopped.
    let _ = kill_process(pid, Signal::CONT);
    result
}
