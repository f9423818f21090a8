"""KIP-966: the last member of an ISR loses its unsynced tail with the power, and is elected.

What was wrong: brokers acknowledge records before an fsync. They rely on the other replicas instead. When the ISR
shrinks to one broker and this broker loses its power, it comes back without the end of its log, and it is the only
broker that may be elected. The followers, which have the acknowledged records, truncate their logs to its log.

Harrow's brokers have no eligible leader replicas (ELR). They are safe from power losses with `flush.messages=1`: a
replica neither acknowledges nor counts as replicated what it has not fsynced. The plant ignores that setting, so that
a replica promises what it may lose, as in Kafka.

Seen as: `lost-write`; `inconsistent-offsets` where other records take the offsets.
Replaces: `Log.messages_before_fsync`.
Source: KIP-966 ("last replica standing"); Kafka's `UnifiedLog.append`, `log.flush.interval.messages`.
"""

from __future__ import annotations

import random

from harrow.cluster.planting import Planter
from harrow.cluster.storage.log import Log

from .. import follower, healed, isr_count, kill, leader, power_loss, took_effect
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, step_after, timed_step
from .bug import Bug, InOrder
from .shared import POWER_LOSSES, SHORT, SHORT_SESSION_MS, first_ms

TITLE = "KIP-966: the last member of an ISR acknowledges without an fsync, and is elected without its tail"
NEVER = 2**63 - 1
"""Kafka's default of `log.flush.interval.messages`."""
OPTIONS = SimulationOptions(brokers=3, seconds=4.0, power_loss=True, config=SHORT)


def plant(planter: Planter) -> None:
    """Leave every fsync of appended records to rolls, closes and the operating system."""
    planter.replace_method(Log, "messages_before_fsync", _never)


def _never(self: Log) -> int:
    del self
    return NEVER


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The followers leave the ISR, the leader loses its power and is back before they are."""
    partition = rng.randrange(OPTIONS.partitions)
    begin_ms = rng.uniform(300, 900)
    cut_ms = begin_ms + rng.uniform(1.5, 2.2) * SHORT_SESSION_MS
    back_ms = cut_ms - begin_ms + 4 * SHORT_SESSION_MS
    return (
        timed_step(1, begin_ms, kill(follower(TOPIC, partition)), back_ms),
        timed_step(2, begin_ms + 1, kill(follower(TOPIC, partition)), back_ms),
        timed_step(3, cut_ms, power_loss(leader(TOPIC, partition)), rng.uniform(0.2, 1.2) * SHORT_SESSION_MS),
    )


def steps_by_event(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The followers are away and outside of the ISR, the leader loses its power and is back before they are."""
    alone = (took_effect("2"), isr_count(TOPIC, 0, 1))
    return (
        step_after(1, kill(follower(TOPIC)), wait_ms=first_ms(rng), until=(healed("3"),)),
        step_after(2, kill(follower(TOPIC)), took_effect("1"), until=(healed("3"),)),
        step_after(3, power_loss(leader(TOPIC)), *alone, wait_ms=first_ms(rng), duration_ms=0),
    )


BUG = Bug(
    number=8,
    module=__name__,
    title=TITLE,
    versions="up to 3.9 (4.0 has ELR)",
    needs="both followers leave the ISR, the leader loses its power, and is back before they are",
    seen_as=frozenset({"inconsistent-offsets", "lost-write"}),
    options=OPTIONS,
    steps=steps_by_time,
    in_order=InOrder(options=POWER_LOSSES, steps=steps_by_event),
)
