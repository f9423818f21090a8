"""Connections of strangers to one broker (K5): so many that it accepts no further one, until they are closed.

Owns: `StrangerConnections`, sockets of this process and the thread that opens them. One at a time asks for ApiVersions:
a response means that the broker serves it, and the next one is opened. One without a response within `UNSERVED_S`
is the evidence: the broker is full (`max.connections`: new connections wait in the backlog), or it closes what is new
(`max.connections.per.ip`). It stays, and takes the place of a client that leaves.

What may fail: the broker may serve `most` connections, or this process may have no further descriptor: nothing is full
then, and the facts say so. After `disarm` the status tells whether the broker serves a new connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request
from harrow.faults.rule_kinds import RuleStatus

CLIENT_ID = "stranger"
UNSERVED_S = 0.5
"""A broker that accepts responds to ApiVersions in milliseconds."""
POLL_S = 0.05


class StrangerConnections:
    """Connections that fill a broker, until `disarm`."""

    def __init__(self, address: Address, most: int) -> None:
        self._address = address
        self._most = most
        self._open: list[socket.socket] = []
        self._closed_at_once = 0
        self._unserved_since: float | None = None
        self._error = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="harrow-strangers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and len(self._open) < self._most:
            try:
                connection = _asked(self._address)
            except OSError as error:
                self._missed(str(error))
                continue
            if self._is_served(connection):
                self._open.append(connection)
            else:
                connection.close()

    def _is_served(self, connection: socket.socket) -> bool:
        """Wait until the connection is served (True) or closed (False); while neither, the broker is full."""
        began = time.monotonic()
        connection.settimeout(POLL_S)
        while not self._stop.is_set():
            try:
                if connection.recv(1):
                    self._unserved_since, self._closed_at_once = None, 0
                    return True
            except TimeoutError:
                self._unserved_since = self._unserved_since or began
                continue
            except OSError as error:
                self._missed(str(error))
                return False
            self._missed("closed by the broker")
            return False
        return False

    def _missed(self, error: str) -> None:
        self._error = error
        self._closed_at_once += 1
        self._stop.wait(POLL_S)

    def status(self) -> RuleStatus:
        """Fired while the broker serves no new connection; after `disarm` armed while it still serves none."""
        if self._stop.is_set():
            return RuleStatus(armed=not is_served(self._address), fired=0)
        since = self._unserved_since
        waits_s = 0.0 if since is None else time.monotonic() - since
        full = waits_s >= UNSERVED_S or self._closed_at_once > 1
        facts: dict[str, Any] = {"open": len(self._open), "most": self._most}
        facts |= {"unserved_s": round(waits_s, 3), "closed_at_once": self._closed_at_once}
        if self._error:
            facts["error"] = self._error
        if len(self._open) >= self._most:
            facts["error"] = "the broker serves all of them; set max.connections below `most`"
        return RuleStatus(armed=True, fired=int(full), facts=facts)

    def disarm(self) -> None:
        """Close every connection."""
        self._stop.set()
        self._thread.join(10)
        while self._open:
            self._open.pop().close()


def is_served(address: Address) -> bool:
    """Whether the broker serves a new connection now."""
    with contextlib.suppress(OSError), _asked(address) as connection:
        connection.settimeout(UNSERVED_S)
        return bool(connection.recv(1))
    return False


def _asked(address: Address) -> socket.socket:
    """Open a connection, and send ApiVersions; OSError."""
    connection = socket.create_connection(address, UNSERVED_S)
    try:
        connection.sendall(client_request(ApiKey.API_VERSIONS, 0).frame(1, CLIENT_ID))
    except OSError:
        connection.close()
        raise
    return connection
