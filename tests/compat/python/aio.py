"""The cases with aiokafka."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

import harness
from harness import CASE_LIMIT_S, EPOCH_MS, STEP_MS, same

bootstrap, prefix = harness.arguments()
topic, group_topic, group = f"{prefix}-t", f"{prefix}-g", f"{prefix}-group"
loop = asyncio.new_event_loop()


def case(run):
    """A coroutine as a case."""
    return lambda: loop.run_until_complete(asyncio.wait_for(run(), CASE_LIMIT_S))


async def until(what, condition, seconds=15):
    end = loop.time() + seconds
    while loop.time() < end:
        result = await condition()
        if result:
            return result
    raise TimeoutError(f"{what}: not within {seconds} s")


async def with_admin(work):
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        return await work(admin)
    finally:
        await admin.close()


async def create(name, partitions, **settings):
    await with_admin(lambda admin: admin.create_topics([NewTopic(name, partitions, 1, **settings)]))


async def produce(name, rows, **settings):
    """rows: (partition, key, value, headers, timestamp or None)."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20, **settings)
    await producer.start()
    sent = []
    for partition, key, value, headers, timestamp in rows:
        future = await producer.send(name, value, key, partition, timestamp_ms=timestamp, headers=headers)
        sent.append(future)
    await asyncio.gather(*sent)
    await producer.stop()


async def consumer(*topics, **settings):
    reader = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, enable_auto_commit=False, **settings)
    await reader.start()
    return reader


async def poll(reader, ms=100):
    return [m for batch in (await reader.getmany(timeout_ms=ms)).values() for m in batch]


async def read(name, count, offset=0, **settings):
    reader = await consumer(**settings)
    where = TopicPartition(name, 0)
    reader.assign([where])
    reader.seek(where, offset)
    found = []

    async def more():
        found.extend(await poll(reader))
        return len(found) >= count

    await until(f"{count} records", more)
    await reader.stop()
    return found


async def create_topic():
    await create(topic, 3)

    async def there(admin):
        async def partitions():
            return (await admin.describe_topics([topic]))[0]["partitions"]

        return await until("the topic", partitions)

    same(len(await with_admin(there)), 3, "partitions")


def codec(name):
    async def run():
        where = f"{prefix}-{name}"
        await create(where, 1)
        expected = harness.records()
        kind = None if name == "none" else name
        await produce(where, [(0, *record, None) for record in expected], compression_type=kind)
        got = [(m.key, m.value, list(m.headers)) for m in await read(where, len(expected))]
        same(got, expected, "records")

    return run


async def idempotent():
    where = f"{prefix}-idempotent"
    await create(where, 1)
    rows = [(0, b"k", b"%d" % n, [], None) for n in range(200)]
    await produce(where, rows, enable_idempotence=True, max_batch_size=512)
    got = [(m.offset, m.value) for m in await read(where, 200)]
    same(got, [(n, b"%d" % n) for n in range(200)], "records")


async def transactional(name):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, transaction_timeout_ms=10_000)
    await producer.start()
    return producer


async def transactions():
    where = f"{prefix}-txn"
    await create(where, 1)
    producer = await transactional(where)
    for n, ends in enumerate(["commit", "abort", "commit"]):
        await producer.begin_transaction()
        for i in range(3):
            await producer.send_and_wait(where, b"%d-%d" % (n, i), b"k", 0)
        await (producer.commit_transaction() if ends == "commit" else producer.abort_transaction())
    # A new instance aborts what the old one has open, and fences it.
    await producer.begin_transaction()
    await producer.send_and_wait(where, b"late", b"k", 0)
    newer = await transactional(where)
    fenced = False
    try:
        await producer.commit_transaction()
    except KafkaError:
        fenced = True
    same(fenced, True, "the old instance is fenced")
    await newer.begin_transaction()
    await newer.send_and_wait(where, b"new", b"k", 0)
    await newer.commit_transaction()
    await newer.stop()
    expected = [b"%d-%d" % (n, i) for n in (0, 2) for i in range(3)] + [b"new"]
    got = [m.value for m in await read(where, 7, isolation_level="read_committed")]
    same(got, expected, "records")


async def transaction_offsets():
    source, target = f"{prefix}-txn-in", f"{prefix}-txn-out"
    await create(source, 1)
    await create(target, 1)
    await produce(source, [(0, b"k", b"%d" % n, [], None) for n in range(4)])
    producer = await transactional(f"{prefix}-txn-copy")
    place, name = TopicPartition(source, 0), f"{prefix}-txn-group"

    async def copy(at, kept):
        await producer.begin_transaction()
        for message in (await read(source, 2, offset=at))[:2]:
            await producer.send_and_wait(target, message.value, b"k", 0)
        await producer.send_offsets_to_transaction({place: at + 2}, name)
        await (producer.commit_transaction() if kept else producer.abort_transaction())
        reader = await consumer(group_id=name)
        committed = await until("the committed offset", lambda: reader.committed(place))
        await reader.stop()
        return committed

    same(await copy(0, True), 2, "committed with the transaction")
    same(await copy(2, False), 2, "not committed by an aborted one")
    same(await copy(2, True), 4, "committed by the next")
    got = [m.value for m in await read(target, 4, isolation_level="read_committed")]
    same(got, [b"%d" % n for n in range(4)], "each record once")
    await producer.stop()


