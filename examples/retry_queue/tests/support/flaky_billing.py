"""The orders of the tests, and a handler that fails as often as an order says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from retry_queue.errors import PoisonError
from retry_queue.handling import bill_of

ALWAYS = 99


class TaxServiceError(Exception):
    """The tax service has no rate for the customer."""


def order_in(record: Any) -> int | None:
    """Return the number of the order in a `harrow.Record`; None where it has none, as most records of a ledger."""
    if record.value is None:
        return None
    value: Any = json.loads(record.value)
    return cast("dict[str, Any]", value).get("order") if isinstance(value, dict) else None


def new_order(number: int, fails: int = 0, **more: Any) -> dict[str, Any]:
    """Return an order whose first `fails` attempts fail."""
    customer = f"customer {number % 5}"
    return {"order": number, "customer": customer, "amount": 100 + number, "fails": fails, **more}


def usual_order(number: int) -> dict[str, Any]:
    """Return an order: most are billed at once, some fail once or twice, and a few always."""
    fails = {1: 1, 4: 2, 8: 1}.get(number % 10, 0)
    return new_order(number, ALWAYS if number % 20 == 7 else fails)


def bill(order: Mapping[str, Any], attempt: int) -> Mapping[str, Any]:
    """Bill an order, as a tax service does that has failures."""
    if order.get("poison"):
        raise PoisonError("there is no such customer")
    if attempt <= order["fails"]:
        raise TaxServiceError(f"no tax rate, attempt {attempt}")
    return bill_of(order, attempt)
