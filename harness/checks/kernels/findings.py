"""The findings in one topic-partition: every record is counted, and the first anomalies are kept with operations.

An anomaly of a batch counts as many times as the batch has records, because records are what the application sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

import polars as pl

from ...histories.format import OperationFunction, OperationType
from ..anomaly_kinds import SEVERITY
from ..client_names import Explanation
from ..facts import Fact
from ..rows import AnomalyRow, Appended, Doubt, OperationRow, PartitionResult, PartitionTraffic, Refused, Unread
from .inputs import FLAG_LOST

OPERATIONS_MOST = 12
KNOWN = frozenset(kind.name for kind in SEVERITY)
LOSS, DUPLICATION = "lost-write", "duplicate"
"""What a doubt is about: it counts where the guarantees forbid this anomaly."""
T = TypeVar("T")
Columns = TypeVar("Columns", bound=NamedTuple)
Description = tuple[Sequence[int], Iterable[OperationRow], Explanation]
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
        self.shown: list[AnomalyRow] = []
        self.operation_counts: dict[str, int] = {}
        self.traffic: PartitionTraffic | None = None
        self.unknown: list[str] = []
        """Why the partition could not be judged, or not completely."""
        self.doubts: list[Doubt] = []
        self.refused: Refused | None = None
        self.appended: list[Appended] = []
        """A row for each client."""
        self.unread: Unread | None = None
        self.lost_offsets: set[int] = set()
        """Offsets that the checks of records reported, so that the checks of batches do not report them again."""
        self.duplicate_offsets: set[int] = set()
        """Offsets of the records that the log has too often."""
        self.evidence: list[Fact] = []
        """Facts about the cause of what was found, for `checks/causes/`."""

    def add_each(
        self, name: str, frame: pl.DataFrame, columns: type[Columns], describe: Callable[[Columns], Description]
    ) -> None:
        """Count one anomaly for each row of `frame`; `describe` is called only for rows that are kept.

        It is given what `columns` names of a row. Where `frame` has the column `records`, a row counts as many times.
        """
        if not len(frame):
            return
        counted = "records" in frame.columns
        self.anomaly_counts[name] += int(frame["records"].sum()) if counted else len(frame)
        kept = frame.head(self._take(name, len(frame)))
        records = kept["records"].to_list() if counted else [1] * len(kept)
        for row, count in zip(rows_of(kept, columns), records, strict=True):
            self._show(name, count, *describe(row))

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
        self.doubts.append(Doubt(about, reason))

    def _shown_of(self, name: str) -> int:
        return sum(1 for row in self.shown if row.name == name)

    def _show(
        self,
        name: str,
        records: int,
        offsets: Sequence[int],
        operations: Iterable[OperationRow],
        explanation: Explanation,
    ) -> None:
        self.shown.append(
            AnomalyRow(
                name=name,
                topic=self.topic,
                partition=self.partition,
                offsets=[int(offset) for offset in offsets][:OPERATIONS_MOST],
                operations=list(operations)[:OPERATIONS_MOST],
                explanation=explanation,
                records=records,
            )
        )

    def result(self) -> PartitionResult:
        """Return the findings as a value."""
        for name, count in self._rows.items():
            assert self._shown_of(name) == min(count, self.limit), (name, count, self.limit)
            assert self.anomaly_counts[name] >= count, (name, count)
            records = sum(row.records for row in self.shown if row.name == name)
            assert records <= self.anomaly_counts[name], (name, records, self.anomaly_counts[name])
            assert name in KNOWN, f"{name} has no severity: no guarantee can forbid it"
        assert self.anomaly_counts.keys() == self._rows.keys(), (self.anomaly_counts, self._rows)
        return PartitionResult(
            topic=self.topic,
            partition=self.partition,
            operation_counts=self.operation_counts,
            traffic=self.traffic,
            anomaly_counts=dict(self.anomaly_counts),
            anomalies=self.shown,
            evidence=self.evidence,
            unknown=self.unknown,
            doubts=self.doubts,
            refused=self.refused,
            appended=self.appended,
            unread=self.unread,
        )


def rows_of(frame: pl.DataFrame, columns: type[Columns]) -> Iterator[Columns]:
    """Yield what `columns` names of each row of `frame`."""
    return map(columns._make, frame.select(columns._fields).iter_rows())


def operation_rows(frame: pl.DataFrame, source: str = "") -> list[OperationRow]:
    """Return history rows as the verdict shows them; `client` is still the client's number.

    A history has hashes of keys and values; `examples.py` adds what was written.
    """
    shown: list[OperationRow] = []
    for row in frame.head(OPERATIONS_MOST).iter_rows(named=True):
        kind = OperationFunction(row["kind"])
        name = source or (kind.name.lower() if kind is not OperationFunction.POLL else "read")
        shown.append(
            _known(
                operation=name,
                outcome=OperationType(row["outcome"]).name.lower(),
                client=row.get("client"),
                op=row["op"],
                offset=row["offset"],
                key_hash=f"{row['key_hash']:016x}",
                value_hash=f"{row['value_hash']:016x}",
                timestamp_ms=row["timestamp_ms"],
                invoked_ns=row["invoked_ns"],
                completed_ns=row["time_ns"],
            )
        )
    return shown


def batch_rows(frame: pl.DataFrame, operation: str) -> list[OperationRow]:
    """Return batches of a tap or of a log as the verdict shows them."""
    return [
        _known(
            operation=operation,
            client=row.get("client"),
            broker=row.get("node"),
            records=row["count"],
            response_lost=True if (row.get("flags") or 0) & FLAG_LOST else None,
            response_error=row.get("error") or None,
            base_offset=row["base_offset"],
            last_offset=row["last_offset"],
            crc=f"{row['crc']:08x}",
            leader_epoch=row.get("leader_epoch"),
            producer_id=row["producer_id"],
            producer_epoch=row["producer_epoch"],
            base_sequence=row["base_sequence"],
            acks=row.get("acks"),
            invoked_ns=row.get("invoked_ns"),
            completed_ns=row.get("completed_ns"),
        )
        for row in frame.head(OPERATIONS_MOST).iter_rows(named=True)
    ]


def _known(**fields: int | str | None) -> OperationRow:
    """Return a row without the fields that are not known."""
    return cast("OperationRow", {name: value for name, value in fields.items() if value is not None})
