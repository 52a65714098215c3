//! Transactions: checks 37 to 48 and 50.

use std::time::Duration;

use riverlog_wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use riverlog_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use riverlog_wire::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use riverlog_wire::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use riverlog_wire::messages::{
    AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest, EndTxnResponse,
    FetchRequest, FindCoordinatorRequest, InitProducerIdRequest, InitProducerIdResponse,
    ListTransactionsRequest, OffsetCommitRequest, OffsetFetchRequest, TxnOffsetCommitRequest,
};
use riverlog_wire::{ErrorCode, TopicId};

use super::{Check, fetch, offsets, produce};
use crate::client::{Client, Outcome, Topic, holds, only, same};
use crate::records::{Batches, in_transaction};

pub(super) const CHECKS: &[Check] = &[
    Check {
        number: "37",
        name: "a-transactional-id-has-one-producer",
        run: init,
    },
    Check {
        number: "38",
        name: "a-new-instance-aborts-and-fences-the-old-one",
        run: new_instance,
    },
    Check {
        number: "39",
        name: "a-partition-must-be-part-of-the-transaction",
        run: not_added,
    },
    Check {
        number: "40",
        name: "an-empty-transaction-can-be-aborted-only",
        run: empty,
    },
    Check {
        number: "41",
        name: "an-end-that-comes-again-has-the-same-outcome",
        run: end_again,
    },
    Check {
        number: "41a",
        name: "version-1-ends-by-state",
        run: version_one,
    },
    Check {
        number: "42",
        name: "strangers-end-nothing",
        run: strangers,
    },
    Check {
        number: "43",
        name: "an-open-transaction-holds-the-last-stable-offset",
        run: open,
    },
    Check {
        number: "44",
        name: "what-was-aborted-is-listed",
        run: aborted,
    },
    Check {
        number: "45",
        name: "partitions-are-added-all-or-none",
        run: all_or_none,
    },
    Check {
        number: "45a",
        name: "brokers-add-and-verify-for-several-transactions",
        run: batched,
    },
    Check {
        number: "46",
        name: "offsets-in-a-transaction-name-member-and-topic",
        run: offset_errors,
    },
    Check {
        number: "47",
        name: "offsets-count-when-the-transaction-does",
        run: pending_offsets,
    },
    Check {
        number: "48",
        name: "a-transaction-over-its-time-is-aborted",
        run: timed_out,
    },
    Check {
        number: "50",
        name: "transactions-can-be-looked-at",
        run: looked_at,
    },
];

/// A transactional producer as its client sees it.
pub(super) struct Producer {
    pub(super) id: String,
    pub(super) producer: i64,
    pub(super) epoch: i16,
    sequence: i32,
}

fn init_request(id: &str) -> InitProducerIdRequest {
    InitProducerIdRequest {
        transactional_id: Some(id.to_owned()),
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdRequest::default()
    }
}

/// Asks until the coordinator is there and nothing is under way any more.
fn settled(
    client: &mut Client<'_>,
    version: i16,
    request: &InitProducerIdRequest,
) -> Outcome<InitProducerIdResponse> {
    for _ in 0..200 {
        let answer = client.ask(version, request)?;
        match answer.error_code {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::NOT_COORDINATOR => {
                let find = FindCoordinatorRequest {
                    key_type: 1,
                    coordinator_keys: request.transactional_id.clone().into_iter().collect(),
                    ..FindCoordinatorRequest::default()
                };
                client.ask(4, &find)?;
            }
            ErrorCode::CONCURRENT_TRANSACTIONS => {}
            _ => return Ok(answer),
        }
        client.broker().pass(Duration::from_millis(100));
    }
    Err("no producer for a transactional id after 20 s"
        .to_owned()
        .into())
}

impl Producer {
    pub(super) fn new(client: &mut Client<'_>) -> Outcome<Producer> {
        let id = client.name();
        Producer::of(client, &id)
    }

