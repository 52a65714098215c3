//! Stories of commands, a random history against its bytes, and bytes that nobody meant.

mod cluster;
mod configs;
mod departures;
mod detours;
mod fenced_lately;
mod random;
mod reassign;
mod record;
mod replicas;
mod topics;

use std::collections::BTreeMap;
use std::fmt::Write;

use expect_test::Expect;
use riverlog_wire::{BrokerId, Offset, TopicId};

use super::*;
use crate::Now;

/// A controller with its image; what it decides is applied at once.
struct World {
    image: MetadataImage,
    settings: ControllerSettings,
    said: String,
}

impl World {
    fn empty() -> World {
        World {
            image: MetadataImage::default(),
            settings: ControllerSettings {
                num_partitions: 1,
                replication_factor: None,
                node_configs: BTreeMap::new(),
                max_partitions_per_request: 100,
            },
            said: String::new(),
        }
    }

    /// With so many brokers, numbered from 1.
    fn with_brokers(n: i32) -> World {
        let mut world = World::empty();
        for id in 1..=n {
            world.apply(&register(id));
        }
        world
    }

    /// Decides and applies, through the bytes of the records.
    fn apply(&mut self, command: &AdminCommand) -> (Vec<MetadataRecord>, AdminAnswer) {
        let (records, answer) = decide(&self.image, &self.settings, command, Now::default());
        for record in &records {
            let read = MetadataRecord::decode(&record.encode());
            assert_eq!(read.as_ref(), Ok(&Some(record.clone())));
            let position = self.image.position + 1;
            self.image.apply(record, position);
        }
        (records, answer)
    }

    /// Applies, and notes answer and records.
    fn tell(&mut self, command: &AdminCommand) -> &mut World {
        let (records, answer) = self.apply(command);
        match answer {
            AdminAnswer::Results(results) => {
                for r in results {
                    let topic = r
                        .topic
                        .map(|t| format!(" {}", show_topic(&t)))
                        .unwrap_or_default();
                    let message = r.message.map(|m| format!(": {m}")).unwrap_or_default();
                    writeln!(self.said, "{}{topic}{message}", r.error.name()).unwrap();
                }
            }
            other => writeln!(self.said, "{other:?}").unwrap(),
        }
        for record in records {
            writeln!(self.said, "    {}", show_record(&record)).unwrap();
        }
        self
    }

    fn expect(&mut self, want: Expect) {
        want.assert_eq(&std::mem::take(&mut self.said));
    }
}

fn register(id: i32) -> AdminCommand {
    AdminCommand::Register {
        broker: broker(id),
        cluster_id: "Clusterid-0123456789AA".to_owned(),
    }
}

fn broker(id: i32) -> BrokerImage {
    BrokerImage {
        id: BrokerId(id),
        epoch: 0,
        listeners: vec![("PLAINTEXT".to_owned(), "localhost".to_owned(), 9092)],
        rack: None,
        fenced: false,
        stopping: false,
        ailing: false,
        incarnation: 0,
        disk: 0,
    }
}

/// An id that ends in `n`.
fn id(n: u8) -> TopicId {
    let mut bytes = [7; 16];
    bytes[15] = n;
    TopicId(bytes)
}

fn brokers(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

fn show_topic(topic: &TopicImage) -> String {
    let partitions: Vec<String> = topic.partitions.iter().map(show_partition).collect();
    let internal = if topic.internal { " internal" } else { "" };
    let configs = match topic.configs.is_empty() {
        true => String::new(),
        false => format!(" {:?}", topic.configs),
    };
    format!(
        "{}{internal} [{}]{configs}",
        topic.name,
        partitions.join(" ")
    )
}

fn show_partition(p: &PartitionImage) -> String {
    let ids = |ids: &[BrokerId]| {
        ids.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    let leader = p.leader.map_or("-".to_owned(), |l| l.to_string());
    let isr = match p.isr == p.replicas {
        true => String::new(),
        false => format!(" isr {}", ids(&p.isr)),
    };
    let epochs = match (p.leader_epoch.0, p.partition_epoch) {
        (0, 0) => String::new(),
        (l, p) => format!(" epochs {l}/{p}"),
    };
    let elr = match p.elr.is_empty() {
        true => String::new(),
        false => format!(" elr {}", ids(&p.elr)),
    };
    let moving = match p.is_moving() {
        true => format!(" adding {} removing {}", ids(&p.adding), ids(&p.removing)),
        false => String::new(),
    };
    format!(
        "({}{moving}{isr}{elr} led by {leader}{epochs})",
        ids(&p.replicas)
    )
}

fn show_record(record: &MetadataRecord) -> String {
    match record {
        MetadataRecord::Partition {
            topic,
            index,
            partition,
        } => {
            format!("Partition {topic} {index} {}", show_partition(partition))
        }
        MetadataRecord::Broker(b) => {
            format!("Broker {} epoch {} fenced {}", b.id, b.epoch, b.fenced)
        }
        other => format!("{other:?}"),
    }
}

fn topic(name: &str, n: u8) -> NewTopic {
    NewTopic {
        name: name.to_owned(),
        partitions: 1,
        replication_factor: 1,
        id: id(n),
        ..NewTopic::default()
    }
}

fn create(topics: &[NewTopic]) -> AdminCommand {
    AdminCommand::CreateTopics {
        topics: topics.to_vec(),
        validate_only: false,
    }
}

fn with_config(name: &str, n: u8, key: &str, value: Option<&str>) -> NewTopic {
    NewTopic {
        configs: vec![(key.to_owned(), value.map(str::to_owned))],
        ..topic(name, n)
    }
}

fn assigned(name: &str, n: u8, assignments: &[(i32, &[i32])]) -> NewTopic {
    NewTopic {
        partitions: -1,
        replication_factor: -1,
        assignments: assignments.iter().map(|(p, b)| (*p, brokers(b))).collect(),
        ..topic(name, n)
    }
}
