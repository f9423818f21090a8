"""kafka-python's KafkaProducer with a history (J6): the same calls, results and errors.

`invoke` is written when `send` is called, `ok` or `info` when its future is resolved. An error that `send` raises is
`fail`, because kafka-python appended nothing. A timeout, and an error that is not kafka-python's, is `info`:
kafka-python 2 raises a timeout also when it cannot wake up its sender after it appended the record.

A record's key and value are what the serializers return. The recorder observes the configured serializers, because
each of them must be called once, with the arguments that kafka-python gives it. A send whose serializer raises has no
row: there was no record yet.

Locking: the operation's number and the record's place in its batch are taken under one lock. The metadata of a topic
are awaited before it, so that a callback in kafka-python's own thread that sends another record does not wait for a
thread that waits for kafka-python's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from kafka import KafkaProducer
from kafka.errors import BrokerResponseError, KafkaError, KafkaTimeoutError
from kafka.producer.future import FutureRecordMetadata
from kafka.serializer import Serializer

from ..histories.format import HistoryWriter
from .recorder import ClientHandle, Headers, Send, SendRecorder

END_S = 10.0
"""How long the end of a run waits for sends without result."""
APPENDED_NOTHING = (AssertionError, KafkaError, TypeError, ValueError)


class RecordingKafkaProducer(KafkaProducer):  # type: ignore[misc]  # kafka-python has no types
    """A KafkaProducer of kafka-python that records its sends."""

    def __init__(self, *, history: HistoryWriter | str | Path, name: str, **configs: Any) -> None:
        """`configs`: as for KafkaProducer. `name`: the client's name in the history."""
        self._append_lock = threading.RLock()
        self._calls = threading.local()
        self._has_serializers = bool(configs.get("key_serializer") or configs.get("value_serializer"))
        if self._has_serializers:
            for setting, seen in (("key_serializer", self._saw_key), ("value_serializer", self._saw_value)):
                configs[setting] = _observed(configs.get(setting), seen)
        super().__init__(**configs)
        self.recorder = SendRecorder(history, name)
        used: dict[str, Any] = self.config
        self.recorder.settings(used["acks"], idempotent=bool(used["enable_idempotence"]))

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Send like KafkaProducer, and record the send and its result."""
        parent: Any = super()
        if self.recorder.closed:  # kafka-python raises its error
            return cast("FutureRecordMetadata", parent.send(topic, value, key, headers, partition, timestamp_ms))
        call = _Call(self.recorder, topic, partition, headers)
        try:
            with suppress(BrokerResponseError):  # `send` returns it in its future
                self.partitions_for(topic)
            with self._append_lock:
                before, self._calls.current = getattr(self._calls, "current", None), call
                if not self._has_serializers:
                    call.begin(key, value)
                try:
                    future: Any = parent.send(topic, value, key, headers, partition, timestamp_ms)
                finally:
                    self._calls.current = before
        except BaseException as error:
            if call.send is not None:
                call.raised(error)
            elif not self._has_serializers:  # the topic's metadata did not arrive
                send = call.begin(key, value)
                self.recorder.failed(send, error, never_sent=True)
            raise
        if call.send is not None:
            future.add_both(partial(self._resolved, call.send))
        return cast("FutureRecordMetadata", future)

    def _saw_key(self, result: object, headers: Headers | None) -> None:
        del headers
        call: _Call = self._calls.current
        call.key = result

    def _saw_value(self, result: object, headers: Headers | None) -> None:
        call: _Call = self._calls.current
        call.headers = call.headers if headers is None else headers
        if call.send is None:  # kafka-python 2 may serialize a record again
            call.begin(call.key, result)

    def _resolved(self, send: Send, result: Any) -> None:
        if isinstance(result, BaseException):
            self.recorder.failed(send, result, never_sent=False)
        else:
            self.recorder.acknowledged(send, result.partition, result.offset, result.timestamp)

    def __enter__(self) -> Self:
        return self

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Close like KafkaProducer, and end the record; a call that raises leaves both open."""
        parent: Any = super()
        parent.close(timeout, null_logger)
        recorder: SendRecorder | None = getattr(self, "recorder", None)
        if recorder is not None:
            recorder.close()

    def handle(self) -> ClientHandle:
        """Return how a run waits for the sends and closes the producer."""
        return ClientHandle(await_sends=self._await_sends, close=self._end)

    def _await_sends(self, timeout_s: float) -> str:
        if self.recorder.closed or not self.recorder.waiting:
            return ""
        try:
            self.flush(timeout_s)
        except KafkaError as error:
            return self.recorder.missing(f"within {timeout_s:g} s: {error}")
        return ""

    def _end(self) -> None:
        """Close; where sends have no result in time, end kafka-python's thread without it."""
        try:
            self.close(END_S)
        except KafkaError:
            thread: Any = getattr(self, "_sender")  # noqa: B009 - kafka-python's own
            thread.force_close()
            thread.join(END_S)
            self.close(END_S)


class _Call:
    """One call of `send`."""

    __slots__ = ("headers", "invoked_ns", "key", "partition", "recorder", "send", "topic")

    def __init__(self, recorder: SendRecorder, topic: str, partition: int | None, headers: Headers | None) -> None:
        self.recorder = recorder
        self.topic = topic
        self.partition = partition
        self.headers = headers
        self.invoked_ns = time.monotonic_ns()
        self.key: object = None
        self.send: Send | None = None

    def begin(self, key: object, value: object) -> Send:
        """Record that kafka-python appends the record now."""
        self.send = self.recorder.begin(self.topic, self.partition, key, value, self.headers, self.invoked_ns)
        return self.send

    def raised(self, error: BaseException) -> None:
        """Record the error that kafka-python's `send` raised."""
        assert self.send is not None
        appended_nothing = isinstance(error, APPENDED_NOTHING)
        timeout = isinstance(error, KafkaTimeoutError)
        self.recorder.failed(self.send, error, never_sent=appended_nothing and not timeout)


class _ObservedSerializer(Serializer):  # type: ignore[misc]  # kafka-python has no types
    """Calls a serializer (none: returns the data unchanged), and passes on what it returns."""

    def __init__(self, inner: Any, seen: Callable[[object, Headers | None], None]) -> None:
        self._inner = inner
        self._seen = seen

    def serialize(self, topic: str, *rest: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Called by kafka-python 2 with topic and data, by kafka-python 3 with topic, headers and data."""
        result = rest[-1] if self._inner is None else self._inner.serialize(topic, *rest)
        self._seen(result, rest[0] if len(rest) > 1 else None)
        return result

    def close(self) -> None:
        """Close the serializer."""
        if self._inner is not None:
            self._inner.close()


def _observed(given: Any, seen: Callable[[object, Headers | None], None]) -> Any:
    """Return a serializer of the same kind as the given one, Serializer or function."""
    if given is None or isinstance(given, Serializer):
        return _ObservedSerializer(given, seen)

    def observed(data: Any) -> Any:
        result = given(data)
        seen(result, None)
        return result

    return observed
