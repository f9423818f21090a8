"""The error of a host's wall clock, which faults set (K4): it jumps, runs fast or slow, does not move, or alternates.

Owns: the error of one host, and how often the clock was read under it. Only wall time is wrong: timers, sessions and
leases run on the monotonic clock, as in Kafka; record timestamps, retention and transaction timeouts do not.

    jump     `by_ms` more than the true time, or less
    skew     since it was set, time passes `rate` times as fast (0: the clock does not move)
    strobe   a jump that is there for `period_ms`, not there for `period_ms`, and so on

Pure: the caller gives the true times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import ConfigError
from ...events.processes import ClockCleared, ClockSet
from ..seam import Trace
from .rules import RuleId

KINDS = ("jump", "skew", "strobe")
BY_MS_MOST = 10 * 365 * 86_400_000
RATE_MOST = 100.0


class ClockFaults:
    """The error of one wall clock; while `active` is False the clock is right."""

    __slots__ = ("_by_ms", "_id", "_kind", "_period_ms", "_rate", "_reads", "_since_ms", "_since_wall_ms", "active")

    def __init__(self) -> None:
        self.active = False
        self._id = self._reads = self._by_ms = self._period_ms = 0
        self._kind, self._rate = "", 1.0
        self._since_ms = self._since_wall_ms = 0

    def set(self, kind: str, *, by_ms: int, rate: float, period_ms: int, monotonic_ms: int, wall_ms: int) -> int:
        """Begin an error, which replaces an earlier one; its number. ConfigError for one that no clock has."""
        if kind not in KINDS:
            raise ConfigError(f"clock fault {kind!r}: expected one of {', '.join(KINDS)}")
        if abs(by_ms) > BY_MS_MOST or not 0 <= rate <= RATE_MOST or period_ms < 0:
            raise ConfigError(
                f"clock fault {kind}: by_ms={by_ms} must be within {BY_MS_MOST}, rate={rate} from 0 to {RATE_MOST}, "
                f"period_ms={period_ms} from 0 up"
            )
        if kind == "strobe" and not period_ms:
            raise ConfigError("clock fault strobe: period_ms=0, expected a period from 1 up")
        self._kind, self._by_ms, self._rate, self._period_ms = kind, by_ms, rate, period_ms
        self._since_ms, self._since_wall_ms = monotonic_ms, wall_ms
        self._id, self._reads, self.active = self._id + 1, 0, True
        return self._id

    @property
    def number(self) -> int:
        """The number of the last error that was set; 0 before the first."""
        return self._id

    def clear(self) -> None:
        """Let the clock be right."""
        self.active = False

    def read(self, wall_ms: int, monotonic_ms: int) -> int:
        """Return what the clock shows at this true time; only while it is active."""
        assert self.active, "a clock without an error counts no reads"
        self._reads += 1
        return self.shown(wall_ms, monotonic_ms)

    def shown(self, wall_ms: int, monotonic_ms: int) -> int:
        """Return what a read would return."""
        passed_ms = monotonic_ms - self._since_ms
        if self._kind == "skew":
            return self._since_wall_ms + int(passed_ms * self._rate)
        if self._kind == "strobe" and (passed_ms // self._period_ms) % 2:
            return wall_ms
        return wall_ms + self._by_ms

    def report(self, wall_ms: int, monotonic_ms: int) -> list[dict[str, Any]]:
        """The error as one row: how far the clock is off now, and how often it was read."""
        if not self._id:
            return []
        off_ms = self.shown(wall_ms, monotonic_ms) - wall_ms if self.active else 0
        return [{"id": self._id, "kind": self._kind, "armed": self.active, "fired": self._reads, "off_ms": off_ms}]


class ClockRules:
    """The rules of one wall clock; `times` returns the true wall time and the monotonic time."""

    def __init__(self, faults: ClockFaults, times: Callable[[], tuple[int, int]], trace: Trace) -> None:
        self._faults = faults
        self._times = times
        self._trace = trace

    def add(self, fields: Mapping[str, Any]) -> int:
        """Begin an error, which replaces an earlier one; return its id."""
        wall_ms, monotonic_ms = self._times()
        kind, rate = str(fields["error"]), float(fields.get("rate", 1.0))
        by_ms, period_ms = int(fields.get("by_ms", 0)), int(fields.get("period_ms", 0))
        number = self._faults.set(
            kind, by_ms=by_ms, rate=rate, period_ms=period_ms, monotonic_ms=monotonic_ms, wall_ms=wall_ms
        )
        self._trace.emit(ClockSet(kind=kind, by_ms=by_ms, rate=rate, period_ms=period_ms))
        return number

    def report(self) -> list[dict[str, Any]]:
        """Return the error as one row."""
        return self._faults.report(*self._times())

    def remove(self, rule_id: RuleId | None) -> None:
        """Let the clock be right, unless another error has replaced this one."""
        if self._faults.active and rule_id in (None, self._faults.number):
            self._faults.clear()
            self._trace.emit(ClockCleared())
