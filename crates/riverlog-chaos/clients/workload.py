"""Producers and consumers of librdkafka that write down what they do and what they are told.

Started by the drills with a command a line on stdin and one answer a line on stdout. What is written is the history that
riverlog-checker judges; all times are of the machine's monotonic clock. Nothing here is restarted when the server is: a
client that has to be is a finding.
"""

import argparse
import json
import random
import sys
import threading
import time
import zlib

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

arguments = argparse.ArgumentParser()
arguments.add_argument("--bootstrap", required=True)
arguments.add_argument("--history", required=True)
arguments.add_argument("--topic", default="drill")
arguments.add_argument("--partitions", type=int, default=4)
arguments.add_argument("--segment-bytes", type=int, default=1 << 20)
arguments.add_argument("--seed", type=int, default=1)
arguments.add_argument("--rate", type=float, default=300.0, help="records a second of each producer")
arguments.add_argument("--most-bytes", type=int, default=1500, help="the most bytes of a value")
arguments.add_argument("--replicas", type=int, default=1)
arguments.add_argument("--transactions", action="store_true")
arguments.add_argument("--modern", action="store_true", help="one group by the protocol of KIP-848")
arguments.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; what `debug` has it tell goes to stderr")
options = arguments.parse_args()

COMMON = {
    "bootstrap.servers": options.bootstrap,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "topic.metadata.refresh.interval.ms": 2_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "log_level": 0,
}
COMMON |= dict(setting.split("=", 1) for setting in options.set)
if "debug" in COMMON:
    COMMON["log_level"] = 7
PARTITIONS = range(options.partitions)


class History:
    """The file, for all threads."""

    def __init__(self, path):
        self.file, self.lock = open(path, "w", buffering=1 << 16), threading.Lock()

    def add(self, client, op, at=None, **fields):
        line = json.dumps({"at": at or time.monotonic_ns(), "client": client, "op": op, **fields})
        with self.lock:
            self.file.write(line + "\n")

    def flush(self):
        with self.lock:
            self.file.flush()


history = History(options.history)
stopping, quiet = threading.Event(), threading.Event()
# Where the drill has damaged the disk: first offset and end, by partition. Whoever reads everything passes over it.
damaged = {}


def where(partition):
    return [options.topic, partition]


def bytes_of(value):
    """A value that shows when a byte of it is another: its name, and a tail that follows from the name. All programs make it alike."""
    size = zlib.crc32(value.encode()) % options.most_bytes
    return f"{value} {(value * (size // len(value) + 1))[:size]}".encode()


def value_of(data):
    name = (data or b"").split(b" ", 1)[0].decode(errors="replace")
    return name if bytes_of(name) == data else f"{name} damaged"


