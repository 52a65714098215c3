"""The cases with confluent-kafka, that is librdkafka."""

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import harness
from harness import EPOCH_MS, STEP_MS, same, until

bootstrap, prefix = harness.arguments()
common = {"bootstrap.servers": bootstrap}
admin = AdminClient(common)
topic, group_topic, group = f"{prefix}-t", f"{prefix}-g", f"{prefix}-group"


def create(name, partitions):
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(10)


def produce(name, rows, **settings):
    """rows: (partition, key, value, headers, timestamp or None)."""
    failed = []
    producer = Producer({**common, "acks": "all", "linger.ms": 20, **settings})
    for partition, key, value, headers, timestamp in rows:
        more = {} if timestamp is None else {"timestamp": timestamp}
        producer.produce(
            name, value, key, partition, on_delivery=lambda e, _: e and failed.append(e), headers=headers, **more
        )
    same(producer.flush(10), 0, "records left in the queue")
    same(failed, [], "failed deliveries")


def consumer(**settings):
    return Consumer({**common, "group.id": f"{prefix}-none", "enable.auto.commit": False, **settings})


def poll(reader, seconds=0.2):
    message = reader.poll(seconds)
    if message is not None and message.error():
        raise RuntimeError(message.error())
    return message


def read(name, count, offset=0):
    reader = consumer()
    reader.assign([TopicPartition(name, 0, offset)])
    found = []
    until(f"{count} records", lambda: len(found) >= count or found.append(poll(reader)) or drop_none(found))
    reader.close()
    return found


def drop_none(found):
    while None in found:
        found.remove(None)


def create_topic():
    create(topic, 3)
    found = until("the topic", lambda: admin.list_topics(topic, 5).topics.get(topic))
    same(len(found.partitions), 3, "partitions")


def codec(name):
    def case():
        where = f"{prefix}-{name}"
        create(where, 1)
        expected = harness.records()
        produce(where, [(0, *record, None) for record in expected], **{"compression.type": name})
        got = [(m.key(), m.value(), m.headers() or []) for m in read(where, len(expected))]
        same(got, expected, "records")

    return case


def idempotent():
    where = f"{prefix}-idempotent"
    create(where, 1)
    rows = [(0, b"k", b"%d" % n, [], None) for n in range(200)]
    produce(where, rows, **{"enable.idempotence": True, "batch.num.messages": 10})
    got = [(m.offset(), m.value()) for m in read(where, 200)]
    same(got, [(n, b"%d" % n) for n in range(200)], "records")


CLASSIC = (group, group_topic, {"session.timeout.ms": 6000})
# KIP-848: the broker assigns, and says how often to call.
CONSUMER = (f"{group}-848", f"{group_topic}-848", {"group.protocol": "consumer"})


def member(how):
    name, where, settings = how
    reader = consumer(**{"group.id": name, "auto.offset.reset": "earliest", **settings})
    reader.subscribe([where])
    return reader


def rebalance(how):
    where = how[1]
    create(where, 4)
    first, second, got = member(how), None, []

    def spread(*sizes):
        members = [m for m in (first, second) if m]
        got.extend(m for m in map(poll, members) if m)
        return sorted(len(m.assignment()) for m in members) == sorted(sizes)

    until("all partitions for the first", lambda: spread(4))
    second = member(how)
    until("two partitions each", lambda: spread(2, 2))
    produce(where, [(n % 4, b"k", b"%d" % n, [], None) for n in range(40)])
    until("40 records", lambda: spread(2, 2) and len(got) >= 40)
    same(sorted(int(m.value()) for m in got), list(range(40)), "records")
    for reader in (first, second):
        reader.commit(asynchronous=False)
    second.close()
    second = None
    until("all partitions back", lambda: spread(4))
    first.close()


def resumes(how):
    where = how[1]
    produce(where, [(1, b"k", b"new", [], None)])
    reader = member(how)
    committed = reader.committed([TopicPartition(where, p) for p in range(4)], 10)
    same([c.offset for c in committed], [10] * 4, "committed offsets")
    message = until("the new record", lambda: poll(reader))
    same((message.partition(), message.offset(), message.value()), (1, 10, b"new"), "record")
    reader.close()


def offsets_by_time():
    where = f"{prefix}-time"
    create(where, 1)
    produce(where, [(0, b"k", b"%d" % n, [], EPOCH_MS + n * STEP_MS) for n in range(10)])
    reader = consumer()
    asked = [EPOCH_MS, EPOCH_MS + 3 * STEP_MS, EPOCH_MS + 3 * STEP_MS + 1, EPOCH_MS + 10 * STEP_MS]
    got = [reader.offsets_for_times([TopicPartition(where, 0, t)], 10)[0].offset for t in asked]
    same(got, [0, 3, 4, -1], "offsets by time")
    same(reader.get_watermark_offsets(TopicPartition(where, 0), 10), (0, 10), "first and end offset")
    reader.close()
    message = read(where, 1, offset=7)[0]
    same((message.offset(), message.timestamp()[1]), (7, EPOCH_MS + 7 * STEP_MS), "record at offset 7")


def groups_listed():
    listed = [g.group_id for g in admin.list_consumer_groups().result(10).valid]
    same(group in listed, True, f"{group} is listed")
    described = admin.describe_consumer_groups([group])[group].result(10)
    same((described.state.name, list(described.members)), ("EMPTY", []), "state and members")


def delete_topic():
    admin.delete_topics([topic])[topic].result(10)
    until("the topic is gone", lambda: topic not in admin.list_topics(timeout=5).topics)


harness.run(
    [("create-topic", create_topic)]
    + [(f"codec-{name}", codec(name)) for name in ("none", "gzip", "snappy", "lz4", "zstd")]
    + [
        ("idempotent", idempotent),
        ("group-rebalance", lambda: rebalance(CLASSIC)),
        ("group-resumes", lambda: resumes(CLASSIC)),
        ("group-kip848", lambda: (rebalance(CONSUMER), resumes(CONSUMER))),
        ("offsets-by-time", offsets_by_time),
        ("groups-listed", groups_listed),
        ("delete-topic", delete_topic),
    ]
)
