"""The order of a pipeline's outputs: the reducer `check_order` (L5).

`Compare` yields the matched pairs of inputs and outputs; they are brought together by the input's record key and
partition, and the output's partition. Within these, outputs must follow the order of their inputs:
`out-of-order-output` is an output whose input lies before the input of an earlier output. Inputs without a key have no
order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from .join import HASH
from .pipeline_findings import OUT_OF_ORDER, SHOWN, Findings, place_of
from .pipeline_mapper import KEY_SEED

if TYPE_CHECKING:
    import polars as pl

    from .pipeline_rows import OutputRow, UnitRow

    Row = dict[str, Any]
_PAIR = ("chunk", "row", "part", "partition", "offset")


def pairs_of(good: pl.DataFrame) -> pl.DataFrame:
    """Return matched rows as pairs for `check_order`; inputs without a key have no order."""
    import polars as pl

    names = [*_PAIR, *(f"{name}_out" for name in _PAIR)]
    chosen = good.filter(pl.col("order") != 0).select("order", *names)
    group = pl.struct("order", "partition", "partition_out").hash(KEY_SEED)
    return chosen.with_columns(group.reinterpret(signed=True).alias(HASH)).drop("order")


def pairs_frame(pairs: Iterable[tuple[UnitRow, OutputRow]]) -> pl.DataFrame:
    """Return pairs that were found one by one as a frame like that of `pairs_of`."""
    import polars as pl

    rows = [(unit.order, *unit.place, *output.place) for unit, output in pairs]
    names = ["order", *_PAIR, *(f"{name}_out" for name in _PAIR)]
    types: dict[str, Any] = dict.fromkeys(names, pl.Int32)
    types |= {"order": pl.Int64, "offset": pl.Int64, "offset_out": pl.Int64}
    return pairs_of(pl.DataFrame(rows, schema=types, orient="row"))


def check_order(frame: pl.DataFrame) -> Generator[Row]:
    """Check that the outputs of an order key in a partition follow the order of their inputs in a partition.

    Of several copies of an output in a partition the first counts: a record that is processed again after a restart
    is a duplicate, not a change of the order.
    """
    import polars as pl

    first = frame.sort("offset_out").unique(
        [HASH, "chunk", "row", "part"], keep="first", maintain_order=True
    )
    ordered = first.sort(HASH, "offset_out", maintain_order=True).with_columns(
        before=pl.col("offset").cum_max().over(HASH)
    )
    behind = ordered.filter(pl.col("offset") < pl.col("before"))
    findings = Findings(0)
    findings.counts[OUT_OF_ORDER] += len(behind)
    for row in behind.sort("partition", "offset").head(SHOWN).iter_rows(named=True):
        earlier = ordered.filter(
            (pl.col(HASH) == row[HASH]) & (pl.col("offset") == row["before"])
        ).row(0, named=True)
        findings.show(
            OUT_OF_ORDER, place_of(row), place_of(row, "_out"),
            after_input=place_of(earlier), after_output=place_of(earlier, "_out"),
        )  # fmt: skip
    yield findings.result()
