"""Where a record is from: `unknown-origin`, `failed-write` and `read-before-send` (L1).

* `unknown-origin`: the final read or a reader has a record that no recorded send has sent. Decidable only where the
  history has every send (`PartitionJob.all_sends`). Of the taps `unsent_batches.py` judges what is decidable: a batch
  that a broker appended and whose response it never sent has no row.
* `failed-write` (Jepsen's G1a): the record of a send that certainly failed, or whose transaction was aborted, and that
  no other send has sent. Decidable also where taps saw no batch at its offset and none with the CRC of its batch:
  another producer of the same bytes has a row, and so has a send that was refused after its effect. Where readers read
  uncommitted (`PartitionJob.reads_committed`) it is not judged.
* `read-before-send`: a reader received a record before every send that can have written it began. A send can have
  written it when it has the same key and value, and was acknowledged with that offset; without such a send, where the
  history has every send, when it may have happened (ok or info) at all.

Records of aborted transactions, which a log shows, are no part of the final read here (`PartitionInputs.visible`).
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from ...histories.format import OperationFunction
from ..rows import OperationRow
from . import quick
from .findings import Description, PartitionFindings, operation_rows
from .identical_records import covered
from .inputs import PartitionInputs

VALUE = ["key_hash", "value_hash"]
PLACE = ["offset", *VALUE]


class PlacedRecord(NamedTuple):
    """A record at an offset, without its client."""

    offset: int
    key_hash: int
    value_hash: int

    @property
    def is_same(self) -> pl.Expr:
        """Whether a row has its key and its value."""
        return (pl.col("key_hash") == self.key_hash) & (pl.col("value_hash") == self.value_hash)


class EarlyRead(NamedTuple):
    """A read of a record, and when the first send that can have written it began."""

    offset: int
    key_hash: int
    value_hash: int
    client: int
    op: int
    time_ns: int
    sent_ns: int


def origins_of_records(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """unknown-origin and failed-write."""
    job = inputs.job
    of_failed = inputs.failed()
    if not job.all_sends and not (len(of_failed) and len(inputs.produced)):
        return
    if quick.accounted(inputs):
        return
    sent = pl.concat([inputs.sends.select(VALUE), inputs.pending.select(VALUE)])
    strange = _received(inputs).join(sent, on=VALUE, how="anti").sort(PLACE)
    failed = strange.join(of_failed.select(VALUE), on=VALUE, how="semi").sort(PLACE)
    if not job.all_sends and len(failed):
        failed = failed.filter(pl.Series(~covered(failed["offset"].to_numpy(), _tapped(inputs))))
    if job.reads_committed:
        findings.add_each("failed-write", failed, PlacedRecord, lambda row: _describe_failed(inputs, row))
    if job.all_sends:
        unknown = strange.join(of_failed.select(VALUE), on=VALUE, how="anti").sort(PLACE)
        findings.add_each("unknown-origin", unknown, PlacedRecord, lambda row: _describe_unknown(inputs, row))


def _tapped(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the places of all batches that a tap saw: with the response's offset, or after an error by the CRC."""
    place = ["base_offset", "last_offset"]
    answered = inputs.produced.filter(pl.col("base_offset") >= 0).select(place)
    refused = inputs.produced.filter(pl.col("base_offset") < 0)["crc"].cast(pl.Int64)
    logged = [
        log.filter(pl.col("crc").cast(pl.Int64).is_in(refused.implode())).select(place) for log in inputs.logs.values()
    ]
    return pl.concat([answered, *logged])


def _received(inputs: PartitionInputs) -> pl.DataFrame:
    """Return each different record that the final read or a reader has, by place."""
    reads = inputs.polls.filter(pl.col("kind") == OperationFunction.POLL).select(PLACE)
    if inputs.final is None:
        return reads.unique()
    return pl.concat([inputs.visible().select(PLACE), reads]).unique()


def _reads_of(inputs: PartitionInputs, row: PlacedRecord) -> list[OperationRow]:
    there = (pl.col("offset") == row.offset) & row.is_same
    reads = inputs.polls.filter((pl.col("kind") == OperationFunction.POLL) & there)
    if len(reads) or inputs.final is None:
        return operation_rows(reads)
    return operation_rows(inputs.final.filter(there), "final read")


def _describe_failed(inputs: PartitionInputs, row: PlacedRecord) -> Description:
    sends = inputs.failed().filter(row.is_same)
    text = f"the record at offset {row.offset} is of a send that had certainly failed, or of an aborted transaction"
    return [row.offset], [*operation_rows(sends), *_reads_of(inputs, row)], text


def _describe_unknown(inputs: PartitionInputs, row: PlacedRecord) -> Description:
    text = f"no send of the history has sent the record at offset {row.offset}"
    return [row.offset], _reads_of(inputs, row), text


def reads_before_sends(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """read-before-send: a reader received a record before its send began."""
    if not len(inputs.polls) or not len(inputs.sends) or quick.read_after_sent(inputs):
        return
    reads = inputs.polls.filter(pl.col("kind") == OperationFunction.POLL)
    acked = inputs.acked.group_by(PLACE).agg(pl.col("invoked_ns").min().alias("sent_ns"))
    known = reads.join(acked, on=PLACE, how="left")
    if inputs.job.all_sends:
        offered = pl.concat([frame.select(*VALUE, "invoked_ns") for frame in (inputs.sends, inputs.pending)])
        any_of = offered.group_by(VALUE).agg(pl.col("invoked_ns").min().alias("any_ns"))
        known = known.join(any_of, on=VALUE, how="left").with_columns(pl.coalesce("sent_ns", "any_ns").alias("sent_ns"))
    bad = known.filter(pl.col("time_ns") < pl.col("sent_ns")).sort("offset", "client", "op")

    def describe(row: EarlyRead) -> Description:
        same = (pl.col("key_hash") == row.key_hash) & (pl.col("value_hash") == row.value_hash)
        read = inputs.polls.filter((pl.col("client") == row.client) & (pl.col("op") == row.op))
        early_ms = (row.sent_ns - row.time_ns) / 1e6
        text = f"a reader received the record at offset {row.offset} {early_ms:.3f} ms before its send began"
        return ([row.offset], [*operation_rows(read), *operation_rows(inputs.sends.filter(same))], text)

    findings.add_each("read-before-send", bad, EarlyRead, describe)
