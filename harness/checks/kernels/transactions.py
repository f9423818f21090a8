"""Checks of transactions in one topic-partition: what readers of committed data received, and what became of each.

* `aborted-read` (Adya's G1a): a fetch of committed data delivered a record whose transaction was aborted, and the
  response did not list the transaction, so that the client did not drop the record;
* `precommitted-read`: such a fetch delivered a record before the coordinator had decided on the commit;
* `torn-transaction`: the marker in this partition is not what the coordinator decided for the whole transaction, so
  that the transaction is committed in one partition and aborted in another;
* `stuck-transaction`: the coordinator still had a transaction open after its timeout, or decided without markers;
* `stuck-lso`: the log has a transaction without marker that its coordinator has completed, or never had.

Readers of uncommitted data are not judged. A transaction is stuck only `PATIENCE_NS` after it should have ended and
after the last fault: the coordinator looks for timeouts every ten seconds, and a new coordinator begins again.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import polars as pl
from harrow.cluster.host.seam import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    END_UNKNOWN,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTION_ONGOING,
)
from harrow.cluster.tap.layouts import FLAG_FILTERED, FLAG_READ_COMMITTED

from ..client_names import ClientNumber
from ..rows import OperationRow
from .findings import Description, PartitionFindings, batch_rows, rows_of
from .inputs import PartitionInputs
from .log_transactions import COMMITS, log_transactions, transactional_batches

PATIENCE_NS = 30_000_000_000
MARKERS_NS = 2_000_000_000
"""Markers follow the response to EndTxn, so a run may legally end before them."""
MS = 1_000_000


class Delivery(NamedTuple):
    """A delivery of a batch, which is `at` this row of its frame."""

    at: int
    client: int
    base_offset: int
    last_offset: int


class Torn(NamedTuple):
    """A transaction of the log: its records (`size`), its marker, and whether the coordinator decided to commit it."""

    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    size: int
    marker: int
    decided: bool


class Unfinished(NamedTuple):
    """A transaction without marker; `produced_ns`: its last request, 0 where no tap has one."""

    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    size: int
    produced_ns: int


def committed_reads(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """aborted-read and precommitted-read."""
    batches = transactional_batches(inputs)
    if not len(batches):
        return
    flags = inputs.fetched["flags"]
    kept = ((flags & FLAG_READ_COMMITTED) != 0) & ((flags & FLAG_FILTERED) == 0)
    read = inputs.fetched.filter(kept & (inputs.fetched["producer_id"] >= 0))
    if not len(read):
        return
    read = (
        read.cast({"crc": pl.Int64})
        .join(batches.select("last_offset", "crc", "marker", "aborted", "produced_ns"), on=["last_offset", "crc"])
        .sort("completed_ns")
        .unique(["last_offset", "crc", "client"], keep="first", maintain_order=True)
        .with_columns((pl.col("last_offset") - pl.col("base_offset") + 1).alias("records"))
    )
    aborted = read.filter(pl.col("aborted").fill_null(value=False)).with_row_index("at")
    findings.add_each("aborted-read", aborted, Delivery, lambda row: _describe_read(aborted, row, "was aborted"))
    early = _before_decision(inputs, read.filter(~pl.col("aborted").fill_null(value=False))).with_row_index("at")
    findings.add_each(
        "precommitted-read", early, Delivery, lambda row: _describe_read(early, row, "was not decided yet")
    )


def _before_decision(inputs: PartitionInputs, read: pl.DataFrame) -> pl.DataFrame:
    """Return the deliveries without a commit decision between the produce request and the delivery."""
    known = inputs.coordinators.transactions
    decisions = (
        known.filter(pl.col("state").is_in([*COMMITS, END_UNKNOWN]))
        .select("producer_id", "time_ns", pl.col("time_ns").alias("decided_ns"))
        .sort("time_ns")
    )
    with_rows = known["producer_id"].unique().implode()
    return (
        read.filter(pl.col("producer_id").is_in(with_rows))
        .join_asof(decisions, left_on="completed_ns", right_on="time_ns", by="producer_id", check_sortedness=False)
        .filter(pl.col("decided_ns").is_null() | (pl.col("decided_ns") < pl.col("produced_ns")))
        .sort("last_offset", "client")
    )


def _describe_read(read: pl.DataFrame, row: Delivery, what: str) -> Description:
    (delivered,) = batch_rows(read[row.at], "fetched")
    in_the_log = delivered.copy()
    in_the_log["operation"] = "in the log"
    del in_the_log["client"], in_the_log["completed_ns"]
    first, last = row.base_offset, row.last_offset
    place = f"offset {first}" if first == last else f"offsets {first} to {last}"
    return (
        [first, last],
        [delivered, in_the_log],
        (ClientNumber(row.client), f" reads committed data and received {place} of a transaction that {what}"),
    )


def torn_transactions(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """torn-transaction: the marker of the log is not the decision of the coordinator."""
    found = log_transactions(inputs)
    if not len(found):
        return
    torn = found.filter(
        pl.col("marker").is_not_null() & pl.col("decided").is_not_null() & (pl.col("decided") == pl.col("aborted"))
    )

    def describe(row: Torn) -> Description:
        asked, got = ("commit", "abort") if row.decided else ("abort", "commit")
        text = (
            f"the coordinator decided to {asked} the transaction of producer id {row.producer_id}, and the marker "
            f"at offset {row.marker} {got}s its records here: other partitions have the decision"
        )
        return [row.base_offset, row.last_offset], [_first_batch(row)], text

    findings.add_each("torn-transaction", torn, Torn, describe)


def _first_batch(row: Torn | Unfinished) -> OperationRow:
    return {
        "operation": "in the log",
        "base_offset": row.base_offset,
        "last_offset": row.last_offset,
        "records": row.size,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
    }


def stuck(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """stuck-transaction and stuck-lso: transactions without marker when the run ended."""
    found = log_transactions(inputs) if inputs.end_ns else pl.DataFrame()
    if not len(found):
        return
    unfinished = found.filter(pl.col("marker").is_null())
    for row in rows_of(unfinished, Unfinished):
        name, text = _why_open(inputs, row)
        if name and text:
            findings.add_all(name, [row], partial(_describe_open, text))
        elif name:
            findings.doubt(
                name,
                f"a transaction of producer id {row.producer_id} in {findings.topic}-{findings.partition} had no "
                "marker yet when the run ended: whether it is stuck is not known",
            )


def _describe_open(text: str, row: Unfinished) -> Description:
    return [row.base_offset], [_first_batch(row)], text


def _why_open(inputs: PartitionInputs, row: Unfinished) -> tuple[str, str]:
    """Return the anomaly and its explanation; no explanation: it may still end; no anomaly: it is legally open."""
    known = inputs.coordinators.transactions
    own = known.filter(
        (pl.col("producer_id") == row.producer_id)
        & (pl.col("producer_epoch") == row.producer_epoch)
        & (pl.col("time_ns") >= row.produced_ns)
    )
    healed = max((end for _, end in inputs.job.windows if end <= inputs.end_ns), default=0)
    waited_ns = inputs.end_ns - max(row.produced_ns, healed)
    completed = own.filter(pl.col("state").is_in([COMPLETE_COMMIT, COMPLETE_ABORT]))
    if len(completed):
        return "stuck-lso", (
            f"the coordinator has completed the transaction of producer id {row.producer_id}, and the log has no "
            f"marker of it: readers of committed data receive nothing from offset {row.base_offset} on"
        )
    prepared = own.filter(pl.col("state").is_in([PREPARE_COMMIT, PREPARE_ABORT]))
    if len(prepared):
        since = max(int(prepared["time_ns"].min()), healed)  # type: ignore[arg-type]  # a number
        text = (
            f"the coordinator decided on the transaction of producer id {row.producer_id}, and did not write its "
            f"marker for {(inputs.end_ns - since) / 1e9:.1f} s"
        )
        if inputs.end_ns - since < MARKERS_NS:
            return "", ""
        return "stuck-transaction", text if inputs.end_ns - since > PATIENCE_NS else ""
    ongoing = known.filter((pl.col("producer_id") == row.producer_id) & (pl.col("state") == TRANSACTION_ONGOING))
    if len(ongoing):
        timeout_ns = int(ongoing["timeout_ms"][-1]) * MS
        text = (
            f"the transaction of producer id {row.producer_id} is still open {waited_ns / 1e9:.1f} s after its last "
            f"record, and its timeout is {timeout_ns / 1e9:.1f} s"
        )
        late = row.produced_ns > 0 and waited_ns > timeout_ns + PATIENCE_NS
        return ("stuck-transaction", text) if late else ("", "")
    if not len(known) or not row.produced_ns:
        return "", ""
    text = (
        f"no coordinator had the transaction of producer id {row.producer_id} that begins at offset "
        f"{row.base_offset}, so that none will end it"
    )
    return "stuck-lso", text if waited_ns > PATIENCE_NS else ""
