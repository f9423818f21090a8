"""What the proxy needs of the machine beside the seam: a host for each broker, with a listener that opens again.

Protocols only; `cluster/process.py` implements them with real hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..host.seam import Peer, ProcessHost
from ..listeners import Address


class RequestFault(Protocol):
    """A fault that acts on one request."""

    @property
    def action(self) -> str:
        """`refuse`, `lose`, `delay` or `duplicate`."""
        ...

    @property
    def error(self) -> int:
        """The error code of a refusal."""
        ...

    @property
    def delay_ms(self) -> int:
        """The delay."""
        ...


class ProxyHost(ProcessHost, Protocol):
    """The host of one foreign broker."""

    def request_fault(self, peer: Peer, api_key: int) -> RequestFault | None:
        """Count one request; return the fault that acts on it."""
        ...

    def bind_listener(self, listener: str, address: Address) -> None:
        """Bind `address`, so that `network.listen` may serve `listener` there (again); ConfigError."""
        ...

    async def start(self) -> None:
        """Open the control socket."""
        ...

    async def stop(self) -> None:
        """Close links, tasks, the control socket and the files."""
        ...


MakeHost = Callable[[str], ProxyHost]
"""Makes the host whose folder has this name."""
