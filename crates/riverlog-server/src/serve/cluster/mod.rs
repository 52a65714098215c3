//! A node among others: who they are, the connections to them, and the quorum that agrees on metadata.
//!
//! Nodes meet at their Kafka ports. Each keeps two connections to every other and sends on those, on one of them what copies catch up with; what
//! it hears comes on those that others have opened. Messages may be lost with a connection: both quorum and node ask again.

mod bulk;
mod dial;
mod form;
mod hello;
mod joined;
mod requests;
mod tls;
mod voter;
mod wire;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use riverlog_api::kafka::{Electorate, VoterChange};
use riverlog_core::metadata::Way;
use riverlog_host::{Driver, Neighbours};
use riverlog_log::Disk;
use riverlog_node::PeerMessage;
use riverlog_quorum::forming::Introduction;
use riverlog_quorum::{Carrier, DiskId, Member, Quorum, QuorumError, Status};
use riverlog_wire::frame::Speaks;
use riverlog_wire::{BrokerId, ErrorCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};

use super::log::Repeats;
use crate::failure::{Exit, Failure};
use hello::Hello;
use joined::Joined;
use requests::Requests;
use tls::Tls;
use wire::{Kind, Purpose, Receiver, WireError};

pub(crate) use tls::refuse as refuse_tls;
pub(crate) use voter::{Running, open};

/// Whether a connection's first bytes are those of another node, as far as they have come.
pub(crate) fn is_node(received: &[u8]) -> bool {
    let begins = |magic: [u8; 8]| received.iter().zip(magic).all(|(a, b)| *a == b);
    !received.is_empty() && (begins(hello::MAGIC) || begins(hello::BULK) || begins(hello::REQUESTS))
}

/// Whether a connection begins with TLS. Four bytes are looked at: with fewer that can't be told yet.
pub(crate) fn begins_tls(received: &[u8]) -> bool {
    let first = received.first_chunk();
    first.is_some_and(|first| Speaks::guess(*first) == Some(Speaks::Tls))
}

/// Messages that wait for one connection.
const QUEUED: usize = 10_000;
/// How much of a key file is read.
const KEY_FILE_BYTES: u64 = 64 << 10;
/// Nodes that are answered though they are neither seeds nor members.
const GUESTS: usize = 64;
/// Bytes that wait for one connection.
const QUEUED_BYTES: usize = 64 << 20;

/// What makes a node one of several.
#[derive(Clone, Debug)]
pub(crate) struct Together {
    /// Where the others are, this node perhaps among them.
    pub(crate) seeds: Vec<String>,
    /// How nodes speak when there is a cluster key.
    tls: Option<Tls>,
}

impl Together {
    /// `key_file`: what only the nodes of this cluster know.
    pub(crate) fn new(seeds: Vec<String>, key_file: Option<&Path>) -> Result<Together, Failure> {
        for seed in &seeds {
            crate::client::address(seed)?;
        }
        let tls = key_file.map(with_key).transpose()?;
        Ok(Together { seeds, tls })
    }
}

const MAKE_KEY: &str =
    "make one with `head -c 32 /dev/urandom | base64 > FILE`, and give the same file to all nodes";

/// How nodes speak that have the key in a file.
fn with_key(path: &Path) -> Result<Tls, Failure> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(KEY_FILE_BYTES).read_to_end(&mut bytes))
        .map_err(|error| {
            Failure::new(
                Exit::NotFound,
                format!("the cluster key {} can't be read", path.display()),
            )
            .why(error.to_string())
            .hint(MAKE_KEY)
        })?;
    Tls::new(&bytes).map_err(|error| {
        Failure::usage(format!("the cluster key {} is of no use", path.display()))
            .why(error.to_string())
            .hint(MAKE_KEY)
    })
}

/// The way to another node.
struct Link {
    id: u64,
    disk: DiskId,
    queue: mpsc::Sender<(Kind, Bytes)>,
    bytes: Arc<AtomicUsize>,
}

/// Why a node can't go on in its cluster.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Its part of the quorum has ended.
    Ended(String),
    /// Another node has its number; who has said so.
    NumberTaken(String),
}

