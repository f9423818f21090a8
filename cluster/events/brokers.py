"""Events in the life of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from .event import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlanted(TraceEvent):
    """A broker starts with planted bugs: before everything else, by its process."""

    EVENT: ClassVar[str] = "broker.planted"
    plants: tuple[Mapping[str, str], ...]
    """`module` and `title` of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStarting(TraceEvent):
    """A broker begins to start: the first event of a process, with planted bugs the second."""

    EVENT: ClassVar[str] = "broker.starting"
    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReady(TraceEvent):
    """A broker serves clients, and the cluster knows it."""

    EVENT: ClassVar[str] = "broker.ready"
    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistered(TraceEvent):
    """A broker has registered: at its start, and after its session expired."""

    EVENT: ClassVar[str] = "broker.registered"
    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSessionExpired(TraceEvent):
    """A broker has noticed that the registry ended its session."""

    EVENT: ClassVar[str] = "broker.session-expired"
    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStopping(TraceEvent):
    """A broker begins a controlled shutdown."""

    EVENT: ClassVar[str] = "broker.stopping"
    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLogFailed(TraceEvent):
    """The last data folder of a broker went offline, so the broker ends."""

    EVENT: ClassVar[str] = "broker.log-failed"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetrics(TraceEvent):
    """A broker serves its page of metrics on this port."""

    EVENT: ClassVar[str] = "broker.metrics"
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownTopicAsked(TraceEvent):
    """A client asked a broker for a topic that does not exist and is not created; once for each name."""

    EVENT: ClassVar[str] = "metadata.unknown-topic"
    topic: str
    client: str
