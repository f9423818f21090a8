"""Ports that are reserved for a cluster while it exists.

A socket that is bound and never listens reserves each port. The broker binds its own socket beside it (SO_REUSEPORT)
and listens. While the broker is dead, connections are refused and no other process gets the port.

Free ports are given in turn, over all processes of a user (`_next_port`), so that a port is not given again soon: a
client that outlives its cluster would reach the next cluster at this port, and send it what it has queued.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import tempfile
from pathlib import Path

from .errors import ClusterError
from .file_locks import lock

LOOPBACK = "127.0.0.1"
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOCK_TIMEOUT_S = 2.0
"""How long another process may hold the file of the last port; it needs a microsecond, unless it is stopped."""
ATTEMPTS = 1000
"""Ports in use that are passed over, before the operating system chooses one."""


class ReservedPort:
    """One reserved port; a process of the cluster may listen at `number`."""

    def __init__(self, wanted: int = 0, host: str = LOOPBACK) -> None:
        """Bind port `wanted` of `host` (0: any free port). ClusterError when it is in use or not allowed."""
        if wanted:
            _refuse_a_port_in_use(host, wanted)
        self._socket = _bound(host, wanted) if wanted else _bound_to_next(host)
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back."""
        with contextlib.suppress(OSError):
            self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound beside those of other processes. ClusterError."""
    bound = socket.socket(_family(host), socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise _explained(host, port, error) from error
    return bound


def _bound_to_next(host: str) -> socket.socket:
    """Return a socket at the next port that is free."""
    for _ in range(ATTEMPTS):
        port = _next_port()
        try:
            if port:
                _refuse_a_port_in_use(host, port)
            return _bound(host, port)
        except ClusterError:
            if not port:
                raise
    return _bound(host, 0)


def _next_port() -> int:
    """Return the port after the one that was given last to any process of this user; 0 where that is not known in time.

    The last port is in a file of the folder for temporary files. Its range is that of the operating system's own
    choice, so that no service with a fixed port is in the way.
    """
    file = Path(tempfile.gettempdir(), f"harrow-ports-{os.getuid()}")
    try:
        low, high = map(int, PORT_RANGE.read_text().split())
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except (OSError, ValueError):
        return 0
    try:
        if not lock(descriptor, LOCK_TIMEOUT_S):
            return 0
        text = os.pread(descriptor, 16, 0)
        last = int(text) if text.strip().isdigit() else low + os.getpid() * 97 % (high - low)
        port = last + 1 if low <= last < high else low
        os.pwrite(descriptor, f"{port:<8}".encode(), 0)
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    return port


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
        return ClusterError(f"port {port} of {host} is in use; choose another base port, or none for free ones")
    return ClusterError(f"port {port} of {host} cannot be bound: {error}")
