"""The recorder of confluent-kafka's Producer: it writes the producer's history (J6).

Each `produce` is one operation. The recorder writes `invoke` when `produce` is called, and `ok` or `info` when the
record's delivery report arrives. It writes `fail` when librdkafka refuses the record, which was then certainly never
sent. A delivery **error** is `info`: a broker may have appended an earlier attempt whose response was lost. Only a
refusal before the first attempt (the queue is full) is `fail`. An operation without a completion (the process was
killed, or did not call `flush`) counts as `info` too.

Invariant: `produce` takes the operation's number and queues the record under one lock. So the numbers of a client are
the order in which librdkafka received its records, and the verdict checks the order of each key by them.

Fatal errors: confluent-kafka raises a fatal error inside its event callback. A call that goes on serving delivery
reports afterwards (`flush`, and `poll` of 0.2 s and longer) then runs each callback with that exception set: it ends
with SystemError, and reports are lost. librdkafka does return from its own call directly after the error, so this
recorder makes short calls only (`CALL_S`), and continues after the error until every report was served.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from ..histories.format import HistoryWriter, OperationFunction, OperationType, stable_hash, value_hash
from .producer_settings import acks_of, is_idempotent
from .recorder import client_name

DeliveryCallback = Callable[[KafkaError | None, Message], Any]
Headers = Mapping[str, str | bytes | None] | list[tuple[str, str | bytes | None]]

NEVER_SENT = frozenset({KafkaError._QUEUE_FULL})  # noqa: SLF001  (confluent's public name for a local error)
FATAL = KafkaError._FATAL  # noqa: SLF001  (confluent's public name for a local error)
CALL_S = 0.1
"""The longest call into confluent-kafka. Calls of 0.2 s and longer go on serving callbacks after a fatal error."""


def _short_calls(timeout: float) -> Iterable[float]:
    """Timeouts of the calls, at least one, that together take `timeout` seconds; a negative `timeout` has no end."""
    return (timeout,) if 0 <= timeout <= CALL_S else _calls_until(time.monotonic() + timeout, timeout)


def _calls_until(deadline: float, timeout: float) -> Iterator[float]:
    while True:
        left_s = CALL_S if timeout < 0 else max(0.0, deadline - time.monotonic())
        yield min(CALL_S, left_s)
        if left_s == 0:
            return


class Producer:
    """A confluent-kafka Producer that records its operations. All other methods are confluent-kafka's."""

    def __init__(self, config: Mapping[str, Any], *, history: HistoryWriter | str | Path) -> None:
        """`config`: as for confluent-kafka. `history`: a shared writer, or the folder for a new history file."""
        self._own = None if isinstance(history, HistoryWriter) else HistoryWriter(history)
        self._history = history if isinstance(history, HistoryWriter) else self._own or HistoryWriter(history)
        self.name = client_name(config.get("client.id"), "producer")
        self._client = self._history.name(self.name)
        self._fatal: KafkaError | None = None
        self._raw = confluent_kafka.Producer(dict(config))
        self._lock = threading.Lock()
        self._ops = 0
        self._idempotent = is_idempotent(config)
        self._history.append(
            OperationFunction.CLIENT,
            OperationType.OK,
            self._client,
            self._history.name(""),
            -1,
            offset=acks_of(config),
            op=int(self._idempotent),
        )

    @property
    def raw(self) -> confluent_kafka.Producer:
        """The confluent-kafka producer itself; records sent through it are not recorded."""
        return self._raw

    def acquire_producer_id(self, timeout_s: float) -> None:
        """Let an idempotent producer get its producer id now, within about 60 ms; without effect for other producers.

        librdkafka asks for the id when a metadata response arrives and a broker is connected, else 500 ms later. The
        first response ends the bootstrap connection, so no broker is connected then; the second response comes from a
        connected broker. When no broker responds within `timeout_s`, librdkafka continues on its own.
        """
        if not self._idempotent:
            return
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(KafkaException):
            for _ in range(2):
                self._raw.list_topics(timeout=max(0.001, deadline - time.monotonic()))

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Queue one record.

        Raises confluent's exceptions: BufferError when the queue is full, KafkaException after a fatal error.
        """
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
                OperationFunction.SEND,
                OperationType.INVOKE,
                self._client,
                topic_id,
                partition,
                -1,
                op,
                *facts,
                invoked_ns=invoked_ns,
                time_ns=invoked_ns,
            )
            history.sent.append(self._client, op, key, value, headers)
            try:
                self._raw.produce(
                    topic,
                    value=value,
                    key=key,
                    partition=partition,
                    on_delivery=delivered,
                    timestamp=timestamp,
                    headers=headers,  # type: ignore[arg-type]  # its list is invariant
                )
            except BaseException as error:
                history.append(
                    OperationFunction.SEND,
                    OperationType.FAIL,
                    self._client,
                    topic_id,
                    partition,
                    -1,
                    op,
                    *facts,
                    invoked_ns=invoked_ns,
                )
                self._raise_refusal(error)

    def _raise_refusal(self, error: BaseException) -> NoReturn:
        """Raise the error of a refused `produce`; confluent leaves out the flag `fatal()` after a fatal error."""
        if isinstance(error, KafkaException) and error.args[0].code() == FATAL:
            cause = "poll() or flush() raises the cause" if self._fatal is None else self._fatal.str()
            text = f"this producer had a fatal error and sends no more, create another: {cause}"
            raise KafkaException(KafkaError(FATAL, text, fatal=True)) from error
        raise error

    def _completed(
        self,
        error: KafkaError | None,
        message: Message,
        topic_id: int,
        op: int,
        facts: tuple[int, int],
        invoked_ns: int,
    ) -> None:
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
            OperationFunction.SEND,
            outcome,
            self._client,
            topic_id,
            known_partition,
            known_offset,
            op,
            *facts,
            timestamp_ms,
            invoked_ns,
            error=code,
        )

    def _keep_fatal(self, error: KafkaException) -> None:
        """Keep the cause of the producer's fatal error; raise every other error again, such as one of a callback."""
        cause = error.args[0]
        if not (isinstance(cause, KafkaError) and cause.fatal()):
            raise error
        self._fatal = cause

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports for at most `timeout` seconds; return how many events were served.

        The first `poll` or `flush` after a fatal error raises it as KafkaException, once.
        """
        for call_s in _short_calls(timeout):
            try:
                served = self._raw.poll(call_s)
            except KafkaException as error:
                self._keep_fatal(error)
                raise
            if served:
                return served
        return 0

    def flush(self, timeout: float = -1) -> int:
        """Wait until every queued record has its delivery report; return how many records have none yet.

        Raises a fatal error as `poll` does, but serves the reports of the other records first.
        """
        waiting, fatal = self._serve_reports(timeout)
        if fatal is not None:
            raise fatal
        return waiting

    def _serve_reports(self, timeout: float) -> tuple[int, KafkaException | None]:
        """Serve delivery reports until none is due; also return the fatal error that confluent-kafka raised."""
        fatal: KafkaException | None = None
        for call_s in _short_calls(timeout):
            try:
                if not self._raw.flush(call_s):
                    return 0, fatal
            except KafkaException as error:
                self._keep_fatal(error)
                fatal = error
        return len(self._raw), fatal

    def close(self) -> None:
        """Serve all delivery reports, and close the history file if this producer opened it; raises no fatal error."""
        try:
            self._serve_reports(-1)
        finally:
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