    fn of(client: &mut Client<'_>, id: &str) -> Outcome<Producer> {
        let answer = settled(client, 5, &init_request(id))?;
        same("InitProducerId", answer.error_code, ErrorCode::NONE)?;
        Ok(Producer {
            id: id.to_owned(),
            producer: answer.producer_id,
            epoch: answer.producer_epoch,
            sequence: 0,
        })
    }

    fn produce(
        &mut self,
        client: &mut Client<'_>,
        version: i16,
        topic: &Topic,
    ) -> Outcome<(ErrorCode, i64)> {
        // Until the end of the transaction before is through, clients of version 2 are asked to wait.
        for _ in 0..100 {
            let now = client.broker().wall_ms();
            let batch = in_transaction(now, self.producer, self.epoch, self.sequence);
            let mut request = produce::request(version, topic, 0, -1, Some(batch));
            request.transactional_id = Some(self.id.clone());
            let answer = client.ask(version, &request)?;
            let answer = only("topics", answer.responses)?;
            let answer = only("partitions", answer.partition_responses)?;
            // Kafka's leaders of a new topic may not know yet that they are.
            if answer.error_code == ErrorCode::CONCURRENT_TRANSACTIONS
                || answer.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER
            {
                client.broker().pass(Duration::from_millis(50));
                continue;
            }
            if answer.error_code == ErrorCode::NONE {
                self.sequence += 1;
            }
            return Ok((answer.error_code, answer.base_offset));
        }
        Err("a transaction doesn't end in 5 s".to_owned().into())
    }

    fn stored(&mut self, client: &mut Client<'_>, topic: &Topic) -> Outcome<i64> {
        let (error, offset) = self.produce(client, 12, topic)?;
        same("producing in a transaction", error, ErrorCode::NONE)?;
        Ok(offset)
    }

    fn add(
        &self,
        client: &mut Client<'_>,
        version: i16,
        places: &[(&str, Vec<i32>)],
    ) -> Outcome<Vec<ErrorCode>> {
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id.clone(),
            v3_and_below_producer_id: self.producer,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: topics(places),
            ..AddPartitionsToTxnRequest::default()
        };
        for _ in 0..100 {
            let answer = client.ask(version, &request)?;
            // Kafka answers in an order of its own.
            let topics = answer.results_by_topic_v3_and_below;
            let mut errors = Vec::new();
            for (name, partitions) in places {
                let topic = topics.iter().filter(|t| t.name == *name);
                let found: Vec<_> = topic.flat_map(|t| &t.results_by_partition).collect();
                for partition in partitions {
                    let found = found.iter().find(|p| p.partition_index == *partition);
                    errors.extend(found.map(|p| p.partition_error_code));
                }
            }
            if errors.first() != Some(&ErrorCode::CONCURRENT_TRANSACTIONS) {
                return Ok(errors);
            }
            client.broker().pass(Duration::from_millis(50));
        }
        Err("a transaction doesn't end in 5 s".to_owned().into())
    }

    pub(super) fn end_request(&self, commit: bool) -> EndTxnRequest {
        EndTxnRequest {
            transactional_id: self.id.clone(),
            producer_id: self.producer,
            producer_epoch: self.epoch,
            committed: commit,
        }
    }

    /// Ends it as a client of version 2, and goes on with what it is given.
    pub(super) fn end(&mut self, client: &mut Client<'_>, commit: bool) -> Outcome {
        let answer = client.ask(5, &self.end_request(commit))?;
        same("EndTxn", answer.error_code, ErrorCode::NONE)?;
        (self.producer, self.epoch) = (answer.producer_id, answer.producer_epoch);
        self.sequence = 0;
        Ok(())
    }
}

fn topics(places: &[(&str, Vec<i32>)]) -> Vec<AddPartitionsToTxnTopic> {
    let topic = |(name, partitions): &(&str, Vec<i32>)| AddPartitionsToTxnTopic {
        name: (*name).to_owned(),
        partitions: partitions.clone(),
    };
    places.iter().map(topic).collect()
}