class Sender(threading.Thread):
    """A producer: idempotent, or one that sends once and never again, or in transactions."""

    def __init__(self, name, how):
        super().__init__(name=name, daemon=True)
        self.how, self.random = how, random.Random(f"{options.seed} {name}")
        self.acked = self.count = self.pending = 0
        # Told to be quiet, with nothing under way: no send without an answer, no transaction without an end.
        self.idle = False
        settings = {
            **COMMON,
            "acks": "all",
            "linger.ms": 2,
            "queue.buffering.max.messages": 2_000,
            "enable.idempotence": how != "once",
            "message.timeout.ms": 300_000 if how != "once" else 3_000,
        }
        if how == "once":
            settings |= {"retries": 0, "max.in.flight": 5}
        if how == "transactions":
            settings |= {
                "transactional.id": f"{options.topic}-{name}",
                "transaction.timeout.ms": 60_000,
                "message.timeout.ms": 50_000,
            }
        # A leader that leads no more says so also of what it has stored (as Kafka's does), and librdkafka sends that again unasked.
        again = how != "once" or options.replicas > 1
        history.add(name, "open", idempotent=how != "once", retries=again)
        self.producer = Producer(settings)

    def told(self, value, partition):
        def callback(error, message):
            self.pending -= 1
            # What was acknowledged after it shows librdkafka that a batch was stored whose answer it hasn't got: where, it can't say.
            unknown = error is None and message.offset() is None
            if error is None and not unknown:
                self.acked += 1
                history.add(self.name, "ack", place=where(partition), value=value, offset=message.offset())
            else:
                history.add(self.name, "fail", value=value, maybe=True)

        return callback

    def send(self, txn=None):
        value, partition = f"{self.name}-{self.count}", self.random.choice(PARTITIONS)
        self.count += 1
        data = bytes_of(value)
        history.add(self.name, "send", place=where(partition), value=value, txn=txn)
        while True:
            try:
                self.pending += 1
                return self.producer.produce(
                    options.topic, data, partition=partition, on_delivery=self.told(value, partition)
                )
            except BufferError:
                self.pending -= 1
                self.producer.poll(0.05)

    def pause(self):
        time.sleep(min(self.random.expovariate(options.rate), 0.05))
        self.producer.poll(0)

    def run(self):
        if self.how == "transactions":
            self.in_transactions()
        while not stopping.is_set():
            self.idle = quiet.is_set() and self.pending == 0
            if quiet.is_set() or self.pending > 1_000:
                self.producer.poll(0.05)
                continue
            for _ in range(self.random.randrange(1, 20)):
                self.send()
                self.pause()
        self.producer.flush(20)
        history.add(self.name, "close")

    def in_transactions(self):
        self.insist(lambda: self.producer.init_transactions(10))
        number = 0
        while not stopping.is_set():
            self.idle = quiet.is_set() and self.pending == 0
            if quiet.is_set():
                self.producer.poll(0.05)
                continue
            txn, number = f"{self.name}-txn-{number}", number + 1
            commit = self.random.random() < 0.7
            self.producer.begin_transaction()
            try:
                for _ in range(self.random.randrange(1, 20)):
                    self.send(txn)
                    self.pause()
                # What is aborted has been stored: a client that gives up sooner has nothing to hide from readers.
                while self.pending > 0:
                    self.producer.poll(0.05)
                history.add(self.name, "ending", txn=txn, commit=commit)
                end = self.producer.commit_transaction if commit else self.producer.abort_transaction
                self.insist(lambda: end(10))
                history.add(self.name, "ended", txn=txn, committed=commit)
            except KafkaException as error:
                # A send after one that has failed is refused with no more than that.
                if not (error.args[0].txn_requires_abort() or error.args[0].code() == KafkaError._STATE):
                    raise
                history.add(self.name, "ending", txn=txn, commit=False)
                self.insist(lambda: self.producer.abort_transaction(10))
                history.add(self.name, "ended", txn=txn, committed=False)

    def insist(self, call):
        """Again until it is answered."""
        while True:
            try:
                return call()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


class Reader(threading.Thread):
    """A member of a group that commits what it has got."""

    def __init__(self, name, group, modern=False):
        super().__init__(name=name, daemon=True)
        self.group, self.polls, self.records = group, 0, 0
        # The next offset of each partition, as far as this member has come.
        self.reached = {}
        settings = {
            **COMMON,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
        }
        if modern:
            settings |= {"group.protocol": "consumer"}
        else:
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        history.add(name, "open", group=group, read_committed=True)
        self.consumer = Consumer(settings)
        self.mine = set()

    def given(self, _, partitions):
        self.mine |= {p.partition for p in partitions}
        self.note()

    def taken(self, _, partitions):
        self.mine -= {p.partition for p in partitions}
        for partition in partitions:
            self.reached.pop(partition.partition, None)
        self.note()

    def note(self):
        history.add(self.name, "assign", places=[where(p) for p in sorted(self.mine)])

    def run(self):
        self.consumer.subscribe([options.topic], on_assign=self.given, on_revoke=self.taken, on_lost=self.taken)
        to_commit = {}
        while not stopping.is_set():
            since = time.monotonic_ns()
            messages = self.consumer.consume(200, 0.2)
            records, reached = [], {}
            for message in messages:
                error, partition = message.error(), message.partition()
                if error is None:
                    records.append([where(partition), message.offset(), value_of(message.value())])
                    to_commit[partition] = reached[partition] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached[partition] = message.offset()
            history.add(self.name, "poll", since=since, records=records)
            # What it has reached counts once the history says how: who waits for that looks from another thread.
            self.reached |= reached
            self.polls += 1
            self.records += len(records)
            if to_commit and self.polls % 3 == 0:
                self.commit({p: o for p, o in to_commit.items() if p in self.mine})
                to_commit = {}
        self.consumer.close()
        history.add(self.name, "close")

    def commit(self, offsets):
        if not offsets:
            return
        for partition, offset in offsets.items():
            history.add(self.name, "committing", group=self.group, place=where(partition), offset=offset)
        stored = set()
        try:
            wanted = [TopicPartition(options.topic, p, o) for p, o in offsets.items()]
            done = self.consumer.commit(offsets=wanted, asynchronous=False)
            stored = {p.partition for p in done if p.error is None}
        except KafkaException:
            pass
        for partition, offset in offsets.items():
            history.add(
                self.name,
                "committed",
                group=self.group,
                place=where(partition),
                offset=offset,
                stored=partition in stored,
            )


