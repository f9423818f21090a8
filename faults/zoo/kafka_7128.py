"""KAFKA-7128: a follower joins the ISR when it reaches the high watermark.

What was wrong: the leader let a follower into the ISR as soon as the follower's log end offset reached the leader's
high watermark. The high watermark of a new leader lags behind what the old leader acknowledged. So a follower that
lacks committed records could join, be elected, and the records were gone. The rule since then: the follower must also
reach the start offset of the leader's epoch.

Replaces: `Partition.may_join_isr`.
Source: KAFKA-7128, KIP-497; Kafka's `Partition.isFollowerInSync`.
"""

from __future__ import annotations

import random
from dataclasses import replace

from harrow.cluster.host.seam.failpoints import AFTER_ISR_WRITE, BEFORE_APPEND, BEFORE_ISR_WRITE
from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition
from harrow.cluster.replication.remote_replica import RemoteReplica

from .. import (
    all_brokers,
    began,
    failpoint,
    follower,
    isolate,
    leader,
    lose_response,
    new_leader,
    next_leader,
    took_effect,
)
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, step_after, timed_step
from .bug import Bug, InOrder
from .shared import LAG_MS, QUICK, RUN, SETTLED_MS, first_ms, late_request

TITLE = "KAFKA-7128: a follower joins the ISR at the high watermark, below the leader epoch's start"
OPTIONS = SimulationOptions(
    brokers=4,
    partitions=1,
    replication_factor=4,
    seconds=5.0,
    batches=100,
    in_flight=5,
    config={**QUICK, "replica.fetch.wait.max.ms": 400, "replica.fetch.max.bytes": 1},
)


def plant(planter: Planter) -> None:
    """Ask for the high watermark alone."""
    planter.replace_method(Partition, "may_join_isr", _reached_high_watermark)


def _reached_high_watermark(self: Partition, remote: RemoteReplica) -> bool:
    return remote.log_end_offset >= self.high_watermark


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """Two elections around a follower that lacks committed records.

    A follower is cut off until it is outside of the ISR. What waited for it is committed then, and the leader dies
    before another follower knows that. Its heir stops when it is about to let the slow follower into the ISR.
    """
    end_ms = OPTIONS.seconds * 1_000
    at_ms = rng.uniform(200, 800)
    armed_ms = at_ms + rng.uniform(0.4, 0.9) * LAG_MS
    leader_dies = failpoint(BEFORE_APPEND, leader(TOPIC), "crash")
    heir_stops = failpoint(BEFORE_ISR_WRITE, all_brokers, "stop")
    return (
        timed_step(1, at_ms, isolate(follower(TOPIC), heals_by="reset"), rng.uniform(1.5, 2) * LAG_MS),
        timed_step(2, armed_ms, leader_dies, end_ms),
        timed_step(3, armed_ms + 20, heir_stops, end_ms),
    )


def steps_by_event(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """The same until the leader dies.

    Its heir serves no fetch but that of the slow follower, which gets no response, and dies when that follower is in
    the ISR.
    """
    slow = isolate(next_leader(TOPIC), heals_by="reset")
    leader_dies = failpoint(BEFORE_APPEND, leader(TOPIC), "crash")
    heir_dies = failpoint(AFTER_ISR_WRITE, leader(TOPIC), "crash")
    end = (took_effect("5"), new_leader(TOPIC, 0, "5"))
    return (
        step_after(1, slow, wait_ms=first_ms(rng), until=(began("4"), began("5"))),
        step_after(2, leader_dies, took_effect("1"), wait_ms=SETTLED_MS, until=end),
        step_after(3, late_request("Fetch"), took_effect("2"), until=end),
        step_after(4, lose_response("Fetch", client="broker *"), took_effect("3"), until=end),
        step_after(5, heir_dies, took_effect("3"), until=end),
    )


BUG = Bug(
    number=5,
    module=__name__,
    title=TITLE,
    versions="before 2.0.1 and 2.1",
    needs="a slow follower, and two elections while the new leader's high watermark still lags",
    seen_as=frozenset({"lost-write"}),
    options=OPTIONS,
    steps=steps_by_time,
    in_order=InOrder(options=replace(RUN, brokers=4, replication_factor=4), steps=steps_by_event),
)