/// Asks until the markers of an end before are written.
fn ended(
    client: &mut Client<'_>,
    version: i16,
    request: &EndTxnRequest,
) -> Outcome<EndTxnResponse> {
    for _ in 0..100 {
        let answer = client.ask(version, request)?;
        if answer.error_code != ErrorCode::CONCURRENT_TRANSACTIONS {
            return Ok(answer);
        }
        client.broker().pass(Duration::from_millis(50));
    }
    Err("a transaction doesn't end in 5 s".to_owned().into())
}

fn init(client: &mut Client<'_>) -> Outcome {
    let id = client.name();
    let first = Producer::of(client, &id)?;
    same("the first epoch", first.epoch, 0)?;
    for version in [0, 1, 2, 3, 4, 5] {
        let mut request = init_request(&id);
        if version < 3 {
            // Those have no place for what a client holds.
            (request.producer_id, request.producer_epoch) = (-1, -1);
        }
        let answer = settled(client, version, &request)?;
        same("an id again", answer.error_code, ErrorCode::NONE)?;
        let made = (answer.producer_id, answer.producer_epoch);
        same("its producer", made, (first.producer, version + 1))?;
    }
    let mut long = init_request(&id);
    long.transaction_timeout_ms = 900_001;
    let error = client.ask(4, &long)?.error_code;
    let too_long = ErrorCode::INVALID_TRANSACTION_TIMEOUT;
    same("a time-out over 15 minutes", error, too_long)?;
    long.transaction_timeout_ms = 0;
    same(
        "a time-out of 0",
        client.ask(4, &long)?.error_code,
        too_long,
    )?;
    let mut stale = init_request(&id);
    (stale.producer_id, stale.producer_epoch) = (first.producer, 2);
    let error = client.ask(3, &stale)?.error_code;
    same("an old epoch, v3", error, ErrorCode::INVALID_PRODUCER_EPOCH)?;
    let error = client.ask(4, &stale)?.error_code;
    same("an old epoch, v4", error, ErrorCode::PRODUCER_FENCED)?;
    stale.producer_id += 1_000_000;
    let error = client.ask(4, &stale)?.error_code;
    same(
        "someone else's producer id",
        error,
        ErrorCode::PRODUCER_FENCED,
    )?;
    // KIP-360: who has the current epoch goes on, also when the answer was lost.
    let mut current = init_request(&id);
    (current.producer_id, current.producer_epoch) = (first.producer, 6);
    for what in ["going on", "going on once more"] {
        let answer = client.ask(4, &current)?;
        same(what, answer.error_code, ErrorCode::NONE)?;
        same(what, answer.producer_epoch, 7)?;
    }
    Ok(())
}

fn new_instance(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let mut old = Producer::new(client)?;
    old.stored(client, &topic)?;
    let answer = client.ask(5, &init_request(&old.id))?;
    let wait = ErrorCode::CONCURRENT_TRANSACTIONS;
    same("while one is open", answer.error_code, wait)?;
    let new = settled(client, 5, &init_request(&old.id))?;
    same("the new instance", new.error_code, ErrorCode::NONE)?;
    same("its epoch", new.producer_epoch, old.epoch + 2)?;
    let fenced = ErrorCode::PRODUCER_FENCED;
    let place = [(topic.name.as_str(), vec![0])];
    same(
        "the old one adds, v3",
        old.add(client, 3, &place)?,
        vec![fenced],
    )?;
    let late = ErrorCode::INVALID_PRODUCER_EPOCH;
    same(
        "the old one adds, v1",
        old.add(client, 1, &place)?,
        vec![late],
    )?;
    same(
        "the old one produces",
        old.produce(client, 12, &topic)?.0,
        late,
    )?;
    let error = client.ask(5, &old.end_request(true))?.error_code;
    same("the old one commits", error, fenced)?;
    let error = client.ask(1, &old.end_request(true))?.error_code;
    same("the old one commits, v1", error, late)
}

