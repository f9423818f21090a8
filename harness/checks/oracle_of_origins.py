"""The checks of `kernels/origins.py`, `kernels/real_time.py` and `kernels/rewinds.py` in plain Python.

Written from the definitions in `guarantees.py` and those modules' heads, sharing no code with them. Rows are dicts of
`kernels.inputs.OPS_SCHEMA` and `BATCH_SCHEMA`. An anomaly is `(name, offsets)`, offsets in ascending order.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..histories.format import BREAKS, OperationType

Row = Mapping[str, Any]
Found = tuple[str, tuple[int, ...]]
Final = Mapping[int, Row]


def real_time_order(acked: Sequence[Row], final: Final | None) -> Iterator[Found]:
    """Yield each record that was sent after a record with a higher offset was acknowledged, with the first of these."""
    if final is None:
        return
    kept = [row for row in acked if row["offset"] in final and _content(final[row["offset"]]) == _content(row)]
    # of higher offsets, the first acknowledgement and its offset
    higher: tuple[int, int] | None = None
    group: list[Row] = []
    for row in [*sorted(kept, key=lambda row: -row["offset"]), {"offset": -1, "invoked_ns": 0}]:
        if group and row["offset"] != group[0]["offset"]:
            first = min((other["time_ns"], other["offset"]) for other in group)
            higher = first if higher is None else min(higher, first)
            group = []
        if higher is not None and higher[0] < row["invoked_ns"]:
            yield "realtime-order", (row["offset"], higher[1])
        group.append(row)


def origins(
    records: Iterable[Row],
    sent: Iterable[Row],
    failed: Iterable[Row],
    tapped: Collection[int] | None,
    *,
    all_sends: bool,
    reads_committed: bool,
) -> Iterator[Found]:
    """Yield records of unknown origin, and those of failed sends.

    `records`: of the final read and of readers; `sent`: what may have happened; `tapped`: offsets whose batch a tap
    saw, None without a tap.
    """
    offered = {_content(row) for row in sent}
    refused = {_content(row) for row in failed}
    for row in records:
        if _content(row) in offered:
            continue
        if _content(row) not in refused:
            if all_sends:
                yield "unknown-origin", (row["offset"],)
        elif reads_committed and (all_sends or (tapped is not None and row["offset"] not in tapped)):
            yield "failed-write", (row["offset"],)


def reads_before_sends(
    reads: Iterable[Row], acked: Sequence[Row], offered: Sequence[Row], *, all_sends: bool
) -> Iterator[Found]:
    """Yield reads that ended before every send that can have written their record began."""
    placed: dict[tuple[int, tuple[int, int]], int] = {}
    begun: dict[tuple[int, int], int] = {}
    for row in acked:
        place = row["offset"], _content(row)
        placed[place] = min(placed.get(place, row["invoked_ns"]), row["invoked_ns"])
    for row in offered if all_sends else ():
        what = _content(row)
        begun[what] = min(begun.get(what, row["invoked_ns"]), row["invoked_ns"])
    for row in reads:
        sent_ns = placed.get((row["offset"], _content(row)), begun.get(_content(row)))
        if sent_ns is not None and row["time_ns"] < sent_ns:
            yield "read-before-send", (row["offset"],)


def rewinds(polls: Sequence[Row], held: Sequence[int]) -> Iterator[Found]:
    """Yield where readers went on wrongly after a transaction that was not committed, or perhaps not.

    `polls`: reads and breaks of all clients; `held`: the offsets that no reader may pass over.
    """
    for client in {row["client"] for row in polls}:
        own = sorted((row for row in polls if row["client"] == client), key=lambda row: row["op"])
        yield from _rewinds_of(own, held)


def _rewinds_of(polls: Sequence[Row], held: Sequence[int]) -> Iterator[Found]:
    starts: set[int] = set()  # where the present transaction may have begun
    allowed: set[int] = set()  # where the next transaction may begin
    before: Row | None = None
    for row in polls:
        if row["kind"] in BREAKS:
            starts, allowed, before = set(), set(), None
            continue
        if before is None or not _same_transaction(before, row):
            starts = allowed or {row["offset"]}
            if before is not None and before["outcome"] != OperationType.OK and allowed:
                name = _wrong(row["offset"], allowed, before, held)
                if name:
                    yield name, (before["offset"], row["offset"])
        after = row["offset"] + 1
        if row["outcome"] == OperationType.OK:
            allowed = {after}
        elif row["outcome"] == OperationType.FAIL:
            allowed = set(starts)
        else:
            allowed = {*starts, after}
        before = row


def _wrong(offset: int, allowed: set[int], before: Row, held: Sequence[int]) -> str:
    if all(offset < start for start in allowed):
        return "nonmonotonic-poll"
    places = [bisect.bisect_left(held, start) for start in allowed if start <= offset]
    if bisect.bisect_left(held, offset) in places:
        return ""
    behind = before["outcome"] == OperationType.FAIL and offset > before["offset"]
    return "missed-rewind" if behind else "poll-skip"


def follows(before: Row, row: Row) -> bool:
    """Return whether a read must go on behind the read before it."""
    return before["outcome"] == OperationType.OK or _same_transaction(before, row)


def _same_transaction(before: Row, row: Row) -> bool:
    same: bool = before["outcome"] == row["outcome"] and (
        row["outcome"] == OperationType.OK or before["invoked_ns"] == row["invoked_ns"]
    )
    return same


def _content(row: Row) -> tuple[int, int]:
    return row["key_hash"], row["value_hash"]
