//! Kafka's fixed bytes: ids, error codes, primitives, messages, record batches, the partitioner.
//!
//! Everything here takes bytes that someone else made. Nothing panics on them, loops on them, or
//! reserves memory by a count that they announce.

pub mod batch;
pub mod compression;
pub mod consumer_protocol;
pub mod error_code;
pub mod frame;
pub mod ids;
pub mod messages;
pub mod partitioner;
pub mod primitives;

pub use error_code::ErrorCode;
pub use ids::{
    BrokerId, Generation, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence,
    TopicId,
};
