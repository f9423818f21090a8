"""A crash at any step of a transaction ends in exactly a commit or exactly an abort (F3, F4, K6).

Each failpoint crashes the broker that acts there: the transaction coordinator, a partition leader, or the group
coordinator. Afterwards a new producer with the same transactional id must begin at once, readers of committed data
must reach the end of both partitions, and they must see the whole transaction or nothing of it, offsets included.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent
from time import monotonic

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from harrow import Harrow
from long_runs import some
from transaction_steps import SETTINGS, STEPS, Job, broker_at, commit_as_heir, new_job, start_client, warm_up
from transactional_clients import TIMEOUT_S, committed_offset, consumer_of, read_both, transactional_producer
from waiting import until

pytestmark = pytest.mark.harrow(scope="session", config=SETTINGS)

IDLE_MS = 1_000
"""librdkafka closes idle connections after this time, and so looks for the group coordinator again.

Without it `send_offsets_to_transaction` may never return, whatever its timeout is (confluentinc/librdkafka #5511): when
the metadata does not list the group coordinator's broker, the client ends that broker's thread, and the request waits
for a change of state of a broker. No broker changes its state in a quiet client, not even when the crashed one is back.
"""


@pytest.fixture
def warm(harrow: Harrow) -> Iterator[Harrow]:
    """The cluster with both internal topics, and all brokers alive, before and after."""
    warm_up(harrow)
    yield harrow
    for broker in harrow.cluster.brokers.values():
        if not broker.alive:
            broker.start()
    harrow.cluster.await_full_isr()


def end(producer: Producer) -> bool:
    """Commit as an application does: again after an error that allows it, else abort. True when it is committed."""
    deadline = monotonic() + 60
    while monotonic() < deadline:
        try:
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort():
                producer.abort_transaction(TIMEOUT_S)
                return False
            assert reason.retriable(), reason
        else:
            return True
    raise AssertionError("the transaction did not end")


def run_once(producer: Producer, job: Job, consumer: object) -> bool:
    """One transaction: a record in each partition of the sink, and an offset; True when it is committed."""
    producer.begin_transaction()
    try:
        for partition in (0, 1):
            producer.produce(job.sink, f"record-{partition}", partition=partition)
        metadata = consumer.consumer_group_metadata()  # type: ignore[attr-defined]
        producer.send_offsets_to_transaction([TopicPartition(job.source, 0, 7)], metadata, TIMEOUT_S)
    except KafkaException as error:
        reason = error.args[0]
        assert reason.retriable() or reason.txn_requires_abort(), reason
        producer.abort_transaction(TIMEOUT_S)
        return False
    return end(producer)


@pytest.mark.parametrize("step", some(STEPS, suite=2))
def test_a_crash_at_each_step_ends_in_a_whole_commit_or_none(warm: Harrow, step: str) -> None:
    servers, job = warm.bootstrap_servers, new_job(warm, "survivor")
    node = broker_at(warm, step, job.transactional_id, job.sink, job.group)
    producer = transactional_producer(servers, job.transactional_id, connections_max_idle_ms=IDLE_MS)
    with consumer_of(servers, job.group) as consumer:
        if not step.endswith("-init"):
            producer.init_transactions(TIMEOUT_S)
        warm.cluster.control(node, "rules.add", kind="failpoint", name=step, action="crash", nth=1)
        if step.endswith("-init"):
            producer.init_transactions(60)
        crashed = warm.cluster.brokers[node]
        with ThreadPoolExecutor(1) as thread:
            ending = thread.submit(run_once, producer, job, consumer)
            until(lambda: not crashed.alive, f"broker {node} crashed at {step}")
            committed = ending.result()
            crashed.start()
        commit_as_heir(servers, job, 60)
    seen, everything = read_both(servers, job.sink, partitions=2)
    mine = sorted(value for value in seen if value.startswith("record"))
    assert mine == (["record-0", "record-1"] if committed else []), everything
    assert sorted(set(seen) - set(mine)) == ["heir-0", "heir-1"]
    offset = committed_offset(servers, job.group, job.source)
    assert offset == (7 if committed else -1001)


CLIENT = dedent(
    """
    import sys
    from confluent_kafka import Producer, Consumer, TopicPartition
    servers, name, source, sink, group, step = sys.argv[1:]
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name,
                         "transaction.timeout.ms": 1000, "log_level": 0})
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    def reached(here):
        if here == step:
            print("reached", flush=True)
            sys.stdin.read()
    producer.init_transactions(30)
    reached("init")
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(sink, f"record-{partition}", partition=partition)
    producer.flush(30)
    reached("produce")
    producer.send_offsets_to_transaction([TopicPartition(source, 0, 7)], consumer.consumer_group_metadata(), 30)
    reached("offsets")
    producer.commit_transaction(30)
    reached("commit")
    """
)


@pytest.mark.parametrize("step", some(["commit", "produce", "offsets", "init"], suite=2))
def test_a_killed_client_leaves_a_whole_commit_or_an_abort_after_its_timeout(warm: Harrow, step: str) -> None:
    servers, job = warm.bootstrap_servers, new_job(warm, "killed")
    with start_client(CLIENT, servers, job, step) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "reached\n"
        client.send_signal(signal.SIGKILL)
    wanted = ["record-0", "record-1"] if step == "commit" else []

    def ended() -> bool:
        """Readers of committed data reach the high watermark: the next record is not held back."""
        plain = Producer({"bootstrap.servers": servers, "log_level": 0})
        for partition in (0, 1):
            plain.produce(job.sink, "plain", partition=partition)
        assert plain.flush(TIMEOUT_S) == 0
        seen, everything = read_both(servers, job.sink, partitions=2, ended=False)
        plains = sum(value == "plain" for value in everything)
        return sum(value == "plain" for value in seen) == plains

    until(ended, "the last stable offset advances")
    seen, _ = read_both(servers, job.sink, partitions=2)
    assert sorted(value for value in seen if value != "plain") == wanted
    assert committed_offset(servers, job.group, job.source) == (7 if wanted else -1001)
