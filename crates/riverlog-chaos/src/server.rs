//! The server under test: started, killed and frozen by process id.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::system::{signal, until};
use crate::{Result, broken};

/// How long a start may take on a busy machine.
const READY: Duration = Duration::from_secs(40);

/// How to start it.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) log: PathBuf,
    /// Where it listens for clients.
    pub(crate) host: IpAddr,
    pub(crate) port: u16,
    /// `key=value`.
    pub(crate) settings: Vec<String>,
    /// Further words of the command.
    pub(crate) more: Vec<String>,
    /// A program and its words that start it in its place: `prlimit --nofile=64`.
    pub(crate) under: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

/// A server that was started. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    at: SocketAddr,
    ended: Option<ExitStatus>,
}

impl Launch {
    /// Starts it; [`Server::ready`] waits.
    pub(crate) fn spawn(&self) -> Result<Server> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let binary = self.binary.display().to_string();
        let mut words = self.under.clone();
        words.push(binary);
        let [program, rest @ ..] = words.as_slice() else {
            return broken("nothing to start");
        };
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("RIVERLOG_") || name.starts_with("KAFKA_") {
                command.env_remove(name);
            }
        }
        let child = command
            .args(rest)
            .arg("serve")
            .arg("--data")
            .arg(&self.data)
            .args(["--listen", &self.place().to_string()])
            .args(&self.more)
            .args(["--http", "none", "--log-format", "json"])
            .args(self.settings.iter().flat_map(|s| ["--set", s.as_str()]))
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Server {
            child,
            at: self.place(),
            ended: None,
        })
    }

    fn place(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// Starts it and waits until it answers.
    pub(crate) fn start(&self) -> Result<Server> {
        let mut server = self.spawn()?;
        self.wait(&mut server)?;
        Ok(server)
    }

    /// Waits until it answers.
    pub(crate) fn wait(&self, server: &mut Server) -> Result<()> {
        if server.ready(READY) {
            return Ok(());
        }
        let how = match server.ended() {
            Some(status) => format!("ended: {status}"),
            None => format!("didn't answer within {} s", READY.as_secs()),
        };
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().rev().take(8).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        broken(format!("the server {how}\n{}", lines.join("\n")))
    }
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// MiB of memory that it holds, pages of files not counted; 0 when it has ended.
    pub(crate) fn resident_mib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) >> 10
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Waits until it answers a request; false when it ended or didn't.
    pub(crate) fn ready(&mut self, limit: Duration) -> bool {
        let at = self.at;
        until(limit, || self.ended().is_some() || answers(at)) && self.ended().is_none()
    }

    /// `kill -9`, and waits for its end.
    pub(crate) fn kill(mut self) {
        self.put_down();
    }

    fn put_down(&mut self) {
        if self.ended().is_none() {
            signal(self.pid(), Signal::KILL);
            self.ended = self.child.wait().ok();
        }
    }

    /// Asks it to stop and waits for its end; false when it didn't come.
    pub(crate) fn stop(mut self, limit: Duration) -> bool {
        signal(self.pid(), Signal::TERM);
        until(limit, || self.ended().is_some())
    }

    /// Stops it where it is: when this returns no thread of it runs a line more, and those in a call of the disk will not
    /// come out of it. So nothing that happens to the disk afterwards can be answered to a client.
    pub(crate) fn freeze(&self) -> Result<()> {
        let pid = self.pid();
        signal(pid, Signal::STOP);
        let still = || {
            let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
                return true;
            };
            threads.flatten().all(|thread| {
                let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                // The name in parentheses may hold anything; the state follows it.
                let state = stat
                    .rsplit_once(") ")
                    .and_then(|(_, rest)| rest.chars().next());
                state.is_none_or(|state| "TtDZX".contains(state))
            })
        };
        match until(Duration::from_secs(10), still) {
            true => Ok(()),
            false => broken("the server can't be frozen"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.put_down();
    }
}

/// A port that nobody listens on now.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(address(0))?;
    Ok(listener.local_addr()?.port())
}

pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Whether the server there answers.
fn answers(at: SocketAddr) -> bool {
    apis(at).is_ok_and(|apis| !apis.is_empty())
}

/// The API keys that the server there says it serves.
pub(crate) fn apis(at: SocketAddr) -> std::io::Result<Vec<i16>> {
    /// Length 10; ApiVersions version 0, correlation id 1, no client id.
    const REQUEST: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let mut socket = TcpStream::connect_timeout(&at, Duration::from_secs(1))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.write_all(&REQUEST)?;
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut body = Vec::new();
    socket
        .take(u64::from(u32::from_be_bytes(length)))
        .read_to_end(&mut body)?;
    // Correlation id, error code, count, then key, lowest and highest version of each.
    let rows = body.get(10..).unwrap_or_default().chunks_exact(6);
    Ok(rows
        .map(|row| i16::from_be_bytes([row[0], row[1]]))
        .collect())
}
