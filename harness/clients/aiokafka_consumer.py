"""aiokafka's AIOKafkaConsumer with a history (J6): the same calls, records and errors.

A record that `getone`, `getmany` or the iteration returns is one `ok` row with the hashes of its bytes. Deserializers
are called by aiokafka itself, at its time; here they return their result together with the bytes, which are taken apart
before the application receives the record.

A BREAK row is written where the position may legally jump: an assignment, a revocation, a seek. Commits that the
application asks for have rows; aiokafka's own periodic commits have none (the brokers' taps show them).

When the loop ends before `stop`, the guard (`event_loops.py`) closes the connections; the consumer does not leave its
group then.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import ConsumerRecord, TopicPartition

from ..histories.format import HistoryWriter
from .event_loops import ClientInLoop, close_connections
from .recorder import ClientHandle, ReadRecorder, apart, no_sends, with_bytes

Record: TypeAlias = ConsumerRecord[Any, Any]


class RecordingAIOKafkaConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types for mypy
    """An AIOKafkaConsumer of aiokafka that records what it reads and commits."""

    def __init__(self, *topics: str, history: HistoryWriter | str | Path, name: str, **settings: Any) -> None:
        """`topics` and `settings`: as for AIOKafkaConsumer. `name`: the client's name in the history."""
        self._has_deserializers = False
        for setting in ("key_deserializer", "value_deserializer"):
            if settings.get(setting):
                settings[setting] = with_bytes(settings[setting])
                self._has_deserializers = True
        parent: Any = super()
        parent.__init__(**settings)
        self.recorder = ReadRecorder(history, name)
        self._in_loop = ClientInLoop(self.stop, self._close_connections, self._forget)
        if topics:
            self.subscribe(topics)

    async def getone(self, *partitions: TopicPartition) -> Record:
        """Return the next record like AIOKafkaConsumer, and record it; the iteration calls it, too."""
        parent: Any = super()
        return self._received(await parent.getone(*partitions), time.monotonic_ns())

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Return records like AIOKafkaConsumer, and record them."""
        parent: Any = super()
        found: dict[TopicPartition, list[Record]] = await parent.getmany(
            *partitions, timeout_ms=timeout_ms, max_records=max_records
        )
        now_ns = time.monotonic_ns()
        return {place: [self._received(record, now_ns) for record in records] for place, records in found.items()}

    def __aiter__(self) -> Self:
        parent: Any = super()
        parent.__aiter__()  # raises when the consumer is stopped
        return self

    async def __anext__(self) -> Record:
        parent: Any = super()
        record: Record = await parent.__anext__()
        return record

    def _received(self, record: Record, now_ns: int) -> Record:
        key, value = record.key, record.value
        if self._has_deserializers:
            key, key_bytes = apart(key)
            value, value_bytes = apart(value)
            self.recorder.read(record, key_bytes, value_bytes, now_ns)
            return replace(record, key=key, value=value)
        self.recorder.read(record, key, value, now_ns)
        return record

    # --------------------------------------------------------------------------------- positions

    def subscribe(self, topics: Sequence[str] = (), pattern: str | None = None, listener: Any = None) -> None:
        """Subscribe like AIOKafkaConsumer; the listener is called after the REBALANCE rows are written."""
        if listener is None or isinstance(listener, ConsumerRebalanceListener):
            listener = _Listener(self.recorder, listener)
        parent: Any = super()
        parent.subscribe(topics, pattern, listener)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Assign these partitions without a group."""
        self.recorder.position_set(partitions)
        parent: Any = super()
        parent.assign(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of one partition."""
        self.recorder.position_set([partition])
        parent: Any = super()
        parent.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Set the position of these partitions (none: of all) to their first records."""
        parent: Any = super()
        return bool(await self._sought(parent.seek_to_beginning, partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Set the position of these partitions (none: of all) after their last records."""
        parent: Any = super()
        return bool(await self._sought(parent.seek_to_end, partitions))

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Set the position of these partitions (none: of all) to the committed offsets."""
        parent: Any = super()
        found: dict[TopicPartition, int | None] = await self._sought(parent.seek_to_committed, partitions)
        return found

    async def _sought(self, seek: Callable[..., Any], partitions: tuple[TopicPartition, ...]) -> Any:
        """Call `seek`; another task may read while it waits, before or after the position is set."""
        places = list(partitions or self.assignment())
        self.recorder.position_set(places)
        result = await seek(*partitions)
        self.recorder.position_set(places)
        return result

    # ----------------------------------------------------------------------------------- commits

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit like AIOKafkaConsumer, and record the commit and its result."""
        parent: Any = super()
        asked = self.recorder.begin_commit(offsets)
        try:
            await parent.commit(offsets)
        except BaseException as error:
            self.recorder.end_commit(asked, error)
            raise
        self.recorder.end_commit(asked)

    # --------------------------------------------------------------------------------------- end

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def stop(self) -> None:
        """Stop like AIOKafkaConsumer: leave the group, close the connections; then end the record."""
        await super().stop()
        self.recorder.close()
        await self._in_loop.guard.release()

    async def _close_connections(self) -> None:
        """Close the connections only; the group sees the end of the session."""
        self._closed = True
        await self._client.close()
        self.recorder.close()

    def _forget(self) -> None:
        """Close what can be closed without a loop."""
        self._closed = True
        close_connections(self._client)
        self.recorder.close()

    def handle(self) -> ClientHandle:
        """Return how a run stops the consumer; it has no sends."""
        return ClientHandle(await_sends=no_sends, close=self._end)

    def _end(self) -> None:
        if not self._closed:
            self._in_loop.end()
        self.recorder.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types for mypy
    """Writes REBALANCE rows, then calls the application's listener, if there is one."""

    def __init__(self, recorder: ReadRecorder, inner: Any) -> None:
        self._recorder = recorder
        self._inner = inner

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, revoked: Collection[TopicPartition]
    ) -> None:
        """Called before a rebalance."""
        self._recorder.position_set(revoked, rebalanced=True)
        await _called(self._inner, "on_partitions_revoked", revoked)

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, assigned: Collection[TopicPartition]
    ) -> None:
        """Called after a rebalance."""
        self._recorder.position_set(assigned, rebalanced=True)
        await _called(self._inner, "on_partitions_assigned", assigned)


async def _called(listener: Any, name: str, partitions: Collection[TopicPartition]) -> None:
    """Call a method of the application's listener, a function or a coroutine."""
    result = None if listener is None else getattr(listener, name)(partitions)
    if inspect.iscoroutine(result):
        await result
