"""KAFKA-14704: a follower takes the high watermark of a diverging fetch response before it truncates.

What was wrong: a leader that lost its leadership has records that no other replica has. Its first fetch from the new
leader is answered with the epoch and offset at which the logs diverge, and with the new leader's high watermark. The
follower first took this high watermark, up to the end of its own log, and then truncated. A consumer that fetched from
it in between received records that were never committed.

In Kafka the threads that serve requests run in between. Here the consumers' fetches that wait for the partition are
completed in between.

Seen as: `lost-write`, `inconsistent-offsets`: a record that was read is another one later, or none.
Replaces: `ReplicaFetcher.diverged`.
Source: KAFKA-14704; Kafka's `AbstractFetcherThread.processFetchRequest`.
"""

from __future__ import annotations

import random

from harrow.cluster.planting import Planter
from harrow.cluster.replication.fetcher import ReplicaFetcher
from harrow.cluster.replication.followed_partition import FollowedPartition
from harrow.cluster.wire.fetch_response import FetchedPartition

from .. import isolate, leader
from ..runs import SAME_BROKER, TOPIC, SimulationOptions
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import SHORT, SHORT_SESSION_MS

TITLE = "KAFKA-14704: a follower takes the high watermark of a diverging response before it truncates"
OPTIONS = SimulationOptions(brokers=3, seconds=4.0, producers=2, reads_from=SAME_BROKER, config=SHORT)


def plant(planter: Planter) -> None:
    """Take the high watermark, let waiting consumers read, then truncate."""
    truncate = ReplicaFetcher.diverged

    def diverged(self: ReplicaFetcher, followed: FollowedPartition, row: FetchedPartition) -> None:
        partition = followed.partition
        partition.append_as_follower(None, row.high_watermark, row.log_start_offset)
        self.wake_ups.consumer_fetches.check_and_complete(partition.topic_partition)
        truncate(self, followed, row)

    planter.replace_method(ReplicaFetcher, "diverged", diverged)


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """A leader takes records that no follower gets, and follows another leader later; clients reach it all the time."""
    begin_ms = rng.uniform(300, 1_500)
    cut = isolate(leader(TOPIC, rng.randrange(OPTIONS.partitions)))
    return (timed_step(1, begin_ms, cut, rng.uniform(1.2, 3.0) * SHORT_SESSION_MS),)


BUG = Bug(
    number=12,
    module=__name__,
    title=TITLE,
    versions="2.7 to 3.4",
    needs="a leader that is cut off with records of its own, a new leader, and a consumer that reads from the old one",
    seen_as=frozenset({"inconsistent-offsets", "lost-write"}),
    options=OPTIONS,
    steps=steps_by_time,
)
