"""Rows of a chunk of contents as `Record`: all of them for functions of the user, or a single one for a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..histories.contents import ContentsChunk
from .record import Record
from .record_ids import decode_json


def records_of_table(topic: str, table: Any) -> Iterator[Record]:
    """Return the records of a chunk's table, in its order."""
    names = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
    columns = [table.column(name).to_pylist() for name in names]
    for partition, offset, timestamp_ms, key, value, headers in zip(*columns, strict=True):
        record = Record.__new__(
            Record
        )  # the constructor of a frozen dataclass takes four times as long
        record.__dict__.update(
            topic=topic, partition=partition, offset=offset, timestamp_ms=timestamp_ms, key=key, value=value,
            headers=() if headers is None else tuple((item["name"], item["value"]) for item in headers),
        )  # fmt: skip
        if value is not None:
            decoded = decode_json(value)
            if decoded is not None:
                record.__dict__["json"] = decoded  # where the property `json` keeps it
        yield record


def record_at(chunk: ContentsChunk, row: int) -> Record:
    """Return a single record of a chunk."""
    return next(records_of_table(chunk.topic, chunk.table().slice(row, 1)))
