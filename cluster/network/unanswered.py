"""Requests of clients that are not answered in time, on connections that live (L4).

Owns: `UnansweredWatch`, which looks at the connections of a listener once a second. Of each connection it looks at the
oldest request without a response, because later ones may wait for it. A request that was there at more looks than the
seconds that a broker may wait for it (`wire/waiting_times.py`) and `PATIENCE_S` is traced as `request.unanswered`, and
again each `AGAIN_S` while it stays. Looks are counted, not time: a process that was stopped did not look.

A request that a fault dropped is not looked at, and a connection that has ended has no requests. Only a host with a tap
is watched. The verdict (`harness/checks/unanswered.py`) leaves out what a fault explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ..events.requests import RequestUnanswered
from ..host.seam import Host, Timer
from ..wire.api_keys import ApiKey
from ..wire.waiting_times import WaitingRequest, group_id, waiting_ms

LOOK_MS = 1_000
PATIENCE_S = 10
AGAIN_S = 5


class WatchedConnection(Protocol):
    """A connection of a client."""

    def oldest_unanswered(self) -> WaitingRequest | None:
        """Return the oldest request that the broker has to answer; None without one."""
        ...


class _Waiting:
    """A request that a look has found."""

    __slots__ = ("looks", "most", "request")

    def __init__(self, request: WaitingRequest) -> None:
        self.request = request
        self.looks = 0
        self.most = 0
        """After so many looks it is late; 0: not worked out yet."""


class UnansweredWatch:
    """Looks at the connections of one listener."""

    def __init__(self, host: Host, connections: Callable[[], Iterable[WatchedConnection]]) -> None:
        self._host = host
        self._connections = connections
        self._waiting: dict[WatchedConnection, _Waiting] = {}
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look from now on."""
        assert self._timer is None, "the watch runs already"
        self._timer = self._host.tasks.call_later(LOOK_MS, self._next)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        self._timer = self._host.tasks.call_later(LOOK_MS, self._next)
        self.look()

    def look(self) -> None:
        """Look once at every connection."""
        before, self._waiting = self._waiting, {}
        for connection in self._connections():
            request = connection.oldest_unanswered()
            if request is None:
                continue
            waiting = before.get(connection)
            if waiting is None or waiting.request is not request:
                waiting = _Waiting(request)
            self._waiting[connection] = waiting
            self._count(waiting)

    def _count(self, waiting: _Waiting) -> None:
        waiting.looks += 1
        if waiting.looks <= PATIENCE_S:
            return
        if not waiting.most:
            waiting.most = PATIENCE_S + -(-waiting_ms(waiting.request) // 1000) + 1
        late = waiting.looks - waiting.most
        if late >= 0 and late % AGAIN_S == 0:
            self._report(waiting)

    def _report(self, waiting: _Waiting) -> None:
        request = waiting.request
        try:
            api = ApiKey(request.api_key).name
        except ValueError:
            api = str(request.api_key)
        self._host.trace.emit(
            RequestUnanswered(
                api=api,
                client=request.client_id,
                correlation_id=request.correlation_id,
                invoked_ns=request.invoked_ns,
                timeout_ms=waiting_ms(request),
                looks=waiting.looks,
                group=group_id(request),
            )
        )
