"""The limit of open files of a running process (K5): lowered by prlimit(2), which needs no root for an own process.

What may fail: ClusterError when the process has ended.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

from harrow.cluster.errors import ClusterError
from harrow.faults.system import RuleStatus


class DescriptorLimit:
    """The soft limit of one process is as many descriptors as it has open, until `disarm`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        try:
            self._former = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            self._limit = self._open()
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (self._limit, self._former[1]))
        except OSError as error:
            raise ClusterError(
                f"the limit of process {pid} cannot be changed: {error}; has it ended?"
            ) from None

    def _open(self) -> int:
        """How many descriptors the process needs for what it has open: the highest number and one."""
        return max(map(int, os.listdir(f"/proc/{self._pid}/fd"))) + 1

    def status(self) -> RuleStatus:
        """Armed while the limit is the lowered one; fired while no number below it is free."""
        try:
            soft, _ = resource.prlimit(self._pid, resource.RLIMIT_NOFILE)
            numbers = [int(name) for name in os.listdir(f"/proc/{self._pid}/fd")]
        except OSError as error:
            raise ClusterError(f"process {self._pid} cannot be observed: {error}") from None
        armed = soft == self._limit
        free = self._limit - sum(number < self._limit for number in numbers)
        facts: dict[str, Any] = {"limit": soft, "open": len(numbers), "free": free}
        return RuleStatus(armed=armed, fired=int(armed and free == 0), facts=facts)

    def disarm(self) -> None:
        """Set the former limit; no error when the process has ended."""
        with contextlib.suppress(OSError):
            resource.prlimit(self._pid, resource.RLIMIT_NOFILE, self._former)
