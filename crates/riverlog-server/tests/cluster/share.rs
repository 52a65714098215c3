//! Members of a share group on a cluster whose nodes are killed.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use riverlog_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use riverlog_wire::messages::share_fetch_request::{FetchPartition, FetchTopic};
use riverlog_wire::messages::{
    FindCoordinatorRequest, IncrementalAlterConfigsRequest, MetadataRequest, Request,
    ShareAcknowledgeRequest, ShareFetchRequest,
};
use riverlog_wire::{ErrorCode, TopicId, frame};

use crate::common::{eventually, try_answer, try_ask};
use crate::trio::{Trio, Writers, find_leader, has_topic};

const GROUP: &str = "sharers";
/// How long one request may take; a member goes on over another connection then.
const REQUEST: Duration = Duration::from_secs(8);

/// A record by partition and offset.
type Spot = (i32, i64);

#[derive(Default)]
struct Seen {
    /// Whoever accepted them was told that it holds.
    accepted: BTreeSet<Spot>,
    /// Accepted without an answer.
    perhaps: BTreeSet<Spot>,
    /// Given out after they were accepted.
    again: Vec<Spot>,
    most: i16,
}

/// Members that accept what they get, one for each partition, each on its own connection.
struct Sharers {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sharers {
    fn start(places: &[String], topic: &str, id: TopicId, partitions: i32) -> Sharers {
        let (seen, stop) = (
            Arc::<Mutex<Seen>>::default(),
            Arc::new(AtomicBool::new(false)),
        );
        let member = |partition| {
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            let (places, topic) = (places.to_vec(), topic.to_owned());
            std::thread::spawn(move || {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Some(place) = find_leader(&places, &topic, partition, number)
                        && let Ok(stream) = TcpStream::connect(&place)
                    {
                        let _ended = share(stream, (id, partition), &seen, &stop);
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            })
        };
        Sharers {
            threads: (0..partitions).map(member).collect(),
            seen,
            stop,
        }
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().accepted.len()
    }

    fn go_on(&self) {
        let before = self.count();
        assert!(eventually(|| self.count() > before + 60), "from {before}");
    }

    fn has_all(&self, stored: &BTreeSet<Spot>) -> bool {
        let seen = self.seen.lock().unwrap();
        let mut left = stored.difference(&seen.accepted);
        left.all(|spot| seen.perhaps.contains(spot))
    }

    fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

fn ask<R: Request>(stream: &mut TcpStream, version: i16, request: &R) -> Option<R::Response> {
    let mut out = Vec::new();
    frame::encode_request(&mut out, version, 7, Some("sharer"), request).unwrap();
    stream.write_all(&out).ok()?;
    try_answer::<R>(stream, version).ok()
}

/// Acquires and accepts over one connection, until it breaks or something is refused.
fn share(
    mut stream: TcpStream,
    (topic_id, partition): (TopicId, i32),
    seen: &Mutex<Seen>,
    stop: &AtomicBool,
) -> Option<()> {
    stream.set_read_timeout(Some(REQUEST)).ok()?;
    let (group_id, member_id) = (Some(GROUP.to_owned()), Some(format!("m{partition}")));
    let mut epoch = 0;
    while !stop.load(Ordering::Relaxed) {
        let fetch = ShareFetchRequest {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
            share_session_epoch: epoch,
            max_wait_ms: 300,
            max_bytes: 1 << 20,
            max_records: 20,
            batch_size: 20,
            topics: vec![FetchTopic {
                topic_id,
                partitions: vec![FetchPartition {
                    partition_index: partition,
                    ..FetchPartition::default()
                }],
            }],
            ..ShareFetchRequest::default()
        };
        let answer = ask(&mut stream, 1, &fetch)?;
        epoch += 1;
        if answer.error_code != ErrorCode::NONE {
            return None;
        }
        let parts: Vec<_> = answer
            .responses
            .into_iter()
            .flat_map(|t| t.partitions)
            .collect();
        if parts.iter().any(|p| p.error_code != ErrorCode::NONE) {
            return None;
        }
        let mut batches = Vec::new();
        let mut spots = Vec::new();
        for range in parts.into_iter().flat_map(|p| p.acquired_records) {
            let mut seen = seen.lock().unwrap();
            seen.most = seen.most.max(range.delivery_count);
            for at in range.first_offset..=range.last_offset {
                if seen.accepted.contains(&(partition, at)) {
                    seen.again.push((partition, at));
                }
                spots.push((partition, at));
            }
            batches.push(AcknowledgementBatch {
                first_offset: range.first_offset,
                last_offset: range.last_offset,
                acknowledge_types: vec![1],
            });
        }
        if spots.is_empty() {
            continue;
        }
        seen.lock().unwrap().perhaps.extend(&spots);
        let acknowledge = ShareAcknowledgeRequest {
            group_id: group_id.clone(),
            member_id: member_id.clone(),
            share_session_epoch: epoch,
            topics: vec![AcknowledgeTopic {
                topic_id,
                partitions: vec![AcknowledgePartition {
                    partition_index: partition,
                    acknowledgement_batches: batches,
                }],
            }],
            ..ShareAcknowledgeRequest::default()
        };
        let answer = ask(&mut stream, 1, &acknowledge)?;
        epoch += 1;
        let error = answer.responses.first()?.partitions.first()?.error_code;
        if answer.error_code != ErrorCode::NONE || error != ErrorCode::NONE {
            return None;
        }
        seen.lock().unwrap().accepted.extend(spots);
    }
    Some(())
}

pub(crate) fn id_of(place: &str, topic: &str) -> TopicId {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(topic.to_owned()),
            ..MetadataRequestTopic::default()
        }]),
        ..MetadataRequest::default()
    };
    // The first version with ids is 10.
    let answer = try_ask(place, 12, &request, REQUEST).unwrap();
    answer.topics[0].topic_id
}

