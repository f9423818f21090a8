"""Causes of outputs that are missing because a group committed too early."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...histories.recorded_faults import Row
from ..verdict import Anomaly
from .evidence import RunEvidence


def committed_early(
    anomalies: Sequence[Anomaly], evidence: RunEvidence
) -> Iterable[tuple[int, str]]:
    """Return which commit covered inputs that have no output yet, and the rebalance that followed."""
    inputs: dict[tuple[Any, ...], int] = {}
    for anomaly in anomalies:
        for row in anomaly.operations:
            when = row.get("completed_ns") or row.get("time_ns")
            if row.get("operation") == "commit" and row.get("group") and when:
                key = (
                    row["group"],
                    row.get("topic"),
                    row.get("partition"),
                    row.get("offset"),
                    when,
                )
                inputs[key] = inputs.get(key, 0) + anomaly.records
                break
    for (group, topic, partition, offset, when), count in inputs.items():
        text = (
            f"group {group} committed offset {offset} of {topic}-{partition} at {evidence.at(when)}, before the "
            "outputs of all records below it were written"
        )
        rebalance = _rebalance_after(group, when, evidence)
        if rebalance is not None:
            text += f"; the group rebalanced at {evidence.at(rebalance['t_ns'])}"
        yield count, text


def _rebalance_after(group: str, time_ns: int, evidence: RunEvidence) -> Row | None:
    """Return the first event after a commit in which the group lost or gained members."""
    return next(
        (
            row
            for row in evidence.events
            if row["event"] == "group.state"
            and row.get("group") == group
            and row["t_ns"] > time_ns
            and str(row.get("state")).lower().replace("_", "") in ("preparingrebalance", "empty")
        ),
        None,
    )
