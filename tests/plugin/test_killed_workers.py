"""`kill -9` of what runs a test leaves no process of it behind (J3)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from harrow.harness.backends.local import gone

SUICIDAL = """
    import os, signal

    def test_killed(harrow):
        pids = [one.pid for one in harrow.cluster.brokers.values()] + [harrow.cluster.registry.pid]
        pids.append(os.getpid())
        with open("pids", "w") as file:
            file.write(" ".join(map(str, pids)))
        os.kill(os.getpid(), signal.SIGKILL)
"""


def await_gone(pids: list[int], timeout_s: float = 20.0) -> None:
    for _ in range(int(timeout_s * 100)):
        if all(map(gone, pids)):
            return
        threading.Event().wait(0.01)
    left = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids if not gone(pid)}
    raise AssertionError(f"still there after {timeout_s} s: {left}")


@pytest.mark.parametrize(
    "arguments", [("-n1", "--max-worker-restart=0"), ("-p", "no:xdist")], ids=["worker", "alone"]
)
def test_nothing_outlives_it(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    if "-n1" in arguments:
        pytest.importorskip("xdist")
    pytester.makepyfile(SUICIDAL)
    pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider", *arguments)
    pids = [int(pid) for pid in (pytester.path / "pids").read_text().split()]
    assert len(pids) == 5
    await_gone(pids)
