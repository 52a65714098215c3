//! The command line: `riverlog NOUN VERB`. One file a noun.

mod bench;
mod cluster;
mod config;
mod consume;
mod dev;
mod dev_cluster;
mod doctor;
mod explain;
mod format;
mod generate;
mod group;
mod interrupt;
mod output;
mod produce;
mod recover;
mod segment;
mod serve;
mod shell;
mod top;
mod topic;
mod txn;
mod values;

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::client::{Client, Settings};
use crate::failure::{Exit, Failure};
use output::{Output, Table};

/// A Kafka-compatible event log: the server, and the tools around it.
#[derive(Debug, Parser)]
#[command(
    name = "riverlog",
    version,
    arg_required_else_help = true,
    max_term_width = 110
)]
#[command(
    after_help = "Start with `riverlog dev`, then `riverlog produce hello` and `riverlog consume hello`.\nExit codes: 0 ok, 1 finding, 2 usage, 3 not found, 4 unreachable, 5 not allowed, 6 conflict, 7 time-out, 8 partial, 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    context: Context,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Context {
    /// Brokers to begin with: host:port, comma-separated
    #[arg(
        short = 'b',
        long = "brokers",
        visible_alias = "bootstrap-server",
        env = "RIVERLOG_BROKERS"
    )]
    #[arg(
        default_value = "localhost:9092",
        hide_default_value = false,
        global = true,
        value_name = "HOST:PORT"
    )]
    brokers: String,
    /// Form of results; a table on a terminal and tabs in a pipe unless given
    #[arg(short = 'o', long, value_enum, global = true, value_name = "FORM")]
    output: Option<Output>,
    /// How long to wait for a broker
    #[arg(long, default_value = "10s", value_parser = values::duration, global = true, value_name = "TIME")]
    timeout: Duration,
    /// Say nothing but results and errors
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Say each request, with its time
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a broker; nothing needs to be set
    Serve(serve::Serve),
    /// Run a broker to try things with; its data is gone afterwards
    Dev(dev::Dev),
    /// Make, show and change topics
    #[command(subcommand)]
    Topic(topic::Topic),
    /// Write records: lines of standard input or files
    Produce(produce::Produce),
    /// Read records
    Consume(consume::Consume),
    /// Read new records, one line each
    Tail(consume::Tail),
    /// Show and change consumer groups
    #[command(subcommand)]
    Group(group::Group),
    /// Show transactions, and end those that hang
    #[command(subcommand)]
    Txn(txn::Txn),
    /// Show, explain, set and check configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Look at the cluster, and change who votes, who leads, and what is where
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    /// Watch topics, groups and brokers: what flows, and who is behind
    Top(top::Top),
    /// Find out what is wrong
    #[command(subcommand)]
    Doctor(doctor::Doctor),
    /// Look into the files of a stopped broker
    #[command(subcommand)]
    Segment(segment::Segment),
    /// Recover the data folder of a stopped broker, and say what is damaged or lost
    Recover(recover::Recover),
    /// Measure a broker
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Say what an error code or an exit code means
    Explain(explain::Explain),
    /// Dashboards and alerts for what /metrics says
    #[command(subcommand)]
    Generate(generate::Generate),
    /// Completion for a shell
    Completions(shell::Completions),
    /// Manual pages
    Man(shell::Man),
    /// The version of this program
    Version,
}

/// Runs the command line.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. A closed pipe is a clean end.
            let _ = error.print();
            let code = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            };
            return ExitCode::from(code as u8);
        }
    };
    match cli.command.run(&cli.context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.speaks() {
                eprintln!("{failure}");
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

impl Command {
    fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Command::Serve(serve) => serve.run(),
            Command::Dev(dev) => dev.run(context),
            Command::Topic(topic) => topic.run(context),
            Command::Produce(produce) => produce.run(context),
            Command::Consume(consume) => consume.run(context),
            Command::Tail(tail) => tail.run(context),
            Command::Group(group) => group.run(context),
            Command::Txn(txn) => txn.run(context),
            Command::Config(config) => config.run(context),
            Command::Cluster(cluster) => cluster.run(context),
            Command::Top(top) => top.run(context),
            Command::Doctor(doctor) => doctor.run(context),
            Command::Segment(segment) => segment.run(context),
            Command::Recover(recover) => recover.run(context),
            Command::Bench(bench) => bench.run(context),
            Command::Explain(explain) => explain.run(context),
            Command::Generate(generate) => generate.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
            Command::Version => {
                let mut table = Table::new("version", &["version", "+kafka"]);
                table.row(vec![env!("CARGO_PKG_VERSION").into(), "4.4".into()]);
                table.print(context.output)
            }
        }
    }
}

impl Context {
    fn settings(&self) -> Settings {
        Settings {
            brokers: self.brokers.clone(),
            timeout: self.timeout,
            trace: self.verbose,
        }
    }

    fn client(&self) -> Result<Client, Failure> {
        Client::connect(self.settings())
    }

    /// A word on standard error, unless quiet.
    fn note(&self, words: &str) {
        if !self.quiet {
            eprintln!("{words}");
        }
    }

    /// Asks before something is destroyed: on a terminal for its name, elsewhere `--yes` must say it.
    fn confirm(&self, yes: bool, what: &str, name: &str) -> Result<(), Failure> {
        if yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Failure::usage(format!(
                "nothing was done, since nobody confirmed it: {what}"
            ))
            .why("it can't be undone, and there is no terminal to ask at")
            .hint("add --yes to do it, or --dry-run to see what it would do"));
        }
        eprint!("About to do what can't be undone: {what}. Type {name} to go on: ");
        // Without the prompt the answer still counts.
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        std::io::stdin()
            .lock()
            .read_line(&mut line)
            .map_err(|error| Failure::usage("the answer can't be read").why(error.to_string()))?;
        if line.trim() == name {
            return Ok(());
        }
        Err(Failure::new(Exit::Interrupted, "nothing was done")
            .why(format!("{:?} isn't {name}", line.trim())))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_argument_says_what_it_is_for() {
        fn look(command: &clap::Command, silent: &mut Vec<String>) {
            if command.get_about().is_none() {
                silent.push(command.get_name().to_owned());
            }
            for argument in command.get_arguments() {
                if argument.get_help().is_none() && !argument.is_hide_set() {
                    silent.push(format!("{} {}", command.get_name(), argument.get_id()));
                }
            }
            for inner in command.get_subcommands() {
                look(inner, silent);
            }
        }
        let mut silent = Vec::new();
        look(&super::Cli::command(), &mut silent);
        assert!(silent.is_empty(), "{silent:#?}");
    }
}
