"""Records that Kafka removed legally: compaction, retention, DeleteRecords (L6).

The evidence is in the job (`log_changes.py`). Where it explains that a record is not there, the record is not
`lost-write`. Where it hides whether the record was there, the verdict gets a doubt:

* below the low watermark: an acknowledged record that no client received before it was removed;
* below the cleaned offset: a batch of a producer that did not record its operations, because a tap has no keys.

A compacted record must have a later record of its key in the final read, or the key a known tombstone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import OperationFunction
from ..plans import PartitionJob
from .findings import LOSS, PartitionFindings
from .inputs import PartitionInputs

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
KEYED = ["key_hash", "value_hash"]


def begins_legally(job: PartitionJob, node: int, log: pl.DataFrame) -> int:
    """Return the offset at which a replica's log begins if segments before it were removed by retention, else 0."""
    deleted = job.deleted_heads.get(str(node))
    if deleted is None or not len(log):
        return 0
    first = int(log["base_offset"][0])
    return first if first > deleted else 0


def removed(inputs: PartitionInputs, offsets: Offsets) -> Mask:
    """Return for each offset whether compaction may have removed its record."""
    return offsets < inputs.job.cleaned_end


def superseded(inputs: PartitionInputs, rows: pl.DataFrame) -> Mask:
    """Return for each row (`offset`, `key_hash`) whether compaction explains that the final read lacks it.

    True where the final read has a later record of the key, or a client sent or received a tombstone of it. Where a
    producer did not record its operations, its tombstones are unknown, and any key may have had one.
    """
    cleaned: Mask = removed(inputs, rows["offset"].to_numpy())
    if not cleaned.any() or inputs.final is None:
        return cleaned
    if unrecorded_records(inputs):
        return cleaned
    latest = inputs.final.group_by("key_hash").agg(pl.col("offset").max().alias("latest"))
    known = [inputs.sends, inputs.pending, inputs.polls]
    tombstones = pl.concat([frame.select(KEYED) for frame in known]).filter(
        pl.col("value_hash") == 0
    )
    joined = rows.join(latest, on="key_hash", how="left", maintain_order="left")
    later = (joined["latest"].fill_null(-1) > joined["offset"]).to_numpy()
    deleted = rows["key_hash"].is_in(tombstones["key_hash"].unique().implode()).to_numpy()
    explained: Mask = cleaned & (later | deleted)
    return explained


def unrecorded_records(inputs: PartitionInputs) -> int:
    """Return about how many records were acknowledged to producers that did not record their operations."""
    # a retry that the broker recognised is acknowledged with the offsets of the first attempt
    batches = inputs.acked_batches.group_by("last_offset").agg(pl.col("count").max())
    wire = int(batches["count"].sum())
    return max(0, wire - len(inputs.sends) - len(inputs.pending))


def below_the_low_watermark(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Add a doubt about acknowledged records that were removed before any client received them."""
    if inputs.low <= 0:
        return
    acked = inputs.acked.filter((pl.col("offset") >= 0) & (pl.col("offset") < inputs.low))
    batches = inputs.acked_batches.filter(pl.col("last_offset") < inputs.low)
    inside = [
        _offsets_of(int(base), int(last))
        for base, last in batches.select("base_offset", "last_offset").rows()
    ]
    offsets = np.unique(np.concatenate([acked["offset"].to_numpy(), *inside]))
    unread = offsets[~_received(inputs, offsets)]
    if len(unread):
        place = f"{inputs.job.topic}-{inputs.job.partition}"
        findings.doubt(
            LOSS,
            f"{len(unread)} acknowledged records of {place} are below the log start offset {inputs.low}, and no client "
            "received them before retention or DeleteRecords removed them: whether they were lost earlier cannot be "
            "judged; read them in the test, or let the topic keep them until verify()",
        )


def _offsets_of(base: int, last: int) -> Offsets:
    return np.arange(base, last + 1, dtype=np.int64)


def _received(inputs: PartitionInputs, offsets: Offsets) -> Mask:
    """Return for each offset whether a client received its record."""
    reads = inputs.polls.filter(pl.col("kind") == OperationFunction.POLL)["offset"].to_numpy()
    delivered = inputs.fetched.filter(~pl.col("client").is_in(inputs.job.own_clients))
    ranges = delivered.select("base_offset", "last_offset").sort("base_offset")
    found: Mask = np.isin(offsets, reads)
    if len(ranges):
        at = np.searchsorted(ranges["base_offset"].to_numpy(), offsets, "right") - 1
        found |= (at >= 0) & (ranges["last_offset"].cum_max().to_numpy()[at] >= offsets)
    return found


def below_the_cleaned_offset(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Add a doubt about compacted batches of producers that did not record their operations."""
    cleaned = inputs.job.cleaned_end
    unrecorded = unrecorded_records(inputs) if cleaned else 0
    batches = inputs.acked_batches.filter(pl.col("base_offset") < cleaned) if unrecorded else None
    if batches is not None and len(batches):
        place = f"{inputs.job.topic}-{inputs.job.partition}"
        findings.doubt(
            LOSS,
            f"compaction has cleaned {place} up to offset {cleaned}: whether it removed a record or a broker lost it "
            "cannot be judged without keys; use Harrow's recording Producer, or verify() before the log is compacted",
        )