async def compaction():
    where = f"{prefix}-compact"
    await create(where, 1, topic_configs=harness.COMPACT)
    for rows in harness.ROUNDS:
        await produce(where, [(0, key, value, [], None) for key, value in rows])
        await asyncio.sleep(0.1)

    async def kept():
        found = [(m.offset, m.key, m.value) for m in await read(where, len(harness.KEPT))]
        return found[: len(harness.KEPT)] == harness.KEPT

    await until("only the newest of each key", kept)


async def member():
    return await consumer(
        group_topic,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=2000,
    )


async def group_rebalance():
    await create(group_topic, 4)
    members, got = [await member()], []

    async def spread(*sizes):
        for batch in await asyncio.gather(*map(poll, members)):
            got.extend(batch)
        return sorted(len(m.assignment()) for m in members) == sorted(sizes)

    await until("all partitions for the first", lambda: spread(4))
    # It is done starting when it has joined, and for that the first must notice the rebalance.
    members.append(await member())
    await until("two partitions each", lambda: spread(2, 2))
    await produce(group_topic, [(n % 4, b"k", b"%d" % n, [], None) for n in range(40)])

    async def all_read():
        return await spread(2, 2) and len(got) >= 40

    await until("40 records", all_read)
    same(sorted(int(m.value) for m in got), list(range(40)), "records")
    for reader in members:
        await reader.commit()
    await members.pop().stop()
    await until("all partitions back", lambda: spread(4))
    await members.pop().stop()


async def group_resumes():
    await produce(group_topic, [(1, b"k", b"new", [], None)])
    reader = await member()
    got = (await until("the new record", lambda: poll(reader)))[0]
    same((got.partition, got.offset, got.value), (1, 10, b"new"), "record")
    committed = [await reader.committed(TopicPartition(group_topic, p)) for p in range(4)]
    same(committed, [10] * 4, "committed offsets")
    await reader.stop()


async def offsets_by_time():
    where = f"{prefix}-time"
    await create(where, 1)
    await produce(where, [(0, b"k", b"%d" % n, [], EPOCH_MS + n * STEP_MS) for n in range(10)])
    reader = await consumer()
    one = TopicPartition(where, 0)
    asked = [EPOCH_MS, EPOCH_MS + 3 * STEP_MS, EPOCH_MS + 3 * STEP_MS + 1, EPOCH_MS + 10 * STEP_MS]
    found = [(await reader.offsets_for_times({one: t}))[one] for t in asked]
    same([f.offset if f else None for f in found], [0, 3, 4, None], "offsets by time")
    ends = ((await reader.beginning_offsets([one]))[one], (await reader.end_offsets([one]))[one])
    same(ends, (0, 10), "first and end offset")
    await reader.stop()
    message = (await read(where, 1, offset=7))[0]
    same((message.offset, message.timestamp), (7, EPOCH_MS + 7 * STEP_MS), "record at offset 7")


async def groups_listed():
    listed = await with_admin(lambda admin: admin.list_consumer_groups())
    same(group in str(listed), True, f"{group} is listed")
    described = await with_admin(lambda admin: admin.describe_consumer_groups([group]))
    _error, name, state, _kind, _protocol, members = described[0].to_object()["groups"][0].values()
    same((name, state, list(members)), (group, "Empty", []), "state and members")


async def delete_topic():
    async def gone(admin):
        async def check():
            return topic not in await admin.list_topics()

        await admin.delete_topics([topic])
        await until("the topic is gone", check)

    await with_admin(gone)


harness.run(
    [("create-topic", case(create_topic))]
    + [(f"codec-{name}", case(codec(name))) for name in ("none", "gzip", "snappy", "lz4", "zstd")]
    + [
        ("idempotent", case(idempotent)),
        ("transactions", case(transactions)),
        ("transaction-offsets", case(transaction_offsets)),
        ("compaction", case(compaction)),
        ("group-rebalance", case(group_rebalance)),
        ("group-resumes", case(group_resumes)),
        ("group-kip848", harness.skip("aiokafka speaks the classic protocol only")),
        ("group-migration", harness.skip("aiokafka speaks the classic protocol only")),
        ("group-migration-cooperative", harness.skip("aiokafka speaks the classic protocol only")),
        ("share-group", harness.skip("aiokafka has no share groups")),
        ("share-dead-letters", harness.skip("aiokafka has no share groups")),
        ("offsets-by-time", case(offsets_by_time)),
        ("groups-listed", case(groups_listed)),
        ("delete-topic", case(delete_topic)),
    ]
)
