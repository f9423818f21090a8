"""A doubt about acknowledged records that readers did not reach, where no final read went to the end (L6).

Histories from elsewhere often have no final read (`histories/imported/`): the reads of all clients stand for it. An
acknowledged record at or above the end of these reads may be in the log, or lost. Jepsen calls it `unseen`.
"""

from __future__ import annotations

import polars as pl

from ...wording import counted
from .findings import LOSS, PartitionFindings
from .inputs import PartitionInputs

VALUE = ["key_hash", "value_hash"]


def beyond_the_reads(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Doubt lost-write for acknowledged records after the last read, and for unread ones without offset."""
    if inputs.to_the_end or inputs.final is None:
        return
    acked = inputs.acked
    above = acked.filter(pl.col("offset") >= (inputs.high or 0))
    nameless = acked.filter(pl.col("offset") < 0).join(inputs.final, on=VALUE, how="anti")
    count = len(above.join(inputs.final, on=VALUE, how="anti")) + len(nameless)
    if not count:
        return
    place = f"{inputs.job.topic}-{inputs.job.partition}"
    findings.doubt(
        LOSS,
        f"{counted(count, 'acknowledged record')} of {place} {'was' if count == 1 else 'were'} received by no reader, "
        "and no reader received a later one: whether the log has them is not known; read each partition to its end "
        "before the history ends",
    )
