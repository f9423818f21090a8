"""The checks of `kernels/shares.py` in plain Python, one record after the other: the kernels are tested against it.

Written from the definitions in the kernel's head and sharing no code with it. Rows are dicts of
`kernels.inputs.SHARE_SCHEMA` of one group. An anomaly is `(name, offset)`, a doubt the name that it is about.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
Found = set[tuple[str, int]]
ACQUIRED, ACCEPTED, RELEASED, REJECTED, RENEWED, EXPIRED, ARCHIVED, LOADED, COPIED = range(1, 10)
SURELY_REFUSED = {100, 121, 122, 123}
SECONDS = 1_000_000_000


def share_anomalies(
    rows: Sequence[Row],
    visible: Collection[int],
    *,
    limit: int = 5,
    claimed: bool = False,
    resets: Sequence[int] = (),
) -> tuple[Found, set[str]]:
    """Return the anomalies and the doubts of one group; `visible`: the offsets of the final read."""
    found: Found = set()
    doubts: set[str] = set()
    rows = sorted(rows, key=lambda row: row["completed_ns"])
    acquired = [row for row in rows if row["kind"] == ACQUIRED]
    limits = [row["delivery_count"] for row in rows if row["kind"] == LOADED and row["delivery_count"]] or [limit]
    limit = min(limits)
    for row in acquired:
        for offset in _offsets(row):
            if limit and row["delivery_count"] > max(limits):
                found.add(("over-delivered", offset))
        if not limit and row["delivery_count"] > 2:
            doubts.add("over-delivered")
    start = _start(rows)
    touched = {offset for row in rows if row["kind"] != LOADED for offset in _offsets(row)}
    for offset in sorted(touched | set(visible)):
        own = [row for row in rows if row["kind"] != LOADED and offset in _offsets(row)]
        _redelivered(own, offset, resets, found, doubts)
        _locks(own, rows, offset, found, doubts)
        if offset in visible:
            _unfinished(own, acquired, offset, start, limit, claimed, resets, found, doubts)
    return found, doubts


def _offsets(row: Row) -> range:
    return range(row["first_offset"], row["last_offset"] + 1)


def _redelivered(own: list[Row], offset: int, resets: Sequence[int], found: Found, doubts: set[str]) -> None:
    accepted_ns, epoch, ended = None, -1, False
    for row in own:
        if row["kind"] in (EXPIRED, ARCHIVED):
            ended = True
        elif row["kind"] == ACQUIRED and accepted_ns is None:
            ended = False
        elif row["kind"] == ACCEPTED and not row["error"] and accepted_ns is None and not ended:
            accepted_ns, epoch = row["completed_ns"], row["leader_epoch"]
        elif row["kind"] == ACQUIRED and accepted_ns is not None and row["completed_ns"] > accepted_ns:
            if -1 != row["leader_epoch"] < epoch:
                continue
            if resets and row["completed_ns"] >= resets[0]:
                doubts.add("redelivered-after-accept")
            else:
                found.add(("redelivered-after-accept", offset))
            return


def _locks(own: list[Row], rows: list[Row], offset: int, found: Found, doubts: set[str]) -> None:
    deliveries = [(at, row) for at, row in enumerate(own) if row["kind"] == ACQUIRED]
    for (at, earlier), (end, later) in pairwise(deliveries):
        if earlier["member"] == later["member"]:
            continue
        if (earlier["node"], earlier["leader_epoch"]) != (later["node"], later["leader_epoch"]):
            continue
        until = later["completed_ns"]
        if any(row["kind"] in (ACCEPTED, RELEASED, REJECTED, EXPIRED, ARCHIVED) for row in own[at + 1 : end]):
            continue
        if _gone(earlier, at, own, until) or _gone(later, end, own, until):
            continue
        since = min(earlier["invoked_ns"], later["invoked_ns"])
        if any(
            row["kind"] == LOADED and row["node"] == earlier["node"] and since <= row["completed_ns"] <= until
            for row in rows
        ):
            continue
        if earlier["leader_epoch"] < 0:
            doubts.add("wrong-lock")
        else:
            found.add(("wrong-lock", offset))


def _gone(held: Row, at: int, own: list[Row], until: int) -> bool:
    lock = held["lock_until_ns"]
    for place, row in enumerate(own):
        mine = row["member"] == held["member"]
        if row["kind"] == RENEWED:
            if mine and place > at and not row["error"] and row["lock_until_ns"] and row["completed_ns"] <= until:
                lock = row["lock_until_ns"]
        elif row["kind"] in (EXPIRED, ARCHIVED) or (mine and row["kind"] in (ACCEPTED, RELEASED, REJECTED)):
            before, after = row["completed_ns"] < held["invoked_ns"], row["invoked_ns"] > until
            if not (before or after):
                return True
    return bool(lock <= until)


def _start(rows: list[Row]) -> int | None:
    stored = [row for row in rows if row["kind"] in (ACCEPTED, RELEASED, REJECTED) and not row["error"]]
    loaded = [row for row in rows if row["kind"] == LOADED]
    if not loaded:
        return min((row["first_offset"] for row in stored), default=None)
    until = min((row["completed_ns"] for row in stored), default=None)
    return max((row["first_offset"] for row in loaded if until is None or row["completed_ns"] <= until), default=None)


def _unfinished(
    own: list[Row],
    acquired: list[Row],
    offset: int,
    start: int | None,
    limit: int,
    claimed: bool,
    resets: Sequence[int],
    found: Found,
    doubts: set[str],
) -> None:
    over = any(row["kind"] in (ACCEPTED, REJECTED) and row["error"] not in SURELY_REFUSED for row in own)
    archived = any(row["kind"] == COPIED or (row["kind"] == ARCHIVED and not row["error"]) for row in own)
    deliveries = [at for at, row in enumerate(own) if row["kind"] == ACQUIRED]
    copies = [row["error"] for row in own if row["kind"] == COPIED]
    if copies and all(copies):
        found.add(("given-up", offset))
    if not deliveries:
        if not (over or archived):
            _missed(acquired, offset, start, claimed, resets, found, doubts)
        return
    last = own[deliveries[-1]]
    after = own[deliveries[-1] + 1 :]
    count = last["delivery_count"]
    if limit and count >= limit and not over:
        given_back = any(row["kind"] == RELEASED and not row["error"] and row["leader_epoch"] < 0 for row in after)
        if (archived or given_back) and not copies:
            found.add(("given-up", offset))
    if over or archived:
        return
    if count >= (limit or 2):
        if claimed and not limit:
            doubts.add("stuck-in-flight")
        return
    if claimed:
        found.add(("stuck-in-flight", offset))
        return
    freed = _freed(last, after)
    if freed is None:
        return
    later = {
        row["completed_ns"]
        for row in acquired
        if row["invoked_ns"] > freed[0] and row["leader_epoch"] >= freed[1] and row["first_offset"] > offset
    }
    if len(later) >= 3:
        found.add(("stuck-in-flight", offset))


def _missed(
    acquired: list[Row],
    offset: int,
    start: int | None,
    claimed: bool,
    resets: Sequence[int],
    found: Found,
    doubts: set[str],
) -> None:
    if start is None:
        if claimed:
            doubts.add("never-delivered")
    elif offset >= start and (claimed or _passed_over(acquired, offset)):
        if resets:
            doubts.add("never-delivered")
        else:
            found.add(("never-delivered", offset))


def _passed_over(acquired: list[Row], offset: int) -> bool:
    above = [row for row in acquired if row["first_offset"] > offset]
    if not above or not all(row["lock_until_ns"] for row in above):
        return False
    lock = max(row["lock_until_ns"] - row["invoked_ns"] for row in above)
    until = above[0]["completed_ns"] + lock + 5 * SECONDS
    later = {
        row["completed_ns"]
        for row in above
        if row["invoked_ns"] > until and row["leader_epoch"] >= above[0]["leader_epoch"]
    }
    return len(later) >= 3


def _freed(last: Row, after: list[Row]) -> tuple[int, int] | None:
    times: list[tuple[int, int]] = []
    until = last["lock_until_ns"] + last["completed_ns"] - last["invoked_ns"] if last["lock_until_ns"] else None
    for row in after:
        if row["kind"] == RENEWED:
            took = row["completed_ns"] - row["invoked_ns"]
            known = until is not None and row["lock_until_ns"]
            until = max(until or 0, row["lock_until_ns"] + took) if known else None
        elif row["kind"] == EXPIRED or (row["kind"] == RELEASED and not row["error"]):
            times.append((row["completed_ns"], row["leader_epoch"]))
    if until is not None:
        times.append((until + 5 * SECONDS, last["leader_epoch"]))
    return min(times, default=None)
