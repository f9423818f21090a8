"""Why a run proves too little, from the counts and the findings of all its partitions (L6).

A *reason* makes a verdict unknown that would be valid; a *note* only reports. Reported are always: sends that were
refused or never acknowledged, readers that stopped, empty topics. Sends that were refused are a reason where the
verdict does not know what the application believes; with `expected=`, or where its producers recorded their
operations, the application has accounted for them. What readers did is no part of a verdict on a topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harrow.cluster.errors import error_name

from ..promises.findings import PromiseFindings
from ..run_folder import RunTimes
from ..wording import counted

Result = Mapping[str, Any]
"""What the kernels return for one partition (`PartitionFindings.result`)."""


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
    results: Sequence[Result], not_allowed: frozenset[str], clients: Sequence[str], times: RunTimes,
    promised: PromiseFindings,
) -> Doubts:  # fmt: skip
    """Return what the kernels doubted; what the checks of promises judge better is left out."""
    found = Doubts()
    for result in results:
        found.reasons += result["unknown"]
        for about, reason in result.get("doubts", ()):
            if about not in promised.replaces:
                (found.reasons if about in not_allowed else found.notes).append(reason)
    known = [
        result
        for result in results
        if promised.accounts_for_sends or result["topic"] in promised.accounted_topics
    ]
    found.notes += _refused(known, clients)
    for refused in _refused([result for result in results if result not in known], clients):
        found.reasons.append(
            f"{refused}: what the application believes about them is not known; say it with verify(…, expected=…), "
            "or send with Harrow's recording Producer"
        )
    found.notes += _unread(results, times)
    return found


def _refused(results: Sequence[Result], clients: Sequence[str]) -> list[str]:
    """Return at most one line."""
    rows = [result["refused"] for result in results if result.get("refused")]
    if not rows:
        return []
    records = sum(row["records"] for row in rows)
    names = sorted({clients[int(number)] for row in rows for number in row["clients"]})
    codes = sorted({code for row in rows for code in row["errors"]})
    errors = ", ".join(error_name(code) for code in codes)
    refused = (
        f"brokers refused at least {counted(records, 'record')} of {', '.join(names)} with {errors}"
    )
    return [f"{refused}, and the log does not have them"]


def _unread(results: Sequence[Result], times: RunTimes) -> list[str]:
    notes: list[str] = []
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        if result.get("unread"):
            rows.setdefault(result["topic"], []).append(result["unread"])
    for topic, unread in rows.items():
        records = sum(row["records"] for row in unread)
        last = times.text(max(row["last_ns"] for row in unread))
        notes.append(
            f"readers of {topic} stopped before its end: after {last} of the run, no client received the last "
            f"{counted(records, 'record')}"
        )
    return notes


def empty_topics(results: Sequence[Result], topics: Sequence[str]) -> list[str]:
    """Return the topics in which neither the operations nor the final read nor a log has a record."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        if "topic" in result:
            counts.setdefault(result["topic"], Counter()).update(result["operation_counts"])
    shown = ("acknowledged", "batches_acknowledged", "drained", "log_batches")
    return [
        topic
        for topic in topics
        if topic in counts and not any(counts[topic][name] for name in shown)
    ]


def count_doubts(
    counts: Mapping[str, int],
    guarantees: Sequence[str],
    empty: Sequence[str],
    promised: PromiseFindings,
) -> Doubts:
    """Return what the counts of the whole run leave open."""
    found = Doubts()
    reasons = found.reasons
    if not counts["acknowledged"] and not counts["batches_acknowledged"]:
        reasons.append("nothing was acknowledged: no record could have been lost")
    elif empty:
        names = ", ".join(empty)
        text = f"no record was ever in {names}: nothing was sent there, or nothing was acknowledged"
        if promised.accounts_for_sends:
            found.notes.append(text)
        else:
            reasons.append(f"{text}; where this is right, name the other topics: verify(topic, …)")
    if not counts["final_reads"] and not counts["read"] and not counts["batches_delivered"]:
        reasons.append("nothing was read: there is no final read to compare with")
    if (
        "ordered" in guarantees
        and counts["batches_without_producer_id"]
        and not counts["acknowledged"]
        and not promised.knows_order
    ):
        reasons.append(
            "the guarantee 'ordered' cannot be checked, because the batches of producers without idempotence have no "
            "sequences: use idempotent producers, Harrow's recording Producer, or verify(record_id=, expected=) with a "
            "list"
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
        found.notes.append(
            "the run folder has no replica's log: the brokers' disks were not judged"
        )
    return found
