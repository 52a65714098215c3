//! Runs the checks against a broker: `riverlog-checks BOOTSTRAP [PREFIX] [--only NUMBER]...`.
//!
//! Prints `PASS name`, `FAIL name reason` or `SKIP name reason` for each, and ends with 1 when one failed. Topics and groups that it
//! makes begin with the prefix.

use std::process::ExitCode;

use riverlog_checks::{Broker, Failure, TcpBroker, all, run};

fn main() -> ExitCode {
    let mut plain = Vec::new();
    let mut only = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--only" {
            only.extend(arguments.next());
        } else {
            plain.push(argument);
        }
    }
    let mut plain = plain.into_iter();
    let Some(bootstrap) = plain.next() else {
        eprintln!("usage: riverlog-checks BOOTSTRAP [PREFIX] [--only NUMBER]...");
        return ExitCode::from(2);
    };
    let mut broker = TcpBroker::new(bootstrap);
    // Names of an earlier run may still be there.
    let prefix = plain
        .next()
        .unwrap_or_else(|| format!("checks-{}", broker.wall_ms()));
    let mut failed = false;
    for check in all() {
        if !only.is_empty() && !only.iter().any(|n| *n == check.number) {
            continue;
        }
        match run(check, &mut broker, &prefix) {
            Ok(()) => println!("PASS {}", check.title()),
            Err(Failure::Skip(reason)) => println!("SKIP {} {reason}", check.title()),
            Err(Failure::Wrong(reason)) => {
                failed = true;
                println!("FAIL {} {reason}", check.title());
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
