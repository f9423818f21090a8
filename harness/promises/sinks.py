"""Sinks: where a pipeline's output is (L5), and their rows as Arrow files in the run folder.

    verify_pipeline(orders, bills)                               a topic: a `Topic` or its name
    verify_pipeline(orders, table("sqlite:///shop.db", "select * from bills"))
    verify_pipeline(orders, files("out/*.parquet"))              Parquet, JSON lines, JSON, CSV
    verify_pipeline(orders, frame)                               pandas, polars, Arrow, Spark
    verify_pipeline(orders, rows)                                any iterable of mappings or of Records

`stage` writes the rows of a sink that is no topic into a folder, so that Spark's tasks can read them (`sink_rows.py`;
`sink_tables.py` and `sink_files.py` read tables and files).

May fail: ConfigError, which names the remedy. A sink without rows is no error here: the verdict reports it.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harrow.cluster.argument_types import checked
from harrow.cluster.errors import ConfigError

from ..checks.record import Record
from ..topics import Topic
from .chunk_records import OutputChunk
from .sink_files import FORMATS, stage_files
from .sink_rows import SinkWriter, is_frame, mapping_of, name_of_frame
from .sink_tables import query_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The result of a query; made by `table`."""

    source: Any
    query: str

    def __str__(self) -> str:
        return f"table({self.query!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files of rows; made by `files`."""

    path: str

    def __str__(self) -> str:
        return f"files({self.path!r})"


@checked
def table(url_or_connection: Any, query: str) -> Table:
    """The rows of a query, or of the table that `query` names, as the sink of a pipeline.

    `url_or_connection`: `sqlite:///shop.db`, the path of an SQLite file, any URL if SQLAlchemy is installed, an engine
    or connection of SQLAlchemy, or any DB-API connection. The query runs when the pipeline is verified.
    """
    if not isinstance(query, str) or not query.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("table(url_or_connection, query): expected SQL text, or a table's name")
    return Table(source=url_or_connection, query=query.strip())


@checked
def files(path: str | Path) -> Files:
    """The rows of a file, of all files in a folder, or of those that a glob names, as the sink of a pipeline.

    Formats by suffix: .parquet, .jsonl, .ndjson, .json and .csv, also with .gz after JSON and CSV. Files and folders
    whose names begin with `_` or `.` are left out, as Spark does. A file that a failed micro-batch of Spark left behind
    counts; give a frame of Spark to leave it out, too.
    """
    return Files(path=str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSink:
    """The rows of a sink in files."""

    name: str
    """What a verdict calls the sink."""
    chunks: list[OutputChunk] = field(default_factory=list[OutputChunk])
    loose: bool = True
    """Whether the outputs are rows; False for records of a topic."""
    note: str = ""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(chunk.rows for chunk in self.chunks)


def topic_of(sink: Any) -> str | None:
    """Return the name of the topic that `sink` is, or None. Raises ConfigError for what cannot be a sink."""
    if isinstance(sink, Topic):
        return sink.name
    if isinstance(sink, str):
        if "/" in sink or sink.endswith(FORMATS):
            raise ConfigError(
                f"verify_pipeline(sink={sink!r}): a text is the name of a topic; use files({sink!r}) or table(…, query)"
            )
        return sink
    if isinstance(sink, Path):
        raise ConfigError(f"verify_pipeline(sink={sink!r}): use files({str(sink)!r})")
    known = isinstance(sink, (Table, Files, Iterable)) or is_frame(sink)
    if not known or isinstance(sink, (bytes, Mapping)):
        raise ConfigError(
            f"verify_pipeline(sink={sink!r:.80}): expected a topic, table(…), files(…), a pandas, polars, Arrow or "
            "Spark frame, or an iterable of rows"
        )
    return None


def stage(sink: Any, folder: Path) -> StagedSink:
    """Write the rows of a sink that is no topic into `folder`, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer = SinkWriter(folder)
    if isinstance(sink, Table):
        writer.json_rows(query_rows(sink.source, sink.query))
        return StagedSink(name=str(sink), chunks=writer.chunks)
    if isinstance(sink, Files):
        found = stage_files(sink.path, writer)
        note = "" if found else f"no file matches {sink.path}"
        return StagedSink(name=str(sink), chunks=writer.chunks, note=note)
    if is_frame(sink):
        writer.frame(sink)
        return StagedSink(name=name_of_frame(sink), chunks=writer.chunks)
    return _stage_iterable(sink, writer)


def _stage_iterable(sink: Iterable[Any], writer: SinkWriter) -> StagedSink:
    rows = iter(sink)
    first = next(rows, None)
    if first is None:
        return StagedSink(name="the rows")
    chained = itertools.chain([first], rows)
    if isinstance(first, Record):
        writer.records(chained)
        return StagedSink(name="the records", chunks=writer.chunks, loose=False)
    writer.json_rows(mapping_of(row) for row in chained)
    return StagedSink(name="the rows", chunks=writer.chunks)
