//! The library asks other voters; the host carries the questions.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{RPCOption, RaftNetworkFactory};
use openraft::raft::SnapshotResponse;
use openraft::{AsyncRuntime, RPCTypes, RaftNetworkV2};
use parking_lot::Mutex;
use riverlog_wire::BrokerId;
use tokio::sync::oneshot;

use crate::encode::entry_size;
use crate::message::{Body, Chunk, Message};
use crate::raft::{
    AppendRequest, AppendResponse, DiskId, Member, Rt, Snapshot, Types, Vote, VoteRequest,
    VoteResponse,
};
use crate::store::{State, decode_snapshot, encode_snapshot};

/// Bytes of a snapshot in one message.
const CHUNK: usize = 512 << 10;
/// The most that a snapshot is put together from.
const SNAPSHOT: usize = 1 << 30;
/// How long a byte may take: a megabyte a second.
const SLOW_BYTE: Duration = Duration::from_micros(1);
/// How long one chunk may take.
const CHUNK_PATIENCE: Duration = Duration::from_secs(5);

/// Carries messages of the quorum to other nodes. It may lose, delay, repeat and reorder them; it must not change them, and must
/// know for certain which node one comes from.
pub trait Carrier: Send + Sync + 'static {
    /// Takes a message for a node, or says at once (`false`) that there is no way to it. Must not block.
    fn carry(&self, to: BrokerId, bytes: Bytes) -> bool;
}

/// Asks, and hands answers to whoever asked.
pub(crate) struct Desk {
    me: DiskId,
    carrier: Arc<dyn Carrier>,
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Body>>,
}

/// Why there is no answer.
pub(crate) enum NoAnswer {
    NoWay,
    Late,
}

impl Desk {
    pub(crate) fn new(me: DiskId, carrier: Arc<dyn Carrier>) -> Desk {
        Desk {
            me,
            carrier,
            asked: Mutex::default(),
        }
    }

    pub(crate) fn send(&self, to: DiskId, at: BrokerId, number: u64, body: Body) -> bool {
        let message = Message {
            from: self.me,
            to,
            number,
            body,
        };
        message
            .encode()
            .is_some_and(|bytes| self.carrier.carry(at, bytes))
    }

    pub(crate) async fn ask(
        &self,
        to: DiskId,
        at: BrokerId,
        body: Body,
        patience: Duration,
    ) -> Result<Body, NoAnswer> {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut asked = self.asked.lock();
            asked.next += 1;
            let number = asked.next;
            asked.waiting.insert(number, sender);
            number
        };
        let answer = match self.send(to, at, number, body) {
            false => Err(NoAnswer::NoWay),
            true => match Rt::timeout(patience, receiver).await {
                Ok(Ok(answer)) => Ok(answer),
                _ => Err(NoAnswer::Late),
            },
        };
        self.asked.lock().waiting.remove(&number);
        answer
    }

    /// An answer has come. One that nobody waits for is dropped.
    pub(crate) fn answered(&self, number: u64, body: Body) {
        let waiting = self.asked.lock().waiting.remove(&number);
        if let Some(sender) = waiting {
            let _ = sender.send(body);
        }
    }
}

/// Makes a [`Client`] for each member.
pub(crate) struct Clients(pub(crate) Arc<Desk>);

impl RaftNetworkFactory<Types> for Clients {
    type Network = Client;

    async fn new_client(&mut self, target: DiskId, member: &Member) -> Client {
        Client {
            desk: Arc::clone(&self.0),
            target,
            broker: member.broker,
        }
    }
}

/// Asks one member.
pub(crate) struct Client {
    desk: Arc<Desk>,
    target: DiskId,
    broker: BrokerId,
}

impl Client {
    async fn ask(
        &self,
        body: Body,
        action: RPCTypes,
        patience: Duration,
    ) -> Result<Body, RPCError<Types>> {
        let answer = self
            .desk
            .ask(self.target, self.broker, body, patience)
            .await;
        answer.map_err(|why| match why {
            NoAnswer::NoWay => Unreachable::from_string("there is no connection").into(),
            NoAnswer::Late => Timeout {
                action,
                id: self.desk.me,
                target: self.target,
                timeout: patience,
            }
            .into(),
        })
    }
}

