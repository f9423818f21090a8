"""Events of single requests: those on which a fault acted, and those that wait for too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .event import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class _FaultOfResponse(TraceEvent):
    rule: int
    peer: str
    api_key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLost(_FaultOfResponse):
    """A fault dropped a response and reset its connection; by the host of the rule."""

    EVENT: ClassVar[str] = "response.lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHeld(_FaultOfResponse):
    """A fault holds a response, and every later one of its connection."""

    EVENT: ClassVar[str] = "response.held"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFailed(_FaultOfResponse):
    """A fault put an error into the response of a request that took effect."""

    EVENT: ClassVar[str] = "response.failed"
    error: int
    """Kafka's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FaultOfRequest(TraceEvent):
    rule: int
    peer: str
    api_key: int
    error: int
    """Kafka's number; 0 where the response has none of the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRefused(_FaultOfRequest):
    """A fault refused a request with an error."""

    EVENT: ClassVar[str] = "request.refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLost(_FaultOfRequest):
    """A fault dropped a request and reset its connection."""

    EVENT: ClassVar[str] = "request.lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDropped(_FaultOfRequest):
    """A fault dropped a request, and drops every later one of its connection."""

    EVENT: ClassVar[str] = "request.dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDelayed(_FaultOfRequest):
    """A fault delays a request, and those behind it."""

    EVENT: ClassVar[str] = "request.delayed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDuplicated(_FaultOfRequest):
    """A fault lets a request be served twice."""

    EVENT: ClassVar[str] = "request.duplicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChanged(TraceEvent):
    """A mutant of clients changed a request, or its response: the first of an API on a connection."""

    EVENT: ClassVar[str] = "request.changed"
    mutant: str
    peer: str
    api_key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUnanswered(TraceEvent):
    """A request waits for longer than it may (`cluster/network/unanswered.py`), and again while it waits."""

    EVENT: ClassVar[str] = "request.unanswered"
    api: str
    """Kafka's name, or the key of an API without a known name."""
    client: str
    correlation_id: int
    invoked_ns: int
    timeout_ms: int
    """How long the request itself may wait."""
    looks: int
    group: str | None = None
    """The group that it is about; absent where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRefused(TraceEvent):
    """A fault refuses a login of SASL."""

    EVENT: ClassVar[str] = "login.refused"
    user: str
    again: bool
    """The client has logged in on this connection before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRefused(TraceEvent):
    """A fault lets a token of OAUTHBEARER count as expired."""

    EVENT: ClassVar[str] = "token.refused"
    user: str
