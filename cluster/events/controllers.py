"""Events of controllers, and of the registry that they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .event import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerElected(TraceEvent):
    """A broker became the controller; by this broker, before it loads the state."""

    EVENT: ClassVar[str] = "controller.elected"
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerResigned(TraceEvent):
    """A broker is the controller no more; by this broker."""

    EVENT: ClassVar[str] = "controller.resigned"
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryReady(TraceEvent):
    """The registry serves, with the state that it had stored."""

    EVENT: ClassVar[str] = "registry.ready"
    zxid: int
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySessionExpired(TraceEvent):
    """The registry ended a session whose client was silent, or that a fault expired."""

    EVENT: ClassVar[str] = "registry.expired"
    session: int
    name: str
    """Of the client: `session_name` of a broker."""

    @property
    def node(self) -> int:
        """The node id of the broker whose session it was; -1 for another client."""
        kind, _, number = self.name.partition(" ")
        return int(number) if kind == "broker" and number.isdigit() else -1


def session_name(node_id: int) -> str:
    """Return the name of a broker's session: `broker 1`."""
    return f"broker {node_id}"
