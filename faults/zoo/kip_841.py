"""KIP-841: a leader adds a follower to the ISR that is fenced.

What was wrong: a leader looked only at how far a follower had fetched, and the controller wrote what the leader asked
for. A follower that is fenced, or that is shutting down, may still fetch: it entered the ISR again after it had been
removed, held back every acks=all until it lagged, and could be elected. Since KIP-841 (with ZooKeeper: KAFKA-14140) a
leader adds only followers that its metadata lists as live, and other members are refused when the ISR is written. Here
KIP-903's check of registrations does that, which Kafka did not have then either.

Replaces: `Partition.is_isr_eligible`, `RegistryIsrStore.checks`.
Source: KIP-841, KAFKA-13916, KAFKA-14140; Kafka's `Partition.isReplicaIsrEligible`.
"""

from __future__ import annotations

import random

from harrow.cluster.controller.registry_isr_store import RegistryIsrStore
from harrow.cluster.ids import NodeId
from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition

from .. import follower, pause
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .kip_903 import no_checks
from .shared import QUICK, SESSION_MS

TITLE = "KIP-841: a follower joins the ISR whether or not it is registered"
OPTIONS = SimulationOptions(brokers=3, partitions=1, seconds=5.0, batches=60, config=QUICK)


def plant(planter: Planter) -> None:
    """Propose every follower that has caught up, and write the ISR under the condition of its version alone."""
    planter.replace_method(Partition, "is_isr_eligible", _every_follower)
    planter.replace_method(RegistryIsrStore, "checks", no_checks)


def _every_follower(self: Partition, node: NodeId) -> bool:
    del self, node
    return True


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """A follower is removed from the ISR for its lag, loses its session, and fetches before it registers again."""
    at_ms = rng.uniform(0.05, 0.3) * OPTIONS.seconds * 1_000
    return (timed_step(1, at_ms, pause(follower(TOPIC)), rng.uniform(1.2, 1.6) * SESSION_MS),)


BUG = Bug(
    number=10,
    module=__name__,
    title=TITLE,
    versions="before 3.3",
    needs=(
        "a follower that lags, so that the leader removes it from the ISR and its session ends without a new leader "
        "epoch; and that then fetches before it has registered again"
    ),
    seen_as=frozenset({"fenced-in-isr"}),
    options=OPTIONS,
    steps=steps_by_time,
)
