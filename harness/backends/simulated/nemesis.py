"""A schedule on virtual time: what `faults/background.py` does in a thread, on the loop of a simulated world.

Owns: `VirtualNemesis`, which has the methods of `BackgroundNemesis`. Its waits are `time.sleep`, so they let the world
go on. `faults.jsonl` has the same rows, with virtual times.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.faults.bounds import EFFECT_TIMEOUT_MS, WAIT_TIMEOUT_MS, longest_ms
from harrow.faults.errors import NemesisError
from harrow.faults.fault_rows import FaultLog
from harrow.faults.nemesis import Nemesis
from harrow.faults.traffic_wait import REACHED_WITHIN_MS

from .waiting import holds_within

if TYPE_CHECKING:
    from harrow.cluster.simulation import SimulatedCluster
    from harrow.faults.schedule import Schedule
    from harrow.faults.system import HasTraffic

    from .system import SimulatedSystem


class VirtualNemesis:
    """Runs `schedule` on the system of a simulated cluster from `start()` to `stop()`."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        system: SimulatedSystem,
        schedule: Schedule,
        *,
        log: Path | str | None = None,
        has_traffic: HasTraffic | None = None,
        blocks_ms: list[int] | None = None,
        reached_within_ms: int = REACHED_WITHIN_MS,
    ) -> None:
        """`log`: `faults.jsonl`. `has_traffic`: None: the system's own.

        `blocks_ms` gets how long the block lasted, when its code has ended.
        """
        self._loop = cluster.world.loop
        self._system = system
        self._nemesis = Nemesis(
            system,
            schedule,
            write=None if log is None else FaultLog(Path(log), lambda: self._loop.now_ns).append,
            has_traffic=has_traffic,
            effect_timeout_ms=EFFECT_TIMEOUT_MS,
            wait_timeout_ms=WAIT_TIMEOUT_MS,
            reached_within_ms=reached_within_ms,
        )
        self._longest_s = longest_ms(schedule, system.session_timeout_ms) / 1000
        self._blocks_ms = blocks_ms
        self._started = False
        self._started_ms = 0
        self._over = False
        self._stopping = False
        self._finishing = False
        self._turn_at_ns: int | None = None

    def start(self) -> None:
        """Begin to wait for traffic."""
        self._started = True
        self._started_ms = self._loop.now_ms
        if any(step.frames for step in self._nemesis.schedule.steps):
            self._system.count_frames(self._on_frame)
        self._plan(0)

    def _on_frame(self) -> None:
        if self._nemesis.frames.pending and not self._over:
            self._plan(0)

    def _plan(self, delay_ns: int) -> None:
        at_ns = self._loop.now_ns + max(0, delay_ns)
        if self._turn_at_ns is None or at_ns < self._turn_at_ns:
            self._turn_at_ns = at_ns
            self._loop.call_after(None, at_ns - self._loop.now_ns, self._turn)

    def _turn(self) -> None:
        if self._over or self._turn_at_ns is None or self._loop.now_ns < self._turn_at_ns:
            return
        self._turn_at_ns = None
        nemesis, now_ms = self._nemesis, self._loop.now_ms
        if self._stopping:
            nemesis.stop()
        if self._finishing:
            nemesis.finish(now_ms)
        next_ms = nemesis.turn(now_ms)
        if next_ms is None:
            self._over = True
        else:
            self._plan(next_ms * NS_PER_MS - self._loop.now_ns)

    def await_begun(self) -> None:
        """Return when each fault took effect, or waits for the request at which it acts; or after a failure."""
        holds_within(lambda: self._nemesis.has_begun or self._over, self._longest_s)

    def finish(self) -> bool:
        """Let the schedule end by itself, no more traffic expected; False when it did not in time."""
        self.finish_soon()
        if not holds_within(lambda: self._over, self._longest_s):
            self._nemesis.problems.append(
                f"the faults did not come to their end within {self._longest_s:.0f} s of virtual time after the block; "
                f"the nemesis waited for {self._nemesis.waits_for or 'a call on the cluster'}"
            )
        return self._over

    def finish_soon(self) -> None:
        """Let the schedule end by itself, without waiting for it."""
        if self._blocks_ms is not None and not self._finishing:
            self._blocks_ms.append(self._loop.now_ms - self._started_ms)
        self._finishing = True
        self._plan(0)

    def stop_soon(self) -> None:
        """Fire no further step and heal every fault, without waiting for it."""
        self._stopping = True
        if self._started:
            self._plan(0)

    def stop(self) -> None:
        """Fire no further step and heal every fault; NemesisError names the failures, once."""
        self.stop_soon()
        if self._started and not holds_within(lambda: self._over, self._longest_s):
            self._nemesis.problems.append(
                f"the faults were not healed within {self._longest_s:.0f} s of virtual time; the nemesis waits for "
                f"{self._nemesis.waits_for or 'a call on the cluster'}"
            )
        problems = list(self._nemesis.problems)
        self._nemesis.problems.clear()
        if problems:
            raise NemesisError("; ".join(problems))

    @property
    def schedule(self) -> Schedule:
        """The schedule with what was resolved so far: written to a file, it repeats this run."""
        return self._nemesis.schedule

    @property
    def effects(self) -> int:
        """How many faults took effect so far."""
        return self._nemesis.effects

    @property
    def running(self) -> bool:
        """Whether faults are still to come or to be healed."""
        return self._started and not self._over
