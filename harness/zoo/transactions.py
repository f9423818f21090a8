"""Bugs of producers, transactions and groups, and what makes each of them visible."""

from __future__ import annotations

from ..run_settings import EXACTLY_ONCE
from ..simulation import SimulationOptions
from .bug import Bug

SHORT_JOB = SimulationOptions(
    workload=EXACTLY_ONCE, brokers=3, seconds=3.0, partitions=2, batches=40, weights={"reset": 2, "slow_link": 2, "pause": 1}
)  # fmt: skip
"""The application of transactions, shorter than that of `harrow simulate` and with faults that move few leaders."""

BUGS: tuple[Bug, ...] = (
    Bug(
        number=17,
        name="kafka_5494",
        known_as="KAFKA-5494",
        seen_as=frozenset({"duplicate"}),
        # a producer that lost a response sends again; a restarted broker forgets batches without the bug, too
        options=SimulationOptions(
            seconds=4.0, resends=True, weights={"reset": 2, "slow_link": 2, "pause": 1}
        ),
    ),
    Bug(
        number=18,
        name="kafka_9807",
        known_as="KAFKA-9807",
        seen_as=frozenset({"aborted-read"}),
        options=SHORT_JOB,
    ),
    Bug(
        number=19,
        name="kafka_5376",
        known_as="KAFKA-5376",
        seen_as=frozenset({"aborted-read"}),
        options=SHORT_JOB,
    ),
)
