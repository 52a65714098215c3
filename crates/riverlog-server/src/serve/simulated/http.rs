//! The HTTP door on the simulated network, and a client of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::request::Builder;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use riverlog_http::HttpDoor;
use serde_json::{Value, json};
use tokio::sync::watch;
use turmoil::net::TcpStream;

use super::SERVER;
use super::network::{Pieces, Port};
use crate::serve::stream::{Listener, Stream};
use crate::serve::web;

const HTTP_PORT: u16 = 8082;

/// Serves `/v1` until the server stops.
pub(super) async fn accept(
    door: Arc<HttpDoor>,
    pieces: Arc<Pieces>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let port = Port::bind(HTTP_PORT, pieces).await?;
    let routes = Router::new().fallback(move |request: Request| {
        let door = Arc::clone(&door);
        async move { door.answer(request).await }
    });
    while let Ok((stream, _)) = port.accept().await {
        let (read, write) = stream.split();
        let stream = tokio::io::join(read, write);
        tokio::spawn(web::first(stream, routes.clone(), stop.clone()));
    }
    Ok(())
}

/// One connection.
pub(super) struct HttpLink(SendRequest<Full<Bytes>>);

impl HttpLink {
    async fn open() -> io::Result<HttpLink> {
        let connect = async {
            let stream = TcpStream::connect((SERVER, HTTP_PORT)).await?;
            handshake(TokioIo::new(stream))
                .await
                .map_err(io::Error::other)
        };
        let connected = tokio::time::timeout(Duration::from_secs(2), connect).await;
        let (sender, connection) = connected.map_err(|_| io::ErrorKind::TimedOut)??;
        tokio::spawn(connection);
        Ok(HttpLink(sender))
    }

    pub(super) async fn open_patiently() -> HttpLink {
        loop {
            if let Ok(link) = HttpLink::open().await {
                return link;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, String)],
        body: &Value,
    ) -> io::Result<(u16, Value)> {
        let mut request = Request::post(path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        self.ask(request, body.to_string()).await
    }

    async fn get(&mut self, path: &str) -> io::Result<(u16, Value)> {
        self.ask(Request::get(path), String::new()).await
    }

    async fn delete(&mut self, path: &str) -> io::Result<(u16, Value)> {
        self.ask(Request::delete(path), String::new()).await
    }

    /// Asks and waits, for at most five seconds: status and body.
    async fn ask(&mut self, request: Builder, body: String) -> io::Result<(u16, Value)> {
        let body = Full::new(Bytes::from(body));
        let request = request.header("host", SERVER).body(body);
        let request = request.expect("a request");
        let asking = async {
            self.0.ready().await?;
            let response = self.0.send_request(request).await?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            Ok((status, body))
        };
        let answer = tokio::time::timeout(Duration::from_secs(5), asking).await;
        let answer: hyper::Result<(u16, Bytes)> = answer.map_err(|_| io::ErrorKind::TimedOut)?;
        let (status, body) = answer.map_err(io::Error::other)?;
        let body = match body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&body).expect("an answer is JSON"),
        };
        Ok((status, body))
    }
}

/// How a request over HTTP says that it is to be stored once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Once {
    /// A key of its own for each request.
    Key,
    /// A producer id, its epoch and a sequence.
    Sequence(i64, i64),
}

