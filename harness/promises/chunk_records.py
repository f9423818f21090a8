"""The records of a chunk, decoded once: chunks of a topic's contents, and chunks of rows.

`records_of` returns a `Record` for each row. A JSON value is decoded at once and stored where `Record.json` would store
it; a value that is not JSON is left to `Record.json`, which says so when a function asks for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..histories.contents import ContentsChunk
from .record import Record
from .record_ids import decode_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsChunk:
    """A chunk of rows with columns of their own, as an Arrow IPC file; a `Chunk` of the join."""

    path: str
    rows: int
    size: int
    first: int
    """The number of its first row among all rows of the sink."""


OutputChunk = ContentsChunk | RowsChunk


def records_of(chunk: OutputChunk, most: int | None = None, start: int = 0) -> list[Record]:
    """Return the records of a chunk in its order: all, or `most` from row `start` on."""
    if isinstance(chunk, RowsChunk):
        return _rows(chunk, most, start)
    return records_of_table(chunk.topic, chunk.table().slice(start, most))


def records_of_table(topic: str, table: Any) -> list[Record]:
    """Return the records of the table of a chunk of contents, in its order."""
    names = ("partition", "offset", "timestamp_ms", "key", "value")
    columns = [_column(table, name) for name in names]
    new, place = Record.__new__, object.__setattr__
    records: list[Record] = []
    # an instance's dictionary at once: a tenth of the cost of a frozen dataclass's constructor
    for partition, offset, timestamp_ms, key, value in zip(*columns, strict=True):
        record = new(Record)
        fields = {
            "topic": topic, "partition": partition, "offset": offset, "timestamp_ms": timestamp_ms, "key": key,
            "value": value, "headers": (),
        }  # fmt: skip
        decoded = None if value is None else decode_json(value)
        if decoded is not None:
            fields["json"] = decoded
        place(record, "__dict__", fields)
        records.append(record)
    headers = table.column("headers")
    if headers.null_count < len(headers):
        for record, pairs in zip(records, headers.to_pylist(), strict=True):
            if pairs:
                record.__dict__["headers"] = tuple((pair["name"], pair["value"]) for pair in pairs)
    return records


def _column(table: Any, name: str) -> list[Any]:
    """Return a column as a list; polars makes it in a third of pyarrow's time."""
    import polars as pl

    column: Any = pl.from_arrow(table.column(name))  # pyright: ignore[reportUnknownMemberType] - pyarrow has no types
    values: list[Any] = column.to_list()
    return values


def _rows(chunk: RowsChunk, most: int | None, start: int) -> list[Record]:
    import polars as pl

    from .pairing import row_record

    rows = pl.read_ipc(chunk.path).slice(start, most).to_dicts()
    first = chunk.first + start
    return [row_record(row, number=first + number) for number, row in enumerate(rows)]


def text_of_record(record: Record) -> bytes | None:
    """Return the value of a record; for a row of a sink its fields as JSON."""
    if record.value is None and "json" in record.__dict__:
        return json.dumps(record.json, default=str, ensure_ascii=False).encode()
    return record.value


def record_at(chunk: OutputChunk, row: int) -> Record:
    """Return a single record of a chunk."""
    return records_of(chunk, 1, row)[0]
