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
    """Of the client: `broker 1`."""