fn not_added(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let mut producer = Producer::new(client)?;
    let (error, _) = producer.produce(client, 10, &topic)?;
    same("v10", error, ErrorCode::INVALID_TXN_STATE)?;
    let (error, _) = producer.produce(client, 11, &topic)?;
    same("v11", error, ErrorCode::TRANSACTION_ABORTABLE)?;
    let place = [(topic.name.as_str(), vec![0])];
    let added = producer.add(client, 3, &place)?;
    same("adding", added, vec![ErrorCode::NONE])?;
    let answer = producer.produce(client, 11, &topic)?;
    same("v11, added", answer, (ErrorCode::NONE, 0))?;
    let end = client.ask(4, &producer.end_request(false))?;
    same("aborting", end.error_code, ErrorCode::NONE)?;
    let other = client.topic(1)?;
    let mut implicit = Producer::new(client)?;
    let answer = implicit.produce(client, 12, &other)?;
    same("v12", answer, (ErrorCode::NONE, 0))?;
    implicit.end(client, true)
}

fn empty(client: &mut Client<'_>) -> Outcome {
    let producer = Producer::new(client)?;
    let error = client.ask(5, &producer.end_request(true))?.error_code;
    same("a commit of nothing", error, ErrorCode::INVALID_TXN_STATE)?;
    let answer = client.ask(5, &producer.end_request(false))?;
    same("an abort of nothing", answer.error_code, ErrorCode::NONE)?;
    let made = (answer.producer_id, answer.producer_epoch);
    same(
        "its producer",
        made,
        (producer.producer, producer.epoch + 1),
    )?;
    let other = Producer::new(client)?;
    let error = client.ask(4, &other.end_request(false))?;
    let refused = ErrorCode::INVALID_TXN_STATE;
    same("an abort of nothing, v4", error.error_code, refused)
}

fn end_again(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    for commit in [true, false] {
        let mut producer = Producer::new(client)?;
        producer.stored(client, &topic)?;
        let request = producer.end_request(commit);
        producer.end(client, commit)?;
        same("the next epoch", producer.epoch, request.producer_epoch + 1)?;
        let answer = ended(client, 5, &request)?;
        same("the end again", answer.error_code, ErrorCode::NONE)?;
        let made = (answer.producer_id, answer.producer_epoch);
        same("its answer", made, (producer.producer, producer.epoch))?;
        let mut other = request;
        other.committed = !commit;
        let error = client.ask(5, &other)?.error_code;
        same("the other way", error, ErrorCode::INVALID_TXN_STATE)?;
    }
    Ok(())
}

fn version_one(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let place = [(topic.name.as_str(), vec![0])];
    for version in 0..=4 {
        let mut producer = Producer::new(client)?;
        let added = producer.add(client, version.min(3), &place)?;
        same("adding", added, vec![ErrorCode::NONE])?;
        let (error, _) = producer.produce(client, 9, &topic)?;
        same("producing", error, ErrorCode::NONE)?;
        let request = producer.end_request(true);
        let answer = client.ask(version, &request)?;
        same("committing", answer.error_code, ErrorCode::NONE)?;
        let answer = ended(client, version, &request)?;
        same("committing again", answer.error_code, ErrorCode::NONE)?;
        let mut abort = request;
        abort.committed = false;
        let error = client.ask(version, &abort)?.error_code;
        same("aborting", error, ErrorCode::INVALID_TXN_STATE)?;
        // The epoch stays: the next transaction has the same one.
        let added = producer.add(client, version.min(3), &place)?;
        same("the next transaction", added, vec![ErrorCode::NONE])?;
        let answer = client.ask(version, &producer.end_request(false))?;
        same("its abort", answer.error_code, ErrorCode::NONE)?;
    }
    Ok(())
}

