"""The names of the other end of a connection: its peer and its principal, from the client id of the first request.

Owns: `peer_of`, `principal_of`. On a PLAINTEXT listener names are not verified.
"""

from __future__ import annotations

import re

from ..authorizer import ANONYMOUS, BROKER_TYPE, Principal
from ..host.seam import Peer
from ..listeners import Listener

_BROKER = re.compile(r"broker-(\d+)")
UNNAMED = "unnamed"
"""The name of a client that gives none."""


def peer_of(listener: Listener, client_id: str, address: str = "") -> Peer:
    """The peer that a client id names: on the inter-broker listener `broker-2` is broker 2."""
    broker = _BROKER.fullmatch(client_id) if listener.inter_broker else None
    if broker is not None:
        return Peer("broker", broker[1], address)
    return Peer("client", client_id or UNNAMED, address)


def principal_of(listener: Listener, peer: Peer) -> Principal:
    """The principal of a peer on a PLAINTEXT listener: `Broker:2` on the inter-broker listener, else User:ANONYMOUS."""
    is_broker = listener.inter_broker and peer.kind == "broker"
    return Principal(BROKER_TYPE, peer.name) if is_broker else ANONYMOUS
