//! What a command says when it can't do what it was asked: what failed, why, what to try; and its exit code.

use std::fmt;

use riverlog_wire::ErrorCode;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// As asked; also when the reader of a pipe has seen enough.
    Ok = 0,
    /// A check found something.
    Finding = 1,
    /// The command line or a configuration can't be used.
    Usage = 2,
    /// A named thing isn't there.
    NotFound = 3,
    /// No broker answered.
    Unreachable = 4,
    /// Not allowed.
    Auth = 5,
    /// What is there stands in the way.
    Conflict = 6,
    /// No answer in time; whether it was done isn't known.
    Timeout = 7,
    /// Done for some, not for others.
    Partial = 8,
    /// Our own mistake.
    Bug = 70,
    /// By Ctrl-C.
    Interrupted = 130,
}

/// All exit codes with their meaning, for `riverlog explain`.
pub(crate) const EXITS: &[(Exit, &str)] = &[
    (Exit::Ok, "it was done"),
    (
        Exit::Finding,
        "a check found something, or the broker refused for a reason without a code of its own",
    ),
    (
        Exit::Usage,
        "the command line, a value or a configuration can't be used",
    ),
    (
        Exit::NotFound,
        "a topic, group, partition or file isn't there",
    ),
    (Exit::Unreachable, "no broker answered"),
    (Exit::Auth, "not allowed"),
    (
        Exit::Conflict,
        "what is there stands in the way: it exists, is in use, or is fenced",
    ),
    (
        Exit::Timeout,
        "no answer in time; whether it was done isn't known",
    ),
    (Exit::Partial, "done for some, not for others"),
    (Exit::Bug, "a mistake in riverlog itself"),
    (Exit::Interrupted, "ended by Ctrl-C"),
];

/// Why a command ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// What failed, and where.
    what: String,
    why: Option<String>,
    remedy: Option<String>,
    /// The broker's code, for callers that decide by it.
    pub(crate) code: Option<ErrorCode>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Failure {
        Failure {
            exit,
            what: what.into(),
            why: None,
            remedy: None,
            code: None,
        }
    }
    pub(crate) fn usage(what: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, what)
    }
    /// Ends without a word: everything there is to say has been said.
    pub(crate) fn silent(exit: Exit) -> Failure {
        Failure::new(exit, "")
    }
    pub(crate) fn why(mut self, why: impl Into<String>) -> Failure {
        self.why = Some(why.into());
        self
    }
    pub(crate) fn hint(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }
    /// An error code of a broker. `message`: its own words, if it gave any.
    pub(crate) fn kafka(
        what: impl Into<String>,
        code: ErrorCode,
        message: Option<&str>,
    ) -> Failure {
        // A broker's own words say more than the table's, and where both give a remedy, theirs is the nearer one.
        let words = message.filter(|m| !m.is_empty()).unwrap_or(code.message());
        let (words, remedy) = match words.split_once("; ") {
            Some((about, remedy)) => (about, Some(remedy)),
            None => (words, None),
        };
        let mut failure =
            Failure::new(exit_of(code), what).why(format!("{} ({}): {words}", code.name(), code.0));
        failure.remedy = remedy.map(str::to_owned);
        failure.code = Some(code);
        failure
    }
    /// Whether the same may work in a moment: a broker is away or slow.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.exit, Exit::Unreachable | Exit::Timeout)
    }
    /// A failed write of results: a closed pipe is a clean end.
    pub(crate) fn stdout(error: &std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::silent(Exit::Ok);
        }
        Failure::new(Exit::Finding, "results can't be written to standard output")
            .why(error.to_string())
    }
}

/// Kafka's error codes as exit codes.
fn exit_of(code: ErrorCode) -> Exit {
    match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::UNKNOWN_TOPIC_ID
        | ErrorCode::GROUP_ID_NOT_FOUND
        | ErrorCode::OFFSET_OUT_OF_RANGE
        | ErrorCode::TRANSACTIONAL_ID_NOT_FOUND
        | ErrorCode::RESOURCE_NOT_FOUND => Exit::NotFound,
        ErrorCode::TOPIC_AUTHORIZATION_FAILED
        | ErrorCode::GROUP_AUTHORIZATION_FAILED
        | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
        | ErrorCode::SASL_AUTHENTICATION_FAILED => Exit::Auth,
        ErrorCode::TOPIC_ALREADY_EXISTS
        | ErrorCode::NON_EMPTY_GROUP
        | ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
        | ErrorCode::INVALID_PRODUCER_EPOCH
        | ErrorCode::PRODUCER_FENCED
        | ErrorCode::FENCED_INSTANCE_ID
        | ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER => Exit::Conflict,
        ErrorCode::INVALID_TOPIC_EXCEPTION
        | ErrorCode::INVALID_PARTITIONS
        | ErrorCode::INVALID_REPLICATION_FACTOR
        | ErrorCode::INVALID_CONFIG
        | ErrorCode::INVALID_REQUEST
        | ErrorCode::INVALID_GROUP_ID
        | ErrorCode::INVALID_REPLICA_ASSIGNMENT => Exit::Usage,
        ErrorCode::REQUEST_TIMED_OUT => Exit::Timeout,
        ErrorCode::BROKER_NOT_AVAILABLE | ErrorCode::COORDINATOR_NOT_AVAILABLE => Exit::Unreachable,
        _ => Exit::Finding,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(why) = &self.why {
            write!(f, "\n  why: {why}")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "\n  try: {remedy}")?;
        }
        Ok(())
    }
}

impl Failure {
    /// Whether there is something to say.
    pub(crate) fn speaks(&self) -> bool {
        !self.what.is_empty()
    }
    /// What failed, without why and what to try.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }
    /// Why, if known.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.why.as_deref()
    }
    /// What to try, if known.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}

/// The nearest of some names, for "did you mean".
pub(crate) fn nearest<'a>(name: &str, of: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    of.map(|known| {
        (
            strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase()),
            known,
        )
    })
    .min()
    // A third of the letters wrong is another word.
    .filter(|(distance, known)| distance * 3 <= known.len().max(3))
    .map(|(_, known)| known)
}
