//! The controller: what a command makes of an image.
//!
//! Codes are those that Kafka 4.4 answers with. On purpose different:
//! - two names in one request that differ only in `.` and `_` collide as well (Kafka compares with existing topics only);
//! - a broker key that nobody knows is refused with the key that was probably meant (Kafka stores it);
//! - `remote.storage.enable=true` is always refused, since there is no tiering;
//! - placement is a function of the command, not of chance: the topic's id says which broker comes first.

mod cluster;
mod configs;
mod names;
mod partitions;
mod placement;
mod reassign;
mod replicas;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverlog_wire::ErrorCode;

use super::{
    AdminAnswer, AdminCommand, AdminResult, ControllerSettings, MetadataImage, MetadataRecord,
    TopicImage,
};
use crate::Now;

/// Decides a command against an image: records to append as one batch, and the answer for when they are committed. Never
/// changes anything; the same arguments give the same outcome.
pub fn decide(
    image: &MetadataImage,
    settings: &ControllerSettings,
    command: &AdminCommand,
    _now: Now,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    match command {
        AdminCommand::Register { broker, cluster_id } => {
            cluster::register(image, settings, broker, cluster_id)
        }
        AdminCommand::Unregister { broker } => cluster::unregister(image, settings, *broker),
        AdminCommand::AllocateProducerIds { count } => {
            cluster::allocate_producer_ids(image, *count)
        }
        AdminCommand::UpdateFeatures {
            features,
            validate_only,
        } => cluster::update_features(image, features, *validate_only),
        AdminCommand::CreateTopics {
            topics,
            validate_only,
        } => topics::create(image, settings, topics, *validate_only),
        AdminCommand::DeleteTopics { topics } => topics::delete(image, settings, topics),
        AdminCommand::CreatePartitions {
            topics,
            validate_only,
        } => partitions::create(image, settings, topics, *validate_only),
        AdminCommand::AlterConfigs {
            resources,
            replace,
            validate_only,
        } => {
            let altered = configs::alter(image, settings, resources, *replace, *validate_only);
            let (mut records, answer) = altered;
            replicas::forget_eligible(image, &mut records);
            (records, answer)
        }
        AdminCommand::Heartbeat {
            broker,
            epoch,
            position,
            stopping,
            ailing,
        } => {
            let said = cluster::Said {
                position: *position,
                stopping: *stopping,
                ailing: *ailing,
            };
            cluster::heartbeat(image, settings, *broker, *epoch, said)
        }
        AdminCommand::Fence { broker, epoch } => cluster::fence(image, settings, *broker, *epoch),
        AdminCommand::AlterPartitions {
            broker,
            epoch,
            changes,
        } => replicas::alter(image, settings, *broker, *epoch, changes),
        AdminCommand::ElectLeaders {
            partitions,
            unclean,
        } => replicas::elect_leaders(image, settings, partitions, *unclean),
        AdminCommand::Reassign {
            partitions,
            factor_may_change,
        } => reassign::reassign(image, settings, partitions, *factor_may_change),
    }
}

/// Why one thing of a command is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    error: ErrorCode,
    message: String,
}

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        error,
        message: message.into(),
    })
}

/// The outcome for one thing of a command: its records go out, and its topic into the answer.
type Outcome = Result<Option<Arc<TopicImage>>, Refusal>;

fn result(outcome: Outcome) -> AdminResult {
    match outcome {
        Ok(topic) => AdminResult {
            error: ErrorCode::NONE,
            message: None,
            topic,
        },
        Err(Refusal { error, message }) => AdminResult {
            error,
            message: Some(message),
            topic: None,
        },
    }
}

/// Records and results, without the records when the command only asks what would happen.
fn answer(
    records: Vec<MetadataRecord>,
    outcomes: Vec<Outcome>,
    validate_only: bool,
) -> (Vec<MetadataRecord>, AdminAnswer) {
    let records = if validate_only { Vec::new() } else { records };
    let results = outcomes.into_iter().map(result).collect();
    (records, AdminAnswer::Results(results))
}

/// Those that occur more than once.
fn repeated<T: Ord>(things: impl Iterator<Item = T>) -> BTreeSet<T> {
    let mut counts = BTreeMap::new();
    for thing in things {
        *counts.entry(thing).or_insert(0_usize) += 1;
    }
    counts
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(thing, _)| thing)
        .collect()
}

/// What is left of the partitions that one request may make.
struct PartitionBudget {
    left: usize,
    most: usize,
}

impl PartitionBudget {
    fn new(settings: &ControllerSettings) -> PartitionBudget {
        PartitionBudget {
            left: settings.max_partitions_per_request,
            most: settings.max_partitions_per_request,
        }
    }

    fn take(&mut self, count: usize) -> Result<(), Refusal> {
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => refuse(
                ErrorCode::POLICY_VIOLATION,
                if self.left == self.most {
                    format!(
                        "one request can make {} partitions, and {count} are asked for; make fewer at once",
                        self.most
                    )
                } else {
                    format!(
                        "{count} partitions are more than the {} that are left of this request's {}; make them in several requests",
                        self.left, self.most
                    )
                },
            ),
        }
    }
}

/// Whether a topic may have this name, else what is wrong with it and what is right: Kafka's rules, 1 to 249 of ASCII
/// letters, digits, `.`, `_` and `-`, and not `.` or `..`.
pub fn check_topic_name(name: &str) -> Result<(), String> {
    names::check(name).map_err(|refusal| refusal.message)
}
