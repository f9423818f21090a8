"""The records of a chunk, decoded once: chunks of a topic's contents, and chunks of rows.

`rows_of` returns the columns of a chunk, and `records_of` a `Record` for each row. Many records are made by one
generator, because a call for each takes as long as the record. A JSON value is decoded at once and stored where
`Record.json` would store it; a value that is not JSON is left to `Record.json`, which says so when a function asks for
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..checks.record import Record
from ..histories.contents import ContentsChunk
from ..histories.task_files import arrow_table
from .record_ids import decode_all

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsChunk:
    """A chunk of rows with columns of their own, as an Arrow IPC file; a `Chunk` of the join."""

    path: str
    rows: int
    size: int
    first: int
    """The number of its first row among all rows of the sink."""


OutputChunk = ContentsChunk | RowsChunk
MakeRecords = Callable[[Iterable[int]], Iterator[Record]]
"""Makes the records of the rows with these numbers."""


class ChunkRows:
    """The rows of a chunk as columns, with each value decoded once; `make` makes the records of rows."""

    def __init__(
        self,
        *,
        partition: Any,
        offset: Any,
        keys: Sequence[bytes | None],
        decoded: Sequence[Any],
        make: MakeRecords,
        values: Sequence[bytes | None] = (),
    ) -> None:
        assert len(partition) == len(offset) == len(keys) == len(decoded), "the columns of a chunk differ in length"
        assert len(values) in (0, len(decoded)), f"{len(values)} values of {len(decoded)} rows"
        self.partition: npt.NDArray[np.int32] = partition
        self.offset: npt.NDArray[np.int64] = offset
        self.keys = keys
        self.values = values
        """The value of each row as it is; empty for rows with columns of their own."""
        self.decoded = decoded
        """The value of each row, decoded from JSON; None where it is null or not JSON."""
        self._make = make

    def __len__(self) -> int:
        return len(self.decoded)

    def take(self, rows: Sequence[int]) -> ChunkRows:
        """Return these rows, in this order; a row may be there several times."""
        return ChunkRows(
            partition=self.partition[rows],
            offset=self.offset[rows],
            keys=[self.keys[row] for row in rows],
            decoded=[self.decoded[row] for row in rows],
            values=[self.values[row] for row in rows] if self.values else (),
            make=lambda places: self._make(rows[at] for at in places),
        )

    def record(self, row: int) -> Record:
        """Return the record of a row."""
        return next(self._make((row,)))

    def records(self) -> Iterator[Record]:
        """Yield the record of each row."""
        return self._make(range(len(self)))


def rows_of(chunk: OutputChunk, most: int | None = None, start: int = 0) -> ChunkRows:
    """Return the rows of a chunk in its order: all, or `most` from row `start` on."""
    if isinstance(chunk, RowsChunk):
        return _sink_rows(chunk, most, start)
    return rows_of_table(chunk.topic, chunk.table().slice(start, most))


def rows_of_table(topic: str, table: Any) -> ChunkRows:
    """Return the rows of the table of a chunk of contents, in its order."""
    partitions, offsets = _column(table, "partition"), _column(table, "offset")
    times, keys, values = (_column(table, name).to_list() for name in ("timestamp_ms", "key", "value"))
    decoded = decode_all(values)
    headers: list[Any] | None = None
    if table.column("headers").null_count < len(keys):
        headers = table.column("headers").to_pylist()
    new, place = Record.__new__, object.__setattr__
    partition_of, offset_of = partitions.to_list(), offsets.to_list()

    def make(rows: Iterable[int]) -> Iterator[Record]:
        for row in rows:
            # an instance's dictionary at once: a tenth of the cost of a frozen dataclass's constructor
            made = new(Record)
            pairs = () if headers is None else headers[row] or ()
            fields = {
                "topic": topic,
                "partition": partition_of[row],
                "offset": offset_of[row],
                "timestamp_ms": times[row],
                "key": keys[row],
                "value": values[row],
                "headers": tuple((pair["name"], pair["value"]) for pair in pairs) if pairs else (),
            }
            if decoded[row] is not None:
                fields["json"] = decoded[row]
            place(made, "__dict__", fields)
            yield made

    return ChunkRows(
        partition=partitions.to_numpy(), offset=offsets.to_numpy(), keys=keys, decoded=decoded, make=make, values=values
    )


def _column(table: Any, name: str) -> pl.Series:
    """Return a column; polars makes a list of it in a third of pyarrow's time."""
    import polars as pl

    column: Any = pl.from_arrow(table.column(name))  # pyright: ignore[reportUnknownMemberType] - pyarrow has no types
    series: pl.Series = column
    return series


def _sink_rows(chunk: RowsChunk, most: int | None, start: int) -> ChunkRows:
    import numpy as np
    import polars as pl

    from .pairing import row_record

    frames: Any = pl
    table: Any = frames.from_arrow(arrow_table(chunk.path).slice(start, most))
    rows = table.to_dicts()
    first = chunk.first + start
    return ChunkRows(
        partition=np.full(len(rows), -1, np.int32),
        offset=np.arange(first, first + len(rows), dtype=np.int64),
        keys=[None] * len(rows),
        decoded=rows,
        make=lambda numbers: (row_record(rows[row], number=first + row) for row in numbers),
    )


def records_of(chunk: OutputChunk, most: int | None = None, start: int = 0) -> list[Record]:
    """Return the records of a chunk in its order: all, or `most` from row `start` on."""
    return list(rows_of(chunk, most, start).records())


def text_of_record(record: Record) -> bytes | None:
    """Return the value of a record; for a row of a sink its fields as JSON."""
    if record.value is None and "json" in record.__dict__:
        return json.dumps(record.json, default=str, ensure_ascii=False).encode()
    return record.value


def record_at(chunk: OutputChunk, row: int) -> Record:
    """Return a single record of a chunk."""
    return records_of(chunk, 1, row)[0]
