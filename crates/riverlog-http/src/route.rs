//! Which call a path and a method mean.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use riverlog_wire::BrokerId;

use crate::door::{Answer, Call, HttpDoor};
use crate::path::Target;
use crate::problem::Problem;
use crate::query::Query;
use crate::{cluster, fetch, groups, openapi, produce, records, topics, transactions, watch};

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Topics,
    Topic,
    TopicConfig,
    TopicPartitions,
    TopicRecords,
    TopicSearch,
    Partition,
    PartitionRecords,
    Groups,
    Group,
    GroupReset,
    GroupOffsets,
    GroupLag,
    Members,
    Member,
    MemberRecords,
    MemberHeartbeat,
    Producers,
    Transactions,
    Transaction,
    TransactionCommit,
    TransactionAbort,
    TransactionOffsets,
    Brokers,
    BrokerConfig,
    Cluster,
    Description,
    Stats,
    StatsTopics,
    StatsGroups,
    StatsTransactions,
    HistoryNode,
    HistoryTopic,
    HistoryGroup,
}

/// What decides which node a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Partition,
    Group,
    Transaction,
    Broker,
    /// Any node can answer, perhaps with the help of others.
    Any,
}

impl Place {
    fn of(target: &Target) -> Option<Place> {
        let segments: Vec<&str> = target.segments.iter().map(String::as_str).collect();
        Some(match (segments.as_slice(), target.verb.as_deref()) {
            (["topics"], None) => Place::Topics,
            (["topics", _], None) => Place::Topic,
            (["topics", _, "config"], None) => Place::TopicConfig,
            (["topics", _, "partitions"], None) => Place::TopicPartitions,
            (["topics", _, "records"], None) => Place::TopicRecords,
            (["topics", _, "search"], None) => Place::TopicSearch,
            (["topics", _, "partitions", _], None) => Place::Partition,
            (["topics", _, "partitions", _, "records"], None) => Place::PartitionRecords,
            (["groups"], None) => Place::Groups,
            (["groups", _], None) => Place::Group,
            (["groups", _], Some("reset")) => Place::GroupReset,
            (["groups", _, "offsets"], None) => Place::GroupOffsets,
            (["groups", _, "lag"], None) => Place::GroupLag,
            (["groups", _, "members"], None) => Place::Members,
            (["groups", _, "members", _], None) => Place::Member,
            (["groups", _, "members", _, "records"], None) => Place::MemberRecords,
            (["groups", _, "members", _, "heartbeat"], None) => Place::MemberHeartbeat,
            (["producers"], None) => Place::Producers,
            (["transactions"], None) => Place::Transactions,
            (["transactions", _], None) => Place::Transaction,
            (["transactions", _], Some("commit")) => Place::TransactionCommit,
            (["transactions", _], Some("abort")) => Place::TransactionAbort,
            (["transactions", _, "offsets"], None) => Place::TransactionOffsets,
            (["brokers"], None) => Place::Brokers,
            (["brokers", _, "config"], None) => Place::BrokerConfig,
            (["cluster"], None) => Place::Cluster,
            (["openapi.json"], None) => Place::Description,
            (["stats"], None) => Place::Stats,
            (["stats", "topics"], None) => Place::StatsTopics,
            (["stats", "groups"], None) => Place::StatsGroups,
            (["stats", "transactions"], None) => Place::StatsTransactions,
            (["history", "node"], None) => Place::HistoryNode,
            (["history", "topics", _], None) => Place::HistoryTopic,
            (["history", "groups", _], None) => Place::HistoryGroup,
            _ => return None,
        })
    }

