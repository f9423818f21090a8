"""Checks what the searches for wrong services find; the option `--unmask` shows their failures as a user sees them."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

IN_SUITE = ("sends_again", "gives_up")
"""The pairs that run without being asked for by the name of this folder or of a file in it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unmask", action="store_true", help="let wrong services fail their tests")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "finds(names): a wrong service, and what the search finds: one of these names")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Let the search pass that finds what it should, and fail the one that finds something else, or nothing."""
    report = yield
    expected = item.get_closest_marker("finds")
    searched = dict(item.user_properties).get("harrow.simulated")
    if expected is None or call.when != "call" or searched is None or item.config.getoption("--unmask"):
        return report
    found = str(dict(item.user_properties).get("harrow.failure", "no failure"))
    wanted = set(expected.args[0].split(", "))
    if report.failed and wanted & set(found.split(", ")):
        report.outcome, report.longrepr = "passed", None
    else:
        report.outcome = "failed"
        report.longrepr = f"expected {' or '.join(sorted(wanted))}, found {found}\n{report.longrepr or ''}"
    return report
