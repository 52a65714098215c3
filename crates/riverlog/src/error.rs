//! What can go wrong, and what to do then.

use std::time::Duration;

use riverlog_host::{DriveError, NodeGone};
use riverlog_wire::ErrorCode;

/// `Result` with [`Error`].
///
/// ```
/// fn count(broker: &riverlog::Broker) -> riverlog::Result<usize> {
///     Ok(broker.groups()?.len())
/// }
/// # assert_eq!(count(&riverlog::Broker::in_memory())?, 0);
/// # Ok::<(), riverlog::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong. Each message says what was found and what to do.
///
/// ```
/// # let broker = riverlog::Broker::in_memory();
/// let error = broker.publish("orders", None, b"x").unwrap_err();
/// assert!(matches!(error, riverlog::Error::UnknownTopic(_)));
/// assert_eq!(error.to_string(), "topic \"orders\" doesn't exist; create it first");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data folder can't be opened.
    #[error("the broker can't start: {0}")]
    Start(#[from] DriveError),
    /// A port can't be opened for clients.
    #[error(
        "clients can't be served at {address}: {source}; choose an address of this machine and a free port (0: any)"
    )]
    Listen {
        /// Asked for.
        address: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// There is no such topic.
    #[error("topic {0:?} doesn't exist; create it first")]
    UnknownTopic(String),
    /// There is no such partition.
    #[error("topic {topic:?} has no partition {partition}; it has {count}")]
    UnknownPartition {
        /// Topic.
        topic: String,
        /// Asked for.
        partition: i32,
        /// Number of partitions.
        count: i32,
    },
    /// A bounded partition is full.
    #[error(
        "partition {partition} of topic {topic:?} is full; consume and commit, raise its bound, or publish less"
    )]
    Full {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
    },
    /// The consumer lost its place in the group; its commits no longer count. The next poll joins anew.
    #[error(
        "consumer {consumer:?} is no longer a member of group {group:?} with this generation ({reason}); poll to join again"
    )]
    Fenced {
        /// Group.
        group: String,
        /// Consumer.
        consumer: String,
        /// What the group said.
        reason: &'static str,
    },
    /// A partition that this consumer doesn't hold.
    #[error(
        "partition {partition} isn't assigned to this consumer; commit and seek only what it holds"
    )]
    NotAssigned {
        /// Partition.
        partition: i32,
    },
    /// The answer took longer than the time-out; a write may have happened.
    #[error("no answer within {0:?}; a write may or may not have happened")]
    TimedOut(Duration),
    /// The broker is closing or closed.
    #[error("the broker is closed")]
    Closed,
    /// The broker refused, with Kafka's name for it.
    #[error("{}: {message}", code.name())]
    Refused {
        /// Kafka's error code.
        code: ErrorCode,
        /// What was found, expected, and what to do.
        message: String,
    },
}

impl Error {
    pub(crate) fn refused(code: ErrorCode) -> Error {
        Error::Refused {
            code,
            message: code.message().to_owned(),
        }
    }
    /// What the broker refused of one partition.
    pub(crate) fn in_partition(
        code: ErrorCode,
        topic: &str,
        partition: i32,
        why: impl std::fmt::Display,
    ) -> Error {
        Error::Refused {
            code,
            message: format!("partition {partition} of topic {topic:?}: {why}"),
        }
    }
    /// Whether trying again later can help without changing anything.
    ///
    /// ```
    /// # let broker = riverlog::Broker::in_memory();
    /// # use riverlog::Full;
    /// broker.topic_builder("jobs").max_records(1, Full::Error).create()?;
    /// broker.publish("jobs", None, b"1")?;
    /// # broker.subscribe("jobs", "g", "c")?.commit_at(0, 0)?;
    /// // Somebody may make room.
    /// assert!(broker.publish("jobs", None, b"2").is_err_and(|e| e.is_retriable()));
    /// # Ok::<(), riverlog::Error>(())
    /// ```
    pub fn is_retriable(&self) -> bool {
        match self {
            Error::Full { .. } | Error::TimedOut(_) => true,
            Error::Refused { code, .. } => code.retriable(),
            _ => false,
        }
    }
}

impl From<NodeGone> for Error {
    fn from(_: NodeGone) -> Error {
        Error::Closed
    }
}
