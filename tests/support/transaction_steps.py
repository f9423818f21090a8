"""The failpoints of a transaction, and the broker that passes each of them."""

from __future__ import annotations

from harrow import Harrow
from harrow.cluster.host.seam.failpoints import DECLARED
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS, partition_for
from waiting import until

SETTINGS = {
    "transaction.state.log.num.partitions": 5,
    "offsets.topic.num.partitions": 5,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
AT_LEADERS = ("before-marker", "after-marker", "before-verification", "after-verification")
AT_GROUPS = ("before-offsets", "after-offsets")
STEPS = sorted(name for name in DECLARED if name.startswith("transaction."))


def home(harrow: Harrow, topic: str, key: str) -> int:
    """The broker that coordinates `key`."""
    partition = partition_for(key, 5)
    leader = until(
        lambda: harrow.cluster.leader(topic, partition), f"{topic}-{partition} has a leader"
    )
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
