//! Questions about groups.

use std::sync::Arc;

use riverlog_core::Now;
use riverlog_core::groups::{GroupDescription, GroupShard, StreamsDescription, TopicPartition};
use riverlog_wire::ErrorCode;

use crate::command::{CommittedAnswer, Reply, StableAnswer};
use crate::node::Node;
use crate::quorum::Quorum;
use crate::shards::Shard;

impl Node {
    pub(crate) fn committed_offsets(
        &self,
        group: &str,
        partitions: Option<Vec<TopicPartition>>,
        member: Option<(String, i32)>,
        now: Now,
        reply: Reply<CommittedAnswer>,
    ) {
        let Some(shards) = self.shards.load_full() else {
            if self.settings.quorum == Quorum::Shared {
                // Perhaps it only hasn't heard yet of what there is.
                return reply.send(Err(ErrorCode::NOT_COORDINATOR));
            }
            // Nothing was ever committed.
            let none = partitions.unwrap_or_default();
            return reply.send(Ok(none.into_iter().map(|p| (p, None)).collect()));
        };
        let member = member.as_ref().map(|(id, epoch)| (id.as_str(), *epoch));
        match shards.of(group) {
            Some(shard) => {
                self.shard_offsets(shard, group, partitions.as_deref(), member, now, reply);
            }
            None => reply.send(Err(self.coordinates_not())),
        }
    }

    /// The error for who asks a coordinator that isn't here. In a cluster another node has it, which clients look for then; on a node
    /// alone its partition can't be used.
    pub(crate) fn coordinates_not(&self) -> ErrorCode {
        match self.settings.quorum {
            Quorum::Shared => ErrorCode::NOT_COORDINATOR,
            Quorum::Own => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        }
    }

    pub(crate) fn stable_offsets(
        &self,
        group: &str,
        partitions: Option<Vec<TopicPartition>>,
        member: Option<(String, i32)>,
        now: Now,
        reply: Reply<StableAnswer>,
    ) {
        let Some(shards) = self.shards.load_full() else {
            if self.settings.quorum == Quorum::Shared {
                return reply.send(Err(ErrorCode::NOT_COORDINATOR));
            }
            let none = partitions.unwrap_or_default();
            return reply.send(Ok(none.into_iter().map(|p| (p, Ok(None))).collect()));
        };
        let Some(shard) = shards.of(group) else {
            return reply.send(Err(self.coordinates_not()));
        };
        self.shard_question(shard, now, reply, |groups: &GroupShard| {
            let member = member.as_ref().map(|(id, epoch)| (id.as_str(), *epoch));
            groups.stable_offsets(group, partitions.as_deref(), member)
        });
    }

    /// A streams group, whole; GROUP_ID_NOT_FOUND.
    pub fn streams_group(
        &self,
        group: &str,
        now: Now,
        reply: Reply<Result<StreamsDescription, ErrorCode>>,
    ) {
        self.saw(now);
        let Some(shards) = self.shards.load_full() else {
            let error = match self.settings.quorum {
                Quorum::Shared => ErrorCode::NOT_COORDINATOR,
                Quorum::Own => ErrorCode::GROUP_ID_NOT_FOUND,
            };
            return reply.send(Err(error));
        };
        match shards.of(group) {
            Some(shard) => self.shard_question(shard, now, reply, |groups: &GroupShard| {
                groups.describe_streams(group)
            }),
            None => reply.send(Err(self.coordinates_not())),
        }
    }

    /// All groups in order of name.
    pub(crate) fn all_groups(&self, now: Now) -> Result<Vec<GroupDescription>, ErrorCode> {
        let Some(shards) = self.shards.load_full() else {
            return Ok(Vec::new());
        };
        let mut groups = Vec::new();
        let mut missing = None;
        // Groups that can't be served because of damage don't hide the others, as in Kafka; the host was told of them.
        for shard in shards.open() {
            let (looked, failed) = {
                let state = shard.state.lock();
                (state.ready().map(|g| g.groups()), state.failed.is_some())
            };
            match looked {
                Ok(some) => groups.extend(some),
                Err(error) => {
                    if !failed {
                        missing = Some(error);
                    }
                    self.load_shard(shard, now);
                }
            }
        }
        // Some may have been loaded on the spot, but a list with holes helps nobody.
        match missing {
            Some(error) => Err(error),
            None => {
                groups.sort_by(|a: &GroupDescription, b| a.group.cmp(&b.group));
                Ok(groups)
            }
        }
    }

    pub(crate) fn one_group(
        &self,
        group: &str,
        now: Now,
    ) -> Result<Option<GroupDescription>, ErrorCode> {
        let Some(shards) = self.shards.load_full() else {
            return Ok(None);
        };
        let found: Option<&Arc<Shard<GroupShard>>> = shards.of(group);
        let shard = found.ok_or_else(|| self.coordinates_not())?;
        let looked = shard.state.lock().ready().map(|g| g.describe(group));
        if looked.is_err() {
            self.load_shard(shard, now);
        }
        looked
    }
}
