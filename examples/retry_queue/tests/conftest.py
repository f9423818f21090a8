"""Repeats the tests when `repeat.py` asks for it; also in the workers of pytest-xdist."""

from __future__ import annotations

import os
import re

import pytest

RUNS = os.environ.get("RETRY_QUEUE_RUNS", "")
"""How often each wrong twin runs, a comma, and how often the correct service."""
RANDOM = "random_faults"
NUMBER = re.compile(r"run(\d+)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test a number of runs; those under random faults have their seeds."""
    if RUNS and RANDOM not in metafunc.function.__name__:
        metafunc.fixturenames.append("run_number")
        runs = max(map(int, RUNS.split(",")))
        metafunc.parametrize("run_number", [f"run{number}" for number in range(runs)])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep as many runs of each twin as were asked for."""
    if RUNS:
        items[:] = [item for item in items if _is_wanted(item.name)]


def _is_wanted(name: str) -> bool:
    wrong, right = map(int, RUNS.split(","))
    number = NUMBER.search(name)
    return number is None or int(number[1]) < (wrong if "wrong" in name else right)
