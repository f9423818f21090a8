"""Appends a coordinator's records to a partition of its internal topic.

Owns: building the batch and appending it with acks=all, so that a committed record is on all in-sync replicas. Never
raises: the result goes to `on_appended(error, base offset)`, once, possibly before `append` returns. With an error the
offset is that of a batch that is in the log and not acknowledged, -1 where nothing was appended.

Source: Kafka's PartitionWriter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..errors import ErrorCode
from ..host.seam import Host
from ..host.seam.failpoints import AFTER_WRITE, BEFORE_WRITE, passes
from ..ids import Offset, TopicPartition
from ..wire.batches import build_batch, build_end_txn_marker

if TYPE_CHECKING:
    from .replicas import AppendResult, Replicas
    from .state_machine import CoordinatorWrite

ALL_IN_SYNC_REPLICAS = -1
"""acks=all."""

OnAppended = Callable[[ErrorCode, Offset], None]


class PartitionWriter:
    """Appends to the partitions of one internal topic."""

    __slots__ = ("_host", "_replicas", "_timeout_ms", "_topic")

    def __init__(self, host: Host, topic: str, replicas: Replicas, timeout_ms: int) -> None:
        self._host = host
        self._topic = topic
        self._replicas = replicas
        self._timeout_ms = timeout_ms

    def append(self, partition: int, write: CoordinatorWrite, on_appended: OnAppended) -> None:
        """Append the records of `write` as one batch; `on_appended` gets the log's own error, not translated."""
        topic_partition = TopicPartition(self._topic, partition)
        batch, host = self._batch(write), self._host
        passes(host.failpoints, host.trace, BEFORE_WRITE, topic_partition)

        def done(results: Mapping[TopicPartition, AppendResult]) -> None:
            result = results[topic_partition]
            if not result.error:
                passes(host.failpoints, host.trace, AFTER_WRITE, topic_partition)
            at = result.base_offset
            if result.error and result.last_offset >= 0:
                at = Offset(result.last_offset - len(write.records) + 1)
            on_appended(result.error, at)

        self._replicas.append(
            {topic_partition: batch}, acks=ALL_IN_SYNC_REPLICAS, timeout_ms=self._timeout_ms, done=done, internal=True
        )

    def _batch(self, write: CoordinatorWrite) -> bytes:
        now_ms = self._host.clock.wall_ms()
        producer = write.producer
        if write.end_marker is not None:
            assert producer is not None, "an end marker without a producer"
            return build_end_txn_marker(
                commit=write.end_marker.commit,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=write.end_marker.coordinator_epoch,
                timestamp_ms=now_ms,
            )
        return build_batch(
            [(key, value, ()) for key, value in write.records],
            timestamp_ms=now_ms,
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.producer_epoch,
            is_transactional=producer is not None,
        )
