"""`harrow.chaos(…)`: faults in the background of a block of the user's code.

When the block ends, each planned fault runs to its end (within the bound of its schedule), everything is healed, and a
fault that did not take effect is an error: a block that met no fault proves nothing. When the user's code raised, the
faults end at once, and the verdict is a note on its error. A block that is made and never entered is an error at the
end of its test (`never_entered`).

```python
with harrow.chaos(kill(leader(orders)), duration=10) as chaos:
    while chaos.running:                    # True until the last fault is healed
        place_order()

async with harrow.chaos(kill(leader(orders))):          # the end of the block does not stop the event loop
    await place_orders()
```
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from harrow.cluster.errors import ConfigError, HarrowError
from harrow.faults.background import BackgroundNemesis
from harrow.faults.errors import NemesisError
from harrow.faults.target_checks import missing_groups
from harrow.faults.traffic_wait import REACHED_WITHIN_MS

from .. import run_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType

    from harrow.faults import Schedule, System


class RunningNemesis(Protocol):
    """What runs a schedule beside the user's code: `BackgroundNemesis`, or one on virtual time."""

    @property
    def schedule(self) -> Schedule:
        """The schedule with what was resolved so far."""
        ...

    @property
    def effects(self) -> int:
        """How many faults took effect so far."""
        ...

    @property
    def running(self) -> bool:
        """Whether faults are still to come or to be healed."""
        ...

    def start(self) -> None:
        """Begin to wait for traffic."""
        ...

    def await_begun(self) -> None:
        """Return when each fault took effect, or waits for the request at which it acts; or after a failure."""
        ...

    def finish(self) -> bool:
        """Let the schedule end by itself; False when it did not in time."""
        ...

    def finish_soon(self) -> None:
        """The same, without waiting for it."""
        ...

    def stop_soon(self) -> None:
        """Fire no further step and heal every fault, without waiting for it."""
        ...

    def stop(self) -> None:
        """Fire no further step, heal every fault; NemesisError names the failures, once."""
        ...


REACHED_WITHIN_S = REACHED_WITHIN_MS / 1000
VIRTUAL_POLL_S = 0.005
NAMED_MOST = 3
"""Faults that an error names."""
HOW = "with harrow.chaos(…):, or async with harrow.chaos(…):"


