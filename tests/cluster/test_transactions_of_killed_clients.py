"""A client that is killed while a broker stands at any step of its transaction (F3, F4, K6).

The broker is stopped by the failpoint, the client gets SIGKILL, then the broker goes on with the requests that it has.
The transaction is committed in all partitions or in none, its offset included: in all when the coordinator has the
request to commit. A new producer with the same
transactional id begins at once, and readers of committed data reach the end of all partitions.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from textwrap import dedent

import pytest
from harrow import Harrow
from long_runs import some
from transaction_steps import SETTINGS, STEPS, broker_at, commit_as_heir, new_job, start_client, warm_up
from transactional_clients import TIMEOUT_S, committed_offset, read_both
from waiting import until

pytestmark = pytest.mark.harrow(scope="session", config=SETTINGS)

ASKED_TO_COMMIT = ("-prepare", "-marker", "-markers", "-complete")
"""At these steps the coordinator has the request to commit, which it carries out without the client."""
CLIENT = dedent(
    """
    import sys
    from confluent_kafka import Producer, Consumer, TopicPartition
    servers, name, source, sink, group, step = sys.argv[1:]
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    if not step.endswith("-init"):
        producer.init_transactions(30)
    print("ready", flush=True)
    sys.stdin.readline()
    if step.endswith("-init"):
        producer.init_transactions(30)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(sink, f"record-{partition}", partition=partition)
    producer.flush(30)
    producer.send_offsets_to_transaction([TopicPartition(source, 0, 7)], consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    sys.stdin.read()
    """
)


@pytest.fixture
def warm(harrow: Harrow) -> Iterator[Harrow]:
    """The cluster with both internal topics; no broker is stopped afterwards."""
    warm_up(harrow)
    yield harrow
    for broker in harrow.cluster.brokers.values():
        broker.resume()
    harrow.cluster.await_full_isr()


@pytest.mark.parametrize("step", some(STEPS, suite=4))
def test_a_client_killed_at_each_step_leaves_a_whole_commit_or_none(warm: Harrow, step: str) -> None:
    servers, job = warm.bootstrap_servers, new_job(warm, "killed")
    node = broker_at(warm, step, job.transactional_id, job.sink, job.group)
    broker = warm.cluster.brokers[node]
    with start_client(CLIENT, servers, job, step) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        warm.cluster.control(node, "rules.add", kind="failpoint", name=step, action="stop", nth=1)
        client.stdin.write("\n")
        client.stdin.flush()
        until(lambda: broker.state == "paused", f"broker {node} stands at {step}")
        client.send_signal(signal.SIGKILL)
        client.wait()
        broker.resume()
    commit_as_heir(servers, job, TIMEOUT_S)
    seen, everything = read_both(servers, job.sink, partitions=2)
    mine = sorted(value for value in seen if value.startswith("record"))
    assert mine == (["record-0", "record-1"] if step.endswith(ASKED_TO_COMMIT) else []), everything
    assert sorted(set(seen) - set(mine)) == ["heir-0", "heir-1"]
    assert committed_offset(servers, job.group, job.source) == (7 if mine else -1001)
