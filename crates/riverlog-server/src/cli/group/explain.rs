//! `riverlog group explain`: what holds each partition of a group.
//!
//! The group is looked at twice, a moment apart: what moved meanwhile isn't held by anything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_producers_request::TopicRequest;
use riverlog_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverlog_wire::messages::{
    ApiKey, DescribeProducersRequest, ListOffsetsRequest, ListTransactionsRequest,
};
use serde_json::json;

use super::describe::{Described, Member, described};
use super::lag::{Row, rows};
use super::quota::bytes_a_second;
use crate::cli::output::Table;
use crate::cli::values::{duration, now_ms};
use crate::cli::{Context, interrupt};
use crate::client::{Broken, Client, Fetcher};
use crate::failure::{Exit, Failure};

/// ListOffsets: the end, as readers of committed records see it.
const LATEST: i64 = -1;
const READ_COMMITTED: i8 = 1;

/// How far is looked for what can't be read: so many answers of so many bytes.
const LOOKS: usize = 16;
const LOOK_BYTES: i32 = 1 << 20;

/// How soon a wait notices Ctrl-C.
const NAP: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Args)]
pub(crate) struct Explain {
    /// The group
    #[arg(value_name = "GROUP")]
    group: String,
    /// How long to watch for movement; longer than the consumers' commit interval
    #[arg(short, long, default_value = "6s", value_parser = duration)]
    wait: Duration,
    /// Exit with 1 when something holds a partition
    #[arg(long)]
    check: bool,
}

/// What holds a partition: a word for programs, and a sentence.
struct Reason {
    word: &'static str,
    why: String,
    /// Somebody should do something.
    held: bool,
}

fn fine(word: &'static str, why: impl Into<String>) -> Reason {
    Reason {
        word,
        why: why.into(),
        held: false,
    }
}

fn held(word: &'static str, why: impl Into<String>) -> Reason {
    Reason {
        word,
        why: why.into(),
        held: true,
    }
}

/// An open transaction that readers of committed records wait for.
struct OpenTransaction {
    start: i64,
    producer: i64,
    epoch: i32,
    last_ms: i64,
    id: Option<String>,
}

