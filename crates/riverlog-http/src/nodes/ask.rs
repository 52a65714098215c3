//! Questions to other doors, and the same of this node where it has what is asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{Method, Request};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use riverlog_core::metadata::{TopicImage, TopicRef};
use riverlog_node::{
    AppendAnswer, AppendFailure, FetchCommand, FetchPartition, FetchedPartition, Isolation,
    OffsetQuery, PartitionRef, Slice, Slices,
};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::said::{
    APPEND, Afterwards, AppendAsk, AppendTold, At, COMMITTED, CommittedAsk, CommittedTold, FETCH,
    FetchAsk, FetchPart, FetchTold, GROUPS, OFFSET, OffsetAsk, OffsetTold, PARTITIONS,
    PartitionsAsk, PartitionsTold, Positions, body, read,
};
use crate::door::HttpDoor;
use crate::problem::Problem;
use crate::produce::How;

/// How much longer than what is asked for takes an answer of another node is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a partition is led.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Here(PartitionRef),
    There {
        leader: BrokerId,
        topic: TopicId,
        partition: i32,
    },
}

impl Place {
    /// The partition's number.
    pub(crate) fn index(&self) -> i32 {
        match self {
            Place::Here(partition) => partition.index(),
            Place::There { partition, .. } => *partition,
        }
    }
}

fn at(topic: TopicId, partition: i32) -> At {
    At {
        topic: topic.to_string(),
        partition,
    }
}

impl HttpDoor {
    /// Where a partition is led. 404 when there is none, 503 when nobody leads it.
    pub(crate) fn place(&self, topic: &TopicImage, partition: i32) -> Result<Place, Problem> {
        let here = self.partition(topic, partition);
        match (here, self.elsewhere_led(topic.id, partition)) {
            (Ok(here), _) => Ok(Place::Here(here)),
            (Err(_), Some(leader)) => Ok(Place::There {
                leader,
                topic: topic.id,
                partition,
            }),
            (Err(problem), None) => Err(problem),
        }
    }

    /// The other node that leads a partition.
    fn elsewhere_led(&self, topic: TopicId, partition: i32) -> Option<BrokerId> {
        let image = self.node.image();
        let index = usize::try_from(partition).ok()?;
        let leader = image.topics.get(&topic)?.partitions.get(index)?.leader;
        self.other(leader)
    }

    async fn question<T: DeserializeOwned>(
        &self,
        to: BrokerId,
        path: &'static str,
        head: &impl Serialize,
        records: &[Bytes],
        takes: Duration,
    ) -> Result<(T, Bytes), Problem> {
        let mut request = Request::new(body(head, records));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = axum::http::Uri::from_static(path);
        let asking = async {
            let response = self.wait(to, || Some(to), request).await?;
            let status = response.status();
            if !status.is_success() {
                let why = format!("node {to} answered {status}");
                return Err(Problem::kafka(ErrorCode::NOT_LEADER_OR_FOLLOWER).detail(why));
            }
            let read = read(response.into_body()).await;
            read.map_err(|why| super::unanswered(to, &why))
        };
        match tokio::time::timeout(takes + PATIENCE, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(super::unanswered(to, "it takes too long")),
        }
    }

    /// First offset and high watermark.
    pub(crate) async fn positions(&self, place: &Place) -> Result<(Offset, Offset), Problem> {
        match place {
            Place::Here(partition) => Ok(self.node.positions(partition)),
            Place::There {
                leader,
                topic,
                partition,
            } => {
                let asked = vec![at(*topic, *partition)];
                let told = self.positions_there(*leader, asked).await?;
                match told.into_iter().next().flatten() {
                    Some(found) => {
                        Ok((Offset(found.log_start_offset), Offset(found.high_watermark)))
                    }
                    None => Err(Problem::kafka(ErrorCode::NOT_LEADER_OR_FOLLOWER)),
                }
            }
        }
    }

    async fn positions_there(
        &self,
        leader: BrokerId,
        partitions: Vec<At>,
    ) -> Result<Vec<Option<Positions>>, Problem> {
        let ask = PartitionsAsk { partitions };
        let takes = Duration::ZERO;
        let (told, _): (PartitionsTold, _) =
            self.question(leader, PARTITIONS, &ask, &[], takes).await?;
        Ok(told.partitions)
    }

    /// What the leaders of a topic's partitions say of them; nothing where one can't be asked.
    pub(crate) async fn positions_of(&self, topic: &TopicImage) -> Vec<Option<Positions>> {
        let mut out = vec![None; topic.partitions.len()];
        let mut elsewhere: BTreeMap<BrokerId, Vec<i32>> = BTreeMap::new();
        for (index, slot) in (0..).zip(&mut out) {
            match self.place(topic, index) {
                Ok(Place::Here(partition)) => *slot = Some(self.positions_here(&partition)),
                Ok(Place::There { leader, .. }) => elsewhere.entry(leader).or_default().push(index),
                Err(_) => {}
            }
        }
        let mut asking: FuturesUnordered<_> = elsewhere
            .into_iter()
            .map(|(leader, indexes)| async move {
                let asked = indexes.iter().map(|index| at(topic.id, *index)).collect();
                let told = self.positions_there(leader, asked).await;
                (indexes, told.unwrap_or_default())
            })
            .collect();
        while let Some((indexes, told)) = asking.next().await {
            for (index, positions) in indexes.into_iter().zip(told) {
                let slot = usize::try_from(index).ok().and_then(|i| out.get_mut(i));
                if let Some(slot) = slot {
                    *slot = positions;
                }
            }
        }
        out
    }

