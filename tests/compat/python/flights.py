"""One member of a group that reads flights, for `cargo xtask test flights`.

    flights.py BOOTSTRAP TOPIC GROUP LOG

Writes what happens, a line each: `assign PARTITION COMMITTED`, `read PARTITION OFFSET`, `commit PARTITION NEXT`. What is
committed has been written down before. Ends at SIGTERM.
"""

import signal
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

bootstrap, topic, group, path = sys.argv[1:]
log = open(path, "a", buffering=1 << 16)
positions = {}
running = True


def stop(_signal, _frame):
    global running
    running = False


def assigned(consumer, partitions):
    positions.clear()
    for _ in range(20):
        try:
            for at in consumer.committed(partitions, timeout=10):
                log.write(f"assign {at.partition} {max(at.offset, 0)}\n")
            break
        except KafkaException as failure:
            # The broker may be away just now.
            log.write(f"told {failure}\n")
    log.flush()


def commit(consumer):
    if not positions:
        return
    log.flush()
    offsets = [TopicPartition(topic, p, o) for p, o in sorted(positions.items())]
    try:
        done = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as failure:
        # A rebalance, or a broker that is away: it is tried again, unless another member has the partition by then.
        log.write(f"refused {failure}\n")
        return
    for at in done:
        if at.error is None:
            log.write(f"commit {at.partition} {at.offset}\n")
            if positions.get(at.partition) == at.offset:
                del positions[at.partition]
    log.flush()


def revoked(consumer, _partitions):
    commit(consumer)
    positions.clear()


signal.signal(signal.SIGTERM, stop)
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
    }
)
consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=lambda _c, _p: positions.clear())
while running:
    for message in consumer.consume(1000, timeout=0.2):
        if message.error():
            # librdkafka tells of lost connections this way, and tries again by itself.
            log.write(f"told {message.error()}\n")
            continue
        log.write(f"read {message.partition()} {message.offset()}\n")
        positions[message.partition()] = message.offset() + 1
    if positions:
        commit(consumer)
commit(consumer)
consumer.close()
log.close()
