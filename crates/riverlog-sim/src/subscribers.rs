//! The group of the consumer protocol, and what it reads.

use riverlog_wire::TopicId;

use crate::groups::owners::Owners;

/// The group.
pub(crate) const GROUP: &str = "subscribers";
/// What fits its topics.
pub(crate) const PATTERN: &str = "sub-.*";
/// Topics that its members read: name, partitions, id.
pub(crate) const TOPICS: [(&str, i32, TopicId); 2] = [
    ("sub-first", 4, TopicId(*b"of-subscribers-1")),
    ("sub-second", 3, TopicId(*b"of-subscribers-2")),
];

/// A partition of one of the topics, by its number.
pub(crate) type Part = (usize, i32);

/// What is known of the group.
pub(crate) type Subscribers = Owners<Part>;

/// How many partitions there are.
pub(crate) fn partitions() -> i32 {
    TOPICS.iter().map(|(_, partitions, _)| partitions).sum()
}
