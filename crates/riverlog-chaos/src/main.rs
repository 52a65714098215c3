//! Plays a drill: [`riverlog_chaos::drill`].

use std::process::ExitCode;

fn main() -> ExitCode {
    riverlog_chaos::drill()
}
