"""The cases with kafka-python."""

from concurrent.futures import ThreadPoolExecutor

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

import harness
from harness import EPOCH_MS, STEP_MS, same, until

bootstrap, prefix = harness.arguments()
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
topic, group_topic, group = f"{prefix}-t", f"{prefix}-g", f"{prefix}-group"


def create(name, partitions):
    admin.create_topics([NewTopic(name, partitions, 1)])


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


def read(name, count, offset=0):
    reader = consumer()
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


def member():
    return consumer(
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
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
        ("group-rebalance", group_rebalance),
        ("group-resumes", group_resumes),
        ("group-kip848", harness.skip("kafka-python speaks the classic protocol only")),
        ("offsets-by-time", offsets_by_time),
        ("groups-listed", groups_listed),
        ("delete-topic", delete_topic),
    ]
)
