"""Transactions of one partition as times: what readers of committed data may read, and what was never completed.

Rows: `tap.transactions` (`cluster/tap/layouts.py`), as columns. A state may have several rows, because a new
coordinator writes what it found in the log: the first counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from harrow.cluster.host.seam import COMPLETE_ABORT, COMPLETE_COMMIT, PREPARE_ABORT, PREPARE_COMMIT, TRANSACTION_ONGOING

from .spans import EVER

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Columns = dict[str, npt.NDArray[Any]]

FOREVER_NS = EVER[0][1]


class Transactions(NamedTuple):
    """The transactions with records in one partition, one an entry; `FOREVER_NS` for what did not happen."""

    transactional_id: Numbers
    started_ns: Numbers
    decided_ns: Numbers
    completed_ns: Numbers


def transactions_of(rows: Columns) -> Transactions:
    """Return the transactions that the rows of one partition show."""
    import numpy as np

    order = np.lexsort((rows["time_ns"], rows["producer_id"]))
    state, producer = rows["state"][order], rows["producer_id"][order]
    times = rows["time_ns"][order].astype(np.int64)
    complete = np.isin(state, (COMPLETE_COMMIT, COMPLETE_ABORT))
    decided = np.isin(state, (PREPARE_COMMIT, PREPARE_ABORT))
    is_first = np.ones(len(order), bool)  # of its producer
    is_first[1:] = producer[1:] != producer[:-1]
    after_end = is_first.copy()
    after_end[1:] |= complete[:-1]
    starts = np.flatnonzero(after_end & (state == TRANSACTION_ONGOING))
    number = np.cumsum(np.isin(np.arange(len(order)), starts)) - 1  # of the transaction of each row
    same = (number >= 0) & (producer == producer[starts[np.maximum(number, 0)]] if len(starts) else False)

    def first(rows_of: npt.NDArray[np.bool_]) -> Numbers:
        found = np.full(len(starts), FOREVER_NS, np.int64)
        chosen = np.flatnonzero(rows_of & same)
        np.minimum.at(found, number[chosen], times[chosen])
        return found

    return Transactions(
        transactional_id=rows["transactional_id"][order][starts].astype(np.int64),
        started_ns=times[starts],
        decided_ns=first(decided),
        completed_ns=first(complete),
    )


def readable_times(found: Transactions) -> tuple[Numbers, Numbers]:
    """Return (times, readable): at each time, a reader of committed data may read what was acknowledged by `readable`.

    A transaction that is open hides what was acknowledged after its start. So the times are those at which a
    transaction was completed, ascending, and `readable` is the start of the earliest one that was still open then.
    """
    import numpy as np

    order = np.argsort(found.completed_ns, kind="stable")
    times, started = found.completed_ns[order], found.started_ns[order]
    later = np.minimum.accumulate(started[::-1])[::-1]  # the earliest start from here on
    open_since = np.append(later[1:], FOREVER_NS)
    done = times < FOREVER_NS
    return times[done], np.minimum(times, open_since)[done]
