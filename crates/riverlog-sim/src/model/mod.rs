//! What must be true: what clients were told, and what is read. One file a group of invariants.

mod commits;
mod content;
mod positions;

use std::collections::BTreeMap;

use riverlog_node::AppendFailure;
use riverlog_wire::ErrorCode;

use self::commits::Commits;
use crate::swarm::Swarm;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(invariant: &'static str, what: String) -> Violation {
        Violation { invariant, what }
    }
}

/// An honest producer's batch was refused: with none of the errors that say that it isn't one. `what`: who was, and what of.
pub(crate) fn never_refused(
    failure: &AppendFailure,
    what: impl FnOnce() -> String,
) -> Result<(), Violation> {
    let strange = [
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::UNKNOWN_PRODUCER_ID,
        ErrorCode::CORRUPT_MESSAGE,
        ErrorCode::INVALID_RECORD,
    ];
    match strange.contains(&failure.error) {
        true => Err(Violation::new(
            "an honest producer is never refused",
            what(),
        )),
        false => Ok(()),
    }
}

/// A partition, by topic number in the swarm's list and partition index.
pub(crate) type Place = (usize, i32);

/// What is known of one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Acknowledged or read: offset to value. A power cut takes those of page-cache topics that were not known to be synced.
    contents: BTreeMap<i64, String>,
    /// Offset of each value that is known to be stored.
    places: BTreeMap<String, i64>,
    high_watermark: i64,
    /// The highest that it ever was.
    highest: i64,
    /// Where DeleteRecords was answered.
    deleted_to: i64,
    /// How far clients have asked to delete, and how many ask for all that is there.
    asked_to: i64,
    deleting: u64,
    /// How far members have sent commits.
    committed_to: i64,
    /// Where the log ended when it was last opened.
    opened_to: i64,
    /// Start and high watermark when last looked at.
    seen: Option<(i64, i64)>,
}

/// What a topic's settings allow.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    /// Records that retention keeps.
    keeps: Option<i64>,
    /// The most records that it holds.
    bound: Option<i64>,
}

/// All that clients know, checked as it grows.
#[derive(Debug, Default)]
pub(crate) struct Model {
    partitions: BTreeMap<Place, Known>,
    rules: Vec<Rules>,
    /// Group, place: what was committed.
    commits: BTreeMap<(String, Place), Commits>,
    next_commit: u64,
    /// Operations that were checked.
    pub(crate) checked: u64,
}

impl Model {
    pub(crate) fn new(swarm: &Swarm) -> Model {
        let rules = swarm.topics.iter().map(|topic| Rules {
            keeps: topic.keeps,
            bound: topic.bound,
        });
        Model {
            rules: rules.collect(),
            ..Model::default()
        }
    }

    fn known(&mut self, place: Place) -> &mut Known {
        self.partitions.entry(place).or_default()
    }

    /// What a power cut may take of a topic that opted out of syncing: all that we can't know to be on the disk.
    pub(crate) fn power_cut_of_page_cache(&mut self, topic: usize) {
        for (place, known) in &mut self.partitions {
            if place.0 == topic {
                *known = Known {
                    highest: known.highest,
                    asked_to: known.asked_to,
                    committed_to: known.committed_to,
                    ..Known::default()
                };
            }
        }
        for ((_, place), commits) in &mut self.commits {
            if place.0 == topic {
                commits.forget();
            }
        }
    }
}
