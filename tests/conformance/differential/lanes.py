"""Lanes: cases that run at the same time, and which of them must run alone.

Owns: `Gate`, which lets many cases in or one alone, `must_be_alone` and `names_the_empty_id`. A lane has connections
and a world of its own, so a case sees another lane's only where it changes what the whole cluster has: the settings of
brokers, default quotas, ACLs, the leaders of all partitions; and in the group "", whose name cannot be made a case's
own. Nothing here fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

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
        self._empty_id = threading.Lock()

    @contextmanager
    def of(self, case: Case, *, alone: bool = False) -> Generator[None]:
        """Lets a case in: alone if it must be or `alone` asks for it, and no two cases with an empty id at once."""
        with ExitStack() as held:
            if names_the_empty_id(case):
                held.enter_context(self._empty_id)  # before the gate: no case waits for it inside
            held.enter_context(self.alone() if alone or must_be_alone(case) else self.shared())
            yield

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
    return any(OF_THE_CLUSTER[step.api](step.body) for step in targets if step.api in OF_THE_CLUSTER)


def names_the_empty_id(case: Case) -> bool:
    """True when a step names the group "" or the transactional id ""."""
    return any(_has_empty_id(step.body, "") for step in case.steps)


def _has_empty_id(value: Json, name: str) -> bool:
    if is_struct(value):
        return any(_has_empty_id(each, key.lower()) for key, each in value.items())
    if is_rows(value):
        return any(_has_empty_id(each, name) for each in value)
    return value == "" and any(part in name for part in ("group", "transactionalid", "key"))


def _other_settings(body: Json) -> bool:
    rows = _rows(body, "resources")
    return any(row.get("resourceType") not in OF_CASES for row in rows)


def _default_quotas(body: Json) -> bool:
    entities = [each for row in _rows(body, "entries") for each in _rows(row, "entity")]
    return any(each.get("entityName") is None for each in entities)


def _all_leaders(body: Json) -> bool:
    return body.get("topicPartitions") is None


def _always(_body: Json) -> bool:
    return True  # a filter with an edge value removes the ACLs of other cases


def _rows(body: Json, name: str) -> list[dict[str, Json]]:
    rows = body.get(name)
    return [row for row in rows if is_struct(row)] if is_rows(rows) else []


OF_THE_CLUSTER: dict[str, Callable[[Json], bool]] = {
    "AlterConfigs": _other_settings,
    "IncrementalAlterConfigs": _other_settings,
    "AlterClientQuotas": _default_quotas,
    "ElectLeaders": _all_leaders,
    "DeleteAcls": _always,
}