    /// For metrics.
    fn name(self) -> &'static str {
        match self {
            Place::Topics => "topics",
            Place::Topic => "topic",
            Place::TopicConfig => "topic-config",
            Place::TopicPartitions => "topic-partitions",
            Place::TopicRecords => "topic-records",
            Place::TopicSearch => "topic-search",
            Place::Partition => "partition",
            Place::PartitionRecords => "partition-records",
            Place::Groups => "groups",
            Place::Group => "group",
            Place::GroupReset => "group-reset",
            Place::GroupOffsets => "group-offsets",
            Place::GroupLag => "group-lag",
            Place::Members => "members",
            Place::Member => "member",
            Place::MemberRecords => "member-records",
            Place::MemberHeartbeat => "member-heartbeat",
            Place::Producers => "producers",
            Place::Transactions => "transactions",
            Place::Transaction => "transaction",
            Place::TransactionCommit => "transaction-commit",
            Place::TransactionAbort => "transaction-abort",
            Place::TransactionOffsets => "transaction-offsets",
            Place::Brokers => "brokers",
            Place::BrokerConfig => "broker-config",
            Place::Cluster => "cluster",
            Place::Stats => "stats",
            Place::StatsTopics => "stats-topics",
            Place::StatsGroups => "stats-groups",
            Place::StatsTransactions => "stats-transactions",
            Place::HistoryNode => "history-node",
            Place::HistoryTopic => "history-topic",
            Place::HistoryGroup => "history-group",
            Place::Description => "description",
        }
    }

    /// The node that a request belongs to as a whole; waits for a coordinator.
    async fn owner(self, door: &HttpDoor, target: &Target) -> Option<BrokerId> {
        let name = target.segments.get(1)?;
        match self.kind() {
            Kind::Group => door.group_at(name).await,
            Kind::Transaction => door.transaction_at(name).await,
            _ => self.owner_now(door, target),
        }
    }

    /// That node, as far as it is known now.
    fn owner_now(self, door: &HttpDoor, target: &Target) -> Option<BrokerId> {
        let name = target.segments.get(1)?;
        match self.kind() {
            Kind::Partition => {
                let index = target.segments.get(3)?.parse().ok()?;
                door.leader(name, index)
            }
            Kind::Group => door.node.group_coordinator(name, door.now()),
            Kind::Transaction => door.node.transaction_coordinator(name, door.now()),
            Kind::Broker => {
                let id = name.parse().map(BrokerId).ok()?;
                door.node.image().brokers.get(&id).map(|broker| broker.id)
            }
            Kind::Any => None,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Place::Partition | Place::PartitionRecords => Kind::Partition,
            Place::Group
            | Place::GroupReset
            | Place::GroupOffsets
            | Place::GroupLag
            | Place::Members
            | Place::Member
            | Place::MemberRecords
            | Place::MemberHeartbeat => Kind::Group,
            Place::Transaction | Place::TransactionCommit | Place::TransactionAbort => {
                Kind::Transaction
            }
            Place::BrokerConfig => Kind::Broker,
            _ => Kind::Any,
        }
    }

    /// The methods that it takes.
    fn allows(self) -> &'static str {
        match self {
            Place::Topics => "GET, POST",
            Place::Topic | Place::Group => "GET, DELETE",
            Place::GroupOffsets | Place::TopicRecords => "GET, POST",
            Place::Groups | Place::GroupLag | Place::MemberRecords | Place::Transaction => "GET",
            Place::Member => "DELETE",
            Place::GroupReset
            | Place::Members
            | Place::MemberHeartbeat
            | Place::Producers
            | Place::Transactions
            | Place::TransactionCommit
            | Place::TransactionAbort
            | Place::TransactionOffsets => "POST",
            Place::TopicConfig | Place::BrokerConfig => "GET, PATCH",
            Place::TopicPartitions | Place::TopicSearch => "POST",
            Place::Partition => "GET",
            Place::PartitionRecords => "POST",
            Place::Brokers
            | Place::Cluster
            | Place::Description
            | Place::Stats
            | Place::StatsTopics
            | Place::StatsGroups
            | Place::StatsTransactions
            | Place::HistoryNode
            | Place::HistoryTopic
            | Place::HistoryGroup => "GET",
        }
    }
}

/// The methods of a path, if it names anything.
#[cfg(test)]
pub(crate) fn allows(target: &Target) -> Option<&'static str> {
    Place::of(target).map(Place::allows)
}

