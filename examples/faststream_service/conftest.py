"""Checks what the searches for the two wrong policies find; `UNMASK=1` shows their failures as a user sees them."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "loses: a service for which a seed must find missing-output")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Let a search pass that finds the lost order, and fail one that finds nothing, or something else."""
    report = yield
    properties = dict(item.user_properties)
    wrong = item.get_closest_marker("loses") is not None and "harrow.simulated" in properties
    if not wrong or call.when != "call" or os.environ.get("UNMASK") == "1":
        return report
    found = str(properties.get("harrow.failure", "no failure"))
    if report.failed and "missing-output" in found:
        report.outcome, report.longrepr = "passed", None
    else:
        report.outcome = "failed"
        report.longrepr = f"expected missing-output, found {found}\n{report.longrepr or ''}"
    return report
