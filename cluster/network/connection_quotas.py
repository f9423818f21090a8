"""`max.connections`, `max.connections.per.ip` and its overrides: how many connections a broker keeps open (KIP-402).

Owns: the number of open connections of a broker, in all and by address, and three decisions:

* At `max.connections` no listener but the inter-broker listener accepts: new connections wait in the
  kernel's backlog until an open one closes.
* The inter-broker listener is protected: it goes on accepting, and for each connection above the bound the least
  recently used connection of another listener is closed. A broker with one listener has none to protect.
* A connection above `max.connections.per.ip` of its address, or the override for this address, is closed at once.

A running broker may get other bounds (KIP-612). A lower bound closes no open connection, as in Kafka.

Invariants: the total is the sum over the addresses, and nothing is negative. Sans-IO.
Source: Kafka's `ConnectionQuotas`, `Processor.closeExcessConnections`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class QuotaConnection(Protocol):
    """An open connection."""

    @property
    def used_ns(self) -> int:
        """When its last frame passed, or when it was accepted, on the monotonic clock."""
        ...

    def close_excess(self) -> None:
        """Close it: another connection needs its place."""
        ...


class QuotaListener(Protocol):
    """The server of one listener."""

    @property
    def inter_broker(self) -> bool:
        """True for the inter-broker listener."""
        ...

    def open_connections(self) -> list[QuotaConnection]:
        """The open connections, oldest first."""
        ...

    def pause_accepting(self) -> None:
        """Let new connections wait in the backlog."""
        ...

    def resume_accepting(self) -> None:
        """Accept again."""
        ...


class ConnectionQuotas:
    """Counts the connections of all listeners of one broker."""

    def __init__(
        self, *, connections_most: int, per_address_most: int, overrides: Mapping[str, int] | None = None
    ) -> None:
        assert connections_most >= 0 and per_address_most >= 0, "a negative bound"
        self.connections_most = connections_most
        self.per_address_most = per_address_most
        self.overrides = dict(overrides or {})
        self._listeners: list[QuotaListener] = []
        self._by_address: dict[str, int] = {}
        self._total = 0
        self._paused = False

    @property
    def total(self) -> int:
        """Open connections of all listeners."""
        return self._total

    def add(self, listener: QuotaListener) -> None:
        """A listener of the broker, before it accepts."""
        assert listener not in self._listeners, f"{listener!r} would pause and resume twice"
        self._listeners.append(listener)

    def change(self, *, connections_most: int, per_address_most: int, overrides: Mapping[str, int]) -> None:
        """Use other bounds from the next connection on."""
        self.connections_most = connections_most
        self.per_address_most = per_address_most
        self.overrides = dict(overrides)
        self._pause_or_resume()

    def most_of(self, address: str) -> int:
        """Connections that an address may have open."""
        return self.overrides.get(address, self.per_address_most)

    def may_accept(self, listener: QuotaListener) -> bool:
        """True while a listener may accept one more connection."""
        return self._total < self.connections_most or self._is_protected(listener)

    def opened(self, listener: QuotaListener, address: str) -> bool:
        """Count an accepted connection from `address`; False, and not counted, when its address has too many."""
        assert listener in self._listeners, f"a connection of an unknown listener {listener!r}"
        of_address = self._by_address.get(address, 0) + 1
        if of_address > self.most_of(address):
            return False
        self._by_address[address] = of_address
        self._total += 1
        self._pause_or_resume()
        if self._total > self.connections_most and self._is_protected(listener):
            self._close_least_recently_used()
        return True

    def closed(self, address: str) -> None:
        """A counted connection from `address` is gone."""
        of_address = self._by_address.pop(address) - 1
        assert of_address >= 0 and self._total > 0, f"{of_address} connections from {address}"
        if of_address:
            self._by_address[address] = of_address
        self._total -= 1
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        full = self._total >= self.connections_most
        if full == self._paused:
            return
        self._paused = full
        for other in self._unprotected():
            if full:
                other.pause_accepting()
            else:
                other.resume_accepting()

    def _is_protected(self, listener: QuotaListener) -> bool:
        return listener.inter_broker and len(self._listeners) > 1

    def _unprotected(self) -> list[QuotaListener]:
        return [listener for listener in self._listeners if not self._is_protected(listener)]

    def _close_least_recently_used(self) -> None:
        open_ones = [row for listener in self._unprotected() for row in listener.open_connections()]
        if open_ones:
            min(open_ones, key=lambda connection: connection.used_ns).close_excess()
