"""Chunks whose records are all as usual: their ids, and what must come out for them, for all records at once.

As usual: the record id is a field path to a text or an integer, and the relation's function returns dictionaries which
all have the same fields. Nearly every chunk is so. For these chunks Python's own loops over whole columns take a third
of the time of a call for each record.

Every function here returns None for a chunk that is not as usual, or in which a function of the user raised an
exception. The caller then takes record by record (`Pairing.expected`, `Pairing.output_id`), and so calls the user's
functions again. Both ways give the same units and ids; a property test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from .chunk_records import ChunkRows
from .pairing import BY_ID, Pairing
from .record_ids import IdSource
from .relations import FlatMapped, Mapped
from .shapes import Shape, is_a, object_shape, texts_of_objects


class UnitColumns(NamedTuple):
    """The expected outputs of a chunk: lists of equal length."""

    rows: list[int]
    """Rows of the chunk whose record requires the output, ascending."""
    parts: list[int]
    """The output's number among those of its record."""
    ids: Sequence[str | None]
    shapes: list[Shape]
    texts: list[str]


def usual_units(pairing: Pairing, source: ChunkRows) -> UnitColumns | None:
    """Return what must come out for the records of a chunk."""
    if pairing.relation is None:
        rows, ids = list(range(len(source))), usual_ids(source.decoded, pairing.record_id)
        if ids is None:
            return None
        return UnitColumns(rows, [0] * len(rows), ids, [BY_ID] * len(rows), [""] * len(rows))
    try:
        return _units_of_outputs(pairing, source)
    except Exception:  # the caller finds the record, and reports the exception
        return None


def _units_of_outputs(pairing: Pairing, source: ChunkRows) -> UnitColumns | None:
    relation, rows = pairing.relation, list(range(len(source)))
    if type(relation) is Mapped:  # a subclass may have outputs of its own
        given: list[Any] = list(map(relation.function, source.records()))
        return _units_of(pairing, rows, [0] * len(rows), given)
    if isinstance(relation, FlatMapped):
        found = list(map(relation.outputs, source.records()))
        counts = list(map(len, found))
        rows = list(chain.from_iterable(map(repeat, rows, counts)))
        parts = list(chain.from_iterable(map(range, counts)))
        return _units_of(pairing, rows, parts, list(chain.from_iterable(found)))
    return None


def _units_of(pairing: Pairing, rows: list[int], parts: list[int], given: list[Any]) -> UnitColumns | None:
    first: Any = given[0] if given else None
    if not is_a(first, dict):
        return None
    shape = object_shape(tuple(first))
    texts = texts_of_objects(given, shape.fields, loose=pairing.rows.loose)
    if texts is None or set(map(len, given)) != {len(shape.fields)}:
        return None
    ids = [None] * len(given) if pairing.by_value else usual_ids(given, pairing.record_id)
    if ids is None:
        return None
    return UnitColumns(rows, parts, ids, [shape] * len(given), texts)


def usual_ids(values: Sequence[Any], source: IdSource | None) -> list[str] | None:
    """Return the texts of the ids at a field path of decoded values."""
    if not isinstance(source, str):
        return None
    found: list[Any] = list(values)
    for name in source.split("."):
        if not {dict}.issuperset(map(type, found)):
            return None
        try:
            found = list(map(itemgetter(name), found))
        except KeyError:
            return None
    kinds = set(map(type, found))
    if kinds <= {str}:
        return found
    return list(map(str, found)) if kinds <= {int, str} else None
