//! `riverlog dev --nodes`: a cluster on one machine, each node a process of its own, so that one can be killed.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::interrupt;
use crate::client::{Client, Settings, address, place};
use crate::failure::{Exit, Failure};

/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long nodes may take to stop.
const STOP: Duration = Duration::from_secs(5);

/// The processes; none outlives this one.
struct Nodes(Vec<(String, Child)>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // One that has ended already is no trouble.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs until Ctrl-C, or until all nodes have ended.
///
/// - `listen`: where the first node listens; the others take the ports after it, or free ones.
pub(super) fn run(nodes: u16, listen: &str, data: &Path, verbose: bool) -> Result<(), Failure> {
    interrupt::watch();
    let (host, first) = address(listen)?;
    let places = places(&host, first, nodes)?;
    let seeds = places.join(",");
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Exit::Finding, "this program doesn't find itself").why(error.to_string())
    })?;
    let mut running = Nodes(Vec::new());
    for (id, at) in (1..).zip(&places) {
        let folder = data.join(format!("node-{id}"));
        let mut command = Command::new(&program);
        command
            .args(["serve", "--with-parent", "--http", "none", "--log-level"])
            .arg(if verbose { "info" } else { "warn" })
            .args(["--listen", at, "--seeds", &seeds, "--node-id"])
            .arg(id.to_string())
            .arg("--data")
            .arg(folder)
            // Whatever ends this process closes it, and they end as at a signal; Ctrl-C isn't for them.
            .stdin(Stdio::piped())
            .process_group(0)
            .stdout(Stdio::null());
        let child = command.spawn().map_err(|error| {
            Failure::new(Exit::Finding, format!("node {id} can't be started"))
                .why(error.to_string())
        })?;
        running.0.push((at.clone(), child));
    }
    wait_for_controller(&seeds, &mut running)?;
    greet(&running);
    while !interrupt::asked() && running.0.iter_mut().any(|(_, child)| is_running(child)) {
        std::thread::sleep(LOOK);
    }
    for (_, child) in &mut running.0 {
        drop(child.stdin.take());
    }
    let deadline = std::time::Instant::now() + STOP;
    while running.0.iter_mut().any(|(_, child)| is_running(child))
        && std::time::Instant::now() < deadline
    {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn is_running(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// One address for each node, all free now.
fn places(host: &str, first: u16, nodes: u16) -> Result<Vec<String>, Failure> {
    let mut held = Vec::new();
    for i in 0..nodes {
        let wanted = if first == 0 {
            0
        } else {
            first.saturating_add(i)
        };
        let bound = TcpListener::bind((host, wanted)).or_else(|_| TcpListener::bind((host, 0)));
        let listener = bound.map_err(|error| {
            Failure::usage(format!("no port of {host} is free")).why(error.to_string())
        })?;
        held.push(listener);
    }
    let ports = held.iter().map(TcpListener::local_addr);
    let places = ports.map(|at| at.map(|at| place(host, at.port())));
    places.collect::<Result<_, _>>().map_err(|error| {
        Failure::new(Exit::Finding, "a port can't be asked for its number").why(error.to_string())
    })
}

fn wait_for_controller(seeds: &str, running: &mut Nodes) -> Result<(), Failure> {
    let nodes = running.0.len();
    for _ in 0..300 {
        if interrupt::asked() {
            return Ok(());
        }
        let nodes_now = running.0.iter_mut();
        let gone = nodes_now.filter_map(|(at, child)| (!is_running(child)).then_some(at));
        if let Some(at) = gone.into_iter().next() {
            return Err(
                Failure::new(Exit::Finding, format!("the node at {at} has ended"))
                    .hint("see what it has said above"),
            );
        }
        let settings = Settings {
            brokers: seeds.to_owned(),
            timeout: Duration::from_secs(2),
            trace: false,
        };
        let metadata = Client::connect(settings).and_then(|mut c| c.metadata(None, false));
        if metadata.is_ok_and(|m| m.controller_id >= 0 && m.brokers.len() == nodes) {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    Err(Failure::new(
        Exit::Timeout,
        "the nodes didn't form a cluster within 30 seconds",
    )
    .hint("run it with --verbose to see what they say"))
}

fn greet(running: &Nodes) {
    let mut text = String::new();
    for (id, (at, child)) in (1..).zip(&running.0) {
        text += &format!("node {id}   {at}   process {}\n", child.id());
    }
    let at = running.0.first().map_or("", |(at, _)| at.as_str());
    text += &format!(
        "\nIn another terminal:\n\
         \x20 riverlog cluster quorum -b {at}\n\
         \x20 riverlog topic create hello -b {at}\n\
         \x20 kill -9 one of the processes, and look again\n\n\
         Ctrl-C ends them all.\n"
    );
    let mut out = std::io::stdout().lock();
    // Whoever doesn't look may still use the brokers.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
