"""After `kill -9` of the pytest process or worker that runs a test, none of the test's processes is left (J3)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from harrow.harness.backends.local import gone
from waiting import until

TEST_THAT_KILLS_ITS_PROCESS = """
    import os, signal

    def test_killed(harrow):
        pids = [broker.pid for broker in harrow.cluster.brokers.values()] + [harrow.cluster.registry.pid]
        pids.append(os.getpid())
        with open("pids", "w") as file:
            file.write(" ".join(map(str, pids)))
        os.kill(os.getpid(), signal.SIGKILL)
"""


def command_lines(pids: list[int]) -> dict[int, bytes]:
    """The command lines of the processes that still exist; empty for a zombie."""
    left: dict[int, bytes] = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            left[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    return left


@pytest.mark.parametrize("arguments", [("-n1", "--max-worker-restart=0"), ("-p", "no:xdist")], ids=["worker", "alone"])
def test_killing_the_process_of_a_test_ends_its_brokers_and_its_registry(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    if "-n1" in arguments:
        pytest.importorskip("xdist")
    pytester.makepyfile(TEST_THAT_KILLS_ITS_PROCESS)
    pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider", *arguments)
    pids = [int(pid) for pid in (pytester.path / "pids").read_text().split()]
    assert len(pids) == 5
    until(lambda: all(map(gone, pids)), lambda: f"these processes are left: {command_lines(pids)}")
