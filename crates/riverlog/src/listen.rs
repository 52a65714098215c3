//! A port for Kafka clients, in front of a broker inside a program: a real broker for a test of any language, in milliseconds.
//!
//! Two threads for each connection, one that reads and one that writes. That suits tests and tools; a server for many clients is
//! the binary `riverlog`.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::{Condvar, Mutex};
use riverlog_api::kafka::{
    KafkaDoor, KafkaSettings, LONGEST_WAIT, LOOK_AGAIN, Part, Peer, Responses, Session,
};
use riverlog_core::config::BrokerValues;
use riverlog_node::Slice;
use riverlog_wire::frame;

use crate::{Broker, Error, Result};

/// Connections that may be open at once; a new one beyond is closed.
const CONNECTIONS: usize = 1_000;
/// Bytes read from a socket, or from a file for a client, at once.
const CHUNK: usize = 64 << 10;
/// How long accepting pauses when the system has no descriptor or thread left.
const PAUSE: Duration = Duration::from_millis(50);

/// A port where Kafka clients are served, until it is closed or dropped. Holds the broker.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// let listener = broker.listen("127.0.0.1:0")?;
/// println!("bootstrap.servers={}", listener.address());
/// # Ok::<(), riverlog::Error>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

/// What the listener and its connections share.
#[derive(Debug)]
struct Shared {
    broker: Broker,
    door: Arc<KafkaDoor>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    stopped: bool,
    next: u64,
    /// A handle to each connection, to end it with.
    streams: BTreeMap<u64, TcpStream>,
}

