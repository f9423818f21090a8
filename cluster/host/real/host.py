"""The machine as it is: `Host` of the seam, assembled from its parts.

Owns: the host's folder (`trace.jsonl`, `broker.log`, `tap.bin`, `tap.names`, `control.sock`; `unsynced/` where
power losses are played) and the order in which its parts begin and end. Made inside the running loop of its process;
everything it calls back runs there.

    host = RealHost(name="broker-1", folder=…, listeners={"clients": sock}, seed=7)
    await host.start()          # the control socket answers
    …
    await host.stop()           # links, tasks, threads and files are gone

What may fail: OSError where the folder cannot be used.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from ...broker_folder import CONTROL_SOCKET
from ..knobs.control import ControlServer
from ..knobs.disk_faults import DiskFaults
from ..knobs.failpoints import RealFailpoints
from ..power_loss.tracked_disk import TrackedDisk
from ..power_loss.unsynced import UNSYNCED
from ..seam import Clock, Disk, Failpoints, Network, Tap, Tasks, Trace
from ..tap import NoTap, RealTap
from ..trace import RealTrace
from .clock import RealClock
from .disk import RealDisk
from .network import RealNetwork
from .tasks import RealTasks

LIVES = "lives"
"""Counts how often a host of this folder began: one byte a life."""


class RealHost:
    """This machine, as one process of the cluster sees it."""

    def __init__(
        self,
        name: str,
        folder: str,
        *,
        listeners: Mapping[str, socket.socket] | None = None,
        seed: int = 0,
        tap: bool = False,
        log_level: str = "info",
        power_loss: Sequence[str] = (),
    ) -> None:
        """`power_loss`: folders whose unsynced writes are journalled, so that a power loss can be played."""
        os.makedirs(folder, exist_ok=True)
        loop = asyncio.get_running_loop()
        self.name = name
        self.folder = folder
        self.clock: Clock = RealClock()
        disk_faults = DiskFaults()
        journal = os.path.join(folder, UNSYNCED)
        self.disk: Disk = (
            TrackedDisk(journal, power_loss, disk_faults) if power_loss else RealDisk(disk_faults)
        )
        # seeded by name and life: hosts of one run draw different numbers, a host that comes back draws others
        # than in its life before (it would give a new topic an old one's id), and the next run draws the same
        self.random = random.Random(f"{seed}/{name}/{_next_life(folder)}")  # noqa: S311 - not cryptography
        self._trace = RealTrace(name, folder, self.clock, level=log_level)
        self._tasks = RealTasks(loop, self._trace)
        self._failpoints = RealFailpoints(self._trace)
        self._network = RealNetwork(loop, listeners or {}, self.clock, self._trace)
        self._tap: RealTap | NoTap = RealTap(folder, self.clock) if tap else NoTap()
        self.trace: Trace = self._trace
        self.tasks: Tasks = self._tasks
        self.failpoints: Failpoints = self._failpoints
        self.network: Network = self._network
        self.tap: Tap = self._tap
        self.control = ControlServer(os.path.join(folder, CONTROL_SOCKET), self._trace.log)
        for room in (self._network, self._failpoints, disk_faults):
            for op, operation in room.operations().items():
                self.control.register(op, operation)
        loop.set_exception_handler(self._uncaught)

    async def start(self) -> None:
        """Let the control socket answer."""
        await self.control.start()

    async def stop(self) -> None:
        """End links, then tasks and threads, then the control socket and the files."""
        self._network.close()
        await asyncio.sleep(0)  # handlers hear that their links are gone
        await self._tasks.stop()
        await self.control.stop()
        self._tap.close()
        self._trace.close()
        asyncio.get_running_loop().set_exception_handler(None)

    def _uncaught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a callback of the loop let out: same trail as a task's."""
        message, error = str(context.get("message", "callback")), context.get("exception")
        if isinstance(error, Exception):
            self._tasks.report(message, error)
        else:
            self._trace.log("error", message)


def _next_life(folder: str) -> int:
    """Count one more life of this folder's host; 1 for the first."""
    fd = os.open(
        os.path.join(folder, LIVES), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
    )
    try:
        os.write(fd, b".")
        return os.fstat(fd).st_size
    finally:
        os.close(fd)
