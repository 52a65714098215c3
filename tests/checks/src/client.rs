//! A client that says one thing at a time, and believes nothing it hears.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use riverlog_wire::frame::{self, ResponseHeader};
use riverlog_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverlog_wire::messages::{
    AnyRequest, AnyResponse, CreateTopicsRequest, HeartbeatRequest, InitProducerIdRequest, Request,
    Response,
};
use riverlog_wire::primitives::{EncodeError, Reader};
use riverlog_wire::{ErrorCode, TopicId};

use crate::wire::{Broker, Connection, Received};

/// How long an answer may take that has no reason to.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How long is waited for something that must not come.
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// Why a check didn't pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// What was found, and what was expected.
    Wrong(String),
    /// The broker doesn't have what is checked, and says so.
    Skip(String),
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure::Wrong(reason)
    }
}

impl From<EncodeError> for Failure {
    fn from(error: EncodeError) -> Failure {
        Failure::Wrong(format!("the check's own request can't be encoded: {error}"))
    }
}

/// What a check comes to.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Compares what came with what was expected.
pub fn same<T: PartialEq + Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want {
        return Ok(());
    }
    Err(Failure::Wrong(format!(
        "{what}: got {got:?}, expected {want:?}"
    )))
}

/// A condition with words for its failure.
pub(crate) fn holds(condition: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if condition {
        Ok(())
    } else {
        Err(Failure::Wrong(otherwise()))
    }
}

/// The only element of a list.
pub(crate) fn only<T: Debug>(what: &str, items: Vec<T>) -> Outcome<T> {
    let count = items.len();
    let mut items = items.into_iter();
    match (items.next(), items.next()) {
        (Some(item), None) => Ok(item),
        _ => Err(Failure::Wrong(format!("{what}: got {count}, expected one"))),
    }
}

/// One connection, with its correlation ids.
pub struct Line {
    connection: Box<dyn Connection>,
    correlation: i32,
}

impl Line {
    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.connection.send(bytes);
    }
    /// What comes next.
    pub fn receive(&mut self, within: Duration) -> Received {
        self.connection.receive(within)
    }
    /// Sends a request, and leaves its answer for [`Line::answer`].
    pub fn say<R: Request>(&mut self, version: i16, request: &R) -> Outcome<i32> {
        self.correlation += 1;
        let mut bytes = Vec::new();
        frame::encode_request(
            &mut bytes,
            version,
            self.correlation,
            Some("checks"),
            request,
        )?;
        self.connection.send(&bytes);
        Ok(self.correlation)
    }
    /// The answer to the request with that correlation id, which must be the next frame.
    pub fn answer<R: Request>(
        &mut self,
        version: i16,
        correlation: i32,
        within: Duration,
    ) -> Outcome<R::Response> {
        let what = format!("{} v{version}", R::KEY.name());
        let frame = self.frame(&what, within)?;
        let mut reader = header(&what, &frame, R::KEY, version, correlation)?;
        let response = <R::Response as Response>::decode(&mut reader, version)
            .map_err(|e| format!("{what}: the response can't be read: {e}"))?;
        same(&format!("{what}: bytes left over"), reader.remaining(), 0)?;
        Ok(response)
    }
    /// Sends a request and takes its answer.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> Outcome<R::Response> {
        let correlation = self.say(version, request)?;
        self.answer::<R>(version, correlation, PATIENCE)
    }
    /// As [`Line::ask`], for a request whose kind is known at run time only.
    pub fn ask_any(&mut self, version: i16, request: &AnyRequest) -> Outcome<AnyResponse> {
        let key = request.key();
        let what = format!("{} v{version}", key.name());
        self.correlation += 1;
        let mut bytes = Vec::new();
        let client = Some("checks");
        frame::encode_any_request(&mut bytes, version, self.correlation, client, request)?;
        self.connection.send(&bytes);
        let frame = self.frame(&what, PATIENCE)?;
        let mut reader = header(&what, &frame, key, version, self.correlation)?;
        let response = AnyResponse::decode(key, version, &mut reader)
            .map_err(|e| format!("{what}: the response can't be read: {e}"))?;
        same(&format!("{what}: bytes left over"), reader.remaining(), 0)?;
        Ok(response)
    }
    fn frame(&mut self, what: &str, within: Duration) -> Outcome<Bytes> {
        match self.receive(within) {
            Received::Frame(frame) => Ok(frame),
            Received::Closed => Err(format!("{what}: the connection was closed").into()),
            Received::Nothing => Err(format!("{what}: no answer in {within:?}").into()),
        }
    }
}

fn header<'a>(
    what: &str,
    frame: &'a Bytes,
    key: riverlog_wire::messages::ApiKey,
    version: i16,
    correlation: i32,
) -> Outcome<Reader<'a>> {
    let mut reader = Reader::shared(frame);
    let header = ResponseHeader::decode(&mut reader, key, version)
        .map_err(|e| format!("{what}: the response's header can't be read: {e}"))?;
    let id = format!("{what}: correlation id");
    same(&id, header.correlation_id, correlation)?;
    Ok(reader)
}

