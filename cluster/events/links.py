"""Events of the rules of a host's links, set by faults, and of the processes that stand between links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .event import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksBlocked(TraceEvent):
    """What peers send, are sent, or both, is held back."""

    EVENT: ClassVar[str] = "links.blocked"
    peers: tuple[str, ...]
    """Patterns of names: `broker 2`, `client *`."""
    direction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksSlowed(TraceEvent):
    """What peers are sent is late."""

    EVENT: ClassVar[str] = "links.slowed"
    peers: tuple[str, ...]
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksThrottled(TraceEvent):
    """Peers are sent at most so much, together."""

    EVENT: ClassVar[str] = "links.throttled"
    peers: tuple[str, ...]
    bytes_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksHealed(TraceEvent):
    """Rules of links were removed."""

    EVENT: ClassVar[str] = "links.healed"
    mode: str
    """`deliver` or `reset`."""
    links: int
    """How many were held back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksFrozen(TraceEvent):
    """Everything on the links of that time is held back."""

    EVENT: ClassVar[str] = "links.frozen"
    peers: tuple[str, ...]
    links: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksReset(TraceEvent):
    """The links of that time were reset."""

    EVENT: ClassVar[str] = "links.reset"
    peers: tuple[str, ...]
    links: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiedBroker(TraceEvent):
    """A proxy stands in front of a foreign broker; by the proxy's own host."""

    EVENT: ClassVar[str] = "proxy.broker"
    node_id: int
    upstream: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOpened(TraceEvent):
    """A foreign broker accepts connections, so its proxy does."""

    EVENT: ClassVar[str] = "proxy.open"
    upstream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyClosed(TraceEvent):
    """A foreign broker accepts no connections, so its proxy does not."""

    EVENT: ClassVar[str] = "proxy.closed"
    upstream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayRefused(TraceEvent):
    """The service behind a relay accepted no connection."""

    EVENT: ClassVar[str] = "relay.refused"
    error: str
