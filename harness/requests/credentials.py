"""Requests that give users their credentials and rights, and logins that show that every broker knows them (A5).

Owns: `store_scram_user`, `store_plain_users`, `create_acl`, each of which returns when the brokers act by it; `login`.
They go to listeners for Harrow's own clients. A broker that does not run learns it when it starts.
What may fail: HarrowError with what a broker refused, or where one does not act by it in time.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from random import SystemRandom
from typing import Any

from harrow.cluster.errors import ClusterError, ErrorCode, HarrowError
from harrow.cluster.listeners import Address
from harrow.cluster.security.acls import Acl
from harrow.cluster.security.sasl.exchange import SaslClient, SaslError
from harrow.cluster.security.sasl.plain import PlainClient
from harrow.cluster.security.sasl.scram import ITERATIONS_LEAST, MECHANISMS, ScramClient, nonce_of
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import SIZE, ClientRequest, client_request

from .raw import CLIENT_ID, NoResponseError
from .security_requests import alter_broker, alter_scram, create_acls, describe_acls

KNOWN_WITHIN_S = 10.0
POLL_S = 0.01
LOGIN_TIMEOUT_S = 5.0
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2


def store_scram_user(addresses: Sequence[Address], mechanism: str, user: str, password: str) -> None:
    """Make a user of SCRAM, or replace the password of one."""
    found, salt = MECHANISMS[mechanism], secrets.token_bytes(16)
    salted = {found: found.salted_password(password, salt, ITERATIONS_LEAST)}
    _of_any(addresses, lambda address: alter_scram(address, user, salted, salt, ITERATIONS_LEAST))


def store_plain_users(addresses: Mapping[int, Address], setting: str, module: str) -> None:
    """Replace the users of PLAIN on these brokers, by node id: `module` is the value of the setting."""
    for node, address in addresses.items():
        alter_broker(address, node, {setting: module})


def create_acl(addresses: Sequence[Address], running: Callable[[], Sequence[Address]], acl: Acl) -> None:
    """Add an ACL, and wait until every running broker has it."""
    _of_any(addresses, lambda address: create_acls(address, [acl]))
    kind, name = acl.pattern.type, acl.pattern.name
    await_everywhere(running, lambda address: "" if acl in describe_acls(address, kind, name) else "lacks it")


def await_everywhere(running: Callable[[], Sequence[Address]], lacking: Callable[[Address], str]) -> None:
    """Wait until `lacking` is empty for every running broker; ClusterError with what is lacking."""
    deadline = time.monotonic() + KNOWN_WITHIN_S
    while True:
        missing = {str(address): _said(lacking, address) for address in running()}
        missing = {address: said for address, said in missing.items() if said}
        if not missing:
            return
        if time.monotonic() > deadline:
            said = "; ".join(f"{address} {text}" for address, text in missing.items())
            raise ClusterError(f"brokers do not act by new credentials or rights after {KNOWN_WITHIN_S:g} s: {said}")
        time.sleep(POLL_S)


def _said(lacking: Callable[[Address], str], address: Address) -> str:
    try:
        return lacking(address)
    except (HarrowError, OSError) as error:
        return str(error)


def _of_any(addresses: Sequence[Address], send: Callable[[Address], None]) -> None:
    """Send a request to the first broker that responds; ClusterError where it refuses the request, or none responds."""
    silent: ClusterError = ClusterError("the cluster has no broker")
    for address in addresses:
        try:
            return send(address)
        except NoResponseError as error:
            silent = error
    raise silent


# ---------------------------------------------------------------------- logins


def sasl_client(mechanism: str, user: str, password: str) -> SaslClient:
    """Return the client's side of PLAIN or SCRAM."""
    if mechanism in MECHANISMS:
        return ScramClient(MECHANISMS[mechanism], user, password, nonce_of(SystemRandom()))
    return PlainClient(user, password)


def login(address: Address, mechanism: str, client: SaslClient, tls: ssl.SSLContext | None) -> str:
    """Log in on a connection of its own; return why it was refused, empty where it was not. OSError."""
    with contextlib.ExitStack() as closing:
        link: socket.socket = closing.enter_context(socket.create_connection(address, LOGIN_TIMEOUT_S))
        if tls is not None:
            link = closing.enter_context(tls.wrap_socket(link, server_hostname=address.host))
        response = _exchanged(link, client_request(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, mechanism=mechanism))
        if response.error_code is not ErrorCode.none:
            return f"{response.error_code.name}: {', '.join(response.mechanisms)}"
        received = b""
        try:
            while not client.complete:
                sent = client.evaluate(received)
                if client.complete and not sent:
                    break
                request = client_request(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, auth_bytes=sent)
                response = _exchanged(link, request)
                if response.error_code is not ErrorCode.none:
                    return f"{response.error_code.name}: {response.error_message}"
                received = response.auth_bytes
        except SaslError as error:
            return str(error)
    return ""


def _exchanged(link: socket.socket, request: ClientRequest) -> Any:
    link.sendall(request.frame(1, CLIENT_ID))
    return request.response(_received(link, SIZE.unpack(_received(link, SIZE.size))[0]))


def _received(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = link.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError("the broker closed the connection")
        data += chunk
    return bytes(data)