/// A topic that a check made.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: TopicId,
}

/// What a check works with: a broker, a connection to it, names of its own.
pub struct Client<'a> {
    broker: &'a mut dyn Broker,
    line: Line,
    prefix: String,
    named: u32,
}

impl<'a> Client<'a> {
    /// A client whose topics and groups begin with `prefix`.
    pub fn new(broker: &'a mut dyn Broker, prefix: String) -> Outcome<Client<'a>> {
        let line = connect(broker)?;
        Ok(Client {
            broker,
            line,
            prefix,
            named: 0,
        })
    }
    /// The broker.
    pub fn broker(&mut self) -> &mut dyn Broker {
        self.broker
    }
    /// The connection that is used when none is named.
    pub fn line(&mut self) -> &mut Line {
        &mut self.line
    }
    /// Another connection.
    pub fn connect(&mut self) -> Outcome<Line> {
        connect(self.broker)
    }
    /// A name that nobody had before.
    pub fn name(&mut self) -> String {
        self.named += 1;
        format!("{}-{}", self.prefix, self.named)
    }
    /// Sends a request and takes its answer.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> Outcome<R::Response> {
        self.line.ask(version, request)
    }
    /// A new topic.
    pub fn topic(&mut self, partitions: i32) -> Outcome<Topic> {
        let name = self.name();
        self.topic_named(&name, partitions, &[])
    }
    /// A new topic with configs.
    pub fn topic_with(&mut self, configs: &[(&str, &str)]) -> Outcome<Topic> {
        let name = self.name();
        self.topic_named(&name, 1, configs)
    }
    /// A new topic of that name.
    pub fn topic_named(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Outcome<Topic> {
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 10_000,
            ..CreateTopicsRequest::default()
        };
        let created = only("topics created", self.ask(7, &request)?.topics)?;
        same(
            &format!("creating {name}"),
            created.error_code,
            ErrorCode::NONE,
        )?;
        let topic = Topic {
            name: name.to_owned(),
            id: created.topic_id,
        };
        self.until_led(&topic)?;
        Ok(topic)
    }
    /// A group of that name whose coordinator is ready.
    pub fn group(&mut self) -> Outcome<String> {
        let group = self.name();
        self.until_coordinated(&group)?;
        Ok(group)
    }
    /// Waits until this broker coordinates a group.
    pub(crate) fn until_coordinated(&mut self, group: &str) -> Outcome {
        let request = HeartbeatRequest {
            group_id: group.to_owned(),
            member_id: "nobody".to_owned(),
            ..HeartbeatRequest::default()
        };
        for _ in 0..100 {
            let answer = self.ask(4, &request)?.error_code;
            match answer {
                ErrorCode::UNKNOWN_MEMBER_ID => return Ok(()),
                // While it loads a group Kafka takes every heartbeat.
                ErrorCode::NONE
                | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                | ErrorCode::COORDINATOR_NOT_AVAILABLE
                | ErrorCode::NOT_COORDINATOR => self.broker.pass(Duration::from_millis(200)),
                other => return Err(format!("a coordinator answers {other:?}").into()),
            }
            // Kafka makes its offsets topic when a coordinator is looked for.
            let find = riverlog_wire::messages::FindCoordinatorRequest {
                coordinator_keys: vec![group.to_owned()],
                ..Default::default()
            };
            self.ask(4, &find)?;
        }
        Err("the coordinator isn't ready after 20 s".to_owned().into())
    }
    /// A fresh producer id; its epoch is 0.
    pub fn producer(&mut self) -> Outcome<i64> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            ..InitProducerIdRequest::default()
        };
        for _ in 0..100 {
            let answer = self.ask(4, &request)?;
            match answer.error_code {
                ErrorCode::NONE => {
                    same("a new producer's epoch", answer.producer_epoch, 0)?;
                    return Ok(answer.producer_id);
                }
                ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => {
                    self.broker.pass(Duration::from_millis(200));
                }
                other => return Err(format!("InitProducerId answers {other:?}").into()),
            }
        }
        Err("no producer id after 20 s".to_owned().into())
    }
    /// A connection on which something is sent that must end it; then the broker must go on serving others.
    pub fn ends(&mut self, what: &str, bytes: &[u8]) -> Outcome {
        let mut line = self.connect()?;
        line.send(bytes);
        match line.receive(PATIENCE) {
            Received::Closed => {}
            other => return Err(format!("{what}: {other:?}, expected an end").into()),
        }
        self.is_healthy()
    }
    /// The broker still answers, on a new connection.
    pub fn is_healthy(&mut self) -> Outcome {
        let request = riverlog_wire::messages::ApiVersionsRequest::default();
        let answer = self.connect()?.ask(0, &request)?;
        same(
            "ApiVersions of a healthy broker",
            answer.error_code,
            ErrorCode::NONE,
        )
    }
}

fn connect(broker: &mut dyn Broker) -> Outcome<Line> {
    Ok(Line {
        connection: broker.connect()?,
        correlation: 0,
    })
}
