//! Requests of HTTP doors between nodes: HTTP/1.1 on connections of their own, opened to the others' ports for messages. One request is under
//! way on each, so that a slow reader holds up nobody else; a connection that is free again is used for the next.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use riverlog_http::{Elsewhere, Going, HttpDoor, Lost};
use riverlog_wire::BrokerId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use super::joined::Joined;
use super::wire::{Purpose, Receiver};
use super::{Cluster, dial};
use crate::serve::web;

/// Free connections that are kept to each node.
const KEPT: usize = 16;
/// Requests to other nodes that may be under way.
const UNDER_WAY: usize = 2_000;

/// The requests of a node.
pub(super) struct Requests {
    /// Who answers those of others.
    door: OnceLock<Arc<HttpDoor>>,
    kept: Mutex<BTreeMap<BrokerId, Vec<SendRequest<Body>>>>,
    room: Arc<Semaphore>,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests {
            door: OnceLock::new(),
            kept: Mutex::default(),
            room: Arc::new(Semaphore::new(UNDER_WAY)),
        }
    }
}

impl Requests {
    /// Answers what another node asks on a connection until it ends.
    pub(super) async fn serve<R, W>(&self, receiver: Receiver<R>, write: W)
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send,
    {
        let Some(door) = self.door.get() else {
            // It has only just started: the other one asks again.
            return;
        };
        let (read, received) = receiver.into_inner();
        let stream = Joined {
            received,
            read,
            write,
        };
        let answer = |request: Request<hyper::body::Incoming>| {
            let door = Arc::clone(door);
            async move {
                let response = door.answer_node(request.map(Body::new)).await;
                Ok::<_, std::convert::Infallible>(response)
            }
        };
        // A connection that broke tells nothing more; who has asked notices by itself.
        let _ = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(web::HEADERS)
            .max_buf_size(web::BUFFER)
            .serve_connection(TokioIo::new(stream), service_fn(answer))
            .await;
    }

    /// A connection that is free.
    fn take(&self, to: BrokerId) -> Option<SendRequest<Body>> {
        let mut kept = self.kept.lock();
        let kept = kept.get_mut(&to)?;
        kept.retain(|sender| !sender.is_closed());
        let free = kept.iter().position(SendRequest::is_ready)?;
        Some(kept.swap_remove(free))
    }

    /// It is free once the answer has been read.
    fn keep(&self, to: BrokerId, sender: SendRequest<Body>) {
        let mut kept = self.kept.lock();
        let kept = kept.entry(to).or_default();
        kept.retain(|sender| !sender.is_closed());
        if kept.len() < KEPT {
            kept.push(sender);
        }
    }
}

impl Cluster {
    /// Answers other nodes' requests with a door, and lets it ask theirs.
    pub(crate) fn join_doors(self: &Arc<Cluster>, door: &Arc<HttpDoor>) {
        door.join(Arc::new(Others(Arc::clone(self))));
        // The door is there before the first connection is.
        let _ = self.requests.door.set(Arc::clone(door));
    }

    async fn open(&self, to: BrokerId) -> Result<SendRequest<Body>, Lost> {
        let members = self.status().members;
        let member = members.iter().find(|m| m.member.broker == to);
        let address = member.map(|m| m.member.address.clone());
        let no_way = |why: String| Lost::NoWay(why);
        let address = address.ok_or_else(|| no_way("it isn't a member".to_owned()))?;
        let connected = dial::connect_for(self, &address, Purpose::Requests).await;
        let (hello, read, sender) = connected.map_err(|error| no_way(error.to_string()))?;
        if hello.who.member.broker != to {
            let who = hello.who.member.broker;
            return Err(no_way(format!("at {address} is node {who}")));
        }
        let stream = tokio::io::join(read, sender.into_inner());
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| no_way(error.to_string()))?;
        // Ends with the sender and what it has under way.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn ask(&self, to: BrokerId, request: Request<Body>) -> Result<Response<Body>, Lost> {
        let Ok(_room) = Arc::clone(&self.requests.room).try_acquire_owned() else {
            let why = format!("{UNDER_WAY} requests to other nodes are under way");
            return Err(Lost::NoWay(why));
        };
        let mut request = request;
        loop {
            let (mut sender, fresh) = match self.requests.take(to) {
                Some(sender) => (sender, false),
                None => (self.open(to).await?, true),
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.requests.keep(to, sender);
                    return Ok(response.map(Body::new));
                }
                Err(mut failed) => match failed.take_message() {
                    // The other side has closed a connection that was free.
                    Some(unsent) if !fresh => request = unsent,
                    Some(_) => return Err(Lost::NoWay(failed.error().to_string())),
                    None => return Err(Lost::Unanswered(failed.error().to_string())),
                },
            }
        }
    }
}

/// The doors of the other nodes.
struct Others(Arc<Cluster>);

impl Elsewhere for Others {
    fn send(&self, to: BrokerId, request: Request<Body>) -> Going {
        let cluster = Arc::clone(&self.0);
        Box::pin(async move { cluster.ask(to, request).await })
    }
}
