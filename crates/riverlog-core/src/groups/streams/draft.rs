//! A copy of a streams group that a decision changes.

use std::sync::Arc;

use riverlog_wire::Offset;

use super::assign::{Work, Worker, assign};
use super::topology::{Configured, Misfit, configure, sources};
use super::{Current, Streams, Task, Tasks};
use crate::Now;
use crate::groups::draft::Drafted;
use crate::groups::records::{
    NO_TOPOLOGY, Record, StreamsGroupValue, StreamsRecord, StreamsTargetValue, TargetEpochValue,
};
use crate::groups::{GroupConfigs, GroupSettings, Topics, metadata_hash};

/// A copy of a group.
pub(super) type Draft<'a> = crate::groups::draft::Draft<'a, Streams>;

impl Drafted for Streams {
    type Record = StreamsRecord;

    fn draft(&mut self, record: &StreamsRecord, now: Now, settings: &GroupSettings) {
        self.apply(record, Offset::ZERO, now, settings);
    }
    fn kept(group: &str, record: StreamsRecord) -> Record {
        Record::Streams {
            group: group.to_owned(),
            record,
        }
    }
}

/// Standby tasks for each task with state, by the group's configs.
fn standbys(configs: GroupConfigs<'_>, settings: &GroupSettings) -> usize {
    let standbys = configs.number("streams.num.standby.replicas");
    standbys.unwrap_or(settings.streams_standbys)
}

/// Client tags that standby tasks are spread over, by the group's configs.
pub(super) fn tags(configs: GroupConfigs<'_>, settings: &GroupSettings) -> Vec<String> {
    let text = configs.get("streams.rack.aware.assignment.tags");
    let text = text.unwrap_or(&settings.streams_tags);
    let tags = text.split(',').map(str::trim).filter(|tag| !tag.is_empty());
    tags.map(str::to_owned).collect()
}

/// What an assignment depends on besides members and topics, as Kafka keeps it.
pub(super) fn assignment_configs(
    configs: GroupConfigs<'_>,
    settings: &GroupSettings,
) -> Vec<(String, String)> {
    let standbys = standbys(configs, settings);
    let mut kept = vec![("num.standby.replicas".to_owned(), standbys.to_string())];
    let tags = tags(configs, settings);
    if !tags.is_empty() {
        kept.push(("rack.aware.assignment.tags".to_owned(), tags.join(",")));
    }
    kept
}

impl Streams {
    /// Fits the topology to the topics that are there.
    pub(super) fn configure(&self, topics: &dyn Topics) -> Result<Configured, Misfit> {
        match &self.topology {
            Some(topology) => configure(topology, &|topic| Some(topics.by_name(topic)?.1)),
            None => Ok(Configured::default()),
        }
    }

    /// Changes when a topic of the topology is made, deleted or grown.
    pub(super) fn metadata_hash(&self, topics: &dyn Topics) -> i64 {
        let subtopologies = self.topology.iter().flat_map(|t| &t.subtopologies);
        let names = subtopologies.flat_map(|s| {
            let changelogs = s.changelogs.iter().map(|t| t.name.as_str());
            sources(s).chain(changelogs)
        });
        let exist = names.filter_map(|name| {
            let (id, partitions) = topics.by_name(name)?;
            Some((name, id, partitions))
        });
        metadata_hash(exist)
    }
}

