//! The load of [`crate::http`] on NATS JetStream, over its text protocol: a stream in files, published with acknowledgements and read by
//! pulling.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::Result;
use crate::http::{CONNECTIONS, measured, value};
use crate::wire::now_ms;

/// A connection that listens on an inbox of its own.
struct Nats {
    stream: BufReader<TcpStream>,
    inbox: String,
    line: String,
    body: Vec<u8>,
}

/// What came to the inbox; its body is in [`Nats::body`].
struct Came {
    /// Headers instead of a message: the server's word that there is nothing more.
    status: bool,
}

impl Nats {
    fn open(address: &str, name: &str) -> Result<Nats> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut nats = Nats {
            stream: BufReader::with_capacity(256 << 10, stream),
            inbox: format!("_INBOX.{name}"),
            line: String::new(),
            body: Vec::new(),
        };
        nats.stream.read_line(&mut nats.line)?;
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}}\r\nSUB {} 1\r\n",
            nats.inbox
        );
        nats.send(hello.as_bytes())?;
        Ok(nats)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    /// The next message for the inbox.
    fn next(&mut self) -> Result<Came> {
        loop {
            self.line.clear();
            self.stream.read_line(&mut self.line)?;
            let mut words = self.line.split_ascii_whitespace();
            let status = match words.next() {
                Some("MSG") => false,
                Some("HMSG") => true,
                Some("PING") => {
                    self.send(b"PONG\r\n")?;
                    continue;
                }
                Some("PONG" | "INFO" | "+OK") => continue,
                _ => return Err(format!("NATS says {:?}", self.line).into()),
            };
            let length: usize = words
                .next_back()
                .ok_or("a message without a length")?
                .parse()?;
            // With the line's end behind it.
            self.body.resize(length + 2, 0);
            self.stream.read_exact(&mut self.body)?;
            return Ok(Came { status });
        }
    }

    /// Asks JetStream for something and fails with what it refuses.
    fn ask(&mut self, subject: &str, body: &str) -> Result<()> {
        let request = format!("PUB {subject} {} {}\r\n{body}\r\n", self.inbox, body.len());
        self.send(request.as_bytes())?;
        self.next()?;
        let said = String::from_utf8_lossy(&self.body);
        match said.contains("\"error\"") || said.starts_with("NATS/1.0") {
            true => Err(format!("{subject}: {said}").into()),
            false => Ok(()),
        }
    }
}

/// Publishes `records` records of 1 KiB, `many` under way on each connection, and pulls them again as many at a time.
pub(crate) fn run(address: &str, many: usize, records: usize) -> Result<()> {
    let stream = format!("bench{}", now_ms());
    let mut control = Nats::open(address, "control")?;
    control.ask(
        &format!("$JS.API.STREAM.CREATE.{stream}"),
        &format!("{{\"name\":\"{stream}\",\"subjects\":[\"{stream}.*\"],\"storage\":\"file\"}}"),
    )?;
    for n in 0..CONNECTIONS {
        control.ask(
            &format!("$JS.API.CONSUMER.CREATE.{stream}.c{n}"),
            &format!(
                "{{\"stream_name\":\"{stream}\",\"config\":{{\"name\":\"c{n}\",\"filter_subject\":\"{stream}.{n}\",\"ack_policy\":\"none\",\"deliver_policy\":\"all\"}}}}"
            ),
        )?;
    }
    let requests = (records / many / CONNECTIONS).max(1);
    let records = requests * many * CONNECTIONS;
    let (to, name) = (address.to_owned(), stream.clone());
    measured("publish", records, move |n, latency| {
        let mut nats = Nats::open(&to, &format!("p{n}"))?;
        let mut request = Vec::new();
        for i in 0..many {
            let value = value(i);
            request.extend_from_slice(
                format!("PUB {name}.{n} {} {}\r\n", nats.inbox, value.len()).as_bytes(),
            );
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
        for _ in 0..requests {
            let began = Instant::now();
            nats.send(&request)?;
            for _ in 0..many {
                if nats.next()?.status || !nats.body.starts_with(b"{\"stream\"") {
                    let said = String::from_utf8_lossy(&nats.body);
                    return Err(format!("not acknowledged: {said}").into());
                }
            }
            latency.record(began.elapsed().as_micros() as u64)?;
        }
        Ok(())
    })?;
    let to = address.to_owned();
    measured("fetch", records, move |n, latency| {
        let mut nats = Nats::open(&to, &format!("f{n}"))?;
        let body = format!("{{\"batch\":{many},\"no_wait\":true}}");
        let request = format!(
            "PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.c{n} {} {}\r\n{body}\r\n",
            nats.inbox,
            body.len()
        );
        let mut read = 0;
        while read < requests * many {
            let began = Instant::now();
            nats.send(request.as_bytes())?;
            for _ in 0..many {
                if nats.next()?.status {
                    let said = String::from_utf8_lossy(&nats.body);
                    return Err(format!("{read} read, then {said}").into());
                }
                read += 1;
            }
            latency.record(began.elapsed().as_micros() as u64)?;
        }
        Ok(())
    })?;
    Ok(())
}
