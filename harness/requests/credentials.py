"""Requests that give users their credentials and rights, and logins that show that every broker knows them (A5).

Owns: `store_scram_user`, `store_plain_users`, `create_acl`, each of which returns when the brokers act by it; `refusal`
of a login. They go to listeners for Harrow's own clients. A broker that does not run learns it when it starts.
What may fail: HarrowError with what a broker refused, or where one does not act by it in time.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from random import SystemRandom
from typing import Any

from harrow.cluster.errors import ClusterError, HarrowError
from harrow.cluster.listeners import Address
from harrow.cluster.network.sasl_client import LoginError, log_in
from harrow.cluster.security.acls import Acl
from harrow.cluster.security.sasl.mechanisms import PeerLogin, password_login
from harrow.cluster.security.sasl.scram import ITERATIONS_LEAST, MECHANISMS
from harrow.cluster.wire.client_requests import ClientRequest

from .blocking import completed
from .raw import CLIENT_ID, Connection, NoResponseError
from .security_requests import alter_broker, alter_scram, create_acls, describe_acls

KNOWN_WITHIN_S = 10.0
POLL_S = 0.01
LOGIN_TIMEOUT_S = 5.0


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


def login_of(mechanism: str, user: str, password: str) -> PeerLogin:
    """Return how a user logs in by PLAIN or SCRAM."""
    return password_login(mechanism, user, password, SystemRandom())


def refusal(address: Address, login: PeerLogin, tls: ssl.SSLContext | None) -> str:
    """Log in on a connection of its own; return why it was refused, empty where it was not. OSError."""
    with Connection(address, CLIENT_ID, LOGIN_TIMEOUT_S, tls=tls) as connection:

        async def ask(api_key: int, version: int, entity: Any) -> Any:
            return connection.exchange(ClientRequest(api_key, version, entity), LOGIN_TIMEOUT_S)

        try:
            completed(log_in(ask, login))
        except LoginError as error:
            return str(error)
    return ""
