"""A confluent-kafka Consumer that writes its history (J6).

A record that `poll` or `consume` returns is one `ok` row. A commit is an `invoke` row and then `ok`, `fail` or `info`
for each partition. Where the position may legally jump (an assignment, a revocation, a seek) the consumer writes a
row of `BREAKS`: REBALANCE where its group did it, else BREAK. Order is judged only between two of them. A record that
was read is not thereby processed; the history makes no statement about processing.

`consume` may collect records, run the callback of a rebalance, and collect more before it returns, and does not say
which records came before. So the records of such a call have a further BREAK where their offsets do not follow each
other, and one after the last. Later calls may still return records that the client had fetched before the rebalance
(seen with librdkafka 2.16: two batches of 500, then the same records again from the committed offset). So there is a
BREAK, too, where the partition first goes back after that, unless a call without any record came between: then nothing
of before was left.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition

from ..histories.format import HistoryWriter, OperationFunction, OperationType, stable_hash, value_hash
from .recorder import client_name

RebalanceCallback = Callable[[Any, list[TopicPartition]], Any]
Place = tuple[str, int]
"""Topic and partition."""


def record_poll(history: HistoryWriter, client: int, op: int, message: Message, timed_ns: int) -> None:
    """Write one row for a record that was read; error messages (end of partition) have no row."""
    offset, partition = message.offset(), message.partition()
    if message.error() is not None or offset is None or partition is None:
        return
    history.append(
        OperationFunction.POLL,
        OperationType.OK,
        client,
        history.name(message.topic() or ""),
        partition,
        offset,
        op,
        stable_hash(message.key()),
        value_hash(message.value(), message.headers()),
        message.timestamp()[1],
        timed_ns,
        timed_ns,
        flags=0,
    )


class Consumer:
    """A confluent-kafka Consumer that records its operations. All other methods are confluent-kafka's."""

    def __init__(self, config: Mapping[str, Any], *, history: HistoryWriter | str | Path) -> None:
        """`config`: as for confluent-kafka. `history`: a shared writer, or the folder for a new history file."""
        self._own = None if isinstance(history, HistoryWriter) else HistoryWriter(history)
        self._history = history if isinstance(history, HistoryWriter) else self._own or HistoryWriter(history)
        self.name = client_name(config.get("client.id"), "consumer")
        self._client = self._history.name(self.name)
        self._lock = threading.Lock()
        self._ops = itertools.count()
        self._moved = dict[Place, int | None]()
        """Partitions whose position was set, with the last offset read since, until nothing of before can come."""
        self._moved_in_call = set[Place]()
        """Those of the present call of `consume`."""
        settings = dict(config)
        self._on_commit = settings.get("on_commit")
        settings["on_commit"] = self._committed
        self._raw = confluent_kafka.Consumer(settings)

    @property
    def raw(self) -> confluent_kafka.Consumer:
        """The confluent-kafka consumer itself; reads through it are not recorded."""
        return self._raw

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group for `topics`; the callbacks run after the BREAK row is written."""

        def breaking(callback: RebalanceCallback | None) -> RebalanceCallback:
            def call(consumer: Any, partitions: list[TopicPartition]) -> None:
                self._position_set(partitions, OperationFunction.REBALANCE)
                if callback is not None:
                    callback(consumer, partitions)

            return call

        lost = breaking(on_lost) if on_lost is not None else None
        optional = {} if lost is None else {"on_lost": lost}
        self._raw.subscribe(list(topics), on_assign=breaking(on_assign), on_revoke=breaking(on_revoke), **optional)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign these partitions without a group."""
        self._position_set(partitions)
        self._raw.assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add these partitions to the assignment."""
        self._position_set(partitions)
        self._raw.incremental_assign(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Set the position of one partition."""
        self._position_set([partition])
        self._raw.seek(partition)

    def _position_set(
        self, partitions: Iterable[TopicPartition], kind: OperationFunction = OperationFunction.BREAK
    ) -> None:
        for partition in partitions:
            place = partition.topic, partition.partition
            self._break(place, kind)
            self._moved[place] = None
            self._moved_in_call.add(place)

    def _break(self, place: Place, kind: OperationFunction = OperationFunction.REBALANCE) -> None:
        topic, partition = place
        self._history.append(
            kind, OperationType.OK, self._client, self._history.name(topic), partition, op=next(self._ops)
        )

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next record or error; None after `timeout` seconds."""
        message = self._raw.poll(timeout)
        if message is not None:
            record_poll(self._history, self._client, next(self._ops), message, time.monotonic_ns())
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records and errors."""
        self._moved_in_call.clear()
        messages = self._raw.consume(num_messages, timeout)
        now_ns = time.monotonic_ns()
        if not messages:
            self._moved.clear()
        for message in messages:
            if self._moved:
                self._break_where_it_jumps(message)
            record_poll(self._history, self._client, next(self._ops), message, now_ns)
        for place in self._moved_in_call:
            if self._moved.get(place) is not None:
                self._break(place)
                self._moved[place] = None
        return messages

    def _break_where_it_jumps(self, message: Message) -> None:
        place, offset = (message.topic() or "", message.partition() or 0), message.offset()
        if place not in self._moved or message.error() is not None or offset is None:
            return
        last, self._moved[place] = self._moved[place], offset
        if last is None or offset == last + 1:
            return
        self._break(place)
        if offset <= last and place not in self._moved_in_call:
            del self._moved[place]

    def commit(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None, asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        """Commit like confluent-kafka; the `on_commit` callback completes an asynchronous commit."""
        asked = _asked(message, offsets)
        self._commits(OperationType.INVOKE, asked)
        arguments: dict[str, Any] = {"asynchronous": asynchronous}
        if message is not None:
            arguments["message"] = message
        elif offsets is not None:
            arguments["offsets"] = offsets
        try:
            result = cast("list[TopicPartition] | None", self._raw.commit(**arguments))
        except KafkaException as error:
            self._commits(OperationType.INFO, asked, error.args[0].code())
            raise
        if not asynchronous:
            for done in result or ():
                failed = done.error
                self._commits(
                    OperationType.OK if failed is None else OperationType.INFO, [done], failed.code() if failed else 0
                )
        return result

    def _committed(self, error: Any, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            wrong = error or partition.error
            self._commits(
                OperationType.OK if wrong is None else OperationType.INFO, [partition], wrong.code() if wrong else 0
            )
        if self._on_commit is not None:
            self._on_commit(error, partitions)

    def _commits(self, outcome: OperationType, partitions: Iterable[TopicPartition], error: int = 0) -> None:
        for partition in partitions:
            if partition.offset < 0:
                continue  # no record was read from it, so nothing was committed
            self._history.append(
                OperationFunction.COMMIT,
                outcome,
                self._client,
                self._history.name(partition.topic),
                partition.partition,
                max(partition.offset, -1),
                next(self._ops),
                error=error,
            )

    def close(self) -> None:
        """Leave the group, and close the history file unless it is shared."""
        self._raw.close()
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name == "_raw":
            raise AttributeError(name)
        return getattr(self._raw, name)


def _asked(message: Message | None, offsets: list[TopicPartition] | None) -> list[TopicPartition]:
    if message is not None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is not None and partition is not None and offset is not None:
            return [TopicPartition(topic, partition, offset + 1)]
    return list(offsets or ())
