"""The cases with kafka-python."""

import time
from concurrent.futures import ThreadPoolExecutor

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

import harness
from harness import EPOCH_MS, STEP_MS, same, until

bootstrap, prefix = harness.arguments()
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
topic, group_topic, group = f"{prefix}-t", f"{prefix}-g", f"{prefix}-group"


def create(name, partitions, **settings):
    admin.create_topics([NewTopic(name, partitions, 1, **settings)])


def produce(name, rows, **settings):
    """rows: (partition, key, value, headers, timestamp or None)."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20, **settings)
    sent = [
        producer.send(name, value, key, headers, partition, timestamp)
        for partition, key, value, headers, timestamp in rows
    ]
    producer.flush(10)
    for future in sent:
        future.get(5)
    producer.close(5)


def consumer(**settings):
    return KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, **settings)


def poll(reader, ms=200):
    return [m for batch in reader.poll(ms).values() for m in batch]


def read(name, count, offset=0, **settings):
    reader = consumer(**settings)
    where = TopicPartition(name, 0)
    reader.assign([where])
    reader.seek(where, offset)
    found = []
    until(f"{count} records", lambda: found.extend(poll(reader)) or len(found) >= count)
    reader.close()
    return found


def create_topic():
    create(topic, 3)
    found = until("the topic", lambda: [t for t in admin.describe_topics([topic]) if t.get("partitions")])
    same(len(found[0]["partitions"]), 3, "partitions")


def codec(name):
    def case():
        where = f"{prefix}-{name}"
        create(where, 1)
        expected = harness.records()
        kind = None if name == "none" else name
        produce(where, [(0, *record, None) for record in expected], compression_type=kind)
        got = [(m.key, m.value, [tuple(h) for h in m.headers]) for m in read(where, len(expected))]
        same(got, expected, "records")

    return case


def idempotent():
    where = f"{prefix}-idempotent"
    create(where, 1)
    rows = [(0, b"k", b"%d" % n, [], None) for n in range(200)]
    produce(where, rows, enable_idempotence=True, batch_size=512)
    got = [(m.offset, m.value) for m in read(where, 200)]
    same(got, [(n, b"%d" % n) for n in range(200)], "records")


def transactional(name):
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=10_000)
    producer.init_transactions()
    return producer


def transactions():
    where = f"{prefix}-txn"
    create(where, 1)
    producer = transactional(where)
    for n, ends in enumerate(["commit", "abort", "commit"]):
        producer.begin_transaction()
        for i in range(3):
            producer.send(where, b"%d-%d" % (n, i), b"k", partition=0)
        if ends == "commit":
            producer.commit_transaction()
        else:
            producer.flush(10)
            producer.abort_transaction()
    # A new instance aborts what the old one has open, and fences it.
    producer.begin_transaction()
    producer.send(where, b"late", b"k", partition=0).get(10)
    newer = transactional(where)
    fenced = False
    try:
        producer.commit_transaction()
    except KafkaError:
        fenced = True
    same(fenced, True, "the old instance is fenced")
    newer.begin_transaction()
    newer.send(where, b"new", b"k", partition=0)
    newer.commit_transaction()
    newer.close(5)
    expected = [b"%d-%d" % (n, i) for n in (0, 2) for i in range(3)] + [b"new"]
    got = [m.value for m in read(where, 7, isolation_level="read_committed")]
    same(got, expected, "records")


def transaction_offsets():
    source, target = f"{prefix}-txn-in", f"{prefix}-txn-out"
    create(source, 1)
    create(target, 1)
    produce(source, [(0, b"k", b"%d" % n, [], None) for n in range(4)])
    producer = transactional(f"{prefix}-txn-copy")
    place, name = TopicPartition(source, 0), f"{prefix}-txn-group"

    def copy(at, kept):
        producer.begin_transaction()
        for message in read(source, 2, offset=at)[:2]:
            producer.send(target, message.value, b"k", partition=0)
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(at + 2, "", -1)}, name)
        producer.commit_transaction() if kept else producer.abort_transaction()
        reader = consumer(group_id=name)
        committed = until("the committed offset", lambda: reader.committed(place))
        reader.close()
        return committed

    same(copy(0, True), 2, "committed with the transaction")
    same(copy(2, False), 2, "not committed by an aborted one")
    same(copy(2, True), 4, "committed by the next")
    got = [m.value for m in read(target, 4, isolation_level="read_committed")]
    same(got, [b"%d" % n for n in range(4)], "each record once")
    producer.close(5)


def compaction():
    where = f"{prefix}-compact"
    create(where, 1, topic_configs=harness.COMPACT)
    for rows in harness.ROUNDS:
        produce(where, [(0, key, value, [], None) for key, value in rows])
        time.sleep(0.1)

    def kept():
        found = [(m.offset, m.key, m.value) for m in read(where, len(harness.KEPT))]
        return found[: len(harness.KEPT)] == harness.KEPT

    until("only the newest of each key", kept)


def member():
    return consumer(
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        # A member that is gone holds the others up for so long.
        max_poll_interval_ms=8000,
    )


def subscribed():
    reader = member()
    reader.subscribe([group_topic])
    return reader


def group_rebalance():
    create(group_topic, 4)
    first, second, got = subscribed(), None, []

    # Side by side: a member that waits for the other to join must not keep it from being polled.
    polls = ThreadPoolExecutor(2)

    def spread(*sizes):
        members = [m for m in (first, second) if m]
        for batch in polls.map(poll, members):
            got.extend(batch)
        return sorted(len(m.assignment()) for m in members) == sorted(sizes)

    until("all partitions for the first", lambda: spread(4))
    second = subscribed()
    until("two partitions each", lambda: spread(2, 2))
    produce(group_topic, [(n % 4, b"k", b"%d" % n, [], None) for n in range(40)])
    until("40 records", lambda: spread(2, 2) and len(got) >= 40)
    same(sorted(int(m.value) for m in got), list(range(40)), "records")
    for reader in (first, second):
        reader.commit()
    second.close()
    second = None
    until("all partitions back", lambda: spread(4))
    first.close()


def group_resumes():
    produce(group_topic, [(1, b"k", b"new", [], None)])
    reader = subscribed()
    got = until("the new record", lambda: poll(reader))[0]
    same((got.partition, got.offset, got.value), (1, 10, b"new"), "record")
    committed = [reader.committed(TopicPartition(group_topic, p)) for p in range(4)]
    same(committed, [10] * 4, "committed offsets")
    reader.close()


def offsets_by_time():
    where = f"{prefix}-time"
    create(where, 1)
    produce(where, [(0, b"k", b"%d" % n, [], EPOCH_MS + n * STEP_MS) for n in range(10)])
    reader = consumer()
    one = TopicPartition(where, 0)
    asked = [EPOCH_MS, EPOCH_MS + 3 * STEP_MS, EPOCH_MS + 3 * STEP_MS + 1, EPOCH_MS + 10 * STEP_MS]
    found = [reader.offsets_for_times({one: t})[one] for t in asked]
    same([f.offset if f else None for f in found], [0, 3, 4, None], "offsets by time")
    ends = (reader.beginning_offsets([one])[one], reader.end_offsets([one])[one])
    same(ends, (0, 10), "first and end offset")
    reader.close()
    message = read(where, 1, offset=7)[0]
    same((message.offset, message.timestamp), (7, EPOCH_MS + 7 * STEP_MS), "record at offset 7")


def groups_listed():
    listed = str(admin.list_groups())
    same(group in listed, True, f"{group} is listed")
    described = admin.describe_groups([group])[group]
    same((described["group_state"], described["members"]), ("Empty", []), "state and members")


def delete_topic():
    admin.delete_topics([topic])
    until("the topic is gone", lambda: topic not in admin.list_topics())


harness.run(
    [("create-topic", create_topic)]
    + [(f"codec-{name}", codec(name)) for name in ("none", "gzip", "snappy", "lz4", "zstd")]
    + [
        ("idempotent", idempotent),
        ("transactions", transactions),
        ("transaction-offsets", transaction_offsets),
        ("compaction", compaction),
        ("group-rebalance", group_rebalance),
        ("group-resumes", group_resumes),
        ("group-kip848", harness.skip("kafka-python speaks the classic protocol only")),
        ("group-migration", harness.skip("kafka-python speaks the classic protocol only")),
        ("group-migration-cooperative", harness.skip("kafka-python speaks the classic protocol only")),
        ("share-group", harness.skip("kafka-python has no share groups")),
        ("share-dead-letters", harness.skip("kafka-python has no share groups")),
        ("offsets-by-time", offsets_by_time),
        ("groups-listed", groups_listed),
        ("delete-topic", delete_topic),
    ]
)
