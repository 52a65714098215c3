//! The cases with krafka; see `../../README.md`.

mod groups;
mod share;

use std::time::Duration;

use krafka::admin::{ConfigOp, ConfigResource, NewTopic};
use krafka::consumer::{AutoOffsetReset, Consumer, ConsumerRecord, IsolationLevel};
use krafka::producer::{Acks, TopicPartitionOffset, TransactionalProducer};
use krafka::{Compression, Headers, Kafka, Record};
use riverlog_compat_harness::{self as harness, EPOCH_MS, HEADERS, Outcome, Plain, STEP_MS, Until, report, same};

const POLL: Duration = Duration::from_millis(200);

/// What compaction writes, a round a segment.
const ROUNDS: [&[(&str, Option<&str>)]; 5] = [
    &[("a", Some("0")), ("b", Some("0")), ("c", Some("0"))],
    &[("a", Some("1")), ("b", Some("1"))],
    &[("a", Some("2"))],
    &[("c", None)],
    &[("end", Some("0"))],
];
/// And what it leaves of that.
const KEPT: [(i64, &str, Option<&str>); 4] = [
    (4, "b", Some("1")),
    (5, "a", Some("2")),
    (6, "c", None),
    (7, "end", Some("0")),
];

pub(crate) struct Cases {
    pub(crate) bootstrap: String,
    pub(crate) kafka: Kafka,
    pub(crate) prefix: String,
}

pub(crate) async fn connect(bootstrap: &str) -> krafka::Result<Kafka> {
    Kafka::builder(bootstrap).connect().await
}

pub(crate) fn text(bytes: &Option<bytes::Bytes>) -> String {
    String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
}

/// As the library has them.
fn records(topic: &str) -> Vec<Record> {
    let headers = HEADERS.map(|(name, value)| (name.to_owned(), Some(bytes::Bytes::from(value))));
    let of = |plain: Plain| {
        let mut record = match (plain.key, plain.value) {
            (Some(key), Some(value)) => Record::new(topic, value).key(key),
            (Some(key), None) => Record::tombstone(topic, key),
            (None, value) => Record::new(topic, value.unwrap_or_default()),
        };
        if plain.headers {
            record.headers = headers.to_vec();
        }
        record.partition(0)
    };
    harness::records().into_iter().map(of).collect()
}

type Found = (Option<bytes::Bytes>, Option<bytes::Bytes>, Headers);

impl Cases {
    pub(crate) async fn create(&self, name: &str, partitions: i32) -> Outcome {
        self.create_with(NewTopic::new(name, partitions, 1)?).await
    }

    pub(crate) async fn create_with(&self, topic: NewTopic) -> Outcome {
        let name = topic.name.clone();
        let admin = self.kafka.admin();
        let made = admin.create_topics([topic], Default::default()).await?;
        for (_, result) in made {
            result?;
        }
        // Until who asks for it finds it.
        let until = Until::new("the topic");
        while self.partitions(&name).await?.is_none() {
            until.pause().await?;
        }
        Ok(())
    }

    /// Sets what a group is like.
    pub(crate) async fn configure(&self, group: &str, configs: &[(&str, &str)]) -> Outcome {
        let set = configs
            .iter()
            .map(|(key, value)| ConfigOp::set(*key, *value));
        let changes = [(ConfigResource::group(group), set.collect())];
        let admin = self.kafka.admin();
        let set = admin.incremental_alter_configs(changes, Default::default());
        for (_, result) in set.await? {
            result?;
        }
        Ok(())
    }

    async fn partitions(&self, name: &str) -> Outcome<Option<usize>> {
        let admin = self.kafka.admin();
        let topics = admin.list_topics(Default::default()).await?;
        if !topics.iter().any(|topic| topic == name) {
            return Ok(None);
        }
        let described = admin.describe_topics([name], Default::default()).await?;
        let topic = described.into_iter().next();
        Ok(topic.and_then(|(_, topic)| Some(topic.ok()?.partitions.len())))
    }

