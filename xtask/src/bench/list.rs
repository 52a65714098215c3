//! The benchmarks, a row each.

use super::cluster::Cluster;

pub(super) struct Bench {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) what: What,
}

pub(super) enum What {
    /// A broker of its own for each run: this measures its start and what it holds when idle.
    Start,
    /// A program of this workspace without a broker, for the embedded library.
    Embedded(Target),
    /// A program of this workspace that gets the broker's address as its last argument. One broker of each kind
    /// runs from the first run to the last; `warm_up` runs of each aren't counted.
    Load {
        target: Target,
        settings: &'static [(&'static str, &'static str)],
        warm_up: u32,
    },
    /// Brokers of its own for each run, and a program that gets all addresses, with a comma between.
    Cluster(Cluster),
    /// As a load, of what Kafka doesn't have; the second program puts the same on NATS.
    Door(Target, Option<Target>),
    /// A broker of its own for each run: filled by the first program, killed, and started again for the second.
    Restart(Target, Target),
}

/// What `cargo build --release` is told and which binary it makes. The program prints its measures as lines
/// `MEASURE name value unit`.
pub(super) struct Target {
    pub(super) build: &'static [&'static str],
    pub(super) binary: &'static str,
    pub(super) args: &'static [&'static str],
}

/// `riverlog-bench` with these words.
const fn bench(args: &'static [&'static str]) -> Target {
    Target {
        build: &["--package", "riverlog-bench"],
        binary: "riverlog-bench",
        args,
    }
}

/// A load over the wire on page-cache topics, as Kafka is by default; F1–F5a.
const fn page_cache(args: &'static [&'static str]) -> What {
    What::Load {
        target: bench(args),
        settings: &[],
        warm_up: 2,
    }
}

/// Groups and transactions: the internal topics are as each broker has them by default, synced here and not by Kafka.
const fn coordinated(args: &'static [&'static str], warm_up: u32) -> What {
    What::Load {
        target: bench(args),
        settings: &[
            ("offsets.topic.num.partitions", "50"),
            ("log.cleaner.backoff.ms", "1000"),
        ],
        warm_up,
    }
}

/// A load over the wire on synced topics; Kafka syncs each batch too.
const fn synced(args: &'static [&'static str]) -> What {
    What::Load {
        target: bench(args),
        settings: &[],
        warm_up: 1,
    }
}

/// Three brokers, each free to use what there is.
const fn three(args: &'static [&'static str]) -> What {
    What::Cluster(Cluster {
        target: bench(args),
        nodes: 3,
        core: None,
        apart: false,
    })
}

