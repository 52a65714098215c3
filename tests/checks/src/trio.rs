//! Several brokers that are one cluster, whose processes can be frozen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use riverlog_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverlog_wire::messages::describe_quorum_request::{PartitionData, TopicData};
use riverlog_wire::messages::elect_leaders_request::TopicPartitions;
use riverlog_wire::messages::metadata_request::MetadataRequestTopic;
use riverlog_wire::messages::{
    AlterPartitionReassignmentsRequest, CreateTopicsRequest, DescribeQuorumRequest,
    ElectLeadersRequest, MetadataRequest,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::{Client, Failure, Outcome, Topic, holds, only, same};
use crate::tcp::TcpBroker;
use crate::wire::Broker as _;

/// Until a cluster is as it has to be: Kafka fences a silent broker after nine seconds.
const SETTLED: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// A cluster, and names of a check's own.
pub struct Cluster {
    addresses: Vec<String>,
    brokers: BTreeMap<i32, TcpBroker>,
    /// By port.
    processes: BTreeMap<i32, i32>,
    ports: BTreeMap<i32, i32>,
    prefix: String,
    named: u32,
}

/// A partition as one broker tells it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) leader: i32,
    pub(crate) epoch: i32,
    pub(crate) replicas: Vec<i32>,
    pub(crate) isr: Vec<i32>,
    /// Partitions that the topic has.
    pub(crate) partitions: i32,
}

