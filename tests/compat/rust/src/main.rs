//! The cases with rskafka; see `../README.md`. It has no groups, no settings of topics and no producers with an id.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const CASE_LIMIT: Duration = Duration::from_secs(20);
const EPOCH_MS: i64 = 1_700_000_000_000;
const STEP: TimeDelta = TimeDelta::minutes(1);

struct Cases {
    client: Client,
    prefix: String,
}

fn same<T: PartialEq + std::fmt::Debug>(got: T, expected: T, what: &str) -> Outcome {
    if got == expected {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:.150?}, got {got:.150?}").into())
}

/// Compressible ones, one without a value, one without a key.
fn records() -> Vec<Record> {
    // To the millisecond, as it is stored.
    let timestamp: DateTime<Utc> = DateTime::from_timestamp_millis(EPOCH_MS).unwrap_or_default();
    let headers = BTreeMap::from([
        ("trace".to_owned(), vec![0, 1, 255]),
        ("empty".to_owned(), Vec::new()),
    ]);
    let record = |key: Option<String>, value: Option<String>, headers: &BTreeMap<_, _>| Record {
        key: key.map(String::into_bytes),
        value: value.map(String::into_bytes),
        headers: headers.clone(),
        timestamp,
    };
    let value = |n| Some(format!("value {n} ").repeat(20));
    let some = (0..50).map(|n| record(Some(format!("key-{n}")), value(n), &headers));
    let mut all: Vec<Record> = some.collect();
    all.push(record(Some("gone".into()), None, &BTreeMap::new()));
    all.push(record(None, Some("no key".into()), &headers));
    all
}

impl Cases {
    async fn create(&self, name: &str, partitions: i32) -> Outcome {
        let controller = self.client.controller_client()?;
        Ok(controller.create_topic(name, partitions, 1, 5_000).await?)
    }

    async fn first_partition(&self, name: &str) -> Outcome<PartitionClient> {
        let unknown = UnknownTopicHandling::Retry;
        Ok(self.client.partition_client(name, 0, unknown).await?)
    }

    async fn read(
        &self,
        from: &PartitionClient,
        count: usize,
        offset: i64,
    ) -> Outcome<Vec<RecordAndOffset>> {
        let mut found: Vec<RecordAndOffset> = Vec::new();
        while found.len() < count {
            let at = found.last().map_or(offset, |last| last.offset + 1);
            found.extend(from.fetch_records(at, 1..1_000_000, 500).await?.0);
        }
        Ok(found)
    }

    /// The number of partitions, `None` when there is no such topic.
    async fn partitions(&self, name: &str) -> Outcome<Option<usize>> {
        let topics = self.client.list_topics().await?;
        let topic = topics.into_iter().find(|topic| topic.name == name);
        Ok(topic.map(|topic| topic.partitions.len()))
    }

    async fn until_partitions(&self, name: &str, expected: Option<usize>) -> Outcome {
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            let got = self.partitions(name).await?;
            if got == expected || Instant::now() > end {
                return same(got, expected, "partitions");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn run(&self, case: &str) -> Outcome {
        let codec = |name: &str| match name {
            "codec-none" => Some(Compression::NoCompression),
            "codec-gzip" => Some(Compression::Gzip),
            "codec-snappy" => Some(Compression::Snappy),
            "codec-lz4" => Some(Compression::Lz4),
            "codec-zstd" => Some(Compression::Zstd),
            _ => None,
        };
        let topic = format!("{}-t", self.prefix);
        match case {
            "create-topic" => {
                self.create(&topic, 3).await?;
                self.until_partitions(&topic, Some(3)).await
            }
            "offsets-by-time" => self.offsets_by_time().await,
            "delete-topic" => {
                self.client
                    .controller_client()?
                    .delete_topic(&topic, 5_000)
                    .await?;
                self.until_partitions(&topic, None).await
            }
            name => match codec(name) {
                Some(kind) => self.codec(name, kind).await,
                None => Err("no such case".into()),
            },
        }
    }

    async fn codec(&self, name: &str, kind: Compression) -> Outcome {
        let name = format!("{}-{name}", self.prefix);
        self.create(&name, 1).await?;
        let partition = self.first_partition(&name).await?;
        let expected = records();
        partition.produce(expected.clone(), kind).await?;
        let got = self.read(&partition, expected.len(), 0).await?;
        same(
            got.into_iter().map(|r| r.record).collect(),
            expected,
            "records",
        )
    }

    async fn offsets_by_time(&self) -> Outcome {
        let name = format!("{}-time", self.prefix);
        self.create(&name, 1).await?;
        let partition = self.first_partition(&name).await?;
        let epoch = DateTime::from_timestamp_millis(EPOCH_MS).unwrap_or_default();
        let at = |n: i32| epoch + STEP * n;
        let record = |n: i32| Record {
            key: Some(b"k".to_vec()),
            value: Some(n.to_string().into_bytes()),
            headers: BTreeMap::new(),
            timestamp: at(n),
        };
        let records = (0..10).map(record).collect();
        partition
            .produce(records, Compression::NoCompression)
            .await?;
        let mut got = Vec::new();
        let asked = [
            OffsetAt::Timestamp(at(0)),
            OffsetAt::Timestamp(at(3)),
            OffsetAt::Timestamp(at(3) + TimeDelta::milliseconds(1)),
            OffsetAt::Timestamp(at(10)),
            OffsetAt::Earliest,
            OffsetAt::Latest,
        ];
        for asked in asked {
            got.push(partition.get_offset(asked).await?);
        }
        same(got, vec![0, 3, 4, -1, 0, 10], "offsets")?;
        let found = self.read(&partition, 1, 7).await?;
        let seventh = found.first().map(|r| (r.offset, r.record.timestamp));
        same(seventh, Some((7, at(7))), "record at offset 7")
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let (Some(bootstrap), Some(prefix)) = (arguments.next(), arguments.next()) else {
        return Err("usage: riverlog-compat-rust BOOTSTRAP PREFIX".into());
    };
    let client = ClientBuilder::new(bootstrap.split(',').map(str::to_owned).collect()).build().await?;
    let cases = Cases { client, prefix };
    let codecs = [
        "codec-none",
        "codec-gzip",
        "codec-snappy",
        "codec-lz4",
        "codec-zstd",
    ];
    let names = ["create-topic"].into_iter().chain(codecs);
    for name in names.chain(["offsets-by-time", "delete-topic"]) {
        match tokio::time::timeout(CASE_LIMIT, cases.run(name)).await {
            Ok(Ok(())) => println!("PASS {name}"),
            Ok(Err(error)) => {
                let text: Vec<String> = error
                    .to_string()
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect();
                println!("FAIL {name} {:.300}", text.join(" "));
            }
            Err(_) => println!("FAIL {name} not done after {} s", CASE_LIMIT.as_secs()),
        }
    }
    for (name, what) in [
        ("idempotent", "no idempotent producer"),
        ("transactions", "no transactions"),
        ("transaction-offsets", "no transactions"),
        ("compaction", "no settings of topics"),
        ("group-rebalance", "no groups"),
        ("group-resumes", "no groups"),
        ("group-kip848", "no groups"),
        ("group-migration", "no groups"),
        ("group-migration-cooperative", "no groups"),
        ("share-group", "no groups"),
        ("share-dead-letters", "no groups"),
        ("groups-listed", "no groups"),
    ] {
        println!("SKIP {name} rskafka has {what}");
    }
    Ok(())
}
