"""The checks of a pipeline with a state: `folded` and `windowed` (L5).

    KeyedMapper    inputs to their group, outputs to their record id; the last output of each id in a chunk of a topic
    FoldReducer    all inputs of a group: the final output, with the record id of that output
    KeyedCompare   the expected and the actual final output of an id

Here rows carry the records' contents, because a fold needs all of a group's records in log order.

`missing-output`: a group without an output. `unexpected-output`: an output whose id no group has. `wrong-output`: the
last output in a topic (of any partition), or the row of a table, is not the final state: a record was counted twice, or
the state was lost. `duplicate-output`: a table has several rows of an id. Earlier outputs in a topic are updates, which
are not compared, and commits are not judged: which update contains which input cannot be seen from outside.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..checks.record import Record
from .chunk_records import OutputChunk, records_of, text_of_record
from .join import HASH, NumberedChunk
from .pairing import Pairing, Unit
from .pipeline_findings import (
    DUPLICATE,
    MISSING,
    UNEXPECTED,
    WRONG,
    Findings,
    PipelineFinding,
    Place,
    TaskResult,
    Undecided,
)
from .pipeline_mapper import EXPECTED, ID_SEED, Problems
from .record_ids import canonical
from .relations import KeyedRelation
from .shapes import Shape, actual_output, shown

if TYPE_CHECKING:
    import polars as pl


class KeyedRow(NamedTuple):
    """A row of the frames of this module."""

    hash: int
    side: int
    chunk: int
    row: int
    partition: int
    offset: int
    timestamp_ms: int
    topic: str
    key: bytes | None
    value: bytes | None
    """The record's value; for an expected output its `Unit`s of several orders as JSON."""

    @property
    def place(self) -> Place:
        """Return where the record is."""
        return Place(self.chunk, self.row, 0, self.partition, self.offset)

    def record(self) -> Record:
        """Return the record."""
        return Record(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            timestamp_ms=self.timestamp_ms,
            key=self.key,
            value=self.value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedMapper:
    """Makes rows of the records of a chunk."""

    pairing: Pairing

    def __call__(self, chunk: NumberedChunk[OutputChunk]) -> Generator[pl.DataFrame | TaskResult]:
        """Yield the rows of one chunk."""
        problems = Problems(chunk.side)
        records = records_of(chunk.chunk)
        found: list[tuple[str, int, Record]] = []
        for row, record in enumerate(records):
            try:
                name = self._id(chunk.side, record)
                if name is not None:
                    found.append((name, row, record))
            except Exception as error:
                what = self._relation.name.lower() if chunk.side == EXPECTED else "record_id"
                problems.add(what, record, error)
        if chunk.side != EXPECTED and not self.pairing.rows.loose:
            last = {(name, record.partition): (name, row, record) for name, row, record in found}
            found = list(last.values())
        yield self._frame(chunk, found)
        yield {"counts": {"inputs" if chunk.side == EXPECTED else "outputs": len(records)}}
        yield from problems.result()

    @property
    def _relation(self) -> KeyedRelation:
        assert isinstance(self.pairing.relation, KeyedRelation)
        return self.pairing.relation

    def _id(self, side: int, record: Record) -> str | None:
        if side == EXPECTED:
            return canonical(self._relation.group(record))
        return self.pairing.output_id(record)

    def _frame(self, chunk: NumberedChunk[OutputChunk], found: Sequence[tuple[str, int, Record]]) -> pl.DataFrame:
        return frame_of(
            [
                (
                    name,
                    chunk.side,
                    chunk.number,
                    row,
                    record.partition,
                    record.offset,
                    record.timestamp_ms,
                    record.topic,
                    record.key,
                    text_of_record(record),
                )
                for name, row, record in found
            ]
        )


def frame_of(rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """Return rows whose first column is an id, as a text, as a frame with its hash."""
    import polars as pl

    types = [pl.String, pl.Int8, pl.Int32, pl.Int32, pl.Int32, pl.Int64, pl.Int64, pl.String]
    names = KeyedRow._fields
    schema: dict[str, Any] = dict(zip(names, [*types, pl.Binary, pl.Binary], strict=True))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    frame = pl.DataFrame(dict(zip(names, columns, strict=True)), schema=schema)
    return frame.with_columns(pl.col(HASH).hash(ID_SEED).reinterpret(signed=True))


def _groups(frame: pl.DataFrame) -> Generator[list[KeyedRow]]:
    """Yield the rows of each hash in a fixed order."""
    rows: list[KeyedRow] = []
    ordered = frame.sort(HASH, "side", "partition", "offset", "chunk", "row")
    for values in ordered.select(KeyedRow._fields).iter_rows():
        row = KeyedRow._make(values)
        if rows and rows[0].hash != row.hash:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldReducer:
    """Computes the final output of each group; the actual outputs pass."""

    pairing: Pairing

    def __call__(self, frame: pl.DataFrame) -> Generator[pl.DataFrame | TaskResult]:
        """Yield a frame with expected and actual outputs."""
        import polars as pl

        problems = Problems(EXPECTED)
        finals: list[tuple[Any, ...]] = []
        for rows in _groups(frame.filter(pl.col("side") == EXPECTED)):
            try:
                units = self._final([row.record() for row in rows])
            except Exception as error:
                problems.add("the relation", rows[-1].record(), error)
                continue
            last = rows[-1]
            content = json.dumps([[*unit[:3], shown(unit.value), len(rows)] for unit in units])
            finals.append(
                (
                    units[0].id,
                    EXPECTED,
                    last.chunk,
                    last.row,
                    last.partition,
                    last.offset,
                    last.timestamp_ms,
                    last.topic,
                    last.key,
                    content.encode(),
                )
            )
        outputs = frame.filter(pl.col("side") != EXPECTED)
        yield pl.concat([frame_of(finals), outputs])
        yield {"counts": {"expected_outputs": len(finals)}}
        yield from problems.result()

    def _final(self, records: Sequence[Record]) -> list[Unit]:
        relation = self.pairing.relation
        assert isinstance(relation, KeyedRelation)
        key = relation.group(records[0])[0]
        return [self.pairing.unit(value, records, key) for value in relation.candidates(records)]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCompare:
    """Compares the final outputs of each id."""

    pairing: Pairing

    def __call__(self, frame: pl.DataFrame) -> Generator[TaskResult]:
        """Yield counts, findings and doubts."""
        findings = Findings(0)
        undecided, first = Counter[str](), dict[str, str]()
        for rows in _groups(frame):
            units = [row for row in rows if row.side == EXPECTED]
            outputs = [row for row in rows if row.side != EXPECTED]
            if not self.pairing.rows.loose:  # rows are in the order of their offsets: the last one stays
                outputs = list({row.partition: row for row in outputs}.values())
            why = self._judge(units, outputs, findings)
            if why is not None:
                undecided[why[0]] += 1
                first.setdefault(*why)
        yield findings.result()
        for kind, count in undecided.items():
            yield {"undecided": Undecided(kind, count, first[kind])}

    def _judge(
        self, units: Sequence[KeyedRow], outputs: Sequence[KeyedRow], findings: Findings
    ) -> tuple[str, str] | None:
        """Judge one id; return why that is not possible."""
        if len(units) > 1:
            return "same id", f"{units[0].record().place} and {units[1].record().place}"
        if not units:
            findings.add(PipelineFinding(name=UNEXPECTED, output=outputs[-1].place))
            return None
        expected = [
            (Shape(kind, tuple(fields), with_key), text, value, records)
            for _, (kind, fields, with_key), text, value, records in json.loads(units[0].value or b"[]")
        ]
        given = units[0].place
        if not outputs:
            findings.add(PipelineFinding(name=MISSING, input=given))
            return None
        good = [any(self._equal(output, *unit[:2]) for unit in expected) for output in outputs]
        if any(good):
            findings.matched += 1
            if self.pairing.rows.loose:
                for output, equal in zip(outputs, good, strict=True):
                    if not equal:
                        findings.add(
                            PipelineFinding(name=WRONG, input=given, output=output.place, expected=expected[0][2])
                        )
                for output in [output for output, equal in zip(outputs, good, strict=True) if equal][1:]:
                    findings.add(PipelineFinding(name=DUPLICATE, input=given, output=output.place))
            return None
        if len({text for _, text, _, _ in expected}) > 1:
            return "order", f"{units[0].record().place}"
        last = max(outputs, key=lambda row: (row.timestamp_ms, row.partition, row.offset))
        shown_text, records = expected[0][2:]
        findings.add(PipelineFinding(name=WRONG, input=given, output=last.place, expected=shown_text, records=records))
        return None

    def _equal(self, output: KeyedRow, shape: Shape, text: str) -> bool:
        return actual_output(output.record(), shape, self.pairing.rows) == text
