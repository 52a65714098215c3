//! A small blocking Kafka client for the command line: finds brokers, leaders and coordinators, and asks them.

mod assignors;
mod fetcher;
mod link;
mod member;
mod producer;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::metadata_response::MetadataResponseTopic;
use riverlog_wire::messages::{FindCoordinatorRequest, MetadataRequest, MetadataResponse, Request};

use crate::failure::{Exit, Failure, nearest};

pub(crate) use fetcher::{Broken, Fetched, Fetcher};
pub(crate) use link::{Link, Sent, place};
pub(crate) use member::{Member, MemberState, commit_request};
pub(crate) use producer::{Ack, Batch, Producer, ProducerSettings};

/// How long to wait between tries.
pub(crate) const RETRY: Duration = Duration::from_millis(50);

/// The longest pause between two tries to reach a broker that went away.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `host:port`, comma-separated.
    pub(crate) brokers: String,
    pub(crate) timeout: Duration,
    /// Say each request on standard error.
    pub(crate) trace: bool,
}

/// Connections to the brokers of a cluster.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) settings: Settings,
    nodes: BTreeMap<i32, (String, u16)>,
    links: BTreeMap<i32, Link>,
    first: Option<Link>,
}

/// Splits `host:port,[v6]:port,host`; the port is 9092 unless said.
pub(crate) fn addresses(brokers: &str) -> Result<Vec<(String, u16)>, Failure> {
    let mut out = Vec::new();
    for item in brokers.split(',').map(str::trim).filter(|s| !s.is_empty()) {
        out.push(address(item)?);
    }
    if out.is_empty() {
        return Err(Failure::usage("no broker is given").hint("give --brokers host:port"));
    }
    Ok(out)
}

/// `host`, `host:port`, `[v6]:port` or a bare IPv6 address.
pub(crate) fn address(item: &str) -> Result<(String, u16), Failure> {
    let wrong = || {
        Failure::usage(format!("{item:?} isn't an address"))
            .hint("give host:port, for instance localhost:9092 or [::1]:9092")
    };
    if item.contains("://") {
        return Err(wrong()
            .why("addresses of brokers have no scheme")
            .hint("leave out what stands before ://"));
    }
    let (host, port) = if let Some(rest) = item.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
        (host, rest.strip_prefix(':'))
    } else if item.matches(':').count() > 1 {
        (item, None)
    } else {
        match item.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (item, None),
        }
    };
    let port = match port {
        None => 9092,
        Some(port) => port
            .parse()
            .map_err(|_| wrong().why(format!("{port:?} isn't a port (1 to 65535)")))?,
    };
    if host.is_empty() {
        return Err(wrong());
    }
    if host.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong()
            .why("it is a port without a host")
            .hint(format!("give the host too, for instance localhost:{host}")));
    }
    Ok((host.to_owned(), port))
}

