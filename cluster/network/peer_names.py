"""The names of the other end of a connection: its peer, from the client id of the first request, and its principal.

Owns: `peer_of`, `principal_of`. On a PLAINTEXT listener names are not verified; on a listener with SSL the principal
is that of the client's certificate; with SASL it is the user that has logged in (`sasl_server.py`).
"""

from __future__ import annotations

import re

from ..authorizer import ANONYMOUS, BROKER_TYPE, USER_TYPE, Principal
from ..host.seam import Peer
from ..listeners import Listener, SecurityProtocol
from ..security.certificates import PrincipalNames, subject_of

_BROKER = re.compile(r"broker-(\d+)")
UNNAMED = "unnamed"
"""The name of a client that gives none."""


def peer_of(listener: Listener, client_id: str, address: str = "") -> Peer:
    """The peer that a client id names: on the inter-broker listener `broker-2` is broker 2."""
    broker = _BROKER.fullmatch(client_id) if listener.inter_broker else None
    if broker is not None:
        return Peer("broker", broker[1], address)
    return Peer("client", client_id or UNNAMED, address)


def principal_of(listener: Listener, peer: Peer, certificate: bytes | None, names: PrincipalNames) -> Principal:
    """The principal of a peer: on a PLAINTEXT listener `Broker:2` for brokers, on SSL the name in the certificate.

    Else User:ANONYMOUS; on a listener with SASL until the client has logged in.
    """
    if listener.security_protocol is SecurityProtocol.PLAINTEXT:
        return Principal(BROKER_TYPE, peer.name) if peer.kind == "broker" else ANONYMOUS
    if certificate is None or listener.has_sasl:
        return ANONYMOUS
    return Principal(USER_TYPE, names.name_of(subject_of(certificate)))