fn strangers(client: &mut Client<'_>) -> Outcome {
    let producer = Producer::new(client)?;
    let unknown = ErrorCode::INVALID_PRODUCER_ID_MAPPING;
    let mut request = producer.end_request(false);
    request.producer_id += 1_000_000;
    for version in [4, 5] {
        let error = client.ask(version, &request)?.error_code;
        same("someone else's producer id", error, unknown)?;
    }
    request.transactional_id = client.name();
    for _ in 0..100 {
        let error = client.ask(5, &request)?.error_code;
        if error != ErrorCode::NOT_COORDINATOR {
            return same("an id that nobody has", error, unknown);
        }
    }
    Ok(())
}

fn committed(topic: &Topic, from: i64) -> FetchRequest {
    FetchRequest {
        isolation_level: 1,
        ..fetch::request(12, topic, from)
    }
}

fn open(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let now = client.broker().wall_ms();
    produce::stored(client, 12, &topic, crate::records::numbered(now, 2))?;
    let mut producer = Producer::new(client)?;
    let first = producer.stored(client, &topic)?;
    same("the first offset", first, 2)?;
    let part = fetch::ask(client, 12, &committed(&topic, 2))?;
    same("the last stable offset", part.last_stable_offset, 2)?;
    let records = part.records.unwrap_or_default();
    holds(records.is_empty(), || "open records were read".to_owned())?;
    let latest =
        |client: &mut Client<'_>, isolation_level| offsets::latest(client, &topic, isolation_level);
    same("the latest offset, read committed", latest(client, 1)?, 2)?;
    same("the latest offset", latest(client, 0)?, 3)?;
    let part = fetch::one(client, 12, &topic, 2)?;
    same("read uncommitted", part.aborted_transactions, None)?;
    let read = Batches(part.records.unwrap_or_default()).offsets()?;
    same("read uncommitted", read, vec![2])?;
    producer.end(client, true)?;
    let part = until_stable(client, &topic, 2, 4)?;
    let aborted = part.aborted_transactions.map(|a| a.len());
    same("nothing was aborted", aborted, Some(0))?;
    let read = Batches(part.records.unwrap_or_default());
    same("the record and its marker", read.offsets()?, vec![2, 3])
}

/// Reads committed from an offset, once everything before `end` is stable.
fn until_stable(
    client: &mut Client<'_>,
    topic: &Topic,
    from: i64,
    end: i64,
) -> Outcome<riverlog_wire::messages::fetch_response::PartitionData> {
    for _ in 0..100 {
        let part = fetch::ask(client, 12, &committed(topic, from))?;
        if part.last_stable_offset >= end {
            return Ok(part);
        }
        client.broker().pass(Duration::from_millis(50));
    }
    Err(format!("the last stable offset isn't {end} after 5 s").into())
}

fn aborted(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let mut producer = Producer::new(client)?;
    let (id, epoch) = (producer.producer, producer.epoch);
    producer.stored(client, &topic)?;
    producer.stored(client, &topic)?;
    producer.end(client, false)?;
    let part = until_stable(client, &topic, 0, 3)?;
    let list = part.aborted_transactions.unwrap_or_default();
    let list: Vec<(i64, i64)> = list
        .iter()
        .map(|a| (a.producer_id, a.first_offset))
        .collect();
    same("what was aborted", list, vec![(id, 0)])?;
    let (stable, high) = (part.last_stable_offset, part.high_watermark);
    same("stable up to", (stable, high), (3, 3))?;
    let read = Batches(part.records.unwrap_or_default());
    let batches = read.batches()?;
    let Some(marker) = batches.last() else {
        return Err("no marker was read".to_owned().into());
    };
    let attributes = marker.header.attributes;
    holds(
        attributes.is_control() && attributes.is_transactional(),
        || "the last batch is no marker".to_owned(),
    )?;
    let of = (marker.header.producer_id.0, marker.header.producer_epoch.0);
    same("the marker's producer", of, (id, epoch + 1))
}

