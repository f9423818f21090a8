"""aiokafka's AIOKafkaProducer with a history (J6): the same calls, results and errors.

A send takes its number when `send` has appended the record, still before the event loop can send it: that is the order
in which aiokafka sends records of several tasks. Its row has the time of the call. `ok` or `info` is written when its
future is resolved; a future that the application cancels is `info`, because the record is sent nevertheless. A `send`
that raises, or that is cancelled, has appended nothing and is `fail`. The records of a batch (`create_batch`,
`send_batch`) are operations of their own.

A record's key and value are what the serializers return; each is called once, a little earlier than aiokafka calls it.

When the loop ends before `stop`, the guard (`event_loops.py`) closes the connections; sends without result keep none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata

from ..histories.format import HistoryWriter
from .event_loops import ClientInLoop, LoopRun, close_connections
from .recorder import ClientHandle, Headers, Send, SendRecorder

Serializer = Callable[[Any], Any] | None
Record = tuple[object, object, Headers | None]
"""Key and value as bytes, and headers."""


class RecordingAIOKafkaProducer(AIOKafkaProducer):  # type: ignore[misc]  # aiokafka has no types for mypy
    """An AIOKafkaProducer of aiokafka that records its sends."""

    def __init__(self, *, history: HistoryWriter | str | Path, name: str, **settings: Any) -> None:
        """`settings`: as for AIOKafkaProducer. `name`: the client's name in the history."""
        self._serialize_key: Serializer = settings.get("key_serializer")
        self._serialize_value: Serializer = settings.get("value_serializer")
        for setting in ("key_serializer", "value_serializer"):
            settings[setting] = _unless_serialized(settings.get(setting))
        idempotent = bool(settings.get("enable_idempotence") or settings.get("transactional_id"))
        acks = settings.get("acks", "all" if idempotent else 1)
        self._partition_of_send: ContextVar[_Partition] | None = None
        if acks == 0:  # the result of a send does not say in which partition the record is
            self._partition_of_send = ContextVar("partition")
            partitioner = settings.get("partitioner") or DefaultPartitioner()
            settings["partitioner"] = _noting(partitioner, self._partition_of_send)
        parent: Any = super()
        parent.__init__(**settings)
        self.recorder = SendRecorder(history, name)
        self.recorder.settings(acks, idempotent=idempotent)
        self._batches: WeakKeyDictionary[BatchBuilder, list[Record]] = WeakKeyDictionary()
        self._in_loop = ClientInLoop(self.stop, self._close_connections, self._forget)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Send like AIOKafkaProducer, and record the send and its result."""
        parent: Any = super()
        invoked_ns = time.monotonic_ns()
        if self.recorder.closed or (value is None and key is None):  # aiokafka refuses it
            refused: asyncio.Future[RecordMetadata] = await parent.send(topic, value, key)
            return refused
        key, key_bytes = _serialized(self._serialize_key, key)
        value, value_bytes = _serialized(self._serialize_value, value)
        chosen = _Partition(partition)
        if self._partition_of_send is not None:
            self._partition_of_send.set(chosen)

        def begin() -> Send:
            return self.recorder.begin(topic, chosen.number, key_bytes, value_bytes, headers, invoked_ns)

        try:
            future: asyncio.Future[RecordMetadata] = await parent.send(
                topic, value, key, partition, timestamp_ms, headers
            )
        except BaseException as error:
            self._refused(begin(), error)
            raise
        future.add_done_callback(partial(self._resolved, begin(), partition=chosen.number))
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send and wait like AIOKafkaProducer; aiokafka returns None with acks=0."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def _refused(self, send: Send, error: BaseException) -> None:
        appended_nothing = isinstance(error, Exception | asyncio.CancelledError)
        self.recorder.failed(send, error, never_sent=appended_nothing)

    def _resolved(
        self, send: Send, future: asyncio.Future[RecordMetadata], *, partition: int | None, nth: int = 0
    ) -> None:
        if future.cancelled():
            self.recorder.failed(send, asyncio.CancelledError(), never_sent=False)
            return
        error = future._exception  # noqa: SLF001  (`exception()` would tell asyncio that the application read it)
        if error is not None:
            self.recorder.failed(send, error, never_sent=False)
            return
        sent: Any = future.result()
        if sent is None:  # acks=0
            self.recorder.acknowledged(send, -1 if partition is None else partition, -1, None)
        else:
            self.recorder.acknowledged(send, sent.partition, sent.offset + nth, sent.timestamp)

    # ----------------------------------------------------------------------------------- batches

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch like AIOKafkaProducer; what is appended to it is recorded when it is sent."""
        batch = super().create_batch()
        records = self._batches[batch] = []
        append: Any = getattr(batch, "append")  # noqa: B009 - its arguments have no types

        def recorded(*, key: Any, value: Any, **given: Any) -> Any:
            key, key_bytes = _serialized(self._serialize_key, key)
            value, value_bytes = _serialized(self._serialize_value, value)
            metadata = append(key=key, value=value, **given)
            if metadata is not None:  # else the batch is full
                records.append((key_bytes, value_bytes, given.get("headers")))
            return metadata

        setattr(batch, "append", recorded)  # noqa: B010 - an attribute of this object hides the method
        return batch

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        """Send a batch like AIOKafkaProducer, and record the sends of its records and their results."""
        parent: Any = super()
        records = self._batches.pop(batch, None)
        if records is None:
            raise ValueError(
                "the records of this batch are not known: send a batch once, and get it from create_batch() "
                "of the same producer"
            )
        vars(batch).pop("append")  # `send` may add records of its own to a batch that is open
        invoked_ns = time.monotonic_ns()

        def begin() -> list[Send]:
            return [self.recorder.begin(topic, partition, *record, invoked_ns) for record in records]

        try:
            future: asyncio.Future[RecordMetadata] = await parent.send_batch(batch, topic, partition=partition)
        except BaseException as error:
            for send in begin():
                self._refused(send, error)
            raise
        for nth, send in enumerate(begin()):
            future.add_done_callback(partial(self._resolved, send, partition=partition, nth=nth))
        return future

    # --------------------------------------------------------------------------------------- end

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def stop(self) -> None:
        """Stop like AIOKafkaProducer: send everything, close the connections; then end the record."""
        await super().stop()
        await asyncio.sleep(0)  # the futures' callbacks run
        self.recorder.close()
        await self._in_loop.guard.release()

    async def _close_connections(self) -> None:
        """Close the connections without sending anything more."""
        self._closed = True
        task = self._sender.sender_task
        if task is not None:
            task.cancel()
        await self.client.close()
        self.recorder.close()

    def _forget(self) -> None:
        """Close what can be closed without a loop."""
        self._closed = True
        close_connections(self.client)
        self.recorder.close()

    def handle(self) -> ClientHandle:
        """Return how a run waits for the sends and stops the producer."""
        return ClientHandle(await_sends=self._await_sends, close=self._end)

    def _await_sends(self, timeout_s: float) -> str:
        if not self.recorder.waiting:
            return ""
        if self.recorder.closed:  # not by `stop`, which leaves no send without result
            return self.recorder.missing(LoopRun.ENDED.value)
        outcome = self._in_loop.run(self.flush, timeout_s)
        return self.recorder.missing(outcome.value)

    def _end(self) -> None:
        if not self._closed:
            self._in_loop.end()
        self.recorder.close()


