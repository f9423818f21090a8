"""A confluent-kafka Producer that writes its history (J6).

Each `produce` is one operation: `invoke` when it is called; `ok` or `info` in its delivery report; `fail`
when the library itself refused it, so that it was certainly never sent. A delivery **error** is `info`: an
earlier attempt may have been appended though its response was lost; only a refusal before the first attempt
(the queue is full) is `fail`. An operation without a completion (crash, no flush) is `info` too.

Invariant: operation numbers are taken and the record is queued under one lock, so a client's numbers are
the order in which librdkafka got its records; per-key order is judged by them.
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

from ..histories.format import HistoryWriter, Kind, Outcome, stable_hash, value_hash

DeliveryCallback = Callable[[KafkaError | None, Message], Any]
Headers = Mapping[str, str | bytes | None] | list[tuple[str, str | bytes | None]]

NEVER_SENT = frozenset({KafkaError._QUEUE_FULL})  # noqa: SLF001  (confluent's public name for a local error)
_numbers = itertools.count(1)


def client_name(config: Mapping[str, Any], kind: str) -> str:
    """A name that no other client of the run has: `client.id` (or the kind), process, number."""
    return f"{config.get('client.id') or kind}@{os.getpid()}.{next(_numbers)}"


def is_true(value: object) -> bool:
    """A boolean setting as librdkafka reads it."""
    return str(value).lower() in {"true", "1", "yes", "on", "t"}


class Producer:
    """confluent-kafka's Producer, recorded. What is not defined here is confluent's own."""

    def __init__(self, config: Mapping[str, Any], *, history: HistoryWriter | str | Path) -> None:
        """`config` as confluent takes it; `history` a writer to share or the folder for one of its own."""
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
            Kind.CLIENT, Outcome.OK, self._client, self._history.name(""), -1,
            offset=-1 if acks == "all" else int(acks), op=int(idempotent),
        )  # fmt: skip

    @property
    def raw(self) -> confluent_kafka.Producer:
        """The producer behind; what is sent through it is not recorded."""
        return self._raw

    def produce(
        self, topic: str, value: str | bytes | None = None, key: str | bytes | None = None, partition: int = -1,
        callback: DeliveryCallback | None = None, on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0, headers: Headers | None = None,
    ) -> None:  # fmt: skip
        """Queue one record; raises what confluent raises (BufferError when the queue is full)."""
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
                Kind.SEND, Outcome.INVOKE, self._client, topic_id, partition, -1, op, *facts,
                invoked_ns=invoked_ns, time_ns=invoked_ns,
            )  # fmt: skip
            try:
                self._raw.produce(
                    topic, value=value, key=key, partition=partition, on_delivery=delivered,
                    timestamp=timestamp, headers=headers,  # type: ignore[arg-type]  # its list is invariant
                )  # fmt: skip
            except BaseException:
                history.append(
                    Kind.SEND, Outcome.FAIL, self._client, topic_id, partition, -1, op, *facts,
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
            outcome, code = Outcome.OK, 0
        else:
            code = error.code()
            outcome = Outcome.FAIL if code in NEVER_SENT else Outcome.INFO
            known_offset = -1
        timestamp_ms = message.timestamp()[1]
        self._history.append(
            Kind.SEND, outcome, self._client, topic_id, known_partition, known_offset, op, *facts,
            timestamp_ms, invoked_ns, error=code,
        )  # fmt: skip

    def _note_error(self, error: KafkaError) -> None:
        """Keep a fatal error for `poll` and `flush`.

        Without a callback confluent-kafka raises it in the midst of the delivery reports, each of which then
        runs with an exception set: SystemError, and reports of records that were sent are lost.
        """
        if error.fatal():
            self._fatal = error

    def _raise_fatal(self) -> None:
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise KafkaException(fatal)

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; how many events were handled. KafkaException once, when an error is fatal."""
        handled = self._raw.poll(timeout)
        self._raise_fatal()
        return handled

    def flush(self, timeout: float = -1) -> int:
        """Wait until everything queued has its report; how many are still waiting. KafkaException as `poll`."""
        waiting = self._raw.flush(timeout)
        self._raise_fatal()
        return waiting

    def close(self) -> None:
        """Flush, and end the history file if it is this producer's own."""
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
            raise AttributeError(f"a recording Producer has no {name!r}: it could not be recorded")
        return getattr(self._raw, name)
