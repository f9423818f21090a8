"""KAFKA-17507: a marker is acknowledged before the offsets of its transaction have taken effect.

What was wrong: when a marker was in `__consumer_offsets`, the group coordinator handed the offsets of its transaction
to a scheduler, and the acknowledgement left. The producer could then begin its next transaction and send further
offsets before the scheduler's thread had come to those of the last one. Pending offsets are kept by producer id, so the
thread made the offsets of the open transaction valid, or dropped them.

That scheduler had one thread, which also loaded partitions of `__consumer_offsets`, so it could be late by seconds.
Here it is always late by `LATE_MS`, about the time between two commits of the job.

Replaces: `TransactionalOffsetsApi.marker_written`.
Source: KAFKA-17507; Kafka's `GroupMetadataManager.scheduleHandleTxnCompletion`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.group_shard import GroupShard
from harrow.cluster.groups.transactional_offsets_api import EndOfTransaction, TransactionalOffsetsApi
from harrow.cluster.planting import Planter

from .bug import Bug
from .shared import NO_JOB_EVENTS, SHORT_JOB

TITLE = "KAFKA-17507: a marker is acknowledged before its offsets have taken effect"
LATE_MS = 150


def plant(planter: Planter) -> None:
    """Acknowledge at once, and let the offsets take effect later."""
    planter.replace_method(TransactionalOffsetsApi, "marker_written", _acknowledge_first)


def _acknowledge_first(
    self: TransactionalOffsetsApi,
    machine: GroupShard,
    marker: EndOfTransaction,
    invoked_ns: int,
    done: Callable[[ErrorCode], None],
) -> None:
    done(ErrorCode.none)
    machine.shard.timers.schedule(
        (TITLE, marker.producer_id, invoked_ns), LATE_MS, lambda: self.take_effect(machine, marker, invoked_ns)
    )


BUG = Bug(
    number=24,
    module=__name__,
    title=TITLE,
    versions="2.0 to 3.8",
    needs="a transaction that aborts, and a rebalance before the next commit of the partition",
    seen_as=frozenset({"committed-offset-regression", "duplicate-output", "missing-output"}),
    options=replace(SHORT_JOB, seconds=5.0, batches=60, job={"operations": NO_JOB_EVENTS, "aborted_part": 0.4}),
)
