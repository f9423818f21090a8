"""Writes the operations of one client of kafka-python or aiokafka into a history (J6).

A send has an `invoke` row, and `ok`, `fail` or `info` when the library reports its result; a send without result counts
as `info`. `fail` says that a record was certainly never sent. A record that was read has one `ok` row. A BREAK or
REBALANCE row says that a consumer's position was set, so that reading may jump. A commit has an `invoke` row and then
`ok` or `info` for each partition.

Invariant: the numbers of a producer's operations are the order in which the library appended its records, because the
verdict checks the order of each key by them. The caller of `begin` ensures it: no other record of the producer is
appended between `begin` and the library's own append.

After `close` nothing is written, and nothing fails: a result that arrives later leaves its send without result.

Cost: about 14 us of CPU for a record sent with aiokafka, 21 us with kafka-python (confluent-kafka's recorder: 12 us),
and 3 to 4 us for a record that is read (`benchmarks/bench_recorders.py`, Python 3.11).
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..histories.format import HistoryError, HistoryWriter, OperationFunction, OperationType, stable_hash, value_hash
from ..wording import counted

Place = tuple[str, int]
Headers = Iterable[tuple[str, bytes | None]]
TIMED_OUT, TRANSPORT, FAILED, DESTROYED, CANCELLED = -192, -195, -196, -197, -151
LOCAL_CODES = {
    "KafkaTimeoutError": TIMED_OUT,
    "KafkaConnectionError": TRANSPORT,
    "ProducerClosed": DESTROYED,
    "CancelledError": CANCELLED,
}
"""Errors that no broker reported, by the name of their class: histories have librdkafka's codes for every library."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ClientHandle:
    """How a run waits for the results of a client's sends, and how it closes the client."""

    await_sends: Callable[[float], str]
    """Waits for at most so many seconds; returns what is missing, or empty text."""
    close: Callable[[], None]
    """Closes the client, also when it is closed already."""


def no_sends(timeout_s: float) -> str:
    """What a run has to wait for at a consumer: nothing."""
    del timeout_s
    return ""


def client_name(given: object, kind: str) -> str:
    """Return a client name that is unique in the run: the given client id (or the kind), process id, number."""
    return f"{given or kind}@{os.getpid()}.{next(_numbers)}"


class Send(NamedTuple):
    """A send that has an `invoke` row and no result yet."""

    op: int
    topic: int
    key_hash: int
    value_hash: int
    invoked_ns: int


class Recorder:
    """The rows of one client in a history."""

    def __init__(self, history: HistoryWriter | str | Path, name: str) -> None:
        """`history`: a shared writer, or the folder for a new history file."""
        self._own = None if isinstance(history, HistoryWriter) else HistoryWriter(history)
        self.history = history if isinstance(history, HistoryWriter) else self._own or HistoryWriter(history)
        self.name = name
        """The client's name in the history, unique in the run."""
        self.client = self.history.name(name)
        self.closed = False

    def _append(
        self,
        kind: int,
        outcome: int,
        topic: int,
        partition: int,
        offset: int = -1,
        op: int = -1,
        key_hash: int = 0,
        value_hash: int = 0,
        timestamp_ms: int = -1,
        invoked_ns: int = 0,
        time_ns: int = 0,
        error: int = 0,
    ) -> None:
        if self.closed:
            return
        try:
            self.history.append(
                kind,
                outcome,
                self.client,
                topic,
                partition,
                offset,
                op,
                key_hash,
                value_hash,
                timestamp_ms,
                invoked_ns,
                time_ns,
                error,
            )
        except HistoryError:
            if not self.closed:  # by another thread
                raise

    def close(self) -> None:
        """Write no more rows; close the history file unless it is shared."""
        self.closed = True
        if self._own is not None:
            self._own.close()


