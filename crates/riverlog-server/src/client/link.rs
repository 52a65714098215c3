//! One connection to a broker: requests in, responses out, in order, in the newest version that both sides speak.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverlog_wire::ErrorCode;
use riverlog_wire::frame::{self, ResponseHeader};
use riverlog_wire::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse, Request, Response};
use riverlog_wire::primitives::Reader;

use crate::failure::{Exit, Failure};

/// The largest response that is read: a fetch of our own never asks for more.
const MAX_RESPONSE_BYTES: usize = 512 << 20;

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// Where it leads, for messages.
    pub(crate) place: String,
    stream: TcpStream,
    versions: BTreeMap<i16, (i16, i16)>,
    correlation_id: i32,
    timeout: Duration,
    trace: bool,
    out: Vec<u8>,
}

/// A request whose response hasn't been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    key: ApiKey,
    version: i16,
    correlation_id: i32,
}

/// The newest version that this client writes. Newer ones name topics by id only.
fn newest(key: ApiKey) -> i16 {
    match key {
        ApiKey::Produce | ApiKey::Fetch => 12,
        ApiKey::OffsetCommit | ApiKey::OffsetFetch => 9,
        other => other.max_stable_version(),
    }
}

impl Link {
    /// Connects, and asks which versions the broker speaks.
    pub(crate) fn open(
        host: &str,
        port: u16,
        timeout: Duration,
        trace: bool,
    ) -> Result<Link, Failure> {
        let place = place(host, port);
        let stream = dial(host, port, timeout)?;
        let refused = |error: std::io::Error| network(&place, &error);
        stream.set_nodelay(true).map_err(refused)?;
        stream.set_read_timeout(Some(timeout)).map_err(refused)?;
        stream.set_write_timeout(Some(timeout)).map_err(refused)?;
        let mut link = Link {
            place,
            stream,
            versions: BTreeMap::new(),
            correlation_id: 0,
            timeout,
            trace,
            out: Vec::new(),
        };
        link.negotiate()?;
        Ok(link)
    }

    fn negotiate(&mut self) -> Result<(), Failure> {
        let request = ApiVersionsRequest {
            client_software_name: "riverlog".to_owned(),
            client_software_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ApiVersionsRequest::default()
        };
        let sent = self.send_in(3, &request)?;
        let bytes = self.receive_frame(self.timeout)?;
        // An old broker answers in version 0, whatever was asked.
        let version = match bytes.get(4..6) {
            Some([0, 35]) => 0,
            _ => sent.version,
        };
        let mut response: ApiVersionsResponse = self.decode(Sent { version, ..sent }, &bytes)?;
        if response.error_code == ErrorCode::UNSUPPORTED_VERSION && response.api_keys.is_empty() {
            let sent = self.send_in(0, &ApiVersionsRequest::default())?;
            let bytes = self.receive_frame(self.timeout)?;
            response = self.decode(sent, &bytes)?;
        }
        self.versions = response
            .api_keys
            .iter()
            .map(|a| (a.api_key, (a.min_version, a.max_version)))
            .collect();
        Ok(())
    }

    /// The APIs that the broker serves, with their versions.
    pub(crate) fn versions(&self) -> &BTreeMap<i16, (i16, i16)> {
        &self.versions
    }

    /// The version to ask in; an error when there is none that both speak.
    pub(crate) fn version(&self, key: ApiKey) -> Result<i16, Failure> {
        let theirs = self.versions.get(&key.number()).copied();
        let version = theirs.map(|(min, max)| (min, max.min(newest(key))));
        match version {
            Some((min, version)) if version >= min && version >= key.min_version() => Ok(version),
            _ => Err(Failure::new(
                Exit::Finding,
                format!("{} doesn't serve {}", self.place, key.name()),
            )
            .why(match theirs {
                Some((min, max)) => format!(
                    "it speaks versions {min} to {max}, this client {} to {}",
                    key.min_version(),
                    newest(key)
                ),
                None => "it isn't among the requests that it says it serves".to_owned(),
            })
            .hint("use a broker and a client of about the same age")),
        }
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask<R: Request>(&mut self, request: &R) -> Result<R::Response, Failure> {
        self.ask_within(request, self.timeout)
    }

    /// Asks, and waits for an answer that the broker may hold back for a while.
    pub(crate) fn ask_within<R: Request>(
        &mut self,
        request: &R,
        patience: Duration,
    ) -> Result<R::Response, Failure> {
        let start = Instant::now();
        let sent = self.send(request)?;
        let answer = self.receive(sent, patience);
        if self.trace {
            eprintln!(
                "{} {} v{} in {:.1} ms",
                self.place,
                sent.key.name(),
                sent.version,
                start.elapsed().as_secs_f64() * 1e3
            );
        }
        answer
    }

    /// Sends without waiting; answers come in the order of requests, by [`Link::receive`].
    pub(crate) fn send<R: Request>(&mut self, request: &R) -> Result<Sent, Failure> {
        let version = self.version(R::KEY)?;
        self.send_in(version, request)
    }

    fn send_in<R: Request>(&mut self, version: i16, request: &R) -> Result<Sent, Failure> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let sent = Sent {
            key: R::KEY,
            version,
            correlation_id: self.correlation_id,
        };
        self.out.clear();
        frame::encode_request(
            &mut self.out,
            version,
            self.correlation_id,
            Some("riverlog"),
            request,
        )
        .map_err(|error| {
            Failure::usage(format!(
                "{} can't be asked for in version {version}",
                R::KEY.name()
            ))
            .why(error.to_string())
        })?;
        self.stream
            .write_all(&self.out)
            .map_err(|e| network(&self.place, &e))?;
        if self.out.capacity() > 16 << 20 {
            self.out = Vec::new();
        }
        Ok(sent)
    }

