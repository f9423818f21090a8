"""How a nemesis knows that there is traffic: the first fault waits for it.

A gauge is called again and again from the nemesis's thread and answers cheaply.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from harrow.cluster.errors import ClusterError
from harrow.cluster.host.tap import PRODUCED, TAP_ROW

from .system import System

HasTraffic = Callable[[], bool]
KIND_AND_ERROR = (0, 2)
ASK_EVERY_S = 0.1


class HighWatermarks:
    """Traffic is a high watermark of these topics (all but internal ones when empty) that moved."""

    def __init__(self, system: System, topics: Iterable[str] = ()) -> None:
        self._system = system
        self._topics = frozenset(topics)
        self._start = self._total()
        self._asked_at = time.monotonic()

    def __call__(self) -> bool:
        """Whether any moved since this was made; brokers are asked at most ten times a second."""
        if time.monotonic() < self._asked_at + ASK_EVERY_S:
            return False
        self._asked_at = time.monotonic()
        return self._total() > self._start

    def _total(self) -> int:
        total = 0
        for node, broker in self._system.brokers.items():
            if broker.state != "running":
                continue
            try:
                rows = self._system.control(node, "state")["partitions"]
            except ClusterError:
                continue
            total += sum(row["hw"] for row in rows if self._concerns(row["topic"]))
        return total

    def _concerns(self, topic: str) -> bool:
        return topic in self._topics if self._topics else not topic.startswith("__")


class Acknowledged:
    """Traffic is a batch that a broker acknowledged to a client since this was made, by the taps.

    Rows are appended with one write before the response leaves, so what a client knows is here.
    """

    def __init__(self, cluster_folder: Path) -> None:
        self._folder = cluster_folder
        self._read: dict[Path, int] = {}
        for path in self._taps():
            self._read[path] = path.stat().st_size // TAP_ROW.size * TAP_ROW.size

    def _taps(self) -> list[Path]:
        return sorted(self._folder.glob("broker-*/tap.bin"))

    def __call__(self) -> bool:
        """Whether there is one now."""
        return any(self._acknowledged(path) for path in self._taps())

    def _acknowledged(self, path: Path) -> bool:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            new = file.read()
        whole = len(new) // TAP_ROW.size * TAP_ROW.size
        self._read[path] = self._read.get(path, 0) + whole
        kind, error = KIND_AND_ERROR
        rows = TAP_ROW.iter_unpack(memoryview(new)[:whole])
        return any(row[kind] == PRODUCED and row[error] == 0 for row in rows)


def either(*gauges: HasTraffic) -> HasTraffic:
    """Traffic is what any of `gauges` calls so: taps know nothing of acks=0, high watermarks do."""
    return lambda: any(gauge() for gauge in gauges)
