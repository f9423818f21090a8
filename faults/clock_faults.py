"""Faults of a broker's wall clock (K4): record timestamps, retention and transaction timeouts follow it.

`jump_clock`     the clock shows `by_s` seconds more than the true time (less, where it is below 0)
`skew_clock`     the clock runs `rate` times as fast
`freeze_clock`   the clock does not move
`strobe_clock`   the clock alternates between the true time and `by_s` more, every `period_ms`

Timers, sessions and leases use the monotonic clock and do not notice, as in Kafka. A jump beyond a retention time lets
the broker delete records legally, one beyond a transaction timeout lets the coordinator abort. The error ends with the
broker's process. Evidence: the broker has read the wrong time; healed: its clock is right.
"""

from __future__ import annotations

import abc
import random
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked
from harrow.cluster.host.knobs.clock_faults import BY_MS_MOST, RATE_MOST

from .errors import ConfigError
from .evidence import Evidence
from .rule_kinds import ClockRule
from .rules import all_fired, arm_once, disarm, disarmed
from .spec import Fault, Injection, Milliseconds, Seconds, amount_within, least_and_most, pair_within
from .system import ClusterSnapshot, System
from .targets import Target, as_target

JUMP_S = (-3_600.0, 3_600.0)
"""Below the usual retention times."""
SKEW_RATES = (0.5, 2.0)
STROBE_MS = (50, 500)
STROBE_MS_MOST = 60_000

Rate = float | tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFault(Fault):
    """A fault of the wall clock; the broker continues to serve."""

    needs: ClassVar[frozenset[str]] = frozenset({"clocks"})
    waits_for_traffic: ClassVar[bool] = True

    @property
    def disturbs(self) -> bool:
        """False: the broker serves."""
        return False

    @abc.abstractmethod
    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the error, as fields of `ClockRule`."""

    def inject(self, system: System, injection: Injection) -> None:
        """Set each broker's clock once."""
        arm_once(system, injection, ClockRule(**injection.details))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether each broker has read the wrong time."""
        return all_fired(system, injection, "clocks", death_counts=False)

    def heal(self, system: System, injection: Injection) -> None:
        """Let the clocks be right; a broker that another fault ended has a right clock."""
        disarm(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the clocks are right."""
        return disarmed(system, injection, Evidence(proved=True))


def _signed_seconds(given: object, where: str) -> Seconds:
    pair = pair_within(given, -BY_MS_MOST / 1000, BY_MS_MOST / 1000)
    if pair is None or pair == (0, 0):
        raise ConfigError(
            f"{where}={given!r}): expected seconds other than 0, or a (least, most) pair, within ten years"
        )
    return (pair[0], pair[1]) if isinstance(given, list | tuple) else pair[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpClock(ClockFault):
    """The clock shows `by_s` more."""

    kind: ClassVar[str] = "jump_clock"
    words: ClassVar[str] = "had a clock that jumped"
    by_s: Seconds = JUMP_S

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        object.__setattr__(self, "by_s", _signed_seconds(self.by_s, "jump_clock(by_s"))

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw by how much."""
        del snapshot
        return {"kind": "jump", "by_ms": round(1000 * rng.uniform(*least_and_most(self.by_s)))}


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewClock(ClockFault):
    """The clock runs `rate` times as fast."""

    kind: ClassVar[str] = "skew_clock"
    words: ClassVar[str] = "had a clock of another speed"
    rate: Rate = SKEW_RATES

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        pair = pair_within(self.rate, 0, RATE_MOST)
        if pair is None:
            raise ConfigError(
                f"skew_clock(rate={self.rate!r}): expected a rate such as 1.5, or a (least, most) pair, from 0 to "
                f"{RATE_MOST:g}"
            )
        object.__setattr__(self, "rate", pair if isinstance(self.rate, list | tuple) else pair[0])

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the rate."""
        del snapshot
        return {"kind": "skew", "rate": round(rng.uniform(*least_and_most(self.rate)), 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeClock(ClockFault):
    """The clock does not move."""

    kind: ClassVar[str] = "freeze_clock"
    words: ClassVar[str] = "had a clock that stood still"

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Nothing is drawn."""
        del snapshot, rng
        return {"kind": "skew", "rate": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class StrobeClock(ClockFault):
    """The clock alternates between the true time and another one."""

    kind: ClassVar[str] = "strobe_clock"
    words: ClassVar[str] = "had a clock that jumped forth and back"
    by_s: Seconds = JUMP_S
    period_ms: Milliseconds = STROBE_MS

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        object.__setattr__(self, "by_s", _signed_seconds(self.by_s, "strobe_clock(by_s"))
        checked = amount_within(self.period_ms, STROBE_MS_MOST, "strobe_clock(period_ms")
        object.__setattr__(self, "period_ms", checked)

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw by how much, and how often."""
        del snapshot
        by_ms = round(1000 * rng.uniform(*least_and_most(self.by_s)))
        period_ms = round(rng.uniform(*least_and_most(self.period_ms)))
        return {"kind": "strobe", "by_ms": by_ms, "period_ms": period_ms}


@checked
def jump_clock(target: Target | int, *, by_s: Seconds = JUMP_S, seconds: Seconds | None = None) -> JumpClock:
    """Let a broker's wall clock show `by_s` seconds more than the true time, or less."""
    return JumpClock(target=as_target(target, JumpClock.kind), by_s=by_s, seconds=seconds)


@checked
def skew_clock(target: Target | int, *, rate: Rate = SKEW_RATES, seconds: Seconds | None = None) -> SkewClock:
    """Let a broker's wall clock run `rate` times as fast."""
    return SkewClock(target=as_target(target, SkewClock.kind), rate=rate, seconds=seconds)


@checked
def freeze_clock(target: Target | int, *, seconds: Seconds | None = None) -> FreezeClock:
    """Let a broker's wall clock not move."""
    return FreezeClock(target=as_target(target, FreezeClock.kind), seconds=seconds)


@checked
def strobe_clock(
    target: Target | int, *, by_s: Seconds = JUMP_S, period_ms: Milliseconds = STROBE_MS, seconds: Seconds | None = None
) -> StrobeClock:
    """Let a broker's wall clock alternate between the true time and `by_s` seconds more, every `period_ms`."""
    return StrobeClock(target=as_target(target, StrobeClock.kind), by_s=by_s, period_ms=period_ms, seconds=seconds)
