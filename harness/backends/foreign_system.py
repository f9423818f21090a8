"""What the backends `apache`, `docker` and `external` have in common: brokers that are not Harrow's, behind the proxy.

`ForeignBroker` has links and requests at the proxy, and refuses what needs the broker's own host. `ForeignSystem` has
the cluster behind the proxy, and no registry. A fault that needs what is refused here is skipped before, because its
capability is not declared; CapabilityError is for callers of the `System` itself.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from harrow.faults.errors import CapabilityError
from harrow.faults.system import TRANSACTIONAL_IDS, HasTraffic, ProcessControl

from ..histories.live_taps import TransactionalIds
from ..requests.final_groups import list_groups
from ..requests.operator import OperatorRequests
from .fault_clients import BesideBrokers
from .knobs import HostKnobs, HostRule
from .local_traffic import AcknowledgedTraffic

if TYPE_CHECKING:
    from pathlib import Path

    from harrow.cluster.config import BrokerConfig
    from harrow.cluster.view import ClusterView

ASK_GROUPS_S = 1.0
"""How long one list of the groups counts, and how long a broker may take to respond."""


class ForeignBroker(HostKnobs):
    """What the proxy does before one broker."""

    def lose_power(self, *, seed: str, kept_fraction: float | None = None) -> None:
        """What the broker has not fsynced is not recorded."""
        raise CapabilityError(f"no power loss ({seed}, {kept_fraction}): the disk is not Harrow's")

    def power_lost(self) -> Mapping[str, int] | None:
        """No power was lost."""
        return None

    def wipe(self) -> None:
        """The data folders are not Harrow's."""
        raise CapabilityError("no wipe: the data folders are not Harrow's")

    def wiped(self) -> int | None:
        """Nothing was wiped."""
        return None

    def damage_disk(self, *, damages: Sequence[str], partitions: Sequence[str], seed: str, clean: bool) -> None:
        """The files are not Harrow's."""
        raise CapabilityError(f"no {damages} in the files of {partitions} ({seed}, {clean})")

    def disk_damaged(self) -> Mapping[str, Any] | None:
        """Nothing was damaged."""
        return None

    def start_armed(self, *, name: str, action: str, nth: int, delay_ms: int) -> HostRule:
        """The broker has no failpoints."""
        raise CapabilityError(f"no failpoint {name} ({action}, {nth}, {delay_ms}): no Harrow broker")

    def limit_descriptors(self) -> HostRule:
        """The process is not Harrow's."""
        raise CapabilityError("the limit of open files of this broker's process is not Harrow's")

    def limit_memory(self, spare_bytes: int) -> HostRule:
        """The process is not Harrow's."""
        raise CapabilityError(f"no limit of {spare_bytes} bytes: the process is not Harrow's")

    def slow_disk(self, delay_ms: int) -> HostRule:
        """The disk is not Harrow's."""
        raise CapabilityError(f"the disk cannot be slowed down by {delay_ms} ms: it is not Harrow's")


class ForeignCluster(Protocol):
    """A cluster behind the proxy."""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the proxy."""
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


class ForeignSystem(OperatorRequests, BesideBrokers):
    """A cluster behind the proxy as a part of the fault layer's `System`; `no_registry` says why there is none."""

    def __init__(self, cluster: ForeignCluster, no_registry: str) -> None:
        OperatorRequests.__init__(self, lambda: cluster.bootstrap_servers)
        BesideBrokers.__init__(self, lambda: cluster.bootstrap_servers)
        self._foreign = cluster
        self._no_registry = no_registry
        self._transactional_ids = TransactionalIds(cluster.folder)
        self._groups: Collection[str] = ()
        self._ask_groups_at = 0.0

    @property
    def session_timeout_ms(self) -> int:
        """`broker.session.timeout.ms`, as far as it is known."""
        return self._foreign.session_timeout_ms

    @property
    def offsets_partitions(self) -> int:
        """`offsets.topic.num.partitions`."""
        return self._foreign.config.number("offsets.topic.num.partitions")

    @property
    def registry(self) -> ProcessControl:
        """There is none."""
        raise CapabilityError(self._no_registry)

    def add_broker(self) -> int:
        """The brokers are not Harrow's."""
        raise CapabilityError("no more brokers: use the local backend")

    def remove_added_broker(self, node: int) -> None:
        """Nothing was added."""
        raise CapabilityError(f"broker {node} was not added")

    def expire_session(self, node: int) -> int:
        """There is no registry."""
        raise CapabilityError(f"no session of broker {node} to end: {self._no_registry}")

    def depose_controller(self) -> None:
        """There is no registry."""
        raise CapabilityError(self._no_registry)

    def describe(self) -> ClusterView:
        """Ask a running broker."""
        return self._foreign.describe()

    def created(self, kind: str) -> Collection[str]:
        """Transactional ids by the taps of the proxy; groups by ListGroups, which is asked once a second."""
        if kind == TRANSACTIONAL_IDS:
            return self._transactional_ids.names()
        now = time.monotonic()
        if now >= self._ask_groups_at:
            servers = self._foreign.bootstrap_servers.split(",")
            self._groups = list_groups(servers, timeout_s=ASK_GROUPS_S).states
            self._ask_groups_at = time.monotonic() + ASK_GROUPS_S
        return self._groups

    def watch_traffic(self) -> HasTraffic:
        """Return a traffic detector over the proxy's taps."""
        return AcknowledgedTraffic(self._foreign.folder)
