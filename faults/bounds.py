"""How long a nemesis waits for what, and what it waits for at a moment: each wait has a bound, and none is silent."""

from __future__ import annotations

from collections.abc import Iterable

from .active_fault import ActiveFault, Phase
from .schedule import UNTIL_MOST_MS, Schedule, ScheduledFault
from .spec import least_and_most

EFFECT_TIMEOUT_MS = 15_000
HEAL_TIMEOUT_MS = 60_000
END_TIMEOUT_MS = 180_000
"""How long a fault of several steps may take after its duration, such as a rolling restart."""
WAIT_TIMEOUT_MS = 30_000
"""How long a step waits for a broker in its role, or for the cap."""
FIRST_TRAFFIC_TIMEOUT_MS = 120_000
"""How long the first fault waits for the first traffic; then the run ends, so that `while chaos.running` ends too."""
GRACE_MS = 3_000
"""After `finish`, how long a fault that needs traffic still waits for it."""
SESSIONS_MOST = 2.5
"""Of a duration that is drawn, in session timeouts (`Fault.draw_duration_ms`)."""


NO_TRAFFIC = (
    "no record was acknowledged or delivered; produce or consume inside the chaos block, on the addresses of this "
    "cluster"
)
FIRST_TRAFFIC = "the first traffic: no record was acknowledged or delivered since the chaos block began"


def longest_ms(schedule: Schedule, session_timeout_ms: int) -> int:
    """Return longer than a nemesis allows all steps of `schedule` together, from `Nemesis.finish` to the end."""
    return FIRST_TRAFFIC_TIMEOUT_MS + sum(
        step.at_ms
        + (step.fired_ms or 0)
        + WAIT_TIMEOUT_MS
        + max(EFFECT_TIMEOUT_MS, step.fault.effect_timeout_ms)
        + _duration_ms(step, session_timeout_ms)
        + END_TIMEOUT_MS
        + HEAL_TIMEOUT_MS
        for step in schedule.steps
    )


def _duration_ms(step: ScheduledFault, session_timeout_ms: int) -> int:
    if step.duration_ms is not None:
        return step.duration_ms
    if step.fault.seconds is not None:
        return round(1000 * least_and_most(step.fault.seconds)[1])
    return max(UNTIL_MOST_MS if step.until else 0, round(SESSIONS_MOST * session_timeout_ms))


def waiting_for(active: Iterable[ActiveFault], late: Iterable[ScheduledFault], now_ms: int, *, closing: bool) -> str:
    """Return what a nemesis waits for beyond the durations of its faults; `closing`: those count, too.

    `late`: steps that are due, or that wait for events.
    """
    for fault in active:
        name = fault.injection.fault
        if fault.phase is Phase.HEALS:
            return f"{name} to be healed"
        if fault.waits:
            return f"a request, a call or a place in the code at which {name} acts"
        if fault.phase is Phase.TAKES_EFFECT:
            return f"the effect of {name}"
        if now_ms > fault.heal_at_ms:
            return f"{name} to come to its end"
        if closing:
            return f"{name}, which lasts for some more seconds"
    for step in late:
        events = f" after {', '.join(map(repr, step.after))}" if step.after else ""
        return f"{step.fault} to fire{events}"
    return ""
