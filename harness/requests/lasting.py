"""Blocking connections that last: one to each broker, as a client with sessions needs them (`share_member.py`).

A connection that fails is closed, and the next request opens another one.
"""

from __future__ import annotations

import threading
from typing import Any

from harrow.cluster.errors import WireError
from harrow.cluster.listeners import Address
from harrow.cluster.wire.client_requests import ClientRequest

from .blocking import REQUEST_S, BlockingTransport
from .raw import CONNECT_TIMEOUT_S, Connection, NoResponseError


class LastingTransport(BlockingTransport):
    """A `BlockingTransport` that keeps its connections until `close`."""

    def __init__(self, bootstrap_servers: str, client_id: str, stopped: threading.Event) -> None:
        super().__init__(bootstrap_servers, client_id, stopped)
        self._who, self._ends = client_id, stopped
        self._open: dict[Address, Connection] = {}

    async def ask(self, address: tuple[str, int], request: ClientRequest, timeout_ms: float | None = None) -> Any:
        """Return the response; NoResponseError, WireError, and StoppedError when the client is stopped."""
        place, timeout_s = Address(*address), REQUEST_S if timeout_ms is None else timeout_ms / 1000
        try:
            if place not in self._open:
                self._open[place] = Connection(place, self._who, min(timeout_s, CONNECT_TIMEOUT_S), self._ends)
            return self._open[place].exchange(request, timeout_s)
        except (OSError, WireError) as error:
            self._forget(place)
            if isinstance(error, WireError):
                raise
            raise NoResponseError(f"{place} did not answer API {request.api_key}: {error}") from error

    def _forget(self, place: Address) -> None:
        if (connection := self._open.pop(place, None)) is not None:
            connection.close()

    def close(self) -> None:
        """Close every connection, as a process that dies does."""
        for place in list(self._open):
            self._forget(place)
