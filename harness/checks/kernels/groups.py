"""Checks of consumer groups in one topic-partition: committed offsets, and the owners of the partition (L2, G4).

* `committed-offset-regression`: a committed offset went back although its owner did not ask for it. Either a member
  that had lost the partition to another one committed a lower offset, or OffsetFetch returned a lower offset than the
  last one that was committed. A lower commit of the owner is legal (a seek), and so is one of an administrator;
* `commit-beyond-lso`: an offset was committed beyond the end of the log, or by a reader of committed data beyond the
  last stable offset of that time: the group passes over records that it never received;
* `two-owners`: two members of one generation owned the partition at the same time.

Rows of owners are in the order of the coordinators (`leader_epoch`), and of one coordinator in the order of time: a
coordinator that was deposed may write its last rows after those of the next one. The next one begins with what the log
has. In one generation the log can only have replaced a static member by its own next incarnation, whose release the
earlier coordinator may not have written.

A coordinator that was replaced and does not know it yet may return old offsets, legally. So a read counts only at the
coordinator that has the last commit, or at one that had no row of the group before that commit, while the other has no
later row.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl
from harrow.cluster.host.seam import OFFSET_COMMITTED, OFFSET_READ, OFFSET_SENT
from harrow.cluster.tap.layouts import FLAG_READ_COMMITTED, MEMBER_OWNS

from ..client_names import client_mark
from .findings import PartitionFindings, Row
from .inputs import PartitionInputs
from .log_transactions import NEVER_NS, log_transactions

Regression = tuple[Row, Row, str]
"""The row before, the row that went back, and what is wrong."""


def owners(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """two-owners."""
    rows = inputs.coordinators.members
    if not len(rows):
        return
    shared = rows.group_by("group", "generation").agg(pl.col("member").n_unique().alias("several"))
    several = rows.join(shared.filter(pl.col("several") > 1), on=["group", "generation"])
    ordered = several.sort("leader_epoch", "time_ns", maintain_order=True).iter_rows(named=True)

    def describe(pair: tuple[Row, Row]) -> tuple[list[int], list[Row], str]:
        first, second = pair
        text = (
            f"in generation {second['generation']} of group {client_mark(second['group'])} the members "
            f"{client_mark(first['member'])} and {client_mark(second['member'])} owned the partition at the same time"
        )
        return [], [_member_row(first), _member_row(second)], text

    findings.add_all("two-owners", list(_overlaps(ordered)), describe)


def _overlaps(rows: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield each row that makes a second owner, with the row of the first one."""
    held: dict[tuple[int, int], dict[int, Row]] = {}
    reported: set[tuple[int, int, int]] = set()
    for row in rows:
        now = held.setdefault((row["group"], row["generation"]), {})
        if row["kind"] != MEMBER_OWNS:
            now.pop(row["member"], None)
            continue
        others = [other for other in now.values() if _may_not_share(other, row)]
        now[row["member"]] = row
        key = (row["group"], row["generation"], row["member"])
        if others and key not in reported:
            reported.add(key)
            yield others[0], row


def _may_not_share(other: Row, row: Row) -> bool:
    """Whether a member that was not released before `row` is a second owner."""
    replaced = other["leader_epoch"] < row["leader_epoch"] and 0 < other["instance"] == row["instance"]
    return other["member"] != row["member"] and not replaced


def _member_row(row: Row) -> Row:
    names = ("group", "member", "client", "generation")
    return {"operation": "owned", **{name: row[name] for name in names}, "completed_ns": row["time_ns"]}


