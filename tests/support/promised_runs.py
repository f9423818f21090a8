"""Run folders made by hand for promises: what a final read kept, and what recording producers wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Message
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.ids import TopicPartition
from harrow.cluster.tap.recorder import FileTap
from harrow.harness import run_folder
from harrow.harness.histories.contents import ContentsWriter, FinalRead
from harrow.harness.histories.format import HistoryWriter, OperationFunction, OperationType

TOPIC = "orders"
Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeMessage:
    """A record as confluent-kafka returns it."""

    record: tuple[int, int, bytes | None, bytes | None]
    stamp: tuple[int, int] = (1, 1_700_000_000_000)
    pairs: Sequence[Header] | None = None

    def partition(self) -> int:
        return self.record[0]

    def offset(self) -> int:
        return self.record[1]

    def key(self) -> bytes | None:
        return self.record[2]

    def value(self) -> bytes | None:
        return self.record[3]

    def timestamp(self) -> tuple[int, int]:
        return self.stamp

    def headers(self) -> list[Header] | None:
        return None if self.pairs is None else list(self.pairs)

    def __len__(self) -> int:
        return len(self.record[3] or b"")


class PromisedRun:
    """Writes the parts of a run folder that the checks of promises read."""

    def __init__(self, folder: Path, topics: Sequence[str] = (TOPIC,), partitions: int = 3) -> None:
        self.folder = folder
        self._messages: dict[str, list[FakeMessage]] = {topic: [] for topic in topics}
        self._next = {(topic, p): 0 for topic in topics for p in range(partitions)}
        self._low: dict[tuple[str, int], int] = {}
        self._history: HistoryWriter | None = None
        self.asked_ns = 0
        """When the final read asked for the high watermarks."""

    def record(
        self,
        value: object,
        *,
        key: bytes | str | None = b"k",
        partition: int = 0,
        topic: str = TOPIC,
        headers: Sequence[Header] | None = None,
    ) -> int:
        """Add a record; a mapping is written as JSON, bytes and None stay. Returns its offset."""
        content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        raw_key = key.encode() if isinstance(key, str) else key
        offset = self._next[topic, partition]
        self._next[topic, partition] = offset + 1
        message = FakeMessage(record=(partition, offset, raw_key, content), pairs=headers)
        self._messages[topic].append(message)
        return offset

    def remove(self, count: int = 1, *, partition: int = 0, topic: str = TOPIC) -> None:
        """Let `count` records be there no more: retention removed them before the final read."""
        self._next[topic, partition] += count

    def acknowledged(
        self, offset: int, at_ns: int, *, partition: int = 0, topic: str = TOPIC, client: str = "app"
    ) -> None:
        """Record a send that was acknowledged with an offset."""
        history = self._history = self._history or HistoryWriter(self.folder / run_folder.HISTORY)
        history.append(
            OperationFunction.SEND,
            OperationType.OK,
            history.name(client),
            history.name(topic),
            partition,
            offset,
            invoked_ns=at_ns,
            time_ns=at_ns + 1,
        )

    def committed(self, offset: int, *, group: str = "billing", topic: str = TOPIC) -> int:
        """Record a commit of partition 0 in a broker's tap; return a time after it, monotonic in ns."""
        folder = self.folder / run_folder.CLUSTER / "broker-1"
        folder.mkdir(parents=True, exist_ok=True)
        clock = RealClock()
        tap = FileTap(str(folder), clock)
        now_ns = clock.monotonic_ns()
        tap.committed(group, [(TopicPartition(topic, 0), offset)], error=0, invoked_ns=now_ns)
        tap.close()
        return clock.monotonic_ns()

    def write(self) -> Path:
        """Write the files of the final read; return the run folder."""
        drain = self.folder / run_folder.DRAIN
        drain.mkdir(parents=True, exist_ok=True)
        writer = ContentsWriter(drain)
        for topic, messages in self._messages.items():
            writer.add(topic, cast("list[Message]", messages)) if messages else None
        writer.finish([self._read(topic, partition, high) for (topic, partition), high in self._next.items()])
        if self._history is not None:
            self._history.close()
        return self.folder

    def _read(self, topic: str, partition: int, high: int) -> FinalRead:
        count = sum(message.partition() == partition for message in self._messages[topic])
        return FinalRead(topic=topic, partition=partition, low=0, high=high, records=count, asked_ns=self.asked_ns)


def by_name(anomalies: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """The anomalies of a name."""
    return [anomaly for anomaly in anomalies if anomaly["name"] == name]
