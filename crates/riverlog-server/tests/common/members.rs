//! Members of groups that the broker assigns to, over Kafka's protocol: of the consumer protocol (KIP-848), and of an application of
//! Kafka Streams (KIP-1071) that counts words.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use riverlog_wire::messages::consumer_group_heartbeat_request::TopicPartitions;
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::offset_fetch_request::OffsetFetchRequestGroup;
use riverlog_wire::messages::streams_group_heartbeat_request::{
    Subtopology, TaskIds, TopicInfo, Topology,
};
use riverlog_wire::messages::{
    ConsumerGroupHeartbeatRequest, FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest,
    StreamsGroupHeartbeatRequest,
};
use riverlog_wire::{ErrorCode, TopicId};

use crate::common::{eventually, try_ask};

/// How long one request may take; a member asks again then, perhaps elsewhere.
const REQUEST: Duration = Duration::from_secs(8);
/// Between two rounds of heartbeats.
const ROUND: Duration = Duration::from_millis(50);

/// What a member reads: a subtopology (or nothing) and a partition.
pub type Part = (String, i32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of this topic.
    Consumer(TopicId),
    /// With a repartition topic and a changelog for each partition of what it reads.
    Streams,
}

pub struct Member {
    pub kind: Kind,
    pub group: String,
    pub id: String,
    pub topic: String,
    pub epoch: i32,
    pub has: BTreeSet<Part>,
}

pub fn repartition(group: &str) -> String {
    format!("{group}-words-repartition")
}

pub fn changelog(group: &str) -> String {
    format!("{group}-counts-changelog")
}

fn topology(topic: &str, group: &str) -> Topology {
    let internal = |name: String| TopicInfo {
        name,
        ..TopicInfo::default()
    };
    Topology {
        epoch: 0,
        subtopologies: vec![
            Subtopology {
                subtopology_id: "0".to_owned(),
                source_topics: vec![topic.to_owned()],
                repartition_sink_topics: vec![repartition(group)],
                ..Subtopology::default()
            },
            Subtopology {
                subtopology_id: "1".to_owned(),
                repartition_source_topics: vec![internal(repartition(group))],
                state_changelog_topics: vec![internal(changelog(group))],
                ..Subtopology::default()
            },
        ],
    }
}

/// Where a group's coordinator is, as one of these places knows it.
pub fn coordinator(places: &[String], group: &str) -> Option<(usize, String)> {
    let request = FindCoordinatorRequest {
        key_type: 0,
        coordinator_keys: vec![group.to_owned()],
        ..FindCoordinatorRequest::default()
    };
    places.iter().find_map(|place| {
        let answer = try_ask(place, 6, &request, REQUEST).ok()?;
        let found = answer.coordinators.into_iter().next()?;
        let id = usize::try_from(found.node_id).ok()?;
        Some((id, format!("{}:{}", found.host, found.port)))
    })
}

impl Member {
    pub fn new(kind: &Kind, group: &str, id: &str, topic: &str) -> Member {
        Member {
            kind: kind.clone(),
            group: group.to_owned(),
            id: id.to_owned(),
            topic: topic.to_owned(),
            epoch: 0,
            has: BTreeSet::new(),
        }
    }

    /// One heartbeat; what it is told to give back it has given back at once.
    pub fn beat(&mut self, places: &[String]) -> Result<(), ErrorCode> {
        let nobody = ErrorCode::COORDINATOR_NOT_AVAILABLE;
        let (_, place) = coordinator(places, &self.group).ok_or(nobody)?;
        let (error, epoch, told) = match self.kind {
            Kind::Consumer(id) => self.beat_as_consumer(&place, id),
            Kind::Streams => self.beat_as_streams(&place),
        }
        .ok_or(nobody)?;
        if error != ErrorCode::NONE {
            return Err(error);
        }
        assert!(
            epoch >= self.epoch,
            "{}: {} to {epoch}",
            self.id,
            self.epoch
        );
        self.epoch = epoch;
        if let Some(told) = told {
            self.has = told;
        }
        Ok(())
    }