impl Trouble {
    fn failure(&self, me: BrokerId) -> Failure {
        match self {
            Trouble::Ended(why) => {
                Failure::new(Exit::Finding, "this node can't go on in its cluster")
                    .why(why.clone())
                    .hint("the other nodes go on without it; see what is wrong with its disk, then start it again")
            }
            Trouble::NumberTaken(place) => {
                Failure::new(Exit::Conflict, format!("node.id={me} is taken"))
                    .why(format!("another node has it, and is up; the node at {place} has said so"))
                    .hint("give this node a number of its own with --node-id; to replace the other one, stop it first")
            }
        }
    }
}

/// What the parts of a node in a cluster share.
pub(crate) struct Cluster {
    broker: BrokerId,
    disk_id: DiskId,
    /// Where others reach this node, unless it finds itself among the seeds.
    advertised: String,
    own_seed: OnceLock<String>,
    /// Where the quorum is led, as somebody has said to whom this node has turned to be taken in.
    led_at: Mutex<Option<String>>,
    together: Together,
    disk: Arc<dyn Disk>,
    /// Whether it was part of a quorum when it started.
    was_formed: bool,
    driver: OnceLock<Arc<Driver>>,
    quorum: OnceLock<Quorum>,
    links: Mutex<BTreeMap<(BrokerId, Purpose), Link>>,
    /// Threads for what copies catch up with.
    bulk: OnceLock<tokio::runtime::Handle>,
    /// Addresses of nodes that are connected to this one, and how often: they are answered there, members or not.
    guests: Mutex<BTreeMap<String, usize>>,
    next_link: AtomicU64,
    proposals: Notify,
    outbox: Notify,
    /// What is asked of this node's HTTP door, and of those of others.
    requests: Requests,
    /// Why this node can't go on.
    failed: watch::Sender<Option<Trouble>>,
    repeats: Repeats,
}

impl Cluster {
    fn me(&self) -> Member {
        Member {
            broker: self.broker,
            address: self.own_seed.get().unwrap_or(&self.advertised).clone(),
        }
    }

    /// What is known of the quorum.
    pub(crate) fn status(&self) -> Status {
        self.quorum.get().map(Quorum::status).unwrap_or_default()
    }

    /// The quorum for clients that ask for it.
    pub(crate) fn electorate(&self) -> Electorate {
        let status = self.status();
        let members = status.members.into_iter();
        Electorate {
            term: status.term,
            leader: status.leader,
            members: members
                .map(|m| (m.member.broker, m.disk.0, m.voter))
                .collect(),
        }
    }

    /// Changes who votes; only the node that leads the quorum can.
    pub(crate) async fn change(&self, change: VoterChange) -> Result<(), (ErrorCode, String)> {
        let (VoterChange::Add(broker, disk) | VoterChange::Remove(broker, disk)) = change;
        let disk = DiskId(disk);
        let Some(quorum) = self.quorum.get() else {
            let words = "this node is starting; ask again";
            return Err((ErrorCode::NOT_LEADER_OR_FOLLOWER, words.to_owned()));
        };
        let members = self.status().members;
        let known = members
            .iter()
            .find(|m| m.disk == disk && m.member.broker == broker);
        let Some(known) = known else {
            let words =
                format!("node {broker} has no disk {disk}; look with `riverlog cluster quorum`");
            return Err((ErrorCode::VOTER_NOT_FOUND, words));
        };
        let done = match change {
            VoterChange::Add(..) if known.voter => {
                let words = format!("node {broker} votes already");
                return Err((ErrorCode::DUPLICATE_VOTER, words));
            }
            VoterChange::Add(..) => quorum.add_voter(disk).await,
            VoterChange::Remove(..) => quorum.remove(disk).await,
        };
        done.map_err(|error| {
            let code = match &error {
                QuorumError::NotLeader => ErrorCode::NOT_LEADER_OR_FOLLOWER,
                QuorumError::NoMember(_) => ErrorCode::VOTER_NOT_FOUND,
                QuorumError::TimedOut => ErrorCode::REQUEST_TIMED_OUT,
                _ => ErrorCode::INVALID_REQUEST,
            };
            (code, error.to_string())
        })
    }

    fn is_formed(&self) -> bool {
        self.was_formed || !self.status().members.is_empty()
    }

    fn introduction(&self) -> Introduction {
        Introduction {
            member: self.me(),
            disk: self.disk_id,
            formed: self.is_formed(),
        }
    }

