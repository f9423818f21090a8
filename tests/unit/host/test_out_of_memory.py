"""A failed allocation ends the process at once (K5): nothing that it left half-done is served or acknowledged."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.host.real.tasks import OUT_OF_MEMORY
from harrow.cluster.ids import LeaderEpoch
from harrow.cluster.storage import Log
from harrow.cluster.wire.batches import build_batch
from log_damage import batches_of
from storage_host import StorageHost


async def _fail() -> None:
    raise MemoryError


def _fail_at_once() -> None:
    raise MemoryError


FAILURES: dict[str, Callable[[RealHost], object]] = {
    "a task": lambda host: host.tasks.spawn(_fail(), name="a task"),
    "a timer": lambda host: host.tasks.call_later(0, _fail_at_once),
    "a thread": lambda host: host.tasks.spawn(host.tasks.run_blocking(_fail_at_once), name="a thread"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_allocation_ends_the_process_and_is_traced(tmp_path: Path, name: str) -> None:
    pid = os.fork()
    if pid == 0:
        asyncio.run(_serve(tmp_path, FAILURES[name]))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WEXITSTATUS(status) == OUT_OF_MEMORY
    rows = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [row["event"] for row in rows] == ["process.out-of-memory"]


async def _serve(folder: Path, fail: Callable[[RealHost], object]) -> None:
    host = RealHost("broker-1", str(folder))
    fail(host)
    await asyncio.wait_for(asyncio.get_running_loop().create_future(), 60)  # the process ends before


def test_no_batch_follows_one_that_a_failed_allocation_left_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process goes on, the next batch gets the same offset, is acknowledged, and is lost at a restart."""
    log = StorageHost().open(str(tmp_path / "orders-0"))

    def append(value: bytes) -> None:
        batch = build_batch([(b"k", value, ())], timestamp_ms=1)
        log.append_as_leader(batch, LeaderEpoch(1))

    append(b"first")

    def finish(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Log, "finish_append", finish)
    with pytest.raises(SystemExit):  # what the process of this host ends with
        append(b"second")
    monkeypatch.undo()
    log.abandon()
    again = StorageHost().open(str(tmp_path / "orders-0"), clean=False)
    assert [batch.base for batch in batches_of(again, 0)] == [0, 1]
    again.abandon()
