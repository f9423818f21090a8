"""Records that Kafka removed legally: compaction, retention, DeleteRecords (L6).

The evidence is in the job (`log_changes.py`). Where it explains that a record is not there, the record is not
`lost-write`. Where it hides whether the record was there, the verdict gets a doubt:

* below the low watermark: an acknowledged record that no client received before it was removed;
* below the cleaned offset: a batch of a producer that did not record its operations, because a tap has no keys.

A compacted record must have a later committed record of its key in the final read, or its key a later tombstone; and
the settings that the cleaner applied must let it go (`superseded`). `compacted_replicas.py` compares what the replicas
kept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from harrow.cluster.host.seam import END_UNKNOWN

from ...histories.format import BREAKS, OperationFunction
from ..plans import PartitionJob
from .early_removals import TOLERANCE_MS
from .findings import LOSS, PartitionFindings
from .inputs import PartitionInputs
from .log_transactions import ABORTS, COMMITS

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
KEYED = ["key_hash", "value_hash"]
ANYWHERE = 2**62


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
    """Return for each row (of `CONFIRMED`) whether compaction explains that the final read lacks it.

    True where the final read has a later committed record of the key, where a client sent or received a later tombstone
    of it, and for the record of an aborted transaction. A tombstone itself may go after `delete.retention.ms`. Nothing
    may go before `min.compaction.lag.ms`. Where a producer did not record its operations, its tombstones are unknown,
    and any key may have had one.
    """
    cleaned: Mask = removed(inputs, rows["offset"].to_numpy())
    if not cleaned.any() or inputs.final is None or unrecorded_records(inputs):
        return cleaned
    explained = np.zeros(len(rows), np.bool_)
    suspects = rows.filter(pl.Series(cleaned))
    offset = pl.col("offset")
    later = suspects.join(_latest(inputs), on="key_hash", how="left", maintain_order="left").select(
        (offset < pl.max_horizontal("latest", "tombstone").fill_null(-1)).alias("later"),
        (pl.col("value_hash") == 0).alias("is_tombstone"),
    )
    gone = later["later"].to_numpy() | _was_aborted(inputs, suspects["offset"].to_numpy())
    tombstones = later["is_tombstone"].to_numpy() & ~gone
    if tombstones.any():
        gone = gone | (tombstones & _aged(inputs, suspects, "tombstone_ms"))
    explained[cleaned] = gone & _aged(inputs, suspects, "lag_ms")
    return explained


def _latest(inputs: PartitionInputs) -> pl.DataFrame:
    """Return for each key its `latest` offset in the final read, and that of its last `tombstone` that is known.

    A tombstone whose offset is not known may be anywhere: it is later than everything.
    """
    latest = inputs.visible().group_by("key_hash").agg(pl.col("offset").max().alias("latest"))
    known = [inputs.sends, inputs.pending, inputs.polls]
    tombstones = pl.concat([frame.select(*KEYED, "offset", "kind") for frame in known]).filter(
        (pl.col("value_hash") == 0) & ~pl.col("kind").is_in(BREAKS)
    )
    aborted = _was_aborted(inputs, tombstones["offset"].to_numpy())
    tombstones = (
        tombstones.filter(pl.Series(~aborted))
        .with_columns(pl.when(pl.col("offset") < 0).then(ANYWHERE).otherwise("offset").alias("at"))
        .group_by("key_hash")
        .agg(pl.col("at").max().alias("tombstone"))
    )
    return latest.join(tombstones, on="key_hash", how="full", coalesce=True)


def _was_aborted(inputs: PartitionInputs, offsets: Offsets) -> Mask:
    """Return for each offset whether its record was written in a transaction that was aborted.

    By the coordinators and the tap, because compaction removes the records and at last the marker.
    """
    found: Mask = np.zeros(len(offsets), np.bool_)
    decisions = inputs.coordinators.transactions.filter(pl.col("state").is_in([*COMMITS, *ABORTS, END_UNKNOWN])).sort(
        "time_ns"
    )
    if not len(decisions) or not len(offsets):
        return found
    produced = inputs.produced.filter((pl.col("error") == 0) & (pl.col("base_offset") >= 0))
    ended = (
        produced.sort("invoked_ns")
        .join_asof(
            decisions.select("producer_id", "state", "time_ns"),
            left_on="invoked_ns",
            right_on="time_ns",
            by="producer_id",
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("state").is_in([*ABORTS, END_UNKNOWN]))
    )
    for base, last in ended.select("base_offset", "last_offset").unique().iter_rows():
        found |= (offsets >= base) & (offsets <= last)
    return found


def _aged(inputs: PartitionInputs, rows: pl.DataFrame, setting: str) -> Mask:
    """Return for each row whether a pass of a log cleaner was as late as `setting` wants it.

    `setting`: a field of `CleaningBegun`. The age of a record is the larger one of those by its timestamp and by the
    time since it was sent. True where the age or the setting is not known.
    """
    cleanings = inputs.job.cleanings
    if inputs.job.wrong_clocks or all(getattr(row, setting) <= TOLERANCE_MS for row in cleanings):
        return np.ones(len(rows), np.bool_)
    offsets = rows["offset"].to_numpy()
    sent_ns, timestamps = _times_of(inputs, rows)
    found: Mask = sent_ns < 0
    for row in cleanings:
        by_timestamp = np.where(timestamps < 0, ANYWHERE, row.wall_ms - timestamps)
        age_ms = np.maximum(by_timestamp, (row.t_ns - sent_ns) // 1_000_000)
        old = age_ms >= getattr(row, setting) - TOLERANCE_MS
        found |= (offsets < row.first_uncleanable) & old
    return found


def _times_of(inputs: PartitionInputs, rows: pl.DataFrame) -> tuple[Offsets, Offsets]:
    """Return for each row when its record was sent at the earliest, and its timestamp; -1 where that is not known."""
    identity = ["key_hash", "value_hash"]
    sends = pl.concat([inputs.sends, inputs.pending])
    earliest = sends.group_by(identity).agg(pl.col("invoked_ns").min(), pl.col("timestamp_ms").min())
    exact = (
        inputs.acked.filter(pl.col("offset") >= 0)
        .group_by("offset")
        .agg(pl.col("invoked_ns").min().alias("own_ns"), pl.col("timestamp_ms").min().alias("own_ms"))
    )
    joined = (
        rows.select("offset", *identity)
        .join(earliest, on=identity, how="left", maintain_order="left")
        .join(exact, on="offset", how="left", maintain_order="left")
    )
    return (
        joined.select(pl.coalesce("own_ns", "invoked_ns").fill_null(-1)).to_series().to_numpy(),
        joined.select(pl.coalesce("own_ms", "timestamp_ms").fill_null(-1)).to_series().to_numpy(),
    )


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
    inside = [_offsets_of(int(base), int(last)) for base, last in batches.select("base_offset", "last_offset").rows()]
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
