"""The real host's random numbers: the same in the next run, never those of an earlier life."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harrow.cluster.host.real.host import RealHost


async def draw(folder: Path) -> int:
    host = RealHost("broker-1", str(folder), seed=7)
    return host.random.getrandbits(128)


def test_a_host_that_comes_back_draws_other_numbers_and_the_next_run_the_same(
    tmp_path: Path,
) -> None:
    """A broker that was killed drew an old topic's id for a new topic: fetches by id went to the wrong one."""
    first, second = asyncio.run(draw(tmp_path / "a")), asyncio.run(draw(tmp_path / "a"))
    assert first != second
    assert [asyncio.run(draw(tmp_path / "b")) for _ in range(2)] == [first, second]
