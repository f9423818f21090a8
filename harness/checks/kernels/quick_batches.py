"""Fast tests that the batches of a partition have no anomaly, as `quick.py` has them for records.

Each function returns True only when its check cannot find an anomaly; after False the check itself runs. They compare
arrays, because most partitions are small, and a polars query takes some tenths of a millisecond however few its rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.segments import CONTROL
from .inputs import LOG_APPEND_TIME, SEQUENCE, SEQUENCES, PartitionInputs

Column = npt.NDArray[np.int64]


def _column(frame: pl.DataFrame, name: str) -> Column:
    return frame[name].to_numpy().astype(np.int64)


def _rises(values: Column) -> bool:
    return bool((np.diff(values) > 0).all())


def whole_log(log: pl.DataFrame, cleaned_end: int) -> bool:
    """True when a log has no corrupt batch, and neither offsets nor leader epochs that `replicas.each_log` reports."""
    base, last = _column(log, "base_offset"), _column(log, "last_offset")
    follows = base[1:] == last[:-1] + 1
    follows |= (base[1:] <= cleaned_end) & (base[1:] > last[:-1])
    epochs = _column(log, "leader_epoch")
    return bool(log["crc_good"].all() and follows.all() and (np.diff(epochs) >= 0).all())


def same_logs(inputs: PartitionInputs, *names: str) -> bool:
    """True when each replica's log has the batches with which the longest log begins, and each batch once.

    `names`: columns that are compared besides the offsets, the CRC and the leader epoch.
    """
    longest = _longest(inputs)
    if not _rises(_column(longest, "base_offset")):
        return False
    for name in ("base_offset", "last_offset", "crc", "leader_epoch", *names):
        expected = _column(longest, name)
        for log in inputs.logs.values():
            if log is not longest and not np.array_equal(_column(log, name), expected[: len(log)]):
                return False
    return True


def _longest(inputs: PartitionInputs) -> pl.DataFrame:
    return max(inputs.logs.values(), key=len)


def confirmed_are_kept(inputs: PartitionInputs) -> bool:
    """True when every log, and the final read if there is one, has every batch that a client has.

    Then no batch is lost, unseen, or different from another one with the same last offset. Computed once.
    """
    if inputs.confirmed_kept is None:
        inputs.confirmed_kept = _confirmed_are_kept(inputs)
    return inputs.confirmed_kept


def _confirmed_are_kept(inputs: PartitionInputs) -> bool:
    first = max(inputs.low, inputs.job.cleaned_end)
    for frame in (inputs.acked_batches, inputs.fetched):
        base = _column(frame, "base_offset")
        judged = base >= first
        base, last = base[judged], _column(frame, "last_offset")[judged]
        crc = _column(frame, "crc")[judged]
        if not len(base):
            continue
        if not inputs.logs or not all(_has(log, last, crc) for log in inputs.logs.values()):
            return False
        if inputs.final is not None and not are_complete(inputs.final, base, last).all():
            return False
    return True


def _has(log: pl.DataFrame, last: Column, crc: Column) -> bool:
    there = _column(log, "last_offset")
    if not len(there) or not _rises(there) or (_column(log, "attributes") & LOG_APPEND_TIME).any():
        return False
    at = np.minimum(np.searchsorted(there, last), len(there) - 1)
    return bool(((there[at] == last) & (_column(log, "crc")[at] == crc)).all())


def are_complete(final: pl.DataFrame, base: Column, last: Column) -> npt.NDArray[np.bool_]:
    """Return for each batch whether the final read has every offset of it."""
    there = final["offset"].to_numpy()
    found = np.searchsorted(there, last, "right") - np.searchsorted(there, base, "left")
    complete: npt.NDArray[np.bool_] = found >= last - base + 1
    return complete


def sequences_rise(inputs: PartitionInputs) -> bool:
    """True when the sequences of each producer id and epoch rise along the offsets of all logs, and logs are the same.

    Then no sequence is at two offsets, and none decreases. Computed once.
    """
    if inputs.rising is None:
        inputs.rising = _sequences_rise(inputs)
    return inputs.rising


def _sequences_rise(inputs: PartitionInputs) -> bool:
    if not inputs.logs or not same_logs(inputs, *SEQUENCE):
        return False
    log = _longest(inputs)
    producer, epoch, sequence = (_column(log, name) for name in SEQUENCE)
    judged = (producer >= 0) & (sequence >= 0) & ((_column(log, "attributes") & CONTROL) == 0)
    producer, epoch, sequence = producer[judged], epoch[judged], sequence[judged]
    order = np.lexsort((epoch, producer))  # stable: by offset in each group
    same = (np.diff(producer[order]) == 0) & (np.diff(epoch[order]) == 0)
    steps = np.diff(sequence[order])[same]
    return bool(((steps > 0) & (steps < SEQUENCES // 2)).all())


def epochs_agree(log: pl.DataFrame, entries: list[tuple[int, int]]) -> bool:
    """True when a leader epoch cache gives each batch of the log the epoch that the batch has."""
    cached, start = np.array(entries, np.int64).T
    if not (np.diff(start) >= 0).all():
        return False
    at = np.searchsorted(start, _column(log, "base_offset"), "right") - 1
    return bool(((at < 0) | (cached[at] == _column(log, "leader_epoch"))).all())
