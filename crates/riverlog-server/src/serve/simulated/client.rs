//! A client of the simulated network: requests as frames over one connection, and no more patience than it is given.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::frame::{ResponseHeader, encode_request, split_frame};
use riverlog_wire::messages::api_versions_request::ApiVersionsRequest;
use riverlog_wire::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use riverlog_wire::messages::fetch_response::PartitionData;
use riverlog_wire::messages::init_producer_id_request::InitProducerIdRequest;
use riverlog_wire::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use riverlog_wire::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use riverlog_wire::messages::produce_response::PartitionProduceResponse;
use riverlog_wire::messages::{Request, Response};
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, Offset, ProducerEpoch, ProducerId, Sequence};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use turmoil::net::TcpStream;

use super::network::Pieces;
use super::{PORT, SERVER, now};

/// The versions that are spoken.
const PRODUCE: i16 = 9;
const FETCH: i16 = 12;

/// One connection.
pub(super) struct Link {
    pub(super) stream: TcpStream,
    pieces: Pieces,
    received: BytesMut,
    sent: i32,
    answered: i32,
}

impl Link {
    /// Connects; what it sends is cut into pieces of up to `most_bytes`.
    pub(super) async fn open(seed: u64, most_bytes: usize) -> io::Result<Link> {
        let connect = TcpStream::connect((SERVER, PORT));
        let connected = tokio::time::timeout(Duration::from_secs(2), connect).await;
        Ok(Link {
            stream: connected.map_err(|_| io::ErrorKind::TimedOut)??,
            pieces: Pieces::new(seed, most_bytes),
            received: BytesMut::new(),
            sent: 0,
            answered: 0,
        })
    }

    /// As [`Link::open`], until there is a server that answers.
    pub(super) async fn open_patiently(seed: u64, most_bytes: usize) -> Link {
        loop {
            if let Ok(link) = Link::open(seed, most_bytes).await {
                return link;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A frame, with the next correlation id.
    pub(super) fn frame<R: Request>(&mut self, version: i16, request: &R) -> Vec<u8> {
        let mut frame = Vec::new();
        encode_request(&mut frame, version, self.sent, Some("simulated"), request)
            .expect("what a client asks can be written");
        self.sent += 1;
        frame
    }

    /// Sends bytes, piece by piece.
    pub(super) async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.stream.write(self.pieces.cut(bytes)).await?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// The next answer, which is the one to the oldest request that has none.
    pub(super) async fn answer<R: Request>(&mut self, version: i16) -> io::Result<R::Response> {
        let frame = loop {
            if let Some(frame) = split_frame(&mut self.received, usize::MAX).expect("a length") {
                break frame;
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let mut reader = Reader::shared(&frame);
        let header = ResponseHeader::decode(&mut reader, R::KEY, version).expect("a header");
        assert_eq!(header.correlation_id, self.answered, "answers in order");
        self.answered += 1;
        Ok(R::Response::decode(&mut reader, version).expect("an answer of that version"))
    }

    /// Asks and waits, for at most five seconds more than the server was told to take.
    pub(super) async fn ask<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        may_take: Duration,
    ) -> io::Result<R::Response> {
        let frame = self.frame(version, request);
        let asking = async {
            self.send(&frame).await?;
            self.answer::<R>(version).await
        };
        let answer = tokio::time::timeout(may_take + Duration::from_secs(5), asking).await;
        answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Waits for the server to end the connection; what it says before is passed over.
    pub(super) async fn until_closed(&mut self) {
        while self
            .stream
            .read_buf(&mut self.received)
            .await
            .is_ok_and(|n| n > 0)
        {
            self.received.clear();
        }
    }

    pub(super) async fn create(&mut self, topic: &str, partitions: i32) -> io::Result<()> {
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic.into(),
                num_partitions: partitions,
                replication_factor: -1,
                ..CreatableTopic::default()
            }],
            ..CreateTopicsRequest::default()
        };
        loop {
            let answer = self.ask(5, &request, Duration::from_secs(10)).await?;
            let topic = answer.topics.first().expect("the topic that was asked for");
            if topic.error_code == ErrorCode::NONE {
                return Ok(());
            }
            refused(topic.error_code);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn init_producer(&mut self) -> io::Result<(i64, i16)> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            ..InitProducerIdRequest::default()
        };
        let answer = self.ask(4, &request, Duration::from_secs(5)).await?;
        if answer.error_code != ErrorCode::NONE {
            return Err(refused(answer.error_code));
        }
        Ok((answer.producer_id, answer.producer_epoch))
    }

    pub(super) async fn produce(
        &mut self,
        request: &ProduceRequest,
    ) -> io::Result<PartitionProduceResponse> {
        let answer = self.ask(PRODUCE, request, Duration::from_secs(5)).await?;
        Ok(stored(answer))
    }

    pub(super) async fn fetch(&mut self, request: &FetchRequest) -> io::Result<PartitionData> {
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or_default());
        let answer = self.ask(FETCH, request, wait).await?;
        let mut parts = answer.responses.into_iter().flat_map(|t| t.partitions);
        Ok(parts.next().expect("the partition that was asked for"))
    }

    /// The end of a partition, or with −2 its start.
    pub(super) async fn bound(&mut self, topic: &str, partition: i32, at: i64) -> io::Result<i64> {
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: topic.into(),
                partitions: vec![ListOffsetsPartition {
                    partition_index: partition,
                    timestamp: at,
                    ..ListOffsetsPartition::default()
                }],
            }],
            ..ListOffsetsRequest::default()
        };
        let answer = self.ask(6, &request, Duration::from_secs(5)).await?;
        let mut parts = answer.topics.into_iter().flat_map(|t| t.partitions);
        let part = parts.next().expect("the partition that was asked for");
        if part.error_code != ErrorCode::NONE {
            return Err(refused(part.error_code));
        }
        Ok(part.offset)
    }

    /// The answer to a produce request that was sent as a frame.
    pub(super) async fn produced(&mut self) -> io::Result<PartitionProduceResponse> {
        Ok(stored(self.answer::<ProduceRequest>(PRODUCE).await?))
    }

    /// A produce request as a frame.
    pub(super) fn produce_frame(&mut self, request: &ProduceRequest) -> Vec<u8> {
        self.frame(PRODUCE, request)
    }

    /// A fetch as a frame.
    pub(super) fn fetch_frame(&mut self, request: &FetchRequest) -> Vec<u8> {
        self.frame(FETCH, request)
    }

    /// The answer to a fetch that was sent as a frame: how many bytes of records it has.
    pub(super) async fn fetched(&mut self) -> io::Result<usize> {
        let answer = self.answer::<FetchRequest>(FETCH).await?;
        let parts = answer.responses.into_iter().flat_map(|t| t.partitions);
        Ok(parts.filter_map(|part| part.records).map(|r| r.len()).sum())
    }
}

