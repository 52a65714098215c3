//! What time, and changes of topics, bring to the groups of a shard. Long work is done in steps, so that no decision holds
//! the shard for long or fills a batch without end.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::{Group, GroupShard, Kind, forget_offset};
use crate::Now;
use crate::groups::classic::Context;
use crate::groups::effects::{Out, SoftChange};
use crate::groups::{Decision, Topics};

/// How often offsets are looked through for expiry (Kafka: `offsets.retention.check.interval.ms`).
const EXPIRY_INTERVAL: Duration = Duration::from_secs(600);

/// When they are for the first time: a process that never runs long still forgets what is old.
pub(super) const FIRST_EXPIRY: Duration = Duration::from_secs(60);

/// Groups that one decision looks at, and records after which it stops.
const STEP_GROUPS: usize = 1_000;
const STEP_RECORDS: usize = 200;

impl GroupShard {
    /// What time brings: sessions that end, rebalances that complete, offsets that expire. Call it at
    /// [`GroupShard::next_deadline`], and after each decision that was performed, for as long as that deadline is not
    /// after `now`.
    pub fn decide_timers(&self, topics: &dyn Topics, now: Now) -> Decision {
        let mut out = Out::default();
        let due = self.alarms.iter().take_while(|(at, _)| *at <= now.mono);
        for (_, name) in due.take(STEP_GROUPS) {
            if out.records() >= STEP_RECORDS {
                break;
            }
            let Some(group) = self.groups.get(name) else {
                continue;
            };
            let earliest = group.next_deadline(self.held_until);
            if earliest.is_some_and(|at| at <= now.mono) {
                match &group.kind {
                    Kind::Classic(_) => {
                        self.change(name, now, &mut out, |classic, cx: &mut Context<'_>| {
                            classic.timers(self.held_until, cx);
                        });
                    }
                    Kind::Consumer(consumer) => {
                        let held = self.held_until;
                        consumer.timers(name, topics, now, &self.settings, held, &mut out);
                    }
                    Kind::Share(share) => {
                        let held = self.held_until;
                        share.timers(name, topics, now, &self.settings, held, &mut out);
                    }
                    Kind::Streams(streams) => {
                        let held = self.held_until;
                        streams.timers(name, topics, now, &self.settings, held, &mut out);
                    }
                }
            }
            out.soft(SoftChange::Rearm(name.clone()));
        }
        if let Some(from) = &self.topics_walk {
            self.walk_topics(from, topics, now, &mut out);
        } else if self.next_expiry().is_some_and(|at| at <= now.mono) {
            self.walk_expiry(topics, now, &mut out);
        }
        // What was once stored can be written again.
        out.finish(|_| Vec::new())
    }

    /// When [`GroupShard::decide_timers`] has something to do, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.topics_walk.is_some() {
            return Some(Duration::ZERO);
        }
        let alarm = self.alarms.first().map(|(at, _)| *at);
        alarm.into_iter().chain(self.next_expiry()).min()
    }

    fn next_expiry(&self) -> Option<Duration> {
        (!self.groups.is_empty()).then_some(self.expiry_at)
    }

    /// Topics were made, grown or deleted: assignments and offsets follow. When there is more to do than fits in a
    /// decision, [`GroupShard::next_deadline`] is in the past, and [`GroupShard::decide_timers`] goes on.
    pub fn decide_topics_changed(&self, topics: &dyn Topics, now: Now) -> Decision {
        let mut out = Out::default();
        self.walk_topics("", topics, now, &mut out);
        out.finish(|_| Vec::new())
    }

    /// Calls `each` for groups from `from` on until it is enough for one decision; returns where to go on.
    fn step(
        &self,
        from: &str,
        out: &mut Out,
        mut each: impl FnMut(&Arc<str>, &Group, &mut Out),
    ) -> Option<String> {
        let range = (Bound::Included(from), Bound::Unbounded);
        for (count, (name, group)) in self.groups.range::<str, _>(range).enumerate() {
            if count >= STEP_GROUPS || out.records() >= STEP_RECORDS {
                return Some(name.to_string());
            }
            each(name, group, out);
        }
        None
    }

    fn walk_topics(&self, from: &str, topics: &dyn Topics, now: Now, out: &mut Out) {
        let any_gone = self.index.any_gone(topics) || !self.pending.is_empty();
        let next = self.step(from, out, |name, group, out| {
            if any_gone {
                for (topic, partition, stored) in group.offsets.iter() {
                    if stored.topic_is_gone(topic, topics) {
                        out.record(&forget_offset(name, topic, partition));
                    }
                }
                for (topic, partition) in group.offsets.pending_of_gone(topics) {
                    out.record(&forget_offset(name, topic, partition));
                }
            }
            match &group.kind {
                Kind::Classic(_) => {}
                Kind::Consumer(consumer) => {
                    consumer.topics_changed(name, topics, now, &self.settings, out);
                }
                Kind::Share(share) => share.topics_changed(name, topics, now, &self.settings, out),
                Kind::Streams(streams) => {
                    streams.topics_changed(name, topics, now, &self.settings, out);
                }
            }
        });
        if next.is_some() || self.topics_walk.is_some() {
            out.soft(SoftChange::TopicsWalk(next));
        }
    }

    /// KIP-211: offsets that nobody needs for longer than their retention, and then the groups that had nothing else.
    fn walk_expiry(&self, topics: &dyn Topics, now: Now, out: &mut Out) {
        let from = self.expiry_from.as_deref().unwrap_or("");
        let next = self.step(from, out, |name, group, out| {
            self.expire(name, group, topics, now, out);
        });
        out.soft(SoftChange::ExpiryWalk {
            at: match next {
                Some(_) => now.mono,
                None => now.mono.saturating_add(EXPIRY_INTERVAL),
            },
            from: next,
        });
    }

    fn expire(&self, name: &str, group: &Group, topics: &dyn Topics, now: Now, out: &mut Out) {
        let (kept, empty_since, idle) = match &group.kind {
            Kind::Classic(c) => (c.kept_topics(), c.since_ms(), c.is_idle()),
            Kind::Consumer(c) => (
                Some(c.subscribed(topics)),
                c.empty_since().unwrap_or(-1),
                c.is_empty(),
            ),
            Kind::Streams(s) => (
                Some(s.read_topics()),
                s.empty_since().unwrap_or(-1),
                s.is_empty(),
            ),
            // It has no offsets of this kind, and what it has doesn't grow old.
            Kind::Share(_) => return,
        };
        let mut gone = Vec::new();
        let mut left = false;
        for (topic, partition, stored) in group.offsets.iter() {
            let keeps = kept.as_ref().is_none_or(|kept| kept.contains(topic));
            // From when the group became empty, or from a later commit by hand.
            let base = match group.has_no_members() {
                true => empty_since.max(stored.commit_timestamp),
                false => stored.commit_timestamp,
            };
            let keeps = keeps || group.offsets.is_pending(topic, partition);
            if !keeps && stored.expired(base, &self.settings, now) {
                gone.push((topic, partition));
            } else {
                left = true;
            }
        }
        if !left && idle && !group.offsets.has_pending() {
            group.delete(name, out);
        } else {
            for (topic, partition) in gone {
                out.record(&forget_offset(name, topic, partition));
            }
        }
    }
}
