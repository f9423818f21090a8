"""incomplete-leader: a broker became leader without records that were committed before (LeaderCompleteness, L3).

A record is committed when a response with acks=all acknowledged it, or when a consumer received it. Every leader of the
same or a later leader epoch must have it, so its log must end behind it when it becomes leader. A leader of an older
epoch that learns late of its election is judged by what was committed before a later leader began.

After an unclean election nothing is judged: the topic's settings, or an operator, allowed the loss. What was removed
from the beginning of a log does not matter here, because only the log's end is compared.
"""

from __future__ import annotations

import polars as pl

from ...histories.format import OperationFunction
from ..log_changes import Leadership
from ..rows import OperationRow
from .findings import Description, PartitionFindings, batch_rows, operation_rows
from .inputs import FETCHED, PartitionInputs, chosen

NAME = "incomplete-leader"
ACKS_ALL = -1


def incomplete_leaders(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Compare the end of each leader's log with what was committed before."""
    leaderships = inputs.job.leaderships
    unclean = min(inputs.job.unclean_epochs, default=None)
    if len(leaderships) < 2:
        return
    batches, reads = _committed_batches(inputs), _committed_reads(inputs)
    found: list[tuple[Leadership, list[OperationRow], int]] = []
    for row in leaderships:
        if unclean is not None and row.leader_epoch >= unclean:
            continue
        later = (other.t_ns for other in leaderships if other.leader_epoch > row.leader_epoch)
        before_ns = min([row.t_ns, *later])
        lacking = _before(batches, "completed_ns", before_ns, "last_offset", row.log_end)
        unread = _before(reads, "time_ns", before_ns, "offset", row.log_end)
        if len(lacking) or len(unread):
            shown = _first(lacking.sort("last_offset")) or operation_rows(unread.sort("offset").head(1))
            ends = [*lacking["last_offset"].to_list(), *unread["offset"].to_list()]
            found.append((row, shown, max(ends)))

    def describe(item: tuple[Leadership, list[OperationRow], int]) -> Description:
        row, shown, last = item
        text = (
            f"broker {row.leader} became leader in leader epoch {row.leader_epoch} with a log that ends at offset "
            f"{row.log_end}, but the records up to offset {last} were committed before"
        )
        event: OperationRow = {
            "operation": f"broker {row.leader} became leader",
            "completed_ns": row.t_ns,
            "broker": row.leader,
            "leader_epoch": row.leader_epoch,
            "log_end_offset": row.log_end,
        }
        return [row.log_end, last], [*shown, event], text

    findings.add_all(NAME, found, describe)


def _before(frame: pl.DataFrame, time: str, before_ns: int, offset: str, log_end: int) -> pl.DataFrame:
    """Return the rows before a time whose offset is beyond the end of a log."""
    return chosen(frame, (frame[time].to_numpy() < before_ns) & (frame[offset].to_numpy() >= log_end))


def _first(batches: pl.DataFrame) -> list[OperationRow]:
    first = batches.head(1)
    delivered = len(first) and first["kind"][0] == FETCHED
    return batch_rows(first, "fetched" if delivered else "produced")


def _committed_batches(inputs: PartitionInputs) -> pl.DataFrame:
    error, base, acks = (inputs.produced[name].to_numpy() for name in ("error", "base_offset", "acks"))
    produced = chosen(inputs.produced, (error == 0) & (base >= 0) & (acks == ACKS_ALL))
    if not len(produced) or not len(inputs.fetched):
        return produced if len(produced) else inputs.fetched
    return pl.concat([produced, inputs.fetched])


def _committed_reads(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the recorded reads where no tap has them."""
    if len(inputs.fetched):
        return inputs.polls.clear()
    return chosen(inputs.polls, inputs.polls["kind"].to_numpy() == OperationFunction.POLL)
