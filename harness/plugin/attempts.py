"""Attempts of a test: which attempt a run belongs to, and what the reports say about each of them.

A test may run more than once in a process: pytest-rerunfailures runs a failed test again, `--keep-duplicates` collects
it twice. Each run is an attempt, from 1 up, with a run folder of its own (`workers.folder_name`). The n-th attempt of
a node id is counted in the worker, so plugins that start a test again need not be known here.

The user properties of an item stay when it runs again. So the properties `harrow.NAME` of an attempt that ended become
`harrow.attempt-1.NAME`, and the report of the last attempt has those of all attempts. Its own number is
`harrow.attempt`, which is absent in a first attempt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PROPERTY = "harrow."
PROPERTY_ATTEMPT = "harrow.attempt"
OF_ALL_ATTEMPTS = ("harrow.repeat", "harrow.attempt-")
"""How the properties begin that another attempt leaves as they are."""
EARLIER = re.compile(r"harrow\.attempt-(?P<attempt>\d+)\.(?P<name>.*)")
ATTEMPT = pytest.StashKey[int]()
Properties = list[tuple[str, object]]


def attempt_of(item: pytest.Item) -> int:
    """Return the number of the attempt that an item runs now, from 1 up."""
    return item.stash.get(ATTEMPT, 1)


def begin_attempt(item: pytest.Item, counts: dict[str, int]) -> int:
    """Count an attempt of the item's node id in `counts`, and keep the properties of the attempt before it."""
    before = item.stash.get(ATTEMPT, None)
    number = counts[item.nodeid] = counts.get(item.nodeid, 0) + 1
    assert before is None or number > before, f"attempt {number} of {item.nodeid} follows attempt {before}"
    item.stash[ATTEMPT] = number
    if before is not None:
        item.user_properties[:] = [
            (_as_earlier(name, before), value) for name, value in item.user_properties if name != PROPERTY_ATTEMPT
        ]
    if number > 1:
        item.user_properties.append((PROPERTY_ATTEMPT, str(number)))
    own = [value for name, value in item.user_properties if name == PROPERTY_ATTEMPT]
    assert own == ([str(number)] if number > 1 else []), f"{item.nodeid}: attempt {number} is reported as {own}"
    return number


def _as_earlier(name: str, attempt: int) -> str:
    if not name.startswith(PROPERTY) or name.startswith(OF_ALL_ATTEMPTS):
        return name
    return f"{PROPERTY_ATTEMPT}-{attempt}.{name.removeprefix(PROPERTY)}"


def number_in(properties: Properties) -> int:
    """Return the attempt whose report has these properties."""
    return next((int(str(value)) for name, value in properties if name == PROPERTY_ATTEMPT), 1)


def properties_by_attempt(properties: Properties) -> Iterator[tuple[int, str, str]]:
    """Yield Harrow's properties among those of a report: the attempt, the name without `harrow.`, the value."""
    own = number_in(properties)
    for name, value in properties:
        if earlier := EARLIER.fullmatch(name):
            yield int(earlier["attempt"]), earlier["name"], str(value)
        elif name.startswith(PROPERTY):
            yield own, name.removeprefix(PROPERTY), str(value)


def named(nodeid: str, attempt: int, attempts: int) -> str:
    """Return the node id, with the attempt where there is more than one."""
    return f"{nodeid} (attempt {attempt} of {attempts})" if attempts > 1 else nodeid
