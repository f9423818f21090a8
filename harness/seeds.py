"""One seed for each run; everything random in it is drawn from children of that seed, by name (J5).

A child is a pure function of (seed, names): neither the order of tests, nor xdist's distribution, nor
the Python version changes it. Source: the seed sequences of Hypothesis and NumPy, with sha256.
"""

from __future__ import annotations

import hashlib
import secrets

SEED_MAX = 2**32 - 1


def fresh_seed() -> int:
    """Return a seed that nobody chose, short enough to be typed."""
    return secrets.randbelow(SEED_MAX + 1)


def child_seed(seed: int, *names: str) -> int:
    """Return the seed of what `names` call (a test's node id, then a part of it), 63 bits."""
    text = "\0".join((str(seed), *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
