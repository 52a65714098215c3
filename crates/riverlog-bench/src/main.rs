//! `riverlog-bench`: each subcommand measures one thing and prints lines `MEASURE name value unit`; `cargo xtask bench` runs
//! them turn about and keeps the numbers.

mod cluster;
mod commits;
mod compaction;
mod embedded;
mod floor;
mod heartbeats;
mod http;
mod measure;
mod members;
mod nats;
mod share;
mod transactions;
mod wire;

use clap::{Parser, Subcommand};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The library in memory, one thread: publish_batch(100) and poll(1000) of 100 bytes.
    Memory {
        /// Records.
        #[arg(long, default_value_t = 5_000_000)]
        records: usize,
    },
    /// Synced publishes of one record at a time from 1, 16 and 256 threads, and the disk's own fdatasync rate.
    Publish {
        /// Seconds of each.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
    /// CPU to append and read a gibibyte in page-cache mode, beside a program that only writes and reads the files.
    Append {
        /// MiB.
        #[arg(long, default_value_t = 1024)]
        mib: u64,
    },
    /// How long a start takes after a kill with that much in the log.
    Recovery {
        /// MiB.
        #[arg(long, default_value_t = 8192)]
        mib: u64,
    },
    /// Fills a data folder for `recovery`, then waits to be killed.
    #[command(hide = true)]
    Fill {
        /// Folder.
        data: std::path::PathBuf,
        /// MiB.
        mib: u64,
    },
    /// Produces encoded batches to a broker: 12 partitions, five requests under way.
    Produce {
        /// Bytes of records in a batch.
        #[arg(long, default_value_t = 128 << 10)]
        batch: usize,
        /// Bytes of a record.
        #[arg(long, default_value_t = 1_000)]
        record: usize,
        /// MiB in all.
        #[arg(long, default_value_t = 1024)]
        mib: u64,
        /// none, lz4 or zstd.
        #[arg(long, default_value = "none")]
        compression: String,
        /// Topic setting KEY=VALUE, where the broker has it.
        #[arg(long)]
        topic_config: Vec<String>,
        /// HOST:PORT.
        broker: String,
    },
    /// Produces one record at a time, one request under way.
    Single {
        /// Records.
        #[arg(long, default_value_t = 5_000)]
        records: u64,
        /// Topic setting KEY=VALUE, where the broker has it.
        #[arg(long)]
        topic_config: Vec<String>,
        /// HOST:PORT.
        broker: String,
    },
    /// Produces, then consumes it all from one connection.
    Consume {
        /// Bytes of records in a batch.
        #[arg(long, default_value_t = 128 << 10)]
        batch: usize,
        /// Bytes of one answer.
        #[arg(long, default_value_t = 12 << 20)]
        answer: i32,
        /// MiB in all.
        #[arg(long, default_value_t = 1024)]
        mib: u64,
        /// Topic setting KEY=VALUE, where the broker has it.
        #[arg(long)]
        topic_config: Vec<String>,
        /// HOST:PORT.
        broker: String,
    },
    /// Publishes records of 1 KiB over HTTP, and reads them again; CPU is that of the broker (BROKER_PID).
    Http {
        /// As what they come and go.
        #[arg(long, value_enum, default_value = "json")]
        form: http::Form,
        /// Records of a request.
        #[arg(long, default_value_t = 100)]
        many: usize,
        /// Records in all.
        #[arg(long, default_value_t = 200_000)]
        records: usize,
        /// HOST:PORT of the Kafka listener.
        broker: String,
    },
    /// The same with NATS JetStream in the broker's place.
    Nats {
        /// Records under way on a connection, and of one pull.
        #[arg(long, default_value_t = 100)]
        many: usize,
        /// Records in all.
        #[arg(long, default_value_t = 200_000)]
        records: usize,
        /// HOST:PORT of its clients' listener.
        broker: String,
    },
    /// Groups that commit an offset once a second each.
    Commits {
        /// Groups.
        #[arg(long, default_value_t = 1_000)]
        groups: usize,
        /// Seconds.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// HOST:PORT.
        broker: String,
    },
    /// Leaves groups with commits behind, for `load-groups`.
    FillGroups {
        /// Groups.
        #[arg(long, default_value_t = 1_000)]
        groups: usize,
        /// HOST:PORT.
        broker: String,
    },
    /// Asks for what these groups have committed, until all are known.
    LoadGroups {
        /// Groups.
        #[arg(long, default_value_t = 1_000)]
        groups: usize,
        /// HOST:PORT.
        broker: String,
    },
    /// A classic group: a cold start, one more member, one that crashes.
    Members {
        /// Members.
        #[arg(long, default_value_t = 10)]
        members: usize,
        /// Partitions that they share.
        #[arg(long, default_value_t = 100)]
        partitions: usize,
        /// Milliseconds between a member's heartbeats.
        #[arg(long, default_value_t = 500)]
        heartbeat_ms: u64,
        /// HOST:PORT.
        broker: String,
    },
    /// A group of the consumer protocol: a cold start, one more member.
    ConsumerMembers {
        /// Members.
        #[arg(long, default_value_t = 10)]
        members: usize,
        /// Partitions that they share.
        #[arg(long, default_value_t = 100)]
        partitions: usize,
        /// Milliseconds between a member's heartbeats.
        #[arg(long, default_value_t = 500)]
        heartbeat_ms: u64,
        /// HOST:PORT.
        broker: String,
    },
    /// Members of the consumer protocol that do nothing but live; CPU is that of the broker (BROKER_PID).
    Heartbeats {
        /// Members.
        #[arg(long, default_value_t = 10_000)]
        members: usize,
        /// Groups that they belong to.
        #[arg(long, default_value_t = 1_000)]
        groups: usize,
        /// Seconds.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Milliseconds between a member's heartbeats.
        #[arg(long, default_value_t = 5_000)]
        interval_ms: u64,
        /// HOST:PORT.
        broker: String,
    },
    /// Consumers of a share group on one partition: records a second, and how long one waits.
    Share {
        /// Consumers.
        #[arg(long, default_value_t = 10)]
        consumers: usize,
        /// Records that are there when they begin.
        #[arg(long, default_value_t = 100_000)]
        records: u64,
        /// Seconds at a steady pace afterwards.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Group setting KEY=VALUE, such as riverlog.share.key.order=true.
        #[arg(long)]
        group_config: Vec<String>,
        /// Once as it is, and once more with records of a key in order (Riverlog only).
        #[arg(long)]
        key_order: bool,
        /// HOST:PORT.
        broker: String,
    },
    /// Transactions that write a record to each of some partitions and commit, one after the other.
    Transactions {
        /// Partitions.
        #[arg(long, default_value_t = 1)]
        partitions: i32,
        /// Seconds.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// HOST:PORT.
        broker: String,
    },
    /// Produces to the leaders on all brokers of a cluster (BROKER_PIDS) at once.
    ClusterProduce {
        /// Bytes of records in a batch.
        #[arg(long, default_value_t = 16 << 10)]
        batch: usize,
        /// MiB in all.
        #[arg(long, default_value_t = 1024)]
        mib: u64,
        /// Partitions.
        #[arg(long, default_value_t = 12)]
        partitions: i32,
        /// Copies.
        #[arg(long, default_value_t = 3)]
        replicas: i16,
        /// Requests a second; as fast as they are answered without.
        #[arg(long)]
        rate: Option<u32>,
        /// As much before it counts.
        #[arg(long)]
        warm_up: bool,
        /// Topic setting KEY=VALUE, where the broker has it.
        #[arg(long)]
        topic_config: Vec<String>,
        /// HOST:PORT,…
        brokers: String,
    },
    /// How long nobody is answered when a broker (BROKER_PIDS) dies or freezes.
    ClusterFailover {
        /// What happens to it.
        #[arg(long, value_enum)]
        fault: cluster::Fault,
        /// The broker that leads the metadata quorum, not another one.
        #[arg(long)]
        controller: bool,
        /// Partitions of the topic.
        #[arg(long, default_value_t = 1_000)]
        partitions: i32,
        /// Those of them that are written to.
        #[arg(long, default_value_t = 20)]
        watched: usize,
        /// HOST:PORT,…
        brokers: String,
    },
    /// How a follower (BROKER_PIDS) catches up that was frozen meanwhile.
    ClusterCatchUp {
        /// MiB that it lacks.
        #[arg(long, default_value_t = 2048)]
        mib: u64,
        /// Topic setting KEY=VALUE, where the broker has it.
        #[arg(long)]
        topic_config: Vec<String>,
        /// HOST:PORT,…
        brokers: String,
    },
    /// CPU of the broker (BROKER_PID) to compact what was written.
    Compaction {
        /// MiB.
        #[arg(long, default_value_t = 1024)]
        mib: u64,
        /// HOST:PORT.
        broker: String,
    },
}