    /// An offset as ListOffsets finds it: the earliest, the latest, or that of a time (−1: there is none).
    pub(crate) async fn offset(
        &self,
        place: &Place,
        query: OffsetQuery,
        isolation: Isolation,
    ) -> Result<Offset, Problem> {
        let (error, offset) = match place {
            Place::Here(partition) => {
                let answer = self
                    .ask(|node, _, reply| {
                        node.offset(partition, query, isolation, LeaderEpoch::NONE, reply);
                    })
                    .await?;
                (answer.error, answer.offset)
            }
            Place::There {
                leader,
                topic,
                partition,
            } => {
                let ask = OffsetAsk {
                    at: at(*topic, *partition),
                    time: match query {
                        OffsetQuery::AtTime(ms) => ms.max(0),
                        OffsetQuery::Latest => -1,
                        _ => -2,
                    },
                    committed_only: isolation == Isolation::ReadCommitted,
                };
                let takes = Duration::ZERO;
                let (told, _): (OffsetTold, _) =
                    self.question(*leader, OFFSET, &ask, &[], takes).await?;
                (ErrorCode(told.error), Offset(told.offset))
            }
        };
        match error {
            ErrorCode::NONE => Ok(offset),
            error => Err(Problem::kafka(error)),
        }
    }

    /// Appends a batch at the partition's leader. A refusal comes with what is known there.
    pub(crate) async fn append_there(
        &self,
        leader: BrokerId,
        (topic, partition): (TopicId, i32),
        batch: Vec<u8>,
        how: How<'_>,
        producer: Option<i64>,
    ) -> Result<Result<AppendAnswer, (AppendFailure, Afterwards)>, Problem> {
        let timeout = self.settings.append_timeout;
        let ask = AppendAsk {
            at: at(topic, partition),
            acks: how.acks,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            transactional_id: how.transactional_id.map(str::to_owned),
            next: how.next.map(|next| next.0),
            producer,
        };
        let batch = [Bytes::from(batch)];
        let (told, _): (AppendTold, _) =
            self.question(leader, APPEND, &ask, &batch, timeout).await?;
        Ok(match told {
            AppendTold::Stored {
                base_offset,
                log_append_time_ms,
                log_start_offset,
                duplicate,
            } => Ok(AppendAnswer {
                base_offset: Offset(base_offset),
                log_append_time_ms,
                log_start_offset: Offset(log_start_offset),
                duplicate,
            }),
            AppendTold::Refused {
                error,
                message,
                records,
                retry_after_ms,
                after,
            } => {
                let failure = AppendFailure {
                    error: ErrorCode(error),
                    message,
                    records,
                    retry_after: retry_after_ms.map(Duration::from_millis),
                };
                Err((failure, after))
            }
        })
    }

    /// Where a group has committed in a partition, as its coordinator says.
    pub(crate) async fn committed_there(
        &self,
        coordinator: BrokerId,
        group: &str,
        topic: &TopicImage,
        partition: i32,
    ) -> Result<Option<Offset>, Problem> {
        let ask = CommittedAsk {
            group: group.to_owned(),
            topic: topic.name.clone(),
            at: at(topic.id, partition),
        };
        let takes = Duration::ZERO;
        let (told, _): (CommittedTold, _) = self
            .question(coordinator, COMMITTED, &ask, &[], takes)
            .await?;
        match ErrorCode(told.error) {
            ErrorCode::NONE => Ok(told.offset.map(Offset)),
            error => Err(Problem::kafka(error)),
        }
    }

    /// What the other nodes that are up say of the groups that they coordinate.
    pub(crate) async fn groups_elsewhere<T: DeserializeOwned>(&self) -> Result<Vec<T>, Problem> {
        let image = self.node.image();
        let up = image.brokers.values().filter(|broker| !broker.fenced);
        let others: Vec<BrokerId> = up.filter_map(|b| self.other(Some(b.id))).collect();
        let mut asking: FuturesUnordered<_> = others
            .into_iter()
            .map(|to| self.question::<Vec<T>>(to, GROUPS, &(), &[], Duration::ZERO))
            .collect();
        let mut all = Vec::new();
        while let Some(told) = asking.next().await {
            all.extend(told?.0);
        }
        Ok(all)
    }

