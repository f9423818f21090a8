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
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from harrow.cluster.host.seam import OFFSET_COMMITTED, OFFSET_READ, OFFSET_SENT
from harrow.cluster.tap.layouts import FLAG_READ_COMMITTED, MEMBER_OWNS

from ..client_names import ClientNumber, Explanation
from ..rows import OperationRow
from .findings import Description, PartitionFindings, rows_of
from .inputs import PartitionInputs, chosen
from .log_transactions import NEVER_NS, log_transactions


class Ownership(NamedTuple):
    """A row of the owners of a partition: `member` got it or released it (`kind`)."""

    group: int
    generation: int
    member: int
    client: int
    instance: int
    kind: int
    leader_epoch: int
    time_ns: int

    @property
    def order(self) -> tuple[int, int]:
        """By coordinators, then by time."""
        return self.leader_epoch, self.time_ns

    @property
    def row(self) -> OperationRow:
        """The row as the verdict shows it."""
        return {
            "operation": "owned",
            "group": self.group,
            "member": self.member,
            "client": self.client,
            "generation": self.generation,
            "completed_ns": self.time_ns,
        }


class CommittedOffset(Protocol):
    """A commit, or a read of a committed offset."""

    @property
    def kind(self) -> int:
        """`OFFSET_COMMITTED` or `OFFSET_READ`."""
        ...

    @property
    def error(self) -> int:
        """The error code of the response."""
        ...

    @property
    def node(self) -> int:
        """The coordinator."""
        ...

    @property
    def offset(self) -> int:
        """The committed offset."""
        ...

    @property
    def invoked_ns(self) -> int:
        """When the coordinator read the request."""
        ...

    @property
    def completed_ns(self) -> int:
        """When the response was ready."""
        ...


class OffsetRow(NamedTuple):
    """A `CommittedOffset` with the numbers of its group, client and member."""

    group: int
    client: int
    member: int
    generation: int
    kind: int
    error: int
    node: int
    offset: int
    invoked_ns: int
    completed_ns: int

    @property
    def row(self) -> OperationRow:
        """The row as the verdict shows it."""
        known = self.generation >= 0
        return {
            "operation": "committed offset returned" if self.kind == OFFSET_READ else "commit",
            "group": self.group,
            "client": self.client,
            "member": self.member if known else None,
            "generation": self.generation if known else None,
            "offset": self.offset,
            "invoked_ns": self.invoked_ns,
            "completed_ns": self.completed_ns,
        }


class Beyond(NamedTuple):
    """A commit beyond the limit of its time."""

    commit: OffsetRow
    limit: int


Regression = tuple[OffsetRow, OffsetRow, Explanation]
"""The row before, the row that went back, and what is wrong."""
Offset = TypeVar("Offset", bound=CommittedOffset)


