//! Drills: a real server, real clients, a real fault, and the checker's verdict on what the clients saw.
//!
//! `riverlog-chaos NAME --server BINARY --python PYTHON` plays one; `cargo xtask drill NAME` brings what it needs and runs
//! it. It ends with 0 when every promise was kept, 1 when one was broken, and 3 when this machine lacks what the drill
//! needs, which it names.

mod disk;
mod drills;
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
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(drills::ALL.iter().map(|d| d.name)))]
    drill: String,
    /// The server's binary
    #[arg(long)]
    server: PathBuf,
    /// A Python that has confluent-kafka
    #[arg(long)]
    python: PathBuf,
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

fn main() -> ExitCode {
    let options = Options::parse();
    let Some(drill) = drills::ALL.iter().find(|d| d.name == options.drill) else {
        return ExitCode::from(2);
    };
    match stage::play(drill, &options) {
        Ok(report) => {
            println!("{}: passed: {report}", drill.name);
            ExitCode::SUCCESS
        }
        Err(Failure::Lacks(what)) => {
            println!("{}: NOT PLAYED: {what}", drill.name);
            ExitCode::from(3)
        }
        Err(Failure::Broken(what)) => {
            println!("{}: FAILED: {what}", drill.name);
            ExitCode::FAILURE
        }
    }
}
