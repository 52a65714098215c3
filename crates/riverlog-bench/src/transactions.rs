//! Transactions, one after the other: begin in some partitions, write a record to each, commit.

use std::time::{Duration, Instant};

use riverlog_wire::batch::BatchBuilder;
use riverlog_wire::compression::Compression;
use riverlog_wire::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use riverlog_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use riverlog_wire::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest,
};
use riverlog_wire::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

use crate::Result;
use crate::measure::{latencies, print, print_latencies};
use crate::wire::{Connection, now_ms, topic};

/// Both brokers have them; a client of them adds partitions itself.
const INIT: i16 = 4;
const ADD: i16 = 3;
const PRODUCE: i16 = 9;
const END: i16 = 3;
const PAUSE: Duration = Duration::from_millis(1);

/// Commits transactions of `partitions` partitions for `seconds`.
pub(crate) fn run(broker: &str, partitions: i32, seconds: u64) -> Result<()> {
    let mut connection = Connection::open(broker)?;
    let topic = topic(&mut connection, partitions, &[])?;
    let id = format!("{topic}-id");
    connection.find_coordinator(1, &id)?;
    let until = Instant::now() + Duration::from_secs(60);
    let (producer, epoch) = loop {
        let request = InitProducerIdRequest {
            transactional_id: Some(id.clone()),
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..InitProducerIdRequest::default()
        };
        let answer = connection.call(INIT, &request)?;
        match answer.error_code {
            ErrorCode::NONE => break (answer.producer_id, answer.producer_epoch),
            error if error.retriable() && Instant::now() < until => {
                std::thread::sleep(20 * PAUSE);
            }
            error => return Err(format!("init: {}", error.name()).into()),
        }
    };
    let add = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: id.clone(),
        v3_and_below_producer_id: producer,
        v3_and_below_producer_epoch: epoch,
        v3_and_below_topics: vec![AddPartitionsToTxnTopic {
            name: topic.clone(),
            partitions: (0..partitions).collect(),
        }],
        ..AddPartitionsToTxnRequest::default()
    };
    let end = EndTxnRequest {
        transactional_id: id.clone(),
        producer_id: producer,
        producer_epoch: epoch,
        committed: true,
    };
    let mut latency = latencies()?;
    // The first ones open logs.
    let mut sequence = 0;
    let mut began = Instant::now();
    let warm = began + Duration::from_secs(1);
    let mut until = None;
    loop {
        let now = Instant::now();
        if until.is_none() && now >= warm {
            began = now;
            latency.clear();
            until = Some(now + Duration::from_secs(seconds));
        }
        if until.is_some_and(|until| now >= until) {
            break;
        }
        // While the markers of the one before are written the coordinator says so.
        loop {
            let answer = connection.call(ADD, &add)?;
            let each = answer.results_by_topic_v3_and_below;
            let each = each.iter().flat_map(|t| &t.results_by_partition);
            let error = each
                .map(|p| p.partition_error_code)
                .find(|e| *e != ErrorCode::NONE);
            match error {
                None => break,
                Some(error) if error.retriable() => std::thread::sleep(PAUSE),
                Some(error) => return Err(format!("add: {}", error.name()).into()),
            }
        }
        let batch = BatchBuilder::new(Compression::None)
            .producer(
                ProducerId(producer),
                ProducerEpoch(epoch),
                Sequence(sequence),
            )
            .transactional()
            .push(now_ms(), None, Some(&[7; 100]), &[])
            .build();
        let records = bytes::Bytes::from(batch);
        let produce = ProduceRequest {
            transactional_id: Some(id.clone()),
            acks: -1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: topic.clone(),
                partition_data: (0..partitions)
                    .map(|index| PartitionProduceData {
                        index,
                        records: Some(records.clone()),
                    })
                    .collect(),
                ..TopicProduceData::default()
            }],
        };
        // Kafka tells of a new topic before it leads all of it. What was stored already is found to be a duplicate, which is no error.
        loop {
            let answer = connection.call(PRODUCE, &produce)?;
            let each = answer
                .responses
                .iter()
                .flat_map(|t| &t.partition_responses)
                .map(|p| p.error_code);
            match each.into_iter().find(|e| *e != ErrorCode::NONE) {
                None => break,
                Some(error) if error.retriable() && until.is_none() => std::thread::sleep(PAUSE),
                Some(error) => return Err(format!("produce: {}", error.name()).into()),
            }
        }
        sequence += 1;
        let answer = connection.call(END, &end)?;
        if answer.error_code != ErrorCode::NONE {
            return Err(format!("end: {}", answer.error_code.name()).into());
        }
        latency.record(now.elapsed().as_micros() as u64)?;
    }
    let took = began.elapsed().as_secs_f64();
    print_latencies("transaction", &latency);
    print("transactions a second", latency.len() as f64 / took, "1/s");
    print("transactions", latency.len() as f64, "transactions");
    Ok(())
}
