"""Whether a partition is evidently clean: a few numpy passes that spare it most queries.

A polars query costs some tenths of a millisecond however few its rows, and a tiny history must be judged in an instant;
of a big one, what clients saw is mostly in order already, so that comparing neighbours replaces joins and groups.
Each function here answers True only when its check (`records.py`) cannot find anything; on False the check itself
runs and speaks. It is decided here, never told.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...histories.format import OperationFunction, OperationType
from .inputs import Inputs

Column = npt.NDArray[Any]


def _columns(frame: Any, *names: str) -> list[Column]:
    return [frame[name].to_numpy() for name in names]


def agrees(inputs: Inputs) -> bool:
    """Everything that a client was told lies in the final read, at that offset, unchanged."""
    if inputs.agreed is None:
        inputs.agreed = _agrees(inputs)
    return inputs.agreed


def _agrees(inputs: Inputs) -> bool:
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
    """Where each offset lies in `there`, which rises, if it does."""
    last = len(there) - 1
    if there[-1] - there[0] == last:  # without a gap
        at: Column = np.clip(offsets - there[0], 0, last)
    else:
        at = np.minimum(np.searchsorted(there, offsets), last)
    return at


def unrepeated(inputs: Inputs) -> bool:
    """No two records of the final read are alike in their values."""
    final = inputs.final
    if final is None:
        return True
    values = np.sort(final["value_hash"].to_numpy())  # np.unique would hash: forty times slower
    return not (values[1:] == values[:-1]).any()


def in_order(inputs: Inputs) -> bool:
    """Each client's acknowledged sends with one key lie in the order of their invocation."""
    outcome, offset, client, key, op = _columns(
        inputs.sends, "outcome", "offset", "client", "key_hash", "op"
    )
    judged = (outcome == OperationType.OK) & (offset >= 0)
    offset, client, key, op = offset[judged], client[judged], key[judged], op[judged]
    order = _by_client(client)
    same = client[order][1:] == client[order][:-1]
    rises = (np.diff(op[order]) > 0) & (np.diff(offset[order]) > 0)
    if (rises | ~same).all():  # whatever the keys
        return True
    order = np.lexsort((op, key, client))
    same = (np.diff(client[order].astype(np.int64)) == 0) & (key[order][1:] == key[order][:-1])
    return not (same & (np.diff(offset[order]) < 0)).any()


def _by_client(client: Column) -> Column:
    """A stable order; few clients are sorted by radix."""
    few = not len(client) or client.max() < 1 << 16
    return np.argsort(client.astype(np.uint16) if few else client, kind="stable")


def read_in_order(inputs: Inputs) -> bool:
    """Every reader read one offset after the other, without a jump."""
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
