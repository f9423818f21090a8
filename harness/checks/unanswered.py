"""`unanswered-request`: a request of a client that a broker does not answer, on a connection that lives (L4).

A broker, or the proxy in front of it, traces a request that waits for longer than its own timeout and
`PATIENCE_NS` (`harrow.cluster.network.unanswered`), and again while it waits. A JoinGroup and a SyncGroup wait for the
other members of the group too, so the longest timeout of a member counts for them, by the taps of the coordinators.

The time counts from the end of the last fault on, and an event that was traced during a fault is left out. So a broker
that was paused or isolated, and a disk that was slow, is no anomaly. Nor is a request whose client died or closed its
connection, because the connection does not live then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.requests import RequestUnanswered

from .rows import AnomalyRow, OperationRow

NAME = "unanswered-request"
PATIENCE_NS = 10_000_000_000
REBALANCE_TIMEOUT_MS = 300_000
"""Of a group whose members are not known: the default of the clients' `max.poll.interval.ms`."""
MS = 1_000_000


def unanswered_requests(
    events: Iterable[TracedEvent[TraceEvent]], windows: Sequence[tuple[int, int]], group_timeouts: Mapping[str, int]
) -> list[AnomalyRow]:
    """Return the anomalies, each request once.

    `windows`: start and end of each fault. `group_timeouts`: the longest timeout of a member in ms, by group.
    """
    found: dict[tuple[Any, ...], AnomalyRow] = {}
    for traced in events:
        event, now_ns = traced.event, traced.t_ns
        if not isinstance(event, RequestUnanswered):
            continue
        if any(start <= now_ns < end for start, end in windows):
            continue
        healed_ns = max((end for _, end in windows if end <= now_ns), default=0)
        waited_ns = now_ns - max(event.invoked_ns, healed_ns)
        timeout_ms = event.timeout_ms
        if event.group is not None:
            timeout_ms = max(timeout_ms, group_timeouts.get(event.group, REBALANCE_TIMEOUT_MS))
        if waited_ns < timeout_ms * MS + PATIENCE_NS:
            continue
        request = traced.process, event.client, event.correlation_id, event.invoked_ns
        found[request] = _anomaly(traced.node, event, waited_ns, timeout_ms)
    return list(found.values())


def _anomaly(node: int, event: RequestUnanswered, waited_ns: int, timeout_ms: int) -> AnomalyRow:
    whose = f" of group {event.group}" if event.group is not None else ""
    text = (
        f"broker {node} has not answered a {event.api} request{whose} of client {event.client} for "
        f"{waited_ns / 1e9:.1f} s after it came and the last fault ended, on a connection that lives; it may wait "
        f"for {timeout_ms / 1e3:.1f} s"
    )
    operation: OperationRow = {
        "operation": f"{event.api} request",
        "client": event.client,
        "broker": node,
        "correlation_id": event.correlation_id,
        "timeout_ms": timeout_ms,
        "invoked_ns": event.invoked_ns,
    }
    return AnomalyRow(name=NAME, topic="", partition=-1, operations=[operation], explanation=text)