/// The node that keeps what the group has done with a partition.
fn coordinator(trio: &Trio, topic: TopicId, partition: i32) -> usize {
    let request = FindCoordinatorRequest {
        key_type: 2,
        coordinator_keys: vec![format!("{GROUP}:{topic}:{partition}")],
        ..FindCoordinatorRequest::default()
    };
    let mut found = -1;
    assert!(eventually(|| {
        let up = trio.up();
        let answer = try_ask(&up[0].kafka, 6, &request, REQUEST);
        found = answer.map_or(-1, |a| a.coordinators[0].node_id);
        found > 0
    }));
    usize::try_from(found).unwrap()
}

#[test]
fn what_a_share_group_has_accepted_never_comes_again_whoever_is_killed() {
    let mut trio = Trio::form();
    let least = "min.insync.replicas=2";
    let make = ["topic", "create", "t", "-p", "3", "-r", "3", "-c", least];
    assert!(eventually(
        || trio.run(&make).status.success() || has_topic(trio.up()[0], "t")
    ));
    trio.in_sync("t");
    let id = id_of(&trio.places[0], "t");
    let earliest = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 32,
            resource_name: GROUP.to_owned(),
            configs: vec![AlterableConfig {
                name: "share.auto.offset.reset".to_owned(),
                config_operation: 0,
                value: Some("earliest".to_owned()),
            }],
        }],
        validate_only: false,
    };
    assert!(eventually(|| {
        let answer = try_ask(&trio.places[0], 1, &earliest, REQUEST);
        answer.is_ok_and(|a| a.responses[0].error_code == ErrorCode::NONE)
    }));
    let writers = Writers::start(&trio.places, "t", 3);
    let sharers = Sharers::start(&trio.places, "t", id, 3);
    sharers.go_on();

    let lose = |trio: &mut Trio, node: usize| {
        trio.kill(node);
        sharers.go_on();
        trio.start(node);
        trio.in_sync("t");
        trio.in_sync("__share_group_state");
        sharers.go_on();
    };
    let leader = usize::try_from(trio.in_sync("t")[0].leader_id).unwrap();
    lose(&mut trio, leader);
    let keeps = coordinator(&trio, id, 0);
    lose(&mut trio, keeps);
    trio.kill_all();
    for node in 1..=3 {
        trio.start(node);
    }
    trio.in_sync("t");
    sharers.go_on();

    let stored = writers.stop();
    let all = eventually(|| sharers.has_all(&stored));
    let seen = sharers.stop();
    assert!(all, "some never came");
    assert!(seen.again.is_empty(), "{:?}", seen.again);
    assert!(seen.most <= 5, "{}", seen.most);
}
