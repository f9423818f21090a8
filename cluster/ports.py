"""Ports that are reserved for a cluster while it exists.

A socket that is bound and never listens reserves each port. The broker binds its own socket beside it (SO_REUSEPORT)
and listens. While the broker is dead, connections are refused and no other process gets the port.
"""

from __future__ import annotations

import contextlib
import errno
import socket

from .errors import ClusterError

LOOPBACK = "127.0.0.1"


class ReservedPort:
    """One reserved port; a process of the cluster may listen at `number`."""

    def __init__(self, wanted: int = 0, host: str = LOOPBACK) -> None:
        """Bind port `wanted` of `host` (0: any free port). ClusterError when it is in use or not allowed."""
        if wanted:
            _refuse_a_port_in_use(host, wanted)
        self._socket = socket.socket(_family(host), socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, wanted))
        except OSError as error:
            self._socket.close()
            raise _explained(host, wanted, error) from error
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back."""
        with contextlib.suppress(OSError):
            self._socket.close()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _refuse_a_port_in_use(host: str, port: int) -> None:
    """Bind once without SO_REUSEPORT, which would let two clusters of one user share a port."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise _explained(host, port, error) from error


def _explained(host: str, port: int, error: OSError) -> ClusterError:
    if error.errno == errno.EADDRINUSE:
        return ClusterError(
            f"port {port} of {host} is in use; choose another base port, or none for free ones"
        )
    return ClusterError(f"port {port} of {host} cannot be bound: {error}")
