"""Ports on which nothing listens, for servers that cannot choose their own.

The ports given to `first_free` must be below 32 768: from there on, the system takes ports for outgoing connections.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable


def first_free(ports: Iterable[int], offsets: Iterable[int]) -> int:
    """The first port of `ports` for which port + offset is free, for every offset."""
    wanted = tuple(offsets)
    for port in ports:
        if all(_is_free(port + offset) for offset in wanted):
            return port
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