fn all_or_none(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(2)?;
    let producer = Producer::new(client)?;
    let ghost = client.name();
    let places = [
        (topic.name.as_str(), vec![0, 1, 2]),
        (ghost.as_str(), vec![0]),
    ];
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    let not = ErrorCode::OPERATION_NOT_ATTEMPTED;
    for version in 0..=3 {
        let errors = producer.add(client, version, &places)?;
        same("some are unknown", errors, vec![not, not, unknown, unknown])?;
    }
    let request = DescribeTransactionsRequest {
        transactional_ids: vec![producer.id.clone()],
    };
    let described = client.ask(0, &request)?.transaction_states;
    let described = only("transactions", described)?;
    same("state", described.transaction_state.as_str(), "Empty")
}

fn batched(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(2)?;
    let (one, two) = (Producer::new(client)?, Producer::new(client)?);
    let part = |of: &Producer, verify_only, partitions| AddPartitionsToTxnTransaction {
        transactional_id: of.id.clone(),
        producer_id: of.producer,
        producer_epoch: of.epoch,
        verify_only,
        topics: topics(&[(topic.name.as_str(), partitions)]),
    };
    let ask = |client: &mut Client<'_>, version, transactions| {
        let request = AddPartitionsToTxnRequest {
            transactions,
            ..AddPartitionsToTxnRequest::default()
        };
        let answer = client.ask(version, &request)?;
        same("the answer's error", answer.error_code, ErrorCode::NONE)?;
        let mut errors = Vec::new();
        for of in [&one, &two] {
            let results = answer.results_by_transaction.iter();
            let mine = results.filter(|r| r.transactional_id == of.id);
            let partitions = mine.flat_map(|r| &r.topic_results);
            let partitions = partitions.flat_map(|t| &t.results_by_partition);
            let mut found: Vec<_> = partitions.collect();
            found.sort_by_key(|p| p.partition_index);
            errors.extend(found.iter().map(|p| p.partition_error_code));
        }
        Outcome::Ok(errors)
    };
    let (none, abort) = (ErrorCode::NONE, ErrorCode::TRANSACTION_ABORTABLE);
    let asked = vec![part(&one, false, vec![0]), part(&two, true, vec![0])];
    let errors = ask(client, 4, asked)?;
    same("one adds, two verifies, v4", errors, vec![none, abort])?;
    let asked = vec![part(&one, true, vec![0, 1]), part(&two, true, vec![1])];
    let errors = ask(client, 5, asked)?;
    same("both verify, v5", errors, vec![none, abort, abort])?;
    let ended = client.ask(5, &one.end_request(false))?;
    same("aborting", ended.error_code, none)
}

pub(super) fn commit_request(
    producer: &Producer,
    group: &str,
    topic: &Topic,
    version: i16,
) -> TxnOffsetCommitRequest {
    let by_id = version >= 6;
    TxnOffsetCommitRequest {
        transactional_id: producer.id.clone(),
        group_id: group.to_owned(),
        producer_id: producer.producer,
        producer_epoch: producer.epoch,
        generation_id_or_member_epoch: -1,
        topics: vec![TxnOffsetCommitRequestTopic {
            name: if by_id {
                String::new()
            } else {
                topic.name.clone()
            },
            topic_id: if by_id { topic.id } else { TopicId::ZERO },
            partitions: vec![TxnOffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: 7,
                committed_leader_epoch: -1,
                committed_metadata: Some(String::new()),
            }],
        }],
        ..TxnOffsetCommitRequest::default()
    }
}

pub(super) fn commit(
    client: &mut Client<'_>,
    version: i16,
    request: &TxnOffsetCommitRequest,
) -> Outcome<ErrorCode> {
    let answer = client.ask(version, request)?;
    let topic = only("topics", answer.topics)?;
    Ok(only("partitions", topic.partitions)?.error_code)
}