def regressions(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """committed-offset-regression: by a member that had lost the partition, and by the coordinator."""
    rows = inputs.coordinators.offsets
    if not len(rows):
        return
    bad: list[Regression] = []
    for (group,), own in rows.group_by("group", maintain_order=True):
        members = inputs.coordinators.members.filter(pl.col("group") == group)
        ordered = list(own.iter_rows(named=True))
        bad += _stale_commits(ordered, list(members.iter_rows(named=True)))
        bad += _lost_commits(ordered)

    def describe(regression: Regression) -> tuple[list[int], list[Row], str]:
        before, after, text = regression
        offsets = [before["offset"], after["offset"]]
        return offsets, [_offset_row(before), _offset_row(after)], text

    findings.add_all("committed-offset-regression", bad, describe)


def _stale_commits(rows: list[Row], members: list[Row]) -> Iterator[Regression]:
    """Yield commits of a member that had lost the partition, below the offset that the next owner had committed."""
    own = [row for row in rows if row["kind"] == OFFSET_COMMITTED and not row["error"] and row["generation"] >= 0]
    for last, row in itertools.pairwise(own):
        later = last["completed_ns"] < row["invoked_ns"]
        if later and row["offset"] < last["offset"] and _replaced(row, last, members):
            text = (
                f"{_had_committed(last)}, and {client_mark(row['client'])}, a member of generation "
                f"{row['generation']} that no longer owned the partition, committed offset {row['offset']}"
            )
            yield last, row, text


def _by_coordinator(row: Row) -> tuple[int, int]:
    return row["leader_epoch"], row["time_ns"]


def _had_committed(row: Row) -> str:
    return f"group {client_mark(row['group'])} had committed offset {row['offset']}"


def _replaced(row: Row, last: Row, members: list[Row]) -> bool:
    """Whether the member of `last` got the partition after the member of `row`, which had it before."""
    if row["member"] == last["member"]:
        return False
    before = [m for m in members if m["time_ns"] < row["invoked_ns"] and m["kind"] == MEMBER_OWNS]
    before.sort(key=_by_coordinator)
    gained = {m["member"]: _by_coordinator(m) for m in before}
    mine, other = gained.get(row["member"]), gained.get(last["member"])
    return mine is not None and other is not None and mine < other


def _lost_commits(rows: list[Row]) -> Iterator[Regression]:
    """Yield offsets that OffsetFetch returned below the last committed one."""
    for last, read in reads_below_commits(rows):
        if _is_current(read, last, rows):
            text = (
                f"{_had_committed(last)}, and {client_mark(read['client'])} was given offset {read['offset']} as its "
                "committed offset"
            )
            yield last, read, text


def reads_below_commits(rows: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield the last commit before a read of committed offsets and the read, where no order of commits explains it.

    `rows`: of one group and one partition, by the time of their completion.
    """
    written = [row for row in rows if row["kind"] == OFFSET_COMMITTED]
    committed = [row for row in written if not row["error"]]
    failed = [row["offset"] for row in written if row["error"]]
    if not committed:
        return
    times = [row["completed_ns"] for row in committed]
    offsets: list[int] = [row["offset"] for row in reversed(committed)]
    lowest = list(itertools.accumulate(offsets, min))[::-1]
    for read in (row for row in rows if row["kind"] == OFFSET_READ):
        at = bisect.bisect_left(times, read["invoked_ns"]) - 1
        if at < 0 or read["offset"] >= committed[at]["offset"]:
            continue
        last = committed[at]
        begun = at
        while begun > 0 and committed[begun - 1]["completed_ns"] >= last["invoked_ns"]:
            begun -= 1  # their order in the log is not known
        if read["offset"] < min([lowest[begun], *failed]):
            yield last, read


def _is_current(read: Row, last: Row, rows: list[Row]) -> bool:
    """Whether the coordinator of a read cannot be one that was replaced before the last commit."""
    if read["node"] == last["node"]:
        return True
    known_before = any(row["node"] == read["node"] and row["completed_ns"] < last["completed_ns"] for row in rows)
    goes_on = any(row["node"] == last["node"] and row["completed_ns"] > read["invoked_ns"] for row in rows)
    return not known_before and not goes_on


def beyond_the_end(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """commit-beyond-lso: beyond the end of the log, or beyond the last stable offset of a reader of committed data."""
    rows = inputs.coordinators.offsets
    if not len(rows) or inputs.high is None:
        return
    kinds = pl.col("kind").is_in([OFFSET_COMMITTED, OFFSET_SENT])
    rows = rows.filter(kinds & (pl.col("error") == 0) & (pl.col("completed_ns") <= inputs.end_ns))
    if not len(rows):
        return
    ends = [int(log["last_offset"][-1]) + 1 for log in inputs.logs.values() if len(log)]
    end = max([inputs.high, *ends])
    limits = np.full(len(rows), end)
    stable = _stable_limits(inputs, rows)
    bad = (
        rows.with_columns(pl.Series("limit", np.minimum(limits, stable), pl.Int64))
        .filter(pl.col("offset") > pl.col("limit"))
        .unique(["group", "offset"], keep="first", maintain_order=True)
        .sort("offset", "group")
    )

    def describe(row: Row) -> tuple[list[int], list[Row], str]:
        what = "the log ended" if row["limit"] == end else "the last stable offset was"
        text = f"group {client_mark(row['group'])} committed offset {row['offset']}, and {what} at {row['limit']}"
        return [row["offset"]], [_offset_row(row)], text

    findings.add_each("commit-beyond-lso", bad, describe)


def _stable_limits(inputs: PartitionInputs, rows: pl.DataFrame) -> Any:
    """Return for each commit the last stable offset at its time, if its client reads only committed data."""
    limits = np.full(len(rows), NEVER_NS)
    found = log_transactions(inputs)
    if not len(found):
        return limits
    fetched = inputs.fetched.group_by("client").agg(((pl.col("flags") & FLAG_READ_COMMITTED) != 0).all().alias("all"))
    careful = fetched.filter(pl.col("all"))["client"].to_list()
    found = found.filter(pl.col("decided_ns").is_not_null() | pl.col("marker").is_null())
    first = found["base_offset"].to_numpy()
    until = found["decided_ns"].fill_null(NEVER_NS).to_numpy()
    latest = np.concatenate([[0], np.maximum.accumulate(until)])
    below = np.searchsorted(first, rows["offset"].to_numpy())
    open_at_commit = latest[below] > rows["completed_ns"].to_numpy()
    of_member = rows["client"].is_in(careful).to_numpy() & (rows["generation"].to_numpy() >= 0)
    for at in np.flatnonzero(open_at_commit & of_member).tolist():
        still_open = until[: below[at]] > rows["completed_ns"][at]
        limits[at] = int(first[: below[at]][still_open].min())
    return limits


def _offset_row(row: Row) -> Row:
    read = row["kind"] == OFFSET_READ
    names = ("group", "client", "member", "generation", "offset", "invoked_ns", "completed_ns")
    shown = {name: row[name] for name in names}
    if row["generation"] < 0:
        shown |= {"member": None, "generation": None}
    return {"operation": "committed offset returned" if read else "commit", **shown}
