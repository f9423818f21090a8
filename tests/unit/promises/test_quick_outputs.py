"""The fast way to an expected output gives what the slow one gives, or nothing (L5)."""

from __future__ import annotations

from typing import Any

from harrow.harness.promises.shapes import Rows, expected_output, quick_output
from hypothesis import example, given
from hypothesis import strategies as st

PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
VALUES = PLAIN | st.floats(allow_nan=False) | st.lists(PLAIN, max_size=2) | st.binary(max_size=2)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@given(outputs=st.lists(OBJECTS | VALUES, max_size=8), loose=st.booleans())
@example(
    outputs=[{"b": 1, "a": "x"}, {"a": "x", "b": 1}, {"a": 1, "c": None}, {"a": 1}, {}], loose=False
)
def test_the_quick_output_is_the_expected_output(outputs: list[Any], loose: bool) -> None:
    rows = Rows(loose=loose)
    quick = quick_output(rows)
    for output in outputs:
        found = quick(output)
        assert found is None or found == expected_output(output, rows)


def test_objects_with_plain_values_take_the_fast_way() -> None:
    quick = quick_output(Rows())
    for output in ({"b": 1, "a": "x"}, {"a": "y", "b": None}, {"a": True, "c": 2}):
        assert quick(output) == expected_output(output, Rows())
