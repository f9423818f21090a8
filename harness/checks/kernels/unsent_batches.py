"""Batches of the log that no request accounts for: `unknown-origin` and `failed-write` of the taps (L1).

Every record of a topic was in a Produce request. Where the tap of a batch's leader has a row for each of them
(`PartitionJob.whole_taps`), the origin of the batch is decidable, of clients without recorders, too. A batch is

* `unknown-origin`: no row has its offsets, its CRC or its sequences;
* `failed-write`: all rows that have its CRC or its sequences were refused, each with an error that a broker returns
  only before it appends (`REFUSED`): the client knows that the record is not in the topic.

Nothing is claimed of

* batches of a leader epoch whose leader is not known or has no whole tap, those that the leader had when it was
  elected, and every batch of a topic that was created again;
* batches that compaction may have rewritten, or whose CRC a broker may have changed: with the timestamp of the append
  in the log, or with as many records as a batch that a row has with another error, or that is in no log;
* batches that the final read does not have, and those that may wait for their response: no batch behind them had one
  for `SETTLED_NS` when the final read ended. Control batches are the brokers' own;
* batches with a record of a recorded send that failed, which `origins.py` judges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from harrow.cluster.errors import error_name

from ...histories.segments import CONTROL
from .findings import Description, PartitionFindings, batch_rows
from .identical_records import covered
from .inputs import LOG_APPEND_TIME, SEQUENCE, PartitionInputs

SETTLED_NS = 1_000_000_000
REFUSED = (2, 3, 10, 17, 18, 19, 21, 29, 31, 32, 35, 42, 43, 44, 45, 47, 48, 49, 53, 59, 76, 87, 90, 120)
"""CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE, INVALID_TOPIC_EXCEPTION, RECORD_LIST_TOO_LARGE,
NOT_ENOUGH_REPLICAS, INVALID_REQUIRED_ACKS, three refusals of authorization (29, 31, 53), INVALID_TIMESTAMP,
UNSUPPORTED_VERSION, INVALID_REQUEST, UNSUPPORTED_FOR_MESSAGE_FORMAT, POLICY_VIOLATION, OUT_OF_ORDER_SEQUENCE_NUMBER,
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, UNKNOWN_PRODUCER_ID,
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, PRODUCER_FENCED, TRANSACTION_ABORTABLE."""


class Unsent(NamedTuple):
    """A batch without request, which is `at` this row of its frame; `leader`: the leader of its leader epoch."""

    at: int
    leader: int
    leader_epoch: int
    base_offset: int
    last_offset: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def batches_without_request(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """unknown-origin and failed-write of batches."""
    strange = _uncovered(inputs)
    if not len(strange):
        return
    rows = inputs.produced.select(
        pl.col(name).cast(pl.Int64) for name in ("crc", "count", "error", "base_offset", *SEQUENCE)
    )
    refused = (pl.col("base_offset") < 0) & pl.col("error").is_in(REFUSED)
    others = rows.filter(~refused)
    strange = strange.filter(~_is_of(strange, others) & ~pl.col("count").is_in(_unknown_contents(inputs, others)))
    is_known = _is_of(strange, rows)
    failed, unknown = (strange.filter(mask).with_row_index("at") for mask in (is_known, ~is_known))
    findings.add_each("failed-write", failed, Unsent, lambda row: _describe_refused(inputs, failed, row))
    findings.add_each("unknown-origin", unknown, Unsent, lambda row: _describe_unknown(unknown, row))


def _is_of(batches: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """Return for each batch whether a row has its CRC or its sequences."""
    crcs = rows["crc"].unique().to_list()
    known = set(rows.filter(pl.col("producer_id") >= 0).select(SEQUENCE).rows())
    same = [row in known for row in batches.select(SEQUENCE).rows()]
    return batches["crc"].is_in(crcs) | pl.Series(same, dtype=pl.Boolean)


def _uncovered(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the batches whose offsets no response had, and of which each request has a row, by offset."""
    job = inputs.job
    judged = job.whole_taps and job.leaderships and not job.created_ns and inputs.final is not None
    if not judged or _all_have_responses(inputs):
        return pl.DataFrame(schema={"base_offset": pl.Int64})
    assert inputs.final is not None, "it was asked above"
    began = _beginnings(inputs)
    plain = (pl.col("attributes") & (CONTROL | LOG_APPEND_TIME)) == 0
    least = max(inputs.low, job.cleaned_end)
    batches = (
        inputs.log_batches.filter(plain & (pl.col("base_offset") >= least) & (pl.col("last_offset") < _settled(inputs)))
        .join(began, on="leader_epoch", how="inner")
        .filter(pl.col("base_offset") >= pl.col("began"))
        .unique("base_offset", keep="first", maintain_order=True)
        .sort("base_offset")
    )
    responded = inputs.produced.filter(pl.col("base_offset") >= 0)
    batches = batches.filter(pl.Series(~covered(batches["base_offset"].to_numpy(), responded)))
    if not len(batches):
        return batches
    failed = inputs.failed().select("key_hash", "value_hash").unique()
    own = inputs.final.join(failed, on=["key_hash", "value_hash"], how="semi")["offset"].sort()
    has_record = _has_any(batches, inputs.final["offset"].to_numpy())
    return batches.filter(pl.Series(has_record & ~_has_any(batches, own.to_numpy())))


