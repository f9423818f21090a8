"""Causes of anomalies of inputs in retry topics: what the records, their headers, the commits and the faults show.

* Nothing followed from a record of a retry topic that a group has committed: the group's members lost it, or the store
  in which they keep it until it is due. The sentence says how many of these were due when a program was ended: what was
  taken to be sent was due, and what was only kept was not. A record that was due after the final read is not lost.
* A group's next record was delivered again and again: the group does not get past it, and what is behind it waits.
* A retry topic has the same retry again, so that its input was worked on again.
* Attempts were counted from the beginning again: which programs had ended and were started again.
* Attempts were made before they were due: how early, and within which time. A time that jumped makes all of them early
  at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...histories.recorded_faults import RecordedFault
from ...wording import counted
from ..rows import OperationRow
from ..verdict import Anomaly
from .evidence import RunEvidence

DEAD = "dead"
"""`Fault.holds` of a fault that ends a program."""
NS_PER_S = 1e9
MS_PER_S = 1e3
AT_ONCE_S = 0.05
"""Attempts that are no further apart were made at once."""


def rows_of(anomaly: Anomaly, operation: str) -> list[OperationRow]:
    """Return the rows of an anomaly that show such an operation."""
    return [row for row in anomaly.rows if row.get("operation") == operation]


def is_of_retry(row: OperationRow, anomaly: Anomaly) -> bool:
    """Whether a commit is of a retry topic: it is of the topic of the anomaly's retry."""
    return any(row.get("topic") == retry.get("topic") for retry in rows_of(anomaly, "retry"))


def retries_lost(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which group committed records of a retry topic from which nothing followed, and what was due then."""
    found: defaultdict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for anomaly in anomalies:
        for retry in rows_of(anomaly, "retry"):
            for commit in () if retry.get("due_after_read") else rows_of(anomaly, "commit"):
                if commit.get("topic") == retry.get("topic") and commit.get("completed_ns"):
                    row = anomaly.records, commit["completed_ns"], retry.get("due_ns") or 0
                    found[str(retry["topic"]), str(commit["group"])].append(row)
    for (topic, group), rows in found.items():
        count, committed = sum(records for records, _, _ in rows), [ns for _, ns, _ in rows]
        when = evidence.span(min(committed), max(committed))
        text = (
            f"group {group} committed {counted(count, 'shown record', 'shown records')} of {topic} {when}, and nothing "
            "followed: its members took them and lost them"
        )
        yield count, text + _at_the_end(rows, evidence)


def _at_the_end(rows: Sequence[tuple[int, int, int]], evidence: RunEvidence) -> str:
    """Return which program was ended after the first of these commits, and how many of them were due then."""
    first_ns = min(committed_ns for _, committed_ns, _ in rows)
    ended = {
        fault.effect_ns: fault
        for fault in reversed(evidence.faults)  # of several at one time the first counts
        if fault.beside and fault.says.holds == DEAD
        if fault.effect_ns is not None and fault.effect_ns >= first_ns
    }
    if not ended:
        return ""
    at_ns = min(ended)
    kept = [row for row in rows if row[1] <= at_ns]
    last_ns = max(committed_ns for _, committed_ns, _ in kept)
    due = sum(records for records, _, due_ns in kept if due_ns <= at_ns)
    how_many = "all" if due == sum(records for records, _, _ in kept) else due or "none"
    return (
        f"; {_ended(ended[at_ns])} at {evidence.at(at_ns)}, {(at_ns - last_ns) / NS_PER_S:.2f} s after the last "
        f"commit, when {how_many} of them were due"
    )


def _ended(fault: RecordedFault) -> str:
    assert fault.beside is not None
    return f"{fault.label} ended program {fault.beside[1]!r}"


def stopped_before(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which groups do not get past a record, and how many of the inputs without a fate are behind it."""
    del evidence
    for anomaly in anomalies:
        for row in rows_of(anomaly, "record"):
            group, offset = row.get("stopped_group"), row.get("offset")
            if group and offset is not None:
                place = anomaly.place
                behind = sum(
                    other.records
                    for other in anomalies
                    if other.place == place and min(other.offsets, default=-1) > offset
                )
                text = (
                    f"group {group} does not get past {place}@{offset}: clients were delivered it "
                    f"{row['deliveries']} times, and the group has committed offset {offset}; {behind} of the "
                    "inputs that are shown are behind it"
                )
                yield behind + anomaly.records, text


def sent_again(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return how many of the inputs with too many outputs a retry topic has again, and which programs had ended."""
    found: defaultdict[str, int] = defaultdict(int)
    for anomaly in anomalies:
        for topic in {str(row["topic"]) for row in rows_of(anomaly, "retry")}:
            found[topic] += anomaly.records
    for topic, count in found.items():
        inputs = counted(count, "input")
        text = (
            f"{topic} has the same retry again of {inputs}, with the same number of attempts and due time: what was "
            "sent was sent again"
        )
        yield count, "; ".join([text, *_restarts(evidence)])


def restarted(_: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which programs had ended and were started again: what they count in memory begins again."""
    for text in _restarts(evidence):
        yield 0, text


def _restarts(evidence: RunEvidence) -> Iterable[str]:
    ended: defaultdict[str, list[int]] = defaultdict(list)
    for end in evidence.program_ends:
        if end.started_again and end.ended_ns:
            ended[end.name].append(end.ended_ns)
    for name, times in ended.items():
        when = evidence.span(times[0], times[-1])
        if len(times) == 1:
            yield f"program {name!r} ended {when} and was started again"
        else:
            yield f"program {name!r} ended {len(times)} times, {when}, and was started again each time"


def attempted_early(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return how early attempts were, and within which time they were made."""
    del evidence
    rows = [row for anomaly in anomalies for row in rows_of(anomaly, "attempt")]
    early = [row["early_ms"] / MS_PER_S for row in rows if "early_ms" in row]
    written = [written_ms / MS_PER_S for row in rows if (written_ms := row.get("timestamp_ms"))]
    if len(early) < 2 or len(written) < 2:
        return
    apart_s = max(written) - min(written)
    when = "all at once" if apart_s < AT_ONCE_S else f"all within {apart_s:.2f} s"
    least, most = f"{min(early):.2f} s", f"{max(early):.2f} s"
    how_early = most if least == most else f"{least} to {most}"
    yield len(early), f"{len(early)} attempts were made {how_early} early, {when}"
