"""Starts the suite's Spark for every test of the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harrow.harness.checks import SparkHandle
from judged_runs import RunFolder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHandle]:
    handle = SparkHandle(tmp_path_factory.mktemp("spark"))
    handle.request()
    yield handle
    handle.close()


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


@pytest.fixture
def runs(tmp_path: Path) -> Callable[[str], RunFolder]:
    return lambda name: RunFolder(tmp_path / name)
