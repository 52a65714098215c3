//! What can be seen of a streams group.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::draft::Draft;
use super::topology::sources;
use super::{AWAY, Role, State, Streams, Task, TaskOffsets, nested};
use crate::Now;
use crate::groups::effects::Out;
use crate::groups::records::{
    NO_TOPOLOGY, StreamsMemberValue, StreamsRecord, StreamsTopology, TaskList,
};
use crate::groups::{GroupDescription, GroupSettings, MemberDescription, Topics};

/// A streams group, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsDescription {
    /// "Empty", "NotReady", "Assigning", "Reconciling", "Stable".
    pub state: &'static str,
    /// Group epoch.
    pub epoch: i32,
    /// Epoch of the target assignment.
    pub assignment_epoch: i32,
    /// What the application is made of.
    pub topology: Option<Arc<StreamsTopology>>,
    /// In order of id.
    pub members: Vec<StreamsMemberDescription>,
}

/// A member of a streams group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsMemberDescription {
    /// Id.
    pub member: String,
    /// Member epoch.
    pub epoch: i32,
    /// What it said of itself.
    pub value: StreamsMemberValue,
    /// Its active, standby and warm-up tasks.
    pub assigned: [TaskList; 3],
    /// Those that it shall have.
    pub target: [TaskList; 3],
    /// How far it says the state of its tasks is.
    pub offsets: Arc<TaskOffsets>,
}

/// The one assignor that there is.
pub const STREAMS_ASSIGNOR: &str = "sticky";

impl Streams {
    fn state(&self) -> &'static str {
        let settled = self.members.values().all(|m| {
            m.current.state == State::Stable
                && (m.current.epoch == self.target_epoch || m.current.epoch == AWAY)
        });
        if self.is_empty() {
            "Empty"
        } else if !self.is_ready() {
            "NotReady"
        } else if self.value.epoch > self.target_epoch {
            "Assigning"
        } else if settled {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    pub(in crate::groups) fn describe(&self, group: &str) -> GroupDescription {
        GroupDescription {
            group: group.to_owned(),
            state: self.state(),
            group_type: "streams",
            protocol_type: "streams".to_owned(),
            protocol: STREAMS_ASSIGNOR.to_owned(),
            generation: self.value.epoch.into(),
            assignment_epoch: self.target_epoch,
            members: self
                .members
                .iter()
                .filter_map(|(id, m)| Some((id, m, m.value.as_ref()?)))
                .map(|(id, m, value)| MemberDescription {
                    member: id.to_string(),
                    instance: value.instance.clone(),
                    client_id: value.client_id.clone(),
                    client_host: value.client_host.clone(),
                    rack: value.rack.clone(),
                    member_epoch: m.current.epoch,
                    reads: self.read_places(m.current.assigned.of(Role::Active)),
                    ..MemberDescription::default()
                })
                .collect(),
        }
    }

    pub(in crate::groups) fn describe_whole(&self) -> StreamsDescription {
        StreamsDescription {
            state: self.state(),
            epoch: self.value.epoch,
            assignment_epoch: self.target_epoch,
            topology: self.topology.clone(),
            members: self
                .members
                .iter()
                .filter_map(|(id, m)| Some((id, m, m.value.as_ref()?)))
                .map(|(id, m, value)| StreamsMemberDescription {
                    member: id.to_string(),
                    epoch: m.current.epoch,
                    value: value.clone(),
                    assigned: m.current.assigned.lists(),
                    target: match self.targets.get(id) {
                        Some(target) => target.lists(),
                        None => Default::default(),
                    },
                    offsets: self.offsets.get(id).cloned().unwrap_or_default(),
                })
                .collect(),
        }
    }

    /// The partitions that tasks read, by topic, whether or not each topic has as many.
    fn read_places<'a>(&self, tasks: impl Iterator<Item = &'a Task>) -> TaskList {
        let mut places: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for (subtopology, partitions) in nested(tasks) {
            let topology = self.topology.iter().flat_map(|t| &t.subtopologies);
            for part in topology.filter(|s| s.id == subtopology) {
                for topic in sources(part) {
                    let place = places.entry(topic.to_owned()).or_default();
                    place.extend(&partitions);
                }
            }
        }
        places.into_iter().collect()
    }

    /// The partitions that tasks read, by topic.
    pub(super) fn places<'a>(
        &self,
        tasks: impl Iterator<Item = &'a Task>,
        topics: &dyn Topics,
    ) -> TaskList {
        let mut places = self.read_places(tasks);
        for (topic, partitions) in &mut places {
            let count = topics.by_name(topic).map_or(0, |(_, count)| count);
            partitions.retain(|p| (0..count).contains(p));
        }
        places.retain(|(_, partitions)| !partitions.is_empty());
        places
    }

    /// A member has sent a description of the topology (KIP-1331); `None`: one that can't be kept.
    pub(in crate::groups) fn set_description(
        &self,
        group: &str,
        epoch: i32,
        description: Option<bytes::Bytes>,
        now: Now,
        settings: &GroupSettings,
        out: &mut Out,
    ) {
        let mut draft = Draft::new(group, self, now, settings, out);
        let fits = self.topology.as_ref().filter(|t| t.epoch == epoch);
        let kept = description.is_some();
        if let (Some(topology), Some(description)) = (fits, description) {
            draft.record(StreamsRecord::Topology(Some(StreamsTopology {
                description: Some(description),
                ..topology.as_ref().clone()
            })));
        }
        let mut value = self.value.clone();
        match kept {
            true => (value.described_epoch, value.undescribable_epoch) = (epoch, NO_TOPOLOGY),
            false => value.undescribable_epoch = epoch,
        }
        draft.set_value(value);
    }

    /// Whether a member is there, and which topology epoch it runs.
    pub(in crate::groups) fn runs(&self, member: &str) -> Option<i32> {
        let member = self.members.get(member)?;
        Some(member.value.as_ref()?.topology_epoch)
    }

    /// Whether a topology of this epoch is the group's.
    pub(in crate::groups) fn has_topology(&self, epoch: i32) -> bool {
        self.topology_epoch() == Some(epoch)
    }
}
