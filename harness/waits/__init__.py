"""Waits of a test: `harrow.await_assigned(…)` and its sisters, and the same for async tests in `harrow.aio`.

Each wait ends when its condition holds (`conditions.py`), after `timeout` seconds with WaitTimeoutError, which says
what was there instead, or at once when a program of the test has died (`wait_loop.py`). Where a look at the cluster
takes its facts from: `seen.py`.
"""

from __future__ import annotations

import asyncio
import threading
from functools import cached_property
from typing import TYPE_CHECKING

from harrow.cluster.errors import ConfigError

from ..topics import Topic
from .conditions import Assigned, CaughtUp, Led, Records, Requested, Requests, nodes_of, request_totals, topic_of
from .wait_loop import TIMEOUT_S, check_timeout, wait_for

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from ..programs.of_run import WatchedPrograms
    from ..running_cluster import RunningCluster
    from .conditions import Condition
    from .seen import ClusterSeen

__all__ = ["AsyncWaits", "Waits"]


class Waits:
    """Part of `Harrow`: waits for what the application and the cluster do."""

    folder: Path

    def __init__(self) -> None:
        self.requests_before: Requests = {}
        """The requests before the test began, on a cluster that tests share."""

    @property
    def cluster(self) -> RunningCluster:
        """The cluster."""
        raise NotImplementedError  # Harrow has it

    @property
    def watched_programs(self) -> WatchedPrograms:
        """The programs of the test."""
        raise NotImplementedError  # Harrow has it

    @cached_property
    def aio(self) -> AsyncWaits:
        """The same waits for async tests: `await harrow.aio.await_assigned("billing")`."""
        return AsyncWaits(self)

    def await_assigned(self, group: str, *, members: int | None = None, timeout: float = TIMEOUT_S) -> int:
        """Wait until a consumer group is stable, and return how many members it has.

        `members`: how many it must have, no more and no less; None: any. `timeout`: seconds; then WaitTimeoutError,
        with the state and the members of the group. On Harrow's own brokers the taps of the coordinators say it; others
        are polled with DescribeGroups.
        """
        return self.wait_until(Assigned(group=group, members=members), timeout)

    def await_caught_up(self, group: str, *topics: Topic | str, timeout: float = TIMEOUT_S) -> None:
        """Wait until a consumer group has committed every record that the topics have at that moment.

        Markers of transactions and records of aborted ones do not count, because no consumer receives them. `timeout`:
        seconds; then WaitTimeoutError, with the number of records of each partition that are not committed. On
        Harrow's own brokers taps and logs say it; others are polled with OffsetFetch and ListOffsets.
        """
        names = tuple(topic_of(topic, "await_caught_up") for topic in topics)
        self.wait_until(CaughtUp(group=group, topics=names), timeout)

    def await_records(self, topic: Topic | str, count: int, *, timeout: float = TIMEOUT_S) -> int:
        """Wait until a topic has at least `count` records, and return how many it has.

        Those count that a consumer of committed data can read at that moment. `timeout`: seconds; then
        WaitTimeoutError, with the number of records of each partition. On Harrow's own brokers the logs say it; from
        others a consumer of Harrow's reads them.
        """
        return self.wait_until(Records(topic=topic_of(topic, "await_records"), count=count), timeout)

    def await_request(self, api: str | int, *, client: str = "*", count: int = 1, timeout: float = TIMEOUT_S) -> int:
        """Wait until brokers have responded to `count` requests of an API since the test began; return how many.

        A request that came before the call counts too, so no wait is too late. To wait for a further one:
        `seen = harrow.await_request("OffsetCommit")`, then `harrow.await_request("OffsetCommit", count=seen + 1)`.

        `api`: Kafka's name or number. `client`: a pattern of client ids, `billing*`. Requests of Harrow's own clients
        do not count. `timeout`: seconds; then WaitTimeoutError, with the client ids of this API and the other requests.
        The taps of the brokers, or of the proxy before them, say it on every backend.
        """
        return self.wait_until(Requested(api=api, client=client, count=count, before=self.requests_before), timeout)

    def await_leader(
        self,
        topic: Topic | str,
        partition: int = 0,
        *,
        other_than: int | Collection[int] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> int:
        """Wait until a partition has a leader that is registered, and return its node id.

        `other_than`: node ids that do not count, such as that of the leader before a fault. `timeout`: seconds; then
        WaitTimeoutError, with the leader of each partition. Harrow's registry is asked every 20 ms; brokers of other
        backends are polled with Metadata.
        """
        name = topic_of(topic, "await_leader")
        return self.wait_until(Led(topic=name, partition=partition, other_than=nodes_of(other_than)), timeout)

    def wait_until(self, condition: Condition, timeout: float, stopped: threading.Event | None = None) -> int:
        """Wait for a condition; `stopped` ends the wait of a task that was cancelled."""
        from ..topics import not_running

        timeout_s = check_timeout(str(condition).partition("(")[0], timeout)
        if stopped is None and _loop_runs():
            raise ConfigError(
                f"{condition} would stop the event loop while it waits; write await harrow.aio.{condition}"
            )
        cluster, stopped = self.cluster, stopped or threading.Event()
        if isinstance(condition, Requested) and cluster.has_broker_traces and not cluster.config.flag("harrow.tap"):
            raise ConfigError(f"{condition} needs the brokers' taps, and the setting harrow.tap is false")
        seen = _seen(cluster, self.folder, stopped)
        try:
            return wait_for(
                condition,
                timeout_s,
                seen=seen,
                programs=self.watched_programs,
                stopped=stopped,
                state=lambda: not_running(cluster),
            )
        finally:
            seen.close()

    def forget_requests(self) -> None:
        """Count requests from now on: another test begins on this cluster."""
        from ..histories.request_rows import count_requests

        self.requests_before = request_totals(count_requests(self.folder))


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
    from .from_taps import FromTaps

    return FromTaps(cluster, run)
