"""The process of a relay: a listener, and for each connection that it accepts one to the service.

A client's link is called `client <address>`, the service's `upstream`. Faults name the clients: what is blocked "in"
does not arrive at the service, what is blocked "out" does not arrive at the clients. Where the service accepts no
connection, that of the client is reset.

Control operation: `relay`, counts since the start as JSON: `connections`, and `refused` of them, where the service
accepted none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..host.seam import Peer, ProcessHost, Promise, RawHandler, RawLink, RawNetwork
from ..listeners import Address
from .ends import RelayedEnd

LISTENER = "relay"
UPSTREAM = Peer("upstream", "")
CONNECT_TIMEOUT_MS = 10_000


class RelayProcess:
    """One relay."""

    def __init__(self, host: ProcessHost, network: RawNetwork, options: Mapping[str, Any]) -> None:
        self._host = host
        self._network = network
        self._upstream = Address(*options["upstream"])
        self._connections = self._refused = 0
        self._failed: Promise[None] = host.tasks.promise()
        host.control.register("relay", self._op_relay)

    async def start(self) -> None:
        """Accept connections."""
        self._network.listen_raw(LISTENER, self._accept)

    async def failed(self) -> None:
        """Wait for an error that ends the process: there is none."""
        await self._failed

    async def stop(self) -> None:
        """The host ends the links."""

    def _accept(self, link: RawLink) -> RawHandler:
        self._connections += 1
        link.peer = Peer("client", link.peer.name)
        near = RelayedEnd(link)
        link.pause()  # until the service is connected
        self._host.tasks.spawn(self._connect(near), name="relay-connect")
        return near

    async def _connect(self, near: RelayedEnd) -> None:
        try:
            far = await self._network.connect_raw(
                UPSTREAM, *self._upstream, lambda link: RelayedEnd(link, near.link), timeout_ms=CONNECT_TIMEOUT_MS
            )
        except (OSError, TimeoutError) as error:
            self._refused += 1
            self._host.trace.emit("relay.refused", error=str(error))
            near.link.close(reset=True)
            return
        near.connected(far)

    def _op_relay(self, _fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"connections": self._connections, "refused": self._refused}
