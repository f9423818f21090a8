"""Fast tests that a partition has no anomaly: a few numpy passes, which save most polars queries.

A polars query costs some tenths of a millisecond however few its rows are, and a small history must be judged at once.
In a large history the operations are mostly in order already, so that comparing neighbours replaces joins and groups.

A function that returns True or False returns True only when its check in `records.py` cannot find an anomaly. After
False the check itself runs. `strays` and `repeated_values` return what a check has to look at: it queries these rows
only, so that its memory does not grow with the partition. The functions never report anomalies themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import OperationFunction, OperationType
from .inputs import PartitionInputs, Placed, chosen

Column = npt.NDArray[Any]
BLOCK = 1 << 18
"""Rows that are compared at a time, so that what is only needed meanwhile does not grow with the partition."""


def _columns(frame: pl.DataFrame, *names: str) -> list[Column]:
    return [frame[name].to_numpy() for name in names]


def agrees(inputs: PartitionInputs) -> bool:
    """True when the final read has every acknowledged or read record at its offset, unchanged; computed once."""
    if inputs.agreed is None:
        inputs.agreed = _agrees(inputs)
    return inputs.agreed


def _agrees(inputs: PartitionInputs) -> bool:
    if inputs.final is None:
        return False
    for frame in strays(inputs):
        offset = frame["offset"].to_numpy()
        judged = offset >= inputs.low
        if not inputs.to_the_end:
            judged &= offset < (inputs.high or 0)
        if judged.any():
            return False
    return True


def strays(inputs: PartitionInputs) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the acknowledged sends and the reads, with an offset, that the final read has not, or not unchanged.

    There must be a final read. Computed once: the checks query these rows only, and in most runs they are few or none.
    """
    if inputs.strays is None:
        inputs.strays = (
            _strays(inputs, inputs.sends, "outcome", OperationType.OK),
            _strays(inputs, inputs.polls, "kind", OperationFunction.POLL),
        )
    return inputs.strays


def _strays(inputs: PartitionInputs, frame: pl.DataFrame, column: str, wanted: int) -> pl.DataFrame:
    assert inputs.final is not None, "there was no final read"
    there, keys, values = _columns(inputs.final, "offset", "key_hash", "value_hash")
    kind, offset, key, value = _columns(frame, column, "offset", "key_hash", "value_hash")
    found = (kind == wanted) & (offset >= 0)
    for start in range(0, len(offset), BLOCK) if len(there) else ():
        block = slice(start, start + BLOCK)
        at = _places(there, offset[block])
        same = (there[at] == offset[block]) & (keys[at] == key[block])
        found[block] &= ~(same & (values[at] == value[block]))
    return chosen(frame, found)


def final_rows(inputs: PartitionInputs, offsets: Column) -> pl.DataFrame:
    """Return the rows of the final read, which exists, that have one of the offsets."""
    assert inputs.final is not None, "there was no final read"
    there = inputs.final["offset"].to_numpy()
    if not len(there) or not len(offsets):
        return inputs.final.clear()
    at = np.unique(_places(there, offsets))
    return inputs.final[at[np.isin(there[at], offsets)]]


def _places(there: Column, offsets: Column) -> Column:
    """Return the index at which each offset is in the increasing `there`, if `there` has it."""
    last = len(there) - 1
    if there[-1] - there[0] == last:  # `there` has no gaps
        at: Column = np.clip(offsets - there[0], 0, last)
    else:
        at = np.minimum(np.searchsorted(there, offsets), last)
    return at


def repeated_values(inputs: PartitionInputs) -> Column:
    """Return the values that several records of the final read have; none without a final read."""
    final = inputs.final
    if final is None:
        return np.empty(0, np.uint64)
    values = np.sort(final["value_hash"].to_numpy())  # np.unique hashes: forty times slower
    return np.unique(values[1:][values[1:] == values[:-1]])


