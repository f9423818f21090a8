"""The cause of `stuck-group`: since when the coordinator waits, and what the group was before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...wording import counted
from ..verdict import Anomaly
from .evidence import RunEvidence


def group_waits(shown: Sequence[Anomaly], evidence: RunEvidence) -> Iterator[tuple[int, str]]:
    """Say since when each group is in its state, and in which one it was before."""
    for anomaly in shown:
        rows = [row for row in anomaly.rows if "state" in row]
        if not rows:
            continue
        last = rows[-1]
        since = next(row for row in rows if row["state"] == last["state"])
        text = (
            f"group {last['group']} has been in {last['state']} with {counted(last['members'], 'member')} since "
            f"{evidence.at(since['completed_ns'])}"
        )
        if since is not rows[0]:
            before = rows[0]
            text += f"; before, it was {before['state']} with {counted(before['members'], 'member')}"
            if before["broker"] != since["broker"]:
                text += f" at broker {before['broker']}, and broker {since['broker']} is its coordinator now"
        yield 1, text
