"""What the searches for several bugs share: settings, applications, and parts of their steps.

In searches by events the internal topics have one replica. So a failpoint, a Fetch or an ISR between brokers is that
of `orders`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from .. import all_brokers, delay_request
from ..request_faults import DelayRequest
from ..runs import EXACTLY_ONCE, SimulationOptions
from ..targets import Target

SESSION, LAG = "zookeeper.session.timeout.ms", "replica.lag.time.max.ms"
SESSION_MS, LAG_MS = 1_500, 400
QUICK: Mapping[str, object] = {SESSION: SESSION_MS, LAG: LAG_MS}
"""A follower leaves the ISR long before a dead leader is replaced."""
SHORT_SESSION_MS = 600
SHORT: Mapping[str, object] = {SESSION: SHORT_SESSION_MS, LAG: LAG_MS}
"""Elections follow soon."""
IMBALANCE_CHECK = "leader.imbalance.check.interval.seconds"
ONE_BATCH_A_FETCH: Mapping[str, object] = {"replica.fetch.max.bytes": 1, "replica.fetch.response.max.bytes": 1}
"""An empty follower needs long, as it does for a log of real size."""
AVAILABLE: Mapping[str, str] = {"min.insync.replicas": "1"}
"""A leader alone takes records."""
SHORT_JOB = SimulationOptions(
    workload=EXACTLY_ONCE,
    brokers=3,
    seconds=3.0,
    partitions=2,
    batches=40,
    weights={"reset": 2, "slow_link": 2, "pause": 1},
)
"""The application of transactions, shorter than that of `harrow simulate` and with faults that move few leaders."""
NO_JOB_EVENTS = ("alter", "delete-records")
"""An operator who moves no leader."""

# --------------------------------------------------------------------------------- searches by events

HELD_MS = 20_000
"""How late a request is served that waits for the end of its schedule."""
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
RUN = SimulationOptions(
    brokers=3, partitions=1, seconds=30.0, batches=300, topic_config=AVAILABLE, config=ONE_PARTITION
)
POWER_LOSSES = replace(RUN, power_loss=True)
LAG_BELOW_SESSION = replace(RUN, config={**ONE_PARTITION, LAG: 100})


def first_ms(rng: random.Random) -> int:
    """When the first fault of a search by events begins."""
    return round(rng.uniform(400, 1_200))


def late_request(api: str, target: Target = all_brokers, delay_ms: float = HELD_MS) -> DelayRequest:
    """The next such request that a broker of `target` gets from another is served late, by default after the run."""
    return delay_request(api, target=target, delay_ms=round(delay_ms), client="broker *")
