"""Limits of a running process (K5): open files, memory. prlimit(2) lowers them; for an own process it needs no root.

What may fail: ClusterError when the process has ended.
"""

from __future__ import annotations

import abc
import contextlib
import os
import resource
from collections.abc import Callable
from typing import Any, ClassVar

from harrow.cluster.errors import ClusterError
from harrow.faults.rule_kinds import RuleStatus

from .strangers import StrangerConnections

KIB = 1024


class LoweredLimit(abc.ABC):
    """A soft limit of one process is what the process has, and `spare` more, until `disarm`.

    The process inherited its limits from this process. `disarm` sets these, so that limits may overlap.
    """

    limit: ClassVar[int]
    """The number of the limit, such as `resource.RLIMIT_DATA`."""
    name: ClassVar[str]
    """For errors."""

    def __init__(self, pid: int, spare: int = 0) -> None:
        self._pid = pid
        try:
            self._lowered = self.used() + spare
            _, hard = resource.prlimit(pid, self.limit)
            resource.prlimit(pid, self.limit, (self._lowered, hard))
        except OSError as error:
            raise ClusterError(f"the {self.name} of process {pid} cannot be changed: {error}; has it ended?") from None

    @abc.abstractmethod
    def used(self) -> int:
        """Return what counts against the limit now; OSError when the process has ended."""

    @abc.abstractmethod
    def look(self, soft: int) -> tuple[bool, dict[str, Any]]:
        """Return whether nothing is left below the limit, which is `soft` now, and the facts."""

    def status(self) -> RuleStatus:
        """Armed while the limit is the lowered one; fired while nothing is left below it."""
        try:
            soft, _ = resource.prlimit(self._pid, self.limit)
            exhausted, facts = self.look(soft)
        except OSError as error:
            raise ClusterError(f"process {self._pid} cannot be observed: {error}") from None
        armed = soft == self._lowered
        return RuleStatus(armed=armed, fired=int(armed and exhausted), facts=facts)

    def disarm(self) -> None:
        """Set the limit that this process has; no error when the other process has ended."""
        with contextlib.suppress(OSError):
            resource.prlimit(self._pid, self.limit, resource.getrlimit(self.limit))


class DescriptorLimit(LoweredLimit):
    """As many descriptors as the process has open.

    Numbers below the limit may be free, because the process has closed a file or a connection. `strangers` connect to
    it until they have taken these.
    """

    limit = resource.RLIMIT_NOFILE
    name = "limit"

    def __init__(self, pid: int, strangers: Callable[[], StrangerConnections]) -> None:
        super().__init__(pid)
        self._strangers = strangers()

    def used(self) -> int:
        """How many descriptors the process needs for what it has open: the highest number and one."""
        return max(self._numbers()) + 1

    def look(self, soft: int) -> tuple[bool, dict[str, Any]]:
        """Count the numbers that are free."""
        numbers = self._numbers()
        free = self._lowered - sum(number < self._lowered for number in numbers)
        return free == 0, {"limit": soft, "open": len(numbers), "free": free}

    def _numbers(self) -> list[int]:
        return [int(name) for name in os.listdir(f"/proc/{self._pid}/fd")]

    def disarm(self) -> None:
        """Close the connections and end the limit."""
        self._strangers.disarm()
        super().disarm()


class MemoryLimit(LoweredLimit):
    """As much data (RLIMIT_DATA) as the process has: if it asks for more, it gets ENOMEM, a MemoryError in Python.

    A failed allocation ends the process, so the limit itself never fires.
    """

    limit = resource.RLIMIT_DATA
    name = "memory limit"

    def used(self) -> int:
        """What counts against the limit: private writable mappings, the heap among them."""
        with open(f"/proc/{self._pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmData:"):
                    return int(line.split()[1]) * KIB
        raise ProcessLookupError(f"process {self._pid} has no memory any more")

    def look(self, soft: int) -> tuple[bool, dict[str, Any]]:
        """Measure the data."""
        return False, {"limit_bytes": soft, "data_bytes": self.used()}
