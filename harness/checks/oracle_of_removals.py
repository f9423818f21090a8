"""The checks of removals and of leaders in plain Python: `kernels/early_removals.py`, `removals.py`, `leaders.py` (L6).

Written from the definitions in those modules and sharing no code with them; rows are those of `oracle.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..histories.format import BREAKS, OperationFunction, OperationType
from .log_changes import CleaningBegun, LogChanges, Removal

Row = Mapping[str, Any]
PRODUCED = 1
"""`kind` of a row of a produce request."""
SECOND_MS, MS = 1_000, 1_000_000
COMMIT_STATES, ABORT_STATES = (2, 4), (3, 5, 16)
"""Of the transaction rows: decisions; the last one is a decision that a proxy did not see."""


def first_removed_early(changes: LogChanges, batches: Sequence[Row]) -> int | None:
    """Return the first offset that retention removed too early, behind all that was removed legally."""
    judged = [row for row in changes.removals if row.reason in ("retention.ms", "retention.bytes")]
    early = [row for row in judged if _early(row, changes, batches)]
    legal = max((row.end for row in judged if row not in early), default=0)
    return min((max(row.base, legal) for row in early if row.end > legal), default=None)


def untapped(sends: Iterable[Row], acks: int) -> list[Row]:
    """Return acknowledged sends as rows of produce requests of a record each, where no tap has written such rows."""
    return [
        {
            "kind": PRODUCED,
            "error": 0,
            "acks": acks,
            "base_offset": row["offset"],
            "last_offset": row["offset"],
            "max_timestamp_ms": row["timestamp_ms"],
            "invoked_ns": row["invoked_ns"],
            "completed_ns": row["time_ns"],
        }
        for row in sends
        if row["kind"] == OperationFunction.SEND and row["outcome"] == OperationType.OK and row["offset"] >= 0
    ]


def _early(row: Removal, changes: LogChanges, batches: Sequence[Row]) -> bool:
    if row.reason == "retention.bytes":
        return row.keep_bytes == -1 or row.bytes_left < row.keep_bytes
    if row.keep_ms == -1:
        return True
    if row.keep_ms < 0 or changes.wrong_clocks or row.base < changes.cleaned_end:
        return False
    for batch in batches:
        inside = row.base <= batch["base_offset"] and batch["last_offset"] < row.end
        if batch["kind"] == PRODUCED and not batch["error"] and inside and batch["max_timestamp_ms"] >= 0:
            by_time = row.wall_ms - batch["max_timestamp_ms"]
            by_request = (row.t_ns - batch["invoked_ns"]) // MS
            if max(by_time, by_request) < row.keep_ms - SECOND_MS:
                return True
    return False


def legal_changes(changes: LogChanges, early: int) -> dict[int, int]:
    """Return the deleted heads without what was removed from offset `early` on."""
    bases: dict[int, list[int]] = {}
    for node, base in [*changes.deleted_heads.items(), *((r.node, r.base) for r in changes.removals)]:
        if base < early:
            bases.setdefault(node, []).append(base)
    return {node: max(found) for node, found in bases.items()}


class Compaction:
    """What compaction may have removed from one partition."""

    def __init__(
        self,
        changes: LogChanges,
        sends: Sequence[Row],
        pending: Sequence[Row],
        polls: Sequence[Row],
        batches: Sequence[Row],
        decisions: Sequence[Row],
    ) -> None:
        self._changes = changes
        self._sends = [*sends, *pending]
        self._said = [row for row in [*self._sends, *polls] if row["kind"] not in BREAKS]
        self._batches = [b for b in batches if b["kind"] == 1 and not b["error"]]
        self._decisions = sorted(decisions, key=lambda row: row["time_ns"])

    def explains(self, row: Row, visible: Mapping[int, Row]) -> bool:
        """Return whether it explains that the final read, which is `visible` of committed records, lacks the row."""
        key, offset = row["key_hash"], row["offset"]
        gone = any(other["key_hash"] == key and at > offset for at, other in visible.items())
        for other in self._said:
            if other["key_hash"] == key and other["value_hash"] == 0:
                unknown = other["offset"] < 0
                gone |= unknown or (other["offset"] > offset and not self.aborted(other["offset"]))
        gone |= self.aborted(offset)
        if row["value_hash"] == 0:
            gone |= self._aged(row, [c.tombstone_ms for c in self._changes.cleanings])
        return gone and self._aged(row, [c.lag_ms for c in self._changes.cleanings])

    def aborted(self, offset: int) -> bool:
        """Return whether a batch with the offset is of a transaction that its coordinator aborted."""
        for batch in self._batches:
            if batch["base_offset"] < 0 or not batch["base_offset"] <= offset <= batch["last_offset"]:
                continue
            ends = [
                d
                for d in self._decisions
                if d["producer_id"] == batch["producer_id"]
                and d["time_ns"] >= batch["invoked_ns"]
                and d["state"] in (*COMMIT_STATES, *ABORT_STATES)
            ]
            if ends and ends[0]["state"] in ABORT_STATES:
                return True
        return False

    def _aged(self, row: Row, limits: Sequence[int]) -> bool:
        if self._changes.wrong_clocks or all(limit <= SECOND_MS for limit in limits):
            return True
        same = [s for s in self._sends if (s["key_hash"], s["value_hash"]) == (row["key_hash"], row["value_hash"])]
        at = (row["offset"], OperationType.OK)
        own = [s for s in self._sends if (s["offset"], s["outcome"]) == at] or same
        if not own:
            return True
        pairs = zip(self._changes.cleanings, limits, strict=True)
        return any(
            row["offset"] < cleaning.first_uncleanable and _age(cleaning, own) >= limit - SECOND_MS
            for cleaning, limit in pairs
        )


def _age(cleaning: CleaningBegun, sends: Iterable[Row]) -> int:
    sent, stamp = (min(row[name] for row in sends) for name in ("invoked_ns", "timestamp_ms"))
    by_stamp = 2**62 if stamp < 0 else cleaning.wall_ms - stamp
    return int(max(by_stamp, (cleaning.t_ns - sent) // MS))


def incomplete_leaders(
    changes: LogChanges, batches: Sequence[Row], polls: Sequence[Row]
) -> set[tuple[str, tuple[int, ...]]]:
    """Return each leader whose log ended before a record that was committed before."""
    delivered = [row for row in batches if row["kind"] == 2]
    acked = [
        row
        for row in batches
        if row["kind"] == 1 and not row["error"] and row["base_offset"] >= 0 and row["acks"] == -1
    ]
    committed = [(row["completed_ns"], row["last_offset"]) for row in [*acked, *delivered]]
    if not delivered:
        reads = [row for row in polls if row["kind"] == OperationFunction.POLL]
        committed += [(row["time_ns"], row["offset"]) for row in reads]
    found: set[tuple[str, tuple[int, ...]]] = set()
    for leader in changes.leaderships if len(changes.leaderships) > 1 else ():
        if any(epoch <= leader.leader_epoch for epoch in changes.unclean_epochs):
            continue
        ends = [other.t_ns for other in changes.leaderships if other.leader_epoch > leader.leader_epoch]
        before = min([leader.t_ns, *ends])
        lacking = [last for at, last in committed if at < before and last >= leader.log_end]
        if lacking:
            offsets = sorted([leader.log_end, max(lacking)])
            found.add(("incomplete-leader", tuple(offsets)))
    return found
