"""What a fault did to a broker, in words, and which fault explains what a broker acknowledged."""

from __future__ import annotations

from collections.abc import Mapping

from ...histories.recorded_faults import RecordedFault, Row
from .evidence import RunEvidence

FAULT_WORDS: Mapping[str, str] = {
    "kill": "was killed",
    "terminate": "was shut down",
    "restart": "was restarted",
    "power_loss": "lost power",
    "pause": "was paused",
    "isolate": "was isolated",
    "cut": "was cut off in one direction",
    "slow_link": "had slow links",
    "reset": "lost its connections",
    "disk_error": "had a disk that failed",
    "slow_disk": "had a slow disk",
    "lose_response": "lost responses",
    "fail_response": "responded with errors to requests that took effect",
    "refuse_request": "refused requests",
    "lose_request": "lost requests",
    "delay_request": "served requests late",
    "duplicate_request": "served requests twice",
    "throttle": "sent slowly",
    "unclean_election": "took part in an unclean election",
}
"""What happened to a broker, by kind of fault."""
AT_ONCE = frozenset({"kill", "terminate", "restart", "power_loss", "reset"})
"""Kinds that happen at a time; the other kinds last from a time to a time."""
TAKES_LEADERSHIP = frozenset(
    {"kill", "terminate", "restart", "power_loss", "pause", "isolate", "cut", "disk_error", "unclean_election"}
)
"""Kinds after which another broker becomes leader; such a fault is named before a slow link or disk."""
NEVER_NS = 2**63


def happened(fault: RecordedFault, evidence: RunEvidence) -> str:
    """Return what a fault did to its broker, and when: "was isolated from 0.14 s to 4.16 s"."""
    words = FAULT_WORDS.get(fault.kind, f"was hit by the fault {fault.kind}")
    begin_ns = fault.begin_ns if fault.effect_ns is None else fault.effect_ns
    if fault.kind in AT_ONCE:
        return f"{words} at {evidence.at(begin_ns)}"
    return f"{words} {lasted(begin_ns, fault.end_ns, evidence)}"


def lasted(begin_ns: int, end_ns: int | None, evidence: RunEvidence) -> str:
    """Return how long something lasted: "from 0.14 s to 4.16 s", or "from 0.14 s on"."""
    if end_ns is None:
        return f"from {evidence.at(begin_ns)} on"
    return f"from {evidence.at(begin_ns)} to {evidence.at(end_ns)}"


def fault_of(fact: Row, evidence: RunEvidence, next_leader_ns: int | None) -> RecordedFault | None:
    """Return the fault of the acknowledging broker: during the acknowledgements, else before the next leader."""
    own = [fault for fault in evidence.faults if fact["broker"] in fault.nodes]
    limit = next_leader_ns if next_leader_ns is not None else NEVER_NS
    during = [
        fault for fault in own if fault.begin_ns <= fact["last_ns"] and (fault.end_ns or NEVER_NS) >= fact["first_ns"]
    ]
    after = [fault for fault in own if fact["last_ns"] < fault.begin_ns < limit]
    chosen = [*reversed(during), *after]
    return next((f for f in chosen if f.kind in TAKES_LEADERSHIP), next(iter(chosen), None))
