"""One seed for each run; all random values of the run derive from child seeds, by name (J5).

A child seed is a pure function of (seed, names): it does not depend on the order of the tests, on xdist's
distribution or on the Python version. Source: the seed sequences of Hypothesis and NumPy, with sha256.
"""

from __future__ import annotations

import hashlib
import secrets

SEED_MAX = 2**32 - 1


def fresh_seed() -> int:
    """Return a random seed of at most ten digits."""
    return secrets.randbelow(SEED_MAX + 1)


def child_seed(seed: int, *names: str) -> int:
    """Return the seed for `names` (a test's node id, then a part of the test): 63 bits."""
    text = "\0".join((str(seed), *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
