"""How the local backend notices traffic: a batch in a tap (produced or fetched), or a high watermark that moved.

Taps say it first, but they have no row of acks=0; high watermarks move with it. A detector is called again and
again from the nemesis's thread and returns fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.errors import ClusterError
from harrow.cluster.tap.layouts import FETCHED, PRODUCED, TAP_ROW

from ..run_folder import tap_files

if TYPE_CHECKING:
    from harrow.cluster import Cluster

KIND_AND_ERROR = (0, 2)
ASK_EVERY_S = 0.1


class HighWatermarkTraffic:
    """Traffic is a high watermark of a topic that is not internal, and that moved."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._start = self._total()
        self._asked_at = time.monotonic()

    def __call__(self) -> bool:
        """Whether any moved since this was made; brokers are queried at most ten times a second."""
        if time.monotonic() < self._asked_at + ASK_EVERY_S:
            return False
        self._asked_at = time.monotonic()
        return self._total() > self._start

    def _total(self) -> int:
        total = 0
        for node, broker in self._cluster.brokers.items():
            if broker.state != "running":
                continue
            try:
                rows = self._cluster.control(node, "state")["partitions"]
            except ClusterError:
                continue
            total += sum(row["hw"] for row in rows if not row["topic"].startswith("__"))
        return total


class AcknowledgedTraffic:
    """Traffic is a batch that a broker acknowledged or delivered to a client since this was made, by the taps.

    Rows are appended with one write before the response leaves: when a client has the response, the row is in the file.
    """

    def __init__(self, cluster_folder: Path) -> None:
        self._folder = cluster_folder
        self._read: dict[Path, int] = {}
        for path in tap_files(cluster_folder):
            self._read[path] = path.stat().st_size // TAP_ROW.size * TAP_ROW.size

    def __call__(self) -> bool:
        """Whether there is one by now."""
        return any(self._acknowledged(path) for path in tap_files(self._folder))

    def _acknowledged(self, path: Path) -> bool:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            new = file.read()
        whole = len(new) // TAP_ROW.size * TAP_ROW.size
        self._read[path] = self._read.get(path, 0) + whole
        kind, error = KIND_AND_ERROR
        rows = TAP_ROW.iter_unpack(memoryview(new)[:whole])
        return any(row[kind] in (PRODUCED, FETCHED) and row[error] == 0 for row in rows)


def watch(cluster: Cluster) -> Callable[[], bool]:
    """Return a detector that says whether either of the two saw traffic."""
    detectors = (AcknowledgedTraffic(cluster.folder), HighWatermarkTraffic(cluster))
    return lambda: any(detector() for detector in detectors)
