"""`process.stalled`: a loop that did not advance says for how long, and whether the process had work meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.host.real.stall_watch import PERIOD_MS, STALL_MS

LONG_S = 2 * STALL_MS / 1000


def stalls(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    return [row for row in rows if row["event"] == "process.stalled"]


def block_without_work() -> None:
    """Stand still as in a process that the machine does not run: it uses no CPU time."""
    mine, other = socket.socketpair()
    mine.settimeout(LONG_S)
    with mine, other, pytest.raises(TimeoutError):
        mine.recv(1)


def work() -> None:
    until_s = time.process_time() + LONG_S
    while time.process_time() < until_s:
        pass


@pytest.mark.parametrize("used", ["little", "much"])
def test_a_loop_that_stood_still_is_traced_with_the_cpu_time_of_its_process(tmp_path: Path, used: str) -> None:
    async def main() -> None:
        host = RealHost("broker-1", str(tmp_path))
        await host.start()
        (work if used == "much" else block_without_work)()
        while not stalls(tmp_path):
            await host.tasks.sleep(PERIOD_MS)
        await host.stop()

    asyncio.run(asyncio.wait_for(main(), 20))
    stall = stalls(tmp_path)[0]
    assert stall["late_ms"] >= LONG_S * 1000 - PERIOD_MS
    assert (stall["cpu_ms"] >= LONG_S * 500) == (used == "much")


def test_nothing_is_traced_after_the_host_has_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        host = RealHost("broker-1", str(tmp_path))
        await host.start()
        await host.stop()
        block_without_work()
        later = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(2 * PERIOD_MS / 1000, later.set_result, None)
        await later

    asyncio.run(asyncio.wait_for(main(), 20))
    assert stalls(tmp_path) == []
