//! Kafka's error codes.

use std::fmt;

/// A Kafka error, by its number on the wire. Numbers that Kafka 4.4 doesn't have are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ErrorCode(pub i16);

impl ErrorCode {
    /// Kafka's own name, such as `NOT_LEADER_OR_FOLLOWER`; `UNKNOWN_CODE` for numbers that Kafka 4.4 doesn't have.
    pub fn name(self) -> &'static str {
        self.entry().map_or("UNKNOWN_CODE", |e| e.name)
    }

    /// Whether the same request may succeed later; as Kafka's own clients judge it.
    pub fn retriable(self) -> bool {
        self.entry().is_some_and(|e| e.retriable)
    }

    /// What happened and what to do, in a line.
    pub fn message(self) -> &'static str {
        self.entry()
            .map_or("an error code that this version does not know", |e| {
                e.message
            })
    }

    /// `Err(self)` unless this is [`ErrorCode::NONE`].
    pub fn into_result(self) -> Result<(), ErrorCode> {
        if self == ErrorCode::NONE {
            Ok(())
        } else {
            Err(self)
        }
    }

    /// All codes of Kafka 4.4 in ascending order.
    pub fn all() -> impl Iterator<Item = ErrorCode> {
        TABLE.iter().map(|e| e.code)
    }

    fn entry(self) -> Option<&'static Entry> {
        // The table begins at −1 and has no gaps.
        TABLE.get(usize::try_from(i32::from(self.0) + 1).ok()?)
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> ErrorCode {
        ErrorCode(code)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> i16 {
        code.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.0, self.message())
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl std::error::Error for ErrorCode {}

struct Entry {
    code: ErrorCode,
    name: &'static str,
    retriable: bool,
    message: &'static str,
}

macro_rules! codes {
    ($($code:literal $name:ident $kind:ident $message:literal)*) => {
        impl ErrorCode {
            $(
                #[doc = concat!($message, ".")]
                pub const $name: ErrorCode = ErrorCode($code);
            )*
        }

        static TABLE: &[Entry] = &[$(Entry {
            code: ErrorCode::$name,
            name: stringify!($name),
            retriable: matches!(Kind::$kind, Kind::Retriable),
            message: $message,
        }),*];
    };
}

enum Kind {
    Retriable,
    Final,
}

codes! {
    -1 UNKNOWN_SERVER_ERROR Final "the broker met an error it has no code for; its log says more"
    0 NONE Final "no error"
    1 OFFSET_OUT_OF_RANGE Final "the offset is outside of what the partition holds; ask for its bounds and seek"
    2 CORRUPT_MESSAGE Retriable "the record batch is damaged: its CRC or its layout is wrong; send it again"
    3 UNKNOWN_TOPIC_OR_PARTITION Retriable "this broker has no such topic or partition; refresh metadata, or create the topic"
    4 INVALID_FETCH_SIZE Final "the fetch size is not possible; ask for at least 0 bytes"
    5 LEADER_NOT_AVAILABLE Retriable "the partition is between two leaders; try again shortly"
    6 NOT_LEADER_OR_FOLLOWER Retriable "this broker neither leads nor follows the partition; refresh metadata"
    7 REQUEST_TIMED_OUT Retriable "the work did not finish in the time allowed; it may still take effect"
    8 BROKER_NOT_AVAILABLE Final "the broker is not there; refresh metadata"
    9 REPLICA_NOT_AVAILABLE Retriable "this replica can't serve the partition now; try another or try again"
    10 MESSAGE_TOO_LARGE Final "the record batch is larger than the topic's max.message.bytes; send smaller ones or raise it"
    11 STALE_CONTROLLER_EPOCH Final "the sender's controller epoch is from before the last controller change"
    12 OFFSET_METADATA_TOO_LARGE Final "the metadata beside the committed offset is longer than offset.metadata.max.bytes"
    13 NETWORK_EXCEPTION Retriable "the connection broke before the answer came; try again"
    14 COORDINATOR_LOAD_IN_PROGRESS Retriable "the coordinator is still reading its log; try again shortly"
    15 COORDINATOR_NOT_AVAILABLE Retriable "no coordinator is ready yet; try again shortly"
    16 NOT_COORDINATOR Retriable "this broker does not coordinate that group or transaction; find the coordinator again"
    17 INVALID_TOPIC_EXCEPTION Final "the topic name is not allowed; use 1 to 249 of a-z A-Z 0-9 . _ -"
    18 RECORD_LIST_TOO_LARGE Final "the record batch is larger than a segment; send smaller ones or raise segment.bytes"
    19 NOT_ENOUGH_REPLICAS Retriable "fewer replicas are in sync than min.insync.replicas asks for; nothing was written, try again"
    20 NOT_ENOUGH_REPLICAS_AFTER_APPEND Retriable "the records were written but to fewer replicas than min.insync.replicas asks for; sending again may duplicate them"
    21 INVALID_REQUIRED_ACKS Final "acks must be -1, 0 or 1"
    22 ILLEGAL_GENERATION Final "the generation is not the group's current one; join again"
    23 INCONSISTENT_GROUP_PROTOCOL Final "the member has no assignor in common with the group, or named none"
    24 INVALID_GROUP_ID Final "the group id is empty or not allowed"
    25 UNKNOWN_MEMBER_ID Final "the group has no such member; join again with an empty member id"
    26 INVALID_SESSION_TIMEOUT Final "the session time-out is outside of group.min.session.timeout.ms and group.max.session.timeout.ms"
    27 REBALANCE_IN_PROGRESS Final "the group is being rebalanced; join again"
    28 INVALID_COMMIT_OFFSET_SIZE Final "the offset commit is too large to be stored; commit fewer partitions at once"
    29 TOPIC_AUTHORIZATION_FAILED Final "the user may not do this with the topic; an ACL must allow it"
    30 GROUP_AUTHORIZATION_FAILED Final "the user may not do this with the group; an ACL must allow it"
    31 CLUSTER_AUTHORIZATION_FAILED Final "the user may not do this in the cluster; an ACL must allow it"
    32 INVALID_TIMESTAMP Final "a record's timestamp is too far from the broker's time"
    33 UNSUPPORTED_SASL_MECHANISM Final "the listener does not offer that SASL mechanism"
    34 ILLEGAL_SASL_STATE Final "the SASL step does not fit the connection's state"
    35 UNSUPPORTED_VERSION Final "the broker does not serve that version of the API"
    36 TOPIC_ALREADY_EXISTS Final "the topic exists already"
    37 INVALID_PARTITIONS Final "the partition count is not possible; it is at least 1 and only grows"
    38 INVALID_REPLICATION_FACTOR Final "the replication factor is below 1 or above the number of brokers"
    39 INVALID_REPLICA_ASSIGNMENT Final "the replica assignment is not possible: unknown or repeated brokers, or gaps"
    40 INVALID_CONFIG Final "a configuration key or value is not allowed"
    41 NOT_CONTROLLER Retriable "this node is not the active controller; find it again"
    42 INVALID_REQUEST Final "the request contradicts itself or its version; the client is at fault"
    43 UNSUPPORTED_FOR_MESSAGE_FORMAT Final "the record format is one that the broker does not take; use format 2"
    44 POLICY_VIOLATION Final "a policy of the cluster forbids the request"
    45 OUT_OF_ORDER_SEQUENCE_NUMBER Final "the producer's sequence number leaves a gap or goes back"
    46 DUPLICATE_SEQUENCE_NUMBER Final "the records with this sequence number were stored before"
    47 INVALID_PRODUCER_EPOCH Final "a newer instance of the producer has taken over this producer id"
    48 INVALID_TXN_STATE Final "the transaction's state does not allow this step"
    49 INVALID_PRODUCER_ID_MAPPING Final "the producer id does not belong to the transactional id"
    50 INVALID_TRANSACTION_TIMEOUT Final "the transaction time-out is above transaction.max.timeout.ms"
    51 CONCURRENT_TRANSACTIONS Retriable "another step of the same transaction is still under way; try again shortly"
    52 TRANSACTION_COORDINATOR_FENCED Final "the marker comes from a coordinator that has been replaced"
    53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED Final "the user may not use the transactional id; an ACL must allow it"
    54 SECURITY_DISABLED Final "access control is not switched on here"
    55 OPERATION_NOT_ATTEMPTED Final "not tried, since another part of the request failed; send it again when that is mended"
    56 KAFKA_STORAGE_ERROR Retriable "the broker's disk failed or is full; look at the broker's log and at /readyz?verbose, then send it again"
    57 LOG_DIR_NOT_FOUND Final "the broker has no such log directory"
    58 SASL_AUTHENTICATION_FAILED Final "the user name, password or token was not accepted"
    59 UNKNOWN_PRODUCER_ID Final "the broker no longer knows the producer; its records have been deleted"
    60 REASSIGNMENT_IN_PROGRESS Final "the partition is being moved; wait for the end or cancel it"
    61 DELEGATION_TOKEN_AUTH_DISABLED Final "delegation tokens are not switched on here"
    62 DELEGATION_TOKEN_NOT_FOUND Final "no such delegation token"
    63 DELEGATION_TOKEN_OWNER_MISMATCH Final "the user neither owns nor may renew the delegation token"
    64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED Final "delegation tokens can't be asked for over this kind of connection"
    65 DELEGATION_TOKEN_AUTHORIZATION_FAILED Final "the user may not use the delegation token"
    66 DELEGATION_TOKEN_EXPIRED Final "the delegation token has expired"
    67 INVALID_PRINCIPAL_TYPE Final "that type of principal is not supported"
    68 NON_EMPTY_GROUP Final "the group still has members"
    69 GROUP_ID_NOT_FOUND Final "no such group"
    70 FETCH_SESSION_ID_NOT_FOUND Retriable "the broker no longer has that fetch session; open a new one"
    71 INVALID_FETCH_SESSION_EPOCH Retriable "the fetch session's epoch is not the next one; open a new session"
    72 LISTENER_NOT_FOUND Retriable "the leader has no listener of the name that the client came in by"
    73 TOPIC_DELETION_DISABLED Final "deleting topics is switched off here"
    74 FENCED_LEADER_EPOCH Retriable "the leader epoch is older than the broker's; refresh metadata"
    75 UNKNOWN_LEADER_EPOCH Retriable "the leader epoch is newer than the broker's; try again shortly"
    76 UNSUPPORTED_COMPRESSION_TYPE Final "this version of the request can't carry the partition's compression; use a newer client"
    77 STALE_BROKER_EPOCH Final "the broker's registration has been replaced by a newer one"
    78 OFFSET_NOT_AVAILABLE Retriable "the new leader does not know the high watermark yet; try again shortly"
    79 MEMBER_ID_REQUIRED Final "join again with the member id in this answer"
    80 PREFERRED_LEADER_NOT_AVAILABLE Retriable "the preferred leader can't lead now"
    81 GROUP_MAX_SIZE_REACHED Final "the group has group.max.size members"
    82 FENCED_INSTANCE_ID Final "another member has taken over this group.instance.id"
    83 ELIGIBLE_LEADERS_NOT_AVAILABLE Retriable "no replica that could lead is available"
    84 ELECTION_NOT_NEEDED Retriable "the right replica leads already"
    85 NO_REASSIGNMENT_IN_PROGRESS Final "no move of that partition is under way"
    86 GROUP_SUBSCRIBED_TO_TOPIC Final "the group is subscribed to the topic; its offsets can't be deleted"
    87 INVALID_RECORD Final "a record or its batch does not keep the rules of the topic or the format"
    88 UNSTABLE_OFFSET_COMMIT Retriable "a transaction with offsets of this partition is still open; try again shortly"
    89 THROTTLING_QUOTA_EXCEEDED Retriable "a quota is used up; wait for the throttle time and try again"
    90 PRODUCER_FENCED Final "a newer producer with the same transactional id has taken over"
    91 RESOURCE_NOT_FOUND Final "no such resource"
    92 DUPLICATE_RESOURCE Final "the request names the same resource twice"
    93 UNACCEPTABLE_CREDENTIAL Final "the credential does not meet the rules: name, mechanism or iterations"
    94 INCONSISTENT_VOTER_SET Final "sender or receiver is not among the voters that it should be"
    95 INVALID_UPDATE_VERSION Final "the feature version is not possible"
    96 FEATURE_UPDATE_FAILED Final "the feature could not be changed"
    97 PRINCIPAL_DESERIALIZATION_FAILURE Final "a forwarded request's principal can't be read"
    98 SNAPSHOT_NOT_FOUND Final "no such snapshot"
    99 POSITION_OUT_OF_RANGE Final "the position lies outside of the snapshot"
    100 UNKNOWN_TOPIC_ID Retriable "this broker has no topic with that id; refresh metadata"
    101 DUPLICATE_BROKER_REGISTRATION Final "another live broker has this id"
    102 BROKER_ID_NOT_REGISTERED Final "no broker with that id is registered"
    103 INCONSISTENT_TOPIC_ID Retriable "the topic has another id here; it was deleted and created again, refresh metadata"
    104 INCONSISTENT_CLUSTER_ID Final "the cluster id is another one; the address belongs to a different cluster"
    105 TRANSACTIONAL_ID_NOT_FOUND Final "no such transactional id"
    106 FETCH_SESSION_TOPIC_ID_ERROR Retriable "a fetch session must use either topic names or topic ids throughout"
    107 INELIGIBLE_REPLICA Final "a replica in the new in-sync set may not be in it"
    108 NEW_LEADER_ELECTED Final "the change was made, and another replica leads now"
    109 OFFSET_MOVED_TO_TIERED_STORAGE Final "the offset lies in tiered storage only"
    110 FENCED_MEMBER_EPOCH Final "the member's epoch has been replaced; give up all partitions and join again"
    111 UNRELEASED_INSTANCE_ID Final "another member still holds this group.instance.id; it must leave first"
    112 UNSUPPORTED_ASSIGNOR Final "the group has no such assignor on the broker's side"
    113 STALE_MEMBER_EPOCH Final "the member's epoch is old; try again after the next heartbeat"
    114 MISMATCHED_ENDPOINT_TYPE Final "the request belongs to the other kind of endpoint: broker or controller"
    115 UNSUPPORTED_ENDPOINT_TYPE Final "that kind of endpoint is not supported"
    116 UNKNOWN_CONTROLLER_ID Final "no such controller"
    117 UNKNOWN_SUBSCRIPTION_ID Final "the telemetry subscription is unknown or outdated; ask for a new one"
    118 TELEMETRY_TOO_LARGE Final "the telemetry is larger than telemetry.max.bytes"
    119 INVALID_REGISTRATION Final "the controller refuses the broker's registration"
    120 TRANSACTION_ABORTABLE Final "this transaction can't go on; abort it and begin a new one"
    121 INVALID_RECORD_STATE Final "the record is not in a state that allows this acknowledgement"
    122 SHARE_SESSION_NOT_FOUND Retriable "the broker has no such share session; open a new one"
    123 INVALID_SHARE_SESSION_EPOCH Retriable "the share session's epoch is not the next one; open a new session"
    124 FENCED_STATE_EPOCH Final "the share group's state epoch has been replaced"
    125 INVALID_VOTER_KEY Final "the voter key is not that of the receiver"
    126 DUPLICATE_VOTER Final "the voter is in the set already"
    127 VOTER_NOT_FOUND Final "the voter is not in the set"
    128 INVALID_REGULAR_EXPRESSION Final "the regular expression can't be parsed; RE2 syntax is expected"
    129 REBOOTSTRAP_REQUIRED Final "what the client knows of the cluster is outdated; begin again from the bootstrap addresses"
    130 STREAMS_INVALID_TOPOLOGY Final "the streams topology is not possible"
    131 STREAMS_INVALID_TOPOLOGY_EPOCH Final "the topology epoch is not possible"
    132 STREAMS_TOPOLOGY_FENCED Final "the topology epoch has been replaced by a newer one"
    133 SHARE_SESSION_LIMIT_REACHED Retriable "the broker has as many share sessions as it may; try again later"
    134 GROUP_DELETION_FAILED Final "the group could not be deleted; its own message says why"
    135 STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED Final "the topology description could not be stored; the message says why"
    136 CONTROLLER_ID_NOT_REGISTERED Final "no controller with that id is registered"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_code_of_kafka_4_4_at_its_place() {
        assert_eq!(TABLE.len(), 138);
        for (i, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.code.0 as i32, i as i32 - 1, "{}", entry.name);
            assert!(!entry.message.is_empty() && !entry.message.ends_with('.'));
        }
        let mut names: Vec<_> = TABLE.iter().map(|e| e.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn a_code_knows_its_name_and_whether_to_retry() {
        assert_eq!(ErrorCode::from(6), ErrorCode::NOT_LEADER_OR_FOLLOWER);
        assert_eq!(i16::from(ErrorCode::INVALID_RECORD), 87);
        assert_eq!(ErrorCode(6).name(), "NOT_LEADER_OR_FOLLOWER");
        assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.retriable());
        assert!(!ErrorCode::OFFSET_OUT_OF_RANGE.retriable());
        assert!(!ErrorCode::UNKNOWN_SERVER_ERROR.retriable());
        assert_eq!(ErrorCode(137).name(), "UNKNOWN_CODE");
        assert_eq!(ErrorCode(i16::MIN).name(), "UNKNOWN_CODE");
        assert_eq!(ErrorCode(i16::MAX).name(), "UNKNOWN_CODE");
        assert!(!ErrorCode(-2).retriable());
        assert_eq!(
            format!("{:?}", ErrorCode::CORRUPT_MESSAGE),
            "CORRUPT_MESSAGE(2)"
        );
    }

    #[test]
    fn the_retriable_codes_are_those_of_kafkas_own_client() {
        let retriable: Vec<i16> = ErrorCode::all()
            .filter(|c| c.retriable())
            .map(i16::from)
            .collect();
        assert_eq!(
            retriable,
            [
                2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80,
                83, 84, 88, 89, 100, 103, 106, 122, 123, 133
            ]
        );
    }
}
