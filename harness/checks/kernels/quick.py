"""Whether a small partition is evidently clean: a few numpy passes that spare it most queries.

A polars query costs some tenths of a millisecond however few its rows, and a tiny history must be judged in an instant.
Each function here answers True only when its check (`records.py`) cannot find anything; on False, or beyond
`SMALL` rows, the check itself runs and speaks. It is decided here, never told.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...histories.format import Kind, Outcome
from .inputs import Inputs

SMALL = 50_000
Column = npt.NDArray[Any]


def _columns(frame: Any, *names: str) -> list[Column]:
    return [frame[name].to_numpy() for name in names]


def agrees(inputs: Inputs) -> bool:
    """Everything that a client was told lies in the final read, at that offset, unchanged."""
    final = inputs.final
    if final is None or len(inputs.sends) + len(inputs.polls) + len(final) > SMALL:
        return False
    there, keys, values = _columns(final, "offset", "key_hash", "value_hash")
    for frame, column, wanted in (
        (inputs.sends, "outcome", Outcome.OK),
        (inputs.polls, "kind", Kind.POLL),
    ):
        chosen, offset, key, value = _columns(frame, column, "offset", "key_hash", "value_hash")
        judged = (chosen == wanted) & (offset >= max(inputs.low, 0))
        if not judged.any():
            continue
        if not len(there):
            return False
        at = np.minimum(np.searchsorted(there, offset[judged]), len(there) - 1)
        same = (
            (there[at] == offset[judged])
            & (keys[at] == key[judged])
            & (values[at] == value[judged])
        )
        if not same.all():
            return False
    return True


def unrepeated(inputs: Inputs) -> bool:
    """No two records of the final read are alike in their values."""
    final = inputs.final
    if final is None:
        return True
    return len(final) <= SMALL and len(np.unique(final["value_hash"].to_numpy())) == len(final)


def in_order(inputs: Inputs) -> bool:
    """Each client's acknowledged sends with one key lie in the order of their invocation."""
    if len(inputs.sends) > SMALL:
        return False
    outcome, offset, client, key, op = _columns(
        inputs.sends, "outcome", "offset", "client", "key_hash", "op"
    )
    judged = (outcome == Outcome.OK) & (offset >= 0)
    offset, client, key, op = offset[judged], client[judged], key[judged], op[judged]
    order = np.lexsort((op, key, client))
    same = (np.diff(client[order].astype(np.int64)) == 0) & (key[order][1:] == key[order][:-1])
    return not (same & (np.diff(offset[order]) < 0)).any()


def read_in_order(inputs: Inputs) -> bool:
    """Every reader read one offset after the other, without a jump."""
    if not len(inputs.polls):
        return True
    if len(inputs.polls) > SMALL:
        return False
    kind, client, op, offset = _columns(inputs.polls, "kind", "client", "op", "offset")
    order = np.lexsort((op, client))
    follows = (np.diff(client[order].astype(np.int64)) == 0) & (kind[order] == Kind.POLL)[1:]
    follows &= (kind[order] == Kind.POLL)[:-1]
    return bool((np.diff(offset[order])[follows] == 1).all())