def in_order(inputs: PartitionInputs) -> bool:
    """True when the acknowledged sends of each client and key have offsets in the order of their invocation."""
    outcome, offset, client, key, op = _columns(inputs.sends, "outcome", "offset", "client", "key_hash", "op")
    judged = (outcome == OperationType.OK) & (offset >= 0)
    offset, client, key, op = offset[judged], client[judged], key[judged], op[judged]
    order = _by_client(client)
    same = client[order][1:] == client[order][:-1]
    rises = (np.diff(op[order]) > 0) & (np.diff(offset[order]) > 0)
    if (rises | ~same).all():  # in order for each client, and so for each key
        return True
    order = np.lexsort((op, key, client))
    same = (np.diff(client[order].astype(np.int64)) == 0) & (key[order][1:] == key[order][:-1])
    return not (same & (np.diff(offset[order]) < 0)).any()


def _by_client(client: Column) -> Column:
    """Return a stable order by client; up to 2^16 clients are sorted by radix."""
    few = not len(client) or client.max() < 1 << 16
    return np.argsort(client.astype(np.uint16) if few else client, kind="stable")


def read_in_order(inputs: PartitionInputs) -> bool:
    """True when every consumer read consecutive offsets."""
    if not len(inputs.polls):
        return True
    kind, client, op, offset = _columns(inputs.polls, "kind", "client", "op", "offset")
    if in_transactions(inputs):
        return False
    order = _by_client(client)
    if ((np.diff(op[order]) <= 0) & (client[order][1:] == client[order][:-1])).any():
        order = np.lexsort((op, client))
    follows = (np.diff(client[order].astype(np.int64)) == 0) & (kind[order] == OperationFunction.POLL)[1:]
    follows &= (kind[order] == OperationFunction.POLL)[:-1]
    return bool((np.diff(offset[order])[follows] == 1).all())


def in_transactions(inputs: PartitionInputs) -> bool:
    """True when a reader read in a transaction that was aborted, or of which the outcome is unknown."""
    return bool((inputs.polls["outcome"].to_numpy() != OperationType.OK).any())


def accounted(inputs: PartitionInputs) -> bool:
    """True when every record that was read, in the end or before, is an acknowledged send."""
    if inputs.final is None or inputs.low > 0 or not inputs.to_the_end or not agrees(inputs):
        return False
    placed = inputs.acknowledged_by_offset()
    return placed.distinct and len(placed.offset) == len(inputs.final)


def in_real_time_order(inputs: PartitionInputs) -> bool:
    """True when no record was sent after a record with a higher offset had been acknowledged."""
    placed = inputs.acknowledged_by_offset()
    time, invoked = placed.time_ns, placed.invoked_ns
    if len(time) < 2:
        return True
    if not (np.diff(time) >= 0).all():  # else the acknowledgements have the order of the offsets
        time = np.minimum.accumulate(time[::-1])[::-1]
    return not (time[1:] < invoked[:-1]).any()


def read_after_sent(inputs: PartitionInputs) -> bool:
    """True when no client read a record before the send that was acknowledged with its offset began."""
    kind, offset, time = _columns(inputs.polls, "kind", "offset", "time_ns")
    reads = kind == OperationFunction.POLL
    if not reads.all():
        offset, time = offset[reads], time[reads]
    placed = inputs.acknowledged_by_offset()
    if not placed.distinct or (inputs.job.all_sends and not agrees(inputs)):
        return False
    if not len(placed.offset) or not len(offset):
        return not inputs.job.all_sends or not len(offset)
    began = _began(placed, offset)
    if inputs.job.all_sends and not began.all():
        return False
    return not (time < began).any()


def _began(placed: Placed, offsets: Column) -> Column:
    """Return when the send of each offset began; 0 where none was acknowledged with it."""
    first, last = placed.offset[0], placed.offset[-1]
    if last - first >= 4 * len(placed.offset):
        at = _places(placed.offset, offsets)
        return np.where(placed.offset[at] == offsets, placed.invoked_ns[at], 0)
    table = np.zeros(last - first + 1, np.int64)
    table[placed.offset - first] = placed.invoked_ns
    if offsets.min() >= first and offsets.max() <= last:
        return table[offsets - first]  # type: ignore[no-any-return]
    inside = (offsets >= first) & (offsets <= last)
    return np.where(inside, table[np.where(inside, offsets - first, 0)], 0)
