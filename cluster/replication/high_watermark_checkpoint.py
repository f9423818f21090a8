"""The checkpoint of high watermarks (C3): when it is written, and its values of partitions that are not here yet.

Owns: `HighWatermarkCheckpoint`. The first LeaderAndIsr starts its timer; it writes every
`replica.high.watermark.checkpoint.interval.ms`, and a last time when the broker stops.

Source: Kafka's `ReplicaManager.checkpointHighWatermarks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..errors import HarrowError
from ..host.seam.failpoints import AFTER_HIGH_WATERMARKS, BEFORE_MARK_CHECKPOINT, passes

if TYPE_CHECKING:
    from ..host.seam import Host, Timer
    from ..ids import Offset, TopicPartition
    from ..storage.log_manager import LogManager
    from .partition import Partition


class HighWatermarkCheckpoint:
    """Writes all high watermarks to disk periodically."""

    def __init__(
        self, host: Host, logs: LogManager, interval_ms: int, partitions: Callable[[], Iterable[Partition]]
    ) -> None:
        self._host = host
        self._logs = logs
        self._interval_ms = interval_ms
        self._partitions = partitions
        self._timer: Timer | None = None
        self._writing = False
        self._read: dict[TopicPartition, Offset] | None = None

    def read(self, tp: TopicPartition) -> int:
        """The high watermark of `tp` in the checkpoint that this start found; 0 without one."""
        if self._read is None:
            self._read = self._logs.read_high_watermarks()
            passes(self._host.failpoints, self._host.trace, AFTER_HIGH_WATERMARKS)
        return self._read.pop(tp, 0)

    def remember(self, tp: TopicPartition, mark: Offset) -> None:
        """The replica was dropped and its log stays: keep its high watermark."""
        if self._read is not None:
            self._read[tp] = mark

    def forget(self, tp: TopicPartition) -> None:
        """The log was deleted: the next one of that name starts from 0."""
        if self._read is not None:
            self._read.pop(tp, None)

    def start(self) -> None:
        """Start the timer, once."""
        if self._timer is None:
            self._timer = self._host.tasks.call_later(self._interval_ms, self._due)

    def write(self) -> None:
        """BLOCKS briefly. Write them now."""
        self._write(self._snapshot())

    def stop(self) -> None:
        """Stop the timer and write a last time."""
        if self._timer is not None:
            self._timer.cancel()
        self.write()

    def _snapshot(self) -> dict[TopicPartition, Offset]:
        # Values of partitions that are not here yet must survive the next write.
        kept = dict(self._read or {})
        for partition in self._partitions():
            if not partition.failed:
                low, high, end = partition.log.log_start_offset, partition.high_watermark, partition.log_end_offset
                assert low <= high <= end, f"{partition}: the HW {high} that is stored is outside {low} to {end}"
                kept[partition.topic_partition] = partition.high_watermark
        return kept

    def _write(self, marks: dict[TopicPartition, Offset]) -> None:
        try:
            self._logs.write_high_watermarks(marks)
        except (HarrowError, OSError) as error:
            self._host.trace.log("error", f"high watermark checkpoint failed: {error}")

    def _due(self) -> None:
        self._timer = self._host.tasks.call_later(self._interval_ms, self._due)
        if not self._writing:
            self._writing = True
            self._host.tasks.spawn(self._write_beside(), name="high-watermark-checkpoint")

    async def _write_beside(self) -> None:
        passes(self._host.failpoints, self._host.trace, BEFORE_MARK_CHECKPOINT)
        try:
            await self._host.tasks.run_blocking(self._write, self._snapshot())
        finally:
            self._writing = False