def _all_have_responses(inputs: PartitionInputs) -> bool:
    """Whether a response had the first offset of each data batch of the logs, which is usual."""
    responded = inputs.produced["base_offset"].to_numpy()
    for log in inputs.logs.values():
        data = (log["attributes"].to_numpy() & CONTROL) == 0
        if not np.isin(log["base_offset"].to_numpy()[data], responded).all():
            return False
    return True


def _has_any(
    batches: pl.DataFrame, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each batch whether it has one of the offsets, which ascend."""
    assert (np.diff(offsets) >= 0).all(), "offsets are searched and do not ascend"
    first = np.searchsorted(offsets, batches["base_offset"].to_numpy(), "left")
    return first < np.searchsorted(offsets, batches["last_offset"].to_numpy(), "right")


def _beginnings(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the leader epochs of leaders with a whole tap, and the offset at which each began."""
    found: dict[int, tuple[int, int]] = {}
    """Leader epoch → leader and where its log ended."""
    twice: set[int] = set()
    for row in sorted(inputs.job.leaderships, key=lambda row: row.t_ns):
        leader, _ = found.setdefault(row.leader_epoch, (row.leader, row.log_end))
        if leader != row.leader:
            twice.add(row.leader_epoch)
    whole = [
        (epoch, leader, begin)
        for epoch, (leader, begin) in found.items()
        if leader in inputs.job.whole_taps and epoch not in twice
    ]
    columns = ("leader_epoch", "leader", "began")
    return pl.DataFrame(whole, schema=dict.fromkeys(columns, pl.Int64), orient="row")


def _settled(inputs: PartitionInputs) -> int:
    """Return the offset below which every batch had time for its response."""
    in_time = inputs.produced.filter(
        (pl.col("base_offset") >= 0) & (pl.col("completed_ns") <= inputs.end_ns - SETTLED_NS)
    )
    return int(in_time["base_offset"].max() or 0) if len(in_time) else 0  # type: ignore[arg-type]  # an integer


def _unknown_contents(inputs: PartitionInputs, rows: pl.DataFrame) -> list[int]:
    """Return the numbers of records of the batches that may be in the log with another CRC."""
    logged = inputs.log_batches["crc"].unique().to_list()
    return rows.filter(~pl.col("crc").is_in(logged))["count"].unique().to_list()


def _describe_unknown(unknown: pl.DataFrame, row: Unsent) -> Description:
    text = (
        f"broker {row.leader} appended the batch at offsets {row.base_offset} to {row.last_offset} as leader "
        f"in leader epoch {row.leader_epoch}, and none of the Produce requests that it received has this batch"
    )
    return [row.base_offset, row.last_offset], batch_rows(unknown[row.at], "in the log"), text


def _describe_refused(inputs: PartitionInputs, failed: pl.DataFrame, row: Unsent) -> Description:
    same = pl.col("crc").cast(pl.Int64) == row.crc
    if row.producer_id >= 0:
        sequence = zip(SEQUENCE, (row.producer_id, row.producer_epoch, row.base_sequence), strict=True)
        same |= pl.all_horizontal(pl.col(name) == value for name, value in sequence)
    asked = inputs.produced.filter(same)
    errors = ", ".join(error_name(code) for code in asked["error"].unique().sort().to_list())
    text = (
        f"the log has the batch at offsets {row.base_offset} to {row.last_offset}, and brokers refused each "
        f"request with it, with {errors}"
    )
    operations = [*batch_rows(failed[row.at], "in the log"), *batch_rows(asked, "produced")]
    return [row.base_offset, row.last_offset], operations, text
