"""What a bill is. No Kafka here, so that its tests need none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TAX_PERCENT = 20


def bill_of(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bill of an order; amounts are in cents."""
    tax = order["amount"] * TAX_PERCENT // 100
    return {"order": order["order"], "customer": order["customer"], "total": order["amount"] + tax}
