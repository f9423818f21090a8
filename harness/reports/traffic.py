"""Throughput and latency over time: from the recorders' histories, or from the brokers' taps when there are none.

Owns: `TrafficSeries`, arrays with one value for each time bucket. Memory is bounded for any history: files are mapped
and read in chunks, and latencies are counted in bins whose width grows by 1/12, so a percentile has an error below 4 %.
`history/*.ops` holds the latency that the application measured, `tap.bin` only the broker's part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import HarrowError

from .. import run_folder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

CHUNK_ROWS = 1 << 20
BINS = 256
BINS_PER_E = 12.5
"""Latency bin = 12.5 x ln(microseconds): 1 us to 800 s in 256 bins."""
INTERNAL_PREFIX = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedOperations:
    """Completed operations of one kind: end time, duration (0: unknown) and number of records of each."""

    what: str
    end_ns: Numbers
    took_ns: Numbers
    count: Numbers


class TrafficSeries:
    """Numbers of acknowledged, delivered and failed records in each bucket, and quantiles of the latency."""

    def __init__(self, begin_ns: int, bucket_ns: int, buckets: int) -> None:
        import numpy as np

        self.begin_ns = begin_ns
        self.bucket_ns = bucket_ns
        self.buckets = buckets
        self.counts: dict[str, npt.NDArray[np.float64]] = {
            what: np.zeros(buckets) for what in ("acked", "delivered", "failed")
        }
        self._latency = np.zeros((buckets, BINS), dtype=np.int64)

    def add(self, completed: CompletedOperations) -> None:
        """Add one chunk."""
        import numpy as np

        at = np.clip((completed.end_ns - self.begin_ns) // self.bucket_ns, 0, self.buckets - 1)
        self.counts[completed.what] += np.bincount(at, weights=completed.count, minlength=self.buckets)
        if completed.what != "acked":
            return
        micros = np.maximum(completed.took_ns / 1_000, 1.0)
        bins = np.minimum((np.log(micros) * BINS_PER_E).astype(np.int64), BINS - 1)
        flat = np.bincount(at * BINS + bins, minlength=self.buckets * BINS)
        self._latency += flat.reshape(self.buckets, BINS)

    def rates(self, what: str) -> list[float]:
        """Return records per second for each bucket."""
        return [round(float(n) * 1e9 / self.bucket_ns, 1) for n in self.counts[what]]

    def total(self, what: str) -> int:
        """Return the number of records of that kind in the run."""
        return int(self.counts[what].sum())

    def quantile(self, share: float) -> list[float | None]:
        """Return the quantile in milliseconds for each bucket; None for a bucket without acknowledgements."""
        return [self._quantile(row, share) for row in self._latency]

    def overall(self, share: float) -> float | None:
        """Return the quantile over the whole run, in milliseconds."""
        return self._quantile(self._latency.sum(axis=0), share)

    def _quantile(self, row: Numbers, share: float) -> float | None:
        import numpy as np

        total = int(row.sum())
        if not total:
            return None
        position = int(np.searchsorted(np.cumsum(row), math.ceil(total * share)))
        return float(f"{math.exp((position + 0.5) / BINS_PER_E) / 1_000:.4g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSource:
    """Files from which some kinds of operations are read."""

    name: str
    """`history` or `tap`."""
    paths: tuple[Path, ...]
    what: frozenset[str]
    """`acked` and `failed`, or `delivered`, or all three."""


SENT, READ = frozenset({"acked", "failed"}), frozenset({"delivered"})


def completions(folder: Path) -> list[TrafficSource]:
    """Return where sends and reads are recorded: histories where recorders wrote them, else the brokers' taps.

    A test may record its producer and read with a client of its own; then sends are from one source, reads from the
    other.
    """
    histories = run_folder.operation_files(folder / run_folder.HISTORY)
    recorded = [(path, _recorded(path)) for path in histories]
    taps = [path for path in run_folder.tap_files(folder / run_folder.CLUSTER) if path.stat().st_size]
    sources: list[TrafficSource] = []
    for what in (SENT, READ):
        paths = tuple(path for path, kinds in recorded if what <= kinds)
        if paths:
            sources.append(TrafficSource(name="history", paths=paths, what=what))
        elif taps:
            sources.append(TrafficSource(name="tap", paths=tuple(taps), what=what))
    return sources


def _recorded(path: Path) -> frozenset[str]:
    """Return which kinds of operations a history has."""
    from ..histories.format import OperationFunction, read_history

    try:
        kinds: Any = read_history(path).rows["kind"]
    except (HarrowError, OSError):
        return frozenset()
    sent = SENT if (kinds == OperationFunction.SEND).any() else frozenset[str]()
    return sent | (READ if (kinds == OperationFunction.POLL).any() else frozenset[str]())


def chunks(sources: Sequence[TrafficSource]) -> Iterator[CompletedOperations]:
    """Yield all completed operations of the sources, in chunks."""
    for source in sources:
        for path in source.paths:
            try:
                yield from _file(source, path)
            except (HarrowError, OSError):
                continue  # the verdict reports an unreadable file; the page shows the other files


def _file(source: TrafficSource, path: Path) -> Iterator[CompletedOperations]:
    found = _history(path) if source.name == "history" else _tap(path)
    return (completed for completed in found if completed.what in source.what)


def _history(path: Path) -> Iterator[CompletedOperations]:
    import numpy as np

    from ..histories.format import OperationFunction, OperationType, read_history

    rows: Any = read_history(path).rows
    kinds = (
        ("acked", OperationFunction.SEND, (OperationType.OK,)),
        ("failed", OperationFunction.SEND, (OperationType.FAIL, OperationType.INFO)),
        ("delivered", OperationFunction.POLL, (OperationType.OK,)),
    )
    for start in range(0, len(rows), CHUNK_ROWS):
        part = rows[start : start + CHUNK_ROWS]
        for what, kind, outcomes in kinds:
            chosen = part[(part["kind"] == kind) & np.isin(part["outcome"], outcomes)]
            if len(chosen):
                end = chosen["time_ns"].astype(np.int64)
                yield CompletedOperations(
                    what=what,
                    end_ns=end,
                    took_ns=end - chosen["invoked_ns"],
                    count=np.ones(len(chosen), dtype=np.int64),
                )


def _tap(path: Path) -> Iterator[CompletedOperations]:
    import numpy as np
    from harrow.cluster.tap.layouts import FETCHED, PRODUCED

    from ..histories.format import FINAL_READ_CLIENT
    from ..histories.tap import REPLICA_CLIENT, read_tap

    tap = read_tap(path)
    rows: Any = tap.rows
    internal = [n for n, name in enumerate(tap.names) if name.startswith(INTERNAL_PREFIX)]
    replicas = [n for n, name in enumerate(tap.names) if REPLICA_CLIENT.fullmatch(name) or name == FINAL_READ_CLIENT]
    for start in range(0, len(rows), CHUNK_ROWS):
        part = rows[start : start + CHUNK_ROWS]
        part = part[~np.isin(part["topic"], internal)]
        produced = part["kind"] == PRODUCED
        fetched = (part["kind"] == FETCHED) & ~np.isin(part["client"], replicas)
        for what, chosen in (
            ("acked", part[produced & (part["error"] == 0)]),
            ("failed", part[produced & (part["error"] != 0)]),
            ("delivered", part[fetched]),
        ):
            if len(chosen):
                end = chosen["completed_ns"].astype(np.int64)
                yield CompletedOperations(
                    what=what, end_ns=end, took_ns=end - chosen["invoked_ns"], count=chosen["count"].astype(np.int64)
                )


def span(sources: Sequence[TrafficSource]) -> tuple[int, int] | None:
    """Return the first start and the last end of a completed operation, in monotonic nanoseconds."""
    first: int | None = None
    last = 0
    for completed in chunks(sources):
        begin = int((completed.end_ns - completed.took_ns).min())
        first = begin if first is None else min(first, begin)
        last = max(last, int(completed.end_ns.max()))
    return None if first is None else (first, last)
