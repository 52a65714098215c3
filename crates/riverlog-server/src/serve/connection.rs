//! One connection of the Kafka door: a task that reads frames and one that writes responses.
//!
//! Memory is taken as bytes arrive, not for what a frame announces, up to the size of the largest frame that the connection has
//! completed before: so long a frame gets its buffer at once, and is not copied as it grows. A connection with many requests under way is not read
//! from until some are answered, and a slow reader holds up only itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use riverlog_api::kafka::{Close, KafkaDoor, LONGEST_WAIT, LOOK_AGAIN, Part, Peer, Session};
use riverlog_core::Now;
use riverlog_log::Slice;
use riverlog_wire::frame::{self, Speaks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::cluster::{self, Cluster};
use super::limits::{Limits, Receiving};
use super::stream::{ReadHalf, Stream, WriteHalf};

/// The first buffer of a connection; it grows with what arrives, and is given back when it is empty.
const READ_BYTES: usize = 16 << 10;
/// Bytes of a file that are read at once for a client.
const FILE_BYTES: usize = 256 << 10;
/// Slices handed to one vectored write.
const WRITE_SLICES: usize = 64;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// The client closed it.
    #[error("closed by the client")]
    ByClient,
    /// Nothing came for `connections.max.idle.ms`, or a frame was never finished.
    #[error("idle")]
    Idle,
    /// The server stops.
    #[error("the server stops")]
    Stopping,
    /// The client asked for something that ends a connection.
    #[error(transparent)]
    Refused(#[from] Close),
    /// What came isn't Kafka's protocol.
    #[error("{0}")]
    Foreign(String, Option<Speaks>),
    /// Another node, with the first bytes that it sent.
    #[error("another node")]
    Node(BytesMut),
    /// The network.
    #[error(transparent)]
    Network(#[from] io::Error),
}

/// How long what is under way may take at a stop.
const DRAIN: Duration = Duration::from_millis(600);
/// How long whoever connects beyond the bounds may take to show that it is another node.
const FIRST_WORDS: Duration = Duration::from_secs(2);
/// How long a client that has begun a frame may pause before it ends.
pub(crate) const STALL: Duration = Duration::from_secs(60);

/// What all connections of a listener share.
pub(crate) struct Shared {
    pub(crate) door: Arc<KafkaDoor>,
    /// The node's clocks.
    pub(crate) clock: Box<dyn Fn() -> Now + Send + Sync>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) idle: Duration,
    /// Whom other nodes speak to that connect here; `None` for a node alone.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// Said to a client that speaks HTTP here.
    pub(crate) http_address: Option<String>,
    /// Turns true when the server stops.
    pub(crate) stop: tokio::sync::watch::Receiver<bool>,
}

/// Serves one connection until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, stream: impl Stream, peer: Peer) -> Ended {
    let (mut read, mut write) = stream.split();
    // Two signals: responses are ready (for the writer), and there is room again (for the reader).
    let (ready, room) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let wake = Arc::clone(&ready);
    let from = peer.address;
    let session = Session::new(Arc::clone(&shared.door), peer, move || wake.notify_one());
    let responses = session.responses();
    let (muted, answered) = (Muted::default(), Answered::new());
    let reading = read_frames(&shared, session, &mut read, &room, &muted, &answered);
    let writing = write_responses(responses, &mut write, &ready, &room, &muted, &answered);
    let ended = tokio::select! {
        ended = reading => ended,
        ended = writing => ended,
    };
    if let Ended::Foreign(_, Some(Speaks::Http)) = &ended {
        let place = shared
            .http_address
            .as_deref()
            .unwrap_or("the port of the HTTP listener");
        let body = format!("This port speaks Kafka's protocol. HTTP is at {place}.\n");
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        // A courtesy: whether it arrives changes nothing.
        let _ = write.write_all(answer.as_bytes()).await;
    }
    if let Ended::Foreign(_, Some(Speaks::Tls)) = &ended {
        cluster::refuse_tls(read, write).await;
        if let Some(cluster) = shared.cluster.as_ref().filter(|c| !c.speaks_tls()) {
            cluster.no_tls(from);
            return Ended::ByClient;
        }
        return ended;
    }
    if let Ended::Node(received) = ended {
        talk(&shared, read, write, received, from).await;
        return Ended::ByClient;
    }
    ended
}

/// Serves whoever has connected beyond the bounds, if that is another node. `false`: it isn't, or says nothing.
pub(crate) async fn serve_node(shared: &Shared, stream: impl Stream, from: SocketAddr) -> bool {
    let (mut read, write) = stream.split();
    let mut stop = shared.stop.clone();
    let begins = tokio::select! {
        begins = tokio::time::timeout(FIRST_WORDS, begins_as_node(shared, &mut read)) => begins,
        () = stopped(&mut stop) => return false,
    };
    let Ok(Ok(Some(received))) = begins else {
        return false;
    };
    talk(shared, read, write, received, from).await;
    true
}

