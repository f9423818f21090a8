"""Runs of a search that knows nothing about the bug: application, settings and faults are all drawn from the seed.

Each run draws its workload, whether brokers lose power, the producer's settings, and then, as every simulation does,
which kinds of faults take part (swarm testing; Groce et al., ISSTA 2012).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from harrow.faults.planning import WEIGHTS
from harrow.faults.schedule import Schedule

from ..run_settings import EXACTLY_ONCE, ORDERS
from ..simulation import SimulationOptions, plan_seed

WORKLOADS = (ORDERS, ORDERS, EXACTLY_ONCE)
POWER_LOSS_PART = 0.3
SWARM_WEIGHTS: Mapping[str, int] = {
    **WEIGHTS,
    "lose_response": 2,
    "lose_request": 2,
    "delay_request": 2,
}
"""The mix of simulations, and faults of single requests."""


def drawn_options(seed: int) -> SimulationOptions:
    """What the run of one seed does, whichever bug is planted."""
    rng = random.Random(f"{seed}/swarm")  # noqa: S311 - not cryptography
    return SimulationOptions(
        workload=rng.choice(WORKLOADS),
        power_loss=rng.random() < POWER_LOSS_PART,
        weights=SWARM_WEIGHTS,
    )


def plan_swarm(seed: int, plants: tuple[str, ...] = ()) -> Schedule:
    """Draw one run."""
    return plan_seed(seed, replace(drawn_options(seed), plants=plants))
