"""The real host's random numbers: equal in every run, different in each incarnation of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harrow.cluster.host.real.host import RealHost


async def draw(folder: Path) -> int:
    host = RealHost("broker-1", str(folder), seed=7)
    return host.random.getrandbits(128)


def test_restarted_host_draws_other_numbers_and_the_next_run_repeats_them(tmp_path: Path) -> None:
    """A restarted broker once drew an old topic's id for a new topic, and fetches by id reached the wrong topic."""
    first, second = asyncio.run(draw(tmp_path / "a")), asyncio.run(draw(tmp_path / "a"))
    assert first != second
    assert [asyncio.run(draw(tmp_path / "b")) for _ in range(2)] == [first, second]
