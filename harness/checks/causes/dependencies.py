"""What faults did to what stands beside the brokers, such as a store: behind the other causes of an anomaly.

A sentence states the fault and its time; whether the application's work needed the service then is not known here. Of
records in retry topics it is known when they were due: the sentence counts the anomalies whose retry was due meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...histories.recorded_faults import RecordedFault, Row
from ...wording import counted
from ..verdict import Anomaly
from .evidence import RunEvidence
from .faults import lasted

SHOWN_MOST = 3
MAY_NEED_IT = frozenset(
    {
        "missing",
        "missing-output",
        "duplicate-output",
        "unexpected-output",
        "wrong-output",
        "commit-before-output",
        "out-of-order-output",
        "duplicate",
        "stalled",
        "output-and-dead-letter",
        "too-many-attempts",
        "attempt-before-due",
    }
)
"""Kinds of anomalies of an application, which may have needed the service."""


def outages(evidence: RunEvidence, anomalies: Sequence[Anomaly] = ()) -> list[str]:
    """Return a sentence for each dependency that a fault hit, in the order of the first faults."""
    by_name: dict[str, list[RecordedFault]] = {}
    for fault in evidence.faults:
        if fault.effect_ns is not None:
            for name in _hit(fault, evidence):
                by_name.setdefault(name, []).append(fault)
    return [_sentence(name, own, evidence) + _due_meanwhile(own, anomalies) for name, own in by_name.items()]


def _hit(fault: RecordedFault, evidence: RunEvidence) -> list[str]:
    """Return the dependencies that a fault hit: by their links, or by the program of the same name."""
    if names := fault.evidence.get("dependencies"):
        return [str(name) for name in names]
    kind, name = fault.beside or ("", "")
    return [name] if kind == "dependency" or name in evidence.dependencies else []


def _due_meanwhile(faults: Sequence[RecordedFault], anomalies: Iterable[Anomaly]) -> str:
    """Return how many records of the anomalies were due for a retry while the faults lasted."""
    dues = [
        (due_ns, anomaly.records)
        for anomaly in anomalies
        for row in anomaly.rows
        if row.get("operation") == "retry" and (due_ns := row.get("due_ns")) is not None
    ]
    count = sum(
        records
        for due_ns, records in dues
        if any(
            _began(fault) <= due_ns and (fault.end_ns is None or due_ns <= fault.end_ns)
            for fault in faults
            if not fault.says.at_once
        )
    )
    return f"; {counted(count, 'retry of these was', 'retries of these were')} due meanwhile" if count else ""


def _began(fault: RecordedFault) -> int:
    """Return when a fault began to act: rules of links act at once, and a fault of a program may wait for a request."""
    if fault.effect_ns is not None and fault.of_program:
        return fault.effect_ns
    return fault.begin_ns


def _sentence(name: str, faults: list[RecordedFault], evidence: RunEvidence) -> str:
    shown = [_happened(fault, evidence) for fault in faults[:SHOWN_MOST]]
    hidden = len(faults) - SHOWN_MOST
    more = f" (and {counted(hidden, 'more fault')})" if hidden > 0 else ""
    return f"the dependency {name!r} {', '.join(shown)}{more}"


def _happened(fault: RecordedFault, evidence: RunEvidence) -> str:
    assert fault.effect_ns is not None
    if fault.says.at_once:
        return f"{fault.words} at {evidence.at(fault.begin_ns)}"
    return f"{fault.words} {lasted(fault.effect_ns, fault.end_ns, evidence)}{_reset(fault)}"


def _reset(fault: RecordedFault) -> str:
    """Return that the connections were reset at the end, and whether responses were lost with them."""
    if fault.details.get("mode") != "reset" or fault.end_ns is None:
        return ""
    found: Iterable[Row] = fault.evidence.get("dependencies", {}).values()
    lost = sum(row.get("held_out_bytes", 0) for row in found)
    more = ", so that what it had sent never arrived" if lost else ""
    return f" and then lost its connections{more}"
