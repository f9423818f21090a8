"""Who may do what: principals, operations, resources, and the authorizer that decides.

Owns: the values of an authorization question under Kafka's names and numbers, the `Authorizer` protocol, and
`ListenerAuthorizer`, its default. Dispatch (`network/connection.py`) asks for what an API needs of the cluster before
its handler runs; a handler asks for what it needs of a topic, a group or a transactional id (`Request.allows`). The
protocol does no input or output.

`ListenerAuthorizer` allows every operation but CLUSTER_ACTION to every principal, and CLUSTER_ACTION to brokers only: a
client of a PLAINTEXT listener is `User:ANONYMOUS`, as in Kafka, and a broker that names itself on the inter-broker
listener is `Broker:<node id>`. An inter-broker listener with SSL or SASL trusts every client that it lets in
(`trusts_clients`): no name there says who is a broker. Kafka without an authorizer allows CLUSTER_ACTION to every
principal on every listener, so there any client may pose as a follower or as the controller.

Source: Kafka's `Authorizer`, `KafkaPrincipal`, `AclOperation`, `ResourceType`, `Resource.CLUSTER`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

__all__ = [
    "ANONYMOUS",
    "CLUSTER",
    "SUPPORTED_OPERATIONS",
    "Authorizer",
    "ListenerAuthorizer",
    "Operation",
    "Principal",
    "Resource",
    "ResourceType",
]

BROKER_TYPE, USER_TYPE = "Broker", "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sends a request: `User:ANONYMOUS`, `User:alice`, `Broker:2`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @property
    def is_broker(self) -> bool:
        """True for a broker of this cluster that named itself on a PLAINTEXT inter-broker listener."""
        return self.type == BROKER_TYPE


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")
"""Kafka's principal of every client of a PLAINTEXT listener."""


class Operation(IntEnum):
    """Kafka's AclOperation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    """What brokers do to each other: leadership, replication, transaction markers."""
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kafka's ResourceType."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Resource(NamedTuple):
    """What an operation is done to."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name}:{self.name}"


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")
"""The cluster itself (Kafka's Resource.CLUSTER_NAME)."""

_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        *_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that Kafka shows as authorized operations of a resource (AclEntry.supportedOperations, KIP-430)."""


class Authorizer(Protocol):
    """Decides each question by itself, at once and without input or output."""

    @property
    def unrestricted(self) -> bool:
        """True when every client may do everything that its listener serves: handlers then ask nothing."""
        ...

    def authorize(self, principal: Principal, host: str, operation: Operation, resource: Resource, /) -> bool:
        """True when `principal` may do `operation` to `resource` from the IP address `host`."""
        ...

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType, /) -> bool:
        """True when there is a resource of this type to which `principal` may do `operation`."""
        ...


class ListenerAuthorizer:
    """Allows everything that the listener of a request allows: CLUSTER_ACTION to brokers, the rest to all.

    `brokers`: the principals that brokers have where they log in.
    """

    unrestricted = True

    def __init__(self, *, trusts_clients: bool = False) -> None:
        self._trusts_clients = trusts_clients

    def authorize(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """True, except for CLUSTER_ACTION by a principal that is not a broker of the cluster."""
        del host, resource
        return operation is not Operation.CLUSTER_ACTION or principal.is_broker or self._trusts_clients

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """True."""
        del principal, host, operation, kind
        return True
