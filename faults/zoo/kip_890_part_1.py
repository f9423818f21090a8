"""KIP-890, part 1: a batch that arrives after the end of its transaction opens it again.

What was wrong: a partition leader appended a transactional batch without asking the coordinator whether its transaction
is open. A batch that was late in the network arrived after the marker of its transaction, with an epoch and a sequence
that the leader accepted. It opened a transaction in this log of which the coordinator knew nothing, so no marker
followed. The last stable offset stood still; or the marker of the producer's next transaction ended both, and committed
a batch that was aborted.

Seen as: `stuck-lso`, with `not-converged`; or `duplicate-output`, when a later commit takes the late batch along.
Replaces: `TransactionChecks.must_ask`.
Source: KIP-890, KAFKA-14402; Kafka's `ReplicaManager.appendRecords` before 3.6.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from harrow.cluster.planting import Planter
from harrow.cluster.replication.transaction_checks import TransactionChecks

from .. import delay_request
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import NO_JOB_EVENTS, SHORT_JOB

TITLE = "KIP-890, part 1: a late batch opens a transaction that nothing ends"


def plant(planter: Planter) -> None:
    """Ask the coordinator only to add partitions, which is how producers of version 2 begin."""
    planter.replace_method(TransactionChecks, "must_ask", _to_add_only)


def _to_add_only(self: TransactionChecks, *, add: bool) -> bool:
    del self
    return add


def late_requests(rng: random.Random, *, api: str, delay_ms: tuple[int, int]) -> Sequence[ScheduledFault]:
    """Every 300 ms on average, one request of the job to each broker is served late."""
    seconds = SHORT_JOB.seconds
    return [
        timed_step(number, rng.uniform(0, 900 * seconds), delay_request(api, delay_ms=delay_ms, client="job-*"), 250)
        for number in range(1, int(seconds / 0.3) + 1)
    ]


BUG = Bug(
    number=21,
    module=__name__,
    title=TITLE,
    versions="0.11 to 3.5",
    needs=(
        "producers of transaction version 1 (with version 2 the marker has raised the epoch), and a Produce that is "
        "late by more than the client waits for its response"
    ),
    seen_as=frozenset({"duplicate-output", "stuck-lso"}),
    options=replace(SHORT_JOB, job={"transaction_version": 1, "operations": NO_JOB_EVENTS}),
    # batches arrive later than a client of transaction version 1 waits for them
    steps=partial(late_requests, api="Produce", delay_ms=(450, 1_200)),
)
