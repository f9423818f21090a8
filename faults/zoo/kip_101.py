"""KIP-101, first case: a follower truncates to its own high watermark at the start.

What was wrong: a follower that restarted, or that got a new leader, truncated its log to its own high watermark. The
high watermark of a follower is one fetch round behind, so the follower removed records that were committed. When the
leader failed before the follower had fetched them again, the follower was elected and the records were gone.

Seen as: `lost-write`; `inconsistent-offsets` where other records take the offsets.
Replaces: the truncation strategy `kip-320` by `high-watermark`.
Source: KIP-101; Kafka's `ReplicaFetcherThread` before 0.11.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from harrow.cluster.host.seam.failpoints import AFTER_APPEND
from harrow.cluster.planting import Planter
from harrow.cluster.replication.truncation_strategies import STRATEGIES

from .. import all_brokers, failpoint, isolate, kill, leader, new_leader, took_effect
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, step_after, timed_step
from ..spec import Fault
from ..targets import Target
from .bug import Bug, InOrder
from .shared import LAG_MS, QUICK, RUN, SESSION_MS, SETTLED_MS, first_ms, late_request

TITLE = "KIP-101, first case: a follower truncates to its own high watermark"
End = Callable[[Target], Fault]
"""How a broker ends: it is killed, or loses its power."""
OPTIONS = SimulationOptions(brokers=3, partitions=1, seconds=8.0, batches=120, config=QUICK)


def plant(planter: Planter) -> None:
    """Let the default strategy be that of Kafka 0.10."""
    planter.replace_entry(STRATEGIES, "kip-320", STRATEGIES["high-watermark"])


def leader_and_heir_end(rng: random.Random, *, end: End) -> tuple[ScheduledFault, ...]:
    """The leader ends, then its heir, before another follower has fetched from the heir. The heir is back first."""
    at_ms = rng.uniform(0.1, 0.3) * OPTIONS.seconds * 1_000
    late_fetch = late_request("Fetch", all_brokers, rng.uniform(0.5, 0.9) * LAG_MS)
    heir_ms = at_ms + 0.5 * SESSION_MS  # as soon as it leads
    heir_lasts_ms = rng.uniform(1.1, 1.6) * SESSION_MS
    lasts_ms = rng.uniform(3, 4) * SESSION_MS
    return (
        timed_step(1, at_ms, end(leader(TOPIC)), lasts_ms),
        timed_step(2, at_ms + 20, late_fetch, 0),
        timed_step(3, heir_ms, end(leader(TOPIC)), heir_lasts_ms),
    )


def leader_and_heir_end_in_order(rng: random.Random, *, end: End) -> tuple[ScheduledFault, ...]:
    """The same by events.

    First no more records come, so that followers do not get the leader's high watermark. The brokers that ended return
    when the third one leads and has appended.
    """
    no_records = isolate(leader(TOPIC), peers="clients", direction="in", heals_by="reset")
    appends = failpoint(AFTER_APPEND, leader(TOPIC), "delay", nth=5, delay_ms=0)
    back = (took_effect("5"),)
    return (
        step_after(1, no_records, wait_ms=first_ms(rng), until=back),
        step_after(2, end(leader(TOPIC)), took_effect("1"), wait_ms=SETTLED_MS, until=back, overlaps=True),
        step_after(3, late_request("Fetch"), took_effect("2"), until=(took_effect("4"),)),
        step_after(4, end(leader(TOPIC)), took_effect("3"), until=back),
        step_after(5, appends, new_leader(TOPIC, 0, "4"), until=back),
    )


BUG = Bug(
    number=1,
    module=__name__,
    title=TITLE,
    versions="before 0.11",
    needs="a follower restarts (or its leader changes), then the leader dies before the follower's next fetch",
    seen_as=frozenset({"inconsistent-offsets", "lost-write"}),
    options=OPTIONS,
    steps=partial(leader_and_heir_end, end=kill),
    in_order=InOrder(options=RUN, steps=partial(leader_and_heir_end_in_order, end=kill)),
)