impl Client {
    /// Connects to the first of the brokers that answers.
    pub(crate) fn connect(settings: Settings) -> Result<Client, Failure> {
        let mut failure = None;
        for (host, port) in addresses(&settings.brokers)? {
            match Link::open(&host, port, settings.timeout, settings.trace) {
                Ok(link) => {
                    return Ok(Client {
                        settings,
                        nodes: BTreeMap::new(),
                        links: BTreeMap::new(),
                        first: Some(link),
                    });
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| Failure::usage("no broker is given")))
    }

    /// Asks any broker.
    pub(crate) fn ask<R: Request>(&mut self, request: &R) -> Result<R::Response, Failure> {
        self.any()?.ask(request)
    }

    /// A connection to any broker.
    pub(crate) fn any(&mut self) -> Result<&mut Link, Failure> {
        if self.first.is_none() {
            let fresh = Client::connect(self.settings.clone())?;
            self.first = fresh.first;
        }
        self.first
            .as_mut()
            .ok_or_else(|| Failure::new(Exit::Unreachable, "no broker can be reached"))
    }

    /// Forgets connections, after one of them failed.
    pub(crate) fn reset(&mut self) {
        self.links.clear();
        self.first = None;
    }

    /// Waits until a broker answers again, with growing pauses, and says so on standard error. `asked`: whether the user wants an
    /// end of it.
    fn reconnect(
        &mut self,
        why: Failure,
        deadline: Instant,
        asked: fn() -> bool,
    ) -> Result<(), Failure> {
        let seconds = deadline
            .saturating_duration_since(Instant::now())
            .as_secs_f64()
            .ceil();
        let reason = why.reason().unwrap_or_default().to_owned();
        eprintln!("{} ({reason}); trying again for {seconds} s", why.what());
        let mut pause = RETRY;
        let mut last = why;
        loop {
            std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(LONGEST_PAUSE);
            if asked() {
                return Err(Failure::silent(Exit::Interrupted));
            }
            self.reset();
            match self.metadata(Some(&[]), false) {
                Ok(_) => {
                    eprintln!("connected again");
                    return Ok(());
                }
                Err(error) if error.is_passing() && Instant::now() < deadline => last = error,
                Err(error) if error.is_passing() => return Err(last),
                Err(error) => return Err(error),
            }
        }
    }

    /// Does something again while brokers are away, for at most `patience`. What it does must bear being done twice.
    pub(crate) fn insist<T>(
        &mut self,
        patience: Duration,
        asked: fn() -> bool,
        mut what: impl FnMut(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            match what(self) {
                Err(error) if error.is_passing() && Instant::now() < deadline => {
                    self.reconnect(error, deadline, asked)?;
                }
                other => return other,
            }
        }
    }

    /// A connection to one broker of the cluster.
    pub(crate) fn node(&mut self, id: i32) -> Result<&mut Link, Failure> {
        if !self.links.contains_key(&id) {
            if !self.nodes.contains_key(&id) {
                self.metadata(Some(&[]), false)?;
            }
            let Some((host, port)) = self.nodes.get(&id) else {
                return Err(
                    Failure::new(Exit::Unreachable, format!("broker {id} isn't known"))
                        .why("metadata doesn't name its address")
                        .hint("wait until it is back, and look with `riverlog cluster status`"),
                );
            };
            let link = Link::open(host, *port, self.settings.timeout, self.settings.trace).map_err(|error| {
                let bootstrap = self.first.as_ref().map_or_else(String::new, |l| l.place.clone());
                Failure::new(
                    error.exit,
                    format!("broker {id} can't be reached at {}, its advertised address", place(host, *port)),
                )
                .why(error.reason().unwrap_or("no answer").to_owned())
                .hint(format!(
                    "{bootstrap} answers, so check advertised.listeners on the broker; `riverlog doctor connect` walks each hop"
                ))
            })?;
            self.links.insert(id, link);
        }
        self.links
            .get_mut(&id)
            .ok_or_else(|| Failure::new(Exit::Bug, "a connection got lost"))
    }

    /// Asks one broker of the cluster.
    pub(crate) fn ask_node<R: Request>(
        &mut self,
        id: i32,
        request: &R,
    ) -> Result<R::Response, Failure> {
        self.node(id)?.ask(request)
    }

    /// The cluster and some of its topics; `None`: all topics.
    pub(crate) fn metadata(
        &mut self,
        topics: Option<&[String]>,
        create: bool,
    ) -> Result<MetadataResponse, Failure> {
        let version = self
            .any()?
            .version(riverlog_wire::messages::ApiKey::Metadata)?;
        let request = MetadataRequest {
            topics: topics.map(|names| {
                let topic = |name: &String| MetadataRequestTopic {
                    name: Some(name.clone()),
                    ..MetadataRequestTopic::default()
                };
                names.iter().map(topic).collect()
            }),
            // Before version 4 a broker does as its own settings say.
            allow_auto_topic_creation: create || version < 4,
            ..MetadataRequest::default()
        };
        let response = self.ask(&request)?;
        self.nodes = response
            .brokers
            .iter()
            .filter_map(|b| Some((b.node_id, (b.host.clone(), u16::try_from(b.port).ok()?))))
            .collect();
        Ok(response)
    }

    /// One topic, ready to be used: waits until it and its leaders are there. `create`: made when it isn't there, if the broker does.
    pub(crate) fn topic(
        &mut self,
        name: &str,
        create: bool,
    ) -> Result<MetadataResponseTopic, Failure> {
        let deadline = Instant::now() + self.settings.timeout;
        loop {
            let names = [name.to_owned()];
            let response = self.metadata(Some(&names), create)?;
            let topic = response.topics.into_iter().next().unwrap_or_default();
            let code = match topic.error_code {
                ErrorCode::NONE => topic
                    .partitions
                    .iter()
                    .map(|p| p.error_code)
                    .find(|c| *c != ErrorCode::NONE),
                code => Some(code),
            };
            let Some(code) = code else { return Ok(topic) };
            let waiting = create && code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                || code == ErrorCode::LEADER_NOT_AVAILABLE;
            if !waiting || Instant::now() >= deadline {
                return Err(self.no_topic(name, code));
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Why a topic can't be used, with the name that was probably meant.
    pub(crate) fn no_topic(&mut self, name: &str, code: ErrorCode) -> Failure {
        let mut failure = Failure::kafka(format!("topic {name:?} can't be used"), code, None);
        if code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION {
            failure = Failure::new(Exit::NotFound, format!("there is no topic {name:?}"))
                .why(format!("{} ({})", code.name(), code.0));
            let known: Vec<String> = match self.metadata(None, false) {
                Ok(all) => all.topics.into_iter().filter_map(|t| t.name).collect(),
                Err(_) => Vec::new(),
            };
            failure = match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => failure.hint(format!(
                    "did you mean {near:?}? `riverlog topic list` shows all"
                )),
                None => failure.hint(format!(
                    "make it with `riverlog topic create {name}`; `riverlog topic list` shows all"
                )),
            };
        }
        failure
    }

    /// The broker that coordinates a group.
    pub(crate) fn coordinator(&mut self, group: &str) -> Result<i32, Failure> {
        self.coordinator_of(0, "group", group)
    }

    /// The broker that coordinates a transactional id.
    pub(crate) fn transaction_coordinator(&mut self, id: &str) -> Result<i32, Failure> {
        self.coordinator_of(1, "transactional id", id)
    }

    fn coordinator_of(&mut self, key_type: i8, what: &str, group: &str) -> Result<i32, Failure> {
        if i16::try_from(group.len()).is_err() {
            return Err(
                Failure::usage(format!("the name of the {what} is too long"))
                    .why(format!(
                        "it has {} bytes, and Kafka's protocol takes {} at most",
                        group.len(),
                        i16::MAX
                    ))
                    .hint("give a shorter one"),
            );
        }
        let deadline = Instant::now() + self.settings.timeout;
        loop {
            let link = self.any()?;
            let many = link.version(riverlog_wire::messages::ApiKey::FindCoordinator)? >= 4;
            let request = FindCoordinatorRequest {
                key: if many {
                    String::new()
                } else {
                    group.to_owned()
                },
                coordinator_keys: if many {
                    vec![group.to_owned()]
                } else {
                    Vec::new()
                },
                key_type,
            };
            let response = link.ask(&request)?;
            let (code, message, id, host, port) = match response.coordinators.into_iter().next() {
                Some(c) => (c.error_code, c.error_message, c.node_id, c.host, c.port),
                None => (
                    response.error_code,
                    response.error_message,
                    response.node_id,
                    response.host,
                    response.port,
                ),
            };
            if code == ErrorCode::NONE {
                if let Ok(port) = u16::try_from(port) {
                    self.nodes.insert(id, (host, port));
                }
                return Ok(id);
            }
            if !code.retriable() || Instant::now() >= deadline {
                return Err(Failure::kafka(
                    format!("{what} {group:?} has no coordinator"),
                    code,
                    message.as_deref(),
                ));
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Asks a group's coordinator, again while it moves or loads.
    pub(crate) fn ask_coordinator<R: Request>(
        &mut self,
        group: &str,
        request: &R,
        code_of: impl Fn(&R::Response) -> ErrorCode,
    ) -> Result<R::Response, Failure> {
        let deadline = Instant::now() + self.settings.timeout;
        loop {
            let id = self.coordinator(group)?;
            let response = self.ask_node(id, request)?;
            let again = matches!(
                code_of(&response),
                ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                    | ErrorCode::COORDINATOR_NOT_AVAILABLE
                    | ErrorCode::NOT_COORDINATOR
            );
            if !again || Instant::now() >= deadline {
                return Ok(response);
            }
            std::thread::sleep(RETRY);
        }
    }

    /// A number of milliseconds for the time-out field of requests.
    pub(crate) fn timeout_ms(&self) -> i32 {
        i32::try_from(self.settings.timeout.as_millis()).unwrap_or(i32::MAX)
    }
}

/// The partitions of topics by their leader.
pub(crate) fn by_leader(
    partitions: impl Iterator<Item = (i32, String, i32)>,
) -> BTreeMap<i32, BTreeMap<String, Vec<i32>>> {
    let mut out: BTreeMap<i32, BTreeMap<String, Vec<i32>>> = BTreeMap::new();
    for (leader, topic, partition) in partitions {
        out.entry(leader)
            .or_default()
            .entry(topic)
            .or_default()
            .push(partition);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_may_leave_out_the_port_and_have_brackets() {
        for (text, host, port) in [
            ("localhost:9092", "localhost", 9092),
            ("broker", "broker", 9092),
            ("[::1]:9093", "::1", 9093),
            ("::1", "::1", 9092),
            ("10.0.0.1:1", "10.0.0.1", 1),
        ] {
            assert_eq!(address(text).unwrap(), (host.to_owned(), port), "{text}");
        }
        for text in [
            "29094",
            ":9092",
            "http://localhost:9092",
            "a:99999",
            "[::1",
            "a:b",
        ] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
