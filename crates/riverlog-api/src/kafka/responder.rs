//! Responses on their way: completed in any order, from any thread; written in the order of their requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riverlog_node::{Slice, Slices};
use riverlog_wire::frame::{LENGTH_BYTES, ResponseHeader, encode_response};
use riverlog_wire::messages::fetch_layout::{Layout, Segment};
use riverlog_wire::messages::{ApiKey, Response};
use riverlog_wire::primitives::Writer;

use super::session::End;

/// A piece of a response.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes to be written as they are.
    Bytes(Bytes),
    /// Record batches, in memory or in a verified range of a file (for sendfile).
    Records(Slice),
}

impl Part {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) | Part::Records(Slice::Memory(bytes)) => bytes.len(),
            Part::Records(Slice::File { len, .. }) => *len,
        }
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why a connection must end. The words go to the log, never to the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Close {
    /// What was found, and what to do.
    pub reason: String,
}

impl Close {
    pub(crate) fn new(reason: impl Into<String>) -> Close {
        Close {
            reason: reason.into(),
        }
    }
}

enum Slot {
    Waiting,
    /// With how long the client is to pause after it.
    Ready(Vec<Part>, Duration),
    /// acks=0: no response at all.
    Nothing,
    Close(Close),
}

/// The responses of one connection, in order. Shared between the session and the responders of requests under way.
pub(crate) struct Slots {
    queue: Mutex<Queue>,
    /// Tells the host that the head of the queue is ready. Called without locks held, from any thread.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    /// Number of the slot at the front.
    first: u64,
    slots: VecDeque<Slot>,
    /// The longest pause that responses which were taken have told the client.
    pause: Duration,
}

impl Slots {
    pub(crate) fn new(wake: Box<dyn Fn() + Send + Sync>) -> Arc<Slots> {
        Arc::new(Slots {
            queue: Mutex::default(),
            wake,
        })
    }
    /// Requests that are not answered yet, and answers that are not taken yet.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().slots.len()
    }
    fn open(&self) -> u64 {
        let mut queue = self.queue.lock();
        queue.slots.push_back(Slot::Waiting);
        queue.first + queue.slots.len() as u64 - 1
    }
    fn fill(&self, number: u64, slot: Slot) {
        let head = {
            let mut queue = self.queue.lock();
            let at = number.wrapping_sub(queue.first) as usize;
            match queue.slots.get_mut(at) {
                Some(place) => *place = slot,
                None => return,
            }
            at == 0
        };
        if head {
            (self.wake)();
        }
    }
    /// Takes the responses at the front that are ready.
    pub(crate) fn take(&self, out: &mut Vec<Part>) -> Result<(), Close> {
        let mut guard = self.queue.lock();
        let queue = &mut *guard;
        while let Some(slot) = queue.slots.front_mut() {
            match slot {
                Slot::Waiting => break,
                Slot::Ready(parts, pause) => {
                    out.append(parts);
                    queue.pause = queue.pause.max(*pause);
                }
                Slot::Nothing => {}
                Slot::Close(close) => return Err(close.clone()),
            }
            queue.slots.pop_front();
            queue.first += 1;
        }
        Ok(())
    }
}

/// The responses of a session, for a host that writes on another thread than it reads on.
#[derive(Clone)]
pub struct Responses {
    pub(crate) slots: Arc<Slots>,
    /// Held until nobody takes them any more.
    pub(crate) _end: Arc<End>,
}

impl std::fmt::Debug for Responses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responses")
            .field("in_flight", &self.slots.len())
            .finish()
    }
}

impl Responses {
    /// Takes the responses that are ready, in the order of their requests.
    ///
    /// - Errors: the connection must end once what was taken has been written.
    pub fn take(&self, out: &mut Vec<Part>) -> Result<(), Close> {
        self.slots.take(out)
    }
    /// How long the host shouldn't take requests from this connection, beginning when what was taken so far is written: a client
    /// that was told to slow down, and doesn't, waits here (KIP-219). Zero after that, until the next one is told.
    pub fn take_pause(&self) -> Duration {
        std::mem::take(&mut self.slots.queue.lock().pause)
    }
    /// Requests under way, and responses that are not taken yet.
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }
}

