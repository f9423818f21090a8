"""`expected=`: what the application believes that it did, as record ids, in files for the join.

A user gives an iterable of ids, or of records (mappings, from which `record_id=` takes the id). Whatever can be
iterated once is accepted. A list or another ordered iterable also says in which order the records were sent; a set
does not. An id that occurs several times says that the application sent the record so many times on purpose.

Owns `expected-<n>.arrow` in `promises/` of the run folder: the ids as canonical text (`record_ids.canonical`), at most
`CHUNK_ROWS` in a file. The files are written by the process of the test, so the ids of a large expectation are never
all in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, KeysView, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harrow.cluster.errors import ConfigError, HarrowError

from ..histories.task_files import arrow_table, write_arrow
from .record_ids import IdReader, RecordIdError, canonical

CHUNK_ROWS = 1 << 16


class ExpectationError(HarrowError):
    """An element of `expected=` has no record id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedChunk:
    """Consecutive expected ids; a `Chunk` of the join."""

    path: str
    start: int
    """The position of the first id in the whole expectation."""
    rows: int
    size: int

    def ids(self) -> list[str]:
        """Return the canonical texts of the ids, in their order."""
        ids: list[str] = arrow_table(self.path)[0].to_pylist()
        return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What the application believes that it sent."""

    chunks: list[ExpectedChunk] = field(default_factory=list[ExpectedChunk])
    ordered: bool = False

    @property
    def count(self) -> int:
        """How many records the application believes that it sent."""
        return sum(chunk.rows for chunk in self.chunks)


def check_expected(expected: object) -> None:
    """Check what the caller gave as `expected=`. Raises ConfigError."""
    if isinstance(expected, str | bytes) or not isinstance(expected, Iterable):
        raise ConfigError(f"expected={expected!r}: expected a list or another iterable of record ids or records")
    if hasattr(expected, "columns"):  # pyright: ignore[reportUnknownArgumentType]
        raise ConfigError('expected= is a frame, whose iteration yields columns; give the ids, such as frame["order"]')


def is_ordered(expected: Iterable[object]) -> bool:
    """True unless `expected` is a set. The keys of a mapping have an order."""
    return not isinstance(expected, Set) or isinstance(expected, KeysView)


def write_expectations(expected: Iterable[object], reader: IdReader, folder: Path) -> Expectations:
    """Write the ids into files in `folder`. Raises ExpectationError for an element without an id."""
    folder.mkdir(parents=True, exist_ok=True)
    ordered = is_ordered(expected)
    chunks: list[ExpectedChunk] = []
    elements = iter(expected)
    start = 0
    while ids := list(_ids(itertools.islice(elements, CHUNK_ROWS), reader, start)):
        path = folder / f"expected-{len(chunks)}.arrow"
        size = _write(path, ids)
        chunks.append(ExpectedChunk(path=str(path), start=start, rows=len(ids), size=size))
        start += len(ids)
    return Expectations(chunks=chunks, ordered=ordered)


def _ids(elements: Iterator[object], reader: IdReader, start: int) -> Iterator[str]:
    """Return the canonical text of each element's id."""
    for at, element in enumerate(elements, start):
        kind = type(element)
        if kind is str:
            yield cast("str", element)
        elif kind is int:
            yield str(element)
        else:
            yield _id_of(element, reader, at)


def _id_of(element: object, reader: IdReader, at: int) -> str:
    try:
        return canonical(_taken(element, reader))
    except Exception as error:
        raise ExpectationError(
            f"element {at} of expected= has no record id: {_text(error)}; the element is {element!r:.200}"
        ) from error


def _taken(element: object, reader: IdReader) -> object:
    """Return the id of an element; a mapping is a record, everything else is an id."""
    if isinstance(element, Mapping):
        element = reader.of_mapping(cast("Mapping[str, Any]", element))
    if element is None:
        raise RecordIdError("there is no id")
    return element


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, RecordIdError) else repr(error)


def _write(path: Path, ids: list[str]) -> int:
    import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]

    arrow: Any = pa
    batch = arrow.record_batch({"id": text_array(arrow, ids)})
    write_arrow(path, batch)
    return int(batch.nbytes)


def text_array(arrow: Any, ids: list[str]) -> Any:
    """Return a string column; lone surrogates, which JSON allows and UTF-8 does not, are written as their escapes."""
    try:
        return arrow.array(ids, arrow.string())
    except UnicodeEncodeError:
        clean = [text.encode("utf-8", "backslashreplace").decode() for text in ids]
        return arrow.array(clean, arrow.string())
