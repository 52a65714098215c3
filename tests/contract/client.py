"""The main job through a client that openapi-python-client made out of the description: `client.py URL`."""

import sys

from riverlog_v1 import Client
from riverlog_v1.api.groups import commit_offsets, get_lag, join_group, leave_group, poll, reset_group
from riverlog_v1.api.records import publish, read
from riverlog_v1.api.topics import create_topic
from riverlog_v1.api.transactions import commit_transaction, open_transactions
from riverlog_v1.models import (
    Begin,
    Commit,
    Create,
    End,
    Join,
    MemberState,
    OffsetIn,
    Plan,
    Polled,
    Problem,
    Record,
    RecordResults,
    Records,
    RecordsOut,
    Reset,
    Results,
)

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)


def of(kind, answer):
    assert isinstance(answer, kind), answer
    return answer


topic = create_topic.sync(client=client, body=Create(name="python", partitions=1))
assert topic.partitions == 1, topic
again = create_topic.sync(client=client, body=Create(name="python", partitions=1))
assert of(Problem, again).kafka_error.name == "TOPIC_ALREADY_EXISTS", again

# Sent twice with one key: stored once.
big = {"id": 2**53 + 1}
body = Records(records=[Record(key="k", value=big), Record(value=None, key="k")])
for duplicate in (False, True):
    results = of(
        RecordResults,
        publish.sync("python", client=client, body=body, embed="json", idempotency_key="once"),
    ).results
    assert [r.offset for r in results] == [0, 1], results
    assert [r.duplicate for r in results] == [duplicate] * 2, results

records = of(RecordsOut, read.sync("python", 0, client=client, offset="start", embed="json")).records
assert [r.value for r in records] == [big, None], records
beyond = of(Problem, read.sync("python", 0, client=client, offset="99"))
assert beyond.status == 416 and not beyond.retriable, beyond

# A member polls, commits within its generation, and is refused outside it.
member = of(MemberState, join_group.sync("g", client=client, body=Join(topics=["python"])))
cursor, seen, generation = member.cursor, [], member.generation
while len(seen) < 2:
    polled = of(Polled, poll.sync("g", member.member_id, client=client, cursor=cursor, wait_ms=1000, embed="json"))
    cursor, generation = polled.cursor, polled.generation
    seen += polled.records
assert [r.value for r in seen] == [big, None], seen
offsets = [OffsetIn(topic="python", partition=0, offset=1)]
stale = commit_offsets.sync(
    "g", client=client, body=Commit(offsets=offsets, generation=generation - 1, member_id=member.member_id)
)
assert of(Problem, stale).status == 409, stale
of(
    Results,
    commit_offsets.sync(
        "g", client=client, body=Commit(offsets=offsets, generation=generation, member_id=member.member_id)
    ),
)
assert get_lag.sync("g", client=client).total == 1
leave_group.sync_detailed("g", member.member_id, client=client)
plan = of(Plan, reset_group.sync("g", client=client, body=Reset(to="end"), dry_run=True))
assert (plan.moves[0].from_, plan.moves[0].to) == (1, 2), plan

# A transaction shows when it is committed, and not before.
producer = open_transactions.sync(client=client, body=Begin(transactional_id="t"))
of(
    RecordResults,
    publish.sync(
        "python",
        client=client,
        body=Records(records=[Record(value="in a transaction")]),
        riverlog_producer_id=producer.producer_id,
        riverlog_producer_epoch=producer.epoch,
        riverlog_sequence=0,
        riverlog_transactional_id="t",
    ),
)
assert read.sync("python", 0, client=client, offset="2").records == []
end = End(producer_id=producer.producer_id, epoch=producer.epoch)
commit_transaction.sync("t", client=client, body=end)
records = read.sync("python", 0, client=client, offset="2", wait_ms=10_000).records
assert [r.value for r in records] == ["in a transaction"], records
print("python: the main job works through a generated client")
