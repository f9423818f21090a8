"""Causes of commits: outputs that are missing because a group committed too early, and offsets for another group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harrow.cluster.events.coordinators import GroupChanged

from ...wording import counted
from ..rows import OperationRow
from ..verdict import Anomaly
from .evidence import RunEvidence
from .retries import is_of_retry


def committed_early(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which commits covered inputs that have no output yet, by group and partition, and the next rebalance.

    One sentence for each group and partition: several would leave no room for what else the run shows.
    """
    inputs: dict[tuple[Any, ...], int] = {}
    for anomaly in anomalies:
        for row in anomaly.rows:
            when = row.get("completed_ns") or row.get("time_ns")
            if is_of_retry(row, anomaly):
                continue  # a scheduler commits what its store has, long before the outputs
            if row.get("operation") == "commit" and row.get("group") and when:
                key = (row["group"], row.get("topic"), row.get("partition"), row.get("offset"), when)
                inputs[key] = inputs.get(key, 0) + anomaly.records
                break
    by_place: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
    for (group, topic, partition, offset, when), count in inputs.items():
        by_place.setdefault((group, topic, partition), []).append((when, offset, count))
    for (group, topic, partition), commits in by_place.items():
        when, offset, _ = min(commits)
        text = f"group {group} committed offset {offset} of {topic}-{partition} at {evidence.at(when)}"
        if others := len(commits) - 1:
            text += f", and {counted(others, 'later offset')} until {evidence.at(max(commits)[0])}"
        below = "them" if others else "it"
        text += f", before the outputs of all records below {below} were written"
        rebalance = _rebalance_after(group, when, evidence)
        if rebalance is not None:
            text += f"; the group rebalanced at {evidence.at(rebalance)}"
        yield sum(count for _, _, count in commits), text


def misplaced(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return how offsets of each group that does not read the partition were committed, by client."""
    commits: dict[tuple[Any, ...], list[OperationRow]] = {}
    for anomaly in anomalies:
        for row in anomaly.rows:
            if row.get("operation") == "commit" and "reading_group" in row:
                key = (row["client"], row["group"], row["reading_group"], _way(row))
                commits.setdefault(key, []).append(row)
    for (client, group, reading, way), rows in commits.items():
        when = evidence.span(min(row["completed_ns"] for row in rows), max(row["completed_ns"] for row in rows))
        text = f"{client} committed {counted(len(rows), 'offset')} for group {group} {when} {way}"
        first = min(row["completed_ns"] for row in rows)
        again = _rebalance_after(reading, first, evidence)
        if again is not None:
            text += f"; group {reading}, which reads the partition, rebalanced at {evidence.at(again)}"
        yield len(rows), text


def _way(row: OperationRow) -> str:
    """Return with which request an offset was committed, and with whose metadata."""
    if row.get("producer_id") is None:
        return "by OffsetCommit: its group.id is not that of the consumer that read the records"
    if row.get("member"):
        return (
            f"in its transaction, with the metadata of the member {row['member']} of that group: "
            "send_offsets_to_transaction needs the metadata of the consumer that read the records"
        )
    return (
        "in its transaction, with metadata that name a group and no member: send_offsets_to_transaction needs the "
        "metadata of the consumer that read the records"
    )


def _rebalance_after(group: str, time_ns: int, evidence: RunEvidence) -> int | None:
    """Return the time of the first event after a commit in which the group lost or gained members."""
    return next(
        (
            traced.t_ns
            for traced in evidence.events
            if isinstance(event := traced.event, GroupChanged)
            and event.group == group
            and traced.t_ns > time_ns
            and event.state.lower().replace("_", "") in ("preparingrebalance", "empty")
        ),
        None,
    )