fn offset_errors(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let group = client.group()?;
    let producer = Producer::new(client)?;
    let mut request = commit_request(&producer, &group, &topic, 5);
    request.generation_id_or_member_epoch = 3;
    let error = commit(client, 5, &request)?;
    same(
        "a generation of no group",
        error,
        ErrorCode::ILLEGAL_GENERATION,
    )?;
    let mut request = commit_request(&producer, &group, &topic, 6);
    request.generation_id_or_member_epoch = 3;
    let error = commit(client, 6, &request)?;
    same("no such group, v6", error, ErrorCode::GROUP_ID_NOT_FOUND)?;
    let mut request = commit_request(&producer, &group, &topic, 6);
    for topic in &mut request.topics {
        topic.topic_id = TopicId([7; 16]);
    }
    let error = commit(client, 6, &request)?;
    same("no such topic, v6", error, ErrorCode::UNKNOWN_TOPIC_ID)?;
    // A commit of version 2 adds the group's partition even when the group then refuses it.
    let producer = Producer::new(client)?;
    let mut request = commit_request(&producer, &group, &topic, 4);
    for version in [3, 4] {
        let error = commit(client, version, &request)?;
        let expected = match version {
            4 => ErrorCode::TRANSACTION_ABORTABLE,
            _ => ErrorCode::INVALID_TXN_STATE,
        };
        same("a group that wasn't added", error, expected)?;
    }
    request.producer_epoch += 1;
    let error = commit(client, 5, &request)?;
    same("an epoch to come", error, ErrorCode::INVALID_PRODUCER_EPOCH)
}

/// What a group has committed for the first partition.
pub(super) fn committed_offset(
    client: &mut Client<'_>,
    group: &str,
    topic: &Topic,
    stable: bool,
) -> Outcome<(ErrorCode, i64)> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.to_owned(),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: topic.name.clone(),
                partition_indexes: vec![0],
                ..OffsetFetchRequestTopics::default()
            }]),
            member_epoch: -1,
            ..OffsetFetchRequestGroup::default()
        }],
        require_stable: stable,
        ..OffsetFetchRequest::default()
    };
    let group = only("groups", client.ask(9, &request)?.groups)?;
    let topic = only("topics", group.topics)?;
    let partition = only("partitions", topic.partitions)?;
    Ok((partition.error_code, partition.committed_offset))
}

