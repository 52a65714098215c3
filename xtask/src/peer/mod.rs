//! `cargo xtask peer kafka …`: a real Apache Kafka on this machine, to compare with.

pub(crate) mod kafka;
pub(crate) mod nats;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};

use crate::Result;
use crate::broker::{self, Kind, Spec};
use crate::{place, proc};

#[derive(Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    peer: Peer,
}

#[derive(Subcommand)]
enum Peer {
    /// Apache Kafka, one node, broker and controller in one process
    #[command(subcommand)]
    Kafka(Verb),
}

#[derive(Subcommand)]
enum Verb {
    /// Starts it and prints its address once it answers; it runs on until `stop`
    Start {
        /// Its folder: data, settings, log and pid; formatted at the first start
        #[arg(long)]
        data: Option<PathBuf>,
        /// Where it listens on 127.0.0.1
        #[arg(long, default_value_t = 19092)]
        port: u16,
        /// A broker setting, as often as wanted
        #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
        prop: Vec<(String, String)>,
    },
    /// Ends it; the data stays
    Stop {
        #[arg(long)]
        data: Option<PathBuf>,
    },
    /// Prints pid and address, or fails when it doesn't run
    Status {
        #[arg(long)]
        data: Option<PathBuf>,
    },
    /// Runs one of Kafka's tools, for example `tool TopicCommand --bootstrap-server …`; a full class name
    /// or a Java source file will do too
    Tool {
        name: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

/// `key=value`, for clap.
pub(crate) fn setting(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' isn't KEY=VALUE")),
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Peer::Kafka(verb) = &args.peer;
    let folder = |data: &Option<PathBuf>| match data {
        Some(dir) => Ok(std::path::absolute(dir)?),
        None => place::cache("peer-kafka"),
    };
    match verb {
        Verb::Start { data, port, prop } => {
            let mut spec = Spec::new(Kind::Kafka, folder(data)?)?;
            if let Some(pid) = recorded(&spec.dir) {
                return Err(format!("it runs already, as process {pid}; stop it first").into());
            }
            spec.port = *port;
            spec.settings.clone_from(prop);
            let broker = spec.start(true)?;
            let address = broker.bootstrap();
            let pid = broker.leave_running();
            fs::write(spec.dir.join("pid"), format!("{pid} {address}\n"))?;
            println!("{address}");
            Ok(())
        }
        Verb::Stop { data } => stop(&folder(data)?),
        Verb::Status { data } => {
            let dir = folder(data)?;
            let pid =
                recorded(&dir).ok_or_else(|| format!("no Kafka runs in {}", dir.display()))?;
            let line = fs::read_to_string(dir.join("pid"))?;
            println!(
                "process {pid}, {}",
                line.split_whitespace().nth(1).unwrap_or("?")
            );
            Ok(())
        }
        Verb::Tool { name, args } => kafka::tool(name)?.args(args).limit(3600).shown_live(),
    }
}

/// The process that was started in `dir`, if it still is that one: a pid may be somebody else's by now.
fn recorded(dir: &std::path::Path) -> Option<u32> {
    let line = fs::read_to_string(dir.join("pid")).ok()?;
    let pid = line.split_whitespace().next()?.parse().ok()?;
    let settings = kafka::settings_file(dir);
    let ours = proc::command_line(pid)?.contains(settings.to_str()?);
    ours.then_some(pid)
}

fn stop(dir: &std::path::Path) -> Result<()> {
    let Some(pid) = recorded(dir) else {
        println!("no Kafka runs in {}", dir.display());
        return Ok(());
    };
    broker::terminate(pid);
    let end = Instant::now() + Duration::from_secs(30);
    while recorded(dir).is_some() {
        if Instant::now() > end {
            let log = dir.join("broker.log");
            return Err(format!("process {pid} still runs; see {}", log.display()).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::remove_file(dir.join("pid"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_split_at_the_first_equals_sign() {
        let listeners = setting("a.b=c=d").unwrap();
        assert_eq!(listeners, ("a.b".to_owned(), "c=d".to_owned()));
        assert!(setting("a.b").is_err());
        assert!(setting("=x").is_err());
    }

    #[test]
    fn a_recorded_pid_of_another_process_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("pid"),
            format!("{} 127.0.0.1:1\n", std::process::id()),
        )
        .unwrap();
        assert_eq!(recorded(dir.path()), None);
    }
}
