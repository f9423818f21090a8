"""`recovers_within=` of `chaos`, `verify` and `verify_pipeline`: its check, and what the run folder keeps of it.

A verdict that judges standing still (`checks/progress/`) reads from run.json what only the running test knows: when it
asked for the verdict, the bounds, and `min.insync.replicas` of its topics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ConfigError

if TYPE_CHECKING:
    from ..topics import Topic

MIN_ISR = "min.insync.replicas"


def recovery_bound(function: str, given: Any) -> float | None:
    """Return `recovers_within` in seconds; ConfigError for anything but None and a finite number above 0."""
    if given is None:
        return None
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not math.isfinite(given) or given <= 0:
        raise ConfigError(
            f"{function}(recovers_within={given!r}): expected a number of seconds above 0, such as 10, within which a "
            "client makes progress again; leave it out to have it reported only"
        )
    return float(given)


def least_isr_of(topics: Iterable[Topic]) -> dict[str, int]:
    """Return `min.insync.replicas` of the topics that have their own, by name."""
    return {topic.name: int(str(topic.config[MIN_ISR])) for topic in topics if MIN_ISR in topic.config}


def progress_facts(
    least_isr: Mapping[str, int], of_verdict: float | None, of_faults: Mapping[str, float], *, had_faults: bool
) -> dict[str, Any]:
    """Return what run.json keeps; empty when nothing is to be judged, so that nothing is read."""
    if of_verdict is None and not had_faults:
        return {}
    return {
        "ended_ns": time.monotonic_ns(),
        "min_insync_replicas": dict(least_isr),
        "recovers_within_s": of_verdict,
        "recovers_within_s_of_faults": dict(of_faults),
    }
