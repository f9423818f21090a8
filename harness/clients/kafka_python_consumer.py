"""kafka-python's KafkaConsumer with a history (J6): the same calls, records and errors.

A record that `poll` or the iteration returns is one `ok` row with the hashes of its bytes. Deserializers are called by
kafka-python itself, at its time; here they return their result together with the bytes, which are taken apart before
the application receives the record.

A BREAK row is written where the position may legally jump: an assignment, a revocation, a seek. Commits that the
application asks for have rows; kafka-python's own periodic commits have none (the brokers' taps show them).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, cast

from kafka import KafkaConsumer
from kafka.consumer.fetcher import ConsumerRecord
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.future import Future
from kafka.serializer import Deserializer
from kafka.structs import OffsetAndMetadata, TopicPartition

from ..histories.format import HistoryWriter
from .recorder import ClientHandle, Deserialized, Place, ReadRecorder, apart, no_sends, with_bytes

END_MS = 10_000
"""How long the end of a run waits for the consumer to leave its group."""


class RecordingKafkaConsumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python has no types
    """A KafkaConsumer of kafka-python that records what it reads and commits."""

    def __init__(self, *topics: str, history: HistoryWriter | str | Path, name: str, **configs: Any) -> None:
        """`topics` and `configs`: as for KafkaConsumer. `name`: the client's name in the history."""
        self._iterating = False
        for setting in ("key_deserializer", "value_deserializer"):
            if configs.get(setting) is not None:
                configs[setting] = _with_bytes(configs[setting])
        super().__init__(**configs)
        self.recorder = ReadRecorder(history, name)
        if topics:
            self.subscribe(topics=topics)

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Poll like KafkaConsumer, and record what the application receives."""
        parent: Any = super()
        found: dict[TopicPartition, list[ConsumerRecord]] = parent.poll(timeout_ms, max_records, update_offsets)
        if self._iterating:  # the iteration calls `poll`, and hands out the records one by one
            return found
        now_ns = time.monotonic_ns()
        return {place: [self._received(record, now_ns) for record in records] for place, records in found.items()}

    def __next__(self) -> ConsumerRecord:
        self._iterating = True
        try:
            record = super().__next__()
        finally:
            self._iterating = False
        return self._received(record, time.monotonic_ns())

    def _received(self, record: Any, now_ns: int) -> ConsumerRecord:
        key, value = record.key, record.value
        if isinstance(key, Deserialized) or isinstance(value, Deserialized):
            key, key_bytes = apart(key)
            value, value_bytes = apart(value)
            record = record._replace(key=key, value=value)
        else:
            key_bytes, value_bytes = key, value
        self.recorder.read(record, key_bytes, value_bytes, now_ns)
        return record

    # --------------------------------------------------------------------------------- positions

    def subscribe(self, topics: Iterable[str] = (), pattern: str | None = None, listener: Any = None) -> None:
        """Subscribe like KafkaConsumer; the listener is called after the REBALANCE rows are written."""
        if listener is None or hasattr(listener, "on_partitions_assigned"):
            is_async = iscoroutinefunction(getattr(listener, "on_partitions_assigned", None))
            kind = _AsyncListener if is_async else _Listener
            listener = kind(self.recorder, listener)
        super().subscribe(topics=topics, pattern=pattern, listener=listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign these partitions without a group; kafka-python keeps the position of each that was assigned before."""
        assigned = list(partitions)
        self.recorder.position_set(self.assignment().symmetric_difference(assigned))
        super().assign(assigned)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of one partition."""
        self.recorder.position_set([partition])
        super().seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Set the position of these partitions (none: of all) to their first records."""
        self.recorder.position_set(partitions or self.assignment())
        super().seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Set the position of these partitions (none: of all) after their last records."""
        self.recorder.position_set(partitions or self.assignment())
        super().seek_to_end(*partitions)

    # ----------------------------------------------------------------------------------- commits

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit like KafkaConsumer, and record the commit and its result."""
        parent: Any = super()
        asked = self.recorder.begin_commit(offsets)
        try:
            parent.commit(offsets, timeout_ms)
        except BaseException as error:
            self.recorder.end_commit(asked, error)
            raise
        self.recorder.end_commit(asked)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> Future:
        """Commit like KafkaConsumer, and record the commit and its result."""
        asked = self.recorder.begin_commit(offsets)
        parent: Any = super()
        future: Any = parent.commit_async(offsets, callback)
        future.add_callback(partial(self._committed, asked))
        future.add_errback(partial(self.recorder.end_commit, asked))
        return cast("Future", future)

    def _committed(self, asked: Mapping[Place, int], _: object) -> None:
        self.recorder.end_commit(asked)

    # --------------------------------------------------------------------------------------- end

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Close like KafkaConsumer, and end the record."""
        parent: Any = super()
        parent.close(autocommit, timeout_ms)
        self.recorder.close()

    def handle(self) -> ClientHandle:
        """Return how a run closes the consumer; it has no sends."""
        return ClientHandle(await_sends=no_sends, close=partial(self.close, timeout_ms=END_MS))


class _DeserializerWithBytes(Deserializer):  # type: ignore[misc]  # kafka-python has no types
    """Calls a deserializer, and returns its result together with the bytes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def deserialize(self, topic: str, *rest: Any) -> Deserialized:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Called by kafka-python 2 with topic and data, by kafka-python 3 with topic, headers and data."""
        return Deserialized(self._inner.deserialize(topic, *rest), rest[-1])

    def close(self) -> None:
        """Close the deserializer."""
        self._inner.close()


def _with_bytes(given: Any) -> Any:
    """Return a deserializer of the same kind as the given one, Deserializer or function."""
    if isinstance(given, Deserializer):
        return _DeserializerWithBytes(given)
    return with_bytes(given)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Writes REBALANCE rows, then calls the application's listener, if there is one."""

    def __init__(self, recorder: ReadRecorder, inner: Any) -> None:
        self._recorder = recorder
        self._inner = inner

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before a rebalance."""
        self._recorder.position_set(revoked, rebalanced=True)
        if self._inner is not None:
            self._inner.on_partitions_revoked(revoked)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called after a rebalance."""
        self._recorder.position_set(assigned, rebalanced=True)
        if self._inner is not None:
            self._inner.on_partitions_assigned(assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Called by kafka-python 3 when the group has removed the consumer."""
        self._recorder.position_set(lost, rebalanced=True)
        if self._inner is not None:
            self._inner.on_partitions_lost(lost)


class _AsyncListener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """The same for a listener of coroutines, which kafka-python 3 has."""

    def __init__(self, recorder: ReadRecorder, inner: Any) -> None:
        self._recorder = recorder
        self._inner = inner

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before a rebalance."""
        self._recorder.position_set(revoked, rebalanced=True)
        await self._inner.on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called after a rebalance."""
        self._recorder.position_set(assigned, rebalanced=True)
        await self._inner.on_partitions_assigned(assigned)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Called when the group has removed the consumer."""
        self._recorder.position_set(lost, rebalanced=True)
        await self._inner.on_partitions_lost(lost)
