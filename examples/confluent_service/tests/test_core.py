from __future__ import annotations

from billing_service.core import bill_of


def test_a_bill_has_tax() -> None:
    order = {"order": 7, "customer": "Ada", "amount": 1000}
    assert bill_of(order) == {"order": 7, "customer": "Ada", "total": 1200}


def test_tax_is_rounded_down_to_a_cent() -> None:
    assert bill_of({"order": 8, "customer": "Ada", "amount": 99})["total"] == 118
