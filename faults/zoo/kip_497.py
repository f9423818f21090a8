"""KIP-497: the high watermark moves by the ISR that is only proposed.

What was wrong: when the ISR is changed by an asynchronous write (Kafka 2.7), the leader does not know for a while which
ISR the controller has. A leader that already counts only the proposed ISR raises its high watermark, and acknowledges,
without a member that the controller still has. When the write does not arrive, that member may be elected, and it lacks
the records. The rule: the high watermark waits for the *maximal* ISR, the union of the committed and the proposed one.

Replaces: `IsrState.maximal_isr`.
Source: KIP-497; Kafka's `PendingShrinkIsr`, `Partition.maximalIsr`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from harrow.cluster.ids import NodeId
from harrow.cluster.planting import Planter
from harrow.cluster.replication.isr_state import IsrState

from .. import isolate, leader, new_leader
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, step_after, timed_step
from .bug import NO_FATAL_ERROR, Bug, InOrder
from .shared import LAG_BELOW_SESSION, QUICK, SESSION_MS, first_ms

TITLE = "KIP-497: the high watermark moves by an ISR that is only proposed"
OPTIONS = SimulationOptions(brokers=3, partitions=1, seconds=4.0, batches=60, config=QUICK)


def plant(planter: Planter) -> None:
    """Count the proposed ISR alone where there is one."""
    planter.replace_method(IsrState, "maximal_isr", _proposed_isr)


def _proposed_isr(committed: Sequence[NodeId], proposed: Sequence[NodeId]) -> frozenset[NodeId]:
    return frozenset(proposed or committed)


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The leader reaches neither followers nor registry, only clients, until another broker is elected."""
    at_ms = rng.uniform(0.1, 0.3) * OPTIONS.seconds * 1_000
    return (timed_step(1, at_ms, isolate(leader(TOPIC)), rng.uniform(1.1, 1.5) * SESSION_MS),)


def steps_by_event(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The same until another broker leads."""
    cut = isolate(leader(TOPIC), heals_by="reset")
    return (step_after(1, cut, wait_ms=first_ms(rng), until=(new_leader(TOPIC, 0, "1"),)),)


BUG = Bug(
    number=7,
    module=__name__,
    title=TITLE,
    versions="2.7 (in its design)",
    needs=(
        "a leader that is cut off from the registry and its followers, but not from clients, for longer than the lag "
        "time"
    ),
    seen_as=frozenset({"lost-write"}),
    options=OPTIONS,
    steps=steps_by_time,
    in_order=InOrder(
        options=LAG_BELOW_SESSION,
        steps=steps_by_event,
        # a leader moves its high watermark when it appends, so the producer must still be sending then
        on_processes={**NO_FATAL_ERROR, "in_flight": 1_000},
    ),
)
