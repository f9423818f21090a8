"""The findings in one topic-partition: every record is counted, and the first anomalies are kept with operations.

An anomaly of a batch counts as many times as the batch has records, because records are what the application sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import polars as pl

from ...histories.format import OperationFunction, OperationType
from .inputs import FLAG_LOST

OPERATIONS_MOST = 12
LOSS, DUPLICATION = "lost-write", "duplicate"
"""What a doubt is about: it counts where the guarantees forbid this anomaly."""
Row = dict[str, Any]
T = TypeVar("T")
Description = tuple[Sequence[int], Iterable[Row], str]
"""Offsets, operations and explanation of an anomaly."""


class PartitionFindings:
    """Anomalies, operation counts and doubts of one topic-partition."""

    def __init__(self, topic: str, partition: int, limit: int) -> None:
        """`limit` bounds the anomalies that are kept of each name."""
        self.topic = topic
        self.partition = partition
        self.limit = limit
        self.anomaly_counts: Counter[str] = Counter()
        """Records of each name; of the anomalies of logs and brokers, anomalies."""
        self._rows: Counter[str] = Counter()
        self.shown: list[Row] = []
        self.operation_counts: dict[str, int] = {}
        self.traffic: Row = {}
        """When the traffic began and ended, and how many operations met each fault (`overlap.traffic`)."""
        self.unknown: list[str] = []
        """Why the partition could not be judged, or not completely."""
        self.doubts: list[tuple[str, str]] = []
        """Like `unknown`, with the anomaly that each doubt is about."""
        self.refused: Row = {}
        """Records that brokers refused and that are not in the log (`refusals.py`)."""
        self.appended: list[list[int]] = []
        """For each client its number, how many records were appended for it, and when the last response was sent."""
        self.unread: Row = {}
        """Records that no reader received, although readers were there (`overlap.unread_records`)."""
        self.lost_offsets: set[int] = set()
        """Offsets that the checks of records reported, so that the checks of batches do not report them again."""
        self.duplicate_offsets: set[int] = set()
        """Offsets of the records that the log has too often."""
        self.evidence: list[Row] = []
        """Facts about the cause of what was found (`kernels/evidence.py`), for `checks/causes/`."""

    def add_each(self, name: str, frame: pl.DataFrame, describe: Callable[[Row], Description]) -> None:
        """Count one anomaly for each row of `frame`; `describe` is called only for rows that are kept.

        Where `frame` has the column `records`, a row counts as many times.
        """
        if not len(frame):
            return
        counted = "records" in frame.columns
        self.anomaly_counts[name] += int(frame["records"].sum()) if counted else len(frame)
        for row in frame.head(self._take(name, len(frame))).iter_rows(named=True):
            self._show(name, int(row["records"]) if counted else 1, *describe(row))

    def add_all(self, name: str, found: Sequence[T], describe: Callable[[T], Description]) -> None:
        """Count one anomaly for each item of `found`; `describe` is called only for those that are kept."""
        if not found:
            return
        self.anomaly_counts[name] += len(found)
        for item in found[: self._take(name, len(found))]:
            self._show(name, 1, *describe(item))

    def _take(self, name: str, rows: int) -> int:
        """Count rows with an anomaly; return how many of them are kept."""
        left = max(0, self.limit - self._rows[name])
        self._rows[name] += rows
        return left

    def doubt(self, about: str, reason: str) -> None:
        """Add a doubt that counts where the guarantees forbid the anomaly `about`."""
        self.doubts.append((about, reason))

    def _shown_of(self, name: str) -> int:
        return sum(1 for row in self.shown if row["name"] == name)

    def _show(
        self, name: str, records: int, offsets: Sequence[int], operations: Iterable[Row], explanation: str
    ) -> None:
        self.shown.append(
            {
                "name": name,
                "topic": self.topic,
                "partition": self.partition,
                "offsets": [int(offset) for offset in offsets][:OPERATIONS_MOST],
                "operations": list(operations)[:OPERATIONS_MOST],
                "explanation": explanation,
                "records": records,
            }
        )

    def result(self) -> Row:
        """Return the findings as plain JSON."""
        for name, count in self._rows.items():
            assert self._shown_of(name) == min(count, self.limit), (name, count, self.limit)
            assert self.anomaly_counts[name] >= count, (name, count)
        return {
            "topic": self.topic,
            "partition": self.partition,
            "operation_counts": self.operation_counts,
            "traffic": self.traffic,
            "anomaly_counts": dict(self.anomaly_counts),
            "anomalies": self.shown,
            "evidence": self.evidence,
            "unknown": self.unknown,
            "doubts": self.doubts,
            "refused": self.refused,
            "appended": self.appended,
            "unread": self.unread,
        }


def operation_rows(frame: pl.DataFrame, source: str = "") -> list[Row]:
    """Return history rows as the verdict shows them; `client` is still the client's number.

    A history has hashes of keys and values; `contents_of_examples.py` adds what was written.
    """
    shown: list[Row] = []
    for row in frame.head(OPERATIONS_MOST).iter_rows(named=True):
        kind = OperationFunction(row["kind"])
        name = source or (kind.name.lower() if kind is not OperationFunction.POLL else "read")
        shown.append(
            {
                "operation": name,
                "outcome": OperationType(row["outcome"]).name.lower(),
                "client": row.get("client"),
                "op": row["op"],
                "offset": row["offset"],
                "key_hash": f"{row['key_hash']:016x}",
                "value_hash": f"{row['value_hash']:016x}",
                "timestamp_ms": row["timestamp_ms"],
                "invoked_ns": row["invoked_ns"],
                "completed_ns": row["time_ns"],
            }
        )
    return shown


def batch_rows(frame: pl.DataFrame, operation: str) -> list[Row]:
    """Return batches of a tap or of a log as the verdict shows them."""
    return [
        {
            "operation": operation,
            "client": row.get("client"),
            "broker": row.get("node"),
            "records": row["count"],
            "response_lost": True if (row.get("flags") or 0) & FLAG_LOST else None,
            "response_error": row.get("error") or None,
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
        for row in frame.head(OPERATIONS_MOST).iter_rows(named=True)
    ]
