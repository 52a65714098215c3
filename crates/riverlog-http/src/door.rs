//! What all requests share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response};
use parking_lot::Mutex;
use riverlog_core::Now;
use riverlog_core::metadata::{TopicImage, TopicRef};
use riverlog_node::{Node, PartitionRef, Reply};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::counts::{Counted, Counts};
use crate::nodes::Elsewhere;
use crate::path::Target;
use crate::problem::Problem;
use crate::produce::Taken;
use crate::query::Query;
use crate::route;
use crate::watch::Watch;

/// Settings of the door.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The largest body of a request, as sent and decompressed. A stream of lines has no such bound: each line has.
    pub max_body_bytes: usize,
    /// Bytes of bodies that may be held at once, over all requests; beyond it requests are answered 503.
    pub max_held_bytes: usize,
    /// Streams (server-sent events, lines) that may be open at once; beyond it they are answered 503.
    pub max_streams: usize,
    /// Idempotency keys within an hour; beyond it requests with one are answered 429.
    pub max_idempotency_keys: usize,
    /// How long a body may stand still.
    pub body_timeout: Duration,
    /// How long an append may take before it counts as unanswered.
    pub append_timeout: Duration,
    /// After so long without a record a stream of events gets a comment, so that whoever is between doesn't end it.
    pub heartbeat: Duration,
    /// Served on loopback only: then a name that isn't this machine's is a page that was led here (DNS rebinding).
    pub loopback: bool,
    /// Names besides this machine's own that a Host header may have.
    pub hosts: Vec<String>,
    /// Origins whose pages may use the door (CORS), as a browser says them: `https://console.example:8443`.
    pub origins: Vec<String>,
    /// Browsers change nothing: their writes are refused.
    pub read_only: bool,
}

impl Default for HttpSettings {
    fn default() -> HttpSettings {
        HttpSettings {
            max_body_bytes: 16 << 20,
            max_held_bytes: 256 << 20,
            max_streams: 1_000,
            max_idempotency_keys: 500_000,
            body_timeout: Duration::from_secs(30),
            append_timeout: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            loopback: true,
            hosts: Vec::new(),
            origins: Vec::new(),
            read_only: false,
        }
    }
}

/// The HTTP door of a node.
pub struct HttpDoor {
    pub(crate) node: Arc<Node>,
    pub(crate) settings: HttpSettings,
    clock: Box<dyn Fn() -> Now + Send + Sync>,
    /// Bytes of bodies that may still be taken.
    pub(crate) held: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    /// Whose turn it is among records without a key.
    turn: AtomicU32,
    counts: Counts,
    /// Idempotency keys of the last hour.
    pub(crate) keys: Mutex<Taken>,
    /// What the node was like.
    pub(crate) watch: Watch,
    /// Of the next request.
    number: AtomicU64,
    /// Keeps the numbers of two runs apart.
    run: u64,
    /// The way to other nodes, where there are any.
    pub(crate) elsewhere: OnceLock<Arc<dyn Elsewhere>>,
}

impl std::fmt::Debug for HttpDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpDoor")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Of an answer's extensions: which call it answers, as metrics name it.
#[derive(Clone, Copy, Debug)]
pub struct CallName(pub &'static str);

/// One request, taken apart.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) door: Arc<HttpDoor>,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    /// It comes from another node, and isn't passed on again.
    pub(crate) passed_on: bool,
}

/// What a handler gives back.
pub(crate) type Answer = Result<Response<Body>, Problem>;

impl HttpDoor {
    /// A door to a node. `clock` gives both clocks at the moment of the call.
    pub fn new(
        node: Arc<Node>,
        clock: impl Fn() -> Now + Send + Sync + 'static,
        settings: HttpSettings,
    ) -> Arc<HttpDoor> {
        let run = node.random() as u64;
        let permits = |n: usize| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS)));
        Arc::new(HttpDoor {
            held: permits(settings.max_held_bytes),
            streams: permits(settings.max_streams),
            node,
            settings,
            clock: Box::new(clock),
            turn: AtomicU32::new(0),
            counts: Counts::default(),
            keys: Mutex::default(),
            watch: Watch::default(),
            number: AtomicU64::new(0),
            run,
            elsewhere: OnceLock::new(),
        })
    }

    /// Answers one request under `/v1`. [`guard`](crate::guard) comes first.
    pub async fn answer(self: &Arc<Self>, request: Request<Body>) -> Response<Body> {
        self.respond(request, false).await
    }

    /// `passed_on`: it comes from another node.
    pub(crate) async fn respond(
        self: &Arc<Self>,
        request: Request<Body>,
        passed_on: bool,
    ) -> Response<Body> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016x}-{number}", self.run);
        let begin = Instant::now();
        let (call, answer) = route::dispatch(self, request, passed_on).await;
        let mut response = match answer {
            Ok(response) => response,
            Err(problem) => problem.of_request(&id).into_response(),
        };
        let status = response.status().as_u16();
        self.counts.add(call, status, begin.elapsed());
        response.extensions_mut().insert(CallName(call));
        if let Ok(value) = id.parse() {
            // Another node's answer names the request there.
            response
                .headers_mut()
                .entry("riverlog-request-id")
                .or_insert(value);
        }
        response
    }

    /// What was counted since the start, for whoever shows metrics.
    pub fn counts(&self) -> Vec<Counted> {
        self.counts.read()
    }

    /// Settings.
    pub fn settings(&self) -> &HttpSettings {
        &self.settings
    }

    pub(crate) fn now(&self) -> Now {
        (self.clock)()
    }

    /// Asks the node, and waits without holding up a thread.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Node, Now, Reply<T>),
    ) -> Result<T, Problem> {
        self.begin(f).await.map_err(|_| Problem::closing())
    }

    /// Asks the node; the answer comes later.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Node, Now, Reply<T>),
    ) -> oneshot::Receiver<T> {
        let (send, receive) = oneshot::channel();
        let reply = Reply::new(move |answer| {
            // Nobody waits any more: the client has gone.
            let _ = send.send(answer);
        });
        f(&self.node, self.now(), reply);
        receive
    }

    pub(crate) fn topic(&self, name: &str) -> Result<Arc<TopicImage>, Problem> {
        let image = self.node.image();
        let topic = image.topic(name);
        topic.cloned().ok_or_else(|| Problem::no_topic(name))
    }

    /// A partition that is led here.
    pub(crate) fn partition(
        &self,
        topic: &TopicImage,
        partition: i32,
    ) -> Result<PartitionRef, Problem> {
        let count = topic.partitions.len();
        if usize::try_from(partition).map_or(true, |p| p >= count) {
            return Err(Problem::no_partition(&topic.name, partition, count));
        }
        self.node
            .partition(&TopicRef::Id(topic.id), partition)
            .map_err(Problem::kafka)
    }

    /// The partition for the records without a key of one request.
    pub(crate) fn next_turn(&self, partitions: usize) -> i32 {
        let count = u32::try_from(partitions.max(1)).unwrap_or(u32::MAX);
        (self.turn.fetch_add(1, Ordering::Relaxed) % count) as i32
    }
}

// Who serves it on several threads must be able to.
const _: fn(&Arc<HttpDoor>, Request<Body>) = |door, request| {
    fn send<T: Send>(_: T) {}
    send(door.answer(request));
};