class Chaos:
    """One block of faults; made by `Harrow.chaos`, used by `with` or `async with`.

    The end of the block raises NemesisError for a fault that did not take effect, never fired or was not healed, and
    for a consumer group of a target that does not exist.
    """

    def __init__(
        self,
        system: System,
        schedule: Schedule,
        folder: Path,
        *,
        groups: Callable[[], Iterable[str]],
        on_error: Callable[[Exception], None],
        on_end: Callable[[Schedule], None],
        reached_within: float = REACHED_WITHIN_S,
        must_inject: bool = True,
        nemesis: Callable[..., RunningNemesis] = BackgroundNemesis,
    ) -> None:
        """`groups` returns the consumer groups of the cluster.

        `reached_within`: how many seconds of traffic a fault waits for its request. `must_inject`: whether a block in
        which no fault took effect is an error. `nemesis` makes what runs the schedule.
        """
        self._new_nemesis = partial(
            nemesis,
            system,
            schedule,
            log=folder / run_folder.FAULTS,
            reached_within_ms=round(reached_within * 1000),
        )
        self._nemesis = self._new_nemesis()
        self._must_inject = must_inject
        self._entered = False
        self._groups = groups
        self._on_error = on_error
        self._on_end = on_end

    @property
    def schedule(self) -> Schedule:
        """The planned schedule with everything that was resolved so far: brokers, durations, times."""
        return self._nemesis.schedule

    @property
    def effects(self) -> int:
        """How many faults took effect so far, each proved by a probe."""
        return self._nemesis.effects

    @property
    def running(self) -> bool:
        """Whether faults are still to come or to be healed.

        `while chaos.running:` is the loop for traffic that must meet every fault. It is True before the first traffic,
        so a loop that sends nothing does not end.
        """
        return self._nemesis.running

    @property
    def never_entered(self) -> str:
        """Why the block injects nothing: it was made, and not entered; else empty."""
        if self._entered:
            return ""
        return (
            f"{self._named()} was made and never entered, so no fault was injected; write {HOW} "
            "with the traffic inside the block"
        )

    def abandon(self) -> list[str]:
        """Heal the cluster after a block that was entered and not left; return why its test must fail."""
        failures = [f"{self._named()} was entered and never left; write {HOW}"]
        try:
            self._nemesis.stop()
        except NemesisError as problem:
            failures.append(str(problem))
        self._on_end(self._nemesis.schedule)
        return failures

    def _named(self) -> str:
        steps = self.schedule.steps
        more = ", …" if len(steps) > NAMED_MOST else ""
        return f"harrow.chaos({', '.join(str(step.fault) for step in steps[:NAMED_MOST])}{more})"

    def inject(self) -> None:
        """Enter the block and inject its faults at once, without waiting for traffic; `heal` ends the block.

        It returns when each fault took effect, or waits for the request at which it acts.
        """
        self._enter()
        self._nemesis = self._new_nemesis(has_traffic=lambda: True)
        self._nemesis.start()
        self._nemesis.await_begun()

    def heal(self) -> None:
        """Heal every fault, and end a block that `inject` began; NemesisError for a fault without effect."""
        try:
            self._nemesis.stop()
        finally:
            self._on_end(self._nemesis.schedule)

    def _enter(self) -> None:
        if self._entered:
            raise ConfigError(
                "a chaos block runs once, and this one was entered before; make another: with harrow.chaos(…):"
            )
        self._entered = True

    def __enter__(self) -> Self:
        self._enter()
        self._nemesis.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._nemesis.finish()
            self._nemesis.stop()
            if error is None:
                self._check_effects()
                self._check_groups()
        except NemesisError as problem:
            if error is None:
                raise
            error.add_note(f"harrow: {problem}")
        except BaseException as interrupt:  # such as a timeout of the test while its faults end
            self._heal_after(interrupt)
            raise
        finally:
            self._on_end(self._nemesis.schedule)
            if isinstance(error, Exception):
                self._on_error(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(self._nemesis, BackgroundNemesis):
            await self._virtual_end(error)
            self.__exit__(kind, error, trace)
            return
        ending = asyncio.ensure_future(asyncio.to_thread(self.__exit__, kind, error, trace))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError as cancelled:
            self._nemesis.stop_soon()
            await asyncio.wait([ending])  # the cluster is healed also when the task is cancelled
            if (problem := ending.exception()) is not None:
                cancelled.add_note(f"harrow: {problem}")
            raise

    async def _virtual_end(self, error: BaseException | None) -> None:
        """Wait on virtual time until every fault ran to its end, or is healed after an error, without a thread."""
        if error is None:
            self._nemesis.finish_soon()
        else:
            self._nemesis.stop_soon()
        while self._nemesis.running:  # noqa: ASYNC110 - it is no event of asyncio's
            await asyncio.sleep(VIRTUAL_POLL_S)

    def _heal_after(self, error: BaseException) -> None:
        try:
            self._nemesis.stop()
        except NemesisError as problem:
            error.add_note(f"harrow: {problem}")

    def _check_effects(self) -> None:
        """Raise NemesisError when no fault took effect: steps that are not required may all have been left out."""
        if self._must_inject and not self.effects:
            raise NemesisError(
                f"no fault took effect in this block: its {len(self.schedule.steps) or 'planned'} steps are not "
                "required, and the block ended before one fired; let it last: while chaos.running:"
            )

    def _check_groups(self) -> None:
        """Raise NemesisError when a target names a consumer group that does not exist: the fault hit some broker."""
        faults = [step.fault for step in self.schedule.steps if step.fault.target.group is not None]
        if not faults:
            return
        try:
            missing = missing_groups(faults, self._groups())
        except HarrowError as error:
            missing = [str(error)]
        if missing:
            raise NemesisError("; ".join(missing))
