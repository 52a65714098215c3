//! Requests that name partitions by the names of their topics: a name comes once, and is kept with each partition of it from then on. How much
//! a request may make of that is bounded, for a name has up to 32,767 bytes in a frame and a partition four.

use riverlog_wire::messages::{
    AddPartitionsToTxnRequest, AlterPartitionReassignmentsRequest, AlterShareGroupOffsetsRequest,
    DeleteRecordsRequest, DescribeShareGroupOffsetsRequest, ElectLeadersRequest, FetchRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, Request, TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
};

/// Bytes of all names, each counted with every partition of it: those of 300,000 partitions with short names.
const MOST: usize = 32 << 20;

/// What is kept of a partition beside the name.
const PARTITION: usize = 64;

/// A request that names partitions.
pub(super) trait Named: Request {
    /// How long the name of each topic is, and how many of its partitions are named.
    fn named(&self) -> impl Iterator<Item = (usize, usize)>;

    /// More than is kept. An error says what to do.
    fn is_bounded(&self) -> Result<(), String> {
        let bytes =
            |(name, partitions): (usize, usize)| (name + PARTITION).saturating_mul(partitions);
        let bytes = self.named().map(bytes).fold(0, usize::saturating_add);
        match bytes > MOST {
            false => Ok(()),
            true => Err(format!(
                "it names so many partitions that their names take {bytes} bytes, of {MOST} at most; name fewer partitions in a request"
            )),
        }
    }
}

impl Named for FetchRequest {
    fn named(&self) -> impl Iterator<Item = (usize, usize)> {
        let read = self.topics.iter();
        let read = read.map(|t| (t.topic.len(), t.partitions.len()));
        let forgotten = self.forgotten_topics_data.iter();
        read.chain(forgotten.map(|t| (t.topic.len(), t.partitions.len())))
    }
}

impl Named for OffsetFetchRequest {
    fn named(&self) -> impl Iterator<Item = (usize, usize)> {
        let one = self.topics.iter().flatten();
        let one = one.map(|t| (t.name.len(), t.partition_indexes.len()));
        let many = self.groups.iter().flat_map(|g| g.topics.iter().flatten());
        one.chain(many.map(|t| (t.name.len(), t.partition_indexes.len())))
    }
}

impl Named for AddPartitionsToTxnRequest {
    fn named(&self) -> impl Iterator<Item = (usize, usize)> {
        let one = self.v3_and_below_topics.iter();
        let many = self.transactions.iter().flat_map(|t| t.topics.iter());
        one.chain(many).map(|t| (t.name.len(), t.partitions.len()))
    }
}

impl Named for ElectLeadersRequest {
    fn named(&self) -> impl Iterator<Item = (usize, usize)> {
        let topics = self.topic_partitions.iter().flatten();
        topics.map(|t| (t.topic.len(), t.partitions.len()))
    }
}

impl Named for DescribeShareGroupOffsetsRequest {
    fn named(&self) -> impl Iterator<Item = (usize, usize)> {
        let topics = self.groups.iter().flat_map(|g| g.topics.iter().flatten());
        topics.map(|t| (t.topic_name.len(), t.partitions.len()))
    }
}

impl Named for AlterShareGroupOffsetsRequest {
    fn named(&self) -> impl Iterator<Item = (usize, usize)> {
        let topics = self.topics.iter();
        topics.map(|t| (t.topic_name.len(), t.partitions.len()))
    }
}

impl Named for WriteTxnMarkersRequest {
    fn named(&self) -> impl Iterator<Item = (usize, usize)> {
        let topics = self.markers.iter().flat_map(|m| m.topics.iter());
        topics.map(|t| (t.name.len(), t.partition_indexes.len()))
    }
}

macro_rules! named {
    ($($request:ident)*) => {
        $(impl Named for $request {
            fn named(&self) -> impl Iterator<Item = (usize, usize)> {
                self.topics.iter().map(|t| (t.name.len(), t.partitions.len()))
            }
        })*
    };
}

named! {
    AlterPartitionReassignmentsRequest
    DeleteRecordsRequest
    OffsetCommitRequest
    OffsetDeleteRequest
    TxnOffsetCommitRequest
}

#[cfg(test)]
mod tests {
    use riverlog_wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;

    use super::*;

    #[test]
    fn a_long_name_with_many_partitions_is_refused_and_a_large_cluster_isnt() {
        let request = |name: usize, partitions: i32| AddPartitionsToTxnRequest {
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: "n".repeat(name),
                partitions: (0..partitions).collect(),
            }],
            ..AddPartitionsToTxnRequest::default()
        };
        assert_eq!(request(30, 300_000).is_bounded(), Ok(()));
        let refused = request(32_767, 8_000).is_bounded().unwrap_err();
        assert!(refused.contains("name fewer partitions"), "{refused}");
        assert!(request(1, 1_000_000).is_bounded().is_err());
    }
}