def owners(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """two-owners."""
    rows = inputs.coordinators.members
    if not len(rows):
        return
    shared = rows.group_by("group", "generation").agg(pl.col("member").n_unique().alias("several"))
    several = rows.join(shared.filter(pl.col("several") > 1), on=["group", "generation"])
    ordered = rows_of(several.sort("leader_epoch", "time_ns", maintain_order=True), Ownership)

    def describe(pair: tuple[Ownership, Ownership]) -> Description:
        first, second = pair
        text = (
            f"in generation {second.generation} of group ",
            ClientNumber(second.group),
            " the members ",
            ClientNumber(first.member),
            " and ",
            ClientNumber(second.member),
            " owned the partition at the same time",
        )
        return [], [first.row, second.row], text

    findings.add_all("two-owners", list(_overlaps(ordered)), describe)


def _overlaps(rows: Iterable[Ownership]) -> Iterator[tuple[Ownership, Ownership]]:
    """Yield each row that makes a second owner, with the row of the first one."""
    held: dict[tuple[int, int], dict[int, Ownership]] = {}
    reported: set[tuple[int, int, int]] = set()
    for row in rows:
        now = held.setdefault((row.group, row.generation), {})
        if row.kind != MEMBER_OWNS:
            now.pop(row.member, None)
            continue
        others = [other for other in now.values() if _may_not_share(other, row)]
        now[row.member] = row
        key = (row.group, row.generation, row.member)
        if others and key not in reported:
            reported.add(key)
            yield others[0], row


def _may_not_share(other: Ownership, row: Ownership) -> bool:
    """Whether a member that was not released before `row` is a second owner."""
    replaced = other.leader_epoch < row.leader_epoch and 0 < other.instance == row.instance
    return other.member != row.member and not replaced


def regressions(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """committed-offset-regression: by a member that had lost the partition, and by the coordinator."""
    rows = inputs.coordinators.offsets
    if not len(rows):
        return
    bad: list[Regression] = []
    for (group,), own in rows.group_by("group", maintain_order=True):
        members = inputs.coordinators.members.filter(pl.col("group") == group)
        ordered = list(rows_of(own, OffsetRow))
        bad += _stale_commits(ordered, list(rows_of(members, Ownership)))
        bad += _lost_commits(ordered)

    def describe(regression: Regression) -> Description:
        before, after, text = regression
        return [before.offset, after.offset], [before.row, after.row], text

    findings.add_all("committed-offset-regression", bad, describe)


def _stale_commits(rows: list[OffsetRow], members: list[Ownership]) -> Iterator[Regression]:
    """Yield commits of a member that had lost the partition, below the offset that the next owner had committed."""
    own = [row for row in rows if row.kind == OFFSET_COMMITTED and not row.error and row.generation >= 0]
    for last, row in itertools.pairwise(own):
        later = last.completed_ns < row.invoked_ns
        if later and row.offset < last.offset and _replaced(row, last, members):
            text = (
                *_had_committed(last),
                ", and ",
                ClientNumber(row.client),
                (
                    f", a member of generation {row.generation} that no longer owned the partition, committed offset "
                    f"{row.offset}"
                ),
            )
            yield last, row, text


def _had_committed(row: OffsetRow) -> tuple[str | ClientNumber, ...]:
    return "group ", ClientNumber(row.group), f" had committed offset {row.offset}"


def _replaced(row: OffsetRow, last: OffsetRow, members: list[Ownership]) -> bool:
    """Whether the member of `last` got the partition after the member of `row`, which had it before."""
    if row.member == last.member:
        return False
    before = [m for m in members if m.time_ns < row.invoked_ns and m.kind == MEMBER_OWNS]
    gained = {m.member: m.order for m in sorted(before, key=lambda m: m.order)}
    mine, other = gained.get(row.member), gained.get(last.member)
    return mine is not None and other is not None and mine < other


def _lost_commits(rows: list[OffsetRow]) -> Iterator[Regression]:
    """Yield offsets that OffsetFetch returned below the last committed one."""
    for last, read in reads_below_commits(rows):
        if _is_current(read, last, rows):
            text = (
                *_had_committed(last),
                ", and ",
                ClientNumber(read.client),
                f" was given offset {read.offset} as its committed offset",
            )
            yield last, read, text


def reads_below_commits(rows: Sequence[Offset]) -> Iterator[tuple[Offset, Offset]]:
    """Yield the last commit before a read of committed offsets and the read, where no order of commits explains it.

    `rows`: of one group and one partition, by the time of their completion.
    """
    written = [row for row in rows if row.kind == OFFSET_COMMITTED]
    committed = [row for row in written if not row.error]
    failed = [row.offset for row in written if row.error]
    if not committed:
        return
    times = [row.completed_ns for row in committed]
    offsets: list[int] = [row.offset for row in reversed(committed)]
    lowest = list(itertools.accumulate(offsets, min))[::-1]
    for read in (row for row in rows if row.kind == OFFSET_READ):
        at = bisect.bisect_left(times, read.invoked_ns) - 1
        if at < 0 or read.offset >= committed[at].offset:
            continue
        last = committed[at]
        begun = at
        while begun > 0 and committed[begun - 1].completed_ns >= last.invoked_ns:
            begun -= 1  # their order in the log is not known
        if read.offset < min([lowest[begun], *failed]):
            yield last, read


def _is_current(read: OffsetRow, last: OffsetRow, rows: list[OffsetRow]) -> bool:
    """Whether the coordinator of a read cannot be one that was replaced before the last commit."""
    if read.node == last.node:
        return True
    known_before = any(row.node == read.node and row.completed_ns < last.completed_ns for row in rows)
    goes_on = any(row.node == last.node and row.completed_ns > read.invoked_ns for row in rows)
    return not known_before and not goes_on


def beyond_the_end(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """commit-beyond-lso: beyond the end of the log, or beyond the last stable offset of a reader of committed data."""
    rows = inputs.coordinators.offsets
    if not len(rows) or inputs.high is None:
        return
    kind, error, completed = (rows[name].to_numpy() for name in ("kind", "error", "completed_ns"))
    rows = chosen(rows, np.isin(kind, [OFFSET_COMMITTED, OFFSET_SENT]) & (error == 0) & (completed <= inputs.end_ns))
    if not len(rows):
        return
    ends = [int(log["last_offset"][-1]) + 1 for log in inputs.logs.values() if len(log)]
    end = max([inputs.high, *ends])
    if not len(log_transactions(inputs)) and not (rows["offset"].to_numpy() > end).any():
        return
    limits = np.full(len(rows), end)
    stable = _stable_limits(inputs, rows)
    bad = (
        rows.with_columns(pl.Series("limit", np.minimum(limits, stable), pl.Int64))
        .filter(pl.col("offset") > pl.col("limit"))
        .unique(["group", "offset"], keep="first", maintain_order=True)
        .sort("offset", "group")
    )

    def describe(found: Beyond) -> Description:
        row, limit = found
        what = "the log ended" if limit == end else "the last stable offset was"
        words = f" committed offset {row.offset}, and {what} at {limit}"
        return [row.offset], [row.row], ("group ", ClientNumber(row.group), words)

    found = [Beyond(*pair) for pair in zip(rows_of(bad, OffsetRow), bad["limit"].to_list(), strict=True)]
    findings.add_all("commit-beyond-lso", found, describe)


def _stable_limits(inputs: PartitionInputs, rows: pl.DataFrame) -> npt.NDArray[np.int64]:
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
