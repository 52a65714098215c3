//! Connections to other nodes: opened, kept, opened again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverlog_core::metadata::Way;
use riverlog_wire::BrokerId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::hello::{Hello, Refusal};
use super::wire::{self, Kind, Purpose, Sender, WireError};
use super::{Cluster, Link, QUEUED, Trouble, bulk};

/// How often the addresses of the members are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(2);
/// How long its number may be taken until a node that is no voter gives up: one with a new disk may have to wait until the others have
/// noticed that its former self is gone.
const TAKEN: Duration = Duration::from_secs(6);
/// How long bytes may stay unacknowledged until the other side counts as gone.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// The first pause after a connection has ended, or a first failure; each one is twice as long, up to the longest.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(25);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Keeps a connection to each address of a seed or member.
pub(super) async fn keep_all(cluster: &Arc<Cluster>) {
    let mut kept: BTreeMap<String, tokio::task::JoinHandle<()>> = BTreeMap::new();
    loop {
        let mut wanted: BTreeSet<String> = cluster.together.seeds.iter().cloned().collect();
        let members = cluster.status().members;
        let others = members.iter().filter(|m| m.disk != cluster.disk_id);
        wanted.extend(others.map(|m| m.member.address.clone()));
        wanted.extend(cluster.led_at.lock().clone());
        wanted.extend(cluster.guests.lock().keys().cloned());
        kept.retain(|address, task| {
            let keeps = wanted.contains(address);
            if !keeps {
                task.abort();
            }
            keeps
        });
        for address in wanted {
            kept.entry(address)
                .or_insert_with_key(|at| tokio::spawn(keep(Arc::clone(cluster), at.clone())));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Keeps one connection; ends when the address turns out to be this node's own.
async fn keep(cluster: Arc<Cluster>, address: String) {
    let mut pause = FIRST_PAUSE;
    let mut said = String::new();
    let mut taken: Option<Instant> = None;
    // Who was there last.
    let mut there: Option<BrokerId> = None;
    loop {
        match connect(&cluster, &address).await {
            Ok((hello, _, _)) if hello.who.disk == cluster.disk_id => {
                // Named by several seeds: one name is enough.
                let _ = cluster.own_seed.set(address);
                return;
            }
            // One connection to a node is enough, by whichever of its names.
            Ok((hello, _, _)) if cluster.has_way(hello.who.member.broker) => {
                pause = LONGEST_PAUSE;
            }
            Ok((hello, read, sender)) => {
                let broker = hello.who.member.broker;
                tracing::info!(broker = broker.0, "connected to {address}");
                (pause, said, taken) = (FIRST_PAUSE, String::new(), None);
                there = Some(broker);
                cluster.sees(broker, Way::Stands);
                let ended = tokio::select! {
                    ended = speak(&cluster, Purpose::Messages, &hello, read, sender) => ended,
                    never = bulk::keep(&cluster, &address, &hello) => match never {},
                };
                cluster.sees(broker, Way::Ended);
                tracing::info!(
                    broker = broker.0,
                    "the connection to {address} ended: {ended}"
                );
            }
            Err(error) => {
                if let (Some(there), true) = (there, error.is_nobody()) {
                    cluster.sees(there, Way::Refused);
                }
                let refused = matches!(
                    error,
                    WireError::Refused(_)
                        | WireError::RefusedThere(_)
                        | WireError::NoTls
                        | WireError::Tls(_)
                );
                match error.is(Refusal::SameNumber) && !cluster.is_voter() {
                    true if taken.get_or_insert_with(Instant::now).elapsed() > TAKEN => {
                        return cluster.fail(Trouble::NumberTaken(address));
                    }
                    true => {}
                    false => taken = None,
                }
                let words = error.to_string();
                // The same trouble is said once.
                if words != said {
                    match refused {
                        true => tracing::warn!("no connection to {address}: {words}"),
                        false => tracing::info!("no connection to {address} yet: {words}"),
                    }
                    said = words;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Both halves of a connection, within TLS or not.
pub(super) type Reading = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writing = Box<dyn AsyncWrite + Send + Unpin>;
type Connected = (Hello, Reading, Sender<Writing>);

/// Opens a connection for messages, and hears who is there.
pub(super) async fn connect(cluster: &Cluster, address: &str) -> Result<Connected, WireError> {
    connect_for(cluster, address, Purpose::Messages).await
}

/// Opens a connection, and hears who is there.
pub(super) async fn connect_for(
    cluster: &Cluster,
    address: &str,
    purpose: Purpose,
) -> Result<Connected, WireError> {
    let connecting = tokio::time::timeout(CONNECT, TcpStream::connect(address));
    let stream = connecting.await.map_err(|_| WireError::Late)??;
    stream.set_nodelay(true)?;
    socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    let (read, write) = match &cluster.together.tls {
        None => {
            let (read, write) = stream.into_split();
            (Box::new(read) as Reading, Box::new(write) as Writing)
        }
        Some(tls) => {
            let stream = wire::in_time(tls.dial(stream)).await?;
            let (read, write) = tokio::io::split(stream);
            (Box::new(read) as Reading, Box::new(write) as Writing)
        }
    };
    wire::dial(read, write, purpose, &cluster.hello()).await
}

/// Sends what there is for a node until the connection ends.
pub(super) async fn speak(
    cluster: &Cluster,
    purpose: Purpose,
    hello: &Hello,
    mut read: Reading,
    mut sender: Sender<Writing>,
) -> std::io::Error {
    let (queue, mut queued) = mpsc::channel::<(Kind, Bytes)>(QUEUED);
    let bytes = Arc::new(AtomicUsize::new(0));
    let to = (hello.who.member.broker, purpose);
    let id = cluster.next_link.fetch_add(1, Ordering::Relaxed);
    let link = Link {
        id,
        disk: hello.who.disk,
        queue,
        bytes: Arc::clone(&bytes),
    };
    cluster.links.lock().insert(to, link);
    let writing = async {
        while let Some((kind, frame)) = queued.recv().await {
            bytes.fetch_sub(frame.len(), Ordering::Relaxed);
            if let Err(error) = sender.send(kind, &frame).await {
                return error;
            }
        }
        std::io::Error::other("another connection took its place")
    };
    // The other side says nothing here; that it closes is heard.
    let reading = async {
        match read.read_u8().await {
            Ok(_) => std::io::ErrorKind::InvalidData.into(),
            // TLS has words of its own for one that didn't say goodbye, which no process does that was killed.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => error.kind().into(),
            Err(error) => error,
        }
    };
    let ended = tokio::select! {
        ended = writing => ended,
        ended = reading => ended,
    };
    let mut links = cluster.links.lock();
    if links.get(&to).is_some_and(|link| link.id == id) {
        links.remove(&to);
    }
    ended
}
