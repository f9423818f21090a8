"""The option of the gallery, and its repetition (`repeat.py`), which the workers of pytest-xdist need as well."""

from __future__ import annotations

import os
import re

import pytest
from twins import UNMASKED

RUNS = os.environ.get("GALLERY_RUNS", "")
"""How often each wrong service runs, a comma, and how often each correct twin; empty: once."""
NUMBER = re.compile(r"\brun(\d+)")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--unmask",
        action="store_true",
        help="gallery: let the verdicts on wrong services fail their tests, as a user sees them",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--unmask"):
        UNMASKED.set()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test a number of runs."""
    if RUNS:
        metafunc.fixturenames.append("run_number")
        metafunc.parametrize("run_number", range(max(map(int, RUNS.split(",")))), ids="run{}".format)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep as many runs of each twin as were asked for."""
    if RUNS:
        items[:] = [item for item in items if _is_wanted(item.name)]


def _is_wanted(name: str) -> bool:
    wrong, right = map(int, RUNS.split(","))
    number = NUMBER.search(name)
    return number is None or int(number[1]) < (wrong if "wrong" in name else right)