    fn beat_as_consumer(
        &self,
        place: &str,
        topic_id: TopicId,
    ) -> Option<(ErrorCode, i32, Option<BTreeSet<Part>>)> {
        let joins = self.epoch == 0;
        let partitions: Vec<i32> = self.has.iter().map(|(_, p)| *p).collect();
        let owned = match partitions.is_empty() {
            true => Vec::new(),
            false => vec![TopicPartitions {
                topic_id,
                partitions,
            }],
        };
        let request = ConsumerGroupHeartbeatRequest {
            group_id: self.group.clone(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            rebalance_timeout_ms: if joins { 60_000 } else { -1 },
            subscribed_topic_names: joins.then(|| vec![self.topic.clone()]),
            topic_partitions: Some(owned),
            ..ConsumerGroupHeartbeatRequest::default()
        };
        let answer = try_ask(place, 1, &request, REQUEST).ok()?;
        let told = answer.assignment.map(|assignment| {
            let topics = assignment.topic_partitions.into_iter();
            let all = topics.flat_map(|t| t.partitions);
            all.map(|p| (String::new(), p)).collect()
        });
        Some((answer.error_code, answer.member_epoch, told))
    }

    fn beat_as_streams(&self, place: &str) -> Option<(ErrorCode, i32, Option<BTreeSet<Part>>)> {
        let joins = self.epoch == 0;
        let mut active: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for (id, partition) in &self.has {
            active.entry(id.clone()).or_default().push(*partition);
        }
        let active = active
            .into_iter()
            .map(|(subtopology_id, partitions)| TaskIds {
                subtopology_id,
                partitions,
            });
        let request = StreamsGroupHeartbeatRequest {
            group_id: self.group.clone(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            rebalance_timeout_ms: if joins { 60_000 } else { -1 },
            topology: joins.then(|| topology(&self.topic, &self.group)),
            active_tasks: Some(active.collect()),
            standby_tasks: Some(Vec::new()),
            warmup_tasks: Some(Vec::new()),
            process_id: joins.then(|| format!("process of {}", self.id)),
            client_tags: joins.then(Vec::new),
            ..StreamsGroupHeartbeatRequest::default()
        };
        let answer = try_ask(place, 1, &request, REQUEST).ok()?;
        let told = answer.active_tasks.map(|tasks| {
            let each = tasks.into_iter();
            each.flat_map(|t| {
                let id = t.subtopology_id;
                t.partitions.into_iter().map(move |p| (id.clone(), p))
            })
            .collect()
        });
        Some((answer.error_code, answer.member_epoch, told))
    }

    /// Commits for all of its topic that it has; whether it was told that it holds.
    pub fn commit(&self, places: &[String], offset: i64) -> bool {
        let Some((_, place)) = coordinator(places, &self.group) else {
            return false;
        };
        let own = self.has.iter().filter(|(id, _)| id != "1");
        let partitions = own.map(|(_, partition)| OffsetCommitRequestPartition {
            partition_index: *partition,
            committed_offset: offset,
            ..OffsetCommitRequestPartition::default()
        });
        let request = OffsetCommitRequest {
            group_id: self.group.clone(),
            generation_id_or_member_epoch: self.epoch,
            member_id: self.id.clone(),
            topics: vec![OffsetCommitRequestTopic {
                name: self.topic.clone(),
                partitions: partitions.collect(),
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        let Ok(answer) = try_ask(&place, 9, &request, REQUEST) else {
            return false;
        };
        let mut each = answer.topics.iter().flat_map(|t| &t.partitions);
        each.all(|p| p.error_code == ErrorCode::NONE)
    }
}

/// What a group has committed, once its coordinator says so.
pub fn committed(places: &[String], group: &str) -> BTreeMap<i32, i64> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.to_owned(),
            // All.
            topics: None,
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let mut found = BTreeMap::new();
    assert!(eventually(|| {
        let Some((_, place)) = coordinator(places, group) else {
            return false;
        };
        let Ok(answer) = try_ask(&place, 9, &request, REQUEST) else {
            return false;
        };
        let group = &answer.groups[0];
        let partitions = group.topics.iter().flat_map(|t| &t.partitions);
        found = partitions
            .map(|p| (p.partition_index, p.committed_offset))
            .collect();
        group.error_code == ErrorCode::NONE
    }));
    found
}

/// All beat until they have as many parts as there are, at one epoch. At no time has one of them what another one has.
pub fn settle(places: &[String], members: &mut [Member], parts: usize) {
    let mut rounds = Vec::new();
    let settled = eventually(|| {
        let mut sound = true;
        for member in members.iter_mut() {
            let beat = member.beat(places);
            sound &= beat.is_ok();
            rounds.push((member.id.clone(), beat, member.epoch));
        }
        let all: Vec<&Part> = members.iter().flat_map(|m| &m.has).collect();
        let each: BTreeSet<&Part> = all.iter().copied().collect();
        assert_eq!(all.len(), each.len(), "{all:?}");
        let same = members.windows(2).all(|two| two[0].epoch == two[1].epoch);
        std::thread::sleep(ROUND);
        sound && same && each.len() == parts
    });
    let has: Vec<_> = members.iter().map(|m| (&m.id, m.epoch, &m.has)).collect();
    let last = rounds.len().saturating_sub(3 * members.len());
    assert!(settled, "{has:?}, {:?}", &rounds[last..]);
}
