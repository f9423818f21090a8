"""KIP-279: a follower takes the end offset of an epoch that it does not know.

What was wrong: a new follower asked the leader where the follower's last epoch ends, and truncated to the offset of the
answer. After two fast elections the leader may not know that epoch. Then the offset is the end of an earlier epoch in
the leader's log, and this epoch may end earlier in the follower's log. What lies between the two ends stays: leader and
follower have different records at the same offsets.

Replaces: the truncation strategy `kip-320` by `kip-101`.
Source: KIP-279, KAFKA-6361; Kafka's `ReplicaFetcherThread` before 2.0.
"""

from __future__ import annotations

import random

from harrow.cluster.host.seam.failpoints import AFTER_APPEND
from harrow.cluster.planting import Planter
from harrow.cluster.replication.truncation_strategies import STRATEGIES

from .. import all_brokers, failpoint, follower, healed, isolate, kill, leader, new_leader, next_leader, took_effect
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, step_after, timed_step
from .bug import SAME_BATCHES, Bug, InOrder
from .shared import LAG_MS, QUICK, RUN, SESSION_MS, SETTLED_MS, first_ms, late_request

TITLE = "KIP-279: a follower truncates to the end offset of an epoch that it does not know"
OPTIONS = SimulationOptions(brokers=3, partitions=1, seconds=5.0, batches=100, config=QUICK)


def plant(planter: Planter) -> None:
    """Let the default strategy be that of Kafka 0.11."""
    planter.replace_entry(STRATEGIES, "kip-320", STRATEGIES["kip-101"])


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """Two elections between which the second heir truncates nothing.

    One follower does not get the leader's last batches. The leader dies; its heir appends, and dies before another
    follower knows where to truncate. That one leads, and the heir comes back.
    """
    end_ms = OPTIONS.seconds * 1_000
    at_ms = rng.uniform(200, 800)
    behind = isolate(follower(TOPIC), heals_by="reset")
    dies_ms = at_ms + rng.uniform(0.2, 0.5) * LAG_MS
    late_query = late_request("OffsetForLeaderEpoch", all_brokers, rng.uniform(1, 2) * LAG_MS)
    heir_dies = failpoint(AFTER_APPEND, all_brokers, "crash")
    return (
        timed_step(1, at_ms, behind, rng.uniform(0.7, 0.9) * LAG_MS),
        timed_step(2, dies_ms, kill(leader(TOPIC)), end_ms),
        timed_step(3, at_ms + LAG_MS, late_query, end_ms),
        timed_step(4, at_ms + LAG_MS, heir_dies, rng.uniform(0.1, 1.2) * SESSION_MS),
    )


def steps_by_event(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The heir lacks the leader's last batches, appends, and dies before another follower knows where to truncate."""
    behind = isolate(next_leader(TOPIC), heals_by="reset")
    heir_dies = failpoint(AFTER_APPEND, all_brokers, "crash")
    armed = (healed("1"), took_effect("2"))
    third = (took_effect("4"), new_leader(TOPIC, 0, "4"))
    return (
        step_after(1, behind, wait_ms=first_ms(rng), until=(took_effect("2"),)),
        step_after(2, kill(leader(TOPIC)), took_effect("1"), wait_ms=SETTLED_MS, until=third),
        step_after(3, late_request("OffsetForLeaderEpoch"), *armed, until=third),
        step_after(4, heir_dies, *armed, until=third),
    )


BUG = Bug(
    number=3,
    module=__name__,
    title=TITLE,
    versions="0.11 to 1.1",
    needs=(
        "a follower that lacks the leader's last batch is elected, appends, and dies before another follower truncates"
    ),
    seen_as=frozenset({"replica-divergence"}),
    options=OPTIONS,
    steps=steps_by_time,
    in_order=InOrder(options=RUN, steps=steps_by_event, on_processes=SAME_BATCHES),
)
