//! Networks for the brokers of a measurement: [`riverlog_chaos::nets`].

use std::process::ExitCode;

fn main() -> ExitCode {
    riverlog_chaos::nets()
}
