//! What developers and CI run: `cargo xtask --help` lists it, one file a subcommand.

mod bench;
mod broker;
mod codegen;
mod compat;
mod conformance;
mod console;
mod contract;
mod drill;
mod flights;
mod fuzz;
mod long;
mod metadata;
mod monitoring;
mod mutants;
mod nets;
mod packaging;
mod peer;
mod place;
mod proc;
mod readme;
mod run;
mod table;
mod test;
mod tidy;
mod tools;

use clap::{Parser, Subcommand};

/// What can go wrong here is told in words: nobody matches on it.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "What developers and CI run",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything CI runs, cheapest first; the table at the end says what took how long
    Test(test::Args),
    /// The rules that the compiler doesn't know: arrows between crates, banned calls, licences, links
    Tidy(tidy::Args),
    /// Real client libraries run the same cases against Riverlog and against Apache Kafka
    Compat(compat::Args),
    /// Measures Riverlog, and Apache Kafka beside it when asked
    Bench(bench::Args),
    /// Runs other people's test suites against a broker and compares with what Kafka scores
    Conformance(conformance::Args),
    /// Writes the codec of Kafka's messages from its definitions; --check only compares
    Codegen {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Checks and builds the console in the browser, which the binary then carries
    Console(console::Args),
    /// Starts, stops and commands a real Apache Kafka on this machine
    Peer(peer::Args),
    /// Brings a year of flights (336,776 records) as JSON lines, for examples and measurements
    Flights(flights::Args),
    /// Feeds each decoder bytes that nobody would send, for a moment
    Fuzz(fuzz::Args),
    /// Plants each fault in turn and says which seed of the simulator notices it; writes docs/reliability/mutants.md
    Mutants(mutants::Args),
    /// Runs the shell blocks of the documents that are marked for it
    Readme(readme::Args),
    /// Real servers on disks that fail, under real clients; a checker judges what they saw
    Drill(drill::Args),
    /// What takes too long for CI; the result goes into docs/reliability/ledger.md
    Long(long::Args),
}

fn main() -> std::process::ExitCode {
    let result = match Cli::parse().command {
        Command::Test(args) => test::run(&args),
        Command::Tidy(args) => tidy::run(&args),
        Command::Compat(args) => compat::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Codegen { args } => codegen::run(&args),
        Command::Console(args) => console::run(&args),
        Command::Peer(args) => peer::run(&args),
        Command::Flights(args) => flights::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Readme(args) => readme::run(&args),
        Command::Drill(args) => drill::run(&args),
        Command::Long(args) => long::run(&args),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
