"""Who may do what: principals, operations, resources, and the authorizer that decides.

Owns: the values of an authorization question, the `Authorizer` protocol, and `ListenerAuthorizer`, its default.
Dispatch (`network/connection.py`) asks the authorizer before a handler runs; the protocol does no input or output.

Today every listener is PLAINTEXT, so every client is `User:ANONYMOUS`, as in Kafka. A broker that
names itself on the inter-broker listener is `Broker:<node id>`. The default allows every operation but
CLUSTER_ACTION to every principal, and CLUSTER_ACTION to brokers only. Kafka without an authorizer allows CLUSTER_ACTION
to every principal too, so there any client may pose as a follower or as the controller.

Source: Kafka's `Authorizer`, `KafkaPrincipal`, `AclOperation`, `Resource.CLUSTER`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

__all__ = ["ANONYMOUS", "CLUSTER", "Authorizer", "ListenerAuthorizer", "Operation", "Principal", "Resource"]

BROKER_TYPE = "Broker"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sends a request: `User:ANONYMOUS`, `Broker:2`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @property
    def is_broker(self) -> bool:
        """True for a broker of this cluster."""
        return self.type == BROKER_TYPE


ANONYMOUS = Principal("User", "ANONYMOUS")
"""Kafka's principal of every client of a PLAINTEXT listener."""


class Operation(IntEnum):
    """Kafka's AclOperation, as far as an API of this broker asks for it before its handler runs."""

    ALTER = 7
    CLUSTER_ACTION = 9
    """What brokers do to each other: leadership, replication, transaction markers."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What an operation is done to; `type` is Kafka's ResourceType."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


CLUSTER = Resource("CLUSTER", "kafka-cluster")
"""The cluster itself (Kafka's Resource.CLUSTER_NAME)."""


class Authorizer(Protocol):
    """Decides each question by itself, at once and without input or output."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource, /) -> bool:
        """True when `principal` may do `operation` to `resource`."""
        ...


class ListenerAuthorizer:
    """Allows everything that the listener of a request allows: CLUSTER_ACTION to brokers, the rest to all."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource, /) -> bool:
        """True, except for CLUSTER_ACTION by a principal that is not a broker of the cluster."""
        del resource
        return operation is not Operation.CLUSTER_ACTION or principal.is_broker
