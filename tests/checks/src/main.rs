//! Runs the checks against a broker: `riverlog-checks BOOTSTRAP [PREFIX] [--only NUMBER]...`. With several addresses, a comma between, those
//! of a cluster run instead; `BROKER_PIDS` names the processes (`PID@PORT,…`) that some of them freeze for a while.
//!
//! Prints `PASS name`, `FAIL name reason` or `SKIP name reason` for each, and ends with 1 when one failed. Topics and groups that it
//! makes begin with the prefix.

use std::process::ExitCode;

use riverlog_checks::{Broker, CLUSTER_CHECKS, Cluster, Failure, Outcome, TcpBroker, all, run};

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
    let mut broker = TcpBroker::new(&*bootstrap);
    // Names of an earlier run may still be there.
    let prefix = plain
        .next()
        .unwrap_or_else(|| format!("checks-{}", broker.wall_ms()));
    let wanted = |number: &str| only.is_empty() || only.iter().any(|n| n == number);
    let mut failed = false;
    let mut report = |title: String, outcome: Outcome| match outcome {
        Ok(()) => println!("PASS {title}"),
        Err(Failure::Skip(reason)) => println!("SKIP {title} {reason}"),
        Err(Failure::Wrong(reason)) => {
            failed = true;
            println!("FAIL {title} {reason}");
        }
    };
    if bootstrap.contains(',') {
        let processes = std::env::var("BROKER_PIDS").unwrap_or_default();
        for check in CLUSTER_CHECKS.iter().filter(|c| wanted(c.number)) {
            let prefix = format!("{prefix}-{}", check.number);
            let cluster = Cluster::new(&bootstrap, &processes, prefix);
            let outcome = cluster.and_then(|mut cluster| check.run(&mut cluster));
            report(check.title(), outcome);
        }
    } else {
        for check in all().filter(|c| wanted(c.number)) {
            report(check.title(), run(check, &mut broker, &prefix));
        }
    }
    ExitCode::from(u8::from(failed))
}