    /// [`riverlog_node::Node::fetch`] over all nodes: answers in the order of what is asked. A node that can't be asked counts as one
    /// that doesn't lead.
    pub(crate) async fn fetch(
        &self,
        command: FetchCommand,
    ) -> Result<Vec<FetchedPartition>, Problem> {
        let mut by_node: BTreeMap<Option<BrokerId>, Vec<usize>> = BTreeMap::new();
        for (n, part) in command.partitions.iter().enumerate() {
            let led = match &part.topic {
                TopicRef::Id(topic) => self.elsewhere_led(*topic, part.partition),
                TopicRef::Name(_) => None,
            };
            by_node.entry(led).or_default().push(n);
        }
        if by_node.keys().all(Option::is_none) {
            return self.fetch_here(command).await;
        }
        let no_wait = Duration::ZERO;
        let mut found: Vec<FetchedPartition> =
            command.partitions.iter().map(|_| nothing()).collect();
        // Who has something is answered at once; where nobody has, the first who gets something.
        for wait in [no_wait, command.max_wait] {
            let mut asking: FuturesUnordered<_> = by_node
                .iter()
                .map(|(node, which)| self.fetch_at(*node, which, &command, wait))
                .collect();
            while let Some(answers) = asking.next().await {
                let mut news = false;
                for (n, fetched) in answers? {
                    news |= fetched.records.len > 0 || fetched.error != ErrorCode::NONE;
                    if let Some(slot) = found.get_mut(n) {
                        *slot = fetched;
                    }
                }
                if news && !wait.is_zero() {
                    return Ok(found);
                }
            }
            let news = |f: &FetchedPartition| f.records.len > 0 || f.error != ErrorCode::NONE;
            if command.max_wait.is_zero() || found.iter().any(news) {
                break;
            }
        }
        Ok(found)
    }

    async fn fetch_here(&self, command: FetchCommand) -> Result<Vec<FetchedPartition>, Problem> {
        let answer = self
            .ask(|node, now, reply| node.fetch(command, now, reply))
            .await?;
        Ok(answer.partitions)
    }

    async fn fetch_at(
        &self,
        node: Option<BrokerId>,
        which: &[usize],
        command: &FetchCommand,
        wait: Duration,
    ) -> Result<Vec<(usize, FetchedPartition)>, Problem> {
        let parts = which.iter().filter_map(|n| command.partitions.get(*n));
        let parts: Vec<FetchPartition> = parts.cloned().collect();
        let answers = match node {
            None => {
                let command = FetchCommand {
                    partitions: parts,
                    max_wait: wait,
                    ..command.clone()
                };
                self.fetch_here(command).await?
            }
            Some(node) => match self.fetch_there(node, &parts, command, wait).await {
                Ok(answers) => answers,
                Err(problem) => {
                    tracing::debug!(node = node.0, "a fetch there failed: {problem:?}");
                    let failed = || FetchedPartition {
                        error: ErrorCode::NOT_LEADER_OR_FOLLOWER,
                        ..nothing()
                    };
                    parts.iter().map(|_| failed()).collect()
                }
            },
        };
        Ok(which.iter().copied().zip(answers).collect())
    }

    async fn fetch_there(
        &self,
        node: BrokerId,
        parts: &[FetchPartition],
        command: &FetchCommand,
        wait: Duration,
    ) -> Result<Vec<FetchedPartition>, Problem> {
        let part = |part: &FetchPartition| {
            let TopicRef::Id(topic) = part.topic else {
                return None;
            };
            Some(FetchPart {
                at: at(topic, part.partition),
                from: part.from.0,
                max_bytes: part.max_bytes,
            })
        };
        let ask = FetchAsk {
            partitions: parts.iter().filter_map(part).collect(),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            max_bytes: command.max_bytes,
            committed_only: command.isolation == Isolation::ReadCommitted,
        };
        let (told, mut records): (FetchTold, Bytes) =
            self.question(node, FETCH, &ask, &[], wait).await?;
        let mut out = Vec::with_capacity(parts.len());
        for part in told.parts {
            if part.len > records.len() {
                return Err(super::unanswered(node, "its records broke off"));
            }
            let bytes = records.split_to(part.len);
            out.push(FetchedPartition {
                error: ErrorCode(part.error),
                high_watermark: Offset(part.high_watermark),
                last_stable_offset: Offset(part.last_stable_offset),
                log_start_offset: Offset(part.log_start_offset),
                records: Slices {
                    len: bytes.len(),
                    parts: match bytes.is_empty() {
                        true => Vec::new(),
                        false => vec![Slice::Memory(bytes)],
                    },
                    next: Offset(part.next),
                },
                aborted: part
                    .aborted
                    .into_iter()
                    .map(|(id, first)| (id, Offset(first)))
                    .collect(),
                diverging_epoch: None,
                preferred: None,
            });
        }
        match out.len() == parts.len() {
            true => Ok(out),
            false => Err(super::unanswered(node, "it told of other partitions")),
        }
    }
}

/// A partition of which nothing has come.
fn nothing() -> FetchedPartition {
    FetchedPartition {
        error: ErrorCode::NONE,
        high_watermark: Offset(-1),
        last_stable_offset: Offset(-1),
        log_start_offset: Offset(-1),
        records: Slices::default(),
        aborted: Vec::new(),
        diverging_epoch: None,
        preferred: None,
    }
}