/// Brokers that have two fifths of a core each, and 36 partitions without copies.
const fn scaled(nodes: usize) -> What {
    What::Cluster(Cluster {
        target: bench(&[
            "cluster-produce",
            "--partitions",
            "36",
            "--replicas",
            "1",
            "--mib",
            "2048",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
        nodes,
        core: Some(0.4),
        apart: false,
    })
}

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "start",
        about: "F9, F11: an empty folder to the first answered request; memory and CPU of three idle seconds after it",
        what: What::Start,
    },
    Bench {
        name: "memory",
        about: "F18: the library in memory, publish_batch(100) and poll(1000) of 100 bytes",
        what: What::Embedded(bench(&["memory"])),
    },
    Bench {
        name: "publish",
        about: "the library on disk: synced publishes from 1, 16 and 256 threads beside the disk's own syncs",
        what: What::Embedded(bench(&["publish"])),
    },
    Bench {
        name: "append",
        about: "the library on disk: CPU a GiB appended and read in page-cache mode beside the floor",
        what: What::Embedded(bench(&["append"])),
    },
    Bench {
        name: "recovery",
        about: "the library on disk: kill -9 with 8 GiB stored to the first old record",
        what: What::Embedded(bench(&["recovery"])),
    },
    Bench {
        name: "produce-128k",
        about: "F1, F5: batches of 128 KiB, 12 partitions, five requests under way, page cache",
        what: page_cache(&[
            "produce",
            "--mib",
            "2048",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "produce-16k",
        about: "F2: batches of 16 KiB, page cache",
        what: page_cache(&[
            "produce",
            "--batch",
            "16384",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "produce-1k",
        about: "F2a: requests of one record of 1 KiB, page cache",
        what: page_cache(&[
            "produce",
            "--batch",
            "512",
            "--mib",
            "128",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "produce-lz4",
        about: "F3: batches of 128 KiB, lz4, a logical GiB, page cache",
        what: page_cache(&[
            "produce",
            "--compression",
            "lz4",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "produce-zstd",
        about: "F3: batches of 128 KiB, zstd, a logical GiB, page cache",
        what: page_cache(&[
            "produce",
            "--compression",
            "zstd",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "produce-100b",
        about: "F5a: records of 100 bytes, 150 a batch, page cache",
        what: page_cache(&[
            "produce",
            "--record",
            "100",
            "--batch",
            "16200",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "consume-128k",
        about: "F4, F6: answers of 12 MiB of batches of 128 KiB, page cache; the CPU includes producing them",
        what: page_cache(&[
            "consume",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "sync-16k",
        about: "F8: batches of 16 KiB, five requests under way, synced (Kafka: flush.messages=1)",
        what: synced(&[
            "produce",
            "--batch",
            "16384",
            "--mib",
            "256",
            "--topic-config",
            "flush.messages=1",
        ]),
    },
    Bench {
        name: "sync-single",
        about: "F8: one record at a time, synced (Kafka: flush.messages=1)",
        what: synced(&["single", "--topic-config", "flush.messages=1"]),
    },
    Bench {
        name: "classic-group",
        about: "F21: 10 members of a classic group, 100 partitions: a cold start, an 11th joins, one crashes (session 6 s, heartbeats each 0.5 s)",
        what: coordinated(&["members"], 1),
    },
    Bench {
        name: "consumer-group",
        about: "F21: the same for a group of the consumer protocol (KIP-848): a cold start, an 11th joins",
        what: coordinated(&["consumer-members"], 1),
    },
    Bench {
        name: "heartbeats-10000",
        about: "10,000 members of 1,000 groups of the consumer protocol, each with a heartbeat every five seconds",
        what: coordinated(&["heartbeats"], 0),
    },
    Bench {
        name: "share-1",
        about: "a share group on one partition: one consumer, 100,000 records of 1,000 bytes accepted, then 1,000 a second",
        what: coordinated(&["share", "--consumers", "1"], 1),
    },
    Bench {
        name: "share-10",
        about: "the same with 10 consumers",
        what: coordinated(&["share", "--consumers", "10"], 1),
    },
    Bench {
        name: "share-100",
        about: "the same with 100 consumers",
        what: coordinated(&["share", "--consumers", "100"], 1),
    },
    Bench {
        name: "share-key-order",
        about: "the same with 10 consumers, once plain and once with the records of each of 1,000 keys in order",
        what: What::Door(bench(&["share", "--consumers", "10", "--key-order"]), None),
    },
    Bench {
        name: "commits-1000",
        about: "1,000 groups commit an offset once a second, open loop",
        what: coordinated(&["commits", "--groups", "1000"], 1),
    },
    Bench {
        name: "commits-10000",
        about: "10,000 groups commit an offset once a second, open loop",
        what: coordinated(&["commits", "--groups", "10000"], 1),
    },
    Bench {
        name: "groups-loaded",
        about: "1,000 groups with 20 commits each: killed, started again, from the start until all have said what they committed",
        what: What::Restart(bench(&["fill-groups"]), bench(&["load-groups"])),
    },
    Bench {
        name: "transactions-1",
        about: "one producer: transactions of a record in one partition, committed one after the other",
        what: coordinated(&["transactions", "--partitions", "1"], 1),
    },
    Bench {
        name: "transactions-10",
        about: "the same in 10 partitions",
        what: coordinated(&["transactions", "--partitions", "10"], 1),
    },
    Bench {
        name: "transactions-100",
        about: "the same in 100 partitions",
        what: coordinated(&["transactions", "--partitions", "100"], 1),
    },
    Bench {
        name: "http-json-1",
        about: "/v1: JSON with one record of 1 KiB a request, in and out over four connections that are kept, page cache",
        what: What::Door(
            bench(&["http", "--many", "1", "--records", "40000"]),
            Some(bench(&["nats", "--many", "1", "--records", "40000"])),
        ),
    },
    Bench {
        name: "http-json-100",
        about: "/v1: the same with 100 records a request",
        what: What::Door(
            bench(&["http", "--many", "100"]),
            Some(bench(&["nats", "--many", "100"])),
        ),
    },
    Bench {
        name: "http-json-1000",
        about: "/v1: the same with 1,000 records a request",
        what: What::Door(
            bench(&["http", "--many", "1000", "--records", "400000"]),
            Some(bench(&["nats", "--many", "1000", "--records", "400000"])),
        ),
    },
    Bench {
        name: "http-raw",
        about: "/v1: record batches of 100 records of 1 KiB, beside the same over Kafka's protocol",
        what: What::Door(
            bench(&[
                "http",
                "--form",
                "raw",
                "--many",
                "100",
                "--records",
                "400000",
            ]),
            None,
        ),
    },
    Bench {
        name: "cluster-16k",
        about: "F20: three brokers, three copies, acks=all, batches of 16 KiB of records of 1 KiB, 12 partitions, page cache; after as much to warm up",
        what: three(&[
            "cluster-produce",
            "--warm-up",
            "--mib",
            "512",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "cluster-latency",
        about: "three brokers, three copies, acks=all: 200 records of 1 KiB a second, each a request, page cache: few enough for Kafka on two cores",
        what: three(&[
            "cluster-produce",
            "--warm-up",
            "--batch",
            "512",
            "--mib",
            "6",
            "--rate",
            "200",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "cluster-latency-synced",
        about: "the same, synced (Kafka: flush.messages=1)",
        what: three(&[
            "cluster-produce",
            "--warm-up",
            "--batch",
            "512",
            "--mib",
            "6",
            "--rate",
            "200",
            "--topic-config",
            "flush.messages=1",
        ]),
    },
    Bench {
        name: "failover-killed",
        about: "F13, P9: three brokers, 1,000 partitions: one is killed that leads partitions; gap of writers to 20 of them",
        what: three(&["cluster-failover", "--fault", "kill"]),
    },
    Bench {
        name: "failover-controller",
        about: "F13, P9: the same, and it leads the metadata quorum too",
        what: three(&["cluster-failover", "--fault", "kill", "--controller"]),
    },
    Bench {
        name: "failover-frozen",
        about: "F13, P9: the same with SIGSTOP; writers wait a second for an answer",
        what: three(&["cluster-failover", "--fault", "freeze"]),
    },
    Bench {
        name: "failover-cut-off",
        about: "F13: the same with a network that is cut from everybody else's, clients too; needs root",
        what: What::Cluster(Cluster {
            target: bench(&["cluster-failover", "--fault", "cut-off"]),
            nodes: 3,
            core: None,
            apart: true,
        }),
    },
    Bench {
        name: "catch-up",
        about: "F16: a follower that was frozen while 2 GiB came; 500 records a second acknowledged by the others meanwhile, page cache",
        what: three(&[
            "cluster-catch-up",
            "--topic-config",
            "riverlog.durability=page-cache",
        ]),
    },
    Bench {
        name: "scale-1",
        about: "scaling: one broker of 0.4 core, 36 partitions, batches of 16 KiB, page cache",
        what: scaled(1),
    },
    Bench {
        name: "scale-2",
        about: "scaling: two such brokers",
        what: scaled(2),
    },
    Bench {
        name: "scale-3",
        about: "scaling: three such brokers",
        what: scaled(3),
    },
    Bench {
        name: "compaction",
        about: "a GiB of keyed records in a compacted partition: CPU of the broker a GiB to write and to compact it",
        what: coordinated(&["compaction"], 0),
    },
];
