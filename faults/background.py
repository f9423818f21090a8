"""A nemesis in a thread of its own, on the machine's clock: for clusters of real processes.

Owns the thread from `start()` to `stop()`, and `faults.jsonl`: one JSON object a line, the nemesis's rows with `t_ns`
(monotonic) and `schema_version`.

However a run ends, `stop()` heals every fault, and raises all failures of the nemesis as a single NemesisError.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from harrow.cluster.wait_notes import WaitNotes

from .bounds import EFFECT_TIMEOUT_MS, WAIT_TIMEOUT_MS, longest_ms
from .errors import NemesisError
from .fault_rows import FaultLog
from .frame_wait import POLL_MS
from .nemesis import Nemesis
from .schedule import Schedule
from .system import HasTraffic, System
from .traffic_wait import REACHED_WITHIN_MS


class BackgroundNemesis:
    """Runs `schedule` on `system` in a thread from `start()` to `stop()`; also a context manager."""

    def __init__(
        self,
        system: System,
        schedule: Schedule,
        *,
        log: Path | str | None = None,
        has_traffic: HasTraffic | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        effect_timeout_ms: int = EFFECT_TIMEOUT_MS,
        wait_timeout_ms: int = WAIT_TIMEOUT_MS,
        reached_within_ms: int = REACHED_WITHIN_MS,
    ) -> None:
        self._clock_ns = clock_ns
        self._nemesis = Nemesis(
            system,
            schedule,
            write=None if log is None else FaultLog(Path(log), clock_ns).append,
            has_traffic=has_traffic,
            effect_timeout_ms=effect_timeout_ms,
            wait_timeout_ms=wait_timeout_ms,
            reached_within_ms=reached_within_ms,
        )
        self._longest_s = longest_ms(schedule, system.session_timeout_ms) / 1000
        self._stop = threading.Event()
        self._finish = threading.Event()
        self._done = threading.Event()
        self._begun = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="harrow-nemesis", daemon=True)

    def __enter__(self) -> BackgroundNemesis:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to wait for traffic."""
        self._thread.start()

    def await_begun(self) -> None:
        """Return when each fault took effect, or waits for the request at which it acts; or after a failure."""
        self._begun.wait(self._longest_s)

    def finish(self, timeout_s: float | None = None) -> bool:
        """Let the schedule end by itself, no more traffic expected; False when it did not in time, a failure of `stop`.

        The default of `timeout_s` is longer than the nemesis allows all of the steps together.
        """
        self.finish_soon()
        most_s = self._longest_s if timeout_s is None else timeout_s
        done = self._done.wait(most_s)
        if not done:
            self._nemesis.problems.append(
                f"the faults did not come to their end within {most_s:.0f} s after the block, and were ended then; the "
                f"nemesis waited for {self._nemesis.waits_for or 'a call on the cluster'}"
            )
        return done

    def finish_soon(self) -> None:
        """Let the schedule end by itself, without waiting for it."""
        self._finish.set()
        self._wake.set()

    def stop_soon(self) -> None:
        """Fire no further step and heal every fault, without waiting for it."""
        self._stop.set()
        self._wake.set()

    def stop(self) -> None:
        """Fire no further step, heal every fault, join the thread; NemesisError names the failures, once."""
        self.stop_soon()
        if self._thread.ident is not None:
            self._thread.join(self._longest_s)
        problems = list(self._nemesis.problems)
        self._nemesis.problems.clear()
        if self._thread.is_alive():
            problems.append(
                f"the faults were not healed within {self._longest_s:.0f} s; the nemesis waits for "
                f"{self._nemesis.waits_for or 'a call on the cluster'}: is a process of the cluster stopped?"
            )
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
        """Whether its thread still works."""
        return self._thread.is_alive()

    def _now_ms(self) -> int:
        return self._clock_ns() // 1_000_000

    def _run(self) -> None:
        nemesis = self._nemesis
        notes = WaitNotes(clock_s=lambda: self._clock_ns() / 1e9)
        try:
            next_ms: int | None = self._now_ms()
            while next_ms is not None:
                if self._stop.is_set():
                    nemesis.stop()
                if self._finish.is_set():
                    nemesis.finish(self._now_ms())
                next_ms = nemesis.turn(self._now_ms())
                if nemesis.has_begun:
                    self._begun.set()
                notes.look(nemesis.waits_for)
                if next_ms is not None:
                    if nemesis.frames.pending:
                        next_ms = min(next_ms, self._now_ms() + POLL_MS)
                    self._wake.wait(max(0, next_ms - self._now_ms()) / 1000)
                    self._wake.clear()
        except BaseException as error:  # such as a full disk under the log
            nemesis.problems.append(f"the nemesis failed: {error!r}")
        finally:
            self._begun.set()
            self._done.set()
