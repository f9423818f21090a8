"""The backend `apache` as faults see it: processes by signals, links and requests at the proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harrow.faults.controls import PeerKind
from harrow.faults.rule_kinds import Rule

from ...requests.operator import Operator
from ..choice import APACHE
from ..foreign_system import PASSING, ForeignBroker, ForeignSystem
from ..knobs import Arm, Call
from ..local import LocalProcess
from .kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from ...security.owner import SecurityOwner

CAPABILITIES = PASSING | {"process", "reassignments"}
"""What `harrow backends` says without a cluster."""
SECURED = frozenset({"acls", "certificates", "logins", "passwords"})
"""The same, where the test has `security=`: logins with SASL, passwords of SCRAM, ACLs and certificates that Harrow
made."""
RELAYED = frozenset({"links"})
"""The same, where the links between the nodes pass the proxy."""


class KafkaSystem(ForeignSystem):
    """A `KafkaCluster` as the fault layer's `System`."""

    def __init__(self, cluster: KafkaCluster, backend: str = APACHE) -> None:
        ForeignSystem.__init__(self, cluster)
        self.backend = backend
        self.operator = Operator(lambda: cluster.own_servers)
        self._brokers = {node: _broker(cluster, node) for node in cluster.brokers}
        self._cluster = cluster
        self.owned_by(None)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id."""
        return tuple(sorted(self._brokers))

    def broker(self, node: int) -> ForeignBroker:
        """Return one broker."""
        return self._brokers[node]

    def owned_by(self, owner: SecurityOwner | None) -> None:
        """Let faults change what `owner` made; None: the users in the settings of the cluster."""
        if self._cluster.has_security:
            from ...security.owner import ConfiguredOwner
            from .kafka_credentials import KafkaCredentials

            found = ConfiguredOwner(self._cluster.config) if owner is None else owner
            self.credentials = KafkaCredentials(self._cluster, found)


def _access_arms(cluster: KafkaCluster, call: Call) -> Mapping[type[Rule], Arm]:
    if not cluster.has_security:
        return {}
    from .kafka_credentials import kafka_access_arms

    return kafka_access_arms(call, cluster.config)


def _broker(cluster: KafkaCluster, node: int) -> ForeignBroker:
    peers = frozenset({PeerKind.BROKER, PeerKind.CLIENT} if cluster.relayed else {PeerKind.CLIENT})
    managed = cluster.brokers[node]

    def call(op: str, **fields: object) -> dict[str, Any]:
        return cluster.control(node, op, **fields)

    broker = ForeignBroker(node, call, managed.address, peers, _access_arms(cluster, call))
    broker.process = LocalProcess(managed)
    return broker
