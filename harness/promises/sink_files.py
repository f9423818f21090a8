"""The rows of files as the sink of a pipeline (L5): Parquet, JSON lines, JSON arrays and CSV.

Files and sub-folders whose names begin with `_` or `.`, such as `_spark_metadata`, and empty files are left out, as
Spark does. A file that a failed micro-batch of Spark left in the folder counts, because every other reader reads it.
May fail: ConfigError for an unknown format and for a file that cannot be read.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harrow.cluster.errors import ConfigError

from .sink_rows import CHUNK_ROWS, SinkWriter, mapping_of

FORMATS = (".parquet", ".pq", ".jsonl", ".ndjson", ".json", ".csv")


def stage_files(pattern: str, writer: SinkWriter) -> int:
    """Write the rows of all files; return how many files there are."""
    found = _paths(pattern)
    readers: dict[str, Callable[[Path, SinkWriter], None]] = {
        ".parquet": _parquet,
        ".pq": _parquet,
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
        ".json": _json_file,
        ".csv": _csv,
    }
    for path in found:
        suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
        if suffix not in readers:
            raise ConfigError(
                f"files({pattern!r}): {path.name} has no known format; expected {', '.join(FORMATS)}: name the files "
                "by a glob such as out/*.csv, or read them yourself and give the rows"
            )
        try:
            readers[suffix](path, writer)
        except (OSError, EOFError, ValueError, TypeError) as error:
            raise ConfigError(f"files({pattern!r}): {path} cannot be read: {error}") from error
    return len(found)


def _paths(text: str) -> list[Path]:
    path = Path(text)
    if path.is_file():
        return [path]
    if path.is_dir():
        found = (item for item in path.rglob("*") if not _is_hidden(item.relative_to(path)))
    else:
        found = (item for item in map(Path, glob.glob(text, recursive=True)) if not _is_hidden(Path(item.name)))
    return sorted(item for item in found if item.is_file() and item.stat().st_size)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def _parquet(path: Path, writer: SinkWriter) -> None:
    import pyarrow.parquet as parquet  # pyright: ignore[reportMissingTypeStubs]

    reader: Any = parquet
    with reader.ParquetFile(str(path)) as file:
        writer.arrow(file.iter_batches(CHUNK_ROWS))


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _json_lines(path: Path, writer: SinkWriter) -> None:
    with _open(path) as file:
        writer.values(line.strip() for line in file if line.strip())


def _json_file(path: Path, writer: SinkWriter) -> None:
    """A JSON array of objects, or JSON lines, which Spark calls .json too."""
    with _open(path) as file:
        is_array = file.read(64).lstrip().startswith(b"[")
    if not is_array:
        _json_lines(path, writer)
        return
    with _open(path) as file:
        writer.json_rows(mapping_of(row) for row in json.load(file))


def _csv(path: Path, writer: SinkWriter) -> None:
    """All fields stay texts: `shapes.py` compares them loosely."""
    with _open(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        writer.json_rows(csv.DictReader(text))