class Watcher(threading.Thread):
    """Asks for bounds and committed offsets over and over."""

    def __init__(self, groups):
        super().__init__(name="watcher", daemon=True)
        # The high watermark is the end, not the last stable offset: a commit is answered once it is decided, and its markers
        # are written after that. Who came to where readers of committed records may go meanwhile hasn't seen it yet.
        settings = {**COMMON, "isolation.level": "read_uncommitted"}
        self.clients = {group: Consumer({**settings, "group.id": group}) for group in groups}

    def run(self):
        while not stopping.is_set():
            for group, client in self.clients.items():
                look(client, group, 1.0)
            stopping.wait(0.3)


def look(client, group, seconds):
    for partition in PARTITIONS:
        try:
            since = time.monotonic_ns()
            # Two requests: the first offset, then the end.
            start, end = client.get_watermark_offsets(TopicPartition(options.topic, partition), seconds)
            history.add("watcher", "bounds", since=since, place=where(partition), start=start, end=end)
        except KafkaException:
            return
    since = time.monotonic_ns()
    try:
        committed = client.committed([TopicPartition(options.topic, p) for p in PARTITIONS], seconds)
    except KafkaException:
        return
    for entry in committed:
        if entry.error is None:
            offset = entry.offset if entry.offset >= 0 else None
            history.add("watcher", "offset", since=since, group=group, place=where(entry.partition), offset=offset)


