"""KAFKA-19446: a late marker ends the next transaction of its producer.

What was wrong: a marker is one epoch above the records of its transaction, and the next transaction has the epoch of
that marker. The partition leader accepted every marker whose epoch is not lower than the producer's, as it is right for
version 1. So a marker that was late, because the coordinator had sent it again after a broken connection, was accepted
twice: the second time it ended the transaction that was open by then. The rule since KIP-1228: with version 2 the
marker's epoch must be higher, unless no transaction is open.

Seen as: `missing-output` (the output is aborted, the transaction is committed), `duplicate-output`, `stuck-lso`.
Replaces: `ProducerEntry.accepts_marker`.
Source: KAFKA-19446, KIP-1228; Kafka's `ProducerAppendInfo.checkProducerEpoch`. Redpanda had the same (issue 3232).
"""

from __future__ import annotations

import random
from dataclasses import replace

from harrow.cluster.planting import Planter
from harrow.cluster.storage.producers.producer_entry import ProducerEntry

from .. import delay_request, leader, reset
from ..runs import SINK
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import SHORT_JOB

TITLE = "KAFKA-19446: a late marker ends the next transaction of its producer"
OPTIONS = replace(SHORT_JOB, partitions=3, batches=80, job={"operations": (), "aborted_part": 0.4})


def plant(planter: Planter) -> None:
    """Hold every marker to the rule of transaction version 1."""
    planter.replace_method(ProducerEntry, "accepts_marker", _not_of_an_older_epoch)


def _not_of_an_older_epoch(self: ProducerEntry, epoch: int, transaction_version: int) -> bool:
    del transaction_version
    return epoch >= self.epoch


def steps_by_time(rng: random.Random) -> list[ScheduledFault]:
    """Markers are served late, and connections break meanwhile, so that the coordinator sends them again."""
    at_ms, steps = rng.uniform(0.3, 0.6) * 1_000, list[ScheduledFault]()
    while at_ms < 900 * OPTIONS.seconds:
        late = delay_request("WriteTxnMarkers", delay_ms=(250, 500), client="broker *")
        broken = reset(leader(SINK, rng.randrange(OPTIONS.partitions)))
        steps.append(timed_step(len(steps) + 1, at_ms, late, 150))
        steps.append(timed_step(len(steps) + 1, at_ms + rng.uniform(100, 200), broken, 0))
        at_ms += rng.uniform(300, 500)
    return steps


BUG = Bug(
    number=36,
    module=__name__,
    title=TITLE,
    versions="4.0 and 4.1, transaction version 2",
    needs="a WriteTxnMarkers that is late, and whose connection breaks, while the producer begins its next transaction",
    seen_as=frozenset({"duplicate-output", "missing-output", "stuck-lso"}),
    options=OPTIONS,
    steps=steps_by_time,
)
