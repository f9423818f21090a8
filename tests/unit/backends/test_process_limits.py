"""Limits of a running process: they end in any order (K5)."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harrow.harness.backends.process_limits import MemoryLimit


@pytest.fixture
def pid() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_after_limits_that_overlap_the_process_has_its_own(pid: int, order: tuple[int, int]) -> None:
    own = resource.prlimit(pid, resource.RLIMIT_DATA)
    limits = [MemoryLimit(pid, spare) for spare in (1 << 20, 2 << 20)]
    assert resource.prlimit(pid, resource.RLIMIT_DATA) != own
    for number in order:
        limits[number].disarm()
    assert resource.prlimit(pid, resource.RLIMIT_DATA) == own