def until(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Run:
    def __init__(self):
        admin = AdminClient(COMMON)
        config = {"segment.bytes": str(options.segment_bytes)}
        if options.replicas > 1:
            config["min.insync.replicas"] = "2"
        topic = NewTopic(options.topic, options.partitions, options.replicas, config=config)

        def made():
            try:
                admin.create_topics([topic])[options.topic].result(20)
            except KafkaException as error:
                # Nodes that have just started aren't all let in yet.
                if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                    raise
                return False
            return True

        if not until(20, made):
            raise SystemExit("too few nodes are let in")
        self.senders = [Sender("p1", "idempotent"), Sender("p2", "idempotent"), Sender("p3", "once")]
        if options.transactions:
            self.senders += [Sender("t1", "transactions"), Sender("t2", "transactions")]
        self.readers = [Reader("c1", "first"), Reader("c2", "first")]
        self.readers.append(Reader("d1", "modern" if options.modern else "second", options.modern))
        self.groups = sorted({reader.group for reader in self.readers})
        self.watcher = Watcher(self.groups)
        for thread in [*self.senders, *self.readers, self.watcher]:
            thread.start()

    def progress(self, seconds):
        """Every producer is answered, every group gets something."""
        acked = [s.acked for s in self.senders]
        read = {g: self.read(g) for g in self.groups}

        def moved():
            senders = all(s.acked > before for s, before in zip(self.senders, acked))
            return senders and all(self.read(g) > before for g, before in read.items())

        return until(seconds, moved)

    def read(self, group):
        return sum(reader.records for reader in self.readers if reader.group == group)

    def quiet(self, seconds):
        """Nothing new is sent, and what was sent is answered."""
        quiet.set()
        return until(seconds, lambda: all(sender.idle for sender in self.senders))

    def drain(self, seconds):
        """All groups come to the end of all partitions."""
        client = self.watcher.clients[self.groups[0]]
        ends = {}

        def read_all(group):
            reached = {}
            for reader in self.readers:
                if reader.group == group:
                    for partition, offset in dict(reader.reached).items():
                        # One that stands still hasn't heard who has its partitions by now.
                        if partition in reader.mine:
                            reached[partition] = max(offset, reached.get(partition, -1))
            return all(reached.get(p, -1) >= end for p, end in ends.items())

        def asked():
            for partition in PARTITIONS:
                if partition not in ends:
                    try:
                        place = TopicPartition(options.topic, partition)
                        ends[partition] = client.get_watermark_offsets(place, 2.0)[1]
                    except KafkaException:
                        return False
            return True

        left = list(self.groups)

        def drained():
            if not asked():
                return False
            for group in list(left):
                if read_all(group):
                    history.add("run", "drained", group=group)
                    left.remove(group)
            return not left

        return until(seconds, drained)

    def whole(self, seconds, committed):
        """Reads each partition from its start to its end, each with a client of its own. What can't be read is said."""
        unreadable = []
        for partition in PARTITIONS:
            problems = self.whole_partition(partition, seconds, committed)
            unreadable += [p for p in problems if partition not in damaged or "nothing for" in p]
        return unreadable

    def whole_partition(self, partition, seconds, committed):
        isolation = "read_committed" if committed else "read_uncommitted"
        client = Consumer(
            {
                **COMMON,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "fetch.error.backoff.ms": 50,
                "auto.offset.reset": "error",
            }
        )
        place = TopicPartition(options.topic, partition)
        bounds = []

        def ask():
            try:
                bounds[:] = client.get_watermark_offsets(place, 2.0)
            except KafkaException:
                return False
            return True

        since = time.monotonic_ns()
        if not until(seconds, ask):
            return [f"{partition}: no bounds"]
        start, end = bounds
        client.assign([TopicPartition(options.topic, partition, OFFSET_BEGINNING)])
        records, problems, moved, last, ended = [], [], time.monotonic(), start - 1, False
        while not ended and time.monotonic() - moved < seconds:
            for message in client.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    last, moved = message.offset(), time.monotonic()
                    records.append([last, value_of(message.value())])
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended = True
                else:
                    problems.append(f"{partition} after offset {last}: {error.name()}")
            begin, behind = damaged.get(partition, (0, 0))
            if begin <= last + 1 < behind and (problems or time.monotonic() - moved > 1):
                last, moved = behind - 1, time.monotonic()
                client.seek(TopicPartition(options.topic, partition, behind))
            # What producers add meanwhile has no end.
            ended = ended or last + 1 >= end
        client.close()
        if not ended:
            problems.append(f"{partition} after offset {last}: nothing for {seconds} s, the end is {end}")
        history.add(
            "reader",
            "whole",
            since=since,
            place=where(partition),
            start=start,
            end=end,
            records=records,
            read_committed=committed,
        )
        return problems

    def end(self):
        stopping.set()
        for thread in [*self.senders, *self.readers, self.watcher]:
            thread.join(30)
        stuck = [t.name for t in [*self.senders, *self.readers, self.watcher] if t.is_alive()]
        return f"these don't end: {stuck}" if stuck else ""


def answer(run, word, words, seconds):
    if word == "progress":
        return "" if run.progress(seconds) else "not every producer and every group moved"
    if word == "quiet":
        return "" if run.quiet(seconds) else "not everything that was sent was answered"
    if word == "resume":
        quiet.clear()
        return ""
    if word == "drain":
        return "" if run.drain(seconds) else "a group did not come to the end"
    if word == "whole":
        problems = run.whole(seconds, False) + (run.whole(seconds, True) if options.transactions else [])
        return "; ".join(problems)
    if word == "count":
        return f"{sum(s.acked for s in run.senders)}"
    if word == "damaged":
        partition, begin, behind = map(int, words)
        damaged[partition] = (begin, behind)
        return ""
    if word == "end":
        return run.end()
    return f"what is {word}?"


def main():
    run = Run()
    print("ok", flush=True)
    for line in sys.stdin:
        word, *words, seconds = line.split()
        said = answer(run, word, words, float(seconds))
        history.flush()
        if word == "count":
            print(f"ok {said}", flush=True)
        else:
            print(f"no {said}" if said else "ok", flush=True)
        if word == "end":
            return


main()
