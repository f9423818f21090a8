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

from ..events.links import RelayRefused
from ..host.seam import Peer, ProcessHost, Promise, RawHandler, RawLink, RawNetwork
from ..listeners import Address
from ..network.passing_end import PassingEnd

LISTENER = "relay"
UPSTREAM = Peer("upstream", "")
CONNECT_TIMEOUT_MS = 10_000
UNSENT_MOST = 1024 * 1024
CLOSED_HERE = "closed here"


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
            self._host.trace.emit(RelayRefused(error=str(error)))
            near.link.close(reset=True)
            return
        near.connected(far)

    def _op_relay(self, _fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"connections": self._connections, "refused": self._refused}


class RelayedEnd(PassingEnd[RawLink]):
    """The handler of one of the two links of a connection: it passes what it receives to the other.

    Bytes pass unchanged and in order. A link is not read while more than `UNSENT_MOST` bytes wait on the other. The end
    of one direction (FIN) passes after its bytes, and the other direction goes on. A reset passes at once.
    """

    __slots__ = ("_reset",)

    def __init__(self, link: RawLink, other: RawLink | None = None) -> None:
        """Without the other link nothing may be received yet: pause `link`, and call `connected`."""
        super().__init__(link, other, UNSENT_MOST)
        self._reset = False

    def connected(self, other: RawLink) -> None:
        """Take the other link, and read this one."""
        self._other = other
        if self._reset:
            other.close(reset=True)
        else:
            self.link.resume()

    def input_ended(self) -> None:
        """Pass the end of this direction."""
        if self._other is not None:
            self._other.finish_sending()

    def link_closed(self, reason: str) -> None:
        """Reset the other link, unless both directions came to their end."""
        if reason == CLOSED_HERE:
            return
        self._reset = True
        if self._other is not None:
            self._other.close(reset=True)
