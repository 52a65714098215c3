//! A member's positions, carried by the member itself: the door keeps nothing between two polls.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use riverlog_wire::{Offset, TopicId};
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// What a member knows of itself. It can't claim more than the coordinator gave it: that is looked at with every poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The member's epoch.
    pub(super) generation: i32,
    pub(super) topics: Vec<String>,
    /// What it holds, and the next offset of each.
    pub(super) held: BTreeMap<(TopicId, i32), Offset>,
    /// What it was given, and where to begin there isn't known yet. The coordinator tells an assignment once: what isn't begun has to
    /// be remembered.
    pub(super) waiting: BTreeSet<(TopicId, i32)>,
}

#[derive(Deserialize, Serialize)]
struct Written {
    g: i32,
    t: Vec<String>,
    h: BTreeMap<String, Vec<(i32, i64)>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    w: BTreeMap<String, Vec<i32>>,
}

impl Cursor {
    pub(super) fn encode(&self) -> String {
        let mut held: BTreeMap<String, Vec<(i32, i64)>> = BTreeMap::new();
        for ((topic, partition), next) in &self.held {
            let of_topic = held.entry(topic.to_string()).or_default();
            of_topic.push((*partition, next.0));
        }
        let mut waiting: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in &self.waiting {
            let of_topic = waiting.entry(topic.to_string()).or_default();
            of_topic.push(*partition);
        }
        let written = Written {
            g: self.generation,
            t: self.topics.clone(),
            h: held,
            w: waiting,
        };
        // Text keys and numbers always have a JSON form.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&written).unwrap_or_default())
    }

    pub(super) fn decode(text: &str) -> Result<Cursor, Problem> {
        let wrong = || {
            Problem::bad_request(
                "the cursor can't be read; give the one of the last answer as it was, or none",
            )
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let written: Written = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        let mut held = BTreeMap::new();
        for (topic, partitions) in written.h {
            let topic = TopicId::parse(&topic).ok_or_else(wrong)?;
            for (partition, next) in partitions {
                held.insert((topic, partition), Offset(next.max(0)));
            }
        }
        let mut waiting = BTreeSet::new();
        for (topic, partitions) in written.w {
            let topic = TopicId::parse(&topic).ok_or_else(wrong)?;
            waiting.extend(partitions.into_iter().map(|partition| (topic, partition)));
        }
        Ok(Cursor {
            generation: written.g,
            topics: written.t,
            held,
            waiting,
        })
    }

    /// What the coordinator gave it, as the coordinator wants it.
    pub(super) fn owned(&self) -> Vec<(TopicId, Vec<i32>)> {
        let mut owned: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in self.held.keys().chain(&self.waiting) {
            owned.entry(*topic).or_default().push(*partition);
        }
        for partitions in owned.values_mut() {
            partitions.sort_unstable();
            partitions.dedup();
        }
        owned.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        let cursor = Cursor {
            generation: 7,
            topics: vec!["a".to_owned(), "ü".to_owned()],
            held: [
                ((TopicId([1; 16]), 0), Offset(5)),
                ((TopicId([1; 16]), 3), Offset(i64::MAX)),
                ((TopicId([2; 16]), 0), Offset(0)),
            ]
            .into(),
            waiting: [(TopicId([1; 16]), 1), (TopicId([3; 16]), 0)].into(),
        };
        assert_eq!(Cursor::decode(&cursor.encode()).unwrap(), cursor);
        let owned = [(1, vec![0, 1, 3]), (2, vec![0]), (3, vec![0])];
        let owned = owned.map(|(id, partitions)| (TopicId([id; 16]), partitions));
        assert_eq!(cursor.owned(), owned);
        for text in ["", "x", "e30", "!!"] {
            assert!(Cursor::decode(text).is_err(), "{text}");
        }
    }
}
