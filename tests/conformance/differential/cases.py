"""A case: the requests that both systems get, one after the other, as plain JSON values.

Owns: `Step` and `Case`, their JSON form (what `--replay` reads), and what stands in a body for a value that a system
only says later or that JSON lacks:

    "~" and "%" in a string             the number of the world, and of the case: names are new in each
    {"$ref": [step, "a.0.b"]}           a field of that step's response (-1 when it has none)
    {"$topicId": "one~"}                the id that the system gave this topic
    {"$time": 5}                        5 ms after the time of all records
    {"$hex": "ff", "$name": "%"}        bytes, also in the place of a string, and behind them a name
    {"$batches": [description, …], "tail": hex}     record batches, see `batches.py`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeGuard

Json = Any

TRANSIENT = (14, 15, 16, 19, 51)
"""Errors that end by themselves: coordinator loads, is not there, has moved; transaction is being ended, which old
versions of Produce report as NOT_ENOUGH_REPLICAS."""
NEW_TOPIC = (3, 5, 6, 72, 100)
"""Errors of a topic that a broker does not know yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A request to `node` over the connection `client`; its response is compared unless `role` is `cleanup`.

    `role`: `setup` prepares and is repeated while its error is transient, `target` is the request under test, `probe`
    reads the state that the target left, `cleanup` removes what the case made and is not compared. With `later`, the
    response is taken by the next step of that client. A step is repeated until an error code is `until`, until the
    list at the path `until_empty` of its response is empty, and until the list at the path `until_filled` is not.
    """

    api: str
    version: int
    body: dict[str, Json]
    node: int = 1
    client: int = 0
    role: str = "setup"
    cut: int = 0
    tail: str = ""
    later: bool = False
    until: int | None = None
    until_empty: str = ""
    until_filled: str = ""

    @property
    def transient(self) -> tuple[int, ...]:
        """Error codes after which the request is repeated for a while."""
        return (*TRANSIENT, *NEW_TOPIC) if self.role == "setup" else TRANSIENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The steps, and what was changed in words."""

    steps: tuple[Step, ...]
    note: str = ""
    origin: str = ""
    changes: tuple[Change, ...] = field(default=())

    @property
    def target(self) -> int:
        """The number of the first step under test."""
        return next((i for i, step in enumerate(self.steps) if step.role == "target"), 0)

    def to_json(self) -> Json:
        """Returns what `from_json` reads."""
        return {"note": self.note, "origin": self.origin, "steps": [asdict(s) for s in self.steps]}

    @staticmethod
    def from_json(data: Json) -> Case:
        return Case(
            note=data.get("note", ""),
            origin=data.get("origin", ""),
            steps=tuple(Step(**each) for each in data["steps"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A field of a step that no longer has its sensible value."""

    step: int
    path: tuple[str | int, ...]
    value: Json


def is_struct(value: Json) -> TypeGuard[dict[str, Json]]:
    """True for a struct, and for what stands for a value."""
    return isinstance(value, dict)


def is_rows(value: Json) -> TypeGuard[list[Json]]:
    """True for a list of values."""
    return isinstance(value, list | tuple)


def look_up(body: Json, path: Sequence[str | int]) -> Json:
    """Returns the value at `path`; LookupError or TypeError where there is none."""
    for key in path:
        body = body[key]
    return body


def put(body: Json, path: Sequence[str | int], value: Json) -> Json:
    """Returns a copy of `body` with `value` at `path`."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if body is None or is_struct(body):  # a struct that the case leaves out has its defaults
        body = body or {}
        inner = body.get(head)
        return {**body, head: put(inner, rest, value) if rest else value}
    assert isinstance(head, int), f"{path} does not lead through a list"
    return [*body[:head], put(body[head], rest, value), *body[head + 1 :]]


def with_step(case: Case, index: int, **fields: Any) -> Case:
    """Returns a copy of `case` with other fields in one step."""
    steps = list(case.steps)
    steps[index] = replace(steps[index], **fields)
    return replace(case, steps=tuple(steps))


def apply(case: Case, change: Change) -> Case:
    """Returns a copy of `case` with one field changed."""
    step = case.steps[change.step]
    changed = with_step(case, change.step, body=put(step.body, change.path, change.value))
    return replace(changed, changes=(*case.changes, change))