/// Answers a request below `/v1`; says which call it was too.
pub(crate) async fn dispatch(
    door: &Arc<HttpDoor>,
    request: Request<Body>,
    passed_on: bool,
) -> (&'static str, Answer) {
    let path = request.uri().path();
    let path = path
        .strip_prefix("/v1/")
        .or(path.strip_prefix("/v1"))
        .unwrap_or_default();
    let target = match Target::parse(path) {
        Ok(target) => target,
        Err(problem) => return ("unknown", Err(problem)),
    };
    let Some(place) = Place::of(&target) else {
        let problem = Problem::new(
            StatusCode::NOT_FOUND,
            "no-such-call",
            "there is no such call",
            format!("{} names nothing", request.uri().path()),
        );
        let hint = "GET /v1/openapi.json describes all calls, /docs shows them";
        return ("unknown", Err(problem.hint(hint)));
    };
    if !passed_on && door.is_in_cluster() {
        let owner = place.owner(door, &target).await;
        if let Some(to) = door.other(owner) {
            let still = || place.owner_now(door, &target);
            return (place.name(), door.pass_on(to, still, request).await);
        }
    }
    let answer = call(door, place, target, request, passed_on).await;
    (place.name(), answer)
}

async fn call(
    door: &Arc<HttpDoor>,
    place: Place,
    target: Target,
    request: Request<Body>,
    passed_on: bool,
) -> Answer {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let method = match parts.method {
        Method::HEAD => Method::GET,
        method => method,
    };
    let call = Call {
        door: Arc::clone(door),
        target,
        query,
        headers: parts.headers,
        body,
        passed_on,
    };
    match (place, method.as_str()) {
        (Place::Topics, "GET") => topics::list(call),
        (Place::Topics, "POST") => topics::create(call).await,
        (Place::Topic, "GET") => topics::describe(call).await,
        (Place::Topic, "DELETE") => topics::delete(call).await,
        (Place::TopicConfig, "GET") => topics::configs(call),
        (Place::TopicConfig, "PATCH") => topics::alter_configs(call).await,
        (Place::TopicPartitions, "POST") => topics::add_partitions(call).await,
        (Place::TopicRecords, "POST") => produce::to_topic(call).await,
        (Place::PartitionRecords, "POST") => produce::to_partition(call).await,
        (Place::Partition, "GET") => fetch::fetch(call).await,
        (Place::Groups, "GET") => groups::list(call).await,
        (Place::Group, "GET") => groups::describe(call).await,
        (Place::Group, "DELETE") => groups::delete(call).await,
        (Place::GroupReset, "POST") => groups::reset(call).await,
        (Place::GroupOffsets, "GET") => groups::committed(call).await,
        (Place::GroupOffsets, "POST") => groups::commit(call).await,
        (Place::GroupLag, "GET") => groups::lag(call).await,
        (Place::Members, "POST") => groups::join(call).await,
        (Place::Member, "DELETE") => groups::leave(call).await,
        (Place::MemberRecords, "GET") => groups::poll(call).await,
        (Place::MemberHeartbeat, "POST") => groups::heartbeat(call).await,
        (Place::Producers, "POST") => transactions::producers(call).await,
        (Place::Transactions, "POST") => transactions::open(call).await,
        (Place::Transaction, "GET") => transactions::describe(call).await,
        (Place::TransactionCommit, "POST") => transactions::commit(call).await,
        (Place::TransactionAbort, "POST") => transactions::abort(call).await,
        (Place::TransactionOffsets, "POST") => groups::commit_in_transaction(call).await,
        (Place::Brokers, "GET") => cluster::brokers(&call),
        (Place::BrokerConfig, "GET") => cluster::configs(&call),
        (Place::BrokerConfig, "PATCH") => cluster::alter_configs(call).await,
        (Place::Cluster, "GET") => cluster::cluster(&call),
        (Place::Description, "GET") => openapi::description(),
        (Place::TopicRecords, "GET") => records::look(call).await,
        (Place::TopicSearch, "POST") => records::search(call).await,
        (Place::Stats, "GET") => watch::node(call),
        (Place::StatsTopics, "GET") => watch::topics(call),
        (Place::StatsGroups, "GET") => watch::groups(call),
        (Place::StatsTransactions, "GET") => watch::transactions(call),
        (Place::HistoryNode, "GET") => watch::of_node(call),
        (Place::HistoryTopic, "GET") => watch::of_topic(call),
        (Place::HistoryGroup, "GET") => watch::of_group(call),
        _ => {
            let mut response = Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "the call takes other methods",
                format!("{method} isn't served here; {} are", place.allows()),
            )
            .into_response();
            let allows = HeaderValue::from_static(place.allows());
            response.headers_mut().insert(header::ALLOW, allows);
            Ok(response)
        }
    }
}
