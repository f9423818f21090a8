"""Rates and medians of trials."""

from __future__ import annotations

import math

Z_95 = 1.959964
"""The 97.5 % quantile of the normal distribution: an interval of 95 %."""


def wilson_interval(found: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate by Wilson's score (E. B. Wilson, JASA 1927); (0, 1) without a trial."""
    if not 0 <= found <= trials:
        raise ValueError(f"{found} of {trials} trials")
    if trials == 0:
        return 0.0, 1.0
    rate, square = found / trials, Z_95 * Z_95
    middle = rate + square / (2 * trials)
    spread = Z_95 * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    whole = 1 + square / trials
    return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)
