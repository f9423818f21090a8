"""Causes that no fault of the run made: brokers refused records after an ISR shrank or a session ended without a fault.

The rule says what brokers refused and why, for records that were sent again (duplicates, another order) or given up. It
speaks only where a departure without a fault (`harness/checks/busy_machine.py`) came before the refusals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...run_folder import RunTimes
from ..busy_machine import Departure, departures, reason, sentence
from ..verdict import Anomaly
from .evidence import Refusals, RunEvidence
from .losses import refusal

FOREVER_NS = 2**62
OF_ISR = frozenset({"NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"})
OF_SESSION = frozenset({"NOT_LEADER_OR_FOLLOWER"})
SENT_AGAIN: Mapping[str, str] = {
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "the log has them all the same, and a producer without idempotence appends "
    "them again when it sends them again"
}


def refused_without_fault(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which refusals followed a departure without a fault, one sentence for each error and topic."""
    windows = [(fault.begin_ns, FOREVER_NS if fault.end_ns is None else fault.end_ns) for fault in evidence.faults]
    gone = departures(evidence.machine, windows)
    topics = {anomaly.topic for anomaly in anomalies}
    for row in evidence.refusals:
        before = [departure for departure in gone if _explains(departure, row)]
        if row.topic not in topics or not before:
            continue
        kind = before[0].node, before[0].topic
        own = [departure for departure in before if (departure.node, departure.topic) == kind]
        text = (
            f"{sentence(own, RunTimes(evidence.started_ns))}: {reason(evidence.machine, windows, own[0].t_ns)}; "
            f"{refusal(row, evidence)}"
        )
        if row.without_idempotence and row.error in SENT_AGAIN:
            text += f"; {SENT_AGAIN[row.error]}"
        yield row.records, text


def _explains(departure: Departure, row: Refusals) -> bool:
    """Whether a departure came before the last of these refusals and can have led to their error."""
    if departure.t_ns > row.last_ns:
        return False
    if departure.topic:
        return row.error in OF_ISR and departure.topic == row.topic
    return row.error in OF_SESSION | OF_ISR
