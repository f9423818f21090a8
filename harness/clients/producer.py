"""A confluent-kafka Producer that writes its history (J6).

Each `produce` is one operation: `invoke` at the call; `ok` or `info` in the delivery report; `fail` when librdkafka
refuses the record before the first attempt (the queue is full), so that it was certainly never sent. A delivery
**error** is `info`: an earlier attempt may have been appended although its response was lost. An operation without a
completion (crash, no flush) is also `info`.

Invariant: one lock covers taking the operation number and queueing the record. So the numbers of a client have the
order in which librdkafka received the records, and order by key is judged by them.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from ..histories.format import (
    HistoryWriter,
    OperationFunction,
    OperationType,
    stable_hash,
    value_hash,
)

DeliveryCallback = Callable[[KafkaError | None, Message], Any]
Headers = Mapping[str, str | bytes | None] | list[tuple[str, str | bytes | None]]

NEVER_SENT = frozenset({KafkaError._QUEUE_FULL})  # noqa: SLF001  (confluent's public name for a local error)
_numbers = itertools.count(1)


def client_name(config: Mapping[str, Any], kind: str) -> str:
    """Return a client name that is unique in the run: `client.id` (or the kind), process id, number."""
    return f"{config.get('client.id') or kind}@{os.getpid()}.{next(_numbers)}"


def is_true(value: object) -> bool:
    """Parse a Boolean setting like librdkafka."""
    return str(value).lower() in {"true", "1", "yes", "on", "t"}


class Producer:
    """A confluent-kafka Producer that records its operations. All other methods are confluent-kafka's."""

    def __init__(self, config: Mapping[str, Any], *, history: HistoryWriter | str | Path) -> None:
        """`config`: as for confluent-kafka. `history`: a shared writer, or the folder for a new history file."""
        self._own = None if isinstance(history, HistoryWriter) else HistoryWriter(history)
        self._history = (
            history if isinstance(history, HistoryWriter) else self._own or HistoryWriter(history)
        )
        self.name = client_name(config, "producer")
        self._client = self._history.name(self.name)
        self._fatal: KafkaError | None = None
        settings = dict(config)
        if settings.get("error_cb") is None:
            settings["error_cb"] = self._note_error
        self._raw = confluent_kafka.Producer(settings)
        self._lock = threading.Lock()
        self._ops = 0
        idempotent = is_true(config.get("enable.idempotence")) or bool(
            config.get("transactional.id")
        )
        acks = str(config.get("acks", config.get("request.required.acks", "all")))
        self._history.append(
            OperationFunction.CLIENT, OperationType.OK, self._client, self._history.name(""), -1,
            offset=-1 if acks == "all" else int(acks), op=int(idempotent),
        )  # fmt: skip

    @property
    def raw(self) -> confluent_kafka.Producer:
        """The confluent-kafka producer itself; records sent through it are not recorded."""
        return self._raw

    def produce(
        self, topic: str, value: str | bytes | None = None, key: str | bytes | None = None, partition: int = -1,
        callback: DeliveryCallback | None = None, on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0, headers: Headers | None = None,
    ) -> None:  # fmt: skip
        """Queue one record; errors are confluent-kafka's (BufferError when the queue is full)."""
        history = self._history
        report = on_delivery or callback
        facts = (stable_hash(key), value_hash(value, headers))
        topic_id = history.name(topic)
        with self._lock:
            op = self._ops
            self._ops = op + 1
            invoked_ns = time.monotonic_ns()

            def delivered(error: KafkaError | None, message: Message) -> None:
                self._completed(error, message, topic_id, op, facts, invoked_ns)
                if report is not None:
                    report(error, message)

            history.append(
                OperationFunction.SEND, OperationType.INVOKE, self._client, topic_id, partition, -1, op, *facts,
                invoked_ns=invoked_ns, time_ns=invoked_ns,
            )  # fmt: skip
            try:
                self._raw.produce(
                    topic, value=value, key=key, partition=partition, on_delivery=delivered,
                    timestamp=timestamp, headers=headers,  # type: ignore[arg-type]  # its list is invariant
                )  # fmt: skip
            except BaseException:
                history.append(
                    OperationFunction.SEND, OperationType.FAIL, self._client, topic_id, partition, -1, op, *facts,
                    invoked_ns=invoked_ns,
                )  # fmt: skip
                raise

    def _completed(
        self, error: KafkaError | None, message: Message, topic_id: int, op: int, facts: tuple[int, int],
        invoked_ns: int,
    ) -> None:  # fmt: skip
        partition, offset = message.partition(), message.offset()
        known_partition = -1 if partition is None or partition < 0 else partition
        known_offset = -1 if offset is None or offset < 0 else offset
        if error is None:
            outcome, code = OperationType.OK, 0
        else:
            code = error.code()
            outcome = OperationType.FAIL if code in NEVER_SENT else OperationType.INFO
            known_offset = -1
        timestamp_ms = message.timestamp()[1]
        self._history.append(
            OperationFunction.SEND, outcome, self._client, topic_id, known_partition, known_offset, op, *facts,
            timestamp_ms, invoked_ns, error=code,
        )  # fmt: skip

    def _note_error(self, error: KafkaError) -> None:
        """Store a fatal error; `poll` and `flush` raise it.

        Without this callback confluent-kafka raises the error while it serves delivery reports. Each report callback
        then runs with an exception set: a SystemError, and delivery reports of sent records are lost.
        """
        if error.fatal():
            self._fatal = error

    def _raise_fatal(self) -> None:
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise KafkaException(fatal)

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports and return the number of events; KafkaException, once, after a fatal error."""
        handled = self._raw.poll(timeout)
        self._raise_fatal()
        return handled

    def flush(self, timeout: float = -1) -> int:
        """Wait for the delivery reports; return the number of records without one. KafkaException as in `poll`."""
        waiting = self._raw.flush(timeout)
        self._raise_fatal()
        return waiting

    def close(self) -> None:
        """Flush, and close the history file unless it is shared."""
        self._raw.flush()
        if self._own is not None:
            self._own.close()

    def __len__(self) -> int:
        return len(self._raw)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in {"produce_batch", "_raw"}:
            raise AttributeError(
                f"a recording Producer has no {name!r}, because the call could not be recorded; use `raw` for it"
            )
        return getattr(self._raw, name)
