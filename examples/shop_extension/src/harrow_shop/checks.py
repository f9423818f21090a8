"""`billed-once`: no order has two bills in the topic `bills`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from harrow import AnomalyKind, Finding, Record, RecordCheck

BILLS = "bills"


class BilledOnce(RecordCheck):
    """Brings the bills of an order together on Spark, and counts them."""

    guarantee: ClassVar[str] = "billed-once"
    anomalies: ClassVar[Sequence[AnomalyKind]] = (
        AnomalyKind(
            name="billed-twice",
            singular="order has more than one bill",
            plural="orders have more than one bill",
            after="duplicate-output",
        ),
    )

    def group(self, record: Record) -> Any:
        """Return the order of a bill; None for records that are no bills."""
        return record["order"] if record.topic == BILLS else None

    def findings(self, group: str, records: Sequence[Record]) -> Iterable[Finding]:
        """Yield an anomaly where there are several bills."""
        if len(records) > 1:
            total = sum(record["total"] for record in records)
            yield Finding(
                anomaly="billed-twice",
                records=records,
                explanation=f"order {group} has {len(records)} bills, {total} in all instead of {records[0]['total']}",
            )
