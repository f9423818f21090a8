"""Bugs of producers, transactions and groups, and what makes each of them visible."""

from __future__ import annotations

from ..simulation import SimulationOptions
from .bug import Bug

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
)
