"""Whose fault a duplicate of an idempotent producer is: the same record under two producer epochs (L6).

Brokers recognise a retry by producer id, producer epoch and sequence. A client that sends a batch in doubt again under
its next epoch (with new sequences) defeats this, and every broker must accept it, Apache Kafka's too. librdkafka does
it (confluentinc/librdkafka#4953): after OUT_OF_ORDER_SEQUENCE_NUMBER for a batch in flight it increments its epoch, and
then sends the batches of *all* partitions again, also those that may have been appended.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from ..client_names import ClientNumber
from .inputs import PartitionInputs

ISSUE = "confluentinc/librdkafka#4953"


def describe_epochs(inputs: PartitionInputs, offsets: Sequence[int]) -> tuple[str | ClientNumber, ...]:
    """Return the cause if copies of a record are in batches of one producer id and several producer epochs."""
    if not inputs.logs:
        return ()
    batches = inputs.log_batches.filter(
        pl.any_horizontal((pl.col("base_offset") <= offset) & (pl.col("last_offset") >= offset) for offset in offsets)
        & (pl.col("producer_id") >= 0)
    )
    epochs = batches.group_by("producer_id", "producer_epoch").agg(pl.col("base_offset").min())
    several = epochs.filter(pl.len().over("producer_id") > 1).sort("producer_id", "producer_epoch").head(2)
    if len(several) < 2 or several["producer_id"].n_unique() > 1:
        return ()
    (epoch, first), (later, second) = several.select("producer_epoch", "base_offset").rows()
    sent = inputs.produced.filter(pl.col("producer_id") == several["producer_id"][0])["client"]
    return (
        "the client",
        *((" ", ClientNumber(sent[0])) if len(sent) else ()),
        (
            f" sent it under producer epoch {epoch} (batch at offset {first}) and again under producer epoch {later} "
            f"(batch at offset {second}), so that no broker could recognise it: the client doubled it, and not the "
            f"brokers. librdkafka does this after it incremented its epoch ({ISSUE})"
        ),
    )