/// What a server says that has just started, or is in trouble: to be asked again.
pub(super) fn refused(code: ErrorCode) -> io::Error {
    let passes = [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::LEADER_NOT_AVAILABLE,
        ErrorCode::NOT_CONTROLLER,
        ErrorCode::REQUEST_TIMED_OUT,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::THROTTLING_QUOTA_EXCEEDED,
    ];
    assert!(passes.contains(&code), "{code:?}");
    io::Error::other("asked too early")
}

fn stored(
    answer: riverlog_wire::messages::produce_response::ProduceResponse,
) -> PartitionProduceResponse {
    let mut parts = answer
        .responses
        .into_iter()
        .flat_map(|t| t.partition_responses);
    parts.next().expect("the partition that was written to")
}

/// What a client may do here: a request that needs nothing.
pub(super) fn hello() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "simulated".into(),
        client_software_version: "1".into(),
        ..ApiVersionsRequest::default()
    }
}

/// Who a batch is from: id, epoch, and the sequence of its first record.
pub(super) type From = Option<(i64, i16, i32)>;

/// One batch of values to a partition.
pub(super) fn produce(topic: &str, partition: i32, from: From, values: &[&str]) -> ProduceRequest {
    let mut batch = BatchBuilder::new(Compression::None);
    if let Some((id, epoch, sequence)) = from {
        batch.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    }
    for value in values {
        batch.push(now().wall_ms, None, Some(value.as_bytes()), &[]);
    }
    ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 5_000,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Bytes::from(batch.build())),
            }],
            ..TopicProduceData::default()
        }],
    }
}

/// A fetch of one partition that waits for a byte.
pub(super) fn fetch(topic: &str, partition: i32, from: i64, wait: Duration) -> FetchRequest {
    FetchRequest {
        max_wait_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: topic.into(),
            partitions: vec![FetchPartition {
                partition,
                fetch_offset: from,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

/// The values of an answer from `from` on, with their offsets.
pub(super) fn values(part: &PartitionData, from: i64) -> Vec<(i64, String)> {
    let bytes = part.records.clone().unwrap_or_default();
    let mut out = Vec::new();
    for batch in batches(&bytes) {
        let batch = batch.expect("a sound batch");
        let records = batch.records(1 << 20).expect("records that can be read");
        for record in records.iter() {
            let record = record.expect("a record that can be read");
            let Offset(offset) = record.offset;
            let value = record.value.unwrap_or_default();
            if offset >= from {
                out.push((offset, String::from_utf8_lossy(&value).into_owned()));
            }
        }
    }
    out
}
