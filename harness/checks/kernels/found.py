"""What kernels found in one topic-partition: all counted, the first few shown with their operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars as pl

from ...histories.format import OperationFunction, OperationType

OPERATIONS_MOST = 12
Row = dict[str, Any]


class Found:
    """Anomalies, figures and doubts of one topic-partition."""

    def __init__(self, topic: str, partition: int, limit: int) -> None:
        self.topic = topic
        self.partition = partition
        self.limit = limit
        self.totals: Counter[str] = Counter()
        self.shown: list[Row] = []
        self.counts: dict[str, int] = {}
        self.unknown: list[str] = []
        self.lost_offsets: set[int] = set()
        """Offsets already reported from records, so that batches do not report them again."""

    def add(
        self, name: str, offsets: Sequence[int], operations: Iterable[Row], explanation: str
    ) -> None:
        """One anomaly."""
        self.totals[name] += 1
        self._show(name, offsets, operations, explanation)

    def many(
        self,
        name: str,
        frame: pl.DataFrame,
        tell: Callable[[Row], tuple[Sequence[int], Iterable[Row], str]],
    ) -> None:
        """One anomaly for each row of `frame`; `tell` gives offsets, operations and explanation of a shown one."""
        if not len(frame):
            return
        self.totals[name] += len(frame)
        left = max(0, self.limit - sum(1 for row in self.shown if row["name"] == name))
        for row in frame.head(left).iter_rows(named=True):
            self._show(name, *tell(row))

    def _show(
        self, name: str, offsets: Sequence[int], operations: Iterable[Row], explanation: str
    ) -> None:
        if sum(1 for row in self.shown if row["name"] == name) >= self.limit:
            return
        self.shown.append(
            {
                "name": name,
                "topic": self.topic,
                "partition": self.partition,
                "offsets": [int(offset) for offset in offsets][:OPERATIONS_MOST],
                "operations": list(operations)[:OPERATIONS_MOST],
                "explanation": explanation,
            }
        )

    def result(self) -> Row:
        """As plain JSON."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "counts": self.counts,
            "totals": dict(self.totals),
            "anomalies": self.shown,
            "unknown": self.unknown,
        }


def operations(frame: pl.DataFrame, source: str = "") -> list[Row]:
    """Operation rows as a reader of the verdict sees them; `client` is still a number."""
    told: list[Row] = []
    for row in frame.head(OPERATIONS_MOST).iter_rows(named=True):
        kind = OperationFunction(row["kind"])
        what = source or (kind.name.lower() if kind is not OperationFunction.POLL else "read")
        told.append(
            {
                "operation": what,
                "outcome": OperationType(row["outcome"]).name.lower(),
                "client": row.get("client"),
                "op": row["op"],
                "offset": row["offset"],
                "key": f"{row['key_hash']:016x}",
                "value": f"{row['value_hash']:016x}",
                "timestamp_ms": row["timestamp_ms"],
                "invoked_ns": row["invoked_ns"],
                "completed_ns": row["time_ns"],
            }
        )
    return told


def batches(frame: pl.DataFrame, operation: str) -> list[Row]:
    """Tap or log rows as a reader of the verdict sees them."""
    told: list[Row] = []
    for row in frame.head(OPERATIONS_MOST).iter_rows(named=True):
        shown = {
            "operation": operation,
            "client": row.get("client"),
            "broker": row.get("node"),
            "base_offset": row["base_offset"],
            "last_offset": row["last_offset"],
            "crc": f"{row['crc']:08x}",
            "leader_epoch": row.get("leader_epoch"),
            "producer_id": row["producer_id"],
            "producer_epoch": row["producer_epoch"],
            "base_sequence": row["base_sequence"],
            "acks": row.get("acks"),
            "invoked_ns": row.get("invoked_ns"),
            "completed_ns": row.get("completed_ns"),
        }
        told.append(shown)
    return told