fn pending_offsets(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let group = client.group()?;
    let before = OffsetCommitRequest {
        group_id: group.clone(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.name.clone(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: 3,
                committed_leader_epoch: -1,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    client.ask(8, &before)?;
    let look = |client: &mut Client<'_>, stable| committed_offset(client, &group, &topic, stable);
    for (commits, after) in [(false, 3), (true, 7)] {
        let mut producer = Producer::new(client)?;
        let request = commit_request(&producer, &group, &topic, 5);
        let error = commit(client, 5, &request)?;
        same("committing", error, ErrorCode::NONE)?;
        same("while open", look(client, false)?, (ErrorCode::NONE, 3))?;
        let (error, _) = look(client, true)?;
        let unstable = ErrorCode::UNSTABLE_OFFSET_COMMIT;
        same("while open, stable", error, unstable)?;
        producer.end(client, commits)?;
        let mut seen = look(client, true)?;
        for _ in 0..100 {
            if seen.0 != unstable {
                break;
            }
            client.broker().pass(Duration::from_millis(50));
            seen = look(client, true)?;
        }
        same("afterwards", seen, (ErrorCode::NONE, after))?;
    }
    Ok(())
}

fn timed_out(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(1)?;
    let id = client.name();
    let mut request = init_request(&id);
    request.transaction_timeout_ms = 1_000;
    let answer = settled(client, 5, &request)?;
    let mut producer = Producer {
        id,
        producer: answer.producer_id,
        epoch: answer.producer_epoch,
        sequence: 0,
    };
    producer.stored(client, &topic)?;
    // Kafka looks every ten seconds.
    client.broker().pass(Duration::from_secs(13));
    let part = until_stable(client, &topic, 0, 2)?;
    let aborted = part.aborted_transactions.map(|a| a.len());
    same("aborted", aborted, Some(1))?;
    let (error, _) = producer.produce(client, 12, &topic)?;
    let late = ErrorCode::INVALID_PRODUCER_EPOCH;
    same("it goes on", error, late)?;
    let error = client.ask(5, &producer.end_request(true))?.error_code;
    holds(
        error == ErrorCode::PRODUCER_FENCED || error == ErrorCode::INVALID_TXN_STATE,
        || format!("it commits: {error:?}"),
    )
}

fn looked_at(client: &mut Client<'_>) -> Outcome {
    let topic = client.topic(2)?;
    let mut producer = Producer::new(client)?;
    producer.stored(client, &topic)?;
    let ghost = client.name();
    let request = DescribeTransactionsRequest {
        transactional_ids: vec![producer.id.clone(), ghost],
    };
    let states = client.ask(0, &request)?.transaction_states;
    let found = states.iter().find(|s| s.transactional_id == producer.id);
    let Some(found) = found else {
        return Err("the transaction isn't described".to_owned().into());
    };
    same("error", found.error_code, ErrorCode::NONE)?;
    same("state", found.transaction_state.as_str(), "Ongoing")?;
    same("time-out", found.transaction_timeout_ms, 60_000)?;
    let of = (found.producer_id, found.producer_epoch);
    same("producer", of, (producer.producer, producer.epoch))?;
    let touched = found.topics.iter().map(|t| (&t.topic, &t.partitions));
    let touched: Vec<_> = touched.collect();
    same("partitions", touched, vec![(&topic.name, &vec![0])])?;
    let missing = states.iter().find(|s| s.transactional_id != producer.id);
    let missing = missing.map(|s| s.error_code);
    let unknown = ErrorCode::TRANSACTIONAL_ID_NOT_FOUND;
    same("nobody's", missing, Some(unknown))?;

    let list = |client: &mut Client<'_>, version, request: &ListTransactionsRequest| {
        let answer = client.ask(version, request)?;
        let all = answer.transaction_states.into_iter();
        let mine = all.filter(|t| t.transactional_id == producer.id);
        let count = mine.count();
        Outcome::Ok((answer.error_code, answer.unknown_state_filters, count))
    };
    let base = ListTransactionsRequest {
        duration_filter: -1,
        ..ListTransactionsRequest::default()
    };
    let listed = |count| (ErrorCode::NONE, Vec::new(), count);
    for version in 0..=2 {
        same("all", list(client, version, &base)?, listed(1))?;
    }
    let with = |change: fn(&mut ListTransactionsRequest)| {
        let mut request = base.clone();
        change(&mut request);
        request
    };
    let request = with(|r| r.state_filters = vec!["Ongoing".to_owned(), "Nonsense".to_owned()]);
    let unknown = vec!["Nonsense".to_owned()];
    let expected = (ErrorCode::NONE, unknown, 1);
    same("by state", list(client, 0, &request)?, expected)?;
    let request = with(|r| r.state_filters = vec!["Empty".to_owned()]);
    same("by another state", list(client, 0, &request)?, listed(0))?;
    let mut request = base.clone();
    request.producer_id_filters = vec![producer.producer];
    same("by producer", list(client, 0, &request)?, listed(1))?;
    request.producer_id_filters = vec![producer.producer + 1_000_000];
    same("by another producer", list(client, 0, &request)?, listed(0))?;
    let request = with(|r| r.duration_filter = 3_600_000);
    same("for an hour", list(client, 1, &request)?, listed(0))?;
    let mut request = base.clone();
    request.transactional_id_pattern = Some(format!("{}.?", producer.id));
    same("by pattern", list(client, 2, &request)?, listed(1))?;
    request.transactional_id_pattern = Some("nothing.*".to_owned());
    same("by another pattern", list(client, 2, &request)?, listed(0))?;
    request.transactional_id_pattern = Some("(".to_owned());
    let (error, ..) = list(client, 2, &request)?;
    let broken = ErrorCode::INVALID_REGULAR_EXPRESSION;
    same("a broken pattern", error, broken)?;
    producer.end(client, false)
}
