"""The credentials of Apache Kafka behind the proxy: `CredentialControl` by Kafka's own requests, and by the proxy (A5).

    change              made by                                                 seen by
    ------------------  ------------------------------------------------------  ---------------------------------------
    `PasswordChange`    AlterUserScramCredentials, for SCRAM alone              a login at each node, past the proxy
    `AclRevocation`     CreateAcls, DeleteAcls                                  DescribeAcls of each node
    `CertificateChange` the proxy, where the TLS of clients ends                the fingerprint of what the proxy shows

Requests go to the listener HARROW of the nodes. Kafka reads the users of PLAIN when a listener starts, so their
passwords cannot change. The logins that look for a password go to the node itself: no rule at the proxy counts them.

What may fail: ConfigError for a change that cannot have an effect, ClusterError while a node does not respond.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import Address
from harrow.cluster.security.sasl.scram import ITERATIONS_LEAST, MECHANISMS
from harrow.faults.controls import (
    RUNNING,
    BegunChange,
    CertificateChange,
    CredentialChange,
    PasswordChange,
)

from ...requests.credentials import login_of, refusal
from ...requests.security_requests import alter_scram
from ..credential_changes import CertificateChanged, RequestedChange, Site
from ..credentials import SALT_BYTES, Credentials, listeners_with

if TYPE_CHECKING:
    from ...security.owner import SecurityOwner
    from .kafka_cluster import KafkaCluster


class KafkaCredentials(Credentials):
    """Users, ACLs and certificates of one Kafka cluster."""

    def __init__(self, cluster: KafkaCluster, owner: SecurityOwner) -> None:
        super().__init__(cluster, owner)
        self._kafka = cluster
        self._mechanisms = tuple(name for name in MECHANISMS if listeners_with(self.config, self.listeners, name))
        if not self._mechanisms:
            self.kinds -= {PasswordChange}

    def begin(self, change: CredentialChange) -> BegunChange:
        """Begin a change of one of `kinds`."""
        begun: RequestedChange
        match change:
            case PasswordChange():
                begun = ScramPasswordChanged(self.site(), change, self._mechanisms, self._kafka.proxy.upstreams)
            case CertificateChange():
                begun = ShownCertificateChanged(self.site(), change, self._kafka)
            case _:
                return super().begin(change)
        begun.begin()
        return begun

    def addresses(self) -> Mapping[int, Address]:
        """By node id: where Harrow's own clients reach each node that runs."""
        own = self._kafka.proxy.own_addresses
        assert own.keys() == self._kafka.brokers.keys(), f"Harrow's own clients reach {sorted(own)} alone"
        return {node: own[node] for node, broker in self._kafka.brokers.items() if broker.state == RUNNING}


class ScramPasswordChanged(RequestedChange):
    """Another password of a user of SCRAM. `nodes`: where each node itself lets clients log in, without TLS."""

    def __init__(
        self, site: Site, change: PasswordChange, mechanisms: tuple[str, ...], nodes: Mapping[int, Address]
    ) -> None:
        super().__init__(site)
        assert mechanisms, "a cluster without SCRAM has no such change"
        self._user = change.user
        self._former, self._password = site.owner.passwords()[change.user], change.password
        self._mechanisms, self._nodes = mechanisms, nodes
        self._salt = secrets.token_bytes(SALT_BYTES)
        self._seen: set[tuple[int, str]] = set()
        """At which nodes a login with which password has succeeded since it was sent."""

    def send(self, node: int, address: Address, *, undo: bool) -> None:
        """Change the password."""
        del node
        password = self._former if undo else self._password
        salted = {
            mechanism: mechanism.salted_password(password, self._salt, ITERATIONS_LEAST)
            for mechanism in (MECHANISMS[name] for name in self._mechanisms)
        }
        alter_scram(address, self._user, salted, self._salt, ITERATIONS_LEAST)

    def is_made(self, node: int) -> bool:
        """Whether a node has the new password."""
        return self._accepts(node, self._password)

    def is_as_before(self, node: int) -> bool:
        """Whether a node has the former password."""
        return self._accepts(node, self._former)

    def _accepts(self, node: int, password: str) -> bool:
        if (node, password) in self._seen:
            return True
        try:
            refused = [
                mechanism
                for mechanism in self._mechanisms
                if refusal(self._nodes[node], login_of(mechanism, self._user, password), None)
            ]
        except OSError as error:
            raise ClusterError(f"node {node} takes no login of {self._user}: {error}") from error
        if not refused:
            self._seen.add((node, password))
        return not refused


class ShownCertificateChanged(CertificateChanged):
    """Another certificate that the proxy shows in the place of one node."""

    def __init__(self, site: Site, change: CertificateChange, cluster: KafkaCluster) -> None:
        super().__init__(site, change)
        self._cluster = cluster

    def send_on(self, node: int, address: Address, *, undo: bool) -> None:
        """Let the proxy show it, or the one of the start."""
        del address
        if node == self.node:
            assert len(self.identities) == 1, f"the proxy has one port for clients: {sorted(self.identities)}"
            [identity] = self.identities.values()
            shown = {} if undo else {"key": identity.key, "chain": identity.chain}
            self._cluster.control(node, "certificate", **shown)
