"""What a fault did to a broker, in words, and which fault explains what a broker acknowledged."""

from __future__ import annotations

from ...histories.recorded_faults import RecordedFault
from ..facts import AcknowledgedAndLost
from .evidence import RunEvidence

NEVER_NS = 2**63


def happened(fault: RecordedFault, evidence: RunEvidence) -> str:
    """Return what a fault did to its broker, and when: "was isolated from 0.14 s to 4.16 s"."""
    begin_ns = fault.begin_ns if fault.effect_ns is None else fault.effect_ns
    if fault.says.at_once:
        return f"{fault.words} at {evidence.at(begin_ns)}"
    return f"{fault.words} {lasted(begin_ns, fault.end_ns, evidence)}"


def lasted(begin_ns: int, end_ns: int | None, evidence: RunEvidence) -> str:
    """Return how long something lasted: "from 0.14 s to 4.16 s", or "from 0.14 s on"."""
    if end_ns is None:
        return f"from {evidence.at(begin_ns)} on"
    return f"from {evidence.at(begin_ns)} to {evidence.at(end_ns)}"


def fault_of(fact: AcknowledgedAndLost, evidence: RunEvidence, next_leader_ns: int | None) -> RecordedFault | None:
    """Return the fault of the acknowledging broker: during the acknowledgements, else before the next leader."""
    own = [fault for fault in evidence.faults if fact.broker in fault.nodes]
    limit = next_leader_ns if next_leader_ns is not None else NEVER_NS
    during = [fault for fault in own if fault.begin_ns <= fact.last_ns and (fault.end_ns or NEVER_NS) >= fact.first_ns]
    after = [fault for fault in own if fact.last_ns < fault.begin_ns < limit]
    chosen = [*reversed(during), *after]
    return next((f for f in chosen if f.says.moves_leaders), next(iter(chosen), None))
