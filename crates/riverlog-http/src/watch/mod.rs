//! What the node was like: a look every ten seconds, kept in rings, so that there are plots without a monitoring system. It is for people
//! (the console, `riverlog top`); a monitoring system asks `/metrics`.
//!
//! What is older than an hour is kept through a restart, if the host keeps the bytes.

pub(crate) mod answers;
pub(crate) mod history;
mod kept;
mod rings;
mod seen;

pub(crate) use answers::{groups, node, topics, transactions};
pub(crate) use history::{of_group, of_node, of_topic};
pub(crate) use kept::LARGEST;
pub(crate) use rings::STEP;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use riverlog_wire::TopicId;

use crate::door::HttpDoor;
use rings::Ring;
use seen::{SeenGroup, SeenTopic};

/// Topics, and groups, of which the past is kept: the most active ones. With a day at five minutes each takes 2.6 kB.
const MOST: usize = 1_000;
/// Values of the coarse step: a day, and 30 days for the node itself.
const DAY: usize = 288;
const MONTH: usize = 8_640;
/// Changes of a group that are kept.
const EVENTS: usize = 50;

/// The series of the node.
const SERIES: &[&str] = &[
    "batches_in",
    "bytes_in",
    "bytes_out",
    "fetches",
    "flush_ms",
    "records_in",
];

/// What is known of the past.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Counts looks from 1, those that nobody took between two runs too.
    look: u64,
    /// Whether this run has looked.
    looked: bool,
    /// When the last one was, ms since the epoch.
    at: i64,
    counters: BTreeMap<&'static str, f64>,
    node: BTreeMap<&'static str, Ring>,
    topics: BTreeMap<TopicId, SeenTopic>,
    /// Records a second.
    rates: BTreeMap<TopicId, Ring>,
    groups: BTreeMap<String, SeenGroup>,
    lags: BTreeMap<String, Ring>,
    events: BTreeMap<String, VecDeque<Event>>,
}

/// A change of a group, as two looks show it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
struct Event {
    /// ms since the epoch.
    at: i64,
    state: Cow<'static, str>,
    generation: i32,
    members: usize,
    joined: Vec<String>,
    left: Vec<String>,
}

impl Event {
    /// Whether a group is the same after both.
    fn is_like(&self, other: &Event) -> bool {
        let what = |e: &Event| (e.state.clone(), e.generation, e.members);
        what(self) == what(other)
    }
}

impl Watch {
    fn known(&self) -> MutexGuard<'_, Known> {
        // What a panic left is a look that is only half there.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpDoor {
    /// How often [`look`](HttpDoor::look) is to be called.
    pub const LOOK_EVERY: std::time::Duration = STEP;

    /// Looks at the node and remembers what it is like; the time between two looks has to be [`HttpDoor::LOOK_EVERY`].
    pub async fn look(self: &Arc<Self>) {
        let node = Arc::clone(&self.node);
        // It takes the lock of each partition, of which there may be many.
        let Ok(topics) = tokio::task::spawn_blocking(move || seen::topics(&node)).await else {
            return;
        };
        let groups = seen::groups(self).await;
        let metrics = self.node.metrics();
        let counters = metrics.into_iter().map(|m| (m.name, m.value)).collect();
        let at = self.now().wall_ms;
        self.watch.known().add(at, counters, topics, groups);
    }

    /// The bytes of a past that [`recall`](HttpDoor::recall) takes are never more.
    pub const LARGEST_PAST: usize = LARGEST;

    /// What is to be kept through a restart: series at five minutes, and what changed in groups. The bytes are those of
    /// `docs/format/history.md`.
    pub fn remember(&self) -> Vec<u8> {
        self.watch.known().encode()
    }

    /// Takes up what an earlier run kept; to be called before the first look. False when the bytes say nothing: they are others, damaged,
    /// or more than 30 days old. Then nothing has changed.
    pub fn recall(&self, bytes: &[u8]) -> bool {
        let found = Known::decode(bytes, self.now().wall_ms);
        let found_any = found.is_some();
        if let Some(found) = found {
            *self.watch.known() = found;
        }
        found_any
    }
}

impl Known {
    fn add(
        &mut self,
        at: i64,
        counters: BTreeMap<&'static str, f64>,
        topics: BTreeMap<TopicId, SeenTopic>,
        groups: Option<BTreeMap<String, SeenGroup>>,
    ) {
        self.look += 1;
        self.at = at;
        let records = self.add_topics(topics);
        self.add_node(counters, records);
        if let Some(groups) = groups {
            self.add_groups(groups);
        }
        self.looked = true;
    }

    /// Returns the records a second of all topics of users.
    fn add_topics(&mut self, topics: BTreeMap<TopicId, SeenTopic>) -> Option<f64> {
        let mut sum = 0.0;
        for (id, topic) in &topics {
            let before = self.topics.get(id);
            let rate = before.map(|b| per_second((topic.written - b.written).max(0) as f64));
            let ring = self.rates.entry(*id).or_insert_with(|| Ring::new(DAY));
            ring.put(self.look, rate);
            if !topic.internal {
                sum += rate.unwrap_or_else(|| per_second(topic.written as f64));
            }
        }
        self.rates.retain(|id, _| topics.contains_key(id));
        keep_most_active(&mut self.rates);
        self.topics = topics;
        self.looked.then_some(sum)
    }