fn strange() -> RPCError<Types> {
    NetworkError::from_string("the answer is to another question").into()
}

impl RaftNetworkV2<Types> for Client {
    type SnapshotData = State;

    async fn append_entries(
        &mut self,
        rpc: AppendRequest,
        option: RPCOption,
    ) -> Result<AppendResponse, RPCError<Types>> {
        // What is long takes long on a slow way: asked again too soon, it would only be sent twice.
        let bytes: usize = rpc.entries.iter().map(entry_size).sum();
        let patience = option.soft_ttl() + SLOW_BYTE * u32::try_from(bytes).unwrap_or(u32::MAX);
        let body = Body::Append(rpc);
        match self.ask(body, RPCTypes::AppendEntries, patience).await? {
            Body::Appended(response) => Ok(response),
            _ => Err(strange()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest,
        option: RPCOption,
    ) -> Result<VoteResponse, RPCError<Types>> {
        let (body, patience) = (Body::Vote(rpc), option.soft_ttl());
        match self.ask(body, RPCTypes::Vote, patience).await? {
            Body::Voted(response) => Ok(response),
            _ => Err(strange()),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest,
        option: RPCOption,
    ) -> Result<VoteResponse, RPCError<Types>> {
        let (body, patience) = (Body::PreVote(rpc), option.soft_ttl());
        match self.ask(body, RPCTypes::Vote, patience).await? {
            Body::Voted(response) => Ok(response),
            _ => Err(strange()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let encoded = encode_snapshot(&snapshot.meta, &snapshot.snapshot)
            .map_err(|error| NetworkError::new(&error))?;
        let whole = Bytes::from(encoded);
        let send = async {
            let mut at = 0;
            loop {
                let to = whole.len().min(at + CHUNK);
                let is_end = to == whole.len();
                let chunk = Chunk {
                    vote,
                    last: snapshot.meta.last_log_id,
                    at: at as u64,
                    bytes: whole.slice(at..to),
                    is_end,
                };
                let body = Body::Snapshot(chunk);
                let answer = self.ask(body, RPCTypes::InstallSnapshot, CHUNK_PATIENCE);
                let Body::Took(theirs) = answer.await? else {
                    return Err(strange().into());
                };
                if is_end || theirs > vote {
                    return Ok(SnapshotResponse::new(theirs));
                }
                at = to;
            }
        };
        match Rt::select2(cancel, send).await {
            openraft::rt::Select2::First(closed) => Err(closed.into()),
            openraft::rt::Select2::Second(sent) => sent,
        }
    }
}

/// Puts a snapshot together that comes in chunks.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    of: Option<(Vote, Option<crate::raft::LogId>)>,
    bytes: BytesMut,
}

/// What a chunk makes of it.
pub(crate) enum Took {
    More,
    Whole(Snapshot),
    /// It doesn't fit to what was taken before, or isn't a snapshot: the sender begins anew.
    Bad,
}

impl Incoming {
    pub(crate) fn take(&mut self, chunk: Chunk) -> Took {
        let of = Some((chunk.vote, chunk.last));
        if chunk.at == 0 {
            (self.of, self.bytes) = (of, BytesMut::new());
        }
        let fits = self.of == of
            && chunk.at == self.bytes.len() as u64
            && self.bytes.len() + chunk.bytes.len() <= SNAPSHOT;
        if !fits {
            return Took::Bad;
        }
        self.bytes.extend_from_slice(&chunk.bytes);
        if !chunk.is_end {
            return Took::More;
        }
        self.of = None;
        let whole = std::mem::take(&mut self.bytes).freeze();
        match decode_snapshot(&whole) {
            Ok((meta, snapshot)) if meta.last_log_id == chunk.last => {
                Took::Whole(Snapshot { meta, snapshot })
            }
            _ => Took::Bad,
        }
    }
}
