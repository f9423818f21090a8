"""The rows of one record id in a pipeline's checks: `IdRows`, read from the frames of `pipeline_mapper.py` (L5).

Without retry topics and dead letters a frame has only expected and actual outputs. With them, its further columns
(`retry_columns.py`) say what a retry rule needs.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .join import HASH
from .pipeline_findings import Place
from .pipeline_mapper import ACTUAL, DEAD, EXPECTED, INPUT

if TYPE_CHECKING:
    import polars as pl

Content = tuple[int, int]
"""The hashes of a record's key and of its value."""


class UnitRow(NamedTuple):
    """A row of an expected output."""

    place: Place
    shape: int
    text: int
    commits: tuple[int, ...]
    order: int
    time: int = 0
    """When the input was acknowledged; 0: not known."""
    content: Content = (0, 0)
    reads: int = -1
    """How often the input was delivered to a client; -1: not known."""


class OutputRow(NamedTuple):
    """A row of an actual output."""

    place: Place
    texts: tuple[int, ...]
    time: int


class InputRow(NamedTuple):
    """An input, whatever it requires."""

    place: Place
    content: Content
    time: int
    reads: int


class LetterRow(NamedTuple):
    """A dead letter."""

    place: Place
    content: Content
    time: int
    """When it was acknowledged; 0: not known."""
    attempts: int
    """By its header; -1: it has none."""
    has_reason: bool
    sent_ms: int


class RetryRow(NamedTuple):
    """A record of a retry topic."""

    place: Place
    topic: int
    """The number of its topic among the retry topics."""
    attempts: int
    """By its header; -1: it has none."""
    due_ms: int
    """By its header; -1: it has none."""
    time: int
    """When it was acknowledged; 0: not known."""
    sent_ms: int
    """When it was written, by the wall clock."""
    order: int
    producer: int
    """The producer id, of a record that may count the first attempt; -1: it has none, or is not known."""


@dataclass(slots=True)
class IdRows:
    """All rows of one record id, by partition and offset."""

    units: list[UnitRow] = field(default_factory=list[UnitRow])
    outputs: list[OutputRow] = field(default_factory=list[OutputRow])
    inputs: list[InputRow] = field(default_factory=list[InputRow])
    """The inputs with this id, also those that require no output; empty without retry topics and dead letters."""
    letters: list[LetterRow] = field(default_factory=list[LetterRow])
    retries: list[RetryRow] = field(default_factory=list[RetryRow])


def rows_by_id(frame: pl.DataFrame, *, shapes: int, groups: int) -> Generator[IdRows]:
    """Yield the rows of each record id."""
    if not len(frame):
        return
    found = IdRows()
    last: int | None = None
    ordered = frame.sort(HASH, "side", "partition", "offset", "chunk", "row", "part")
    for row in ordered.iter_rows(named=True):
        if last is not None and row[HASH] != last:
            yield found
            found = IdRows()
        last = row[HASH]
        _add(found, row, shapes, groups)
    yield found


def _add(found: IdRows, row: Mapping[str, Any], shapes: int, groups: int) -> None:
    side, place = row["side"], Place(*(row[name] for name in Place._fields))
    if side == ACTUAL:
        texts = tuple(row[f"text_{at}"] for at in range(shapes))
        found.outputs.append(OutputRow(place, texts, row["time"]))
        return
    tracked = "attempts" in row
    content = (row["key_hash"], row["value_hash"]) if tracked else (0, 0)
    reads = row["reads"] if tracked else -1
    if side == EXPECTED:
        commits = tuple(row[f"commit_{at}"] for at in range(groups))
        found.units.append(
            UnitRow(place, row["shape"], row["text_0"], commits, row["order"], row["time"], content, reads)
        )
    if side in (EXPECTED, INPUT):
        if tracked and place.part <= 0:  # the first output stands for its input
            found.inputs.append(InputRow(place, content, row["time"], reads))
    elif side == DEAD:
        found.letters.append(LetterRow(place, content, row["time"], row["attempts"], row["reason"], row["sent"]))
    else:
        found.retries.append(
            RetryRow(
                place,
                row["topic"],
                row["attempts"],
                row["due"],
                row["time"],
                row["sent"],
                row["order"],
                row["producer"],
            )
        )