    /// The answer to the oldest request that has none yet.
    pub(crate) fn receive<A: Response>(
        &mut self,
        sent: Sent,
        patience: Duration,
    ) -> Result<A, Failure> {
        let bytes = self.receive_frame(patience)?;
        self.decode(sent, &bytes)
    }

    fn decode<A: Response>(&self, sent: Sent, bytes: &Bytes) -> Result<A, Failure> {
        let garbled = |why: String| {
            Failure::new(
                Exit::Unreachable,
                format!("{} gave an answer that isn't Kafka's", self.place),
            )
            .why(why)
        };
        let mut reader = Reader::shared(bytes);
        let header = ResponseHeader::decode(&mut reader, sent.key, sent.version)
            .map_err(|e| garbled(e.to_string()))?;
        if header.correlation_id != sent.correlation_id {
            return Err(garbled(format!(
                "an answer to request {} came where request {} was next",
                header.correlation_id, sent.correlation_id
            )));
        }
        A::decode(&mut reader, sent.version)
            .map_err(|e| garbled(format!("{} v{}: {e}", sent.key.name(), sent.version)))
    }

    fn receive_frame(&mut self, patience: Duration) -> Result<Bytes, Failure> {
        let refused = |place: &str, error: std::io::Error| network(place, &error);
        self.stream
            .set_read_timeout(Some(patience.max(Duration::from_millis(1))))
            .map_err(|e| refused(&self.place, e))?;
        let mut prefix = [0; frame::LENGTH_BYTES];
        self.stream
            .read_exact(&mut prefix)
            .map_err(|e| refused(&self.place, e))?;
        if let Some(failure) = self.foreign(prefix) {
            return Err(failure);
        }
        let len = frame::frame_length(prefix, MAX_RESPONSE_BYTES).map_err(|error| {
            Failure::new(
                Exit::Unreachable,
                format!("{} doesn't speak Kafka's protocol", self.place),
            )
            .why(error.to_string())
            .hint("check the port: Kafka's protocol is usually on 9092")
        })?;
        let mut bytes = Vec::new();
        let read = (&mut self.stream)
            .take(len as u64)
            .read_to_end(&mut bytes)
            .map_err(|e| refused(&self.place, e))?;
        if read < len {
            return Err(network(&self.place, &ErrorKind::UnexpectedEof.into()));
        }
        Ok(bytes.into())
    }

    /// Another protocol at the other end, by its first bytes.
    fn foreign(&self, first: [u8; 4]) -> Option<Failure> {
        let (speaks, hint) = match &first {
            b"HTTP" => (
                "HTTP",
                "give the port of the Kafka listener (usually 9092), not that of HTTP",
            ),
            [0x15, 0x03, ..] => (
                "TLS",
                "this is a TLS listener; give the address of a PLAINTEXT listener",
            ),
            b"SSH-" => ("SSH", "give the port of the Kafka listener (usually 9092)"),
            _ => return None,
        };
        Some(
            Failure::new(
                Exit::Unreachable,
                format!("{} doesn't speak Kafka's protocol", self.place),
            )
            .why(format!("it answered in {speaks}"))
            .hint(hint),
        )
    }
}

/// `host:port`, with brackets around IPv6 addresses.
pub(crate) fn place(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn dial(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Failure> {
    let place = place(host, port);
    let addresses = (host, port).to_socket_addrs().map_err(|error| {
        Failure::new(Exit::Unreachable, format!("{place} can't be reached"))
            .why(format!("the name {host} doesn't resolve ({error})"))
            .hint("check the spelling, or give an IP address")
    })?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into());
    Err(network(&place, &error))
}

/// A failure of the network, in words.
fn network(place: &str, error: &std::io::Error) -> Failure {
    let (exit, why, hint) = match error.kind() {
        ErrorKind::ConnectionRefused => (
            Exit::Unreachable,
            "nothing listens there".to_owned(),
            "start a broker with `riverlog serve`, or give its address with --brokers",
        ),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => (
            Exit::Timeout,
            "no answer in time".to_owned(),
            "check address and firewall, or give more time with --timeout",
        ),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => (
            Exit::Unreachable,
            "it closed the connection without an answer".to_owned(),
            "is this a TLS or another listener? `riverlog doctor connect` tells what is there",
        ),
        _ => (
            Exit::Unreachable,
            error.to_string(),
            "check address and network",
        ),
    };
    Failure::new(exit, format!("{place} can't be reached"))
        .why(why)
        .hint(hint)
}
