"""Why a run proves too little, from the counts and the findings of all its partitions (L6).

A *reason* makes a verdict unknown that would be valid; a *note* only reports. Reported are always: sends that were
refused or never acknowledged, readers that stopped, empty topics. Sends that were refused and cannot have been sent
again (`refused.py`) are a reason where the verdict does not know what the application believes; with `expected=`, or
where its producers recorded their operations, the application has accounted for them. What readers did is no part of a
verdict on a topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..run_folder import RunTimes
from ..wording import counted
from .promise_findings import PromiseFindings, RefusedIds
from .refused import doubt_of_refused, note_of_refused, refused_by_id
from .rows import PartitionResult, Unread

BELIEF = (
    "what the application believes about them is not known; say it with verify(…, expected=…), or send with Harrow's "
    "recording Producer"
)
UNKNOWN_ORDER = "records_of_unknown_order"
"""The count of `kernels/send_order.py`."""


@dataclass(slots=True, kw_only=True)
class Doubts:
    """The reasons and notes of one verdict."""

    reasons: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    def add(self, other: Doubts) -> None:
        """Add the reasons and notes of `other`."""
        self.reasons += other.reasons
        self.notes += other.notes


def partition_doubts(
    results: Sequence[PartitionResult],
    not_allowed: frozenset[str],
    clients: Sequence[str],
    times: RunTimes,
    promised: PromiseFindings,
) -> Doubts:
    """Return what the kernels doubted; what the checks of promises judge better is left out.

    The result of a job for which Spark returned none has no topic.
    """
    found = Doubts()
    for result in results:
        found.reasons += result.unknown
        for about, reason in result.doubts:
            if about not in promised.replaces:
                (found.reasons if about in not_allowed else found.notes).append(reason)
    unread = _unread(results, times)
    known = [result for result in results if promised.accounts_for_sends or result.topic in promised.accounted_topics]
    unknown = [result for result in results if result not in known]
    by_id = _known_by_id(unknown, promised)
    unknown = [result for result in unknown if result.topic not in by_id]
    results = [result for result in results if result.topic not in by_id]
    lacking, sent_again = refused_by_id(by_id)
    found.notes += sent_again
    found.reasons += (f"{text}: {BELIEF}" for text in lacking)
    if doubt := doubt_of_refused(unknown, clients):
        found.reasons.append(f"{doubt}: {BELIEF}")
    if note := note_of_refused(known if doubt else results, clients):
        found.notes.append(note)
    found.notes += unread
    return found


def _known_by_id(results: Sequence[PartitionResult], promised: PromiseFindings) -> dict[str, RefusedIds]:
    """Return the refused ids of the topics of which they say everything: all sent again, or no send was recorded."""
    sends = ("acknowledged", "unacknowledged", "failed")
    recorded = {result.topic for result in results if any(result.operation_counts.get(name) for name in sends)}
    topics = {result.topic for result in results}
    return {
        topic: row
        for topic, row in promised.refused_ids.items()
        if topic in topics and not (row.lacking and topic in recorded)
    }


def _unread(results: Sequence[PartitionResult], times: RunTimes) -> list[str]:
    notes: list[str] = []
    rows: dict[str, list[Unread]] = {}
    for result in results:
        if result.unread is not None:
            rows.setdefault(result.topic, []).append(result.unread)
    for topic, unread in rows.items():
        records = sum(row.records for row in unread)
        last = times.text(max(row.last_ns for row in unread))
        notes.append(
            f"readers of {topic} stopped before its end: after {last} of the run, no client received the last "
            f"{counted(records, 'record')}"
        )
    return notes


def empty_topics(results: Sequence[PartitionResult], topics: Sequence[str]) -> list[str]:
    """Return the topics in which neither the operations nor the final read nor a log has a record."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        if result.topic:
            counts.setdefault(result.topic, Counter()).update(result.operation_counts)
    shown = ("acknowledged", "batches_acknowledged", "drained", "log_batches")
    return [topic for topic in topics if topic in counts and not any(counts[topic][name] for name in shown)]


def count_doubts(
    counts: Mapping[str, int], guarantees: Sequence[str], empty: Sequence[str], promised: PromiseFindings
) -> Doubts:
    """Return what the counts of the whole run leave open."""
    found = Doubts()
    reasons = found.reasons
    if not counts["acknowledged"] and not counts["batches_acknowledged"]:
        reasons.append("nothing was acknowledged: no record could have been lost")
    elif unexplained := [topic for topic in empty if topic not in promised.accounted_topics]:
        names = ", ".join(unexplained)
        text = f"no record was ever in {names}: nothing was sent there, or nothing was acknowledged"
        if promised.accounts_for_sends:
            found.notes.append(text)
        else:
            reasons.append(f"{text}; where this is right, name the other topics: verify(topic, …)")
    if accounted := [topic for topic in empty if topic in promised.accounted_topics]:
        found.notes.append(f"no record was ever in {', '.join(accounted)}")
    if "ordered" in guarantees and counts[UNKNOWN_ORDER] and not promised.knows_order:
        reasons.append(
            f"the guarantee 'ordered' cannot be checked for {counted(counts[UNKNOWN_ORDER], 'record')}: their batches "
            "have no sequences, and no recorded send says their offsets. Use idempotent producers, Harrow's recording "
            "Producer with acks=1 or all, or verify(record_id=, expected=) with a list"
        )
    if counts["unacknowledged"]:
        found.notes.append(
            f"{counts['unacknowledged']:,} recorded sends were never acknowledged: their records may be in the log, "
            "at most once, or not"
        )
    if counts["responses_lost"]:
        lost = counts["responses_lost"]
        found.notes.append(f"{lost:,} response{'s' if lost > 1 else ''} did not reach the producer")
    if not counts["replica_logs"]:
        found.notes.append("the run folder has no replica's log: the brokers' disks were not judged")
    return found
