"""KIP-841: a leader adds a follower to the ISR that is fenced.

What was wrong (Kafka before 3.3): a leader looked only at how far a follower had fetched, and the controller wrote what
the leader asked for. A follower that is fenced, or that is shutting down, may still fetch: it entered the ISR again
after it had been removed, held back every acks=all until it lagged, and could be elected. Since KIP-841 (with
ZooKeeper: KAFKA-14140) a leader adds only followers that its metadata lists as live, and other members are refused when
the ISR is written. Here KIP-903's check of registrations does that, which Kafka did not have then either.

Needs: a follower that lags, so that the leader removes it from the ISR and its session ends without a new leader epoch;
and that then fetches before it has registered again.
Seen as: `fenced-in-isr`.
Replaces: `Partition.is_isr_eligible`, `RegistryIsrStore.checks`.
Source: KIP-841, KAFKA-13916, KAFKA-14140; Kafka's `Partition.isReplicaIsrEligible`.
"""

from __future__ import annotations

from collections.abc import Mapping

from harrow.cluster.controller.isr_store import RegistryIsrStore
from harrow.cluster.ids import BrokerEpoch, NodeId
from harrow.cluster.planting import Planter
from harrow.cluster.registry import Check
from harrow.cluster.replication.partition import Partition

TITLE = "KIP-841: a follower joins the ISR whether or not it is registered"


def plant(planter: Planter) -> None:
    """Propose every follower that has caught up, and write the ISR under the condition of its version alone."""
    planter.replace_method(Partition, "is_isr_eligible", _every_follower)
    planter.replace_method(RegistryIsrStore, "checks", _none)


def _every_follower(self: Partition, node: NodeId) -> bool:
    del self, node
    return True


def _none(self: RegistryIsrStore, registrations: Mapping[NodeId, BrokerEpoch]) -> list[Check]:
    del self, registrations
    return []
