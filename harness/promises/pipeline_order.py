"""The order of a pipeline's outputs: the reducer `check_order` (L5).

`Compare` yields the matched pairs of inputs and outputs; they are brought together by the input's record key and
partition, and the output's partition. Within these, outputs must follow the order of their inputs:
`out-of-order-output` is an output whose input lies before the input of an earlier output. Inputs without a key have no
order.

Of the records that a scheduler sent from a delay topic to another retry topic, `Compare` yields pairs too (with `due`):
the record that waited, and the one that was sent. `due-out-of-order` is a record with an order key that was sent behind
a later one of its key, which waited behind it in the same partition and was due later by more than the tolerance. Both
were sent to the same partition; of several copies the first counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .join import HASH
from .pipeline_findings import DUE_ORDER, OUT_OF_ORDER, SHOWN, Findings, PipelineFinding, Place, TaskResult
from .pipeline_mapper import KEY_SEED

if TYPE_CHECKING:
    import polars as pl

    from .pipeline_rows import OutputRow, RetryRow, UnitRow

PAIR = (*Place._fields, *(f"{name}_out" for name in Place._fields))
"""The columns of the places of an input and its output."""


class Due(NamedTuple):
    """A record that was sent from a delay topic, and the one that waited there until `due_ms`."""

    wait: Place
    sent: Place
    due_ms: int


def pairs_of(good: pl.DataFrame) -> pl.DataFrame:
    """Return matched rows as pairs for `check_order`; inputs without a key have no order."""
    import polars as pl

    chosen = good.filter(pl.col("order") != 0).select("order", *PAIR)
    group = pl.struct("order", "partition", "partition_out").hash(KEY_SEED)
    no_due = pl.lit(-1, pl.Int64).alias("due")
    return chosen.with_columns(group.reinterpret(signed=True).alias(HASH), no_due).drop("order")


def pairs_frame(pairs: Iterable[tuple[UnitRow, OutputRow]]) -> pl.DataFrame:
    """Return pairs that were found one by one as a frame like that of `pairs_of`."""
    import polars as pl

    rows = [(unit.order, *unit.place, *output.place) for unit, output in pairs]
    return pairs_of(pl.DataFrame(rows, schema=_types("order"), orient="row"))


def _types(*further: str) -> Mapping[str, type[pl.Int32 | pl.Int64]]:
    import polars as pl

    long = {*further, "offset", "offset_out"}
    return {name: pl.Int64 if name in long else pl.Int32 for name in (*further, *PAIR)}


def dues_frame(pairs: Iterable[tuple[RetryRow, RetryRow]]) -> pl.DataFrame:
    """Return records that were sent to another retry topic, each with the one that waited, as pairs with `due`."""
    import polars as pl

    rows = [
        (wait.order, wait.topic, sent.topic, wait.due_ms, *wait.place, *sent.place)
        for sent, wait in pairs
        if wait.order
    ]
    further = ("order", "topic", "topic_out", "due")
    frame = pl.DataFrame(rows, schema=_types(*further), orient="row")
    lane = pl.struct("order", "topic", "topic_out", "partition", "partition_out").hash(KEY_SEED + 1)
    return frame.select(*PAIR, lane.reinterpret(signed=True).alias(HASH), "due")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCheck:
    """The reducer that checks the order of outputs, and of due times."""

    tolerance_ms: int = 0

    def __call__(self, frame: pl.DataFrame) -> Generator[TaskResult]:
        """Yield what was found."""
        import polars as pl

        yield from check_order(frame.filter(pl.col("due") < 0))
        dues = frame.filter(pl.col("due") >= 0)
        if len(dues):
            yield _check_dues(dues, self.tolerance_ms)


def _check_dues(frame: pl.DataFrame, tolerance_ms: int) -> TaskResult:
    """Check the due times of each lane, in the order in which its records were sent.

    `offsets` and `latest` are a staircase of what was sent before: of all records that waited at or behind an offset,
    the latest due time; `latest` falls as `offsets` rise.
    """
    findings = Findings(0)
    first = frame.sort("offset_out").unique([HASH, "chunk", "row"], keep="first", maintain_order=True)
    for lane in first.partition_by(HASH, maintain_order=True):
        offsets: list[int] = []
        latest: list[Due] = []
        for values in lane.select(*PAIR, "due").iter_rows():
            row = Due(Place(*values[:5]), Place(*values[5:10]), values[10])
            at = bisect_right(offsets, row.wait.offset)
            if at < len(offsets) and latest[at].due_ms > row.due_ms + tolerance_ms:
                findings.add(
                    PipelineFinding(
                        name=DUE_ORDER,
                        retry=row.wait,
                        attempt=row.sent,
                        after_input=latest[at].wait,
                        after_output=latest[at].sent,
                    )
                )
                continue
            if at < len(offsets) and latest[at].due_ms >= row.due_ms:
                continue
            low = at
            while low and latest[low - 1].due_ms <= row.due_ms:
                low -= 1
            offsets[low:at], latest[low:at] = [row.wait.offset], [row]
    return findings.result()


def check_order(frame: pl.DataFrame) -> Generator[TaskResult]:
    """Check that the outputs of an order key in a partition follow the order of their inputs in a partition.

    Of several copies of an output in a partition the first counts: a record that is processed again after a restart
    is a duplicate, not a change of the order.
    """
    import polars as pl

    first = frame.sort("offset_out").unique([HASH, "chunk", "row", "part"], keep="first", maintain_order=True)
    ordered = first.sort(HASH, "offset_out", maintain_order=True).with_columns(
        before=pl.col("offset").cum_max().over(HASH)
    )
    behind = ordered.filter(pl.col("offset") < pl.col("before"))
    findings = Findings(0)
    findings.counts[OUT_OF_ORDER] += len(behind)
    shown = behind.sort("partition", "offset").head(SHOWN)
    for number, before, *pair in shown.select(HASH, "before", *PAIR).iter_rows():
        earlier = ordered.filter((pl.col(HASH) == number) & (pl.col("offset") == before)).select(PAIR).row(0)
        findings.show(
            PipelineFinding(
                name=OUT_OF_ORDER,
                input=Place(*pair[:5]),
                output=Place(*pair[5:]),
                after_input=Place(*earlier[:5]),
                after_output=Place(*earlier[5:]),
            )
        )
    yield findings.result()
