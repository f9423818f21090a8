"""Checks of records: the operations that clients recorded, against the final read and the replicas' logs (L1).

Legal, and therefore not reported: gaps between offsets; a record of an operation with outcome `info`, whether the log
has it or not (but at most once); any order of sends that were never acknowledged; a consumer that jumps where its
position was set (an assignment, a revocation, a seek); everything below the low watermark (retention), and what
compaction removed (`removals.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import BREAKS, OperationFunction, OperationType
from ...histories.segments import TRANSACTIONAL
from ...wording import counted, times
from ..rows import OperationRow
from . import quick
from .client_epochs import describe_epochs
from .early_removals import describe_early
from .findings import Description, PartitionFindings, operation_rows
from .inputs import PartitionInputs
from .removals import begins_legally, removed, superseded

IDENTITY = ["key_hash", "value_hash"]
CONFIRMED = ["kind", "offset", *IDENTITY]


class OneOffset(NamedTuple):
    """The offset of a record."""

    offset: int


class LostRecord(NamedTuple):
    """A record that was acknowledged (`acked`) or delivered; `missing`: nothing is at its offset."""

    offset: int
    acked: bool
    missing: bool


class Sends(NamedTuple):
    """How often a record was sent without an offset in a response, and how often the log has it."""

    key_hash: int
    value_hash: int
    sent: int
    there: int


class Copies(NamedTuple):
    """How often a record was sent, how often the log has it, and where."""

    key_hash: int
    value_hash: int
    sent: int
    there: int
    offset: list[int]


class Step(NamedTuple):
    """Two reads of a consumer, one after the other, and how many records of the final read are between them."""

    client: int
    op_before: int
    op: int
    before: int
    offset: int
    set_by: int | None
    """The operation that set its position before."""
    between: int


def has_offsets(log: pl.DataFrame, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return for each offset whether the log has a batch with it."""
    if not len(log):
        return np.zeros(len(offsets), np.bool_)
    at = np.searchsorted(log["base_offset"].to_numpy(), offsets, "right") - 1
    return (at >= 0) & (log["last_offset"].to_numpy()[at] >= offsets)


def holders(inputs: PartitionInputs, offsets: pl.Series) -> npt.NDArray[np.int64]:
    """Return for each offset how many replicas' logs have a batch with it, or begin legally after it."""
    wanted = offsets.to_numpy()
    held = np.zeros(len(wanted), np.int64)
    for node, log in inputs.logs.items():
        held += has_offsets(log, wanted) | (wanted < begins_legally(inputs.job, node, log))
    return held


