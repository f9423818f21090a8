"""KAFKA-10778: appends go on after an I/O error.

What was wrong (Kafka before 2.8): the operation that met the I/O error failed, and its data folder was put into a
queue. Until the thread that handles failed folders took it out (it needs a lock that a request of the controller may
hold for seconds), the log stayed in use: later appends were written, fsynced and acknowledged. What the failed
operation left behind is then in the middle of the log.

Here an fsync fails once. The system counts the pages that it could not write as clean, so that the next fsync
succeeds without them. The broker acknowledges what comes after, and finds the hole when it opens the log again: its
recovery truncates there.

Needs: EIO on an fsync of a log, while its leader is the only member of the ISR.
Seen as: `lost-write`; `inconsistent-offsets` where other records take the offsets.
Replaces: `LogAvailability.fence`, `LogFailures.log_failed`.
Source: KAFKA-10778, KIP-112; Kafka's `LogDirFailureChannel`, `ReplicaManager.LogDirFailureHandler`.
"""

from __future__ import annotations

from harrow.cluster.errors import StorageError
from harrow.cluster.planting import Planter
from harrow.cluster.replication.log_failures import LogFailures
from harrow.cluster.replication.partition import Partition
from harrow.cluster.storage.log_availability import LogAvailability

TITLE = "KAFKA-10778: appends go on between an I/O error and the handling of the failed folder"
HANDLER_MS = 800
"""When the handler takes a failed folder out of its queue."""


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
