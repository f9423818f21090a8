"""Makes a case that differs as small as it can be: fewer steps, fewer rows, sensible values where the edge does not
matter.

Owns: the order of the attempts and their bound. An attempt counts when the same field of the same request still differs
with the same two values. The result is asked once more in a new world; when it does not differ there, the case stays
as it was. `Pair` is a protocol, so a unit test has a pair without Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from .cases import Case, Json, is_rows, is_struct, look_up, put
from .duel import Pair
from .message_files import Field, messages
from .mutations import places
from .normal import Difference

ATTEMPTS_MOST = 60
Differing = Callable[[list[Difference]], list[Difference]]


def smallest(pair: Pair, case: Case, wanted: Difference, attempts: int = ATTEMPTS_MOST) -> Case:
    """Returns the smallest case found that still has the difference `wanted`."""

    def still(candidate: Case) -> bool:
        return any(each.signature == wanted.signature for each in pair.compare(candidate))

    given, progress = case, True
    while progress and attempts > 0:
        progress = False
        for candidate in smaller(case):
            attempts -= 1
            if still(candidate):
                case, progress = candidate, True
                break
            if attempts <= 0:
                break
    pair.renew()
    return case if still(case) else given


def smaller(case: Case) -> Iterator[Case]:
    """Yields the cases that are one step smaller, those that remove most first."""
    yield from _with_fewer_steps(case)
    for index, step in enumerate(case.steps):
        if step.role != "target":
            continue
        for path, field in places(step):
            for value in simpler(field, _value(step.body, path, field)):
                body = put(step.body, path, value)
                steps = (*case.steps[:index], replace(step, body=body), *case.steps[index + 1 :])
                yield replace(case, steps=steps)


def _with_fewer_steps(case: Case) -> Iterator[Case]:
    """Leaves out parts of the steps, from half of them to one, with the steps that refer to what is left out."""
    total = len(case.steps)
    sizes = [1]
    while sizes[-1] * 4 <= total:
        sizes.append(sizes[-1] * 2)
    for size in reversed(sizes):
        for begin in range(total - size, -1, -size):
            removed = set(range(begin, begin + size))
            for index in range(begin + size, total):
                if any(_refers(case.steps[index].body, each) for each in removed):
                    removed.add(index)
            if len(removed) < total:
                yield without(case, removed)


def without(case: Case, removed: set[int]) -> Case:
    """Returns the case without these steps; references get the new numbers."""
    kept = [index for index in range(len(case.steps)) if index not in removed]
    numbers = {old: new for new, old in enumerate(kept)}
    steps = (replace(case.steps[each], body=_moved(case.steps[each].body, numbers)) for each in kept)
    return replace(case, steps=tuple(steps))


def _refers(body: Json, index: int) -> bool:
    if is_struct(body):
        if "$ref" in body:
            return bool(body["$ref"][0] == index)
        return any(_refers(each, index) for each in body.values())
    return is_rows(body) and any(_refers(each, index) for each in body)


def _moved(body: Json, numbers: Mapping[int, int]) -> Json:
    """Returns the body with each reference to the step's new number."""
    if is_struct(body):
        if "$ref" in body:
            return {**body, "$ref": [numbers[body["$ref"][0]], body["$ref"][1]]}
        return {key: _moved(each, numbers) for key, each in body.items()}
    return [_moved(each, numbers) for each in body] if is_rows(body) else body


def _value(body: Json, path: tuple[str | int, ...], field: Field) -> Json:
    for key in path:
        if is_struct(body) and key not in body:
            return field.default
        body = look_up(body, [key])
    return body


def simpler(field: Field, value: Json) -> Iterator[Json]:
    """Yields simpler values: a list without one of its rows, the default of the field, one record of a batch."""
    if field.kind == "records":
        yield from _simpler_records(value)
    elif field.is_array and is_rows(value):
        for index in range(len(value)):
            yield [*value[:index], *value[index + 1 :]]
    elif not field.fields and _text(value) != _text(field.default):
        yield field.default


def _simpler_records(value: Json) -> Iterator[Json]:
    if not is_struct(value) or "$batches" not in value:
        return
    batches = value["$batches"]
    for index in range(len(batches)):
        if len(batches) > 1:
            yield {**value, "$batches": [*batches[:index], *batches[index + 1 :]]}
        for name in batches[index]:
            kept = {key: each for key, each in batches[index].items() if key != name}
            yield {**value, "$batches": [*batches[:index], kept, *batches[index + 1 :]]}
        records = batches[index].get("records", [])
        for at in range(len(records)):
            fewer = {**batches[index], "records": [*records[:at], *records[at + 1 :]]}
            if len(records) > 1:
                yield {**value, "$batches": [*batches[:index], fewer, *batches[index + 1 :]]}
            for name in records[at]:
                record = {key: each for key, each in records[at].items() if key != name}
                plain = {**batches[index], "records": [*records[:at], record, *records[at + 1 :]]}
                yield {**value, "$batches": [*batches[:index], plain, *batches[index + 1 :]]}


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def as_sent(case: Case) -> list[str]:
    """Returns a line for each step of a case: what a person reads first."""
    lines: list[str] = []
    for step in case.steps:
        message = messages()[f"{step.api}Request"]
        body = {
            field.name: step.body[field.name]
            for field in message.fields
            if field.name in step.body and step.version in field.versions
        }
        damage = f" without its last {step.cut} bytes" if step.cut else ""
        damage += f" with bytes {step.tail} behind it" if step.tail else ""
        lines.append(f"{step.role:6} {step.api} v{step.version} to {step.node}{damage}: {_text(body)}")
    return lines
