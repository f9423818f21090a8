"""Lanes: cases that run at the same time, and which of them must run alone.

Owns: `Gate`, which lets many cases in or one alone, and `must_be_alone`. A lane has connections and a world of its own,
so a case sees another lane's only where it changes what the whole cluster has: the settings of brokers, default quotas,
the leaders of all partitions. Nothing here fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from .cases import Case, Json, is_rows, is_struct

TOPIC, GROUP = 2, 32
OF_CASES = (TOPIC, GROUP)
"""Types of resources whose settings belong to a case."""


class Gate:
    """Many holders of `shared`, or one of `alone`; who waits for `alone` goes before new holders of `shared`."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._alone = False
        self._waiting = 0

    @property
    def is_wanted(self) -> bool:
        """True while a case waits to be alone."""
        return self._waiting > 0

    @contextmanager
    def shared(self) -> Generator[None]:
        with self._condition:
            self._condition.wait_for(lambda: not self._alone and not self._waiting)
            self._inside += 1
        try:
            yield
        finally:
            with self._condition:
                self._inside -= 1
                self._condition.notify_all()

    @contextmanager
    def alone(self) -> Generator[None]:
        with self._condition:
            self._waiting += 1
            self._condition.wait_for(lambda: not self._alone and not self._inside)
            self._waiting -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._condition:
                self._alone = False
                self._condition.notify_all()


def must_be_alone(case: Case) -> bool:
    """True when the case may change what cases in other lanes see."""
    targets = [step for step in case.steps if step.role == "target"]
    return any(
        OF_THE_CLUSTER[step.api](step.body) for step in targets if step.api in OF_THE_CLUSTER
    )


def _other_settings(body: Json) -> bool:
    rows = _rows(body, "resources")
    return any(row.get("resourceType") not in OF_CASES for row in rows)


def _default_quotas(body: Json) -> bool:
    entities = [each for row in _rows(body, "entries") for each in _rows(row, "entity")]
    return any(each.get("entityName") is None for each in entities)


def _all_leaders(body: Json) -> bool:
    return body.get("topicPartitions") is None


def _rows(body: Json, name: str) -> list[dict[str, Json]]:
    rows = body.get(name)
    return [row for row in rows if is_struct(row)] if is_rows(rows) else []


OF_THE_CLUSTER: dict[str, Callable[[Json], bool]] = {
    "AlterConfigs": _other_settings,
    "IncrementalAlterConfigs": _other_settings,
    "AlterClientQuotas": _default_quotas,
    "ElectLeaders": _all_leaders,
}
