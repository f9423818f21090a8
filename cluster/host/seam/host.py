"""The machine that a broker runs on: all parts of the seam in one object."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from .clock import Clock
from .disk import Disk
from .failpoints import Failpoints
from .network import Network
from .observation import Tap, Trace
from .tasks import Tasks


class Host(Protocol):
    """The machine: everything that broker code may use."""

    name: str
    clock: Clock
    tasks: Tasks
    disk: Disk
    network: Network
    random: random.Random
    failpoints: Failpoints
    trace: Trace
    tap: Tap


class Control(Protocol):
    """Operations that rooms offer to the supervisor of the process."""

    def register(
        self, name: str, operation: Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]], /
    ) -> None:
        """Serve `name` from now on; a later registration of the same name replaces it."""
        ...


class ProcessHost(Host, Protocol):
    """The host of a whole process (a broker, the registry): with its control operations."""

    @property
    def control(self) -> Control:
        """The operations that the supervisor may call."""
        ...
