"""Directed schedules whose steps wait for events and not for times: the searches of `harrow zoo --real`.

Each step begins when another has taken effect, when a leader is elected or when the ISR has shrunk, so a schedule does
the same on real processes, however busy the machine is, and on a virtual clock (`--search events`). Bugs without such a
schedule are searched for by the schedule of their `Bug`.

The internal topics have one replica here. So a failpoint, a Fetch or an ISR between brokers is that of `orders`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from harrow.cluster.host.seam.failpoints import AFTER_APPEND, AFTER_ISR_WRITE, BEFORE_APPEND, BEFORE_ISR_WRITE
from harrow.faults.cluster_faults import ExpireSession
from harrow.faults.disk_faults import PowerLoss, Wipe
from harrow.faults.events import began, healed, isr_count, new_leader, took_effect
from harrow.faults.failpoint_faults import failpoint
from harrow.faults.network_faults import Isolate, SlowLink
from harrow.faults.process_faults import Kill, Pause
from harrow.faults.request_faults import DelayRequest, delay_request, lose_response
from harrow.faults.schedule import Schedule, ScheduledFault
from harrow.faults.schedule import step_after as step
from harrow.faults.targets import Target, all_brokers, follower, leader, next_leader

from ..run_settings import TOPIC, RunSettings
from ..simulation import SimulationOptions, plan_seed
from .bug import Bug, Steps, drawn_steps, plan_directed

SESSION, LAG = "zookeeper.session.timeout.ms", "replica.lag.time.max.ms"
HELD_MS = 20_000
"""How late a request is served that waits for the end of its schedule."""
HOLD_MS = 4_000
"""How long a broker is held at most: shorter than its session."""
SETTLED_MS = 300
"""How long until brokers have served what they got before the producer or a follower was cut off."""
ONE_PARTITION: Mapping[str, object] = {
    SESSION: 2_000,
    LAG: 10_000,  # no follower leaves the ISR for its lag
    "replica.fetch.wait.max.ms": 5_000,  # the high watermark of a follower lags until the next record
    "replica.high.watermark.checkpoint.interval.ms": 50,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "log.segment.bytes": 1 << 20,
}
NO_FATAL_ERROR: Mapping[str, object] = {"idempotent": False, "guarantee": "no-loss", "in_flight": 5}
"""On real processes: a lost record does not end the producer, so that the application goes on."""
SAME_BATCHES: Mapping[str, object] = {"in_flight": 5}
"""On real processes: an idempotent producer sends the same batches again, so that other logs have the same offsets."""
AVAILABLE = {"min.insync.replicas": "1"}
"""A leader alone takes records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder:
    """How one bug is searched for by events: application and settings, and the faults."""

    options: SimulationOptions
    steps: Steps
    on_processes: Mapping[str, object] = field(default_factory=lambda: NO_FATAL_ERROR)
    """What differs on real processes (`RunSettings`)."""


def first_ms(rng: random.Random) -> int:
    """When the first fault begins."""
    return round(rng.uniform(400, 1_200))


def leader_and_heir_end(
    rng: random.Random, settings: RunSettings, *, end: type[Kill | PowerLoss]
) -> Sequence[ScheduledFault]:
    """The leader ends, then its heir, before another follower has fetched from the heir.

    First no more records come, so that followers do not get the leader's high watermark. The brokers that ended return
    when the third one leads and has appended.
    """
    del settings
    no_records = Isolate(target=leader(TOPIC), peers="clients", direction="in", heals_by="reset")
    appends = failpoint(AFTER_APPEND, leader(TOPIC), "delay", nth=5, delay_ms=0)
    back = (took_effect("5"),)
    return (
        step(1, no_records, wait_ms=first_ms(rng), until=back),
        step(2, end(target=leader(TOPIC)), took_effect("1"), wait_ms=SETTLED_MS, until=back, overlaps=True),
        step(3, late_request("Fetch"), took_effect("2"), until=(took_effect("4"),)),
        step(4, end(target=leader(TOPIC)), took_effect("3"), until=back),
        step(5, appends, new_leader(TOPIC, 0, "4"), until=back),
    )


def late_request(api: str, target: Target = all_brokers) -> DelayRequest:
    """The next such request that a broker of `target` gets from another is served when the schedule is over."""
    return delay_request(api, target=target, delay_ms=HELD_MS, client="broker *")


