"""Random numbers while the process of a simulated test collects it: the same in each such process.

A service may draw a number when its module is imported: `NAME = uuid.uuid4().hex`, `RNG = random.Random()`. The module
is imported once, before the fork of a seed, so the number is the same for all seeds; without this module it would
differ from one process to the next, and so would the run of a seed. Within a run `ProcessView` has the numbers.
"""

from __future__ import annotations

import os
import random
from typing import Any

from harrow.cluster.host.programs.collected import CollectedNumbers

_RANDOM: Any = random


def fix_random_numbers() -> None:
    """Let `random`, `os.urandom`, `secrets` and `uuid` give the same numbers in each process, from now on."""
    numbers = CollectedNumbers()
    seed_of = random.Random.seed

    def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
        seed_of(generator, int.from_bytes(numbers(8)) if a is None else a, version)

    os.urandom = numbers
    _RANDOM._urandom = numbers  # noqa: SLF001 - from which `secrets` draws
    setattr(random.Random, "seed", seed)  # noqa: B010 - for type checkers, a method is no variable
    random.seed(0)
