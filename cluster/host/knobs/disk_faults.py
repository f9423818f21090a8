"""Disk faults (K3): rules, set over the control socket, that fail or delay system calls.

Owns: the rules armed in this process, and the number of their effects. A rule names an operation, a path pattern and
the `nth` matching call that it begins with; from there it acts `count` times (0: always, a dead disk), by an errno
(EIO, ENOSPC, EROFS, …), a delay, or both.

    operation   the calls
    write       append, write_at, truncate, replace
    sync        fsync of a file or a folder, msync of a mapping
    read        read_at, read, a range that is sent
    rename      open that creates, rename, remove, make_folder, remove_folder

A pattern matches the whole path as the broker names it (`*/data2/*`). Calls come from the loop and from the
threads beside it. Without rules a call costs one test of an empty list.

Source: Jepsen's faultfs, CharybdeFS; FreeBSD's fail(9).
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ...errors import ConfigError
from .rules import RuleId

OPERATIONS = ("write", "sync", "read", "rename")


@dataclass(slots=True, kw_only=True)
class DiskFaultRule:
    """From the `nth` call of `operation` on a path like `path`: `error` after `delay_ms`, `count` times."""

    id: int
    operation: str
    path: str
    error: str
    nth: int
    count: int
    delay_ms: int
    seen: int = 0
    fired: int = 0
    last_path: str = ""

    def spent(self) -> bool:
        """True when it has acted `count` times."""
        return 0 < self.count <= self.fired


class DiskFaults:
    """The rules of one host's disk."""

    __slots__ = ("_all", "_lock", "live")

    def __init__(self) -> None:
        self.live: list[DiskFaultRule] = []
        """Rules that may still act; usually empty."""
        self._all: dict[int, DiskFaultRule] = {}
        self._lock = threading.Lock()

    def arm(
        self, operation: str, *, path: str = "*", error: str = "EIO", nth: int = 1, count: int = 0, delay_ms: int = 0
    ) -> int:
        """Add a rule; returns its id. ConfigError for an unknown operation or error."""
        if operation not in OPERATIONS:
            raise ConfigError(f"disk operation {operation!r}: expected one of {', '.join(OPERATIONS)}")
        if error and not hasattr(errno, error):
            raise ConfigError(f"disk error {error!r}: expected EIO, ENOSPC, EROFS or another errno")
        if nth < 1 or count < 0 or delay_ms < 0 or not (error or delay_ms):
            raise ConfigError(
                f"disk fault nth={nth}, count={count}, delay_ms={delay_ms}: expected nth ≥ 1, the others "
                "≥ 0, and an error or a delay"
            )
        with self._lock:
            rule = DiskFaultRule(
                id=len(self._all) + 1,
                operation=operation,
                path=path,
                error=error,
                nth=nth,
                count=count,
                delay_ms=delay_ms,
            )
            self._all[rule.id] = rule
            self.live = [*self.live, rule]
        return rule.id

    def remove(self, rule_id: RuleId | None = None) -> None:
        """Disarm one rule, or all."""
        with self._lock:
            self.live = [rule for rule in self.live if rule_id not in (None, rule.id)]

    def check(self, operation: str, path: str) -> None:
        """Apply the first rule that is due: a delay, an OSError. Called only if `live`."""
        due: DiskFaultRule | None = None
        with self._lock:
            for rule in self.live:
                if rule.operation == operation and fnmatchcase(path, rule.path):
                    rule.seen += 1
                    if rule.seen >= rule.nth and due is None:
                        due = rule
            if due is None:
                return
            assert not due.spent(), f"{due} has acted as often as it may"
            due.fired += 1
            due.last_path = path
            if due.spent():
                self.live = [rule for rule in self.live if rule is not due]
        if due.delay_ms:
            time.sleep(due.delay_ms / 1000)
        if due.error:
            number: int = getattr(errno, due.error)
            raise OSError(number, os.strerror(number), path)

    def report(self) -> list[dict[str, Any]]:
        """Every rule of this process: matching calls, effects, and whether it may act again."""
        with self._lock:
            return [
                {
                    "id": r.id,
                    "operation": r.operation,
                    "path": r.path,
                    "error": r.error,
                    "nth": r.nth,
                    "count": r.count,
                    "delay_ms": r.delay_ms,
                    "seen": r.seen,
                    "fired": r.fired,
                    "last_path": r.last_path,
                    "armed": r in self.live,
                }
                for r in self._all.values()
            ]

    # ---------------------------------------------------------------- control

    def add(self, fields: Mapping[str, Any]) -> int:
        """Arm a rule; return its id."""
        return self.arm(
            str(fields["operation"]),
            path=str(fields.get("path", "*")),
            error=str(fields.get("error", "EIO")),
            nth=int(fields.get("nth", 1)),
            count=int(fields.get("count", 0)),
            delay_ms=int(fields.get("delay_ms", 0)),
        )
