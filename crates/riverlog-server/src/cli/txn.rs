//! `riverlog txn`: which transactions there are, which hang, and how to end those (KIP-664).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_producers_request::TopicRequest;
use riverlog_wire::messages::describe_producers_response::ProducerState;
use riverlog_wire::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use riverlog_wire::messages::{
    DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest,
    WriteTxnMarkersRequest,
};
use serde_json::{Value, json};

use super::Context;
use super::output::Table;
use super::values;
use crate::client::{Client, RETRY, by_leader};
use crate::failure::{Exit, Failure};

/// Shows transactions, and ends those that hang.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Txn {
    /// List transactional ids
    #[command(visible_alias = "ls")]
    List(List),
    /// Show a transactional id with what its transaction touches
    Describe(Describe),
    /// Find transactions that hold partitions back and that no coordinator will end; exit code 1 when there are any
    Hanging(Hanging),
    /// End a transaction that hangs in a partition, as aborted
    Abort(Abort),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct List {
    /// In one of these states: Ongoing, PrepareCommit, CompleteAbort, …
    #[arg(long, value_delimiter = ',', value_name = "STATE")]
    state: Vec<String>,
    /// Of these producer ids
    #[arg(long, value_delimiter = ',', value_name = "N")]
    producer_id: Vec<i64>,
    /// Begun longer ago than this
    #[arg(long, value_parser = values::duration, value_name = "TIME")]
    longer_than: Option<Duration>,
    /// Whose id fits this pattern as a whole
    #[arg(long, value_name = "REGEX")]
    pattern: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Describe {
    /// Transactional ids
    #[arg(required = true, value_name = "TRANSACTIONAL_ID")]
    ids: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Hanging {
    /// Look at these topics only
    #[arg(short, long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// Silent for longer than this: the cluster's transaction.max.timeout.ms, and some more
    #[arg(long, default_value = "20m", value_parser = values::duration, value_name = "TIME")]
    older_than: Duration,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Abort {
    /// The topic
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// Its partition
    #[arg(value_name = "PARTITION")]
    partition: i32,
    /// Where the transaction begins in the partition, as `hanging` shows it
    #[arg(long, value_name = "OFFSET")]
    start_offset: i64,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
    /// Say what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Txn {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Txn::List(list) => list.run(context),
            Txn::Describe(describe) => describe.run(context),
            Txn::Hanging(hanging) => hanging.run(context),
            Txn::Abort(abort) => abort.run(context),
        }
    }
}

/// Transactional id, producer id and state of the transactions of all brokers.
fn all(
    client: &mut Client,
    request: &ListTransactionsRequest,
    context: &Context,
) -> Result<Vec<(String, i64, String)>, Failure> {
    let brokers = client.metadata(Some(&[]), false)?.brokers;
    let mut out = Vec::new();
    for broker in brokers.iter().map(|b| b.node_id) {
        let deadline = Instant::now() + client.settings.timeout;
        let response = loop {
            let response = client.ask_node(broker, request)?;
            // After a start a broker reads its transactions first.
            if !response.error_code.retriable() || Instant::now() >= deadline {
                break response;
            }
            std::thread::sleep(RETRY);
        };
        if response.error_code != ErrorCode::NONE {
            let what = format!("broker {broker} can't list its transactions");
            return Err(Failure::kafka(what, response.error_code, None));
        }
        for unknown in response.unknown_state_filters {
            context.note(&format!("there is no state {unknown:?}"));
        }
        let states = response.transaction_states.into_iter();
        out.extend(states.map(|t| (t.transactional_id, t.producer_id, t.transaction_state)));
    }
    out.sort();
    Ok(out)
}

fn everything() -> ListTransactionsRequest {
    ListTransactionsRequest {
        duration_filter: -1,
        ..ListTransactionsRequest::default()
    }
}

impl List {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let longer = self.longer_than.map(|t| i64::try_from(t.as_millis()));
        let request = ListTransactionsRequest {
            state_filters: self.state,
            producer_id_filters: self.producer_id,
            duration_filter: longer.map_or(-1, |ms| ms.unwrap_or(i64::MAX)),
            transactional_id_pattern: self.pattern,
        };
        let mut table = Table::new("txn.list", &["transactional_id", "state", "producer_id"]);
        for (id, producer, state) in all(&mut context.client()?, &request, context)? {
            table.row(vec![json!(id), json!(state), json!(producer)]);
        }
        table.print(context.output)
    }
}

impl Describe {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        const COLUMNS: &[&str] = &[
            "transactional_id",
            "state",
            "producer_id",
            "epoch",
            "timeout_ms",
            "started",
            "partitions",
        ];
        let mut table = Table::new("txn.describe", COLUMNS);
        for id in self.ids {
            let coordinator = client.transaction_coordinator(&id)?;
            let request = DescribeTransactionsRequest {
                transactional_ids: vec![id.clone()],
            };
            let states = client.ask_node(coordinator, &request)?.transaction_states;
            let found = states.into_iter().next().unwrap_or_default();
            if found.error_code != ErrorCode::NONE {
                let what = format!("transactional id {id:?} can't be described");
                return Err(Failure::kafka(what, found.error_code, None)
                    .hint("`riverlog txn list` shows all"));
            }
            let topics = found.topics.iter();
            let places = topics.flat_map(|t| t.partitions.iter().map(move |p| (&t.topic, p)));
            let places: Vec<String> = places.map(|(t, p)| format!("{t}-{p}")).collect();
            table.row(vec![
                json!(id),
                json!(found.transaction_state),
                json!(found.producer_id),
                json!(found.producer_epoch),
                json!(found.transaction_timeout_ms),
                match found.transaction_start_time_ms {
                    -1 => Value::Null,
                    at => json!(at),
                },
                json!(places.join(" ")),
            ]);
        }
        table.print(context.output)
    }
}