class SendRecorder(Recorder):
    """The rows of a producer."""

    def __init__(self, history: HistoryWriter | str | Path, name: str) -> None:
        super().__init__(history, name)
        self._lock = threading.Lock()
        self._begun = 0
        self._ended = 0
        self.acks = -1
        self.idempotent = False

    def settings(self, acks: object, *, idempotent: bool) -> None:
        """Write what the producer asks for; the verdict derives guarantees from it."""
        self.acks = -1 if acks == "all" else int(str(acks))
        self.idempotent = idempotent
        self._append(OperationFunction.CLIENT, OperationType.OK, self.history.name(""), -1, self.acks, int(idempotent))

    def begin(
        self, topic: str, partition: int | None, key: object, value: object, headers: Headers | None, invoked_ns: int
    ) -> Send:
        """Write the `invoke` row of the next send, and keep the first bytes of key and value."""
        if self.closed:
            return Send(-1, -1, 0, 0, invoked_ns)
        key_bytes, value_bytes = _content(key), _content(value)
        with self._lock:
            op = self._begun
            self._begun = op + 1
        send = Send(
            op, self.history.name(str(topic)), stable_hash(key_bytes), _value_hash(value_bytes, headers), invoked_ns
        )
        self._send_row(OperationType.INVOKE, send, -1 if partition is None else partition)
        self.history.sent.append(self.client, op, key_bytes, value_bytes, headers)
        return send

    def acknowledged(self, send: Send, partition: int, offset: int, timestamp_ms: int | None) -> None:
        """Write that a send succeeded; `offset` is -1 where the library does not know it (acks=0)."""
        at = max(offset, -1)
        self._send_row(OperationType.OK, send, partition, at, -1 if timestamp_ms is None else timestamp_ms)
        self._end()

    def failed(self, send: Send, error: BaseException, *, never_sent: bool) -> None:
        """Write that the library reported an error; without `never_sent` a broker may have the record."""
        outcome = OperationType.FAIL if never_sent else OperationType.INFO
        self._send_row(outcome, send, -1, error=error_code(error))
        self._end()

    def _send_row(
        self, outcome: int, send: Send, partition: int, offset: int = -1, timestamp_ms: int = -1, error: int = 0
    ) -> None:
        self._append(
            OperationFunction.SEND,
            outcome,
            send.topic,
            partition,
            offset,
            send.op,
            send.key_hash,
            send.value_hash,
            timestamp_ms,
            send.invoked_ns,
            error=error,
        )

    def _end(self) -> None:
        with self._lock:
            self._ended += 1

    @property
    def waiting(self) -> int:
        """How many sends have no result yet."""
        return self._begun - self._ended

    def missing(self, why: str) -> str:
        """Return the sentence on the sends without result, or empty text when there are none."""
        if not self.waiting:
            return ""
        return f"{counted(self.waiting, 'send')} of {self.name} had no result {why}"


class ReadRecorder(Recorder):
    """The rows of a consumer."""

    def __init__(self, history: HistoryWriter | str | Path, name: str) -> None:
        super().__init__(history, name)
        self._ops = itertools.count()
        self._positions: dict[Place, int] = {}

    def read(self, record: Any, key: object, value: object, now_ns: int) -> None:
        """Write that the application received a record, whose key and value were these bytes."""
        if self.closed:
            return
        self._append(
            OperationFunction.POLL,
            OperationType.OK,
            self.history.name(record.topic),
            record.partition,
            record.offset,
            next(self._ops),
            stable_hash(_content(key)),
            _value_hash(_content(value), record.headers),
            -1 if record.timestamp is None else record.timestamp,
            now_ns,
            now_ns,
        )
        self._positions[record.topic, record.partition] = record.offset + 1

    def position_set(self, places: Iterable[Place], *, rebalanced: bool = False) -> None:
        """Write that the application, or the group, sets the position in these partitions: reading may jump."""
        kind = OperationFunction.REBALANCE if rebalanced else OperationFunction.BREAK
        for topic, partition in () if self.closed else places:
            self._positions.pop((topic, partition), None)
            self._append(kind, OperationType.OK, self.history.name(topic), partition, -1, next(self._ops))

    def begin_commit(self, offsets: Mapping[Any, Any] | None) -> dict[Place, int]:
        """Write that the application commits these offsets, or with None everything that it has read."""
        if offsets is None:
            asked = dict(self._positions)
        else:
            asked = {(place[0], place[1]): _offset(given) for place, given in offsets.items()}
        self._commit_rows(OperationType.INVOKE, asked)
        return asked

    def end_commit(self, asked: Mapping[Place, int], error: BaseException | None = None) -> None:
        """Write the result of a commit; after an error it may have happened."""
        if error is None:
            self._commit_rows(OperationType.OK, asked)
        else:
            self._commit_rows(OperationType.INFO, asked, error_code(error))

    def _commit_rows(self, outcome: OperationType, offsets: Mapping[Place, int], error: int = 0) -> None:
        for (topic, partition), offset in () if self.closed else offsets.items():
            self._append(
                OperationFunction.COMMIT,
                outcome,
                self.history.name(topic),
                partition,
                offset,
                next(self._ops),
                error=error,
            )


class Deserialized(NamedTuple):
    """What a deserializer made of a key or value, and the bytes that it was made of."""

    result: Any
    data: bytes | None


def apart(given: Any) -> tuple[Any, bytes | None]:
    """Return the result and the bytes of a key or value; without a deserializer both are the bytes."""
    return given if isinstance(given, Deserialized) else (given, given)


def with_bytes(deserializer: Callable[[Any], Any]) -> Callable[[Any], Deserialized]:
    """Return a deserializer that keeps the bytes with its result."""
    return lambda data: Deserialized(deserializer(data), data)


def error_code(error: BaseException) -> int:
    """Return the code of a library's error: of a broker's response Kafka's, else librdkafka's for such an error."""
    number = getattr(type(error), "errno", None)  # of an OSError this is no number
    if isinstance(number, int) and number:
        return number
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((LOCAL_CODES[name] for name in names if name in LOCAL_CODES), FAILED)


def _content(data: object) -> bytes | None:
    """Return the bytes of a key or value; None also for what the library will refuse."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray):
        return bytes(data)
    return data.tobytes() if isinstance(data, memoryview) else None


def _value_hash(value: bytes | None, headers: Headers | None) -> int:
    try:
        return value_hash(value, headers)
    except (TypeError, ValueError, AttributeError):  # headers that the library will refuse
        return stable_hash(value)


def _offset(given: Any) -> int:
    return int(given if isinstance(given, int) else given[0])
