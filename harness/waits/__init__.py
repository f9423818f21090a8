"""Waits of a test: `harrow.await_assigned(…)` and its sisters, and the same for async tests in `harrow.aio`.

Each wait ends when its condition holds (`conditions.py`), after `timeout` seconds with WaitTimeoutError, which says
what was there instead, or at once when a program of the test has died (`wait_loop.py`). Where a look at the cluster
takes its facts from: `seen.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING

from harrow.cluster.errors import ConfigError

from ..backends.simulated.cluster import SimulatedRunningCluster
from ..topics import Topic
from .conditions import Assigned, CaughtUp, Led, Records, Requested, Requests, nodes_of, request_totals, topic_of
from .wait_loop import TIMEOUT_S, check_timeout, looking, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator
    from pathlib import Path

    from ..programs.of_run import WatchedPrograms
    from ..running_cluster import RunningCluster
    from .conditions import Condition
    from .seen import ClusterSeen

__all__ = ["AsyncWaits", "Waits"]


class Waits:
    """Waits of one run, for what the application and the cluster do; `Harrow` and `AsyncWaits` make the conditions.

    `cluster` and `programs` return the cluster, which starts at the first call, and the programs of the test.
    """

    def __init__(
        self, folder: Path, cluster: Callable[[], RunningCluster], programs: Callable[[], WatchedPrograms]
    ) -> None:
        self._folder = folder
        self._cluster = cluster
        self._programs = programs
        self.aio = AsyncWaits(self)
        self.requests_before: Requests = {}
        """The requests before the test began, on a cluster that tests share."""

    def wait_until(self, condition: Condition, timeout: float, stopped: threading.Event | None = None) -> int:
        """Wait for a condition; `stopped` ends the wait of a task that was cancelled."""
        timeout_s = check_timeout(str(condition).partition("(")[0], timeout)
        if stopped is None and _loop_runs():
            raise ConfigError(
                f"{condition} would stop the event loop while it waits; write await harrow.aio.{condition}"
            )
        stopped = stopped or threading.Event()
        pause = time.sleep if self.on_virtual_time else stopped.wait
        with self._looks(condition, timeout_s, stopped) as looks:
            return wait_for(looks, pause)

    @property
    def on_virtual_time(self) -> bool:
        """Whether the cluster is simulated: then a wait needs no thread, and must not use one."""
        return isinstance(self._cluster(), SimulatedRunningCluster)

    async def wait_virtually(self, condition: Condition, timeout: float) -> int:
        """Wait for a condition on the virtual time of the loop that runs."""
        timeout_s = check_timeout(str(condition).partition("(")[0], timeout)
        with self._looks(condition, timeout_s, threading.Event()) as looks:
            while True:
                try:
                    pause_s = next(looks)
                except StopIteration as end:
                    value: int = end.value
                    return value
                await asyncio.sleep(pause_s)

    @contextlib.contextmanager
    def _looks(
        self, condition: Condition, timeout_s: float, stopped: threading.Event
    ) -> Generator[Generator[float, None, int]]:
        from ..topics import not_running

        cluster = self._cluster()
        if isinstance(condition, Requested) and cluster.has_broker_traces and not cluster.config.flag("harrow.tap"):
            raise ConfigError(f"{condition} needs the brokers' taps, and the setting harrow.tap is false")
        seen = _seen(cluster, self._folder, stopped)
        try:
            yield looking(
                condition, timeout_s, seen=seen, programs=self._programs(), state=lambda: not_running(cluster)
            )
        finally:
            seen.close()

    def forget_requests(self) -> None:
        """Count requests from now on: another test begins on this cluster."""
        from ..histories.request_rows import count_requests

        self.requests_before = request_totals(count_requests(self._folder))


class AsyncWaits:
    """The waits of `Harrow` as coroutines: each waits in a thread, and the event loop goes on. Cancelling ends it."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    async def await_assigned(self, group: str, *, members: int | None = None, timeout: float = TIMEOUT_S) -> int:
        """As `harrow.await_assigned`."""
        return await self._wait(Assigned(group=group, members=members), timeout)

    async def await_caught_up(self, group: str, *topics: Topic | str, timeout: float = TIMEOUT_S) -> None:
        """As `harrow.await_caught_up`."""
        names = tuple(topic_of(topic, "await_caught_up") for topic in topics)
        await self._wait(CaughtUp(group=group, topics=names), timeout)

    async def await_records(self, topic: Topic | str, count: int, *, timeout: float = TIMEOUT_S) -> int:
        """As `harrow.await_records`."""
        return await self._wait(Records(topic=topic_of(topic, "await_records"), count=count), timeout)

    async def await_request(
        self, api: str | int, *, client: str = "*", count: int = 1, timeout: float = TIMEOUT_S
    ) -> int:
        """As `harrow.await_request`."""
        before = self._waits.requests_before
        return await self._wait(Requested(api=api, client=client, count=count, before=before), timeout)

    async def await_leader(
        self,
        topic: Topic | str,
        partition: int = 0,
        *,
        other_than: int | Collection[int] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> int:
        """As `harrow.await_leader`."""
        name = topic_of(topic, "await_leader")
        return await self._wait(Led(topic=name, partition=partition, other_than=nodes_of(other_than)), timeout)

    async def _wait(self, condition: Condition, timeout: float) -> int:
        if self._waits.on_virtual_time:
            return await self._waits.wait_virtually(condition, timeout)
        stopped = threading.Event()
        try:
            return await asyncio.to_thread(self._waits.wait_until, condition, timeout, stopped)
        finally:
            stopped.set()  # the thread of a task that was cancelled ends at its next look


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _seen(cluster: RunningCluster, run: Path, stopped: threading.Event) -> ClusterSeen:
    """Return how to look at a cluster: by what its brokers wrote, or by requests."""
    from ..running_cluster import unrecorded_by

    if unrecorded_by(cluster):
        from .from_responses import FromResponses

        return FromResponses(cluster, run, stopped)
    if isinstance(cluster, SimulatedRunningCluster):
        from .from_simulation import FromSimulation

        return FromSimulation(cluster, run)
    from .from_taps import FromTaps

    return FromTaps(cluster, run)
