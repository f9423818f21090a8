"""KAFKA-13091: the high watermark stays where it is when a follower has left the ISR.

What was wrong: since ISRs are changed by AlterIsr, the leader learns the result later. It moved the high watermark when
it sent the request, when the follower that leaves still counts, and not when the controller had accepted the smaller
ISR. The records that only this follower lacked were committed by then, but their producers waited for the next event on
the partition, up to the timeout of their request: the other followers had fetched everything, and so did not move the
high watermark either.

Seen as: `missed-wake-up`; a producer sees a request that times out, and sends again.
Replaces: `Partition.advance_after_isr`.
Source: KAFKA-13091; Kafka's `Partition.handleAlterIsrResponse`.
"""

from __future__ import annotations

import random
from dataclasses import replace

from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition

from .. import follower, pause
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, step_after, timed_step
from .bug import Bug, InOrder
from .shared import LAG, LAG_MS, ONE_PARTITION, QUICK, RUN, SESSION, SESSION_MS, first_ms

TITLE = "KAFKA-13091: the high watermark does not move when a follower has left the ISR"
REQUEST_MS = 1_500
"""`request.timeout.ms` of a producer that a broker must answer although nothing else happens."""
OPTIONS = SimulationOptions(brokers=3, partitions=1, seconds=4.0, batches=100, config=QUICK)


def plant(planter: Planter) -> None:
    """Leave the high watermark to the next append or fetch."""
    planter.replace_method(Partition, "advance_after_isr", _not_now)


def _not_now(self: Partition, now_ms: int) -> bool:
    del self, now_ms
    return False


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """A follower is paused for so long that its leader removes it from the ISR, and not past its session."""
    at_ms = rng.uniform(200, 1_000)
    return (timed_step(1, at_ms, pause(follower(TOPIC)), rng.uniform(0.6, 0.8) * SESSION_MS),)


def steps_by_event(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """A follower is paused until it has left the ISR and a request that waited for it has timed out."""
    return (step_after(1, pause(follower(TOPIC)), wait_ms=first_ms(rng), duration_ms=LAG_MS + 2 * REQUEST_MS),)


BUG = Bug(
    number=28,
    module=__name__,
    title=TITLE,
    versions="2.7 to 3.0",
    needs="a follower that stops for longer than `replica.lag.time.max.ms`, and no other traffic on the partition",
    seen_as=frozenset({"missed-wake-up"}),
    options=OPTIONS,
    steps=steps_by_time,
    in_order=InOrder(
        # a leader with one batch at a time, whose followers' fetches wait longer than the producer does
        options=replace(RUN, in_flight=1, config={**ONE_PARTITION, SESSION: 6_000, LAG: LAG_MS}),
        steps=steps_by_event,
        on_processes={"request_timeout_ms": REQUEST_MS},
    ),
)
