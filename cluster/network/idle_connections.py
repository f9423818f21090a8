"""Connections of clients without traffic for `connections.max.idle.ms` are closed.

Owns: `IdleWatch`, which closes them for one listener. As in Kafka a request that waits at the broker (in a purgatory,
for its transaction, …) is no traffic: its connection is closed, too. Connections of brokers stay open.

The watch sleeps until the least recently used connection may have been idle for long enough, and at least a twentieth
of the bound, so a connection is closed up to 5 % late. Source: Kafka's `Selector.IdleExpiryManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ..host.seam import Host, Timer

NS_PER_MS = 1_000_000
LOOKS = 20
"""Looks at the connections in the time of the bound, at most."""


class IdleConnection(Protocol):
    """An open connection of a client."""

    @property
    def used_ns(self) -> int:
        """When its last frame passed, or when it was accepted, on the monotonic clock."""
        ...

    def close_idle(self) -> None:
        """Close it."""
        ...


class IdleWatch:
    """Closes the idle ones of the connections that `clients` returns; `idle_ms_max` below 0: none, ever."""

    def __init__(self, host: Host, idle_ms_max: int, clients: Callable[[], Iterable[IdleConnection]]) -> None:
        self._host = host
        self._idle_ms_max = idle_ms_max
        self._clients = clients
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look from now on."""
        assert self._timer is None, "the watch runs already"
        if self._idle_ms_max >= 0:
            self._timer = self._host.tasks.call_later(max(1, self._idle_ms_max), self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now_ns = self._host.clock.monotonic_ns()
        bound_ns = self._idle_ms_max * NS_PER_MS
        next_ns = now_ns + bound_ns
        for connection in list(self._clients()):
            if connection.used_ns + bound_ns <= now_ns:
                connection.close_idle()
            else:
                next_ns = min(next_ns, connection.used_ns + bound_ns)
        least_ms = max(1, self._idle_ms_max // LOOKS)
        delay_ms = max(least_ms, -(-(next_ns - now_ns) // NS_PER_MS))
        self._timer = self._host.tasks.call_later(delay_ms, self._look)
