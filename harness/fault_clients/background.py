"""A client in a thread of its own, as an armed rule of the fault layer: it acts until it is disarmed."""

from __future__ import annotations

import abc
import threading
from typing import Any

from harrow.cluster.errors import HarrowError
from harrow.faults.rule_kinds import RuleStatus

from ..requests.raw import StoppedError


class BackgroundClient(abc.ABC):
    """Calls `act` in a thread, then `leave`; `begin` starts it. An error of `act` is the client's failure."""

    def __init__(self, name: str) -> None:
        self.stopped = threading.Event()
        self.fired = 0
        self.facts: dict[str, Any] = {}
        self._failed = ""
        self._left = False
        self._thread = threading.Thread(target=self._run, name=f"harrow-{name}", daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    @abc.abstractmethod
    def act(self) -> None:
        """Do what the fault is about, until `stopped` is set at the latest (StoppedError)."""

    @abc.abstractmethod
    def leave(self) -> None:
        """Undo what is left; HarrowError when that is not possible now, and the next `disarm` tries again."""

    def status(self) -> RuleStatus:
        """Return what the client did; it is armed until it has left."""
        return RuleStatus(armed=not self._left, fired=self.fired, facts=dict(self.facts), failed=self._failed)

    def disarm(self) -> None:
        """Let the client end; one that could not leave tries again."""
        self.stopped.set()
        if not self._thread.is_alive() and not self._left:
            self._thread = threading.Thread(target=self._leave, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self.act()
        except StoppedError:
            pass
        except HarrowError as error:
            self._failed = str(error)
        except Exception as error:  # a bug of ours must be seen in the evidence, not on stderr of a thread
            self._failed = f"a bug in Harrow: {error!r}"
        self._leave()

    def _leave(self) -> None:
        try:
            self.leave()
            self._left = True
        except HarrowError as error:
            self.facts["not_left"] = str(error)