    pub(crate) async fn produce(&self, records: Vec<Record>) -> Outcome {
        self.produce_as(records, Compression::None, 16_384).await
    }

    async fn produce_as(&self, records: Vec<Record>, codec: Compression, batch: usize) -> Outcome {
        let producer = self
            .kafka
            .producer()
            .acks(Acks::All)
            .compression(codec)
            .batch_size(batch)
            .linger(Duration::from_millis(20));
        let producer = producer.build().await?;
        let mut handles = Vec::new();
        for record in records {
            handles.push(producer.enqueue(record).await?);
        }
        for handle in handles {
            let _ = handle.await?;
        }
        Ok(producer.close().await?)
    }

    /// The first `count` records of partition 0 from an offset on.
    pub(crate) async fn read(
        &self,
        name: &str,
        count: usize,
        offset: i64,
        isolation: IsolationLevel,
    ) -> Outcome<Vec<ConsumerRecord>> {
        let reader = self.kafka.consumer_without_group();
        let reader = reader
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .isolation_level(isolation)
            .build()
            .await?;
        reader.assign(name, vec![0]).await?;
        reader.seek(name, 0, offset).await?;
        let until = Until::new(&format!("{count} records of {name}"));
        let mut found = Vec::new();
        while found.len() < count {
            until.check()?;
            found.extend(reader.poll(POLL).await?);
        }
        reader.close().await?;
        Ok(found)
    }

    async fn read_committed(&self, name: &str, count: usize) -> Outcome<Vec<String>> {
        let found = self
            .read(name, count, 0, IsolationLevel::ReadCommitted)
            .await?;
        Ok(found.iter().map(|record| text(&record.value)).collect())
    }

    async fn create_topic(&self) -> Outcome {
        let topic = format!("{}-t", self.prefix);
        self.create(&topic, 3).await?;
        same(self.partitions(&topic).await?, Some(3), "partitions")
    }

    async fn codec(&self, name: &str, kind: Compression) -> Outcome {
        let name = format!("{}-{name}", self.prefix);
        self.create(&name, 1).await?;
        let expected = records(&name);
        self.produce_as(expected.clone(), kind, 16_384).await?;
        let got = self.read(&name, expected.len(), 0, IsolationLevel::ReadUncommitted);
        let got = got.await?.into_iter().map(|r| (r.key, r.value, r.headers));
        let expected = expected.into_iter().map(|r| (r.key, r.value, r.headers));
        same(got.collect::<Vec<Found>>(), expected.collect(), "records")
    }

    async fn idempotent(&self) -> Outcome {
        let name = format!("{}-idempotent", self.prefix);
        self.create(&name, 1).await?;
        let record = |n: i64| Record::new(&name, n.to_string()).key("k").partition(0);
        self.produce_as((0..200).map(record).collect(), Compression::None, 256)
            .await?;
        let got = self
            .read(&name, 200, 0, IsolationLevel::ReadUncommitted)
            .await?;
        let got = got.iter().map(|r| (r.offset, text(&r.value)));
        let expected = (0..200).map(|n| (n, n.to_string()));
        same(got.collect::<Vec<_>>(), expected.collect(), "records")
    }

    async fn transactional(&self, id: &str) -> Outcome<TransactionalProducer> {
        let producer = self
            .kafka
            .producer()
            .transaction_timeout(Duration::from_secs(45))
            .delivery_timeout(Duration::from_secs(40));
        Ok(producer.build_transactional(id).await?)
    }

