"""Ports that stay a cluster's own for its whole life.

A port is held by a socket that is bound and never listens. The broker binds its own socket beside it
(SO_REUSEPORT) and listens; when the broker dies, connections are refused and nobody else gets the port.
"""

from __future__ import annotations

import contextlib
import errno
import socket

from .errors import ClusterError

LOOPBACK = "127.0.0.1"


class HeldPort:
    """One held port; `number` is where a process of ours may listen."""

    def __init__(self, wanted: int = 0) -> None:
        """Bind `wanted` (0: any free port). ClusterError when it is in use or not allowed."""
        if wanted:
            _refuse_a_port_in_use(wanted)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((LOOPBACK, wanted))
        except OSError as error:
            self._socket.close()
            raise _explained(wanted, error) from error
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back."""
        with contextlib.suppress(OSError):
            self._socket.close()


def _refuse_a_port_in_use(port: int) -> None:
    """SO_REUSEPORT would let two clusters of one user share a port: try once without it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError as error:
            raise _explained(port, error) from error


def _explained(port: int, error: OSError) -> ClusterError:
    if error.errno == errno.EADDRINUSE:
        return ClusterError(
            f"port {port} of {LOOPBACK} is in use; choose another base port, or none for free ones"
        )
    return ClusterError(f"port {port} of {LOOPBACK} cannot be bound: {error}")
