"""The final read (J7): whole topics, from their beginning to the high watermark, by a fresh consumer.

`read_all` assigns every partition without a group and reads with isolation level read_uncommitted, because the verdict
judges everything below the high watermark. When a partition is read to its end, a BOUNDS row is appended for it. The
result is never partial: FinalReadError names what could not be read in time.

With `contents=True` the records' contents are kept too (`histories/contents.py`), for the promises of the application:
those of committed records only, because an application that reads committed data receives no others. `logs` says which
offsets these are (`histories/segments.py`).
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from harrow.cluster.errors import HarrowError

from ..histories.contents import ContentsWriter, FinalRead
from ..histories.format import FINAL_READ_CLIENT, HistoryWriter, OperationFunction, OperationType
from ..histories.segments import scan_log, transaction_ranges
from .consumer import record_poll

Found = TypeVar("Found")
Logs = Mapping[tuple[str, int], str]
BATCH = 10_000
CALL_TIMEOUT_S = 5.0
RETRY_BACKOFF_MS = 10
"""librdkafka drops the bootstrap connection when it learns the brokers, and retries a request on it after this time."""


class FinalReadError(HarrowError):
    """The topics could not be read completely before the timeout."""


def read_all(
    bootstrap_servers: str,
    topics: Sequence[str],
    folder: str | Path,
    *,
    timeout_s: float = 60.0,
    config: Mapping[str, Any] | None = None,
    contents: bool = False,
    logs: Logs | None = None,
) -> list[FinalRead]:
    """Read `topics` completely into a history in `folder`; return one `FinalRead` for each partition.

    `contents`: whether to keep the records' contents in `folder`, too. `logs`: the log folder of a replica that has
    everything, by topic and partition; none where no topic can have transactions.
    """
    deadline = time.monotonic() + timeout_s
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": FINAL_READ_CLIENT,
        "client.id": FINAL_READ_CLIENT,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "check.crcs": True,
        "fetch.wait.max.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": RETRY_BACKOFF_MS,
        "allow.auto.create.topics": False,
        **(config or {}),
    }
    consumer = confluent_kafka.Consumer(settings)
    try:
        with HistoryWriter(folder, process="drain") as history:
            kept = ContentsWriter(folder) if contents else None
            reader = _FinalReader(consumer, history, deadline, timeout_s, kept, logs or {})
            done = reader.run(topics)
            if kept is not None:
                kept.finish(done)
            return done
    finally:
        consumer.close()


class _FinalReader:
    """Reads all topics of one run."""

    def __init__(
        self,
        consumer: confluent_kafka.Consumer,
        history: HistoryWriter,
        deadline: float,
        timeout_s: float,
        contents: ContentsWriter | None,
        logs: Logs,
    ) -> None:
        self._contents = contents
        self._logs = logs
        self._hidden: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._markers: dict[tuple[str, int], int] = {}
        self._consumer = consumer
        self._history = history
        self._client = history.name(FINAL_READ_CLIENT)
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._op = 0
        self._records: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._last_error: dict[tuple[str, int], str] = {}

    def run(self, topics: Sequence[str]) -> list[FinalRead]:
        asked_ns = time.monotonic_ns()
        bounds = {
            (topic, partition): self._watermarks(topic, partition)
            for topic in topics
            for partition in self._partitions(topic)
        }
        self._records = dict.fromkeys(bounds, 0)
        self._ends = {place: high for place, (_, high) in bounds.items()}
        self._positions = {place: low for place, (low, _) in bounds.items()}
        self._look_up_transactions(bounds)
        self._read({place: bound for place, bound in bounds.items() if bound[1] > bound[0]})
        done: list[FinalRead] = []
        for (topic, partition), (low, high) in bounds.items():
            self._history.append(
                OperationFunction.BOUNDS,
                OperationType.OK,
                self._client,
                self._history.name(topic),
                partition,
                high,
                low,
            )
            done.append(
                FinalRead(
                    topic=topic,
                    partition=partition,
                    low=low,
                    high=high,
                    records=self._records[topic, partition],
                    markers=self._markers.get((topic, partition), 0),
                    asked_ns=asked_ns,
                )
            )
        return done

    def _retry(self, what: str, call: Callable[[float], Found | None]) -> Found:
        """Repeat `call(timeout_s)` until it returns a value or the deadline passes: an election may be in progress."""
        problem = "no response"
        while True:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise FinalReadError(
                    f"{what} within {self._timeout_s:g} s: {problem}; check that the brokers are running"
                )
            try:
                found = call(min(left_s, CALL_TIMEOUT_S))
            except KafkaException as error:
                problem = str(error)
                self._consumer.poll(min(0.05, left_s))  # serves the client's events between two attempts
                continue
            if found is not None:
                return found

    def _partitions(self, topic: str) -> list[int]:
        def request(timeout_s: float) -> list[int] | None:
            found = self._consumer.list_topics(topic, timeout=timeout_s).topics.get(topic)
            if found is None or found.error is not None or not found.partitions:
                self._consumer.poll(0.05)
                return None
            return sorted(found.partitions)

        return self._retry(f"cannot get the partitions of {topic!r}", request)

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        found: tuple[int, int] = self._retry(
            f"cannot get the watermarks of {topic}-{partition}",
            lambda timeout_s: self._consumer.get_watermark_offsets(place, timeout=timeout_s, cached=False),
        )
        return found

    def _read(self, unread: dict[tuple[str, int], tuple[int, int]]) -> None:
        if not unread:
            return
        self._consumer.assign([TopicPartition(t, p, low) for (t, p), (low, _) in unread.items()])
        while unread:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise FinalReadError(
                    f"these partitions were not read completely within {self._timeout_s:g} s: "
                    + ", ".join(self._missing(place, bound) for place, bound in sorted(unread.items()))
                )
            self._process(self._consumer.consume(self._wanted(unread), min(0.05, left_s)), unread)
        self._consumer.unassign()

    def _wanted(self, unread: dict[tuple[str, int], tuple[int, int]]) -> int:
        """Return how many messages to ask for: `consume` returns early only with as many.

        A partition with gaps between its offsets has fewer records, but then also the event of its end.
        """
        return min(BATCH, sum(high - self._positions[place] for place, (_, high) in unread.items()))

    def _process(self, messages: Sequence[Message], unread: dict[tuple[str, int], tuple[int, int]]) -> None:
        """Record what the consumer returned, and remove the partitions that are read to their end from `unread`.

        Records above the high watermark of the beginning, which a client appended meanwhile, have rows, but they are
        not part of what the final read counts and keeps.
        """
        now_ns = time.monotonic_ns()
        below: dict[str, list[Message]] = {}
        for message in messages:
            place = (message.topic() or "", message.partition() or 0)
            error, offset = message.error(), message.offset()
            if error is None:
                self._op += 1
                record_poll(self._history, self._client, self._op, message, now_ns)
                if offset is not None:
                    self._positions[place] = offset + 1
                if offset is not None and offset < self._ends[place]:
                    self._records[place] += 1
                    if not self._is_hidden(place, offset):
                        below.setdefault(place[0], []).append(message)
                if place in unread and offset is not None and offset + 1 >= unread[place][1]:
                    del unread[place]
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  (public name of a local code)
                if place in unread and offset is not None and offset >= unread[place][1]:
                    del unread[place]
            else:
                self._last_error[place] = error.str()
        if self._contents is not None:
            for topic, records in below.items():
                self._contents.add(topic, records)

    def _look_up_transactions(self, bounds: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Find markers and records that are not committed, in the logs of partitions that have any."""
        for place, (low, high) in bounds.items():
            folder = self._logs.get(place)
            if self._contents is None or folder is None:
                continue
            found = transaction_ranges((row[0], row[1], row[5], row[7]) for row in scan_log(folder, verify=False))
            self._markers[place] = found.markers_between(low, high)
            self._hidden[place] = sorted(found.aborted + found.unfinished)

    def _is_hidden(self, place: tuple[str, int], offset: int) -> bool:
        ranges = self._hidden.get(place)
        if not ranges:
            return False
        at = bisect.bisect_right(ranges, (offset, 1 << 63)) - 1
        return at >= 0 and ranges[at][1] >= offset

    def _missing(self, place: tuple[str, int], bound: tuple[int, int]) -> str:
        last = f", last error: {self._last_error[place]}" if place in self._last_error else ""
        topic, partition = place
        return f"{topic}-{partition} ({self._records[place]} records of offsets {bound[0]} to {bound[1]}{last})"
