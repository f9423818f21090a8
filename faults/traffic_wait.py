"""How long a fault waits for the request, the line of code or the disk operation at which it acts: with a bound.

    `within_ms` of traffic     records were acknowledged or delivered in so many milliseconds, and none of it reached
                               the fault: a pattern that matches no client, an API that no client uses. A fault that
                               needs much traffic has a longer time of its own (`Fault.effect_timeout_ms`)
    `SILENCE_MS`               no traffic at all for so long

A fault that makes progress (two of five requests were seen) waits again as long, and so does one beside which another
fault acts or a step of the schedule is still to fire: that may be what brings the broker to it. Traffic is looked at
once a second, while a fault waits. What may fail: nothing; traffic that cannot be seen is no traffic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from harrow.cluster.errors import HarrowError

from .active_fault import ActiveFault, Wait
from .system import HasTraffic
from .unreached_words import progress

REACHED_WITHIN_MS = 30_000
SILENCE_MS = 120_000
LOOK_EVERY_MS = 1_000


class TrafficWait:
    """Measures the traffic of one run while faults wait for it; `watch` makes a detector of what flows from then on."""

    def __init__(self, watch: Callable[[], HasTraffic], within_ms: int = REACHED_WITHIN_MS) -> None:
        self._watch = watch
        self._within_ms = within_ms
        self._flowed_ms = 0
        self._last_ms = 0
        """When traffic was seen last."""
        self._window: tuple[int, HasTraffic] | None = None

    def look(self, active: Iterable[ActiveFault], now_ms: int, *, held: bool) -> None:
        """Measure the traffic since the last look; `held`: something else happens, so each fault begins to wait now."""
        waiting = [fault for fault in active if fault.waits]
        if not waiting:
            self._window = None
            return
        if held:
            for fault in waiting:
                fault.wait = None
        with contextlib.suppress(HarrowError):  # a process that does not respond: look again
            self._measure(now_ms)

    def _measure(self, now_ms: int) -> None:
        if self._window is not None:
            began_ms, has_traffic = self._window
            assert now_ms >= began_ms, f"the clock went back from {began_ms} to {now_ms}"
            if now_ms < began_ms + LOOK_EVERY_MS:
                return
            if has_traffic():
                self._flowed_ms += now_ms - began_ms
                self._last_ms = now_ms
        self._window = None
        self._window = (now_ms, self._watch())

    def gave_up(self, active: ActiveFault, facts: object, now_ms: int) -> str:
        """Return how long the fault waited in vain, as the end of a sentence; empty while it may wait."""
        assert active.waits, f"{active.injection.fault} waits for no traffic"
        seen = progress(facts)
        wait = active.wait
        if wait is None or seen > wait.progress:
            active.wait = Wait(since_ms=now_ms, flowed_ms=self._flowed_ms, progress=seen)
            return ""
        within_ms = max(self._within_ms, active.injection.fault.effect_timeout_ms)
        assert self._flowed_ms >= wait.flowed_ms, "the time of traffic went back"
        if self._flowed_ms - wait.flowed_ms >= within_ms:
            seconds = within_ms / 1000
            remedy = f"harrow.chaos(…, reached_within={2 * seconds:.0f})"
            return f"in {seconds:.0f} s of traffic; where it takes longer, write {remedy}"
        if now_ms - max(wait.since_ms, self._last_ms) >= max(SILENCE_MS, self._within_ms):
            return f"and no traffic at all was seen for {max(SILENCE_MS, self._within_ms) / 1000:.0f} s"
        return ""