impl Draft<'_> {
    pub(super) fn set_current(&mut self, member: &str, current: &Current) {
        let value = Some(current.to_value());
        self.record(StreamsRecord::CurrentMember(member.to_owned(), value));
    }

    pub(super) fn set_target(&mut self, member: &str, tasks: &Tasks) {
        let [active, standby, warmup] = tasks.lists();
        let value = StreamsTargetValue {
            active,
            standby,
            warmup,
        };
        self.record(StreamsRecord::TargetMember(member.to_owned(), Some(value)));
    }

    pub(super) fn remove(&mut self, member: &str) {
        self.record(StreamsRecord::CurrentMember(member.to_owned(), None));
        self.record(StreamsRecord::TargetMember(member.to_owned(), None));
        self.record(StreamsRecord::Member(member.to_owned(), None));
    }

    /// An empty classic group of that name makes way.
    pub(super) fn forget_classic(&mut self) {
        self.out.record(&Record::Group {
            group: self.group.to_owned(),
            value: None,
        });
    }

    /// The topology is another one: its description is to come.
    pub(super) fn forget_description(&mut self) {
        self.state.value.described_epoch = NO_TOPOLOGY;
        self.state.value.undescribable_epoch = NO_TOPOLOGY;
    }

    /// The group's value, at the epoch that it has.
    pub(super) fn set_value(&mut self, value: StreamsGroupValue) {
        let delay_ms = self.waits();
        let value = StreamsGroupValue { delay_ms, ..value };
        self.record(StreamsRecord::Group(Some(value)));
    }

    /// How long, in ms, the first assignment has still to wait.
    fn waits(&self) -> Option<i64> {
        let until = self
            .state
            .delayed_until
            .filter(|_| !self.state.is_empty())?;
        let rest = until.checked_sub(self.now.mono)?;
        let rest = i64::try_from(rest.as_millis()).unwrap_or(i64::MAX);
        Some(rest).filter(|rest| *rest > 0)
    }

    /// The first member has come: others get a moment to come too, before anything is assigned that would move again.
    pub(super) fn delay(&mut self, topics: &dyn Topics) {
        let configs = topics.configs_of_group(self.group);
        let delay = configs.millis("streams.initial.rebalance.delay.ms");
        let delay = delay.unwrap_or(self.settings.streams_initial_rebalance_delay);
        if delay.is_zero() {
            return;
        }
        // Members need an epoch to come again with, and 0 means to join: a new group begins with an assignment of nothing.
        if self.state.target_epoch == 0 {
            self.state.value.epoch = self.state.value.epoch.max(1);
            self.set_target_epoch();
        }
        self.state.delayed_until = Some(self.now.mono.saturating_add(delay));
    }

    /// A new group epoch, and the target assignment for it, unless that has to wait.
    pub(super) fn bump(&mut self, topics: &dyn Topics) {
        let epoch = self.state.value.epoch.checked_add(1).unwrap_or(1);
        let empty_since = match self.state.is_empty() {
            true => Some(self.state.value.empty_since.unwrap_or(self.now.wall_ms)),
            false => None,
        };
        let ready = self.state.configure(topics).is_ok_and(|c| c.is_ready());
        let validated = self.state.topology_epoch().filter(|_| ready);
        let waits = self.waits().is_some();
        self.set_value(StreamsGroupValue {
            epoch,
            metadata_hash: self.state.metadata_hash(topics),
            validated_topology_epoch: validated.unwrap_or(NO_TOPOLOGY),
            assignment_configs: assignment_configs(
                topics.configs_of_group(self.group),
                self.settings,
            ),
            empty_since,
            ..self.state.value.clone()
        });
        if !waits {
            self.assign(topics);
        }
    }

    /// The target assignment for the group epoch.
    pub(super) fn assign(&mut self, topics: &dyn Topics) {
        for (member, tasks) in self.desired(topics) {
            if self.state.targets.get(&member).map(Arc::as_ref) != Some(&tasks) {
                self.set_target(&member, &tasks);
            }
        }
        self.set_target_epoch();
    }

    fn set_target_epoch(&mut self) {
        let epoch = self.state.value.epoch;
        self.record(StreamsRecord::TargetEpoch(Some(TargetEpochValue {
            epoch,
            timestamp: self.now.wall_ms.max(0),
        })));
    }

    /// What each member shall have; nothing while the topology doesn't fit.
    fn desired(&self, topics: &dyn Topics) -> Vec<(Arc<str>, Tasks)> {
        let members = self.state.members.iter();
        let members: Vec<_> = members
            .filter_map(|(id, m)| Some((id, m.value.as_ref()?)))
            .collect();
        let configured = self.state.configure(topics).ok();
        let Some(configured) = configured.filter(Configured::is_ready) else {
            let nothing = members.into_iter();
            return nothing
                .map(|(id, _)| (id.clone(), Tasks::default()))
                .collect();
        };
        let mut tasks: Vec<(Task, bool)> = Vec::new();
        for (id, subtopology) in &configured.subtopologies {
            let id: Arc<str> = id.as_str().into();
            let all = (0..subtopology.tasks).map(|p| ((id.clone(), p), subtopology.stateful));
            tasks.extend(all);
        }
        let configs = topics.configs_of_group(self.group);
        let tags = tags(configs, self.settings);
        let workers: Vec<Worker<'_>> = members
            .iter()
            .map(|(id, value)| Worker {
                process: &value.process_id,
                tags: &value.tags,
                before: self.state.targets.get(*id).map(Arc::as_ref),
            })
            .collect();
        let work = Work {
            tasks: &tasks,
            standbys: standbys(configs, self.settings),
            tags: &tags,
        };
        let ids = members.iter().map(|(id, _)| (*id).clone());
        ids.zip(assign(&work, &workers)).collect()
    }
}
