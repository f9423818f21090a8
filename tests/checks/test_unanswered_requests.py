"""Which traced requests are anomalies: faults, groups and connections explain a long wait (L4)."""

from __future__ import annotations

import pytest
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.partitions import WakeUpMissed
from harrow.cluster.events.requests import RequestUnanswered
from harrow.harness.checks.unanswered import unanswered_requests

SECOND = 10**9
Event = TracedEvent[TraceEvent]


def event(at_s: float, *, api: str = "FETCH", timeout_ms: int = 500, group: str | None = None) -> Event:
    """A request that came at second 100 is not answered at `at_s`."""
    request = RequestUnanswered(
        api=api,
        client="app",
        correlation_id=7,
        invoked_ns=100 * SECOND,
        timeout_ms=timeout_ms,
        looks=12,
        group=group,
    )
    return TracedEvent(int(at_s * SECOND), "broker-2", request)


def windows(*faults: tuple[float, float]) -> list[tuple[int, int]]:
    return [(int(start * SECOND), int(end * SECOND)) for start, end in faults]


def test_a_request_without_response_is_found_once_with_its_longest_wait() -> None:
    (found,) = unanswered_requests([event(111), event(116), event(121)], [], {})
    assert found.name == "unanswered-request"
    assert found.explanation == (
        "broker 2 has not answered a FETCH request of client app for 21.0 s after it came and the last fault ended, "
        "on a connection that lives; it may wait for 0.5 s"
    )
    (operation,) = found.operations
    assert (operation["broker"], operation["correlation_id"]) == (2, 7)


LEGAL: dict[str, tuple[list[Event], list[tuple[int, int]]]] = {
    "during a fault": ([event(115)], windows((99, 120))),
    "soon after a fault": ([event(125)], windows((99, 120))),
    "a fault that came later": ([event(131)], windows((99, 105), (112, 130))),
    "within the timeout of a produce": ([event(139, api="PRODUCE", timeout_ms=30_000)], []),
    "a rebalance of a group that is not known": (
        [event(399, api="SYNC_GROUP", timeout_ms=30_000, group="unknown")],
        [],
    ),
    "a rebalance within the timeout of a member": (
        [event(165, api="JOIN_GROUP", timeout_ms=10_000, group="billing")],
        [],
    ),
    "another event": ([event(200)._replace(event=WakeUpMissed(topic="orders", partition=0, purgatory="Fetch"))], []),
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_wait_that_something_explains_is_no_anomaly(name: str) -> None:
    events, faults = LEGAL[name]
    assert unanswered_requests(events, faults, {"billing": 60_000}) == []


def test_the_time_counts_from_the_end_of_the_fault() -> None:
    (found,) = unanswered_requests([event(131)], windows((99, 120)), {})
    assert "for 11.0 s" in found.explanation


def test_a_rebalance_longer_than_every_member_allows_is_found() -> None:
    (found,) = unanswered_requests(
        [event(171, api="JOIN_GROUP", timeout_ms=10_000, group="billing")], [], {"billing": 60_000}
    )
    assert "a JOIN_GROUP request of group billing of client app for 71.0 s" in found.explanation
    assert "it may wait for 60.0 s" in found.explanation