def heir_dies_after_its_first_append(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """The heir lacks the leader's last batches, appends, and dies before another follower knows where to truncate."""
    del settings
    behind = Isolate(target=next_leader(TOPIC), heals_by="reset")
    heir_dies = failpoint(AFTER_APPEND, all_brokers, "crash")
    armed = (healed("1"), took_effect("2"))
    third = (took_effect("4"), new_leader(TOPIC, 0, "4"))
    return (
        step(1, behind, wait_ms=first_ms(rng), until=(took_effect("2"),)),
        step(2, Kill(target=leader(TOPIC)), took_effect("1"), wait_ms=SETTLED_MS, until=third),
        step(3, late_request("OffsetForLeaderEpoch"), *armed, until=third),
        step(4, heir_dies, *armed, until=third),
    )


def slow_follower_joins_and_is_elected(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """Two elections around a follower that lacks committed records.

    The follower is cut off until it is outside of the ISR. What waited for it is committed then, and the leader dies
    before another follower knows that. Its heir serves no fetch but that of the slow follower, which gets no response,
    and dies when that follower is in the ISR.
    """
    del settings
    slow = Isolate(target=next_leader(TOPIC), heals_by="reset")
    leader_dies = failpoint(BEFORE_APPEND, leader(TOPIC), "crash")
    heir_dies = failpoint(AFTER_ISR_WRITE, leader(TOPIC), "crash")
    end = (took_effect("5"), new_leader(TOPIC, 0, "5"))
    return (
        step(1, slow, wait_ms=first_ms(rng), until=(began("4"), began("5"))),
        step(2, leader_dies, took_effect("1"), wait_ms=SETTLED_MS, until=end),
        step(3, late_request("Fetch"), took_effect("2"), until=end),
        step(4, lose_response("Fetch", client="broker *"), took_effect("3"), until=end),
        step(5, heir_dies, took_effect("3"), until=end),
    )


def leader_cut_off_until_another_leads(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """The leader reaches neither followers nor registry, only clients, until another broker leads."""
    del settings
    cut = Isolate(target=leader(TOPIC), heals_by="reset")
    return (step(1, cut, wait_ms=first_ms(rng), until=(new_leader(TOPIC, 0, "1"),)),)


def follower_loses_its_disk_before_it_is_in_the_isr(
    rng: random.Random, settings: RunSettings
) -> Sequence[ScheduledFault]:
    """A follower loses session and disk when the leader is about to write it into the ISR; then the leader dies.

    The leader is held before its write until the follower is back, empty.
    """
    del settings
    joins = failpoint(BEFORE_ISR_WRITE, leader(TOPIC), "stop")
    back = (healed("3"), healed("4"))
    joined = (*back, healed("2"), isr_count(TOPIC, 0, 2))
    return (
        step(1, Pause(target=follower(TOPIC)), wait_ms=first_ms(rng) + 500, until=(began("2"),)),
        step(2, joins, isr_count(TOPIC, 0, 1), until=back, duration_ms=HOLD_MS),
        step(3, Wipe(target=follower(TOPIC)), healed("1"), took_effect("2"), duration_ms=0),
        step(4, ExpireSession(target=follower(TOPIC)), took_effect("3"), duration_ms=0, overlaps=True),
        step(5, Kill(target=leader(TOPIC)), *joined, until=(new_leader(TOPIC, 0, "5"),)),
    )


def last_member_loses_power(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """The followers are away and outside of the ISR, the leader loses its power and is back before they are."""
    del settings
    alone = (took_effect("2"), isr_count(TOPIC, 0, 1))
    return (
        step(1, Kill(target=follower(TOPIC)), wait_ms=first_ms(rng), until=(healed("3"),)),
        step(2, Kill(target=follower(TOPIC)), took_effect("1"), until=(healed("3"),)),
        step(3, PowerLoss(target=leader(TOPIC)), *alone, wait_ms=first_ms(rng), duration_ms=0),
    )


def follower_that_misses_two_elections(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """One follower lacks the leader's last batches, the other does not know of elections.

    The leader dies and follows its heir, then the heir dies and the old leader leads again.
    """
    del settings
    behind = Isolate(target=next_leader(TOPIC), heals_by="reset")
    unaware = late_request("LeaderAndIsr", follower(TOPIC))
    appends = failpoint(AFTER_APPEND, leader(TOPIC), "delay", delay_ms=0)
    end = (took_effect("5"),)
    return (
        step(1, behind, wait_ms=first_ms(rng), until=(took_effect("3"),)),
        step(2, unaware, took_effect("1"), until=end),
        step(3, Kill(target=leader(TOPIC)), began("2"), wait_ms=SETTLED_MS, until=(new_leader(TOPIC, 0, "3"),)),
        step(4, Kill(target=leader(TOPIC)), healed("3"), isr_count(TOPIC, 0, 3), until=end),
        step(5, appends, new_leader(TOPIC, 0, "4"), until=end),
    )


def follower_leaves_the_isr_of_an_idle_partition(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """A follower is paused until it has left the ISR and a request that waited for it has timed out."""
    lasts_ms = settings.lag_ms + 2 * REQUEST_MS
    return (step(1, Pause(target=follower(TOPIC)), wait_ms=first_ms(rng), duration_ms=lasts_ms),)


def late_response_of_several_is_lost(rng: random.Random, settings: RunSettings) -> Sequence[ScheduledFault]:
    """Followers get records late, so that a producer has several requests in flight; it loses a response."""
    del settings
    late = SlowLink(target=leader(TOPIC), delay_ms=60)
    lost = lose_response("Produce", rng.randint(1, 3), leader(TOPIC))
    end = (took_effect("2"),)
    return (step(1, late, wait_ms=first_ms(rng), until=end), step(2, lost, took_effect("1"), until=end, overlaps=True))


REQUEST_MS = 1_500
"""`request.timeout.ms` of a producer that a broker must answer although nothing else happens."""
RUN = SimulationOptions(
    brokers=3, partitions=1, seconds=30.0, batches=300, topic_config=AVAILABLE, config=ONE_PARTITION
)
FOUR_BROKERS = replace(RUN, brokers=4, replication_factor=4)
POWER_LOSSES = replace(RUN, power_loss=True)
TWO_REPLICAS = replace(
    RUN,
    replication_factor=2,  # the follower alone can be elected
    config={
        **ONE_PARTITION,
        SESSION: 6_000,
        LAG: 400,
        "replica.fetch.wait.max.ms": 100,
        "replica.fetch.max.bytes": 1,  # an empty follower needs long, as it does for a log of real size
        "replica.fetch.response.max.bytes": 1,
    },
)
LAG_BELOW_SESSION = replace(RUN, config={**ONE_PARTITION, LAG: 100})
IN_ORDER: Mapping[str, InOrder] = {
    "kip_101": InOrder(options=RUN, steps=partial(leader_and_heir_end, end=Kill)),
    "kip_101_power_loss": InOrder(options=POWER_LOSSES, steps=partial(leader_and_heir_end, end=PowerLoss)),
    "kip_279": InOrder(options=RUN, steps=heir_dies_after_its_first_append, on_processes=SAME_BATCHES),
    "kip_320": InOrder(options=RUN, steps=follower_that_misses_two_elections, on_processes=SAME_BATCHES),
    "kafka_7128": InOrder(options=FOUR_BROKERS, steps=slow_follower_joins_and_is_elected),
    "kip_497": InOrder(
        options=LAG_BELOW_SESSION,
        steps=leader_cut_off_until_another_leads,
        # a leader moves its high watermark when it appends, so the producer must still be sending then
        on_processes={**NO_FATAL_ERROR, "in_flight": 1_000},
    ),
    "kafka_13091": InOrder(
        # a leader with one batch at a time, whose followers' fetches wait longer than the producer does
        options=replace(LAG_BELOW_SESSION, in_flight=1, config={**ONE_PARTITION, SESSION: 6_000, LAG: 400}),
        steps=follower_leaves_the_isr_of_an_idle_partition,
        on_processes={"request_timeout_ms": REQUEST_MS},
    ),
    "kafka_5494": InOrder(
        options=replace(RUN, resends=True, in_flight=5),
        steps=late_response_of_several_is_lost,
        on_processes={"guarantee": "exactly-once"},
    ),
    "kip_966": InOrder(options=POWER_LOSSES, steps=last_member_loses_power),
    "kip_903": InOrder(options=TWO_REPLICAS, steps=follower_loses_its_disk_before_it_is_in_the_isr),
}
"""By the name of the bug."""


def plan_in_order(bug: Bug, seed: int) -> Schedule:
    """Draw one directed run by events, with the bug planted; by times where the bug has no such schedule."""
    if bug.name not in IN_ORDER:
        return plan_directed(bug, seed)
    given = IN_ORDER[bug.name]
    schedule = plan_seed(seed, replace(given.options, plants=(bug.module,)))
    steps = drawn_steps(replace(bug, steps=given.steps), seed, schedule)
    return replace(schedule, steps=tuple(steps))


def settings_on_processes(bug: Bug) -> Mapping[str, object]:
    """Return what a run on real processes changes in the settings of the bug's schedules."""
    return IN_ORDER[bug.name].on_processes if bug.name in IN_ORDER else {}
