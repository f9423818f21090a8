"""What is found for all records of a chunk at once is what is found record by record, or nothing (L5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from harrow.harness.checks.record import Record
from harrow.harness.promises.chunk_records import ChunkRows
from harrow.harness.promises.pairing import Pairing, row_record
from harrow.harness.promises.record_ids import IdSource
from harrow.harness.promises.relations import Relation, flat_mapped, mapped
from harrow.harness.promises.shapes import Rows, actual_output, actual_texts, object_shape
from harrow.harness.promises.usual_chunks import usual_ids, usual_units
from hypothesis import example, given
from hypothesis import strategies as st

PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
VALUES = PLAIN | st.floats(allow_nan=False) | st.lists(PLAIN, max_size=2) | st.binary(max_size=2)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
ORDERS = st.fixed_dictionaries({"order": st.integers() | st.text(max_size=3)}, optional={"a": VALUES})
OUTPUTS = st.lists(ORDERS | OBJECTS | VALUES, max_size=5) | st.lists(ORDERS, max_size=5)
Outputs = list[Any]


def chunk(decoded: Sequence[Any]) -> ChunkRows:
    count = len(decoded)
    return ChunkRows(
        partition=np.zeros(count, np.int32),
        offset=np.arange(count),
        keys=[None] * count,
        decoded=decoded,
        make=lambda rows: (row_record({"given": decoded[row]}, number=row) for row in rows),
    )


def sum_of(record: Record) -> Any:
    return record["given"]


def units_of_each(pairing: Pairing, source: ChunkRows) -> list[tuple[Any, ...]]:
    return [
        (row, part, unit.id, unit.shape, unit.text)
        for row, record in enumerate(source.records())
        for part, unit in enumerate(pairing.expected(record))
    ]


def by_order(relation: Relation, *, loose: bool = False) -> Pairing:
    return Pairing(relation=relation, record_id="order", rows=Rows(loose=loose))


@given(outputs=OUTPUTS, loose=st.booleans(), by_value=st.booleans())
@example(outputs=[{"order": 1, "a": 1.0}, {"a": 2, "order": "x"}], loose=False, by_value=False)
@example(outputs=[{"order": 1}, {"order": 2}], loose=True, by_value=False)
@example(outputs=[{}, {}], loose=False, by_value=True)
def test_the_units_of_a_chunk_are_those_of_its_records(outputs: Outputs, loose: bool, by_value: bool) -> None:
    source = chunk(outputs)
    pairing = Pairing(relation=mapped(sum_of), record_id=None if by_value else "order", rows=Rows(loose=loose))
    found = usual_units(pairing, source)
    assert found is None or list(zip(*found, strict=True)) == units_of_each(pairing, source)


@given(outputs=st.lists(st.lists(ORDERS, max_size=3), max_size=5))
def test_the_units_of_several_outputs_of_a_record_have_their_numbers(outputs: list[Outputs]) -> None:
    source, pairing = chunk(outputs), by_order(flat_mapped(sum_of))
    found = usual_units(pairing, source)
    assert found is None or list(zip(*found, strict=True)) == units_of_each(pairing, source)


@pytest.mark.parametrize(
    ("relation", "decoded"),
    [
        (mapped(sum_of), [{"order": 1, "a": 2.5}, {"a": None, "order": "x"}]),
        (flat_mapped(sum_of), [[{"order": 1}, {"order": 2}], [], [{"order": 3}]]),
    ],
)
def test_usual_chunks_are_found_at_once(relation: Relation, decoded: Outputs) -> None:
    pairing, source = by_order(relation), chunk(decoded)
    found = usual_units(pairing, source)
    assert found is not None
    assert list(zip(*found, strict=True)) == units_of_each(pairing, source)


@pytest.mark.parametrize(
    "outputs",
    [
        [{"order": 1}, {"order": True}],
        [{"order": 1}, {"order": None}],
        [{"order": 1}, {"order": 1, "a": 2}],
        [{"order": 1, "a": 2}, {"order": 1, "b": 2}],
        [{"order": 1}, "order 2"],
        [{"order": 1, 2: "a"}],
        [],
    ],
)
def test_other_chunks_are_left_to_the_way_record_by_record(outputs: Outputs) -> None:
    assert usual_units(by_order(mapped(sum_of)), chunk(outputs)) is None


def test_an_exception_of_the_users_function_is_left_to_the_way_record_by_record() -> None:
    assert usual_units(by_order(mapped(lambda record: 1 / 0)), chunk([{"order": 1}])) is None


@given(
    values=st.lists(st.fixed_dictionaries({"a": st.fixed_dictionaries({"b": VALUES})}) | OBJECTS, max_size=4),
    source=st.sampled_from(["a", "a.b", "a.b.c"]),
)
def test_the_ids_of_a_chunk_are_those_of_its_records(values: Outputs, source: IdSource) -> None:
    found = usual_ids(values, source)
    pairing = Pairing(relation=None, record_id=source, rows=Rows())
    assert found is None or found == [pairing.output_id(row_record(value)) for value in values]


@given(decoded=st.lists(OBJECTS | VALUES, max_size=6), loose=st.booleans())
@example(decoded=[{"a": 1, "b": 2}, {"a": 1}, None, {"a": 1.0, "b": "2", "c": 3}], loose=False)
def test_the_texts_of_outputs_are_those_of_each(decoded: Outputs, loose: bool) -> None:
    record: Callable[[int], Record] = lambda row: row_record(decoded[row])  # noqa: E731
    rows = Rows(loose=loose)
    for names in ("ab", "a", ""):
        shape = object_shape(tuple(names))
        found = actual_texts(decoded, record, shape, rows)
        assert found == [actual_output(record(row), shape, rows) for row in range(len(decoded))]
