"""The cases with confluent-kafka, that is librdkafka."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import harness
from harness import EPOCH_MS, STEP_MS, same, until

bootstrap, prefix = harness.arguments()
common = {"bootstrap.servers": bootstrap}
admin = AdminClient(common)
topic, group_topic, group = f"{prefix}-t", f"{prefix}-g", f"{prefix}-group"


def create(name, partitions, **settings):
    admin.create_topics([NewTopic(name, partitions, 1, **settings)])[name].result(10)


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


def transactional(name):
    producer = Producer({**common, "transactional.id": name, "transaction.timeout.ms": 10_000})
    producer.init_transactions(10)
    return producer


def read_committed(name, count):
    """All that can be read until the end, once the last transaction is through."""
    reader = consumer(**{"isolation.level": "read_committed", "enable.partition.eof": True})
    reader.assign([TopicPartition(name, 0, 0)])
    found = []

    def enough():
        message = reader.poll(0.2)
        if message is not None and not message.error():
            found.append(message.value())
        return len(found) >= count

    until(f"{count} committed records", enough)
    reader.close()
    return found


def transactions():
    where = f"{prefix}-txn"
    create(where, 1)
    producer = transactional(f"{prefix}-txn")
    for n, ends in enumerate(["commit", "abort", "commit"]):
        producer.begin_transaction()
        for i in range(3):
            producer.produce(where, b"%d-%d" % (n, i), b"k", 0)
        if ends == "commit":
            producer.commit_transaction(10)
        else:
            producer.flush(10)
            producer.abort_transaction(10)
    same(read_committed(where, 6), [b"%d-%d" % (n, i) for n in (0, 2) for i in range(3)], "records")
    # A new instance aborts what the old one has open, and fences it.
    producer.begin_transaction()
    producer.produce(where, b"late", b"k", 0)
    producer.flush(10)
    newer = transactional(f"{prefix}-txn")
    fenced = None
    try:
        producer.commit_transaction(10)
    except KafkaException as error:
        fenced = error.args[0]
    same(fenced is not None and fenced.fatal(), True, "the old instance is fenced")
    newer.begin_transaction()
    newer.produce(where, b"new", b"k", 0)
    newer.commit_transaction(10)
    same(read_committed(where, 7)[6:], [b"new"], "after the fence")


def transaction_offsets():
    source, target = f"{prefix}-txn-in", f"{prefix}-txn-out"
    create(source, 1)
    create(target, 1)
    produce(source, [(0, b"k", b"%d" % n, [], None) for n in range(4)])
    reader = consumer(**{"group.id": f"{prefix}-txn-group", "auto.offset.reset": "earliest"})
    reader.subscribe([source])
    producer = transactional(f"{prefix}-txn-copy")

    def commits(kept):
        producer.begin_transaction()
        for _ in range(2):
            message = until("a record", lambda: poll(reader))
            producer.produce(target, message.value(), b"k", 0)
        at = reader.position(reader.assignment())
        producer.send_offsets_to_transaction(at, reader.consumer_group_metadata(), 10)
        producer.commit_transaction(10) if kept else producer.abort_transaction(10)
        return reader.committed([TopicPartition(source, 0)], 10)[0].offset

    same(commits(True), 2, "committed with the transaction")
    same(commits(False), 2, "not committed by an aborted one")
    reader.seek(TopicPartition(source, 0, 2))
    same(commits(True), 4, "committed by the next")
    same(read_committed(target, 4), [b"%d" % n for n in range(4)], "each record once")
    reader.close()


def compaction():
    where = f"{prefix}-compact"
    create(where, 1, config=harness.COMPACT)
    for rows in harness.ROUNDS:
        produce(where, [(0, key, value, [], None) for key, value in rows])
        time.sleep(0.1)

    def kept():
        found = [(m.offset(), m.key(), m.value()) for m in read(where, len(harness.KEPT))]
        return found[: len(harness.KEPT)] == harness.KEPT

    until("only the newest of each key", kept)


CLASSIC = (group, group_topic, {"session.timeout.ms": 6000})
# KIP-848: the broker assigns, and says how often to call.
CONSUMER = (f"{group}-848", f"{group_topic}-848", {"group.protocol": "consumer"})


def member(how):
    name, where, settings = how
    reader = consumer(**{"group.id": name, "auto.offset.reset": "earliest", **settings})
    reader.subscribe([where])
    return reader


def commit(reader):
    """What it has read; who has read nothing since the last commit has nothing to say."""
    try:
        reader.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:
            raise


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


def moves():
    """Two members, one after the other restarted with the newer protocol and then with the older one again, while records come."""
    where, name = f"{group_topic}-moves", f"{group}-moves"
    create(where, 4)
    older, newer = (name, where, {**CLASSIC[2], "heartbeat.interval.ms": 500}), (name, where, CONSUMER[2])
    members, sent, got = [member(older), member(older)], 0, []

    def settled():
        got.extend(m for m in map(poll, members) if m)
        return sorted(len(m.assignment()) for m in members) == [2, 2] and len({int(m.value()) for m in got}) == sent

    def more():
        nonlocal sent
        produce(where, [(n % 4, b"k", b"%d" % n, [], None) for n in range(sent, sent + 20)])
        sent += 20
        until(f"two partitions each, and {sent} records", settled)

    more()
    for index, how in ((0, newer), (1, newer), (0, older), (1, older)):
        commit(members[index])
        members[index].close()
        members[index] = member(how)
        more()
    # Who was given a partition without a commit reads again what the one before had read.
    def all_committed():
        settled()
        for reader in members:
            commit(reader)
        committed = members[0].committed([TopicPartition(where, p) for p in range(4)], 10)
        return [c.offset for c in committed] == [25] * 4

    until("all committed", all_committed)
    for reader in members:
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
        ("transactions", transactions),
        ("transaction-offsets", transaction_offsets),
        ("compaction", compaction),
        ("group-rebalance", lambda: rebalance(CLASSIC)),
        ("group-resumes", lambda: resumes(CLASSIC)),
        ("group-kip848", lambda: (rebalance(CONSUMER), resumes(CONSUMER))),
        ("group-migration", moves),
        ("group-migration-cooperative", harness.skip("Kafka refuses to move librdkafka's cooperative groups")),
        ("share-group", harness.skip("confluent-kafka has no share groups")),
        ("share-dead-letters", harness.skip("confluent-kafka has no share groups")),
        ("offsets-by-time", offsets_by_time),
        ("groups-listed", groups_listed),
        ("delete-topic", delete_topic),
    ]
)
