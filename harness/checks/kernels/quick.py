"""Fast tests that a partition has no anomaly: a few numpy passes, which save most polars queries.

A polars query costs some tenths of a millisecond however few its rows are, and a small history must be judged at once.
In a large history the operations are mostly in order already, so that comparing neighbours replaces joins and groups.

Each function returns True only when its check in `records.py` cannot find an anomaly. After False the check itself
runs. The functions never report anomalies themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...histories.format import OperationFunction, OperationType
from .inputs import PartitionInputs

Column = npt.NDArray[Any]


def _columns(frame: Any, *names: str) -> list[Column]:
    return [frame[name].to_numpy() for name in names]


def agrees(inputs: PartitionInputs) -> bool:
    """True when the final read has every acknowledged or read record at its offset, unchanged; computed once."""
    if inputs.agreed is None:
        inputs.agreed = _agrees(inputs)
    return inputs.agreed


def _agrees(inputs: PartitionInputs) -> bool:
    final = inputs.final
    if final is None:
        return False
    there, keys, values = _columns(final, "offset", "key_hash", "value_hash")
    for frame, column, wanted in (
        (inputs.sends, "outcome", OperationType.OK),
        (inputs.polls, "kind", OperationFunction.POLL),
    ):
        chosen, offset, key, value = _columns(frame, column, "offset", "key_hash", "value_hash")
        judged = (chosen == wanted) & (offset >= max(inputs.low, 0))
        if not judged.any():
            continue
        if not len(there):
            return False
        at = _places(there, offset[judged])
        same = (
            (there[at] == offset[judged])
            & (keys[at] == key[judged])
            & (values[at] == value[judged])
        )
        if not same.all():
            return False
    return True


def _places(there: Column, offsets: Column) -> Column:
    """Return the index at which each offset is in the increasing `there`, if `there` has it."""
    last = len(there) - 1
    if there[-1] - there[0] == last:  # `there` has no gaps
        at: Column = np.clip(offsets - there[0], 0, last)
    else:
        at = np.minimum(np.searchsorted(there, offsets), last)
    return at


def unrepeated(inputs: PartitionInputs) -> bool:
    """True when no two records of the final read have the same value."""
    final = inputs.final
    if final is None:
        return True
    values = np.sort(final["value_hash"].to_numpy())  # np.unique hashes: forty times slower
    return not (values[1:] == values[:-1]).any()


def in_order(inputs: PartitionInputs) -> bool:
    """True when the acknowledged sends of each client and key have offsets in the order of their invocation."""
    outcome, offset, client, key, op = _columns(
        inputs.sends, "outcome", "offset", "client", "key_hash", "op"
    )
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
    order = _by_client(client)
    if ((np.diff(op[order]) <= 0) & (client[order][1:] == client[order][:-1])).any():
        order = np.lexsort((op, client))
    follows = (np.diff(client[order].astype(np.int64)) == 0) & (
        kind[order] == OperationFunction.POLL
    )[1:]
    follows &= (kind[order] == OperationFunction.POLL)[:-1]
    return bool((np.diff(offset[order])[follows] == 1).all())
