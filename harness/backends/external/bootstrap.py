"""The brokers behind a bootstrap address, and whether Harrow can use them.

What may fail: CapabilityError, which names the address, what was tried there, and the remedy. The proxy speaks
PLAINTEXT only, so a listener for TLS or SASL is recognised by what it refuses: TLS does not answer a plain request,
SASL answers ApiVersions and closes the connection at the next request.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import PORT_MOST, Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request
from harrow.faults.errors import CapabilityError

from ...requests.raw import ask
from ..apache.kafka_views import DESCRIBE_QUORUM, METADATA_VERSION, metadata

TIMEOUT_S = 5.0
NEEDED: Mapping[int, int] = {
    ApiKey.METADATA: METADATA_VERSION,
    ApiKey.FETCH: 11,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
}
"""What Harrow itself asks the brokers: versions by API key."""
PLAIN = "Harrow's proxy speaks PLAINTEXT only, so give the address of a PLAINTEXT listener"
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([\w.-]+)):(\d{1,5})")


class ExternalBrokers(NamedTuple):
    """What the bootstrap address led to."""

    addresses: Mapping[int, Address]
    """Where each broker listens, by node id."""
    quorum: bool
    """Whether the brokers describe a KRaft quorum."""
    cluster_id: str


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """Return the addresses of HOST:PORT[,HOST:PORT…]; CapabilityError for anything else."""
    found: list[Address] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ADDRESS.fullmatch(part)
        if match is None or not 0 < int(match[3]) <= PORT_MOST:
            raise CapabilityError(f"--harrow-bootstrap={text}: {part!r} is not HOST:PORT")
        found.append(Address(match[1] or match[2], int(match[3])))
    if not found:
        raise CapabilityError("no cluster is named: give the address of a broker, as --harrow-bootstrap=localhost:9092")
    return tuple(found)


def find_brokers(bootstrap: str) -> ExternalBrokers:
    """Return the brokers that the first address that can be used names; CapabilityError when none can be used."""
    problems: list[str] = []
    for address in parse_bootstrap(bootstrap):
        try:
            found = _ask(address)
        except CapabilityError as error:
            problems.append(str(error))
            continue
        _check_advertised(address, found.addresses)
        return found
    raise CapabilityError("; ".join(problems))


def _ask(address: Address) -> ExternalBrokers:
    problem = _unreachable(address)
    if problem:
        raise CapabilityError(f"{address} cannot be reached: {problem}; check that a broker listens there")
    try:
        versions = _api_versions(address)
    except ClusterError as error:
        raise CapabilityError(
            f"{address} accepts connections and does not answer a plain request of Kafka's ({error}), as a listener "
            f"for TLS does; {PLAIN}"
        ) from None
    for api_key, version in NEEDED.items():
        low, high = versions.get(api_key, (0, -1))
        if not low <= version <= high:
            raise CapabilityError(
                f"{address} serves {ApiKey(api_key).name} in versions {low} to {high}, and Harrow needs {version}; "
                "use Apache Kafka 2.8 or later, or a broker that is compatible with it"
            )
    try:
        response = metadata(address, topics=())
    except ClusterError as error:
        raise CapabilityError(
            f"{address} answers ApiVersions and no other request without authentication ({error}), as a listener for "
            f"SASL does; {PLAIN}"
        ) from None
    return ExternalBrokers(
        addresses={int(row.node_id): Address(str(row.host), int(row.port)) for row in response.brokers},
        quorum=DESCRIBE_QUORUM in versions,
        cluster_id=str(response.cluster_id or ""),
    )


def _api_versions(address: Address) -> dict[int, tuple[int, int]]:
    response: Any = ask(address, client_request(ApiKey.API_VERSIONS, 0), timeout_s=TIMEOUT_S)
    return {int(row.api_key): (int(row.min_version), int(row.max_version)) for row in response.api_keys}


def _check_advertised(bootstrap: Address, brokers: Mapping[int, Address]) -> None:
    """Raise CapabilityError when no broker can be reached at the address that it advertises."""
    problems: list[str] = []
    for node, address in sorted(brokers.items()):
        problem = _unreachable(address)
        if not problem:
            return
        problems.append(f"broker {node} at {address}: {problem}")
    said = "; ".join(problems) or "it names no broker"
    raise CapabilityError(
        f"the brokers that {bootstrap} names cannot be reached from here: {said}; check their advertised.listeners"
    )


def _unreachable(address: Address) -> str:
    """Return why a connection fails; empty when it is accepted."""
    try:
        with contextlib.closing(socket.create_connection(address, TIMEOUT_S)):
            return ""
    except OSError as error:
        return str(error)


def shown(addresses: Iterable[Address]) -> str:
    """Return the addresses as a user writes them."""
    return ",".join(map(str, addresses))
