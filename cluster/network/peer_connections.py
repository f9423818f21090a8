"""Connections of a coordinator's room to other brokers: one for each broker, opened when a request needs it.

Owns: the clients, by broker. A broker that has another address gets a new client. Requests to this broker itself are
handled in the process, except those of `request_any`.

What may fail: OSError, TimeoutError, WireError of the peer client; ConnectionError while the broker's address is
unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..ids import NodeId
from .peers import PeerClient

if TYPE_CHECKING:
    from ..listeners import Address


class PeerAddresses(Protocol):
    """What this module needs of the metadata cache."""

    @property
    def node_id(self) -> NodeId:
        """This broker."""
        ...

    def peer_endpoint(self, node_id: NodeId, /) -> Address | None:
        """The address of a live broker's inter-broker listener."""
        ...


class PeerConnections:
    """Requests to other brokers."""

    def __init__(
        self, addresses: PeerAddresses, connect: Callable[[NodeId], PeerClient | None], timeout_ms: int
    ) -> None:
        self.node_id = addresses.node_id
        self._addresses = addresses
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._clients: dict[NodeId, PeerClient] = {}

    async def request(self, node_id: NodeId, api_key: int, version: int, entity: Any) -> Any:
        """Send a request to another broker; its response."""
        assert node_id != self.node_id, "a broker sends no request to itself"
        return await self.request_any(node_id, api_key, version, entity)

    async def request_any(self, node_id: NodeId, api_key: int, version: int, entity: Any) -> Any:
        """As `request`, and to this broker too, over its own listener."""
        return await self._client(node_id).request(api_key, version, entity, self._timeout_ms)

    def _client(self, node_id: NodeId) -> PeerClient:
        known = self._clients.get(node_id)
        endpoint = self._addresses.peer_endpoint(node_id)
        if known is not None:
            if endpoint is None or known.address == (endpoint.host, endpoint.port):
                return known
            known.close()
            del self._clients[node_id]
        made = self._connect(node_id)
        if made is None:
            raise ConnectionError(f"the address of broker {node_id} is not known yet")
        self._clients[node_id] = made
        return made

    def close(self) -> None:
        """Close every connection."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()
