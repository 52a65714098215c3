//! Share groups (KIP-932): what is in flight is held by the leader of each partition, and kept by a coordinator on the shards of
//! `__share_group_state`.

mod asks;
mod dead;
mod fetch;
mod held;
mod letters;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use riverlog_core::Now;
use riverlog_core::config::BrokerValues;
use riverlog_core::coordinator::Token;
use riverlog_core::groups::{
    AnswerShape, GroupAnswer, GroupCommand, GroupConfigs, GroupDescription, GroupShard,
    ShareTopics, Topics,
};
use riverlog_core::metadata::MetadataImage;
use riverlog_core::share::{
    ShareAnswer, ShareCommand, ShareDecision, ShareEffect, ShareKey, ShareLimits, ShareSettings,
    ShareShard, ShareSoft, ShareSummary, ShareTold,
};
use riverlog_wire::{BrokerId, ErrorCode, Offset};

use crate::command::{Isolation, Reply};
use crate::node::Node;
use crate::partition::Owed;
use crate::shards::{Coordinator, Shard, Shards};
use crate::timers::Timer;

pub(crate) use asks::{ShareQuestion, ShareSaid};
pub(crate) use dead::Burial;
pub use fetch::{ShareFetchAnswer, ShareFetchCommand, ShareFetched};
pub(crate) use fetch::{ShareList, ShareWaiting};
pub(crate) use held::{Held, Sharing};

/// The topic that keeps what must outlive the leaders of share groups' partitions.
pub(crate) const SHARE_TOPIC: &str = "__share_group_state";

impl Coordinator for ShareShard {
    type Command = ShareTold;
    type Answer = ShareAnswer;
    type Soft = ShareSoft;
    type Effect = ShareEffect;
    type Shape = ();

    const TOPIC: &'static str = SHARE_TOPIC;
    const SEGMENT_BYTES_KEY: &'static str = "share.coordinator.state.topic.segment.bytes";
    const LOADS_AT_ONCE: bool = false;
    // Updates with one key add to each other: what isn't needed any more is cut off instead.
    const CLEANUP: &'static [(&'static str, &'static str)] = &[
        ("cleanup.policy", "delete"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
    ];

    fn new(node: &Node) -> Self {
        let values = BrokerValues(&node.settings.configs);
        let updates = values.number("share.coordinator.snapshot.update.records.per.snapshot");
        let default = ShareSettings::default();
        ShareShard::new(ShareSettings {
            updates_per_snapshot: updates
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(default.updates_per_snapshot),
        })
    }
    fn shards(node: &Node) -> &ArcSwapOption<Shards<Self>> {
        &node.share_shards
    }
    fn partitions(node: &Node) -> i32 {
        let values = BrokerValues(&node.settings.configs);
        let count = values.number("share.coordinator.state.topic.num.partitions");
        count.and_then(|n| i32::try_from(n).ok()).unwrap_or(50)
    }
    fn timer(index: i32) -> Timer {
        Timer::ShareState(index)
    }
    fn apply(&mut self, key: &[u8], value: Option<&[u8]>, at: Offset, now: Now) {
        ShareShard::apply(self, key, value, at, now);
    }
    fn loaded(&mut self, now: Now) {
        ShareShard::loaded(self, now);
    }
    fn decide(
        &self,
        told: ShareTold,
        token: Token,
        image: &MetadataImage,
        now: Now,
    ) -> ShareDecision {
        self.decide_told(told, token, image, now)
    }
    fn soft(&mut self, change: ShareSoft, _now: Now) {
        ShareShard::soft(self, change);
    }
    fn decide_timers(&self, image: &MetadataImage, now: Now) -> ShareDecision {
        ShareShard::decide_timers(self, image, now)
    }
    fn decide_topics_changed(&self, image: &MetadataImage, _now: Now) -> ShareDecision {
        ShareShard::decide_topics_changed(self, image)
    }
    fn next_deadline(&self) -> Option<Duration> {
        ShareShard::next_deadline(self)
    }
    fn hold(&mut self, until: Duration) {
        ShareShard::hold(self, until);
    }
    fn refuse((): (), error: ErrorCode) -> ShareAnswer {
        Err(error)
    }
    fn perform(node: &Node, shard: &Arc<Shard<Self>>, effect: ShareEffect, now: Now) {
        let ShareEffect::CutOff(before) = effect;
        let mut owed = Owed::default();
        // What fails here is found again when old records are next looked for.
        let _start = shard
            .partition
            .state
            .lock()
            .delete_before(before, &mut owed);
        node.settle(&shard.partition, owed, now);
    }
}

