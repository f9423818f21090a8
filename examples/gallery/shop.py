"""The shop of the gallery: its orders, and the bill that belongs to an order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Order = dict[str, Any]
Bill = dict[str, Any]
OPENING_S = 1_790_000_040
"""When the first order was placed, in seconds since 1970, at a full minute. Every twenty seconds there is another."""


class TaxServiceError(Exception):
    """The service that knows the taxes does not respond."""


def new_order(number: int) -> Order:
    """Return order `number`, of one of three customers."""
    return {"order": number, "customer": f"customer-{number % 3}", "amount": 10 + number, "at": OPENING_S + 20 * number}


def bill_of(order: Mapping[str, Any]) -> Bill:
    """Return the bill of an order: the amount and 20 % tax."""
    return {"order": order["order"], "customer": order["customer"], "total": order["amount"] * 120 // 100}
