//! Other nodes of a cluster. A client may ask any of them:
//!
//! - What belongs to one node as a whole (a partition, a group, a transactional id, a node's configs) is passed on to it as it came, and its
//!   answer is passed back as it comes: neither body is held here.
//! - What touches partitions of several nodes (records for a topic, a page of records, a poll of a group) is put together here, by
//!   questions to their leaders ([`said`]).
//!
//! A node answers what another one passed on by itself, or says that it can't: nothing goes round in circles.

mod answer;
mod ask;
mod said;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, Request, Response, Uri, header};
use riverlog_wire::{BrokerId, ErrorCode};
use tokio::time::Instant;

use crate::door::{Answer, HttpDoor};
use crate::patience::Patience;
use crate::problem::Problem;

pub(crate) use ask::Place;
pub(crate) use said::{Afterwards, Positions};

/// An answer that is on its way from another node.
pub type Going = Pin<Box<dyn Future<Output = Result<Response<Body>, Lost>> + Send>>;

/// Takes requests to the doors of other nodes.
pub trait Elsewhere: Send + Sync {
    /// Hands a request to the door of a node ([`HttpDoor::answer_node`]). Its body goes as fast as that node takes it, and the answer's
    /// comes as fast as it is read. Whoever drops what is returned ends the request.
    fn send(&self, to: BrokerId, request: Request<Body>) -> Going;
}

/// Why another node didn't answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It can't be reached; nothing was asked there.
    NoWay(String),
    /// The connection broke: what was asked may have been done.
    Unanswered(String),
}

/// How often it is looked at whether the node that was asked is still the one to ask.
const LOOK: Duration = Duration::from_millis(250);
/// How long a node that isn't the one to ask any more may take to answer all the same.
const GRACE: Duration = Duration::from_secs(2);

/// What is about one connection, and not about the request.
const HOPS: [HeaderName; 8] = [
    header::CONNECTION,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

fn without_hops(headers: &mut HeaderMap) {
    for name in &HOPS {
        headers.remove(name);
    }
}

impl Lost {
    pub(crate) fn problem(self, to: BrokerId) -> Problem {
        match self {
            Lost::NoWay(why) => Problem::kafka(ErrorCode::NOT_LEADER_OR_FOLLOWER).detail(format!(
                "node {to}, which has what was asked for, can't be reached: {why}"
            )),
            Lost::Unanswered(why) => unanswered(to, &why),
        }
    }
}

fn unanswered(to: BrokerId, why: &str) -> Problem {
    Problem::kafka(ErrorCode::REQUEST_TIMED_OUT)
        .detail(format!("node {to}, to which the request was passed on, gave no answer: {why}"))
        .hint("a write may have happened; read the partition, or send it again with a producer id and sequence or an Idempotency-Key, which store it once")
}

impl HttpDoor {
    /// This node is one of several, which are reached so. The first call counts.
    pub fn join(&self, elsewhere: Arc<dyn Elsewhere>) {
        // Once it is there it stays.
        let _ = self.elsewhere.set(elsewhere);
    }

    fn elsewhere(&self) -> Option<&Arc<dyn Elsewhere>> {
        self.elsewhere.get()
    }

    /// Whether others may have to be asked.
    pub(crate) fn is_in_cluster(&self) -> bool {
        self.elsewhere.get().is_some()
    }

    fn me(&self) -> BrokerId {
        self.node.settings().broker
    }

    /// The leader of a partition, as far as this node knows.
    pub(crate) fn leader(&self, topic: &str, partition: i32) -> Option<BrokerId> {
        let image = self.node.image();
        let index = usize::try_from(partition).ok()?;
        image.topic(topic)?.partitions.get(index)?.leader
    }

    /// The node that coordinates a group; waits while one is being found.
    pub(crate) async fn group_at(&self, group: &str) -> Option<BrokerId> {
        self.found(|| self.node.group_coordinator(group, self.now()))
            .await
    }

    /// The node that coordinates a transactional id; waits while one is being found.
    pub(crate) async fn transaction_at(&self, id: &str) -> Option<BrokerId> {
        self.found(|| self.node.transaction_coordinator(id, self.now()))
            .await
    }

    async fn found(&self, look: impl Fn() -> Option<BrokerId>) -> Option<BrokerId> {
        let patience = Patience::new();
        loop {
            let found = look();
            let missing = ErrorCode::COORDINATOR_NOT_AVAILABLE;
            if found.is_some() || !patience.again(missing).await {
                return found;
            }
        }
    }

    /// A node that isn't this one.
    pub(crate) fn other(&self, node: Option<BrokerId>) -> Option<BrokerId> {
        node.filter(|node| self.is_in_cluster() && *node != self.me())
    }

    /// Passes a request on as it is. `owner`: whom to ask, now and as long as it takes.
    pub(crate) async fn pass_on(
        &self,
        to: BrokerId,
        owner: impl Fn() -> Option<BrokerId>,
        mut request: Request<Body>,
    ) -> Answer {
        without_hops(request.headers_mut());
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
        *request.version_mut() = axum::http::Version::HTTP_11;
        let mut response = self.wait(to, owner, request).await?;
        without_hops(response.headers_mut());
        Ok(response)
    }

    async fn wait(
        &self,
        to: BrokerId,
        owner: impl Fn() -> Option<BrokerId>,
        request: Request<Body>,
    ) -> Result<Response<Body>, Problem> {
        let Some(elsewhere) = self.elsewhere() else {
            return Err(Problem::kafka(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        };
        let mut sent = elsewhere.send(to, request);
        let mut until: Option<Instant> = None;
        loop {
            tokio::select! {
                answer = &mut sent => return answer.map_err(|lost| lost.problem(to)),
                () = tokio::time::sleep(LOOK) => {}
            }
            match owner() == Some(to) {
                true => until = None,
                false if Instant::now() > *until.get_or_insert_with(|| Instant::now() + GRACE) => {
                    return Err(unanswered(to, "it isn't the one to ask any more"));
                }
                false => {}
            }
        }
    }
}
