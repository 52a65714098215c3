//! Drills: a real server, real clients, a real fault, and the checker's verdict on what the clients saw.
//!
//! `riverlog-chaos NAME --server BINARY --python PYTHON` plays one, with `--java` and `--go` also with these clients; `cargo xtask drill NAME` brings what it needs and runs
//! it. It ends with 0 when every promise was kept, 1 when one was broken, and 3 when this machine lacks what the drill
//! needs, which it names.

mod cluster;
mod disk;
mod drills;
mod net;
mod play;
mod raw;
mod server;
mod stage;
mod system;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Why a drill didn't pass.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This machine or this user can't play it.
    Lacks(String),
    /// A promise was broken, or the drill itself went wrong.
    Broken(String),
}

impl Failure {
    fn tell(self, name: &str) -> ExitCode {
        match self {
            Failure::Lacks(what) => {
                println!("{name}: NOT PLAYED: {what}");
                ExitCode::from(3)
            }
            Failure::Broken(what) => {
                println!("{name}: FAILED: {what}");
                ExitCode::FAILURE
            }
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Broken(error.to_string())
    }
}

/// A broken promise in words.
pub(crate) fn broken<T>(what: impl Into<String>) -> Result<T> {
    Err(Failure::Broken(what.into()))
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Plays one fault against a real server with real clients, and judges what they saw.
#[derive(Debug, Parser)]
#[command(name = "riverlog-chaos")]
pub(crate) struct Options {
    /// Which fault
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(names()))]
    drill: String,
    /// The server's binary
    #[arg(long)]
    server: PathBuf,
    #[command(flatten)]
    clients: workload::Clients,
    /// Where images, mounts, logs and histories go; made, and removed when the drill passes
    #[arg(long)]
    work: PathBuf,
    /// How often the fault comes; each drill has a default
    #[arg(long)]
    rounds: Option<u32>,
    /// What is drawn at random begins here
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A setting of the server. With `riverlog.durability=page-cache` a power cut must be found out
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Keep the work folder also when all went well
    #[arg(long)]
    keep: bool,
}

/// All that can be played.
fn names() -> impl Iterator<Item = &'static str> {
    let one = drills::ALL.iter().map(|drill| drill.name);
    one.chain(cluster::ALL.iter().map(|drill| drill.name))
}

fn play(options: &Options) -> Result<String> {
    let name = &options.drill;
    if let Some(drill) = cluster::ALL.iter().find(|d| d.name == name) {
        return cluster::play(drill, options);
    }
    match drills::ALL.iter().find(|d| d.name == name) {
        Some(drill) => stage::play(drill, options),
        None => broken(format!("there is no drill {name}")),
    }
}

/// The program `riverlog-chaos`.
pub fn drill() -> ExitCode {
    let options = Options::parse();
    let name = &options.drill;
    match play(&options) {
        Ok(report) => {
            println!("{name}: passed: {report}");
            ExitCode::SUCCESS
        }
        Err(failure) => failure.tell(name),
    }
}

/// Makes networks, says where they are, and removes them when nobody writes to its input any more.
#[derive(Debug, Parser)]
#[command(name = "riverlog-nets")]
struct Nets {
    /// How many
    #[arg(long, default_value_t = 3)]
    nodes: usize,
}

/// The program `riverlog-nets`: a line for each network, of its address, the link by which it can be cut off (`ip link set LINK down`), and what a program in it
/// is started with.
pub fn nets() -> ExitCode {
    let options = Nets::parse();
    let serve = || -> Result<()> {
        let net = net::Net::new(options.nodes)?;
        for node in 1..=options.nodes {
            let under = net.under(node).join(" ");
            println!("{} {} {under}", net.address(node), net.link(node));
        }
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
        Ok(())
    };
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell("networks"),
    }
}
