"""What the proxy needs of the machine beside the seam: a host for each broker, with a listener that opens again.

Protocols only; `cluster/process.py` implements them with real hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..host.seam import ProcessHost
from ..listeners import Address


class ProxyHost(ProcessHost, Protocol):
    """The host of one foreign broker."""

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