def confirmed_records(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the records that a client has with an offset: acknowledged sends, and reads.

    With a final read, only those which it has not, or not unchanged: a check of records finds nothing in the others.
    """
    if inputs.final is not None:
        return pl.concat([frame.select(CONFIRMED) for frame in quick.strays(inputs)])
    confirmed = [inputs.acked, inputs.polls.filter(pl.col("kind") == OperationFunction.POLL)]
    return pl.concat([frame.select(CONFIRMED) for frame in confirmed]).filter(pl.col("offset") >= 0)


def _operations_at(inputs: PartitionInputs, offset: int) -> list[OperationRow]:
    """Return every operation with this offset."""
    at = pl.col("offset") == offset
    rows = operation_rows(inputs.sends.filter(at)) + operation_rows(inputs.polls.filter(at))
    if inputs.final is not None:
        rows += operation_rows(inputs.final.filter(at), "final read")
    return rows


def lost_writes(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """lost-write and unseen: a record that was acknowledged or read is not in the final read at its offset."""
    if quick.agrees(inputs):
        return
    confirmed = confirmed_records(inputs).filter(pl.col("offset") >= inputs.low)
    if not inputs.to_the_end:
        confirmed = confirmed.filter(pl.col("offset") < inputs.high)
    if inputs.final is None:
        _lost_in_logs(inputs, findings, confirmed)
        return
    final = quick.final_rows(inputs, confirmed["offset"].to_numpy()).select(
        "offset", *(pl.col(name).alias(f"final_{name}") for name in IDENTITY)
    )
    compared = confirmed.join(final, on="offset", how="left")
    missing = pl.col("final_value_hash").is_null()
    explained = pl.Series(superseded(inputs, compared))
    changed = (pl.col("key_hash") != pl.col("final_key_hash")) | (pl.col("value_hash") != pl.col("final_value_hash"))
    bad = (
        compared.with_columns(missing.alias("missing"))
        .filter((pl.col("missing") & ~explained) | changed)
        .group_by("offset")
        .agg(pl.col("missing").all(), (pl.col("kind") == OperationFunction.SEND).any().alias("acked"))
        .sort("offset")
    )
    held = holders(inputs, bad["offset"])
    high = inputs.high if inputs.high is not None else 0
    everywhere = held == len(inputs.logs) if inputs.logs else bad["offset"].to_numpy() < high
    everywhere &= inputs.to_the_end & ~removed(inputs, bad["offset"].to_numpy())  # a cleaned batch may lack the record
    bad = bad.with_columns(pl.Series("unseen", bad["missing"].to_numpy() & everywhere), pl.Series("held", held))
    findings.lost_offsets.update(bad["offset"].to_list())
    findings.add_each("lost-write", bad.filter(~pl.col("unseen")), LostRecord, lambda row: _describe_lost(inputs, row))
    findings.add_each("unseen", bad.filter("unseen"), OneOffset, lambda row: _describe_unseen(inputs, row.offset))


def _describe_lost(inputs: PartitionInputs, row: LostRecord) -> Description:
    offset = row.offset
    event = "acknowledged" if row.acked else "delivered to a consumer"
    if not row.missing:
        where = ": lost in the brokers" if inputs.logs else ""
        problem = f"the final read has another record at offset {offset}{where}"
    elif offset < inputs.job.cleaned_end:
        problem = (
            "compaction removed it, although the final read has no later record of its key, or before "
            "min.compaction.lag.ms or delete.retention.ms had passed: lost in the brokers"
        )
    elif inputs.logs:
        problem = (
            f"the final read has no record at offset {offset}, and {_brokers_with(inputs, offset)}: lost in the brokers"
        )
    elif not inputs.to_the_end:
        problem = f"no reader received it, although readers received offsets up to {(inputs.high or 0) - 1}"
    else:
        problem = f"the final high watermark is {inputs.high}, expected a higher one"
    early = describe_early(inputs.early, offset)
    text = f"a record was {event} at offset {offset}, but {problem}{early}"
    return [offset], _operations_at(inputs, offset), text


def _brokers_with(inputs: PartitionInputs, offset: int) -> str:
    """Return a clause that says which brokers' logs have the offset."""
    wanted = np.array([offset], np.int64)
    have = [str(node) for node, log in sorted(inputs.logs.items()) if has_offsets(log, wanted).all()]
    everywhere = ", ".join(map(str, sorted(inputs.logs)))
    if not have:
        return f"none of brokers {everywhere} has the offset in its log"
    if len(have) == 1:
        return f"only broker {have[0]} of {everywhere} has the offset in its log"
    return f"only brokers {', '.join(have)} of {everywhere} have the offset in their logs"


def _describe_unseen(inputs: PartitionInputs, offset: int) -> Description:
    if inputs.logs:
        place = f"the logs of brokers {', '.join(map(str, sorted(inputs.logs)))} have offset {offset}"
        where = "lost on the way to the consumer"
    else:
        place = f"offset {offset} is below the final high watermark {inputs.high}"
        where = "without a replica's log it is not known whether the brokers have it"
    text = f"{place}, but the final read has no record there: {where}"
    return [offset], _operations_at(inputs, offset), text


def _lost_in_logs(inputs: PartitionInputs, findings: PartitionFindings, confirmed: pl.DataFrame) -> None:
    """Report lost writes without a final read: only the presence of offsets in the logs can be checked then."""
    if not inputs.logs:
        return
    offsets = confirmed.select("offset").unique().sort("offset")
    offsets = offsets.filter(pl.Series(~removed(inputs, offsets["offset"].to_numpy())))
    held = holders(inputs, offsets["offset"])
    bad = offsets.with_columns(pl.Series("held", held)).filter(pl.col("held") == 0)
    findings.lost_offsets.update(bad["offset"].to_list())
    findings.add_each(
        "lost-write",
        bad,
        OneOffset,
        lambda row: (
            [row.offset],
            _operations_at(inputs, row.offset),
            f"a record was confirmed at offset {row.offset}, but {_brokers_with(inputs, row.offset)}",
        ),
    )


def lost_without_offset(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """lost-write of sends that were acknowledged without an offset: the log has fewer copies than there were sends.

    Acknowledgements without an offset exist with acks=0, and where librdkafka concludes from a later success that an
    earlier request was persisted.
    """
    outcome, offset = (inputs.sends[name].to_numpy() for name in ("outcome", "offset"))
    if not ((outcome == OperationType.OK) & (offset < 0)).any():
        return
    unplaced = inputs.acked.filter(pl.col("offset") < 0)
    if inputs.final is None or inputs.low > 0 or inputs.job.cleaned_end or not len(unplaced):
        return
    if not inputs.to_the_end:
        return
    sent = inputs.acked.group_by(IDENTITY).agg(pl.len().alias("sent"), (pl.col("offset") < 0).sum().alias("unplaced"))
    there = inputs.final.group_by(IDENTITY).agg(pl.len().alias("there"))
    short = (
        sent.filter(pl.col("unplaced") > 0)
        .join(there, on=IDENTITY, how="left")
        .with_columns(pl.col("there").fill_null(0))
        .filter(pl.col("there") < pl.col("sent"))
        .with_columns(
            pl.min_horizontal(pl.col("sent").cast(pl.Int64) - pl.col("there"), pl.col("unplaced")).alias("lost")
        )
        .sort(IDENTITY)
    )
    each = short.select(pl.all().repeat_by("lost")).explode(*short.columns) if len(short) else short

    def describe(row: Sends) -> Description:
        sends = unplaced.filter((pl.col("key_hash") == row.key_hash) & (pl.col("value_hash") == row.value_hash))
        text = (
            f"a record was sent and acknowledged {times(row.sent)}, without an offset, but the final read has it "
            f"{times(row.there)}"
        )
        return [], operation_rows(sends), text

    findings.add_each("lost-write", each, Sends, describe)


def inconsistent_offsets(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """inconsistent-offsets: two records with the same offset, between acknowledgements, reads and the final read."""
    whole = inputs.low <= 0 and inputs.to_the_end
    if whole and quick.agrees(inputs):  # which compares only what the final read may have
        return
    frames = [confirmed_records(inputs)]
    if inputs.final is not None:  # the records at the offsets of the others
        offsets = frames[0]["offset"].unique()
        if not len(offsets):
            return
        there = quick.final_rows(inputs, offsets.to_numpy())
        at = pl.col("offset").is_in(offsets.implode())
        acked = inputs.sends.filter(at & (pl.col("outcome") == OperationType.OK))
        reads = inputs.polls.filter(at & (pl.col("kind") == OperationFunction.POLL))
        frames = [frame.select(CONFIRMED) for frame in (acked, reads, there)]
    key, value = pl.col("key_hash"), pl.col("value_hash")
    bad = (
        pl.concat(frames)
        .group_by("offset")
        .agg(((key.min() != key.max()) | (value.min() != value.max())).alias("bad"))
        .filter("bad")
        .sort("offset")
    )
    findings.add_each(
        "inconsistent-offsets",
        bad,
        OneOffset,
        lambda row: (
            [row.offset],
            _operations_at(inputs, row.offset),
            f"clients received different records for offset {row.offset}, expected the same record",
        ),
    )


def duplicates(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """duplicate: the final read has a recorded record more often than it can have been sent."""
    repeated = quick.repeated_values(inputs)
    if inputs.final is None or not len(repeated):
        return
    several = pl.col("value_hash").is_in(pl.Series(repeated).implode())
    sent = pl.concat([frame.filter(several).select(IDENTITY) for frame in (inputs.sends, inputs.pending)])
    counted = sent.group_by(IDENTITY).agg(pl.len().alias("sent"))
    there = inputs.visible().filter(several).group_by(IDENTITY).agg(pl.len().alias("there"), pl.col("offset"))
    bad = (
        there.join(counted, on=IDENTITY)
        .filter(pl.col("there") > pl.col("sent"))
        .with_columns(pl.col("offset").list.first().alias("first"))
        .sort("first")
    )

    def describe(row: Copies) -> Description:
        same = (pl.col("key_hash") == row.key_hash) & (pl.col("value_hash") == row.value_hash)
        assert inputs.final is not None
        rows = operation_rows(inputs.sends.filter(same)) + operation_rows(inputs.final.filter(same), "final read")
        text = f"a record was sent {times(row.sent)}, but the log has it {times(row.there)}"
        epochs = describe_epochs(inputs, row.offset)
        return row.offset, rows, (text, ": ", *epochs) if epochs else text

    findings.duplicate_offsets.update(bad["offset"].explode().to_list() if len(bad) else ())
    findings.add_each("duplicate", bad, Copies, describe)


def readable_offsets(inputs: PartitionInputs) -> npt.NDArray[np.int64]:
    """Return the offsets of the final read, which exists, that no reader may pass over."""
    assert inputs.final is not None
    there = inputs.final["offset"].to_numpy()
    return there[~_transactional(inputs, there)]


def _transactional(inputs: PartitionInputs, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return for each offset whether its batch is of a transaction: a reader of committed data may pass over it."""
    found = np.zeros(len(offsets), np.bool_)
    for log in inputs.logs.values():
        batches = log.filter((pl.col("attributes") & TRANSACTIONAL) != 0)
        if len(batches):
            found |= has_offsets(batches, offsets)
    return found


def _whose_position(row: Step) -> str:
    """Return a clause on who set the position that the consumer reads from; empty where no row says it."""
    if row.set_by is None:
        return ""
    if row.set_by == OperationFunction.REBALANCE:
        return ", to which its group had assigned the partition,"
    return ", whose position the application had set before,"


def _continues(group: list[str]) -> pl.Expr:
    """Return whether a read must follow the read before it, which is of the same transaction, or of none."""
    before, begun = (pl.col(name).shift(1).over(group) for name in ("outcome", "invoked_ns"))
    same = (before == pl.col("outcome")) & (begun == pl.col("invoked_ns"))
    return (before == OperationType.OK) | same


def reading_order(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """nonmonotonic-poll and poll-skip: a consumer whose position was not set went back, or passed over a record."""
    if quick.read_in_order(inputs):
        return
    group = ["client", "session"]
    steps = (
        inputs.polls.sort("client", "op")
        .with_columns(
            pl.col("kind").is_in(BREAKS).cum_sum().over("client").alias("session"),
            pl.when(pl.col("kind").is_in(BREAKS)).then("kind").forward_fill().over("client").alias("set_by"),
        )
        .filter(pl.col("kind") == OperationFunction.POLL)
        .with_columns(
            pl.col("offset").shift(1).over(group).alias("before"),
            pl.col("op").shift(1).over(group).alias("op_before"),
            _continues(group).alias("continues"),
        )
        .filter(pl.col("before").is_not_null() & pl.col("continues"))
    )

    def pair(row: Step) -> list[OperationRow]:
        reads = (pl.col("client") == row.client) & pl.col("op").is_in([row.op_before, row.op])
        return operation_rows(inputs.polls.filter(reads).sort("op"))

    back = steps.filter(pl.col("offset") <= pl.col("before")).sort("client", "op").with_columns(between=pl.lit(0))
    findings.add_each(
        "nonmonotonic-poll",
        back,
        Step,
        lambda row: (
            [row.before, row.offset],
            pair(row),
            f"a consumer{_whose_position(row)} read offset {row.offset} after {row.before}, expected higher",
        ),
    )
    if inputs.final is None:
        return
    there = readable_offsets(inputs)
    ahead = steps.filter(pl.col("offset") > pl.col("before") + 1)
    between = np.searchsorted(there, ahead["offset"].to_numpy(), "left") - np.searchsorted(
        there, ahead["before"].to_numpy(), "right"
    )
    skipped = ahead.with_columns(pl.Series("between", between)).filter(pl.col("between") > 0)
    findings.add_each(
        "poll-skip",
        skipped.sort("client", "op"),
        Step,
        lambda row: (
            [row.before, row.offset],
            pair(row),
            (
                f"a consumer{_whose_position(row)} read offset {row.offset} after {row.before}, past "
                f"{counted(row.between, 'record')} that it did not receive"
            ),
        ),
    )