    async fn transactions(&self) -> Outcome {
        let name = format!("{}-txn", self.prefix);
        self.create(&name, 1).await?;
        let record = |value: &str| Record::new(&name, value.to_owned()).key("k").partition(0);
        let producer = self.transactional(&name).await?;
        for n in 0..3 {
            producer.begin()?;
            for i in 0..3 {
                let _ = producer.send(record(&format!("{n}-{i}"))).await?;
            }
            match n {
                1 => producer.abort().await?,
                _ => producer.commit().await?,
            }
        }
        let of = |n: i32| (0..3).map(move |i| format!("{n}-{i}"));
        let expected: Vec<String> = of(0).chain(of(2)).collect();
        same(
            self.read_committed(&name, 6).await?,
            expected.clone(),
            "records",
        )?;
        // A new instance aborts what the old one has open, and fences it.
        producer.begin()?;
        let _ = producer.send(record("late")).await?;
        let newer = self.transactional(&name).await?;
        same(
            producer.commit().await.is_err(),
            true,
            "the old instance is fenced",
        )?;
        newer.begin()?;
        let _ = newer.send(record("new")).await?;
        newer.commit().await?;
        let expected: Vec<String> = expected.into_iter().chain(["new".to_owned()]).collect();
        same(
            self.read_committed(&name, 7).await?,
            expected,
            "after the fence",
        )
    }

    async fn transaction_offsets(&self) -> Outcome {
        let (source, target) = (
            format!("{}-txn-in", self.prefix),
            format!("{}-txn-out", self.prefix),
        );
        self.create(&source, 1).await?;
        self.create(&target, 1).await?;
        let record = |n: i32| Record::new(&source, n.to_string()).key("k").partition(0);
        self.produce((0..4).map(record).collect()).await?;
        let reader = self
            .kafka
            .consumer(format!("{}-txn-group", self.prefix))
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .enable_auto_commit(false)
            .max_poll_records(1)
            .build()
            .await?;
        reader.subscribe([&source]).await?;
        let producer = self
            .transactional(&format!("{}-txn-copy", self.prefix))
            .await?;
        let committed = self
            .copy(&reader, &producer, &source, &target, true)
            .await?;
        same(committed, Some(2), "committed with the transaction")?;
        let committed = self
            .copy(&reader, &producer, &source, &target, false)
            .await?;
        same(committed, Some(2), "not committed by an aborted one")?;
        reader.seek(&source, 0, 2).await?;
        let committed = self
            .copy(&reader, &producer, &source, &target, true)
            .await?;
        same(committed, Some(4), "committed by the next")?;
        reader.close().await?;
        let expected = (0..4).map(|n| n.to_string()).collect();
        same(
            self.read_committed(&target, 4).await?,
            expected,
            "each record once",
        )
    }

    /// Copies two records with their offsets in a transaction; what is committed then.
    async fn copy(
        &self,
        reader: &Consumer,
        producer: &TransactionalProducer,
        source: &str,
        target: &str,
        keep: bool,
    ) -> Outcome<Option<i64>> {
        producer.begin()?;
        let until = Until::new("two records");
        let (mut copied, mut next) = (0, 0);
        while copied < 2 {
            until.check()?;
            for record in reader.poll(POLL).await? {
                let copy = Record::new(target, text(&record.value))
                    .key("k")
                    .partition(0);
                let _ = producer.send(copy).await?;
                (copied, next) = (copied + 1, record.offset + 1);
            }
        }
        let group = reader.group_metadata().await.ok_or("not a member")?;
        let offsets = [TopicPartitionOffset::new(source, 0, next)];
        producer.send_offsets(&offsets, &group).await?;
        match keep {
            true => producer.commit().await?,
            false => producer.abort().await?,
        }
        // The end is answered before it is carried out, and this library doesn't ask for what is stable.
        let until = Until::new("committed offsets");
        loop {
            let committed = reader.committed(&[(source, 0)]).await?;
            match committed.values().next() {
                Some(position) if !keep || position.offset == next => {
                    return Ok(Some(position.offset));
                }
                _ => until.check()?,
            }
        }
    }