impl Explain {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        interrupt::watch();
        let mut client = context.client()?;
        let first = described(&mut client, &self.group)?;
        let before: BTreeMap<_, _> = rows(&mut client, &self.group, &first)?
            .into_iter()
            .map(|row| (row.key(), row))
            .collect();
        let waits = before.values().any(|row| row.lag().is_some_and(|l| l > 0));
        let until = Instant::now() + self.wait;
        // A group that has caught up needs no second look.
        while waits && !first.members.is_empty() && Instant::now() < until {
            if interrupt::asked() {
                break;
            }
            std::thread::sleep(NAP.min(until.saturating_duration_since(Instant::now())));
        }
        let now = described(&mut client, &self.group)?;
        let mut table = Table::new(
            "group.explain",
            &[
                "topic",
                "partition",
                "lag",
                "state",
                "why",
                "+member",
                "+seconds",
            ],
        );
        let mut troubles = 0;
        let at = now_ms();
        let owners = now.owners();
        for row in rows(&mut client, &self.group, &now)? {
            let owner = owners.get(&row.key()).copied();
            let reason = self.reason(&mut client, &now, owner, &row, before.get(&row.key()))?;
            troubles += usize::from(reason.held);
            table.row(vec![
                json!(row.topic),
                json!(row.partition),
                row.lag_text(),
                json!(reason.word),
                json!(reason.why),
                json!(row.member),
                json!(row.behind(at)),
            ]);
        }
        table.print(context.output)?;
        if self.check && troubles > 0 {
            return Err(Failure::new(
                Exit::Finding,
                format!(
                    "{troubles} partitions of group {:?} are held up",
                    self.group
                ),
            ));
        }
        Ok(())
    }

    fn poison(&self, row: &Row, at: i64, broken: &Broken) -> Reason {
        let to = match broken.next {
            Some(next) => next.to_string(),
            None => "OFFSET, the first behind the damage,".to_owned(),
        };
        held(
            "poison",
            format!(
                "what lies at offset {at} can't be read, so that no member gets past it: {}; stop the members and go on \
                 behind it with `riverlog group reset {} -t {} -p {} --to {to}`",
                broken.why, self.group, row.topic, row.partition
            ),
        )
    }

    fn reason(
        &self,
        client: &mut Client,
        group: &Described,
        owner: Option<&Member>,
        row: &Row,
        before: Option<&Row>,
    ) -> Result<Reason, Failure> {
        let Some((start, end)) = row.bounds else {
            return Ok(held(
                "unknown",
                "the topic or the partition's leader isn't there: see `riverlog topic describe`",
            ));
        };
        let Some(committed) = row.committed else {
            return Ok(match owner {
                Some(member) => fine(
                    "no-commit",
                    format!("{} has it and has committed nothing yet", named(member)),
                ),
                None => held("no-commit", "nobody has read or committed anything"),
            });
        };
        if row.lag() == Some(0) {
            return Ok(fine("caught-up", "everything is committed"));
        }
        if row.lost() > 0 {
            return Ok(held(
                "overtaken",
                format!(
                    "retention deleted offsets {committed} to {start} before they were committed; \
                     the next reader goes on as its auto.offset.reset says"
                ),
            ));
        }
        if let Some(open) = open_transaction(client, row, committed, end)? {
            return Ok(held("transaction", open.words(committed)));
        }
        if group.is_rebalancing() {
            return Ok(held(
                "rebalancing",
                format!(
                    "the group is in state {}: members change places, or one doesn't come back",
                    group.state
                ),
            ));
        }
        let Some(member) = owner else {
            return Ok(held(
                "no-member",
                if group.members.is_empty() {
                    "the group has no members: start a consumer".to_owned()
                } else {
                    "no member is assigned to it: does any subscribe to the topic?".to_owned()
                },
            ));
        };
        if let Some(broken) = &row.broken {
            return Ok(self.poison(row, committed, broken));
        }
        let moved = before
            .and_then(|b| b.committed)
            .map_or(0, |was| committed - was);
        if moved > 0 {
            let seconds = self.wait.as_secs_f64().max(0.001);
            let rate = moved as f64 / seconds;
            return Ok(fine(
                "moving",
                format!("{} committed {rate:.0} records a second", named(member)),
            ));
        }
        if let Some((at, broken)) = broken_ahead(client, row, committed, end)? {
            return Ok(self.poison(row, at, &broken));
        }
        if let Some(rate) = bytes_a_second(client, &member.client)? {
            return Ok(held(
                "throttled",
                format!(
                    "{} has it and committed nothing for {} s; a quota lets clients with the id {:?} read {rate:.0} bytes a second",
                    named(member),
                    self.wait.as_secs(),
                    member.client
                ),
            ));
        }
        Ok(held(
            "stuck",
            format!(
                "{} has it and committed nothing for {} s: it is paused, works on few records for long, \
                 commits more seldom, or can't get past offset {committed}; look at that record with \
                 `riverlog consume {} -p {} --from {committed} -n 1`",
                named(member),
                self.wait.as_secs(),
                row.topic,
                row.partition
            ),
        ))
    }
}

/// The first record behind what is committed that can't be read, as far as a short look goes: members read ahead of what they
/// commit.
fn broken_ahead(
    client: &mut Client,
    row: &Row,
    committed: i64,
    end: i64,
) -> Result<Option<(i64, Broken)>, Failure> {
    let Some(leader) = row.leader else {
        return Ok(None);
    };
    let mut fetcher = Fetcher::new();
    fetcher.max_bytes = LOOK_BYTES;
    fetcher.shows_broken = true;
    fetcher.add(&row.topic, row.partition, leader, committed);
    let mut at = committed;
    for _ in 0..LOOKS {
        let Some(part) = fetcher.poll(client, Duration::ZERO)?.pop() else {
            return Ok(None);
        };
        if let Some(broken) = part.broken {
            return Ok(Some((at, broken)));
        }
        if part.next <= at || part.next >= end {
            return Ok(None);
        }
        at = part.next;
    }
    Ok(None)
}