/// Where the response of one request goes. Dropped without a response, it ends the connection: no request stays unanswered.
pub(crate) struct Responder {
    slots: Option<Arc<Slots>>,
    number: u64,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

impl Responder {
    /// The next place in the order of responses.
    pub(crate) fn open(slots: &Arc<Slots>, version: i16, correlation_id: i32) -> Responder {
        Responder {
            number: slots.open(),
            slots: Some(Arc::clone(slots)),
            version,
            correlation_id,
        }
    }
    /// Sends a response in the version of its request.
    pub(crate) fn send<R: Response>(self, response: &R) {
        self.send_throttled(response, Duration::ZERO);
    }
    /// Sends a response that tells the client to pause for so long; nothing is read from it meanwhile.
    pub(crate) fn send_throttled<R: Response>(self, response: &R, pause: Duration) {
        let version = self.version;
        self.send_with(version, response, pause);
    }
    /// Sends a response in a version of the caller's choice (ApiVersions answers unknown versions in version 0).
    pub(crate) fn send_in<R: Response>(self, version: i16, response: &R) {
        self.send_with(version, response, Duration::ZERO);
    }
    fn send_with<R: Response>(mut self, version: i16, response: &R, pause: Duration) {
        let mut frame = Vec::new();
        match encode_response(&mut frame, version, self.correlation_id, response) {
            Ok(()) => self.fill(Slot::Ready(vec![Part::Bytes(frame.into())], pause)),
            // Our own mistake: a field that this version doesn't have. The connection ends rather than lie.
            Err(error) => {
                self.close(Close::new(format!(
                    "{} v{version} can't be encoded: {error}",
                    R::KEY.name()
                )));
            }
        }
    }
    /// Sends a body that many clients share, in the version of its request.
    pub(crate) fn send_body(self, key: ApiKey, body: Bytes) {
        let header = ResponseHeader {
            correlation_id: self.correlation_id,
        };
        let mut front = Vec::new();
        let mut w = Writer::new(&mut front);
        w.i32(0);
        header.encode(&mut w, key, self.version);
        let len = w.position() - LENGTH_BYTES + body.len();
        match i32::try_from(len).map(|len| w.set_i32(0, len)) {
            Ok(()) => self.send_parts(vec![Part::Bytes(front.into()), Part::Bytes(body)]),
            Err(_) => self.close(Close::new(format!(
                "a {} response of {len} bytes is more than a frame can hold",
                key.name()
            ))),
        }
    }
    /// Sends a response with the records of its partitions, in their order, between its bytes.
    pub(crate) fn send_laid_out(self, layout: Layout, mut records: Vec<Slices>) {
        let mut parts = Vec::with_capacity(layout.segments.len());
        for segment in layout.segments {
            match segment {
                Segment::Bytes(bytes) => parts.push(Part::Bytes(bytes)),
                Segment::Records(number) => {
                    let slices = records.get_mut(number).map(std::mem::take);
                    let slices = slices.unwrap_or_default().parts;
                    parts.extend(slices.into_iter().map(Part::Records));
                }
            }
        }
        self.send_parts(parts);
    }
    /// Sends a whole frame in pieces, length and header included.
    pub(crate) fn send_parts(mut self, parts: Vec<Part>) {
        self.fill(Slot::Ready(parts, Duration::ZERO));
    }
    /// Sends nothing (acks=0).
    pub(crate) fn nothing(mut self) {
        self.fill(Slot::Nothing);
    }
    /// Ends the connection, once the responses before this one are out.
    pub(crate) fn close(mut self, close: Close) {
        self.fill(Slot::Close(close));
    }
    /// Ends the connection, and gives the reason back for the host to stop reading.
    pub(crate) fn refuse(self, close: Close) -> Close {
        self.close(close.clone());
        close
    }
    fn fill(&mut self, slot: Slot) {
        if let Some(slots) = self.slots.take() {
            slots.fill(self.number, slot);
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.fill(Slot::Close(Close::new(
            "a request was dropped without an answer: the node is closing",
        )));
    }
}
