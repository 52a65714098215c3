//! `riverlog-checker FILE…`: judges the history that lies in the files, one JSON event a line. Ends with 0 when it keeps
//! every promise, 1 when it doesn't, 2 when it can't be read.

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut events = Vec::new();
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    if paths.is_empty() {
        eprintln!(
            "usage: riverlog-checker FILE…\n\nThe files together are one history; their events are sorted by time."
        );
        return ExitCode::from(2);
    }
    for path in paths {
        let read = File::open(&path)
            .map_err(riverlog_checker::HistoryError::from)
            .and_then(|file| riverlog_checker::read(BufReader::new(file)));
        match read {
            Ok(more) => events.extend(more),
            Err(error) => {
                eprintln!("riverlog-checker: {}: {error}", path.display());
                return ExitCode::from(2);
            }
        }
    }
    let report = riverlog_checker::check(&events);
    println!("{report}");
    match report.anomalies.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
