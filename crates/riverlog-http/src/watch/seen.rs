//! What a look at the node sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverlog_api::configs;
use riverlog_core::groups::GroupDescription;
use riverlog_core::metadata::{TopicImage, TopicRef};
use riverlog_node::Node;
use riverlog_wire::TopicId;

use crate::door::HttpDoor;

/// A topic at one look.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenTopic {
    pub(super) name: String,
    pub(super) internal: bool,
    /// Records that are there.
    pub(super) records: i64,
    /// Where its partitions end, summed up: what grew since the last look was written meanwhile.
    pub(super) written: i64,
    pub(super) size_bytes: u64,
}

/// Positions and size of a topic; takes each partition's lock for a moment.
pub(super) fn topic(node: &Node, topic: &TopicImage) -> SeenTopic {
    let mut seen = SeenTopic {
        name: topic.name.clone(),
        internal: topic.internal,
        ..SeenTopic::default()
    };
    for (index, _) in (0..).zip(&topic.partitions) {
        let Ok(found) = node.partition(&TopicRef::Id(topic.id), index) else {
            continue;
        };
        let described = node.describe_partition(&found);
        let (start, end) = (described.log_start_offset.0, described.high_watermark.0);
        seen.records += (end - start).max(0);
        seen.written += end.max(0);
        seen.size_bytes += described.size_bytes;
    }
    seen
}

/// All topics.
pub(super) fn topics(node: &Node) -> BTreeMap<TopicId, SeenTopic> {
    let image = node.image();
    let all = image.topics.values();
    all.map(|t| (t.id, topic(node, t))).collect()
}

/// How long a topic keeps records by age (−1: for ever), and whether it is compacted.
pub(super) fn kept(node: &Node, topic: &TopicImage) -> (Option<i64>, bool) {
    let value = |key: &str| configs::topic_value(node, &topic.name, key);
    let policy = value("cleanup.policy").unwrap_or_else(|| "delete".to_owned());
    let deletes = policy.split(',').any(|p| p.trim() == "delete");
    let compacted = policy.split(',').any(|p| p.trim() == "compact");
    let retention = value("retention.ms").and_then(|ms| ms.parse().ok());
    // Kafka's default, where nothing is set.
    let retention = deletes.then(|| retention.unwrap_or(7 * 86_400_000));
    (retention, compacted)
}

/// A group at one look.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenGroup {
    pub(super) state: &'static str,
    pub(super) kind: &'static str,
    pub(super) generation: i32,
    /// Ids, in order.
    pub(super) members: Vec<String>,
    /// Records of each topic that it has yet to commit.
    pub(super) lags: BTreeMap<String, i64>,
}

impl SeenGroup {
    pub(super) fn lag(&self) -> i64 {
        self.lags.values().sum()
    }
}

/// All groups; `None` while some of them can't be told.
pub(super) async fn groups(door: &Arc<HttpDoor>) -> Option<BTreeMap<String, SeenGroup>> {
    let answer = door
        .ask(|node, now, reply| node.groups(now, reply))
        .await
        .ok()?;
    let mut out = BTreeMap::new();
    for group in answer.ok()? {
        let lags = lags(door, &group.group).await;
        out.insert(group.group.clone(), seen(group, lags));
    }
    Some(out)
}

fn seen(group: GroupDescription, lags: BTreeMap<String, i64>) -> SeenGroup {
    let mut members: Vec<String> = group.members.into_iter().map(|m| m.member).collect();
    members.sort();
    SeenGroup {
        state: group.state,
        kind: group.group_type,
        generation: group.generation.0,
        members,
        lags,
    }
}

async fn lags(door: &Arc<HttpDoor>, group: &str) -> BTreeMap<String, i64> {
    let mut lags = BTreeMap::new();
    let answer = door
        .ask(|node, now, reply| node.committed(group, None, None, now, reply))
        .await;
    let Ok(Ok(committed)) = answer else {
        return lags;
    };
    for (place, offset) in committed {
        let Some(offset) = offset else { continue };
        let Ok(found) = door
            .node
            .partition(&TopicRef::Id(place.id), place.partition)
        else {
            continue;
        };
        let (start, end) = door.node.positions(&found);
        // What is deleted already won't be read.
        let lag = (end - offset.offset.max(start)).max(0);
        *lags.entry(place.topic).or_default() += lag;
    }
    lags
}
