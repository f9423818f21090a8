"""The context of requests that tests hand to a handler without a connection: a client's, or a broker's."""

from __future__ import annotations

from harrow.cluster.authorizer import Principal
from harrow.cluster.host.seam import Peer
from harrow.cluster.listeners import Address, Listener
from harrow.cluster.wire.request import RequestContext

CLIENT_LISTENER = Listener(name="CLIENTS", bind=Address("127.0.0.1", 9092), advertised=Address("127.0.0.1", 9092))
BROKER_LISTENER = Listener(
    name="BROKERS", bind=Address("127.0.0.1", 9093), advertised=Address("127.0.0.1", 9093), inter_broker=True
)


def client_context(name: str = "test", listener: Listener = CLIENT_LISTENER) -> RequestContext:
    """A client on a listener for clients."""
    return RequestContext(peer=Peer("client", name), listener=listener)


def broker_context(node: int | str) -> RequestContext:
    """Broker `node` on the inter-broker listener."""
    name = str(node)
    return RequestContext(
        peer=Peer("broker", name), listener=BROKER_LISTENER, principal=Principal("Broker", name), from_broker=True
    )
