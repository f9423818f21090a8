"""A broker that decides by ACLs, ours or Apache Kafka's: clients are `User:ANONYMOUS`, one link is an administrator's.

Apache Kafka's brokers and controllers talk on listeners with SASL, as the super user `User:admin`; the administrator of
our broker is a broker on its inter-broker listener.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from free_ports import first_free
from harrow import Cluster
from harrow.cluster.authorizer import CLUSTER, Operation, ResourceType
from harrow.cluster.security.acls import Acl, AclEntry, PatternType, Permission, ResourcePattern
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.harness.requests.security_requests import creation_of, filter_of
from kafka_reference import TOOL
from raw_kafka import RawKafka
from waiting import until

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
USER = "User:ANONYMOUS"
EVERYWHERE = "*"
EVERY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def allow(
    kind: ResourceType, operation: Operation, name: str = "*", *, prefixed: bool = False, host: str = EVERYWHERE
) -> Acl:
    """An ACL that allows the clients an operation; on each resource of the type where no name is given."""
    if kind is CLUSTER.type:
        name = CLUSTER.name
    pattern = ResourcePattern(kind, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)
    return Acl(pattern, AclEntry(USER, host, operation, Permission.ALLOW))


def deny(kind: ResourceType, operation: Operation, name: str = "*") -> Acl:
    """An ACL that denies it."""
    pattern, entry = allow(kind, operation, name)
    return Acl(pattern, entry._replace(permission=Permission.DENY))


@dataclass
class Authorized:
    """One broker, with the port of its clients and the link of its administrator."""

    port: int
    admin: RawKafka
    links: ExitStack

    def client(self) -> RawKafka:
        """Returns a new connection of a client."""
        return self.links.enter_context(RawKafka(self.port, client_id="user"))

    def acls(self) -> set[Acl]:
        """Returns the ACLs by which the broker decides."""
        answer = self.admin.ask(ApiKey.DESCRIBE_ACLS, 3, **EVERY_ACL)
        assert answer.error_code == 0, answer
        return {
            Acl(
                ResourcePattern(ResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type)),
                AclEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type)),
            )
            for row in answer.resources
            for acl in row.acls
        }

    def give(self, *wanted: Acl) -> None:
        """Makes these the only ACLs; returns when the broker decides by them."""
        present = self.acls()
        self._remove(present.difference(wanted))
        self._create(set(wanted) - present)
        until(lambda: self.acls() == set(wanted), "the broker has the ACLs")

    def settled(self, count: int) -> None:
        """Waits until the broker decides by so many ACLs."""
        until(lambda: len(self.acls()) == count, f"{count} ACLs")

    def _create(self, acls: Iterable[Acl]) -> None:
        answer = self.admin.ask(ApiKey.CREATE_ACLS, 3, creations=map(creation_of, acls))
        assert all(row.error_code == 0 for row in answer.results), answer

    def _remove(self, acls: Iterable[Acl]) -> None:
        answer = self.admin.ask(ApiKey.DELETE_ACLS, 3, filters=map(filter_of, acls))
        assert all(row.error_code == 0 for row in answer.filter_results), answer


@contextmanager
def our_broker(**settings: object) -> Generator[Authorized]:
    """Yields a broker of ours with an authorizer and without ACLs."""
    with Cluster(brokers=1, config={"authorizer.class.name": AUTHORIZER, **settings}) as cluster, ExitStack() as links:
        yield administered(cluster, links)


def administered(cluster: Cluster, links: ExitStack) -> Authorized:
    """The first broker of a cluster of ours, which has an authorizer."""
    port = cluster.brokers[1].listeners["BROKERS"].bind.port
    admin = links.enter_context(RawKafka(port, client_id="broker-1"))
    return Authorized(cluster.brokers[1].port, admin, links)


@contextmanager
def apache_broker(folder: Path, **settings: object) -> Generator[Authorized]:
    """Yields a node of Apache Kafka with its StandardAuthorizer and without ACLs."""
    port = first_free(range(33_090, 35_700, 20), (1, 2, 1 - 10_000))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    jaas = f'{login} username="admin" password="secret" user_admin="secret";'
    lines = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port + 1},ADMIN://127.0.0.1:{port + 2},"
        f"CONTROLLER://127.0.0.1:{port + 1 - 10_000}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port + 1},ADMIN://127.0.0.1:{port + 2}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "ADMIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.admin.plain.sasl.jaas.config": jaas,
        "listener.name.controller.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **settings,
    }
    environment = {**os.environ, "KAFKA_PORT": str(port), "KAFKA_HEAP": "256m"}
    environment["KAFKA_SET"] = "\n".join(f"{name}={value}" for name, value in lines.items())
    up = subprocess.run([TOOL, "up", str(folder), "1"], env=environment, capture_output=True, text=True, check=False)
    try:
        with ExitStack() as links:
            # on a busy machine the start takes longer than the tool waits
            admin = until(lambda: RawKafka(port + 2, client_id="admin"), up.stdout + up.stderr, amid=(OSError,))
            links.enter_context(admin)
            _authenticate(admin)
            yield Authorized(port + 1, admin, links)
    finally:
        subprocess.run([TOOL, "down", str(folder)], check=False, capture_output=True)


def _authenticate(link: RawKafka) -> None:
    s = messages.schema(SASL_HANDSHAKE, 1, "request")
    answer = link.ask(SASL_HANDSHAKE, 1, s.root(mechanism="PLAIN"))
    assert answer.error_code == 0, answer
    s = messages.schema(SASL_AUTHENTICATE, 2, "request")
    answer = link.ask(SASL_AUTHENTICATE, 2, s.root(auth_bytes=b"\0admin\0secret"))
    assert answer.error_code == 0, answer
