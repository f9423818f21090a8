"""Option values, marker arguments, seeds and folder names, without a pytest run around them (J1, J5)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.harness.plugin.options import OPTIONS, check_arguments, merge
from harrow.harness.plugin.workers import NAME_LENGTH_MAX, folder_name
from harrow.harness.seeds import child_seed
from hypothesis import given
from hypothesis import strategies as st

PARSE = {row.name: row.parse for row in OPTIONS}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("seed", "abc", "'abc': expected a whole number"),
        ("seed", "-1", "-1: expected a whole number from 0"),
        ("scope", "sesion", "did you mean session?"),
        ("set", ["min.insync.replicas"], "expected NAME=VALUE"),
        ("set", ["min.insync.replica=2"], "did you mean min.insync.replicas"),
        ("set", ["min.insync.replicas=two"], "expected a whole number"),
        ("spark_data", "shared", "expected a URL such as file:///mnt/shared"),
    ],
)
def test_invalid_option_values_are_refused_with_the_expected_form(name: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", "[?]")):
        PARSE[name](value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"broker": 5},
            "no argument 'broker'; did you mean brokers[?] .known: seed, brokers, defaults, as_version, plant, scope, ",
        ),
        ({"brokers": "many"}, "brokers='many': expected a whole number"),
        ({"brokers": True}, "brokers=True: expected a whole number"),
        ({"config": {"min.insync.replica": 1}}, "did you mean min.insync.replicas"),
        ({"config": 5}, "expected a mapping of broker settings"),
        ({"scope": "class"}, "expected test or session"),
    ],
)
def test_invalid_marker_arguments_are_usage_errors(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"^here: .*{words}"):
        check_arguments(arguments, "here")


def test_merging_options_prefers_later_layers_and_merges_config_by_setting() -> None:
    low = {"brokers": 1, "seed": 2, "config": {"a": 1, "b": 1}}
    assert merge(low, {}, {"brokers": 3, "config": {"b": 2}}) == {"brokers": 3, "seed": 2, "config": {"a": 1, "b": 2}}


@given(st.integers(0, 2**32 - 1), st.lists(st.text(max_size=5), max_size=3))
def test_child_seeds_are_in_range_and_differ_by_name(seed: int, names: list[str]) -> None:
    assert child_seed(seed, *names, "a", "b") != child_seed(seed, *names, "ab")
    assert 0 <= child_seed(seed, *names) < 2**63


def test_a_child_seed_never_changes_between_versions() -> None:
    # the commands that repeat old failures must stay valid
    assert child_seed(12345, "tests/test_a.py::test_b", "harrow") == FIXED_CHILD_SEED


@given(st.text(max_size=200), st.text(max_size=200))
def test_folder_names_are_short_and_safe_and_differ_by_test(name: str, other: str) -> None:
    folder = folder_name(f"tests/test_a.py::{name}")
    assert 0 < len(folder) <= NAME_LENGTH_MAX
    assert set(folder) & set("/\\ :[]") == set()
    assert not folder.startswith(".")
    assert (name == other) == (folder == folder_name(f"tests/test_a.py::{other}"))


FIXED_CHILD_SEED = 4105062340411216331
