"""How long a broker may wait before it answers a request, by the request's own fields (L4).

Owns: `waiting_ms`. A Produce and most requests of operators have a timeout, a Fetch has a wait time, a JoinGroup and a
heartbeat of KIP-848 the timeouts of the member. A commit of offsets waits for `offsets.commit.timeout.ms` at the most.
For any other request the default of the clients' `request.timeout.ms` is taken. `group_id` names the group of a
JoinGroup or SyncGroup: these wait for the other members too. Nothing is raised: a request that does not decode has the
default.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any, Protocol

from ..errors import WireError
from . import messages
from .api_keys import ApiKey
from .produce import acks_and_timeout
from .request import RequestBytes

REQUEST_TIMEOUT_MS = 30_000
"""Default of the clients' `request.timeout.ms`."""
COMMIT_TIMEOUT_MS = 5_000
"""Default of the brokers' `offsets.commit.timeout.ms`."""


class WaitingRequest(RequestBytes, Protocol):
    """A request without a response."""

    @property
    def api_key(self) -> int:
        """What it asks for."""
        ...

    @property
    def client_id(self) -> str:
        """The client that sent it."""
        ...

    @property
    def correlation_id(self) -> int:
        """Its number on the connection."""
        ...

    @property
    def invoked_ns(self) -> int:
        """When it was read, on the monotonic clock."""
        ...


FIELDS = ("timeout", "max_wait", "rebalance_timeout", "session_timeout")
WAITS_FOR_MEMBERS = frozenset((ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
HEAD_BYTES = 1024
"""Of a Produce, these bytes are enough."""


def waiting_ms(request: WaitingRequest) -> int:
    """Return the milliseconds for which a broker may wait with the response."""
    if request.api_key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT):
        return COMMIT_TIMEOUT_MS
    if request.api_key == ApiKey.PRODUCE:
        try:
            return acks_and_timeout(request)[1]
        except WireError:
            return REQUEST_TIMEOUT_MS
    entity = _decoded(request)
    values = (getattr(entity, name, None) for name in FIELDS)
    found = [messages.to_milliseconds(value) for value in values if isinstance(value, timedelta)]
    return max(found, default=REQUEST_TIMEOUT_MS)


def group_id(request: WaitingRequest) -> str | None:
    """Return the group whose members a request waits for; None for other requests."""
    if request.api_key not in WAITS_FOR_MEMBERS:
        return None
    found = getattr(_decoded(request), "group_id", None)
    return None if found is None else str(found)


def _decoded(request: WaitingRequest) -> Any:
    try:
        read = messages.request_reader(request.api_key, request.version)
        return read(request.frame, request.body_at)[0]
    except (WireError, ValueError, KeyError, IndexError, struct.error):
        return None