fn main() -> Result<()> {
    match Args::parse().what {
        What::Memory { records } => embedded::memory(records),
        What::Publish { seconds } => embedded::publish(seconds),
        What::Append { mib } => embedded::append(mib),
        What::Recovery { mib } => embedded::recovery(mib),
        What::Fill { data, mib } => embedded::fill(&data, mib),
        What::Produce {
            batch,
            record,
            mib,
            compression,
            topic_config,
            broker,
        } => wire::produce(
            &broker,
            &wire::Load {
                batch,
                record,
                mib,
                compression,
                topic_config,
            },
        ),
        What::Single {
            records,
            topic_config,
            broker,
        } => wire::single(&broker, records, &topic_config),
        What::Consume {
            batch,
            answer,
            mib,
            topic_config,
            broker,
        } => {
            let load = wire::Load {
                batch,
                record: 1_000,
                mib,
                compression: "none".to_owned(),
                topic_config,
            };
            wire::consume(&broker, &load, answer)
        }
        What::Http {
            form,
            many,
            records,
            broker,
        } => http::run(&broker, form, many, records),
        What::Nats {
            many,
            records,
            broker,
        } => nats::run(&broker, many, records),
        What::Commits {
            groups,
            seconds,
            broker,
        } => commits::run(&broker, groups, seconds),
        What::FillGroups { groups, broker } => commits::fill(&broker, groups),
        What::LoadGroups { groups, broker } => commits::load(&broker, groups),
        What::Members {
            members,
            partitions,
            heartbeat_ms,
            broker,
        } => members::run(
            &broker,
            members,
            partitions,
            std::time::Duration::from_millis(heartbeat_ms),
        ),
        What::ConsumerMembers {
            members,
            partitions,
            heartbeat_ms,
            broker,
        } => heartbeats::changes(
            &broker,
            members,
            partitions,
            std::time::Duration::from_millis(heartbeat_ms),
        ),
        What::Heartbeats {
            members,
            groups,
            seconds,
            interval_ms,
            broker,
        } => heartbeats::steady(
            &broker,
            members,
            groups,
            seconds,
            std::time::Duration::from_millis(interval_ms),
        ),
        What::Share {
            consumers,
            records,
            seconds,
            group_config,
            key_order,
            broker,
        } => {
            let run = |configs: &[String], label: &str| {
                share::run(&broker, consumers, records, seconds, configs, label)
            };
            if !key_order {
                return run(&group_config, "");
            }
            run(&group_config, "plain: ")?;
            let key_order = "riverlog.share.key.order=true".to_owned();
            run(&[group_config, vec![key_order]].concat(), "in order: ")
        }
        What::Transactions {
            partitions,
            seconds,
            broker,
        } => transactions::run(&broker, partitions, seconds),
        What::ClusterProduce {
            batch,
            mib,
            partitions,
            replicas,
            rate,
            warm_up,
            topic_config,
            brokers,
        } => {
            let load = wire::Load {
                batch,
                mib,
                topic_config,
                ..wire::Load::small()
            };
            let copies = cluster::Copies {
                partitions,
                replicas,
                rate,
                warm_up,
            };
            cluster::produce(&brokers, &load, &copies)
        }
        What::ClusterFailover {
            fault,
            controller,
            partitions,
            watched,
            brokers,
        } => cluster::failover(&brokers, fault, controller, partitions, watched),
        What::ClusterCatchUp {
            mib,
            topic_config,
            brokers,
        } => cluster::catch_up(&brokers, mib, &topic_config),
        What::Compaction { mib, broker } => compaction::run(&broker, mib),
    }
}
