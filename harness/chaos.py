"""`harrow.chaos(…)`: faults in the background of a block of the user's code.

When the block ends, each planned fault runs to its end (within a bound), everything is healed, and a fault that did not
take effect is an error: a block that met no fault proves nothing. When the user's code raised, the faults end at once,
and the verdict is a note on its error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from harrow.faults.background import BackgroundNemesis
from harrow.faults.errors import NemesisError

from . import run_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from harrow.faults import Schedule, System

FINISH_TIMEOUT_S = 120.0


class Chaos:
    """One block; made by `Harrow.chaos`."""

    def __init__(
        self,
        system: System,
        schedule: Schedule,
        folder: Path,
        *,
        on_error: Callable[[Exception], None],
        on_end: Callable[[Schedule], None],
    ) -> None:
        self._nemesis = BackgroundNemesis(system, schedule, log=folder / run_folder.FAULTS)
        self._on_error = on_error
        self._on_end = on_end

    @property
    def schedule(self) -> Schedule:
        """What was planned, with what was resolved so far."""
        return self._nemesis.schedule

    @property
    def effects(self) -> int:
        """How many faults took effect so far."""
        return self._nemesis.effects

    @property
    def running(self) -> bool:
        """Whether faults are still to come or to be healed."""
        return self._nemesis.running

    def __enter__(self) -> Self:
        self._nemesis.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._nemesis.finish(FINISH_TIMEOUT_S)
            self._nemesis.stop()
        except NemesisError as problem:
            if error is None:
                raise
            error.add_note(f"harrow: {problem}")
        finally:
            self._on_end(self._nemesis.schedule)
            if isinstance(error, Exception):
                self._on_error(error)