/// The first bytes of another node; `None`: somebody else's.
async fn begins_as_node(shared: &Shared, read: &mut impl ReadHalf) -> io::Result<Option<BytesMut>> {
    let in_tls = shared.cluster.as_ref().is_some_and(|c| c.speaks_tls());
    let mut received = BytesMut::new();
    loop {
        if read.read_buf(&mut received).await? == 0 {
            return Ok(None);
        }
        if cluster::is_node(&received) || in_tls && cluster::begins_tls(&received) {
            return Ok(Some(received));
        }
        if received.len() >= frame::LENGTH_BYTES {
            return Ok(None);
        }
    }
}

/// Hears another node until it ends the connection, or the server stops.
async fn talk(
    shared: &Shared,
    read: impl ReadHalf,
    write: impl WriteHalf,
    received: BytesMut,
    from: SocketAddr,
) {
    let mut stop = shared.stop.clone();
    let talk = async {
        match &shared.cluster {
            Some(cluster) => cluster.serve(read, write, received, from).await,
            None => cluster::turn_away(read, write, received).await,
        }
    };
    tokio::select! {
        () = talk => {}
        () = stopped(&mut stop) => {}
    }
}

/// Until when nothing is taken from a client that was told to slow down (KIP-219): one that keeps to it notices nothing.
#[derive(Default)]
struct Muted(Mutex<Option<Instant>>);

impl Muted {
    fn pause(&self, pause: Duration) {
        if !pause.is_zero() {
            let mut until = self.0.lock();
            *until = (*until).max(Instant::now().checked_add(pause));
        }
    }

