"""KIP-903: a replica that came back empty is taken into the ISR by what it had fetched before.

What was wrong (Kafka before 3.5, and all versions with ZooKeeper): a follower reaches the leader's log end, and the
leader asks for an ISR with it. Before that request arrives, the follower dies, loses its disk and registers again. The
request said nothing about registrations, so the empty replica became a member of the ISR. When the leader dies, it may
be elected. Since KIP-903 the request states under which broker epochs the members fetched, and is refused when one of
them has another.

Needs: a follower that returns to the ISR and loses its disk meanwhile; a leader whose writes arrive late, and that
then dies.
Seen as: `lost-write`; `inconsistent-offsets` where other records take the offsets.
Replaces: `RegistryIsrStore.checks`.
Source: KIP-903; Kafka's `ReplicationControlManager.validateAlterPartitionData`.
"""

from __future__ import annotations

from collections.abc import Mapping

from harrow.cluster.controller.isr_store import RegistryIsrStore
from harrow.cluster.ids import BrokerEpoch, NodeId
from harrow.cluster.planting import Planter
from harrow.cluster.registry import Check

TITLE = "KIP-903: an ISR is written whichever registration its members fetched under"


def plant(planter: Planter) -> None:
    """Write an ISR under the condition of its version alone."""
    planter.replace_method(RegistryIsrStore, "checks", _none)


def _none(self: RegistryIsrStore, registrations: Mapping[NodeId, BrokerEpoch]) -> list[Check]:
    del self, registrations
    return []