impl Once {
    /// A producer id of the server's.
    pub(super) async fn sequence(link: &mut HttpLink) -> Once {
        loop {
            match link.post("/v1/producers", &[], &json!({})).await {
                Ok((201, made)) => {
                    return Once::Sequence(number(&made["producer_id"]), number(&made["epoch"]));
                }
                Ok(refused) => passes(&refused),
                Err(_) => *link = HttpLink::open_patiently().await,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends these values until they are stored; the first one's offset. `name` is that of the request, `sequence` its first record's.
    pub(super) async fn publish(
        self,
        link: &mut HttpLink,
        (topic, partition): (&str, i32),
        name: &str,
        sequence: i32,
        values: &[String],
    ) -> i64 {
        let path = format!("/v1/topics/{topic}/partitions/{partition}/records");
        let headers = match self {
            Once::Key => vec![("idempotency-key", name.to_owned())],
            Once::Sequence(id, epoch) => vec![
                ("riverlog-producer-id", id.to_string()),
                ("riverlog-producer-epoch", epoch.to_string()),
                ("riverlog-sequence", sequence.to_string()),
            ],
        };
        let records: Vec<Value> = values
            .iter()
            .map(|value| json!({ "value": value }))
            .collect();
        let body = json!({ "records": records });
        if sequence % 3 == 0 {
            // The answer is lost, as far as this client knows.
            let patience = Duration::from_millis(sequence as u64 * 7 % 20);
            let _ = tokio::time::timeout(patience, link.post(&path, &headers, &body)).await;
            *link = HttpLink::open_patiently().await;
        }
        loop {
            match link.post(&path, &headers, &body).await {
                Ok((200, answer)) => {
                    let results = answer["results"].as_array().expect("a result for each");
                    let offsets: Vec<i64> = results
                        .iter()
                        .map(|result| number(&result["offset"]))
                        .collect();
                    let base = offsets[0];
                    assert!(offsets.iter().copied().eq((base..).take(values.len())));
                    return base;
                }
                Ok(refused) => passes(&refused),
                Err(_) => *link = HttpLink::open_patiently().await,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What a poll brought.
pub(super) struct Polled {
    /// Partition, offset and value.
    pub(super) records: Vec<(i32, i64, String)>,
    /// The partitions that are the member's from now on.
    pub(super) holds: Vec<i32>,
}

/// A member of a consumer group.
pub(super) struct Member {
    link: HttpLink,
    group: &'static str,
    id: String,
    generation: i64,
    cursor: String,
    /// What it holds, each with a generation in which it wasn't its own before: commits of an earlier one aren't the owner's (KIP-1251).
    holds: BTreeMap<i32, i64>,
}

impl Member {
    /// Joins; the partitions that it holds.
    pub(super) async fn join(group: &'static str, topic: &str) -> (Member, Vec<i32>) {
        let mut link = HttpLink::open_patiently().await;
        let path = format!("/v1/groups/{group}/members");
        loop {
            match link.post(&path, &[], &json!({ "topics": [topic] })).await {
                Ok((201, state)) => {
                    let generation = number(&state["generation"]);
                    let holds = partitions(&state);
                    let member = Member {
                        link,
                        group,
                        id: text(&state["member_id"]),
                        generation,
                        cursor: text(&state["cursor"]),
                        holds: holds.iter().map(|p| (*p, generation)).collect(),
                    };
                    return (member, holds);
                }
                Ok(refused) => passes(&refused),
                Err(_) => link = HttpLink::open_patiently().await,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn path(&self, call: &str) -> String {
        format!("/v1/groups/{}/members/{}{call}", self.group, self.id)
    }

    /// Polls once; None when the group doesn't know the member any more.
    pub(super) async fn poll(&mut self) -> Option<Polled> {
        loop {
            let path = self.path(&format!(
                "/records?embed=utf8&wait_ms=200&cursor={}",
                self.cursor
            ));
            match self.link.get(&path).await {
                Ok((200, polled)) => {
                    self.cursor = text(&polled["cursor"]);
                    let holds = partitions(&polled);
                    self.holds.retain(|p, _| holds.contains(p));
                    for partition in &holds {
                        self.holds.entry(*partition).or_insert(self.generation);
                    }
                    self.generation = number(&polled["generation"]);
                    let records = polled["records"].as_array().expect("records");
                    let records = records
                        .iter()
                        .map(|r| {
                            (
                                number(&r["partition"]) as i32,
                                number(&r["offset"]),
                                text(&r["value"]),
                            )
                        })
                        .collect();
                    return Some(Polled { records, holds });
                }
                Ok((404 | 409, _)) => return None,
                Ok(refused) => passes(&refused),
                Err(_) => self.link = HttpLink::open_patiently().await,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Commits once: whether it is known to be stored. One of a generation that has passed never is.
    pub(super) async fn commit(&mut self, topic: &str, partition: i32, offset: i64) -> bool {
        let path = format!("/v1/groups/{}/offsets", self.group);
        let body = |generation: i64, offset: i64| {
            let at = json!({ "topic": topic, "partition": partition, "offset": offset });
            json!({ "generation": generation, "member_id": self.id, "offsets": [at] })
        };
        if let Some(since) = self.holds.get(&partition) {
            let early = self.link.post(&path, &[], &body(since - 1, 0)).await;
            assert!(!matches!(early, Ok((200, _))), "before generation {since}");
        }
        match self
            .link
            .post(&path, &[], &body(self.generation, offset))
            .await
        {
            Ok((200, _)) => true,
            Ok((404 | 409, _)) => false,
            Ok(refused) => {
                passes(&refused);
                false
            }
            Err(_) => {
                self.link = HttpLink::open_patiently().await;
                false
            }
        }
    }

    /// Leaves, as far as it is heard.
    pub(super) async fn leave(mut self) {
        let path = self.path("");
        // Who isn't heard is missed after a while.
        let _ = self.link.delete(&path).await;
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

fn partitions(state: &Value) -> Vec<i32> {
    let places = state["assignment"].as_array().expect("an assignment");
    places
        .iter()
        .map(|place| number(&place["partition"]) as i32)
        .collect()
}

/// What a server says that has just started, or is in trouble, asks to try again.
fn passes((status, problem): &(u16, Value)) {
    assert!(
        matches!(status, 503 | 504) && problem["retriable"] == true,
        "{status}: {problem}"
    );
}
