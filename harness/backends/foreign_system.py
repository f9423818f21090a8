"""What the backends `apache`, `docker` and `external` have in common: brokers that are not Harrow's, behind the proxy.

A `ForeignBroker` has the links and the requests that pass the proxy, and a `ForeignSystem` has no registry.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from harrow.faults.rule_kinds import ConnectionRule, Rule
from harrow.faults.system import TRANSACTIONAL_IDS, Broker, HasTraffic, System

from ..histories.live_taps import TransactionalIds
from ..requests.final_groups import list_groups
from .counted_frames import CountedFrames
from .fault_clients import fault_clients
from .knobs import Arm, Call, HostLinks, RuleTable, request_arms
from .local_traffic import AcknowledgedTraffic
from .strangers import StrangerConnections

if TYPE_CHECKING:
    from pathlib import Path

    from harrow.cluster.config import BrokerConfig
    from harrow.cluster.listeners import Address
    from harrow.cluster.view import ClusterView
    from harrow.faults.controls import PeerKind

PASSING = frozenset({"client-links", "client-requests", "connections", "dependencies", "programs", "responses"})
"""The capabilities of all these backends."""
ASK_GROUPS_S = 1.0
"""How long one list of the groups counts, and how long a broker may take to respond."""


class ForeignBroker(Broker):
    """One broker behind the proxy.

    `address`: at the proxy; `peers`: the kinds of peers whose links pass the proxy; `arms`: more rules of the proxy.
    """

    def __init__(
        self,
        node: int,
        call: Call,
        address: Address,
        peers: frozenset[PeerKind],
        arms: Mapping[type[Rule], Arm] | None = None,
    ) -> None:
        super().__init__(node)
        self.links = HostLinks(call, peers)
        self.rules = RuleTable(
            {
                **request_arms(call),
                **(arms or {}),
                ConnectionRule: lambda rule: StrangerConnections(address, rule.most),
            }
        )


class ForeignCluster(Protocol):
    """A cluster behind the proxy."""

    @property
    def own_servers(self) -> str:
        """Addresses of the proxy, for clients of Harrow's own."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """How long a broker may be silent."""
        ...

    @property
    def config(self) -> BrokerConfig:
        """Settings of the brokers."""
        ...

    @property
    def folder(self) -> Path:
        """Where the proxy writes its taps."""
        ...

    def describe(self) -> ClusterView:
        """Ask a running broker."""
        ...


class ForeignSystem(System):
    """A cluster behind the proxy as a part of the fault layer's `System`."""

    def __init__(self, cluster: ForeignCluster) -> None:
        self.session_timeout_ms = cluster.session_timeout_ms
        self.offsets_partitions = cluster.config.number("offsets.topic.num.partitions")
        self.clients = fault_clients(lambda: cluster.own_servers)
        self.client_frames = CountedFrames(cluster.folder)
        self.programs = {}
        self.dependencies = {}
        self._foreign = cluster
        self._transactional_ids = TransactionalIds(cluster.folder)
        self._groups: Collection[str] = ()
        self._ask_groups_at = 0.0

    def describe(self) -> ClusterView:
        """Ask a running broker."""
        return self._foreign.describe()

    def created(self, kind: str) -> Collection[str]:
        """Transactional ids by the taps of the proxy; groups by ListGroups, which is asked once a second."""
        if kind == TRANSACTIONAL_IDS:
            return self._transactional_ids.names()
        now = time.monotonic()
        if now >= self._ask_groups_at:
            self._groups = list_groups(self._foreign.own_servers, timeout_s=ASK_GROUPS_S).states
            self._ask_groups_at = time.monotonic() + ASK_GROUPS_S
        return self._groups

    def watch_traffic(self) -> HasTraffic:
        """Return a traffic detector over the proxy's taps."""
        return AcknowledgedTraffic(self._foreign.folder)
