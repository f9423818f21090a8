"""The rows of a sink as Arrow files (L5): `SinkWriter` writes them in chunks of `CHUNK_ROWS`.

A row is a mapping of its fields. A frame keeps its columns and their types (`RowsChunk`); rows of other sources become
JSON and have the format of a topic's contents, without a topic and a partition, and with their number as the offset.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from harrow.cluster.errors import ConfigError

from ..checks.record import Record
from ..histories.contents import ContentsChunk
from ..histories.task_files import write_arrow
from .chunk_records import OutputChunk, RowsChunk
from .shapes import is_a

CHUNK_ROWS = 1 << 15


def mapping_of(row: Any) -> Mapping[str, Any]:
    """Return the fields of a row. Raises ConfigError for a row without names."""
    if is_a(row, Mapping):
        fields: Mapping[str, Any] = row
        return fields
    if is_dataclass(row) and not is_a(row, type):
        return asdict(cast("Any", row))
    for name in ("_asdict", "asDict", "model_dump"):  # named tuples, rows of Spark, pydantic
        if hasattr(row, name):
            found: Mapping[str, Any] = getattr(cast("Any", row), name)()
            return found
    if hasattr(row, "_mapping"):  # a row of SQLAlchemy
        return dict(cast("Any", row)._mapping)  # noqa: SLF001  (its documented name)
    if isinstance(row, sqlite3.Row):
        return dict(zip(row.keys(), tuple(row), strict=True))
    raise ConfigError(
        f"verify_pipeline(): the sink has a row of type {type(row).__name__} ({row!r:.80}), expected mappings, named "
        "tuples, dataclasses or Records; make each row a dict"
    )


class SinkWriter:
    """Writes rows in chunks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows = 0
        self.chunks: list[OutputChunk] = []

    def json_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write mappings, as JSON."""
        self.values(
            json.dumps({str(name): value for name, value in row.items()}, default=_json_value).encode() for row in rows
        )

    def values(self, values: Iterable[bytes]) -> None:
        """Write the JSON texts of rows."""
        for part in _parts(iter(values)):
            self._contents(
                "",
                [-1] * len(part),
                list(range(self._rows, self._rows + len(part))),
                [None] * len(part),
                part,
                [-1] * len(part),
                None,
            )

    def records(self, records: Iterable[Any]) -> None:
        """Write `Record`s."""
        for part in _parts(iter(records)):
            others = [record for record in part if not isinstance(record, Record)]
            if others:
                raise ConfigError(
                    f"verify_pipeline(): the sink has Records and rows of type {type(others[0]).__name__}; "
                    "give one kind"
                )
            known = all(record.offset >= 0 for record in part)
            numbers = range(self._rows, self._rows + len(part))
            self._contents(
                part[0].topic,
                [record.partition for record in part],
                [record.offset for record in part] if known else list(numbers),
                [record.key for record in part],
                [record.value for record in part],
                [record.timestamp_ms for record in part],
                [[{"name": n, "value": v} for n, v in record.headers] for record in part],
            )

    def _contents(
        self,
        topic: str,
        partition: Sequence[int],
        offset: Sequence[int],
        key: Sequence[bytes | None],
        value: Sequence[bytes | None],
        timestamp_ms: Sequence[int],
        headers: Sequence[Any] | None,
    ) -> None:
        pa = _pyarrow()
        header = pa.struct([("name", pa.string()), ("value", pa.binary())])
        batch = pa.record_batch(
            {
                "partition": pa.array(partition, pa.int32()),
                "offset": pa.array(offset, pa.int64()),
                "timestamp_type": pa.array([0] * len(value), pa.int8()),
                "timestamp_ms": pa.array(timestamp_ms, pa.int64()),
                "key": pa.array(key, pa.binary()),
                "value": pa.array(value, pa.binary()),
                "headers": pa.array(headers or [None] * len(value), pa.list_(header)),
            }
        )
        path = self._write(batch)
        size = sum(len(item or b"") for item in value)
        self.chunks.append(ContentsChunk(path=path, topic=topic, rows=len(value), size=size))
        self._rows += len(value)

    def arrow(self, batches: Iterable[Any]) -> None:
        """Write Arrow record batches with columns of their own."""
        for batch in batches:
            for start in range(0, batch.num_rows, CHUNK_ROWS):
                part = batch.slice(start, CHUNK_ROWS)
                path = self._write(part)
                self.chunks.append(RowsChunk(path=path, rows=part.num_rows, size=part.nbytes, first=self._rows))
                self._rows += part.num_rows

    def frame(self, frame: Any) -> None:
        """Write the rows of a frame."""
        self.arrow(_arrow_batches(frame))

    def _write(self, batch: Any) -> str:
        path = self._folder / f"sink-{len(self.chunks)}.arrow"
        write_arrow(path, batch)
        return str(path)


def _parts(values: Iterator[Any]) -> Generator[list[Any]]:
    while part := list(itertools.islice(values, CHUNK_ROWS)):
        yield part


def _json_value(value: Any) -> Any:
    """Return a value of a row that JSON lacks as one that it has."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if is_a(value, bytes, bytearray, memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return f"hex {data.hex()}"
    if hasattr(value, "item"):  # a scalar of numpy
        return value.item()
    return str(value)


def _pyarrow() -> Any:
    import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]

    return pa


def is_frame(sink: Any) -> bool:
    """Return whether `sink` is a frame of pandas, polars, Arrow or Spark, or another that exports Arrow."""
    return any(hasattr(sink, name) for name in ("__arrow_c_stream__", "toArrow", "toPandas", "collect_schema"))


def _arrow_batches(frame: Any) -> Iterable[Any]:
    """Return a frame's rows as Arrow record batches."""
    pa = _pyarrow()
    if hasattr(frame, "collect_schema") and not hasattr(frame, "__arrow_c_stream__"):
        frame = frame.collect()  # a LazyFrame of polars
    for name in ("toArrow", "toPandas"):  # Spark
        if not hasattr(frame, "__arrow_c_stream__") and hasattr(frame, name):
            frame = getattr(frame, name)()
    batches: Iterable[Any]
    if isinstance(frame, pa.RecordBatchReader):
        batches = frame
    elif type(frame).__module__.partition(".")[0] == "pandas":
        batches = pa.Table.from_pandas(frame, preserve_index=False).to_batches()
    else:
        batches = pa.table(frame).to_batches()
    return batches


def name_of_frame(frame: Any) -> str:
    """Return what a verdict calls a frame."""
    return f"the {type(frame).__module__.partition('.')[0]} frame"
