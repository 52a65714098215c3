//! A port for Kafka clients in front of a broker in memory: raw requests in, the library's own view beside them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverlog::Broker;
use riverlog_wire::batch::{BatchBuilder, batches};
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{
    ApiVersionsRequest, FetchRequest, FindCoordinatorRequest, MetadataRequest, ProduceRequest,
    Request, Response,
};
use riverlog_wire::primitives::Reader;
use riverlog_wire::{ErrorCode, frame};

/// A connection, and the number of its last request.
struct Client(TcpStream, i32);

impl Client {
    fn connect(at: std::net::SocketAddr) -> Client {
        let stream = TcpStream::connect(at).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("a time-out can be set");
        Client(stream, 0)
    }

    fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.1 += 1;
        let mut out = Vec::new();
        frame::encode_request(&mut out, version, self.1, Some("test"), request).expect("it fits");
        self.0.write_all(&out).expect("it is taken");
    }

    fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(version, request);
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("an answer");
        let mut bytes = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
        self.0.read_exact(&mut bytes).expect("the whole of it");
        let bytes = Bytes::from(bytes);
        let mut reader = Reader::shared(&bytes);
        let header = frame::ResponseHeader::decode(&mut reader, R::KEY, version).expect("a header");
        assert_eq!(header.correlation_id, self.1);
        R::Response::decode(&mut reader, version).expect("a body")
    }
}

#[test]
fn a_client_and_the_program_see_the_same_broker() {
    let start = Instant::now();
    let broker = Broker::in_memory();
    let listener = broker.listen("127.0.0.1:0").expect("a free port");
    let mut client = Client::connect(listener.address());
    let versions = client.ask(0, &ApiVersionsRequest::default());
    assert_eq!(versions.error_code, ErrorCode::NONE);
    // Milliseconds on a quiet machine.
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );

    broker.create_topic("t", 1).expect("a topic");
    let topic = MetadataRequestTopic {
        name: Some("t".to_owned()),
        ..MetadataRequestTopic::default()
    };
    let metadata = client.ask(
        9,
        &MetadataRequest {
            topics: Some(vec![topic]),
            ..MetadataRequest::default()
        },
    );
    let told = &metadata.brokers[0];
    assert_eq!(
        (told.host.as_str(), told.port),
        ("127.0.0.1", i32::from(listener.address().port()))
    );
    assert_eq!(metadata.topics[0].partitions[0].leader_id, told.node_id);
    // The other way to learn it.
    let coordinator = client.ask(
        2,
        &FindCoordinatorRequest {
            key: "g".to_owned(),
            ..FindCoordinatorRequest::default()
        },
    );
    assert!(coordinator.error_code == ErrorCode::NONE || coordinator.error_code.retriable());

    let mut batch = BatchBuilder::new(Compression::None);
    batch.push(1_700_000_000_000, Some(b"k"), Some(b"from a client"), &[]);
    let data = PartitionProduceData {
        index: 0,
        records: Some(batch.build().into()),
    };
    let produced = client.ask(
        7,
        &ProduceRequest {
            acks: -1,
            timeout_ms: 10_000,
            topic_data: vec![TopicProduceData {
                name: "t".to_owned(),
                partition_data: vec![data],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        },
    );
    let answer = &produced.responses[0].partition_responses[0];
    assert_eq!(
        (answer.error_code, answer.base_offset),
        (ErrorCode::NONE, 0)
    );
    broker
        .publish("t", None, b"from the program")
        .expect("it is stored");

    let mut consumer = broker.subscribe("t", "g", "c").expect("it joins");
    let records = consumer.poll(10, Duration::from_secs(10)).expect("records");
    let values: Vec<&[u8]> = records.iter().map(|r| r.value()).collect();
    assert_eq!(values, [&b"from a client"[..], b"from the program"]);

    let partition = FetchPartition {
        partition: 0,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    let fetched = client.ask(
        11,
        &FetchRequest {
            replica_id: -1,
            max_wait_ms: 1_000,
            min_bytes: 1,
            max_bytes: 1 << 20,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic: "t".to_owned(),
                partitions: vec![partition],
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        },
    );
    let bytes = fetched.responses[0].partitions[0]
        .records
        .clone()
        .expect("records");
    let count: i32 = batches(&bytes)
        .map(|b| b.expect("sound").header.record_count)
        .sum();
    assert_eq!(count, 2);
}

#[test]
fn a_closed_port_ends_its_connections_and_not_the_broker() {
    let broker = Broker::in_memory();
    let listener = broker.listen("127.0.0.1:0").expect("a free port");
    let address = listener.address();
    let mut client = Client::connect(address);
    client.ask(0, &ApiVersionsRequest::default());
    listener.close();
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = client.0.read_to_end(&mut rest);
    assert!(rest.is_empty());
    assert!(TcpStream::connect(address).is_err());
    broker.create_topic("t", 1).expect("it goes on");
    // The same port again, while the broker is the same.
    let again = broker.listen(address).expect("the port is free again");
    Client::connect(again.address()).ask(0, &ApiVersionsRequest::default());
    assert!(broker.listen(again.address()).is_err());
}

#[test]
fn strangers_are_closed_and_others_served() {
    let broker = Broker::in_memory();
    let listener = broker.listen("127.0.0.1:0").expect("a free port");
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 4],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0],
    ] {
        let mut stranger = Client::connect(listener.address());
        stranger.0.write_all(bytes).expect("it is taken");
        let mut answer = Vec::new();
        let _ = stranger.0.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{bytes:x?}");
    }
    // Many requests before the first answer is read.
    let mut client = Client::connect(listener.address());
    for _ in 0..500 {
        client.send(0, &ApiVersionsRequest::default());
    }
    let mut some = [0; 4];
    client.0.read_exact(&mut some).expect("answers come");
}