impl Cluster {
    /// The cluster behind `HOST:PORT,…`; `processes` are `PID@PORT,…`, and empty when nobody may be frozen.
    pub fn new(bootstrap: &str, processes: &str, prefix: String) -> Outcome<Cluster> {
        let addresses: Vec<String> = bootstrap.split(',').map(str::to_owned).collect();
        let pair = |text: &str| -> Option<(i32, i32)> {
            let (pid, port) = text.split_once('@')?;
            Some((port.parse().ok()?, pid.parse().ok()?))
        };
        let mut cluster = Cluster {
            processes: processes.split(',').filter_map(pair).collect(),
            addresses,
            brokers: BTreeMap::new(),
            ports: BTreeMap::new(),
            prefix,
            named: 0,
        };
        let end = Instant::now() + SETTLED;
        while let Err(why) = cluster.find() {
            if Instant::now() > end {
                return Err(why);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(cluster)
    }

    /// Learns of its nodes; one that was frozen may still be missing.
    fn find(&mut self) -> Outcome {
        let first = self.addresses.first().ok_or("no address".to_owned())?;
        let mut first = TcpBroker::new(first);
        let request = MetadataRequest {
            topics: Some(Vec::new()),
            ..MetadataRequest::default()
        };
        let answer = Client::new(&mut first, String::new())?.ask(9, &request)?;
        for broker in answer.brokers {
            let address = format!("{}:{}", broker.host, broker.port);
            self.ports.insert(broker.node_id, broker.port);
            self.brokers.insert(broker.node_id, TcpBroker::new(address));
        }
        holds(self.brokers.len() == self.addresses.len(), || {
            let (here, all) = (self.brokers.len(), self.addresses.len());
            format!("{here} of {all} brokers are there")
        })
    }

    pub(crate) fn nodes(&self) -> Vec<i32> {
        self.brokers.keys().copied().collect()
    }

    pub(crate) fn port(&self, node: i32) -> Option<i32> {
        self.ports.get(&node).copied()
    }

    pub(crate) fn name(&mut self) -> String {
        self.named += 1;
        format!("{}-{}", self.prefix, self.named)
    }

    /// A client of one node.
    pub(crate) fn at(&mut self, node: i32) -> Outcome<Client<'_>> {
        let prefix = self.name();
        let broker = self.brokers.get_mut(&node);
        Client::new(broker.ok_or(format!("no node {node}"))?, prefix)
    }

    /// Who leads the metadata quorum.
    pub(crate) fn controller(&mut self) -> Outcome<i32> {
        let request = DescribeQuorumRequest {
            topics: vec![TopicData {
                topic_name: "__cluster_metadata".to_owned(),
                partitions: vec![PartitionData { partition_index: 0 }],
            }],
        };
        let any = self.nodes()[0];
        let answer = self.at(any)?.ask(1, &request)?;
        let topic = only("topics", answer.topics)?;
        Ok(only("partitions", topic.partitions)?.leader_id)
    }

    /// One partition of a topic as a node tells it.
    pub(crate) fn view(&mut self, by: i32, topic: &str, partition: i32) -> Outcome<View> {
        let request = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(topic.to_owned()),
                ..MetadataRequestTopic::default()
            }]),
            ..MetadataRequest::default()
        };
        let topic = only("topics", self.at(by)?.ask(9, &request)?.topics)?;
        let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        let mut each = topic.partitions.into_iter();
        let found = each.find(|p| p.partition_index == partition);
        let found = found.ok_or(format!("{:?} isn't there", topic.name))?;
        Ok(View {
            leader: found.leader_id,
            epoch: found.leader_epoch,
            replicas: found.replica_nodes,
            isr: found.isr_nodes,
            partitions,
        })
    }

    /// What a node tells once it is so.
    pub(crate) fn until(
        &mut self,
        by: i32,
        topic: &str,
        partition: i32,
        what: &str,
        is: impl Fn(&View) -> bool,
    ) -> Outcome<View> {
        let end = Instant::now() + SETTLED;
        loop {
            let view = self.view(by, topic, partition);
            match view {
                Ok(view) if is(&view) => return Ok(view),
                view if Instant::now() > end => {
                    let why = format!("{what}: not after {SETTLED:?}, but {view:?}");
                    return Err(why.into());
                }
                _ => std::thread::sleep(PAUSE),
            }
        }
    }

    /// A topic of one partition with three copies, all in sync, as all nodes know.
    pub(crate) fn topic(&mut self, configs: &[(&str, &str)]) -> Outcome<Topic> {
        let name = self.name();
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: name.clone(),
                num_partitions: 1,
                replication_factor: 3,
                configs: configs.collect(),
                ..CreatableTopic::default()
            }],
            timeout_ms: 10_000,
            ..CreateTopicsRequest::default()
        };
        let any = self.nodes()[0];
        let created = only("topics", self.at(any)?.ask(7, &request)?.topics)?;
        same("creating", created.error_code, ErrorCode::NONE)?;
        for node in self.nodes() {
            self.until(node, &name, 0, "three in sync", |view| {
                view.leader >= 0 && view.isr.len() == 3
            })?;
        }
        let topic = Topic {
            name,
            id: created.topic_id,
        };
        let leader = self.view(any, &topic.name, 0)?.leader;
        // Kafka tells of a topic a moment before its leaders know that they are.
        self.at(leader)?.until_led(&topic)?;
        Ok(topic)
    }

    /// Makes another replica the leader; what all nodes tell afterwards.
    pub(crate) fn lead(&mut self, topic: &str, partition: i32, to: i32) -> Outcome<View> {
        let any = self.nodes()[0];
        let view = self.view(any, topic, partition)?;
        let mut replicas = view.replicas.clone();
        replicas.retain(|replica| *replica != to);
        replicas.insert(0, to);
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: 10_000,
            topics: vec![ReassignableTopic {
                name: topic.to_owned(),
                partitions: vec![ReassignablePartition {
                    partition_index: partition,
                    replicas: Some(replicas.clone()),
                }],
            }],
            ..AlterPartitionReassignmentsRequest::default()
        };
        let answer = self.at(any)?.ask(0, &request)?;
        let answer = only("topics", answer.responses)?;
        let answer = only("partitions", answer.partitions)?;
        same("reordering", answer.error_code, ErrorCode::NONE)?;
        self.until(any, topic, partition, "another order", |view| {
            view.replicas == replicas
        })?;
        let request = ElectLeadersRequest {
            election_type: 0,
            topic_partitions: Some(vec![TopicPartitions {
                topic: topic.to_owned(),
                partitions: vec![partition],
            }]),
            timeout_ms: 10_000,
        };
        let answer = self.at(any)?.ask(2, &request)?;
        same("electing", answer.error_code, ErrorCode::NONE)?;
        let mut last = view;
        for node in self.nodes() {
            last = self.until(node, topic, partition, "another leader", |view| {
                view.leader == to
            })?;
        }
        Ok(last)
    }

    /// What `act` comes to while a node's process stands still.
    pub(crate) fn frozen<T>(
        &mut self,
        node: i32,
        act: impl FnOnce(&mut Cluster) -> Outcome<T>,
    ) -> Outcome<T> {
        let port = self.port(node);
        let pid = port.and_then(|port| self.processes.get(&port));
        let pid = pid.and_then(|pid| Pid::from_raw(*pid));
        let Some(pid) = pid else {
            let why = "BROKER_PIDS doesn't name the brokers' processes (PID@PORT,…)";
            return Err(Failure::Skip(why.to_owned()));
        };
        let send = |signal| kill_process(pid, signal).map_err(|e| format!("process {pid:?}: {e}"));
        send(Signal::STOP)?;
        // Its threads go on until one of them has taken the signal.
        let outcome = stands_still(pid).and_then(|()| act(self));
        send(Signal::CONT)?;
        outcome
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.brokers.values().next().map_or(0, |b| b.wall_ms())
    }
}

/// Waits until no thread of a process runs any more.
fn stands_still(pid: Pid) -> Outcome {
    let end = Instant::now() + SETTLED;
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let stopped = || -> std::io::Result<bool> {
        for task in std::fs::read_dir(&tasks)? {
            let stat = std::fs::read_to_string(task?.path().join("stat"))?;
            // The name before it may hold anything.
            let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
            if !after.starts_with('T') {
                return Ok(false);
            }
        }
        Ok(true)
    };
    while !stopped().map_err(|e| format!("{tasks}: {e}"))? {
        holds(Instant::now() < end, || format!("{tasks} go on"))?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