    fn hello(&self) -> Hello {
        let image = self.driver.get().map(|driver| driver.node.image());
        let own = image.as_ref().and_then(|i| i.brokers.get(&self.broker));
        Hello {
            who: self.introduction(),
            cluster_id: image
                .as_ref()
                .map(|i| i.cluster_id.clone())
                .filter(|id| !id.is_empty()),
            broker_epoch: own.map_or(-1, |broker| broker.epoch),
            has_key: self.together.tls.is_some(),
        }
    }

    /// Whether other nodes speak TLS here.
    pub(crate) fn speaks_tls(&self) -> bool {
        self.together.tls.is_some()
    }

    /// Whom the node wakes.
    fn neighbours(self: &Arc<Cluster>) -> Neighbours {
        let (proposing, saying) = (Arc::clone(self), Arc::clone(self));
        Neighbours {
            proposals: Box::new(move || proposing.proposals.notify_one()),
            outbox: Box::new(move || saying.outbox.notify_one()),
        }
    }

    /// Whether this disk votes.
    fn is_voter(&self) -> bool {
        let members = self.status().members;
        members.iter().any(|m| m.disk == self.disk_id && m.voter)
    }

    /// Returns when this node can't go on, with the reason.
    pub(crate) async fn failed(&self) -> Failure {
        let mut failed = self.failed.subscribe();
        // The sender is this.
        let trouble = failed.wait_for(Option::is_some).await;
        let trouble = trouble.ok().and_then(|trouble| trouble.clone());
        match trouble {
            Some(trouble) => trouble.failure(self.broker),
            None => std::future::pending().await,
        }
    }

