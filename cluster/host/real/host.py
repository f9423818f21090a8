"""The real machine: `Host` of the seam, assembled from its parts.

Owns: the host's folder (`trace.jsonl`, `broker.log`, `tap.bin`, `tap.names`, `control.sock`) and the order in which the
parts start and stop. A host is made inside the running loop of its process, and all its callbacks run on that loop.

    host = RealHost(name="broker-1", folder=…, listeners={"clients": sock}, seed=7)
    await host.start()          # the control socket answers
    …
    await host.stop()           # links, tasks, threads and files are closed

What may fail: OSError where the folder cannot be used.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...broker_folder import CONTROL_SOCKET
from ..knobs.clock_faults import ClockRules
from ..knobs.control import ControlServer
from ..knobs.disk_faults import DiskFaults
from ..knobs.failpoints import RealFailpoints
from ..knobs.rules import rule_operations
from ..seam import Clock, Disk, Failpoints, Network, NoTap, Tap, Tasks, Trace
from ..trace import RealTrace
from .clock import RealClock
from .disk import RealDisk
from .network import RealNetwork
from .stall_watch import StallWatch
from .tasks import RealTasks

LIVES = "lives"
"""File with one byte for each start of a host in this folder."""


class RealHost:
    """This machine, as one process of the cluster sees it."""

    def __init__(
        self,
        name: str,
        folder: str,
        *,
        listeners: Mapping[str, socket.socket] | None = None,
        seed: int = 0,
        make_tap: Callable[[str, Clock], Tap] | None = None,
        log_level: str = "info",
        make_disk: Callable[[DiskFaults], Disk] = RealDisk,
    ) -> None:
        """`make_tap` opens the tap in the folder; None: there is none.

        `make_disk` chooses the disk: `RealDisk`, or `TrackedDisk` where a power loss may be simulated.
        """
        os.makedirs(folder, exist_ok=True)
        loop = asyncio.get_running_loop()
        self.name = name
        self.folder = folder
        clock = RealClock()
        self.clock: Clock = clock
        disk_faults = DiskFaults()
        self.disk = make_disk(disk_faults)
        # Seeded by name and number of the start: the hosts of a run draw different numbers; a restarted host draws
        # other numbers than before (else a new topic would get an old topic's id); the next run draws the same.
        self.random = random.Random(f"{seed}/{name}/{_count_start(folder)}")  # noqa: S311 - not cryptography
        self._trace = RealTrace(name, folder, self.clock, level=log_level)
        self._tasks = RealTasks(loop, self._trace)
        self._failpoints = RealFailpoints(self._trace)
        self._network = RealNetwork(loop, listeners or {}, self._trace)
        self._stalls = StallWatch(loop, self._trace)
        self.trace: Trace = self._trace
        self.tasks: Tasks = self._tasks
        self.failpoints: Failpoints = self._failpoints
        self.network: Network = self._network
        self.tap: Tap = NoTap() if make_tap is None else make_tap(folder, self.clock)
        self.control = ControlServer(os.path.join(folder, CONTROL_SOCKET), self._trace.log)
        rules = {
            **self._network.rules(),
            "failpoint": self._failpoints,
            "clock": ClockRules(clock.faults, clock.true_times, self._trace),
            "disk": disk_faults,
        }
        for op, operation in {**self._network.operations(), **rule_operations(rules)}.items():
            self.control.register(op, operation)
        loop.set_exception_handler(self._uncaught)

    def offer(self, listener: str, sock: socket.socket) -> None:
        """Give the host a bound socket, so that `network.listen` may serve `listener`."""
        self._network.offer(listener, sock)

    def arm(self, failpoints: Iterable[Mapping[str, Any]]) -> None:
        """Arm failpoints, each a row with the fields of such a rule; ConfigError for an unknown one."""
        for fields in failpoints:
            self._failpoints.add(fields)

    async def start(self) -> None:
        """Open the control socket, and watch how late the loop runs."""
        await self.control.start()
        self._stalls.start()

    async def stop(self) -> None:
        """Close links, then tasks and threads, then the control socket and the files."""
        self._stalls.stop()
        self._network.close()
        await asyncio.sleep(0)  # lets handlers run `link_closed`
        await self._tasks.stop()
        await self.control.stop()
        self.tap.close()
        self._trace.close()
        asyncio.get_running_loop().set_exception_handler(None)

    def _uncaught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that a callback of the loop raised: trace and log it like a task's."""
        message, error = str(context.get("message", "callback")), context.get("exception")
        if isinstance(error, Exception):
            self._tasks.report(message, error)
        else:
            self._trace.log("error", message)


def _count_start(folder: str) -> int:
    """Count one more start of a host in this folder; returns 1 for the first."""
    fd = os.open(os.path.join(folder, LIVES), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, b".")
        return os.fstat(fd).st_size
    finally:
        os.close(fd)
