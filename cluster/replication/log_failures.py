"""Logs that failed: the partition serves nothing from then on, and what waits for it is answered (B11, B13).

Owns: `LogFailures`. Each partition fails once, whichever read, write or fsync notices first. `on_failure` is called
with each, before what waits for it is completed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import StorageError
from ..events.logs import LogFailed

if TYPE_CHECKING:
    from ..host.seam import Host
    from ..storage.log import Log
    from ..storage.log_folder import LogFolder
    from ..storage.log_manager import LogManager
    from .partition import Partition
    from .partition_directory import PartitionDirectory
    from .wake_ups import WakeUps


class LogFailures:
    """Takes partitions out of service."""

    def __init__(self, host: Host, logs: LogManager, directory: PartitionDirectory, wake_ups: WakeUps) -> None:
        self._host = host
        self._logs = logs
        self._directory = directory
        self._wake_ups = wake_ups
        self._failed: set[Partition] = set()
        self.on_failure: list[Callable[[Partition], None]] = []
        logs.on_folder_failed.append(self._folder_failed)

    def log_failed(self, partition: Partition | None, error: BaseException) -> None:
        """An I/O error took the log of `partition` out of service; None: it has no partition yet."""
        if partition is None:
            self._host.trace.log("error", f"a log without a partition failed: {error!r}")
            return
        if partition in self._failed:
            return
        self._failed.add(partition)
        partition.fail()
        topic, index = partition.topic_partition
        self._host.trace.emit(LogFailed(topic=topic, partition=index, error=str(error)))
        for hook in self.on_failure:
            hook(partition)
        self._wake_ups.roles_changed((partition,))
        if isinstance(error, OSError):  # a StorageError was raised by the log, which knows already
            self._logs.log_failed(partition.log, StorageError(str(error)))
        self._host.trace.log("error", f"log folder failed: {error!r}")

    def _folder_failed(self, _folder: LogFolder, logs: Sequence[Log], failure: StorageError) -> None:
        """A data folder is offline, and with it the replicas in it (B13)."""
        for log in logs:
            partition = self._directory.partition(log.topic_partition)
            if partition is not None and partition.log is log:
                self.log_failed(partition, failure)