    fn fail(&self, why: Trouble) {
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert(why);
            first
        });
    }

    /// What is seen of the way to another node. Where that has gone, the quorum need not wait until it has been silent for long enough.
    fn sees(&self, other: BrokerId, way: Way) {
        let Some(driver) = self.driver.get() else {
            return;
        };
        if driver.node.on_way(other, way, driver.now()) {
            tracing::warn!(
                broker = other.0,
                "node {other} is taken for gone: its connection has ended, and nobody listens at its port"
            );
            if let Some(quorum) = self.quorum.get() {
                quorum.gone(other);
            }
        }
    }

    /// Whether a connection to that node stands.
    fn has_way(&self, to: BrokerId) -> bool {
        let links = self.links.lock();
        links
            .get(&(to, Purpose::Messages))
            .is_some_and(|link| !link.queue.is_closed())
    }

    /// `false`: there is no way to that node, or too much waits there already.
    fn send(&self, to: BrokerId, kind: Kind, bytes: Bytes) -> bool {
        self.send_on(to, Purpose::Messages, kind, bytes)
    }

    fn send_on(&self, to: BrokerId, purpose: Purpose, kind: Kind, bytes: Bytes) -> bool {
        let links = self.links.lock();
        let Some(link) = links.get(&(to, purpose)) else {
            return false;
        };
        let len = bytes.len();
        if link.bytes.fetch_add(len, Ordering::Relaxed) + len > QUEUED_BYTES
            || link.queue.try_send((kind, bytes)).is_err()
        {
            link.bytes.fetch_sub(len, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Hears another node that has connected, until the connection ends.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        read: impl AsyncRead + Unpin + Send + 'static,
        write: impl AsyncWrite + Unpin + Send + 'static,
        received: BytesMut,
        from: SocketAddr,
    ) {
        let ended = match &self.together.tls {
            Some(tls) if begins_tls(&received) => self.hear_in(tls, read, write, received).await,
            _ => self.hear(read, write, received, false).await,
        };
        match ended {
            Ok(()) | Err(WireError::Io(_)) => {}
            Err(error) => {
                // Who is turned away tries again, and says why as well.
                if let Some(held) = self.repeats.say("turned away", Instant::now()) {
                    tracing::warn!(peer = %from, held, "a node was turned away: {error}");
                }
            }
        }
    }

    /// Tells that somebody has begun with TLS, which this node speaks with nobody.
    pub(crate) fn no_tls(&self, from: SocketAddr) {
        if let Some(held) = self.repeats.say("no TLS", Instant::now()) {
            tracing::warn!(
                peer = %from,
                held,
                "TLS is turned away: this node was started without --cluster-key; if that is another node, give both the same --cluster-key, and a client of Kafka security.protocol=PLAINTEXT"
            );
        }
    }

    async fn hear_in(
        self: &Arc<Self>,
        tls: &Tls,
        read: impl AsyncRead + Unpin + Send + 'static,
        write: impl AsyncWrite + Unpin + Send + 'static,
        received: BytesMut,
    ) -> Result<(), WireError> {
        let stream = Joined {
            received,
            read,
            write,
        };
        let stream = wire::in_time(tls.accept(stream)).await?;
        let (read, write) = tokio::io::split(stream);
        self.hear(read, write, BytesMut::new(), true).await
    }

    /// - `in_tls`: as [`wire::accept`] has it.
    async fn hear(
        self: &Arc<Self>,
        read: impl AsyncRead + Unpin + Send + 'static,
        write: impl AsyncWrite + Unpin + Send + 'static,
        received: BytesMut,
        in_tls: bool,
    ) -> Result<(), WireError> {
        let me = self.hello();
        // Another process with a number that is connected here: it would get what is meant for that one.
        let is_double = |other: &Hello| {
            let links = self.links.lock();
            let known = links.get(&(other.who.member.broker, Purpose::Messages));
            known.is_some_and(|link| link.disk != other.who.disk && !link.queue.is_closed())
        };
        let (other, purpose, write, mut receiver) =
            wire::accept(read, write, received, Some(&me), in_tls, is_double).await?;
        let from = other.who.member.broker;
        match purpose {
            Purpose::Requests => {
                self.requests.serve(receiver, write).await;
                Ok(())
            }
            Purpose::Bulk => {
                let hearing = Arc::clone(self);
                self.in_bulk(async move { hearing.take_in(from, &mut receiver).await })
                    .await
            }
            Purpose::Messages => {
                let _guest = self.welcome(other.who.member.address);
                self.take_in(from, &mut receiver).await
            }
        }
    }

    /// Takes what another node says on a connection until it ends.
    async fn take_in(
        &self,
        from: BrokerId,
        receiver: &mut Receiver<impl AsyncRead + Unpin>,
    ) -> Result<(), WireError> {
        loop {
            let (kind, bytes) = receiver.next().await?;
            match kind {
                Kind::Quorum => {
                    if let Some(driver) = self.driver.get() {
                        driver.node.on_heard(from);
                    }
                    if let Some(quorum) = self.quorum.get() {
                        quorum.on_message(from, bytes);
                    }
                }
                Kind::Node => {
                    if let Some(driver) = self.driver.get() {
                        driver.node.on_peer(from, &bytes, driver.now());
                    }
                }
            }
        }
    }

    /// Answers a node at its address for as long as what is returned lives.
    fn welcome(&self, address: String) -> Option<Guest<'_>> {
        let mut guests = self.guests.lock();
        if guests.len() >= GUESTS || address.is_empty() {
            return None;
        }
        *guests.entry(address.clone()).or_default() += 1;
        Some(Guest {
            cluster: self,
            address,
        })
    }

    /// What goes on beside the sockets of clients: connections to others, the node's messages, forming.
    pub(crate) async fn run(self: Arc<Cluster>) {
        tokio::join!(dial::keep_all(&self), self.post(), form::form(&self));
    }

    /// Takes what the node says to others to their connections. What finds no way is lost, and the node asks again.
    async fn post(&self) {
        loop {
            self.outbox.notified().await;
            let Some(driver) = self.driver.get() else {
                continue;
            };
            for PeerMessage {
                to,
                bytes,
                catches_up,
            } in driver.node.take_outbox()
            {
                // A node of an older release has one connection for everything.
                let _sent = catches_up
                    && self.send_on(to, Purpose::Bulk, Kind::Node, bytes.clone())
                    || self.send(to, Kind::Node, bytes);
            }
        }
    }
}

/// A node that is connected to this one.
struct Guest<'a> {
    cluster: &'a Cluster,
    address: String,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let mut guests = self.cluster.guests.lock();
        if let Some(count) = guests.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                guests.remove(&self.address);
            }
        }
    }
}

impl Carrier for Cluster {
    fn carry(&self, to: BrokerId, bytes: Bytes) -> bool {
        self.send(to, Kind::Quorum, bytes)
    }
}

/// Tells a node that has connected here that this one isn't part of a cluster.
pub(crate) async fn turn_away(
    read: impl AsyncRead + Unpin,
    write: impl AsyncWrite + Unpin,
    received: BytesMut,
) {
    // It is told; whether it hears is its own affair.
    let _ = wire::accept(read, write, received, None, false, |_| false).await;
}
