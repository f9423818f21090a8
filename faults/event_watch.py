"""Which events of a schedule have happened: what the nemesis notes of its steps, and what the cluster shows (K9).

Owns: `EventWatch`, the progress of one run. What may fail: nothing; while the cluster does not respond, no event of a
partition happens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from harrow.cluster.errors import HarrowError
from harrow.cluster.view import ClusterView

from .events import BEGAN, HEALED, TOOK_EFFECT, Event, Progress
from .schedule import ScheduledFault
from .system import System

FIRST_TRAFFIC = ""


class EventWatch:
    """Looks for the events that the steps of a schedule wait for."""

    def __init__(self, system: System, steps: Sequence[ScheduledFault]) -> None:
        self._system = system
        self._progress = Progress()
        self._over: set[str] = set()
        """Steps that are healed, or never fire."""
        self._happened_ms: dict[str, int] = {}
        """When everything that a step waits for had happened, by its id."""
        self._since = {e.step for s in steps for e in (*s.after, *s.until) if not e.of_step}
        """Steps whose leader at their effect some event is compared with."""

    def traffic_began(self, view: ClusterView | None) -> None:
        """The first traffic was seen. `view`: the last one that is known."""
        self._note_view(FIRST_TRAFFIC, view)

    def began(self, step: str) -> None:
        """The fault of a step was injected."""
        assert step not in self._over, f"step {step} begins after its end"
        self._progress.steps.add((BEGAN, step))

    def took_effect(self, step: str, view: ClusterView | None) -> None:
        """The effect of a step was proved. `view`: the last one that is known."""
        assert (BEGAN, step) in self._progress.steps, f"step {step} has an effect and was not injected"
        self._progress.steps.add((TOOK_EFFECT, step))
        self._note_view(step, view)

    def healed(self, step: str) -> None:
        """A step is healed."""
        assert (BEGAN, step) in self._progress.steps, f"step {step} is healed and was not injected"
        self._progress.steps.add((HEALED, step))
        self.is_over(step)

    def is_over(self, step: str) -> None:
        """Nothing more happens to a step: it is healed, or it never fires."""
        assert step not in self._over, f"step {step} ends twice"
        self._over.add(step)

    def due_ms(self, step: ScheduledFault, now_ms: int) -> int | None:
        """Return when a step that waits for events may fire; None while some event has not happened."""
        if step.id not in self._happened_ms and self._all_happened(step.after):
            self._happened_ms[step.id] = now_ms
        since_ms = self._happened_ms.get(step.id)
        assert since_ms is None or since_ms <= now_ms, f"the events of step {step.id} happen at {since_ms}, after now"
        return None if since_ms is None else since_ms + step.at_ms

    def waits(self, step: ScheduledFault) -> bool:
        """Whether some event that the step waits for has not happened yet."""
        return bool(step.after) and step.id not in self._happened_ms

    def hopeless(self, step: ScheduledFault) -> str:
        """Return which event the step waits for although it cannot happen any more; empty when there is none."""
        if not self.waits(step):
            return ""
        for event in step.after:
            happened = event.happened(self._progress, None)
            if event.of_step and event.step in self._over and not happened:
                return f"it waited for {event!r}, and step {event.step} is over without that"
        return ""

    def missing(self, step: ScheduledFault) -> str:
        """Name the events that the step waits for and that have not happened."""
        view = None
        with contextlib.suppress(HarrowError):
            view = self._system.describe()
        missing = [repr(e) for e in step.after if not e.happened(self._progress, view)]
        return ", ".join(missing or map(repr, step.after))

    def ends(self, step: ScheduledFault) -> bool:
        """Whether the step heals now, because everything that its `until` names has happened."""
        return bool(step.until) and self._all_happened(step.until)

    def _note_view(self, step: str, last: ClusterView | None) -> None:
        if step not in self._since:
            return
        if last is not None:
            self._progress.views[step] = last
        with contextlib.suppress(HarrowError):  # the last known view, then
            self._progress.views[step] = self._system.describe()

    def _all_happened(self, events: Sequence[Event]) -> bool:
        if not all(event.happened(self._progress, None) for event in events if event.of_step):
            return False
        of_partitions = [event for event in events if not event.of_step]
        view = None
        if of_partitions:
            with contextlib.suppress(HarrowError):
                view = self._system.describe()
        return all(event.happened(self._progress, view) for event in of_partitions)
