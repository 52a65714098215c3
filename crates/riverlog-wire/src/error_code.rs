//! Kafka's error codes.

/// A Kafka error, by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i16);
