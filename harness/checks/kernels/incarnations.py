"""A topic that was deleted and created again in the run: only its last incarnation can be judged (L6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from harrow.cluster.tap.layouts import PRODUCED

from ...histories.format import BREAKS, OperationFunction, OperationType
from ...histories.layout import DRAINED
from ...run_folder import RunTimes

if TYPE_CHECKING:
    from ..plans import PartitionJob


def since_creation(
    job: PartitionJob, ops: pl.DataFrame, batches: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Return the rows that belong to the topic's last incarnation, and a doubt about the others.

    A send that had begun before the topic was created again is left out, whenever it completed. A consumer that read
    before may still have records in its queue, so that its later reads are left out too.
    """
    created = job.created_ns
    if not created:
        return ops, batches, []
    drained = pl.col("source") == DRAINED
    reads = pl.col("kind").is_in([OperationFunction.POLL, *BREAKS])
    readers = ops.filter(~drained & reads & (pl.col("time_ns") < created))["client"].unique()
    earlier = ~drained & ((pl.col("invoked_ns") < created) | (reads & pl.col("client").is_in(readers.implode())))
    before = pl.col("completed_ns") < created
    this_run = pl.col("completed_ns") >= job.started_ns
    sent = (pl.col("kind") == OperationFunction.SEND) & (pl.col("outcome") == OperationType.OK)
    acknowledged = len(ops.filter(earlier & sent)) + len(
        batches.filter(before & this_run & (pl.col("kind") == PRODUCED) & (pl.col("base_offset") >= 0))
    )
    kept = ops.filter(~earlier), batches.filter(~before)
    if not acknowledged:
        return (*kept, [])
    when = RunTimes(job.started_ns).text(created)
    doubt = (
        f"topic {job.topic!r} was deleted and created again at {when} of the run: what was acknowledged before in "
        f"{job.topic}-{job.partition} cannot be judged"
    )
    return (*kept, [doubt])