impl Broker {
    /// Serves Kafka clients at an address; port 0 is any that is free. The clients and the program see the same topics, records and
    /// groups. Nobody is asked who they are, so give an address that only this machine reaches.
    ///
    /// Requires the feature `listen`.
    ///
    /// - Returns once clients can connect.
    /// - Errors: [`Error::Listen`].
    ///
    /// ```
    /// let broker = riverlog::Broker::in_memory();
    /// let listener = broker.listen("127.0.0.1:0")?;
    /// // Any Kafka client works with this as bootstrap.servers:
    /// let bootstrap = listener.address().to_string();
    /// assert!(std::net::TcpStream::connect(bootstrap).is_ok());
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn listen(&self, address: impl ToSocketAddrs + std::fmt::Debug) -> Result<Listener> {
        let failed = |source| Error::Listen {
            address: format!("{address:?}"),
            source,
        };
        let listener = TcpListener::bind(&address).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let node = Arc::clone(&self.driver.node);
        let auto = BrokerValues(&node.settings().configs).is_true("auto.create.topics.enable");
        let settings = KafkaSettings {
            advertised: Some((at.ip().to_string(), at.port())),
            auto_create_topics: auto,
            ..KafkaSettings::default()
        };
        let shared = Arc::new(Shared {
            broker: self.clone(),
            door: KafkaDoor::new(node, settings),
            open: Mutex::default(),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("riverlog-listen".to_owned())
                .spawn(move || accept(&listener, &shared))
                .map_err(failed)?
        };
        Ok(Listener {
            address: at,
            shared,
            accepting: Some(accepting),
        })
    }
}

impl Listener {
    /// Where it listens: what clients take as `bootstrap.servers`.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// assert_ne!(broker.listen("127.0.0.1:0")?.address().port(), 0);
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Ends all connections and closes the port; the broker stays. Dropping it does the same.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// let listener = broker.listen("127.0.0.1:0")?;
    /// listener.close();
    /// broker.create_topic("t", 1)?;
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn close(self) {}
}

impl Drop for Listener {
    fn drop(&mut self) {
        {
            let mut open = self.shared.open.lock();
            open.stopped = true;
            for stream in open.streams.values() {
                // It is at its end already, then.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        // Wakes whoever waits for the next connection.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            // A panic there has already been reported by the panic hook.
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.open.lock().stopped {
            return;
        }
        let started = accepted.and_then(|(stream, peer)| start(shared, stream, peer));
        if started.is_err() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Starts the threads of a connection; beyond the bound it is closed instead.
fn start(shared: &Arc<Shared>, stream: TcpStream, address: SocketAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let handle = stream.try_clone()?;
    let id = {
        let mut open = shared.open.lock();
        if open.stopped || open.streams.len() >= CONNECTIONS {
            return Ok(());
        }
        open.next += 1;
        let id = open.next;
        open.streams.insert(id, handle);
        id
    };
    let shared = Arc::clone(shared);
    let spawned = std::thread::Builder::new()
        .name("riverlog-client".to_owned())
        .spawn({
            let shared = Arc::clone(&shared);
            move || {
                // Whatever ends it ends it for the client too, which sees the connection closed.
                let _ended = serve(&shared, stream, Peer { address });
                shared.open.lock().streams.remove(&id);
            }
        });
    if spawned.is_err() {
        shared.open.lock().streams.remove(&id);
    }
    spawned.map(drop)
}

/// What reader and writer of a connection tell each other.
#[derive(Debug, Default)]
struct Signals {
    state: Mutex<State>,
    /// Responses are ready, or were written, or it is over.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Counts what has become ready.
    ready: u64,
    /// Until when nothing is taken from the client.
    muted_until: Option<Instant>,
    over: bool,
}

impl Signals {
    fn wake(&self) {
        self.state.lock().ready += 1;
        self.changed.notify_all();
    }
    /// Responses were written: there is room for more requests.
    fn make_room(&self) {
        // A reader that has just seen none must be waiting before it is woken.
        drop(self.state.lock());
        self.changed.notify_all();
    }
    fn end(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }
}

fn serve(shared: &Shared, mut stream: TcpStream, peer: Peer) -> io::Result<()> {
    let signals = Arc::new(Signals::default());
    let wake = Arc::clone(&signals);
    let session = Session::new(Arc::clone(&shared.door), peer, move || wake.wake());
    let responses = session.responses();
    let out = stream.try_clone()?;
    let writer = {
        let signals = Arc::clone(&signals);
        std::thread::Builder::new()
            .name("riverlog-answer".to_owned())
            .spawn(move || {
                let _ended = write(&responses, &out, &signals);
                signals.end();
                // The reader has nothing to wait for any more.
                let _ = out.shutdown(Shutdown::Both);
            })?
    };
    let ended = read(shared, session, &mut stream, &signals);
    signals.end();
    // A panic there has already been reported by the panic hook.
    let _ = writer.join();
    ended
}

fn read(
    shared: &Shared,
    mut session: Session,
    stream: &mut TcpStream,
    signals: &Signals,
) -> io::Result<()> {
    let max = shared.door.settings.max_frame_bytes;
    let mut received = BytesMut::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        loop {
            let frame = frame::split_frame(&mut received, max).map_err(io::Error::other)?;
            let Some(frame) = frame else { break };
            let mut state = signals.state.lock();
            let begun = Instant::now();
            while !state.over {
                if session.should_wait(&frame, frame.len()) && begun.elapsed() < LONGEST_WAIT {
                    signals.changed.wait_for(&mut state, LOOK_AGAIN);
                } else if session.is_busy() {
                    signals.changed.wait(&mut state);
                } else if let Some(until) = state.muted_until.filter(|at| *at > Instant::now()) {
                    // A client that was told to slow down, and doesn't, waits here (KIP-219).
                    signals.changed.wait_until(&mut state, until);
                } else {
                    break;
                }
            }
            if state.over {
                return Ok(());
            }
            drop(state);
            let now = shared.broker.driver.now();
            session.on_frame(&frame, now).map_err(io::Error::other)?;
        }
        // Memory is taken as bytes come in, never for what a frame announces.
        let n = stream.read(&mut chunk)?;
        if n == 0 {
            return Ok(());
        }
        received.extend_from_slice(chunk.get(..n).unwrap_or_default());
    }
}

fn write(responses: &Responses, stream: &TcpStream, signals: &Signals) -> io::Result<()> {
    let mut parts = Vec::new();
    loop {
        let before = signals.state.lock().ready;
        let taken = responses.take(&mut parts);
        let any = !parts.is_empty();
        for part in parts.drain(..) {
            write_part(stream, part)?;
        }
        taken.map_err(io::Error::other)?;
        let pause = responses.take_pause();
        if !pause.is_zero() {
            let mut state = signals.state.lock();
            state.muted_until = state.muted_until.max(Instant::now().checked_add(pause));
        }
        if any {
            signals.make_room();
            continue;
        }
        let mut state = signals.state.lock();
        while state.ready == before && !state.over {
            signals.changed.wait(&mut state);
        }
        if state.over {
            return Ok(());
        }
    }
}

fn write_part(mut stream: &TcpStream, part: Part) -> io::Result<()> {
    match part {
        Part::Bytes(bytes) | Part::Records(Slice::Memory(bytes)) => stream.write_all(&bytes),
        Part::Records(Slice::File { file, mut at, len }) => {
            let mut left = len;
            let mut chunk = vec![0; CHUNK.min(len)];
            while left > 0 {
                let want = chunk.len().min(left);
                let piece = chunk.get_mut(..want).unwrap_or_default();
                let n = file.read_at(piece, at)?;
                if n == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                stream.write_all(piece.get(..n).unwrap_or_default())?;
                left -= n;
                at += n as u64;
            }
            Ok(())
        }
    }
}
