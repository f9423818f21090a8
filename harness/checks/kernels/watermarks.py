"""Watermarks that move backwards for clients (L2): what leaders said in Fetch and ListOffsets responses.

* `high-watermark-regression`, `lso-regression`, `log-start-regression`: a leader said a lower high watermark, last
  stable offset or log start offset than it had said before in the same leader epoch. All three only rise there.
* `end-offset-regression`: a leader listed a lower latest offset (the high watermark, for readers of committed data the
  last stable offset) than a leader of an earlier leader epoch had said. A new leader whose high watermark is behind the
  start of its epoch answers OFFSET_NOT_AVAILABLE instead (KIP-207). After an unclean election, which may lose committed
  records, it is not judged; nor are Fetch responses, in which a new leader may say the high watermark that it has.

A response was before another one when it was sent before the request of the other one was read. Each larger offset is
reported once, with the first response that is below it. A follower's watermarks are in no row (KIP-392).

Source: Kafka's `Partition.maybeIncrementLeaderHW`, `Partition.fetchOffsetForTimestamp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ..rows import OperationRow
from .findings import Description, PartitionFindings, rows_of
from .inputs import PartitionInputs

HIGH_WATERMARK, LAST_STABLE, LOG_START = "high_watermark", "last_stable_offset", "log_start_offset"
NAMES = {HIGH_WATERMARK: "high-watermark-regression", LAST_STABLE: "lso-regression", LOG_START: "log-start-regression"}
END_OFFSET = "end-offset-regression"
LISTED = 2
Mask = npt.NDArray[np.bool_]


class Response(NamedTuple):
    """What a leader said in a response; an offset that it did not say is negative."""

    kind: int
    client: int
    node: int
    leader_epoch: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    invoked_ns: int
    completed_ns: int

    @property
    def api(self) -> str:
        """The name of the request."""
        return "ListOffsets" if self.kind == LISTED else "Fetch"


class Regression(NamedTuple):
    """The numbers of two rows: the later one has the lower offset."""

    earlier: int
    later: int


def regressions_of_a_leader(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Compare what each leader said in one leader epoch."""
    if _never_fall(inputs.watermarks):
        return
    frame = _judged(inputs)
    for column, name in NAMES.items():
        found: list[Regression] = []
        for _, group in frame.group_by("topic_id", "leader_epoch", "node", maintain_order=True):
            numbers = group["number"].to_numpy()
            everything = np.ones(len(group), np.bool_)
            found += [
                Regression(int(numbers[earlier]), int(numbers[later]))
                for earlier, later in _lower(group, column, everything, everything)
            ]
        _report(findings, name, frame, column, found)


def regressions_between_leaders(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Compare the latest offsets that each leader listed with what earlier leaders had said."""
    if _never_fall(inputs.watermarks):
        return
    frame = _judged(inputs)
    for column in (HIGH_WATERMARK, LAST_STABLE):
        found: list[Regression] = []
        for _, group in frame.group_by("topic_id", maintain_order=True):
            numbers = group["number"].to_numpy()
            epochs = group["leader_epoch"].to_numpy()
            listed: Mask = (group["kind"].to_numpy() == LISTED) & (group[column].to_numpy() >= 0)
            for epoch in np.unique(epochs[listed]).tolist():
                unclean = [at for at in inputs.job.unclean_epochs if at <= epoch]
                before: Mask = (epochs < epoch) & (epochs >= max(unclean, default=-1))
                found += [
                    Regression(int(numbers[earlier]), int(numbers[later]))
                    for earlier, later in _lower(group, column, before, listed & (epochs == epoch))
                ]
        _report(findings, END_OFFSET, frame, column, found)


def _never_fall(frame: pl.DataFrame) -> bool:
    """True when no response, of any leader, said less than a response that was sent before it: nothing to report."""
    sent = frame["completed_ns"].to_numpy()
    in_order = bool((np.diff(sent) >= 0).all())
    order = slice(None) if in_order else np.argsort(sent, kind="stable")
    for column in NAMES:
        values = frame[column].to_numpy()[order]
        if (np.diff(values[values >= 0]) < 0).any():
            return False
    return True


def _judged(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the rows by time; where a topic was created again, without those that do not say of which one they are."""
    frame = inputs.watermarks
    if len(frame) and len(frame["topic_id"].unique()) > 2:
        frame = frame.filter(pl.col("topic_id") != 0)
    order = ["completed_ns", "invoked_ns", HIGH_WATERMARK, LAST_STABLE, LOG_START]
    return frame.sort(order).with_row_index("number")


def _lower(group: pl.DataFrame, column: str, before: Mask, after: Mask) -> Iterator[tuple[int, int]]:
    """Yield the numbers of two rows: of `before`, and of `after` with a lower offset and a later request.

    Of the earlier rows the one with the largest offset is taken, and each of these offsets once.
    """
    values, sent = group[column].to_numpy(), group["completed_ns"].to_numpy()
    invoked = group["invoked_ns"].to_numpy()
    earlier = np.flatnonzero(before)  # by the time of the response
    later = np.flatnonzero(after & (values >= 0))
    if not len(earlier) or not len(later):
        return
    highest = np.maximum.accumulate(values[earlier])
    at = np.searchsorted(sent[earlier], invoked[later], "left") - 1
    lower = (at >= 0) & (highest[at] > values[later])
    reported: set[int] = set()
    for row, last in zip(later[lower].tolist(), at[lower].tolist(), strict=True):
        top = int(highest[last])
        if top not in reported:
            reported.add(top)
            yield int(earlier[int(np.argmax(values[earlier[: last + 1]]))]), row


def _report(findings: PartitionFindings, name: str, frame: pl.DataFrame, column: str, found: list[Regression]) -> None:
    def describe(item: Regression) -> Description:
        earlier, later = (next(rows_of(frame[number], Response)) for number in item)
        values: list[int] = [frame[column][number] for number in item]
        words = column.replace("_", " ")
        text = (
            f"broker {later.node}, leader in leader epoch {later.leader_epoch}, said the {words} {values[1]} "
            f"in a {later.api} response, after {_whose(earlier, later)} had said {values[0]}"
        )
        return values, [_operation(earlier), _operation(later)], text

    findings.add_all(name, found, describe)


def _whose(earlier: Response, later: Response) -> str:
    if earlier.leader_epoch == later.leader_epoch:
        return "it"
    return f"broker {earlier.node}, leader in leader epoch {earlier.leader_epoch},"


def _operation(row: Response) -> OperationRow:
    """Return a row as the verdict shows it."""
    shown: OperationRow = {
        "operation": f"{row.api} response",
        "client": row.client,
        "broker": row.node,
        "leader_epoch": row.leader_epoch,
    }
    if row.high_watermark >= 0:
        shown["high_watermark"] = row.high_watermark
    if row.last_stable_offset >= 0:
        shown["last_stable_offset"] = row.last_stable_offset
    if row.log_start_offset >= 0:
        shown["log_start_offset"] = row.log_start_offset
    shown["invoked_ns"], shown["completed_ns"] = row.invoked_ns, row.completed_ns
    return shown
