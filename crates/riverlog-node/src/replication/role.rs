//! Leading and following, and the change from one to the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use riverlog_core::Now;
use riverlog_core::config::TopicConfig;
use riverlog_core::metadata::PartitionImage;
use riverlog_core::replica::{Follower, Leader};
use riverlog_log::{Log, LogKey};
use riverlog_mutants::{Mark, Mutant, active, sometimes};
use riverlog_wire::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId};

use super::Lane;
use crate::bounded::Bound;
use crate::command::{AppendFailure, CopyDescription};
use crate::node::Node;
use crate::notice::Notice;
use crate::partition::{Following, Leading, Owed, Partition, Standing, State, position};

/// Stands for the leader of a partition that nobody leads.
const NOBODY: BrokerId = BrokerId(-1);

impl Node {
    /// The copy of a partition on this node, whether it leads or follows; `None` when there is none.
    pub fn describe_copy(&self, topic: TopicId, partition: i32) -> Option<CopyDescription> {
        let partition = self.by_key(LogKey {
            topic,
            partition: PartitionIndex(partition),
        })?;
        let state = partition.state.lock();
        Some(CopyDescription {
            leads: state.leads(),
            partition: state.describe(&partition),
        })
    }

    /// The leader epoch of the record at an offset of the copy here; `None` when it isn't there. Copies with one epoch at an offset have the
    /// same content up to it.
    pub fn epoch_of_copy(
        &self,
        topic: TopicId,
        partition: i32,
        offset: Offset,
    ) -> Option<LeaderEpoch> {
        let partition = self.by_key(LogKey {
            topic,
            partition: PartitionIndex(partition),
        })?;
        let state = partition.state.lock();
        let log = state.log.as_ref()?;
        let here = log.log_start_offset() <= offset && offset < log.log_end_offset();
        here.then(|| log.epoch_at(offset))
    }

    /// Whether a copy belongs here.
    pub(crate) fn is_replica(&self, image: &PartitionImage) -> bool {
        image.replicas.contains(&self.settings.broker)
    }

    /// Leads or follows as an image says, with the settings that the topic has in it. Returns whether that is something else than before.
    pub(crate) fn take_role(
        &self,
        partition: &Arc<Partition>,
        image: &PartitionImage,
        config: &TopicConfig,
        may_lead: bool,
        now: Now,
        owed: &mut Owed,
    ) -> bool {
        let me = self.settings.broker;
        let leads = may_lead && image.leader == Some(me);
        // Who is elected uncleanly is in sync alone.
        let unclean = leads && image.isr == [me] && self.was_out_of_sync(partition);
        let mut state = partition.state.lock();
        let before = state.leads();
        state.replicas = image.replicas.len();
        state.factor = image.factor();
        if !active(Mutant::MinIsrLate) {
            state.min_isr = config.min_isr(image.factor());
        }
        if leads {
            state.lead(image, me, config, now, owed);
        } else {
            // A copy that isn't in sync has all the time that others need to be served.
            let lane = match image.isr.contains(&me) {
                true => Lane::Tail,
                false => Lane::CatchUp,
            };
            state.follow(image, lane, owed);
        }
        // One that stands aside does so until somebody hears it.
        let aside = before && leads && !partition.leads.load(Ordering::Acquire);
        partition.leads.store(leads && !aside, Ordering::Release);
        let end = state.log.as_ref().map(Log::log_end_offset);
        drop(state);
        if let Some(end) = end.filter(|_| unclean && !before) {
            self.host.notice(Notice::UncleanLeader {
                topic: partition.topic.name.clone(),
                partition: partition.key.partition.0,
                end,
            });
        }
        before != leads
    }

    /// Whether this node may lack what was acknowledged, by the metadata that is about to be replaced.
    fn was_out_of_sync(&self, partition: &Partition) -> bool {
        let image = self.image.load();
        let topic = image.topics.get(&partition.key.topic);
        let index = usize::try_from(partition.key.partition.0).ok();
        let known = topic.and_then(|topic| topic.partitions.get(index?));
        let me = self.settings.broker;
        known.is_some_and(|p| !p.isr.contains(&me) && !p.elr.contains(&me))
    }

    /// The copy is to be elsewhere. Until its files are gone nothing is opened in their place.
    pub(crate) fn give_up(&self, partition: &Arc<Partition>, owed: &mut Owed) {
        self.unfollow(partition.key);
        self.jobs.goes(partition.key);
        self.cut_cleaned(partition.key, Offset::ZERO);
        let mut state = partition.state.lock();
        self.upkeep.schedule(partition, &mut state, None);
        state.refuse_all(owed);
        state.delete(owed);
        partition.leads.store(false, Ordering::Release);
    }
}

