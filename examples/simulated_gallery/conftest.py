"""Checks what the searches for wrong services find; `UNMASK=1` shows their failures as a user sees them."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
IN_SUITE, SEEDS_IN_SUITE = ("test_sends_again",), 3
"""The pairs whose correct service runs where this folder is not asked for by its name, and its seeds."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "finds(names): a wrong service, and what the search finds: one of these names")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a few seeds of a correct service where all tests of the repository run."""
    asked_for = [str(config.invocation_params.dir), *map(str, config.invocation_params.args)]
    if os.environ.get("HARROW_LONG") == "1" or any(FOLDER.name in word for word in asked_for):
        return
    items[:] = [
        item
        for item in items
        if item.path.parent != FOLDER or (item.path.stem in IN_SUITE and item.get_closest_marker("finds") is None)
    ]
    for item in items:
        if item.path.parent == FOLDER:
            item.add_marker(pytest.mark.harrow(backend="simulated", seeds=SEEDS_IN_SUITE), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Let the search pass that finds what it should, and fail the one that finds something else, or nothing."""
    report = yield
    expected = item.get_closest_marker("finds")
    searched = dict(item.user_properties).get("harrow.simulated")
    if expected is None or call.when != "call" or searched is None or os.environ.get("UNMASK") == "1":
        return report
    found = str(dict(item.user_properties).get("harrow.failure", "no failure"))
    wanted = set(expected.args[0].split(", "))
    if report.failed and wanted & set(found.split(", ")):
        report.outcome, report.longrepr = "passed", None
    else:
        report.outcome = "failed"
        report.longrepr = f"expected {' or '.join(sorted(wanted))}, found {found}\n{report.longrepr or ''}"
    return report
