"""`relation="billed"`: each order has a bill with its total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harrow import Record, RecordRelation


def bill_of(order: Any) -> dict[str, Any]:
    """Return the bill that an order requires."""
    return {"order": order["order"], "total": order["amount"] * 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed(RecordRelation):
    """One bill for each order; an order without amount has none."""

    def outputs(self, record: Record) -> Sequence[Any]:
        """Return the bill."""
        return (bill_of(record),) if record["amount"] else ()