/// A producer with a transaction open in a partition.
struct Open {
    topic: String,
    partition: i32,
    leader: i32,
    producer: ProducerState,
}

/// Producers with open transactions in these topics; none: in all.
fn open_ones(client: &mut Client, topics: &[String]) -> Result<Vec<Open>, Failure> {
    let asked = (!topics.is_empty()).then_some(topics);
    let metadata = client.metadata(asked, false)?;
    let mut partitions = Vec::new();
    for topic in metadata.topics {
        let name = topic.name.unwrap_or_default();
        if topic.error_code != ErrorCode::NONE {
            let what = format!("topic {name:?} can't be looked at");
            return Err(Failure::kafka(what, topic.error_code, None));
        }
        let led = topic.partitions.iter().filter(|p| p.leader_id >= 0);
        partitions.extend(led.map(|p| (p.leader_id, name.clone(), p.partition_index)));
    }
    let mut open = Vec::new();
    for (leader, topics) in by_leader(partitions.into_iter()) {
        let request = DescribeProducersRequest {
            topics: topics
                .into_iter()
                .map(|(name, partition_indexes)| TopicRequest {
                    name,
                    partition_indexes,
                })
                .collect(),
        };
        for topic in client.ask_node(leader, &request)?.topics {
            for partition in topic.partitions {
                let producers = partition.active_producers.into_iter();
                let producers = producers.filter(|p| p.current_txn_start_offset >= 0);
                open.extend(producers.map(|producer| Open {
                    topic: topic.name.clone(),
                    partition: partition.partition_index,
                    leader,
                    producer,
                }));
            }
        }
    }
    Ok(open)
}

impl Hanging {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        // Before the coordinators: what begins in between is known to them.
        let open = open_ones(&mut client, &self.topic)?;
        let known = all(&mut client, &everything(), context)?;
        let ends = ["Ongoing", "PrepareCommit", "PrepareAbort"];
        let known = known
            .into_iter()
            .filter(|(_, _, s)| ends.contains(&s.as_str()));
        let known: BTreeSet<i64> = known.map(|(_, producer, _)| producer).collect();
        let now = jiff::Timestamp::now().as_millisecond();
        let limit = i64::try_from(self.older_than.as_millis()).unwrap_or(i64::MAX);
        const COLUMNS: &[&str] = &[
            "topic",
            "partition",
            "producer_id",
            "epoch",
            "start_offset",
            "silent_ms",
        ];
        let mut table = Table::new("txn.hanging", COLUMNS);
        for Open {
            topic,
            partition,
            producer,
            ..
        } in open
        {
            let silent = now.saturating_sub(producer.last_timestamp);
            if known.contains(&producer.producer_id) || silent < limit {
                continue;
            }
            table.row(vec![
                json!(topic),
                json!(partition),
                json!(producer.producer_id),
                json!(producer.producer_epoch),
                json!(producer.current_txn_start_offset),
                json!(silent),
            ]);
        }
        let found = !table.is_empty();
        table.print(context.output)?;
        if found {
            context.note("`riverlog txn abort TOPIC PARTITION --start-offset OFFSET` ends one");
            return Err(Failure::silent(Exit::Finding));
        }
        Ok(())
    }
}

impl Abort {
    fn run(self, context: &Context) -> Result<(), Failure> {
        let mut client = context.client()?;
        let Abort {
            topic, partition, ..
        } = &self;
        let start = self.start_offset;
        let mut open = open_ones(&mut client, std::slice::from_ref(topic))?.into_iter();
        let found = open
            .find(|o| o.partition == *partition && o.producer.current_txn_start_offset == start);
        let Some(found) = found else {
            let what = format!("no transaction begins at offset {start} of {topic}-{partition}");
            return Err(Failure::new(Exit::NotFound, what)
                .hint("`riverlog txn hanging --older-than 0s` shows those that are open"));
        };
        let id = found.producer.producer_id;
        let what = format!("abort the transaction of producer {id} in {topic}-{partition}");
        if self.dry_run {
            context.note(&format!("would {what}"));
            return Ok(());
        }
        context.confirm(self.yes, &what, topic)?;
        let marker = WritableTxnMarker {
            producer_id: id,
            producer_epoch: i16::try_from(found.producer.producer_epoch).unwrap_or(-1),
            transaction_result: false,
            topics: vec![WritableTxnMarkerTopic {
                name: topic.clone(),
                partition_indexes: vec![*partition],
            }],
            // A partition that never had a marker knows no coordinator.
            coordinator_epoch: found.producer.coordinator_epoch.max(0),
            ..WritableTxnMarker::default()
        };
        let request = WriteTxnMarkersRequest {
            markers: vec![marker],
        };
        let response = client.ask_node(found.leader, &request)?;
        let topics = response.markers.into_iter().flat_map(|m| m.topics);
        let mut errors = topics.flat_map(|t| t.partitions).map(|p| p.error_code);
        match errors.find(|code| *code != ErrorCode::NONE) {
            Some(code) => Err(Failure::kafka(format!("can't {what}"), code, None)),
            None => {
                context.note(&format!("aborted the transaction of producer {id}"));
                Ok(())
            }
        }
    }
}
