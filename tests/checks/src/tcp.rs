//! A broker over TCP.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use riverlog_wire::frame;

use crate::wire::{Broker, Connection, Received};

const CONNECT: Duration = Duration::from_secs(10);

/// A broker at an address.
#[derive(Debug)]
pub struct TcpBroker {
    address: String,
    started: Instant,
}

impl TcpBroker {
    /// The broker at `host:port`; connected to later.
    pub fn new(address: impl Into<String>) -> TcpBroker {
        TcpBroker {
            address: address.into(),
            started: Instant::now(),
        }
    }
}

impl Broker for TcpBroker {
    fn connect(&mut self) -> Result<Box<dyn Connection>, String> {
        let failed = |e: std::io::Error| format!("{} can't be reached: {e}", self.address);
        let address = self.address.to_socket_addrs().map_err(failed)?.next();
        let address = address.ok_or_else(|| format!("{} has no address", self.address))?;
        let stream = TcpStream::connect_timeout(&address, CONNECT).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        // A broker that stops reading must not stop the check.
        stream.set_write_timeout(Some(CONNECT)).map_err(failed)?;
        Ok(Box::new(TcpConnection {
            stream,
            received: BytesMut::new(),
        }))
    }
    fn pass(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
    fn clock(&self) -> Duration {
        self.started.elapsed()
    }
    fn wall_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
    }
}

struct TcpConnection {
    stream: TcpStream,
    received: BytesMut,
}

impl TcpConnection {
    fn frame(&mut self) -> Option<Bytes> {
        frame::split_frame(&mut self.received, i32::MAX as usize)
            .ok()
            .flatten()
    }
}

impl Connection for TcpConnection {
    fn send(&mut self, bytes: &[u8]) {
        // The broker may have closed already, which `receive` shows.
        let _ = self.stream.write_all(bytes);
    }
    fn receive(&mut self, within: Duration) -> Received {
        let deadline = Instant::now() + within;
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(frame) = self.frame() {
                return Received::Frame(frame);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Received::Nothing;
            }
            if self.stream.set_read_timeout(Some(left)).is_err() {
                return Received::Closed;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Received::Closed,
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Received::Nothing;
                }
                Err(_) => return Received::Closed,
            }
        }
    }
}
