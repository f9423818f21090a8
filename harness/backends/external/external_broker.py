"""One broker of a cluster that Harrow did not start: where it is, and that its process cannot be reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harrow.cluster.listeners import Address
from harrow.cluster.managed import START_TIMEOUT_S, STOP_TIMEOUT_S
from harrow.faults.controls import DEAD, RUNNING
from harrow.faults.errors import CapabilityError


class ExternalBroker:
    """`RunningBroker` of the harness, without a process."""

    pid: int | None = None
    incarnations = 1

    def __init__(self, node: int, folder: Path, proxied: Address, live: Callable[[], frozenset[int]]) -> None:
        self.node_id = node
        self.folder = folder
        """What the proxy keeps for this broker."""
        self.address = proxied
        """Where clients reach it, at the proxy."""
        self._live = live

    @property
    def port(self) -> int:
        """The port for clients, at the proxy."""
        return self.address.port

    @property
    def alive(self) -> bool:
        """Whether the cluster lists it."""
        return self.node_id in self._live()

    @property
    def state(self) -> str:
        """`running` or `dead`."""
        return RUNNING if self.alive else DEAD

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Harrow cannot."""
        self._refuse(f"start (in {timeout_s:g} s)")

    def kill(self) -> None:
        """Harrow cannot."""
        self._refuse("kill")

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Harrow cannot."""
        self._refuse(f"terminate (in {timeout_s:g} s)")

    def pause(self) -> None:
        """Harrow cannot."""
        self._refuse("pause")

    def resume(self) -> None:
        """Harrow cannot."""
        self._refuse("resume")

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Harrow cannot."""
        self._refuse(f"restart (in {timeout_s:g} s)")

    def _refuse(self, what: str) -> None:
        raise CapabilityError(
            f"broker {self.node_id} is of a cluster that Harrow did not start, and Harrow cannot {what} it; use a "
            "backend that starts the brokers itself"
        )
