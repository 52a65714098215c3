//! The cases with rskafka; see `../../README.md`. It has no groups, no settings of topics and no producers with an id.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use riverlog_compat_harness::{self as harness, EPOCH_MS, HEADERS, Outcome, Plain, STEP_MS, Until, report, same};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};

const STEP: TimeDelta = TimeDelta::milliseconds(STEP_MS);

struct Cases {
    client: Client,
    prefix: String,
}

/// As the library has them.
fn records() -> Vec<Record> {
    // To the millisecond, as it is stored.
    let timestamp: DateTime<Utc> = DateTime::from_timestamp_millis(EPOCH_MS).unwrap_or_default();
    let of = |plain: Plain| Record {
        key: plain.key.map(String::into_bytes),
        value: plain.value.map(String::into_bytes),
        headers: match plain.headers {
            true => HEADERS.map(|(name, value)| (name.to_owned(), value.to_vec())).into(),
            false => BTreeMap::new(),
        },
        timestamp,
    };
    harness::records().into_iter().map(of).collect()
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
        let until = Until::new(&format!("{expected:?} partitions"));
        while self.partitions(name).await? != expected {
            until.pause().await?;
        }
        Ok(())
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
    let (bootstrap, prefix) = harness::arguments()?;
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
        report(name, cases.run(name)).await;
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
