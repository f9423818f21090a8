"""`resend-in-doubt`: a record was sent again while its first send was in doubt, so that no broker recognises it (L2).

An application whose send has no certain outcome (a timeout, an error that is not final) makes a new producer, or uses
the same one, and sends the record again. Brokers recognise the retry of a client library by producer id and sequence;
this one has others. When the first send was appended after all, the record is there twice: a hazard that waits for the
next lost response, so it is reported when it happens, also where only one copy is in the log.

A record is one of these when all of this holds:

* its key and value were sent exactly twice, so that they identify it;
* the outcome of the first send is not known, and the second began after the client had noted that, and succeeded;
* the second is in a batch of an idempotent producer in the log, outside of transactions: the successor of a
  transactional producer aborts what its predecessor left, and a producer without idempotence promises nothing.

Without a replica's log nothing is claimed. It is never forbidden: a sink that recognises records by their id makes it
harmless, and `duplicate` says when it was not.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from ...histories.format import OperationType
from ..client_names import ClientNumber
from .findings import Description, PartitionFindings, operation_rows
from .inputs import OPS_SCHEMA, PartitionInputs

NAME = "resend-in-doubt"
VALUE = ["key_hash", "value_hash"]
TRANSACTIONAL_OR_CONTROL = 0x30


class SentTwice(NamedTuple):
    """A record, and who sent it first and again."""

    key_hash: int
    value_hash: int
    client: int
    client_again: int
    offset_again: int


def records_sent_again(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """resend-in-doubt."""
    outcomes = (frame["outcome"].to_numpy() for frame in (inputs.sends, inputs.pending))
    if not inputs.logs or not any((of == OperationType.INFO).any() for of in outcomes):
        return
    sends = pl.concat([frame.select(OPS_SCHEMA.keys()) for frame in (inputs.sends, inputs.pending)])
    twice = sends.group_by(VALUE).len().filter(pl.col("len") == 2)
    sends = sends.join(twice.select(VALUE), on=VALUE, how="semi")
    first = sends.filter(pl.col("outcome") == int(OperationType.INFO))
    again = sends.filter((pl.col("outcome") == int(OperationType.OK)) & (pl.col("offset") >= 0))
    if not len(first) or not len(again):
        return
    pairs = first.join(again, on=VALUE, how="inner", suffix="_again")
    pairs = pairs.filter(pl.col("invoked_ns_again") >= pl.col("time_ns"))
    bad = _idempotent(inputs, pairs).sort("offset_again")

    def describe(row: SentTwice) -> Description:
        both = sends.filter((pl.col("key_hash") == row.key_hash) & (pl.col("value_hash") == row.value_hash))
        other = row.client != row.client_again
        text = (
            ClientNumber(row.client),
            " sent the record without a certain outcome, and the application sent it again",
            *((" as ", ClientNumber(row.client_again)) if other else ()),
            (
                " under other sequences, so that no broker can recognise it: when the first send was appended too, it "
                "is there twice"
            ),
        )
        return [row.offset_again], operation_rows(both.sort("invoked_ns")), text

    findings.add_each(NAME, bad, SentTwice, describe)


def _idempotent(inputs: PartitionInputs, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs whose second record is in a batch of an idempotent producer outside of transactions."""
    batches = (
        inputs.log_batches.select("base_offset", "last_offset", "producer_id", "attributes")
        .unique("base_offset", keep="first")
        .sort("base_offset")
    )
    there = pairs.sort("offset_again").join_asof(
        batches, left_on="offset_again", right_on="base_offset", check_sortedness=False
    )
    inside = pl.col("last_offset") >= pl.col("offset_again")
    plain = (pl.col("attributes") & TRANSACTIONAL_OR_CONTROL) == 0
    return there.filter(inside & plain & (pl.col("producer_id") >= 0))