    fn add_node(&mut self, counters: BTreeMap<&'static str, f64>, records: Option<f64>) {
        let grew = |name: &str| {
            let (before, after) = (self.counters.get(name)?, counters.get(name)?);
            Some((after - before).max(0.0))
        };
        let rate = |name: &str| grew(name).map(per_second);
        let flush_ms = match (grew("flush_seconds_total"), grew("flushes_total")) {
            (Some(seconds), Some(flushes)) if flushes > 0.0 => Some(seconds / flushes * 1e3),
            _ => None,
        };
        let values = [
            ("bytes_in", rate("bytes_in_total")),
            ("bytes_out", rate("bytes_out_total")),
            ("batches_in", rate("batches_in_total")),
            ("fetches", rate("fetch_requests_total")),
            ("flush_ms", flush_ms),
            ("records_in", records),
        ];
        for (name, value) in values {
            let ring = self.node.entry(name).or_insert_with(|| Ring::new(MONTH));
            ring.put(self.look, value);
        }
        self.counters = counters;
    }

    fn add_groups(&mut self, groups: BTreeMap<String, SeenGroup>) {
        for (name, group) in &groups {
            let ring = self.lags.entry(name.clone());
            let ring = ring.or_insert_with(|| Ring::new(DAY));
            ring.put(self.look, Some(group.lag() as f64));
            if let Some(event) = change(self.at, self.groups.get(name), group) {
                let events = self.events.entry(name.clone()).or_default();
                // As an earlier run has left it.
                if !self.looked && events.back().is_some_and(|last| last.is_like(&event)) {
                    continue;
                }
                if events.len() >= EVENTS {
                    events.pop_front();
                }
                events.push_back(event);
            }
        }
        self.lags.retain(|name, _| groups.contains_key(name));
        keep_most_active(&mut self.lags);
        self.events.retain(|name, _| self.lags.contains_key(name));
        self.groups = groups;
    }
}

fn per_second(grown: f64) -> f64 {
    grown / STEP.as_secs_f64()
}

/// What is different; `None` when nothing is that concerns its members.
fn change(at: i64, before: Option<&SeenGroup>, now: &SeenGroup) -> Option<Event> {
    let none = Vec::new();
    let known = before.map_or(&none, |b| &b.members);
    let same = before.is_some_and(|b| {
        b.state == now.state && b.generation == now.generation && b.members == now.members
    });
    if same {
        return None;
    }
    let not_in = |list: &[String], other: &[String]| {
        let new = list.iter().filter(|m| other.binary_search(m).is_err());
        new.cloned().collect()
    };
    Some(Event {
        at,
        state: now.state.into(),
        generation: now.generation,
        members: now.members.len(),
        joined: not_in(&now.members, known),
        left: not_in(known, &now.members),
    })
}

/// Lets go of the rings with the least activity when there are too many.
fn keep_most_active<K: Ord + Clone>(rings: &mut BTreeMap<K, Ring>) {
    if rings.len() <= MOST {
        return;
    }
    let mut order: Vec<(f64, K)> = rings
        .iter()
        .map(|(k, r)| (r.activity(), k.clone()))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    for (_, key) in order.into_iter().skip(MOST) {
        rings.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: &[&str], generation: i32, lag: i64) -> SeenGroup {
        SeenGroup {
            state: "Stable",
            kind: "classic",
            generation,
            members: members.iter().map(ToString::to_string).collect(),
            lags: [("t".to_owned(), lag)].into(),
        }
    }

    #[test]
    fn a_group_that_changes_leaves_a_trace_and_one_that_only_reads_does_not() {
        let mut known = Known::default();
        let looks = [
            group(&["a"], 1, 5),
            group(&["a"], 1, 3),
            group(&["a", "b"], 2, 0),
            group(&["b"], 3, 0),
        ];
        for (n, seen) in looks.into_iter().enumerate() {
            let groups = [("g".to_owned(), seen)].into();
            known.add(n as i64, BTreeMap::new(), BTreeMap::new(), Some(groups));
        }
        let told: Vec<(i64, Vec<String>, Vec<String>)> = known.events["g"]
            .iter()
            .map(|e| (e.at, e.joined.clone(), e.left.clone()))
            .collect();
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            told,
            [
                (0, names(&["a"]), names(&[])),
                (2, names(&["b"]), names(&[])),
                (3, names(&[]), names(&["a"])),
            ]
        );
        let lags = known.lags["g"].fine(known.look, 4);
        assert_eq!(lags, [Some(5.0), Some(3.0), Some(0.0), Some(0.0)]);
        known.add(9, BTreeMap::new(), BTreeMap::new(), Some(BTreeMap::new()));
        assert!(known.events.is_empty() && known.lags.is_empty());
    }

    #[test]
    fn rates_are_of_what_was_written_and_the_first_look_knows_none() {
        let mut known = Known::default();
        let id = TopicId([1; 16]);
        for written in [1_000, 1_500, 400] {
            let seen = SeenTopic {
                written,
                ..SeenTopic::default()
            };
            let counters = [("bytes_in_total", written as f64)].into();
            known.add(0, counters, [(id, seen)].into(), None);
        }
        // A topic that was made anew, or truncated, wrote nothing that is known of.
        assert_eq!(known.rates[&id].fine(3, 3), [None, Some(50.0), Some(0.0)]);
        assert_eq!(
            known.node["records_in"].fine(3, 3),
            [None, Some(50.0), Some(0.0)]
        );
        assert_eq!(
            known.node["bytes_in"].fine(3, 3),
            [None, Some(50.0), Some(0.0)]
        );
    }

    #[test]
    fn only_the_most_active_are_kept() {
        let mut rings = BTreeMap::new();
        for n in 0..MOST + 10 {
            let mut ring = Ring::new(1);
            ring.put(1, Some(n as f64));
            rings.insert(n, ring);
        }
        keep_most_active(&mut rings);
        assert_eq!(rings.len(), MOST);
        assert_eq!(rings.keys().next(), Some(&10));
    }
}
