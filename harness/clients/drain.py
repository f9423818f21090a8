"""The final read (J7): whole topics, from their beginning to the high watermark, by a fresh consumer.

`drain` assigns every partition without a group, reads uncommitted data too (what lies below the high
watermark is what is judged), and ends only when each partition's end has been reached; then it appends a
BOUNDS row for it. It never answers with a part: DrainError names what could not be read in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from harrow.cluster.errors import HarrowError

from ..histories.format import HistoryWriter, Kind, Outcome
from .consumer import record_poll

Found = TypeVar("Found")
BATCH = 10_000
CALL_TIMEOUT_S = 5.0


class DrainError(HarrowError):
    """The topics could not be read to their ends in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What one partition gave: offsets from `low` up to, but not including, `high`."""

    topic: str
    partition: int
    low: int
    high: int
    records: int


def drain(
    bootstrap_servers: str, topics: Sequence[str], folder: str | Path, *, timeout_s: float = 60.0,
    config: Mapping[str, Any] | None = None,
) -> list[Drained]:  # fmt: skip
    """Read `topics` whole into a history in `folder`; one `Drained` for each partition."""
    deadline = time.monotonic() + timeout_s
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers, "group.id": "harrow-drain", "client.id": "harrow-drain",
        "enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True,
        "isolation.level": "read_uncommitted", "check.crcs": True, "fetch.wait.max.ms": 20,
        "reconnect.backoff.max.ms": 500, "allow.auto.create.topics": False, **(config or {}),
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(settings)
    try:
        with HistoryWriter(folder, process="drain") as history:
            return _Drain(consumer, history, deadline, timeout_s).run(topics)
    finally:
        consumer.close()


class _Drain:
    """One final read."""

    def __init__(
        self,
        consumer: confluent_kafka.Consumer,
        history: HistoryWriter,
        deadline: float,
        timeout_s: float,
    ) -> None:
        self._consumer = consumer
        self._history = history
        self._client = history.name("harrow-drain")
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._records: dict[tuple[str, int], int] = {}
        self._wrong: dict[tuple[str, int], str] = {}

    def run(self, topics: Sequence[str]) -> list[Drained]:
        bounds = {
            (topic, partition): self._watermarks(topic, partition)
            for topic in topics
            for partition in self._partitions(topic)
        }
        self._records = dict.fromkeys(bounds, 0)
        self._read({place: bound for place, bound in bounds.items() if bound[1] > bound[0]})
        done: list[Drained] = []
        for (topic, partition), (low, high) in bounds.items():
            self._history.append(
                Kind.BOUNDS,
                Outcome.OK,
                self._client,
                self._history.name(topic),
                partition,
                high,
                low,
            )
            done.append(
                Drained(
                    topic=topic,
                    partition=partition,
                    low=low,
                    high=high,
                    records=self._records[topic, partition],
                )
            )
        return done

    def _patiently(self, what: str, call: Callable[[float], Found | None]) -> Found:
        """`call(timeout_s)` again until it works or the deadline passes; brokers may be electing."""
        wrong = "no answer"
        while True:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise DrainError(
                    f"{what} within {self._timeout_s:g} s: {wrong}; are the brokers up?"
                )
            try:
                found = call(min(left_s, CALL_TIMEOUT_S))
            except KafkaException as error:
                wrong = str(error)
                self._consumer.poll(
                    min(0.05, left_s)
                )  # serves the client's events between the attempts
                continue
            if found is not None:
                return found

    def _partitions(self, topic: str) -> list[int]:
        def ask(timeout_s: float) -> list[int] | None:
            found = self._consumer.list_topics(topic, timeout=timeout_s).topics.get(topic)
            if found is None or found.error is not None or not found.partitions:
                self._consumer.poll(0.05)
                return None
            return sorted(found.partitions)

        return self._patiently(f"cannot learn the partitions of {topic!r}", ask)

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        found: tuple[int, int] = self._patiently(
            f"cannot learn the watermarks of {topic}-{partition}",
            lambda timeout_s: self._consumer.get_watermark_offsets(
                place, timeout=timeout_s, cached=False
            ),
        )
        return found

    def _read(self, unread: dict[tuple[str, int], tuple[int, int]]) -> None:
        if not unread:
            return
        self._consumer.assign([TopicPartition(t, p, low) for (t, p), (low, _) in unread.items()])
        op = 0
        while unread:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise DrainError(
                    f"not read to their ends within {self._timeout_s:g} s: "
                    + ", ".join(
                        self._missing(place, bound) for place, bound in sorted(unread.items())
                    )
                )
            messages = self._consumer.consume(BATCH, min(0.05, left_s))
            now_ns = time.monotonic_ns()
            for message in messages:
                place = (message.topic() or "", message.partition() or 0)
                error, offset = message.error(), message.offset()
                if error is None:
                    op += 1
                    self._records[place] += 1
                    record_poll(self._history, self._client, op, message, now_ns)
                    if place in unread and offset is not None and offset + 1 >= unread[place][1]:
                        del unread[place]
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  (public name of a local code)
                    if place in unread and offset is not None and offset >= unread[place][1]:
                        del unread[place]
                else:
                    self._wrong[place] = error.str()
        self._consumer.unassign()

    def _missing(self, place: tuple[str, int], bound: tuple[int, int]) -> str:
        last = f", last error: {self._wrong[place]}" if place in self._wrong else ""
        topic, partition = place
        return f"{topic}-{partition} ({self._records[place]} records of offsets {bound[0]} to {bound[1]}{last})"
