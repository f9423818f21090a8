"""Pairing: which actual output belongs to which expected output of a pipeline.

* With `record_id`: outputs and expectations with the same record id belong together. The id of an expectation is taken
  of the expected output where that has it, else of the input.
* Without `record_id`, with a relation of single records: outputs and expectations with the same whole value belong
  together, as multisets. All expectations must then have one shape.
* `folded` without `record_id`, into a topic: an output belongs to the key that is its record key.

Ids are compared as texts (`record_ids.py`), so that the integer 17, the record key b"17" and the 17.0 of a pandas
column are the same id. A function that returns None for a record says that the record is not to be judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from harrow.cluster.errors import ConfigError

from ..checks.record import Record
from .record_ids import IdReader, IdSource, RecordIdError, canonical, check_source
from .relations import Folded, KeyedRelation, RecordRelation, Relation
from .shapes import Rows, Shape, expected_output, is_a

BY_ID = Shape("any")
"""The shape of an expectation of which only the record id is known: every output has it."""


class Unit(NamedTuple):
    """One output that must come out."""

    id: str | None
    """The text of the record id; None when outputs are paired by their whole value."""
    shape: Shape
    text: str
    value: Any
    """What the relation's function returned, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """How the outputs of one pipeline are paired with its inputs. Picklable: Spark's tasks use it."""

    relation: Relation | None
    record_id: IdSource | None
    rows: Rows

    @property
    def usual_id(self) -> Callable[[Any], str | None]:
        """The function of a decoded value that returns the text of its id where all is as usual, else None.

        As usual: the field path `record_id` leads to a text or an integer. It is the fast way for most records.
        """
        return _usual_id_at(self.record_id)

    def check(self) -> None:
        """Raise ConfigError where inputs and outputs could not be paired."""
        relation = self.relation
        if self.record_id is not None:
            check_source("record_id", self.record_id)
            return
        if relation is None:
            raise ConfigError(
                "verify_pipeline() cannot pair outputs with inputs: give record_id= (a field such as 'order', or a "
                "function of the record), or relation= (identity, mapped(f), …)"
            )
        if isinstance(relation, KeyedRelation) and not (isinstance(relation, Folded) and not self.rows.loose):
            raise ConfigError(
                f"verify_pipeline(relation={relation.name.lower()}(…)) needs record_id=: what identifies the key (and "
                "window) in an output, for example record_id=lambda row: (row['customer'], row['minute'])"
            )

    @property
    def by_value(self) -> bool:
        """True when outputs are paired by their whole value."""
        return self.record_id is None and isinstance(self.relation, RecordRelation)

    def expected(self, record: Record) -> list[Unit]:
        """Return what must come out for one input, for a relation of single records. May raise any exception."""
        if self.relation is None:
            return self._expected_by_id(record)
        assert isinstance(self.relation, RecordRelation)
        return [self.unit(given, (record,)) for given in self.relation.outputs(record)]

    def _expected_by_id(self, record: Record) -> list[Unit]:
        found = self._id_of(record)
        return [] if found is None else [Unit(found, BY_ID, "", None)]

    def unit(self, given: Any, inputs: Sequence[Record], key: object = None) -> Unit:
        """Return the expectation for what a relation's function returned. `key`: the group of a keyed relation."""
        shape, text = expected_output(given, self.rows)
        if self.by_value:
            return Unit(None, shape, text, given)
        if self.record_id is None:
            return Unit(canonical(key), shape, text, given)
        found = self._id_of_expected(given, inputs[-1])
        if found is None:
            raise RecordIdError(
                f"record_id= returned None for an input for which the relation requires the output {given!r:.200}"
            )
        return Unit(found, shape, text, given)

    def _id_of_expected(self, given: Any, record: Record) -> str | None:
        found = self.usual_id(given)
        if found is not None:
            return found
        key: Any = None
        value: Any = given
        if is_a(given, tuple) and len(given) == 2:
            key, value = given
        if isinstance(value, Record):
            return self._id_of(value)
        if is_a(value, Mapping):
            fields: Mapping[str, Any] = value
            try:
                found = self._id_of(row_record(dict(fields), key=key))
            except Exception:  # the field, or what the function reads, is only in the input
                found = None
            if found is not None:
                return found
        return self._id_of(record)

    def _id_of(self, record: Record) -> str | None:
        assert self.record_id is not None
        if (usual := self.usual_id(record.__dict__.get("json"))) is not None:
            return usual
        found = IdReader("record_id", self.record_id).of(record)
        return None if found is None else canonical(found)

    def output_id(self, output: Record) -> str | None:
        """Return the id of an output; None when it is not to be judged. May raise any exception."""
        if self.record_id is None:
            return canonical(output.key)
        return self._id_of(output)


@lru_cache(maxsize=16)
def _usual_id_at(source: IdSource | None) -> Callable[[Any], str | None]:
    if not isinstance(source, str):
        return _no_id
    *parents, last = source.split(".")

    def usual_id(value: Any) -> str | None:
        if value.__class__ is not dict:
            return None
        found = value.get(last)
        kind = found.__class__
        return found if kind is str else str(found) if kind is int else None

    def usual_id_within(value: Any) -> str | None:
        found = value
        for name in parents:
            if found.__class__ is not dict:
                return None
            found = found.get(name)
        return usual_id(found)

    return usual_id_within if parents else usual_id


def _no_id(_: Any) -> None:
    return None


def row_record(fields: dict[str, Any], *, key: Any = None, number: int = -1) -> Record:
    """Return a row of a sink as a `Record`: a mapping of its fields."""
    if isinstance(key, str):
        key = key.encode()
    record = Record(key=key if isinstance(key, bytes) else None, offset=number)
    record.__dict__["json"] = fields
    return record
