"""The records of a chunk, decoded once: chunks of a topic's contents, and chunks of rows.

`records_of` returns a `Record` for each row. JSON values are decoded together where all of them are JSON, which costs a
third of decoding each: the decoded value is stored where `Record.json` would store it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..histories.contents import ContentsChunk
from .record import Record


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
    table = chunk.table().slice(start, most)
    columns: dict[str, list[Any]] = {
        name: table.column(name).to_pylist()
        for name in ("partition", "offset", "timestamp_ms", "key", "value")
    }
    fields = zip(*columns.values(), strict=True)
    records = [_record(chunk.topic, *row) for row in fields]
    headers = table.column("headers")
    if headers.null_count < len(headers):
        for record, pairs in zip(records, headers.to_pylist(), strict=True):
            if pairs:
                record.__dict__["headers"] = tuple((pair["name"], pair["value"]) for pair in pairs)
    for record, value in zip(records, _decoded(columns["value"]), strict=False):
        record.__dict__["json"] = value
    return records


def _record(
    topic: str, partition: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> Record:  # fmt: skip
    record = Record.__new__(Record)  # a quarter of the cost of a frozen dataclass's constructor
    record.__dict__.update(
        topic=topic, partition=partition, offset=offset, timestamp_ms=timestamp_ms, key=key, value=value,
        headers=(),
    )  # fmt: skip
    return record


def _decoded(values: Sequence[bytes | None]) -> list[Any]:
    """Return all values decoded from JSON; nothing when one of them is not JSON."""
    try:
        decoded: list[Any] = json.loads(b"[" + b",".join(values) + b"]")  # type: ignore[arg-type]  # a null raises
    except (TypeError, ValueError, RecursionError):
        return []
    return decoded if len(decoded) == len(values) else []


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