    async fn over(&self) {
        loop {
            let Some(until) = *self.0.lock() else { return };
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// When an answer was last written: a client that has just been answered, perhaps after a long wait, isn't idle.
struct Answered(Mutex<Instant>);

impl Answered {
    fn new() -> Answered {
        Answered(Mutex::new(Instant::now()))
    }
    fn now(&self) {
        *self.0.lock() = Instant::now();
    }
    fn at(&self) -> Instant {
        *self.0.lock()
    }
}

async fn read_frames(
    shared: &Shared,
    mut session: Session,
    read: &mut impl ReadHalf,
    room: &Notify,
    muted: &Muted,
    answered: &Answered,
) -> Ended {
    let max = shared.door.settings.max_frame_bytes;
    let mut stop = shared.stop.clone();
    let mut receiving = Receiving::new(&shared.limits);
    let mut received = BytesMut::new();
    let mut largest = 0;
    let mut heard = Instant::now();
    loop {
        // Told apart before it is taken for the length of a frame: where frames may be that long it could be one.
        if largest == 0
            && let Some(cluster) = &shared.cluster
            && cluster.speaks_tls()
            && cluster::begins_tls(&received)
        {
            return Ended::Node(received);
        }
        loop {
            match frame::split_frame(&mut received, max) {
                Ok(Some(frame)) => {
                    largest = largest.max(frame.len());
                    while session.is_busy() {
                        room.notified().await;
                    }
                    wait_for_room(&session, &frame, frame.len(), room, &mut stop).await;
                    tokio::select! {
                        () = muted.over() => {}
                        () = stopped(&mut stop) => {}
                    }
                    if let Err(close) = session.on_frame(&frame, (shared.clock)()) {
                        return Ended::Refused(close);
                    }
                }
                Ok(None) => break,
                Err(_) if largest == 0 && cluster::is_node(&received) => {
                    return Ended::Node(received);
                }
                Err(error) => {
                    let first = received.first_chunk().copied().unwrap_or_default();
                    return Ended::Foreign(error.to_string(), Speaks::guess(first));
                }
            }
        }
        let (quiet_since, idle) = if received.is_empty() {
            // An idle connection holds no buffer; what was parsed is held by the node, under its own bound.
            received = BytesMut::new();
            receiving.hold(0).await;
            (heard.max(answered.at()), shared.idle)
        } else {
            // Before memory is taken for the rest of it.
            let missing = missing(&received, max);
            if let (Some(start), Some(missing)) = (received.get(frame::LENGTH_BYTES..), missing) {
                let len = start.len() + missing;
                wait_for_room(&session, start, len, room, &mut stop).await;
            }
            let more = match missing {
                Some(missing) if missing <= largest => missing,
                _ => READ_BYTES.max(received.len() / 2),
            };
            receiving.hold(received.len() + more).await;
            received.reserve(more);
            (heard, shared.idle.min(STALL))
        };
        let left = match session.in_flight() {
            0 => idle.saturating_sub(quiet_since.elapsed()),
            _ => idle,
        };
        let reading = async {
            if received.capacity() == received.len() {
                read.readable().await?;
                received.reserve(READ_BYTES);
            }
            read.read_buf(&mut received).await
        };
        let read = tokio::select! {
            read = tokio::time::timeout(left, reading) => read,
            () = stopped(&mut stop) => {
                let drained = async {
                    while session.in_flight() > 0 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                // What is not answered by then, the client asks again.
                let _ = tokio::time::timeout(DRAIN, drained).await;
                return Ended::Stopping;
            }
        };
        match read {
            // Who waits for an answer, or got one meanwhile, isn't idle.
            Err(_) if session.in_flight() > 0 => {}
            Err(_) if received.is_empty() && answered.at() > quiet_since => {}
            Err(_) => return Ended::Idle,
            Ok(Ok(0)) => return Ended::ByClient,
            Ok(Ok(_)) => heard = Instant::now(),
            Ok(Err(error)) => return Ended::Network(error),
        }
    }
}

/// Leaves a frame of `len` bytes that begins with `start` in the connection while the node has too much to do.
async fn wait_for_room(
    session: &Session,
    start: &[u8],
    len: usize,
    room: &Notify,
    stop: &mut tokio::sync::watch::Receiver<bool>,
) {
    let waiting = async {
        while session.should_wait(start, len) {
            tokio::select! {
                () = room.notified() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    };
    tokio::select! {
        // Whether it is over or not, the frame is next.
        _ = tokio::time::timeout(LONGEST_WAIT, waiting) => {}
        () = stopped(stop) => {}
    }
}

/// Bytes that the frame begun in `received` still lacks.
fn missing(received: &[u8], max: usize) -> Option<usize> {
    let len = frame::frame_length(*received.first_chunk()?, max).ok()?;
    (frame::LENGTH_BYTES + len).checked_sub(received.len())
}

/// Waits until the server stops.
pub(crate) async fn stopped(stop: &mut tokio::sync::watch::Receiver<bool>) {
    // The sender is gone only when the server is.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn write_responses(
    responses: riverlog_api::kafka::Responses,
    write: &mut impl WriteHalf,
    ready: &Notify,
    room: &Notify,
    muted: &Muted,
    answered: &Answered,
) -> Ended {
    let mut parts = Vec::new();
    loop {
        let taken = responses.take(&mut parts);
        let any = !parts.is_empty();
        if let Err(error) = write_parts(write, &mut parts).await {
            return Ended::Network(error);
        }
        if let Err(close) = taken {
            return Ended::Refused(close);
        }
        muted.pause(responses.take_pause());
        if any {
            answered.now();
            room.notify_one();
        } else {
            ready.notified().await;
        }
    }
}

async fn write_parts(write: &mut impl WriteHalf, parts: &mut Vec<Part>) -> io::Result<()> {
    let mut left = parts.drain(..).peekable();
    while let Some(part) = left.next() {
        match part {
            Part::Records(Slice::File { file, at, len }) => {
                write_file(write, file.as_ref(), at, len).await?
            }
            Part::Bytes(bytes) | Part::Records(Slice::Memory(bytes)) => {
                let mut chunks = std::collections::VecDeque::from([bytes]);
                while chunks.len() < WRITE_SLICES
                    && let Some(next) =
                        left.next_if(|p| !matches!(p, Part::Records(Slice::File { .. })))
                {
                    if let Part::Bytes(bytes) | Part::Records(Slice::Memory(bytes)) = next {
                        chunks.push_back(bytes);
                    }
                }
                write_chunks(write, chunks).await?;
            }
        }
    }
    Ok(())
}

async fn write_chunks(
    write: &mut impl WriteHalf,
    mut chunks: std::collections::VecDeque<bytes::Bytes>,
) -> io::Result<()> {
    while !chunks.is_empty() {
        let slices: Vec<io::IoSlice<'_>> = chunks.iter().map(|c| io::IoSlice::new(c)).collect();
        let mut written = write.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(front) = chunks.front_mut() {
            if written < front.len() {
                bytes::Buf::advance(front, written);
                break;
            }
            written -= front.len();
            chunks.pop_front();
        }
    }
    Ok(())
}

/// Sends a verified range of a file: by sendfile where the disk is the system's, else by reading it.
async fn write_file(
    write: &mut impl WriteHalf,
    file: &dyn riverlog_log::DiskFile,
    mut at: u64,
    mut len: usize,
) -> io::Result<()> {
    while len > 0 {
        let sent = match (file.fd(), write.socket()) {
            (Some(fd), Some(socket)) => send_file(socket, fd, at, len).await?,
            _ => {
                let mut buffer = vec![0; len.min(FILE_BYTES)];
                let read = file.read_at(&mut buffer, at)?;
                write.write_all(&buffer[..read]).await?;
                read
            }
        };
        if sent == 0 {
            // The range was announced to the client: a shorter file can only end the connection.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at += sent as u64;
        len -= sent;
    }
    Ok(())
}

async fn send_file(
    socket: &TcpStream,
    fd: std::os::fd::BorrowedFd<'_>,
    at: u64,
    len: usize,
) -> io::Result<usize> {
    loop {
        socket.writable().await?;
        let result = socket.try_io(tokio::io::Interest::WRITABLE, || {
            let mut offset = at;
            rustix::fs::sendfile(socket, fd, Some(&mut offset), len).map_err(io::Error::from)
        });
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}
