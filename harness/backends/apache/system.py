"""The backend `apache` as faults see it: processes by signals, links and requests at the proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harrow.faults.controls import DEAD, PeerKind
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
RULES_OF_THE_PROXY = ("request", "response", "access")
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

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id."""
        return tuple(sorted(self._brokers))

    def broker(self, node: int) -> ForeignBroker:
        """Return one broker."""
        return self._brokers[node]

    def owned_by(self, owner: SecurityOwner) -> None:
        """Let faults change what `owner` made, and count who gets in."""
        from ..credentials import access_arms
        from .kafka_credentials import KafkaCredentials

        cluster = self._cluster
        self.credentials = KafkaCredentials(cluster, owner)
        for node in self._brokers:
            self._brokers[node] = _broker(cluster, node, access_arms(_call(cluster, node), cluster.config))


def _call(cluster: KafkaCluster, node: int) -> Call:
    """The control operations of the proxy before a node."""

    def call(op: str, **fields: object) -> dict[str, Any]:
        return cluster.control(node, op, **fields)

    return call


def _broker(cluster: KafkaCluster, node: int, arms: Mapping[type[Rule], Arm] | None = None) -> ForeignBroker:
    """One node; `arms`: more rules of the proxy."""
    peers = frozenset({PeerKind.BROKER, PeerKind.CLIENT} if cluster.relayed else {PeerKind.CLIENT})
    managed = cluster.brokers[node]
    call = _call(cluster, node)
    broker = ForeignBroker(node, call, managed.address, peers, arms)
    broker.process = process = LocalProcess(managed)

    def forget_rules() -> None:
        """A rule belongs to the incarnation in which it was armed, and the proxy outlives it."""
        if managed.state == DEAD:
            for kind in RULES_OF_THE_PROXY:
                call("rules.remove", kind=kind)

    process.before_start = forget_rules
    return broker