class _Partition:
    """The partition of a send: given by the application, or chosen by the partitioner."""

    __slots__ = ("number",)

    def __init__(self, number: int | None) -> None:
        self.number = number


def _noting(partitioner: Callable[..., int], of_send: ContextVar[_Partition]) -> Callable[..., int]:
    """Return the partitioner; it notes the partition for the send of the task that calls it."""

    def chosen(*given: Any) -> int:
        number = partitioner(*given)
        of_send.get().number = number
        return number

    return chosen


class _Serialized:
    """A key or value that is serialized already."""

    __slots__ = ("data", "given")

    def __init__(self, given: object, data: object) -> None:
        self.given = given
        self.data = data

    def __repr__(self) -> str:  # aiokafka logs keys and values
        return repr(self.given)


def _serialized(serializer: Serializer, given: Any) -> tuple[Any, Any]:
    """Return what aiokafka gets for a key or value, and its bytes."""
    if serializer is None:
        return given, given
    data = serializer(given)
    return _Serialized(given, data), data


def _unless_serialized(serializer: Serializer) -> Serializer:
    """Return the serializer for aiokafka: it calls `serializer` only for what is not serialized yet."""
    if serializer is None:
        return None
    return lambda given: given.data if isinstance(given, _Serialized) else serializer(given)
