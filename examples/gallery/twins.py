"""`twins`: runs a test with the wrong service and with its correct twin, and checks the verdict on each.

The test is what a user would write: it passes with the correct twin, and fails with a VerdictError with the wrong one.
Here that failure is expected: the verdict must have the right names and the right records. To see the failure as a
user sees it: `pytest examples/gallery -k "acks_one and wrong" --unmask`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from threading import Event
from types import EllipsisType
from typing import Any

import pytest
from harrow import Harrow, Verdict, VerdictError
from harrow.harness.checks.verdict import Anomaly
from shop import Bill, Order
from witness import look, read_topic

PlaceOrders = Callable[[str, Iterable[Order]], list[Order]]
BillOrders = Callable[..., None]
MakeBill = Callable[[Order], Bill]
Service = Callable[..., Any]
Names = Iterable[str | int | EllipsisType]
UNMASKED = Event()
"""Set by the option `--unmask`: the verdict on a wrong service fails its test."""
BY_WITNESS = ("missing", "duplicate", "split-key", "out-of-order")
"""The names that the witness can check."""


def twins(
    wrong: Service, right: Service, *, finds: Mapping[str, Names], also: Iterable[str] = ()
) -> Callable[..., Any]:
    """Decorate a test whose arguments are `harrow`, and the service under its function's name.

    `finds`: the names of the anomalies that the verdict on `wrong` has, the worst first, each with the ids of the
    records (of `split-key`: the keys) that it must name; an ellipsis allows more. `also`: names that it may have.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @pytest.mark.parametrize(wrong.__name__, [pytest.param(wrong, id="wrong"), pytest.param(right, id="right")])
        @functools.wraps(test)
        def run(harrow: Harrow, **arguments: Any) -> None:
            checked = _Witnessed(harrow)
            if arguments[wrong.__name__] is right or UNMASKED.is_set():
                test(harrow, **arguments)
                return
            with pytest.raises(VerdictError) as failure:
                test(harrow, **arguments)
            check(failure.value.verdict, finds, also)
            checked.compare(failure.value.verdict)

        return run

    return decorate


def check(verdict: Verdict, finds: Mapping[str, Names], also: Iterable[str]) -> None:
    """Assert that the verdict is invalid with these names and with these records."""
    assert verdict.status.value == "invalid", verdict
    assert verdict.anomalies[0].name == next(iter(finds)), verdict
    assert set(finds) <= verdict.anomaly_names() <= {*finds, *also}, verdict
    for name, wanted in finds.items():
        exact = {str(number) for number in wanted if number is not ...}
        named = {record for found in verdict.anomalies for record in records_of(found, name)}
        assert named >= exact if ... in wanted else named == exact, f"{name}: {sorted(named)}"


def records_of(found: Anomaly, name: str) -> set[str]:
    """Return the ids of the records (or the keys) that show an anomaly; nothing if it has another name."""
    field = "key" if name == "split-key" else "record_id"
    rows = found.operations if found.name == name else ()
    return {str(row[field]) for row in rows if field in row}


class _Witnessed:
    """The calls of `harrow.verify`, and what the witness says about them."""

    def __init__(self, harrow: Harrow) -> None:
        self._harrow = harrow
        self._calls: list[tuple[str, dict[str, Any]]] = []
        verify = harrow.verify

        def recorded(topic: Any, **arguments: Any) -> Verdict:
            self._calls.append((str(topic), arguments))
            return verify(topic, **arguments)

        setattr(harrow, "verify", recorded)  # noqa: B010 - an attribute of this object hides the method

    def compare(self, verdict: Verdict) -> None:
        """Assert that the verdict names the records that the witness found."""
        for topic, given in self._calls:
            records = read_topic(self._harrow.bootstrap_servers, topic)
            seen = look(records, given["record_id"], given["expected"])
            for found in verdict.anomalies:
                named = records_of(found, found.name)
                if found.name == "out-of-order":  # both records of a pair show it
                    assert named & seen[found.name], (found, seen[found.name])
                elif found.name in BY_WITNESS:
                    assert named, found
                    assert named <= seen[found.name], (found, seen[found.name])
            for name in BY_WITNESS:
                assert bool(seen[name]) == (name in verdict.anomaly_names()), (name, seen[name])