impl Node {
    /// A copy begins behind where its leader's log ends, as only one can that followed another leader, who is gone with what it had: it can't
    /// be cut to there. It goes, and is made anew and empty once its files are gone.
    pub(crate) fn make_anew(&self, partition: &Arc<Partition>, now: Now) {
        let mut owed = Owed::default();
        {
            let _roles = self.roles.lock();
            let why = "the copy that was here began behind its leader's end; it is made anew";
            let topic = self.tables.topic(partition.key.topic);
            if !topic.is_some_and(|topic| topic.breaks(partition, why)) {
                return;
            }
            self.give_up(partition, &mut owed);
            self.broken.store(true, Ordering::Relaxed);
        }
        self.settle(partition, owed, now);
    }
}

impl State {
    /// A new leadership of this node, or a change of its replicas.
    fn lead(
        &mut self,
        image: &PartitionImage,
        me: BrokerId,
        config: &TopicConfig,
        now: Now,
        owed: &mut Owed,
    ) {
        let Some(log) = &self.log else { return };
        let led = self.leads();
        if !led || self.leader.epoch != image.leader_epoch {
            let high_watermark = match () {
                () if active(Mutant::WatermarkForgotten) => Offset::ZERO,
                () if active(Mutant::EndTakenForWatermark) => position(log).written,
                () => self.high_watermark(),
            };
            let epoch = image.leader_epoch;
            self.leader = Leader::new(epoch, position(log), high_watermark, self.sync);
            if !led {
                self.bound = Bound::new(config, log);
            }
            self.standing = Standing::Leads(Leading::default());
            self.wake(owed);
        }
        if let Standing::Leads(leading) = &mut self.standing {
            // Changes of other partitions of the topic come by here as well. An in-sync set that was asked for is under way then as
            // before, and whom it takes in has to count as before.
            if leading.partition_epoch == image.partition_epoch && !active(Mutant::AskForgotten) {
                return;
            }
            leading.partition_epoch = image.partition_epoch;
            leading.asked = false;
        }
        // Also of the only copy that is left of several.
        if image.replicas.len() > 1 || self.leader.has_followers() {
            let (min_isr, replicas) = (self.min_isr, &image.replicas);
            let moved = self
                .leader
                .set_partition(min_isr, me, replicas, &image.isr, now);
            if moved.is_some() {
                self.watermark_moved(owed);
            }
            self.answer_under_min_isr(owed);
        }
    }

    fn follow(&mut self, image: &PartitionImage, lane: Lane, owed: &mut Owed) {
        let (leader, epoch) = (image.leader.unwrap_or(NOBODY), image.leader_epoch);
        let high_watermark = self.high_watermark();
        if let Standing::Follows(following) = &mut self.standing
            && (following.follower.leader, following.follower.epoch) == (leader, epoch)
        {
            following.lane = lane;
            return;
        }
        if self.leads() {
            self.refuse_all(owed);
            self.bound = None;
        }
        self.standing = Standing::Follows(Following {
            follower: Follower::new(leader, epoch, high_watermark),
            told: Offset(-1),
            lane,
        });
        self.wake(owed);
    }

    /// Another node leads, or may: what waits here isn't answered by what it waits for.
    pub(crate) fn refuse_all(&mut self, owed: &mut Owed) {
        for queue in [&mut self.acks_all, &mut self.acks_leader] {
            for parked in std::mem::take(queue) {
                sometimes(Mark::AppendMoved);
                let answer = match active(Mutant::MovedPromised) {
                    true => Ok(parked.answer),
                    false => Err(AppendFailure::moved()),
                };
                owed.acks.push((parked.ack, answer));
            }
        }
        if let Some(bound) = &mut self.bound {
            for blocked in std::mem::take(&mut bound.blocked) {
                owed.acks.push((blocked.ack, Err(AppendFailure::moved())));
            }
        }
    }

    /// The topic's min ISR may be another one.
    pub(crate) fn follow_min_isr(&mut self, owed: &mut Owed) {
        if self.replicas > 1 && self.leads() {
            if self.leader.set_min_isr(self.min_isr).is_some() {
                self.watermark_moved(owed);
            }
            self.answer_under_min_isr(owed);
        }
    }

    /// What all that are in sync have, while they are fewer than min ISR: written, but not promised.
    pub(crate) fn answer_under_min_isr(&mut self, owed: &mut Owed) {
        let failed: Vec<_> = {
            let leader = &self.leader;
            let mut failed = Vec::new();
            while let Some(parked) = self
                .acks_all
                .pop_front_if(|p| matches!(leader.acked(-1, p.next), Some(Err(_))))
            {
                failed.push((parked.ack, parked.answer));
            }
            failed
        };
        for (ack, answer) in failed {
            sometimes(Mark::FewInSync);
            if active(Mutant::FewPromised) {
                owed.acks.push((ack, Ok(answer)));
                continue;
            }
            let failure = AppendFailure::new(
                ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                format!(
                    "the batch was stored, but {} replicas are in sync and min.insync.replicas asks for {}; it may be lost with them",
                    self.leader.isr_len(),
                    self.min_isr
                ),
            );
            owed.acks.push((ack, Err(failure)));
        }
    }
}
