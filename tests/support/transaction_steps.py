"""The failpoints of a transaction, the broker that passes each of them, and the clients of a test at one of them."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple
from uuid import uuid4

from harrow import Harrow
from harrow.cluster.host.seam.failpoints import DECLARED
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS, partition_for
from transactional_clients import TIMEOUT_S, committed_offset, send, transactional_producer
from waiting import until

SETTINGS = {
    "transaction.state.log.num.partitions": 5,
    "offsets.topic.num.partitions": 5,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "auto.leader.rebalance.enable": False,
}
"""5 s after a controller is elected, leaders move to the preferred replicas. Where that happened between the search for
the broker of a step and the step, another broker passed the step, and the failpoint fired in a later test.
"""
AT_LEADERS = ("before-marker", "after-marker", "before-verification", "after-verification")
AT_GROUPS = ("before-offsets", "after-offsets")
STEPS = sorted(name for name in DECLARED if name.startswith("transaction."))


def home(harrow: Harrow, topic: str, key: str) -> int:
    """The broker that coordinates `key`."""
    partition = partition_for(key, 5)
    leader = until(lambda: harrow.cluster.leader(topic, partition), f"{topic}-{partition} has a leader")
    assert leader is not None
    return leader


def broker_at(harrow: Harrow, step: str, name: str, topic: str, group: str) -> int:
    """The broker that passes `step` in a transaction of `name` with `topic` and `group`."""
    if step.endswith(AT_LEADERS):
        leader = harrow.cluster.leader(topic, 0)
        assert leader is not None
        return leader
    if step.endswith(AT_GROUPS):
        return home(harrow, OFFSETS.name, group)
    return home(harrow, TRANSACTIONS.name, name)


def warm_up(harrow: Harrow) -> None:
    """Create both internal topics."""
    transactional_producer(harrow.bootstrap_servers).init_transactions(TIMEOUT_S)
    committed_offset(harrow.bootstrap_servers, "warm-up", harrow.topic("warm", partitions=1).name)


class Job(NamedTuple):
    """The names of one test's transactions."""

    transactional_id: str
    group: str
    source: str
    sink: str
    """Has two partitions."""


def new_job(harrow: Harrow, prefix: str) -> Job:
    """Create the topics; the ids are used by no other test."""
    source, sink = (harrow.topic("source", partitions=1), harrow.topic("sink", partitions=2))
    return Job(f"{prefix}-{uuid4().hex[:6]}", f"group-{uuid4().hex[:6]}", source.name, sink.name)


def start_client(program: str, servers: str, job: Job, step: str) -> subprocess.Popen[str]:
    """Start a Python program with the addresses, the job's names and the step as its arguments."""
    name, group, source, sink = job
    return subprocess.Popen(
        [sys.executable, "-c", program, servers, name, source, sink, group, step],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def commit_as_heir(servers: str, job: Job, timeout_s: float) -> None:
    """A new producer with the job's transactional id commits a record in each partition of the sink.

    The next start of the id ends when the markers are written, so readers of committed data then receive both.
    """
    heir = transactional_producer(servers, job.transactional_id)
    heir.init_transactions(timeout_s)
    heir.begin_transaction()
    for partition in (0, 1):
        send(heir, job.sink, f"heir-{partition}", partition=partition)
    heir.commit_transaction(timeout_s)
    transactional_producer(servers, job.transactional_id).init_transactions(timeout_s)