impl Node {
    /// The node that keeps what must outlive the leader of a share group's partition, by the name `group:topic id:partition`;
    /// makes `__share_group_state` when there is none. `None` while nobody does.
    pub fn share_coordinator(&self, name: &str, now: Now) -> Option<BrokerId> {
        self.coordinator_node::<ShareShard>(name, now)
    }

    /// Partitions of which something is kept for a share group; GROUP_ID_NOT_FOUND.
    pub fn share_topics(
        &self,
        group: &str,
        now: Now,
        reply: Reply<Result<ShareTopics, ErrorCode>>,
    ) {
        self.saw(now);
        let Some(shards) = self.shards.load_full() else {
            return reply.send(Err(ErrorCode::GROUP_ID_NOT_FOUND));
        };
        match shards.of(group) {
            Some(shard) => self.shard_question(shard, now, reply, |groups: &GroupShard| {
                groups.share_topics(group)
            }),
            None => reply.send(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)),
        }
    }

    /// What is kept of one partition of a share group, in short; `None`: nothing.
    pub fn share_summary(
        &self,
        key: &ShareKey,
        now: Now,
        reply: Reply<Result<Option<ShareSummary>, ErrorCode>>,
    ) {
        self.saw(now);
        let reply = Reply::new(move |answer: Result<ShareSaid, ErrorCode>| {
            reply.send(match answer {
                Ok(ShareSaid::Summary(summary)) => Ok(summary),
                Ok(_) => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
                Err(error) => Err(error),
            });
        });
        self.ask_share(ShareQuestion::Summary(key.clone()), now, reply);
    }

    /// The high watermark of a share group's partition, from whichever node leads it.
    pub fn share_end(&self, key: &ShareKey, now: Now, reply: Reply<Result<Offset, ErrorCode>>) {
        self.saw(now);
        let reply = Reply::new(move |answer: Result<ShareSaid, ErrorCode>| {
            reply.send(match answer {
                Ok(ShareSaid::End(end)) => Ok(end),
                Ok(_) => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
                Err(error) => Err(error),
            });
        });
        self.ask_share(ShareQuestion::End(key.clone()), now, reply);
    }

    /// Lets a share group begin at an offset of a partition, whatever was in flight there.
    pub fn share_begin(
        &self,
        key: ShareKey,
        start: Offset,
        now: Now,
        reply: Reply<Result<(), ErrorCode>>,
    ) {
        let command = ShareCommand::Initialize {
            key: key.clone(),
            state_epoch: None,
            start,
        };
        self.change_share(key, command, now, reply);
    }

    /// Forgets where a share group is on a partition.
    pub fn share_forget(&self, key: ShareKey, now: Now, reply: Reply<Result<(), ErrorCode>>) {
        let command = ShareCommand::Delete { key: key.clone() };
        self.change_share(key, command, now, reply);
    }

    fn change_share(
        &self,
        key: ShareKey,
        command: ShareCommand,
        now: Now,
        reply: Reply<Result<(), ErrorCode>>,
    ) {
        self.saw(now);
        let node = self.this.clone();
        let done = Reply::new(move |answer: ShareAnswer| {
            let Some(node) = node.upgrade() else { return };
            if let Err(error) = answer {
                return reply.send(Err(error));
            }
            // The partition's leader begins anew with what is kept now.
            let reply = Reply::new(move |forgotten: Result<ShareSaid, ErrorCode>| {
                reply.send(forgotten.map(|_| ()));
            });
            node.ask_share(ShareQuestion::Forget(key), node.as_of(now), reply);
        });
        self.keep_share(command, now, done);
    }

    /// What a share group may do on one partition.
    pub(crate) fn share_limits(&self, group: &str) -> ShareLimits {
        let image = self.image.load();
        let own = image.configs_of_group(group);
        let number = |key: &str| self.share_number(own, key);
        let default = ShareLimits::default();
        let millis = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
        ShareLimits {
            max_locks: number("partition.max.record.locks").unwrap_or(default.max_locks),
            delivery_limit: number("delivery.count.limit")
                .and_then(|n| i16::try_from(n).ok())
                .unwrap_or(default.delivery_limit),
            lock_duration: millis(number("record.lock.duration.ms"))
                .map_or(default.lock_duration, Duration::from_millis),
            backoff: own
                .millis("riverlog.share.backoff.ms")
                .unwrap_or(default.backoff),
            max_backoff: own
                .millis("riverlog.share.backoff.max.ms")
                .unwrap_or(default.max_backoff),
            key_order: own
                .get("riverlog.share.key.order")
                .is_some_and(|value| value.trim().eq_ignore_ascii_case("true")),
            dead_letters: self.has_dead_letters(group),
        }
    }

    /// How long a member of a share group has acquired records.
    pub fn share_lock_duration(&self, group: &str) -> Duration {
        self.share_limits(group).lock_duration
    }

    /// DeleteGroups for one group; of a share group, what is kept of its partitions goes first.
    pub(crate) fn delete_group(&self, group: String, now: Now, reply: Reply<GroupAnswer>) {
        let is_share =
            |found: &GroupDescription| found.group_type == "share" && found.members.is_empty();
        let found = self.one_group(&group, now).ok().flatten();
        let node = self.this.clone();
        let rest = move |group: String, now: Now, reply: Reply<GroupAnswer>| {
            if let Some(node) = node.upgrade() {
                let command = GroupCommand::DeleteGroup {
                    group: group.clone(),
                };
                let shape = AnswerShape::of(&command);
                node.coordinate::<GroupShard>(&group, command, shape, now, reply);
            }
        };
        if !found.as_ref().is_some_and(is_share) {
            return rest(group, now, reply);
        }
        let name = group.clone();
        let node = self.this.clone();
        let kept = Reply::new(move |kept: Result<ShareTopics, ErrorCode>| {
            let Some(node) = node.upgrade() else { return };
            let kept = match kept {
                Ok(kept) => kept,
                // It was deleted meanwhile, which the deletion finds.
                Err(ErrorCode::GROUP_ID_NOT_FOUND) => ShareTopics::default(),
                Err(error) => return reply.send(GroupAnswer::Error(error)),
            };
            let keys = kept.into_iter().flat_map(|(topic, partitions)| {
                let group = group.clone();
                partitions.into_iter().map(move |partition| ShareKey {
                    group: group.clone(),
                    topic,
                    partition,
                })
            });
            node.forget_all(
                keys.collect(),
                now,
                Reply::new(move |failed: ErrorCode| match failed {
                    ErrorCode::NONE => rest(group, now, reply),
                    error => reply.send(GroupAnswer::Error(error)),
                }),
            );
        });
        self.share_topics(&name, now, kept);
    }

    /// One after the other; the first error ends it.
    fn forget_all(&self, mut keys: Vec<ShareKey>, now: Now, done: Reply<ErrorCode>) {
        let Some(key) = keys.pop() else {
            return done.send(ErrorCode::NONE);
        };
        let node = self.this.clone();
        let next = Reply::new(
            move |kept: Result<(), ErrorCode>| match (kept, node.upgrade()) {
                (Ok(()), Some(node)) => node.forget_all(keys, node.as_of(now), done),
                (Err(error), _) => done.send(error),
                (Ok(()), None) => {}
            },
        );
        self.share_forget(key, now, next);
    }

    /// `share.…` of the group, else `group.share.…` of the node.
    fn share_number(&self, own: GroupConfigs<'_>, key: &str) -> Option<i64> {
        let own = own.number(&format!("share.{key}"));
        own.or_else(|| BrokerValues(&self.settings.configs).number(&format!("group.share.{key}")))
    }

    /// `share.isolation.level` of a group.
    pub(crate) fn share_isolation(&self, group: &str) -> Isolation {
        let image = self.image.load();
        let configs = image.configs_of_group(group);
        match configs.get("share.isolation.level") {
            Some("read_committed") => Isolation::ReadCommitted,
            _ => Isolation::ReadUncommitted,
        }
    }

    /// `share.renew.acknowledge.enable` of a group.
    pub fn share_may_renew(&self, group: &str) -> bool {
        let image = self.image.load();
        let configs = image.configs_of_group(group);
        let value = configs.get("share.renew.acknowledge.enable");
        !value.is_some_and(|v| v.trim().eq_ignore_ascii_case("false"))
    }
}
