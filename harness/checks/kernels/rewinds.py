"""Readers in transactions: where they go on after one that was aborted, or whose outcome is unknown (L1, L6).

A consume-transform-produce application commits its offsets in its transaction. When this is aborted, the records that
it read in it were not processed, so that it must set its position back to where the transaction began. A read has the
outcome of its transaction (`info`: unknown), and the transaction's begin as `invoked_ns`.

After a transaction that was aborted a reader may only go on where the transaction began; after one of unknown outcome
also where it ended; after a committed one, or reads without transaction, only behind the last record
(`records.reading_order`). Records that the final read does not have between may be passed over, as always. So

* `missed-rewind`: it went on behind records of the aborted transaction, which it never processes;
* `nonmonotonic-poll`, `poll-skip`: it went to another place.

A position that was set (`BREAKS`) allows any next read. Only the readers that read in such transactions are looked at,
run by run: a run is the reads of one transaction, or neighbours without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import BREAKS, OperationType
from . import quick
from .findings import Description, PartitionFindings, operation_rows, rows_of
from .inputs import PartitionInputs
from .records import readable_offsets

OK = int(OperationType.OK)
Offsets = npt.NDArray[np.int64]


class Read(NamedTuple):
    """A row of a reader: a read, or a break."""

    kind: int
    outcome: int
    offset: int
    op: int
    invoked_ns: int


class _Wrong(NamedTuple):
    """A reader that went on at the wrong place."""

    name: str
    client: int
    before: Read
    read: Read
    expected: int


def after_transactions(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """missed-rewind, nonmonotonic-poll, poll-skip: a reader went on at the wrong place after a transaction."""
    if not quick.in_transactions(inputs):
        return
    there = np.empty(0, np.int64) if inputs.final is None else readable_offsets(inputs)
    given_up = inputs.polls.filter(pl.col("outcome") != OK)["client"].unique().sort()
    wrong = [
        found
        for client in given_up
        for found in _wrong(inputs.polls.filter(pl.col("client") == client).sort("op"), there)
    ]
    for name in ("missed-rewind", "nonmonotonic-poll", "poll-skip"):
        chosen = [found for found in wrong if found.name == name]
        findings.add_all(name, chosen, lambda found: _describe(inputs, found))


def _describe(inputs: PartitionInputs, found: _Wrong) -> Description:
    reads = inputs.polls.filter(
        (pl.col("client") == found.client) & pl.col("op").is_in([found.before.op, found.read.op])
    )
    state = "was aborted" if found.before.outcome == OperationType.FAIL else "has an unknown outcome"
    text = (
        f"a consumer read offset {found.before.offset} last in a transaction that {state}, and went on at offset "
        f"{found.read.offset}, expected {found.expected}, where the transaction began"
    )
    return [found.before.offset, found.read.offset], operation_rows(reads.sort("op")), text


def _runs(reads: pl.DataFrame) -> Iterator[list[Read]]:
    """Yield the reads of each transaction, and of neighbours without one; breaks alone."""
    run: list[Read] = []
    key = (-1, -1, -1)
    for row in rows_of(reads, Read):
        begun = 0 if row.outcome == OK else row.invoked_ns
        own = (row.kind, row.outcome, begun)
        if run and own != key:
            yield run
            run = []
        key = own
        run = [run[0], row] if run else [row]
    if run:
        yield run


def _wrong(reads: pl.DataFrame, there: Offsets) -> Iterator[_Wrong]:
    """Yield where one reader went on wrongly; `allowed`: the offsets at which it may go on, empty: anywhere."""
    client = int(reads["client"][0])
    allowed: set[int] = set()
    before: Read | None = None
    for run in _runs(reads):
        first, last = run[0], run[-1]
        if first.kind in BREAKS:
            allowed, before = set(), None
            continue
        if before and before.outcome != OK and allowed:
            name = _judged(first.offset, allowed, before, there)
            if name:
                yield _Wrong(name, client, before, first, min(allowed))
        begun = allowed or {first.offset}
        if last.outcome == OK:
            allowed = {last.offset + 1}
        elif last.outcome == OperationType.FAIL:
            allowed = begun
        else:
            allowed = begun | {last.offset + 1}
        before = last


def _judged(offset: int, allowed: set[int], before: Read, there: Offsets) -> str:
    """Return what is wrong with going on at `offset`; empty: nothing."""
    earlier = [begin for begin in allowed if begin <= offset]
    if not earlier:
        return "nonmonotonic-poll"
    begin = max(earlier)
    if np.searchsorted(there, begin) == np.searchsorted(there, offset):
        return ""
    aborted = before.outcome == OperationType.FAIL and offset > before.offset
    return "missed-rewind" if aborted else "poll-skip"