fn named(member: &Member) -> String {
    let name = member.instance.as_deref().unwrap_or(&member.id);
    format!("member {name:?} at {}", member.host)
}

impl OpenTransaction {
    fn words(&self, committed: i64) -> String {
        let who = match &self.id {
            Some(id) => format!(
                "transaction {id:?} (producer {}, epoch {})",
                self.producer, self.epoch
            ),
            None => format!(
                "a transaction of producer {} (epoch {}) that no coordinator knows",
                self.producer, self.epoch
            ),
        };
        let age = (now_ms() - self.last_ms).max(0) / 1000;
        format!(
            "readers of committed records wait at offset {committed}: {who} is open since offset {} and wrote last \
             {age} s ago; it ends with its producer or its time-out, or by `riverlog txn abort`",
            self.start
        )
    }
}

/// The transaction that keeps the last stable offset at or before what is committed.
fn open_transaction(
    client: &mut Client,
    row: &Row,
    committed: i64,
    end: i64,
) -> Result<Option<OpenTransaction>, Failure> {
    let Some(leader) = row.leader else {
        return Ok(None);
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level: READ_COMMITTED,
        topics: vec![ListOffsetsTopic {
            name: row.topic.clone(),
            partitions: vec![ListOffsetsPartition {
                partition_index: row.partition,
                timestamp: LATEST,
                ..ListOffsetsPartition::default()
            }],
        }],
        ..ListOffsetsRequest::default()
    };
    let answer = client.ask_node(leader, &request)?;
    let mut partitions = answer.topics.iter().flat_map(|t| &t.partitions);
    let stable = partitions
        .find(|p| p.error_code == ErrorCode::NONE)
        .map_or(end, |p| p.offset);
    if stable >= end || stable > committed {
        return Ok(None);
    }
    if client
        .node(leader)?
        .version(ApiKey::DescribeProducers)
        .is_err()
    {
        return Ok(None);
    }
    let request = DescribeProducersRequest {
        topics: vec![TopicRequest {
            name: row.topic.clone(),
            partition_indexes: vec![row.partition],
        }],
    };
    let answer = client.ask_node(leader, &request)?;
    let producers = answer
        .topics
        .into_iter()
        .flat_map(|t| t.partitions)
        .flat_map(|p| p.active_producers);
    let first = producers
        .filter(|p| p.current_txn_start_offset >= 0)
        .min_by_key(|p| p.current_txn_start_offset);
    let Some(first) = first else {
        return Ok(None);
    };
    Ok(Some(OpenTransaction {
        start: first.current_txn_start_offset,
        producer: first.producer_id,
        epoch: first.producer_epoch,
        last_ms: first.last_timestamp,
        id: transactional_id(client, first.producer_id)?,
    }))
}

/// The name of the transaction that a producer works in.
fn transactional_id(client: &mut Client, producer: i64) -> Result<Option<String>, Failure> {
    let brokers = client.metadata(Some(&[]), false)?.brokers;
    for broker in brokers {
        let link = client.node(broker.node_id)?;
        if link.version(ApiKey::ListTransactions).is_err() {
            continue;
        }
        let request = ListTransactionsRequest {
            producer_id_filters: vec![producer],
            ..ListTransactionsRequest::default()
        };
        let answer = client.ask_node(broker.node_id, &request)?;
        if let Some(found) = answer.transaction_states.into_iter().next() {
            return Ok(Some(found.transactional_id));
        }
    }
    Ok(None)
}
