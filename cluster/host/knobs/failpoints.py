"""Named places in the code that a fault may arm (K6): `Failpoints` of the seam.

Owns: which failpoints are armed in this process (their names: `DECLARED` in `seam/failpoints.py`). While nothing is
armed, a `hit` costs one look-up in an empty dict. The n-th hit of an armed failpoint acts once:

    crash   SIGKILL to this process: no handler runs, nothing is flushed
    stop    SIGSTOP to this process: it is paused here until SIGCONT
    delay   the whole process waits `delay_ms` here
    error   raises FailpointError here

The event `failpoint.fired` is written before it acts, so that a crash has its evidence on disk.
Whose idea: FreeBSD fail(9), etcd's gofail.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, HarrowError
from ...events.processes import FailpointFired
from ..seam import Trace
from ..seam.failpoints import DECLARED
from .rules import RuleId

ACTIONS = ("crash", "stop", "delay", "error")


class FailpointError(HarrowError):
    """Raised where a failpoint was armed with `error`."""


@dataclass(slots=True, kw_only=True)
class Armed:
    """One armed failpoint: the action of its n-th hit, its hits and effects so far."""

    name: str
    action: str
    nth: int
    delay_ms: int
    hits: int = 0
    fired: int = 0


class RealFailpoints:
    """The failpoints of this process."""

    __slots__ = ("_all", "_live", "_trace")

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._live: dict[str, Armed] = {}
        self._all: dict[str, Armed] = {}

    def hit(self, name: str) -> None:
        """While `name` is not armed: nothing. Armed: crash, stop, delay or FailpointError."""
        armed = self._live.get(name)
        if armed is not None:
            self._fire(armed)

    def arm(self, name: str, action: str, *, nth: int = 1, delay_ms: int = 0) -> None:
        """Make the n-th hit from now on act once; ConfigError for an unknown name or action."""
        if name not in DECLARED:
            raise ConfigError(f"no failpoint {name!r}; there are {', '.join(sorted(DECLARED))}")
        if action not in ACTIONS:
            raise ConfigError(f"failpoint action {action!r}: expected one of {', '.join(ACTIONS)}")
        if nth < 1 or delay_ms < 0:
            raise ConfigError(f"failpoint {name}: nth={nth} must be ≥ 1, delay_ms={delay_ms} ≥ 0")
        armed = Armed(name=name, action=action, nth=nth, delay_ms=delay_ms)
        self._live[name] = self._all[name] = armed

    def disarm(self, name: str) -> bool:
        """Disarm a failpoint; True when it was armed and had not fired."""
        return self._live.pop(name, None) is not None

    def report(self) -> list[dict[str, Any]]:
        """The failpoints that were armed in this process: hits while armed, effects, whether still armed."""
        return [
            {
                "id": a.name,
                "name": a.name,
                "action": a.action,
                "nth": a.nth,
                "hits": a.hits,
                "fired": a.fired,
                "armed": self._live.get(a.name) is a,
            }
            for a in self._all.values()
        ]

    def _fire(self, armed: Armed) -> None:
        armed.hits += 1
        if armed.hits < armed.nth:
            return
        assert armed.hits == armed.nth, f"{armed} was due earlier"
        assert not armed.fired, f"{armed} acts a second time"
        del self._live[armed.name]
        armed.fired += 1
        self._trace.emit(FailpointFired(name=armed.name, action=armed.action, hit=armed.hits))
        if armed.action == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        elif armed.action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif armed.action == "delay":
            time.sleep(armed.delay_ms / 1000)
        else:
            raise FailpointError(f"failpoint {armed.name} was armed with error")

    # ---------------------------------------------------------------- control

    def add(self, fields: Mapping[str, Any]) -> str:
        """Arm a failpoint; its id is its name."""
        name = str(fields["name"])
        self.arm(name, str(fields["action"]), nth=int(fields.get("nth", 1)), delay_ms=int(fields.get("delay_ms", 0)))
        return name

    def remove(self, rule_id: RuleId | None) -> None:
        """Disarm one failpoint, or all."""
        for name in list(self._live) if rule_id is None else [str(rule_id)]:
            self.disarm(name)