    async fn compaction(&self) -> Outcome {
        let name = format!("{}-compact", self.prefix);
        let topic = NewTopic::new(&name, 1, 1)?
            .with_config("cleanup.policy", "compact")
            .with_config("segment.ms", "50")
            .with_config("min.cleanable.dirty.ratio", "0.01");
        self.create_with(topic).await?;
        for round in ROUNDS {
            let record = |(key, value): &(&'static str, Option<&'static str>)| match value {
                Some(value) => Record::new(&name, *value).key(*key).partition(0),
                None => Record::tombstone(&name, *key).partition(0),
            };
            self.produce(round.iter().map(record).collect()).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let until = Until::new("only the newest of each key");
        let kept =
            KEPT.map(|(offset, key, value)| (offset, key.to_owned(), value.map(str::to_owned)));
        loop {
            let found = self
                .read(&name, KEPT.len(), 0, IsolationLevel::ReadUncommitted)
                .await?;
            let found = found.iter().take(KEPT.len());
            let found = found.map(|r| {
                (
                    r.offset,
                    text(&r.key),
                    r.value.as_ref().map(|_| text(&r.value)),
                )
            });
            if found.collect::<Vec<_>>() == kept {
                return Ok(());
            }
            until.check()?;
        }
    }

    async fn offsets_by_time(&self) -> Outcome {
        let name = format!("{}-time", self.prefix);
        self.create(&name, 1).await?;
        let record = |n: i64| {
            let record = Record::new(&name, n.to_string()).key("k").partition(0);
            record.timestamp(EPOCH_MS + n * STEP_MS)
        };
        self.produce((0..10).map(record).collect()).await?;
        let reader = self.kafka.consumer_without_group().build().await?;
        let mut got = Vec::new();
        for asked in [0, 3 * STEP_MS, 3 * STEP_MS + 1, 10 * STEP_MS] {
            let found = reader
                .offsets_for_times(&[(&name, 0)], EPOCH_MS + asked)
                .await;
            for (_, offset) in found {
                got.push(offset?);
            }
        }
        same(got, vec![0, 3, 4, -1], "offsets by time")?;
        let ends = reader.fetch_watermarks(&name, 0).await?;
        same(ends, (0, 10), "first and end offset")?;
        reader.close().await?;
        let found = self
            .read(&name, 1, 7, IsolationLevel::ReadUncommitted)
            .await?;
        let seventh = found.first().map(|r| (r.offset, r.timestamp));
        same(
            seventh,
            Some((7, EPOCH_MS + 7 * STEP_MS)),
            "record at offset 7",
        )
    }

    async fn delete_topic(&self) -> Outcome {
        let topic = format!("{}-t", self.prefix);
        let admin = self.kafka.admin();
        for (_, result) in admin.delete_topics([&topic], Default::default()).await? {
            result?;
        }
        let until = Until::new("the topic is gone");
        while admin
            .list_topics(Default::default())
            .await?
            .contains(&topic)
        {
            until.pause().await?;
        }
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let (bootstrap, prefix) = harness::arguments()?;
    let cases = Cases {
        kafka: connect(&bootstrap).await?,
        bootstrap,
        prefix,
    };
    report("create-topic", cases.create_topic()).await;
    for (name, kind) in [
        ("codec-none", Compression::None),
        ("codec-gzip", Compression::Gzip),
        ("codec-snappy", Compression::Snappy),
        ("codec-lz4", Compression::Lz4),
        ("codec-zstd", Compression::Zstd),
    ] {
        report(name, cases.codec(name, kind)).await;
    }
    report("idempotent", cases.idempotent()).await;
    report("transactions", cases.transactions()).await;
    report("transaction-offsets", cases.transaction_offsets()).await;
    report("compaction", cases.compaction()).await;
    let classic = groups::How::classic(&cases);
    let newer = groups::How::consumer(&cases);
    report("group-rebalance", cases.rebalance(&classic)).await;
    report("group-resumes", cases.resumes(&classic)).await;
    report("group-kip848", async {
        cases.rebalance(&newer).await?;
        cases.resumes(&newer).await
    })
    .await;
    report("group-migration", cases.moves(false)).await;
    report("group-migration-cooperative", cases.moves(true)).await;
    report("share-group", cases.share_group()).await;
    report("share-dead-letters", cases.dead_letters()).await;
    report("offsets-by-time", cases.offsets_by_time()).await;
    report("groups-listed", cases.groups_listed()).await;
    report("delete-topic", cases.delete_topic()).await;
    Ok(())
}
