"""What a request is about: the topics, partitions, groups and transactional ids that it names.

Owns: `request_facts`, for faults that choose requests by what they are about (`host/knobs/request_where.py`), and
`facts_of_api`, which of these an API can name. A request is walked by the names of its fields, which are the same in
all versions of all APIs: nothing here is on the way of a request while no such fault is armed.

A topic that a request names by its id counts under its name, as far as the broker knows it. A Fetch of a session counts
with all partitions of the session; the `scope` of the broker or the proxy knows both.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from ..errors import WireError
from ..host.seam import RequestBody, RequestFacts
from . import messages
from .api_keys import ApiKey
from .topic_ids import UUID

__all__ = ["NO_SCOPE", "RequestScope", "facts_of_api", "request_facts"]

_GROUPS = frozenset(("group_id", "group_ids", "groups_names"))
_TRANSACTIONS = frozenset(("transactional_id", "transactional_ids", "v3_and_below_transactional_id"))
_TOPIC_LISTS = frozenset(
    ("topics", "topic_data", "topic_partitions", "v3_and_below_topics", "topic_states", "ungrouped_partition_states")
)
_TOPIC_NAMES = frozenset(("topic_names", "subscribed_topic_names"))
_PARTITION_LISTS = ("partitions", "partition_data", "partition_indexes", "partition_states")
_TOPIC, _PARTITION, _GROUP, _TRANSACTION = "topic", "partition", "group", "transactional_id"
_GROUP_KEY, _TRANSACTION_KEY, _TOPIC_RESOURCE = 0, 1, 2


class RequestScope(Protocol):
    """What a broker or a proxy knows beside the request."""

    def topic_name(self, topic_id: UUID, /) -> str | None:
        """Return the name of a topic; None where it is not known."""
        ...

    def session_partitions(self, session_id: int, /) -> Iterable[tuple[str | UUID, int]]:
        """Return the partitions of a fetch session; empty for one that is not known."""
        ...


class _NoScope:
    def topic_name(self, topic_id: UUID, /) -> str | None:
        """Nothing is known."""
        del topic_id
        return None

    def session_partitions(self, session_id: int, /) -> Iterable[tuple[str | UUID, int]]:
        """Nothing is known."""
        del session_id
        return ()


NO_SCOPE: RequestScope = _NoScope()


Partition = tuple[str | UUID, int]


@dataclass(slots=True)
class _Found:
    topics: list[str | UUID] = dataclasses.field(default_factory=list[str | UUID])
    partitions: list[Partition] = dataclasses.field(default_factory=list[Partition])
    groups: list[str] = dataclasses.field(default_factory=list[str])
    transactions: list[str] = dataclasses.field(default_factory=list[str])


def request_facts(request: RequestBody, scope: RequestScope) -> RequestFacts:
    """Return what a request is about; nothing for one that does not decode."""
    try:
        reader = messages.request_reader(request.api_key, request.version)
        entity: Any = reader(request.frame, request.body_at)[0]
    except WireError:
        return RequestFacts()
    found = _Found()
    _walk(entity, found)
    if request.api_key == ApiKey.FETCH and getattr(entity, "session_epoch", -1) > 0:
        found.partitions += scope.session_partitions(entity.session_id)
    elif request.api_key == ApiKey.FIND_COORDINATOR:
        _coordinator_keys(entity, found)

    def name(topic: str | UUID) -> str:
        return topic if isinstance(topic, str) else scope.topic_name(topic) or str(topic)

    partitions = frozenset((name(topic), index) for topic, index in found.partitions)
    topics = frozenset(name(topic) for topic in found.topics) | {topic for topic, _ in partitions}
    return RequestFacts(topics, partitions, frozenset(found.groups), frozenset(found.transactions))


def _walk(entity: Any, found: _Found) -> None:
    for row in dataclasses.fields(entity):
        value = getattr(entity, row.name)
        if row.name in _GROUPS:
            found.groups += _texts(value)
        elif row.name in _TRANSACTIONS:
            found.transactions += _texts(value)
        elif row.name in _TOPIC_NAMES:
            found.topics += _texts(value)
        else:
            items = _items(value)
            if row.name == "groups":
                found.groups += [item for item in items if isinstance(item, str)]
            for item in items:
                if row.name in _TOPIC_LISTS:
                    _add_topic(item, found)
                if dataclasses.is_dataclass(item):
                    _add_resource(item, found)
                    _walk(item, found)


def _texts(value: Any) -> list[str]:
    """The names in a field: one, several, or none."""
    return [str(row) for row in _items(value) or (value,) if isinstance(row, str)]


def _items(value: Any) -> Iterable[Any]:
    """The items of a field that is a list; none else."""
    return value if issubclass(type(value), tuple) else ()


def _add_topic(item: Any, found: _Found) -> None:
    names = (getattr(item, field, None) for field in ("name", "topic", "topic_name", "topic_id"))
    topic: str | UUID | None = next((name for name in names if name), None)
    if topic is None:
        return
    topic = topic if isinstance(topic, UUID) else str(topic)
    found.topics.append(topic)
    for field in _PARTITION_LISTS:
        for row in getattr(item, field, None) or ():
            index = _index_of(row)
            if index is not None:
                found.partitions.append((topic, index))


def _index_of(row: Any) -> int | None:
    if isinstance(row, int):
        return int(row)
    fields = ("index", "partition", "partition_index")
    return next((int(getattr(row, name)) for name in fields if hasattr(row, name)), None)


def _add_resource(item: Any, found: _Found) -> None:
    """A resource of an admin's request that is a topic."""
    if getattr(item, "resource_type", None) == _TOPIC_RESOURCE:
        found.topics.append(str(item.resource_name))


def _coordinator_keys(entity: Any, found: _Found) -> None:
    keys = getattr(entity, "coordinator_keys", None) or (getattr(entity, "key", ""),)
    kind = getattr(entity, "key_type", _GROUP_KEY)
    if kind == _GROUP_KEY:
        found.groups += map(str, keys)
    elif kind == _TRANSACTION_KEY:
        found.transactions += map(str, keys)


@cache
def facts_of_api(api_key: int) -> frozenset[str]:
    """Return which fields of a predicate the requests of an API can fulfil, in any version."""
    found: set[str] = set()
    for version in messages.versions_known(api_key):
        _walk_type(messages.request_type(api_key, version), found.add)
    if api_key == ApiKey.FIND_COORDINATOR:
        found |= {_GROUP, _TRANSACTION}
    return frozenset(found)


def _walk_type(cls: Any, add: Callable[[str], None]) -> None:
    hints = typing.get_type_hints(cls)
    for row in dataclasses.fields(cls):
        inner = [part for part in _parts(hints[row.name]) if dataclasses.is_dataclass(part)]
        if row.name in _GROUPS or (row.name == "groups" and not inner):
            add(_GROUP)
        elif row.name in _TRANSACTIONS:
            add(_TRANSACTION)
        elif row.name in _TOPIC_NAMES or row.name == "resource_name":
            add(_TOPIC)
        elif row.name in _TOPIC_LISTS:
            add(_TOPIC)
            if any(field.name in _PARTITION_LISTS for part in inner for field in dataclasses.fields(part)):
                add(_PARTITION)
        for part in inner:
            _walk_type(part, add)


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in typing.get_args(hint):
        yield from _parts(part)
