//! What a share group keeps is found by.

use riverlog_wire::TopicId;

/// One partition of one share group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareKey {
    /// Group.
    pub group: String,
    /// Topic.
    pub topic: TopicId,
    /// Partition.
    pub partition: i32,
}

impl ShareKey {
    /// The name by which its coordinator is found, `group:topic id:partition`.
    pub fn name(&self) -> String {
        format!("{}:{}:{}", self.group, self.topic, self.partition)
    }

    /// From that name; `None` when it is none.
    pub fn parse(name: &str) -> Option<ShareKey> {
        let (rest, partition) = name.rsplit_once(':')?;
        let (group, topic) = rest.rsplit_once(':')?;
        let partition = partition.parse().ok().filter(|p| *p >= 0)?;
        let topic = TopicId::parse(topic)?;
        (!group.is_empty()).then(|| ShareKey {
            group: group.to_owned(),
            topic,
            partition,
        })
    }
}
