"""`expected=`: which iterables are accepted, which have an order, and how elements become ids (L5)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from harrow.cluster.errors import ConfigError
from harrow.harness.promises import expectations
from harrow.harness.promises.expectations import (
    ExpectationError,
    Expectations,
    check_expected,
    is_ordered,
    write_expectations,
)
from harrow.harness.promises.record_ids import IdReader

ORDER = IdReader("record_id", "order")


def ids_of(written: Expectations) -> list[str]:
    return [identity for chunk in written.chunks for identity in chunk.ids()]


def test_ids_records_and_rows_of_a_series_are_elements(tmp_path: Path) -> None:
    elements: Iterable[Any] = iter([1, "2", {"order": 3, "x": 1}, *pl.Series([4, 5]), 6.0])
    written = write_expectations(elements, ORDER, tmp_path)
    assert ids_of(written) == ["1", "2", "3", "4", "5", "6"]
    assert written.count == 6
    assert written.ordered


def test_a_large_expectation_is_written_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "CHUNK_ROWS", 4)
    written = write_expectations(range(10), ORDER, tmp_path)
    assert [(chunk.start, chunk.rows) for chunk in written.chunks] == [(0, 4), (4, 4), (8, 2)]
    assert ids_of(written) == [str(number) for number in range(10)]


@pytest.mark.parametrize(
    ("expected", "ordered"),
    [
        ([1], True),
        ((1,), True),
        (range(2), True),
        ({1: "a"}, True),
        ({1: "a"}.keys(), True),
        (iter({1}), True),
        ({1}, False),
        (frozenset({1}), False),
        ({1: "a"}.items(), False),
    ],
)
def test_sets_have_no_order(expected: Iterable[object], ordered: bool) -> None:
    assert is_ordered(expected) is ordered


@pytest.mark.parametrize("expected", ["orders", b"x", 7, pl.DataFrame({"order": [1]})])
def test_values_that_are_no_elements_are_refused(expected: object) -> None:
    with pytest.raises(ConfigError, match="expected="):
        check_expected(expected)


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ({"ordre": 1}, "no such field"),
        ({"order": None}, "is null"),
        (None, "there is no id"),
        (object(), "cannot be compared"),
        ({"order": object()}, "cannot be compared"),
    ],
)
def test_an_element_without_an_id_is_named(tmp_path: Path, element: object, said: str) -> None:
    with pytest.raises(ExpectationError, match=f"element 1 of expected= has no record id: .*{said}"):
        write_expectations([0, element], ORDER, tmp_path)


def test_a_function_that_raises_on_an_element_is_reported(tmp_path: Path) -> None:
    reader = IdReader("record_id", lambda record: record["order"]["id"])
    with pytest.raises(ExpectationError, match=r"element 0 .*TypeError"):
        write_expectations([{"order": 1}], reader, tmp_path)


def test_lone_surrogates_are_written_as_their_escapes(tmp_path: Path) -> None:
    written = write_expectations(["\ud800", "ok"], ORDER, tmp_path)
    assert ids_of(written) == ["\\ud800", "ok"]
