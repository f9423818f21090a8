"""KAFKA-10778: appends go on after an I/O error.

What was wrong: the operation that met the I/O error failed, and its data folder was put into a queue. Until the thread
that handles failed folders took it out (it needs a lock that a request of the controller may hold for seconds), the log
stayed in use: later appends were written, fsynced and acknowledged. What the failed operation left behind is then in
the middle of the log.

Here an fsync fails once. The system counts the pages that it could not write as clean, so that the next fsync
succeeds without them. The broker acknowledges what comes after, and finds the hole when it opens the log again: its
recovery truncates there.

Seen as: `lost-write`; `inconsistent-offsets` where other records take the offsets.
Replaces: `LogAvailability.fence`, `LogFailures.log_failed`.
Source: KAFKA-10778, KIP-112; Kafka's `LogDirFailureChannel`, `ReplicaManager.LogDirFailureHandler`.
"""

from __future__ import annotations

import random

from harrow.cluster.errors import StorageError
from harrow.cluster.planting import Planter
from harrow.cluster.replication.log_failures import LogFailures
from harrow.cluster.replication.partition import Partition
from harrow.cluster.storage.log_availability import LogAvailability

from .. import disk_error, follower, kill, leader
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import AVAILABLE, SHORT, SHORT_SESSION_MS

TITLE = "KAFKA-10778: appends go on between an I/O error and the handling of the failed folder"
HANDLER_MS = 800
"""When the handler takes a failed folder out of its queue."""
OPTIONS = SimulationOptions(brokers=3, seconds=6.0, batches=300, power_loss=True, config=SHORT, topic_config=AVAILABLE)


def plant(planter: Planter) -> None:
    """Leave a log in use until the handler of failed folders runs."""
    plant_late_fence(planter)


def plant_late_fence(planter: Planter) -> None:
    """Fence a log only `HANDLER_MS` after an I/O error; every bug of a failed write before Kafka 2.8 needs that."""
    fence_now, fail_now = LogAvailability.fence, LogFailures.log_failed

    def fence(self: LogAvailability, failure: StorageError) -> None:
        tasks = self.tasks  # only `call_soon` is allowed on a thread
        tasks.call_soon(lambda: tasks.call_later(HANDLER_MS, fence_now, self, failure))

    def log_failed(self: LogFailures, partition: Partition | None, error: BaseException) -> None:
        if partition is None or partition.log.failed is not None:
            fail_now(self, partition, error)

    planter.replace_method(LogAvailability, "fence", fence)
    planter.replace_method(LogFailures, "log_failed", log_failed)


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The followers leave the ISR, then one fsync of the leader's log fails; the followers stay away meanwhile."""
    partition = rng.randrange(OPTIONS.partitions)
    begin_ms = rng.uniform(300, 900)
    error_ms = begin_ms + rng.uniform(1.5, 2.2) * SHORT_SESSION_MS
    back_ms = error_ms - begin_ms + 6 * SHORT_SESSION_MS
    log = f"*/{TOPIC}-{partition}/*.log"
    error = disk_error("sync", leader(TOPIC, partition), path=log, nth=rng.randint(1, 6), count=1)
    return (
        timed_step(1, begin_ms, kill(follower(TOPIC, partition)), back_ms),
        timed_step(2, begin_ms + 1, kill(follower(TOPIC, partition)), back_ms),
        timed_step(3, error_ms, error, 2 * SHORT_SESSION_MS),
    )


BUG = Bug(
    number=15,
    module=__name__,
    title=TITLE,
    versions="before 2.8",
    needs="EIO on an fsync of a log, while its leader is the only member of the ISR",
    seen_as=frozenset({"inconsistent-offsets", "lost-write"}),
    options=OPTIONS,
    steps=steps_by_time,
)
