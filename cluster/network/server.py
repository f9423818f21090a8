"""The server side of clients' and brokers' connections: one listener, one API table.

Owns: the listener and its connections (`connection.py` has their rules). A link is named by its first
request: `broker-2` on the brokers' listener is broker 2, anything else is a client.
What may fail: `start` where the host has no such listener (ConfigError).
"""

from __future__ import annotations

import traceback

from ..host.seam import FrameHandler, Host, Link, Listener
from ..metrics.request_times import RequestTimes
from ..wire.api import ApiTable
from ..wire.request import Request
from .connection import Connection

REQUESTS_AHEAD = 500
"""Kafka's default of queued.max.requests."""
FRAME_BYTES_MOST = 104_857_600
"""Kafka's default of socket.request.max.bytes."""


class RequestServer:
    """Serves `table` on the host's listener `name`."""

    def __init__(
        self,
        host: Host,
        table: ApiTable,
        name: str,
        *,
        requests_ahead: int = REQUESTS_AHEAD,
        max_connections: int = 2**31 - 1,
    ) -> None:
        self._host = host
        self._table = table
        self._name = name
        self._requests_ahead = requests_ahead
        self._max_connections = max_connections
        self.times = RequestTimes()
        """How long requests took; servers of one broker share one."""
        self._connections: dict[Connection, None] = {}  # a set that keeps its order
        self._listener: Listener | None = None

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    @property
    def port(self) -> int:
        """Where it listens; only after `start`."""
        assert self._listener is not None, "the server has not been started"
        return self._listener.port

    async def start(self, *, max_frame_bytes: int = FRAME_BYTES_MOST) -> Listener:
        """Listen and serve."""
        self._listener = await self._host.network.listen(
            self._name, self._accept, max_frame_bytes=max_frame_bytes
        )
        return self._listener

    def close(self) -> None:
        """Accept no more and end every connection; answers already given still leave."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()

    def _accept(self, link: Link) -> FrameHandler:
        connection = Connection(
            self, self._host, self._table, self._name, link, self._requests_ahead
        )
        self._connections[connection] = None
        if len(self._connections) > self._max_connections:
            self._host.trace.log(
                "warning", f"closing the link to {link.peer}: {self._max_connections} are open "
                "(max.connections)"
            )  # fmt: skip
            link.close(reset=True)
        return connection

    def forget(self, connection: Connection) -> None:
        """Its link is gone."""
        self._connections.pop(connection, None)

    def report(self, request: Request, error: Exception) -> None:
        """Leave the trail of a handler's bug."""
        stack = "".join(traceback.format_exception(error)).rstrip()
        self._host.trace.emit(
            "task.failed", name=f"api-{request.api_key}", error=f"{type(error).__name__}: {error}"
        )
        self._host.trace.log("error", f"handler of {request!r} failed\n{stack}")
