"""The error response of each API: one error code, at the place of the response where Apache Kafka gives it.

Owns: `refusal`, `refusal_bytes`, `struck_bytes`. Some APIs have one error at the top of the response, others an error
for each topic, partition, group or resource of the request (`response_items.py`). Identities (names, ids, indexes) are
copied from the request's item; every other field has its neutral value or, as in Kafka's `getErrorResponse`, -1.

An error at the top has no items below. An error in an item that the request does not name (all topics, all offsets of a
group) is at the next place above. `SERVED` has the codes that come with a response that a broker must make: brokers and
controller of a Metadata response, the directories of DescribeLogDirs. Such a request is served, and `struck_bytes` puts
the error into its response.

May fail: `WireError` for a request or a response that does not decode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ErrorCode
from . import messages
from .api_errors import ALL, LOG_DIR, PARTITION, TOP, TOPIC, place_of, whole_place
from .api_keys import ApiKey
from .error_versions import code_at
from .response_items import IDENTITY, MIRRORS, Mirror

__all__ = ["is_served", "refusal", "refusal_bytes", "struck_bytes"]

# The fields that name an item, in requests and in responses.
_IDENTITIES = (
    "name",
    "topic",
    "topic_id",
    "index",
    "partition",
    "partition_index",
    "group_id",
    "transactional_id",
    "producer_id",
    "resource_type",
    "resource_name",
    "member_id",
    "group_instance_id",
    "entity_type",
    "entity_name",
)
_TOP: dict[int, Mapping[str, Any]] = {
    ApiKey.FIND_COORDINATOR: {"node_id": -1, "port": -1},
    ApiKey.INIT_PRODUCER_ID: {"producer_id": -1, "producer_epoch": -1},
    ApiKey.END_TXN: {"producer_id": -1, "producer_epoch": -1},
    ApiKey.JOIN_GROUP: {"generation_id": -1},
}
"""Fields at the top of a response whose value for "none" is not zero."""

SERVED: Mapping[int, frozenset[str]] = {
    ApiKey.METADATA: frozenset((TOPIC, PARTITION)),
    ApiKey.DESCRIBE_LOG_DIRS: frozenset((LOG_DIR,)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: frozenset((PARTITION,)),
}
"""The places of errors that a request must be served for."""
_NO_LEADER = {"leader_id": -1}


def refusal(api_key: int, version: int, request: Any, code: ErrorCode, message: str = "", *, place: str = "") -> Any:
    """The response entity with `code` at `place` of the entity `request`; without one, as where all of it failed."""
    s = messages.schema(api_key, version, "response")
    mirrors = [row for row in MIRRORS.get(api_key, ()) if _list_of(request, row) is not None]
    place = _place_in(api_key, version, place or whole_place(api_key, version), mirrors)
    values: dict[str, Any] = dict(_TOP.get(api_key, {}))
    text = message or None
    error = _Error(code, text, place)
    in_items = False
    for mirror in mirrors if place != TOP else ():
        in_items = _add_mirrored_list(s, mirror, request, error, values) or in_items
    if place in (ALL, TOP) or not in_items:
        values |= {"error_code": code, "error_message": text}
    return s.root(**values)


def refusal_bytes(api_key: int, version: int, frame: bytes, body_at: int, code: int) -> bytes:
    """The body of the response that refuses a request with `code`, as Kafka gives it in this version."""
    given = code_at(api_key, version, code)
    if api_key == ApiKey.API_VERSIONS and given is ErrorCode.unsupported_version:
        version = 0  # a client that asked in an unknown version reads this one (KIP-511)
        entity = None
    else:
        entity = messages.request_reader(api_key, version)(frame, body_at)[0]
    response = refusal(api_key, version, entity, given, place=place_of(api_key, given))
    return messages.encode(messages.response_writer(api_key, version), response)


def is_served(api_key: int, version: int, code: int) -> bool:
    """True where the error belongs into a response that only a broker that serves the request can make."""
    given = code_at(api_key, version, code)
    return place_of(api_key, given) in SERVED.get(api_key, ())


def struck_bytes(api_key: int, version: int, body: bytes, code: int) -> bytes:
    """The body of a response that a broker made (`is_served`), with `code` in each item of its place."""
    given = code_at(api_key, version, code)
    place = place_of(api_key, given)
    response = messages.decode_response(api_key, version, body)
    name = "results" if place == LOG_DIR else "topics"
    struck = tuple(_struck(row, place, given) for row in getattr(response, name))
    changed = dataclasses.replace(response, **{name: struck})
    return messages.encode(messages.response_writer(api_key, version), changed)


def _struck(row: Any, place: str, code: ErrorCode) -> Any:
    """An item of a response that was served: with the error instead of what is below it."""
    if place == PARTITION and row.partitions:
        partitions = tuple(
            dataclasses.replace(partition, error_code=code, **_NO_LEADER) for partition in row.partitions
        )
        return dataclasses.replace(row, partitions=partitions)
    below = "topics" if place == LOG_DIR else "partitions"
    return dataclasses.replace(row, error_code=code, **{below: ()})


@dataclass(frozen=True, slots=True)
class _Error:
    code: ErrorCode
    message: str | None
    place: str


def _place_in(api_key: int, version: int, place: str, mirrors: Sequence[Mirror]) -> str:
    """The place that this version has: `place`, else the top, else every item."""
    if place == ALL or (place != TOP and any(place in _places(row) for row in mirrors)):
        return place
    names = {row.name for row in dataclasses.fields(messages.response_type(api_key, version))}
    return TOP if "error_code" in names or not mirrors else ALL


def _places(mirror: Mirror) -> Iterator[str]:
    yield mirror.place
    if mirror.inner is not None:
        yield from _places(mirror.inner)


def _list_of(request: Any, mirror: Mirror) -> Iterable[Any] | None:
    """The items that the request names; None where this version of it has no such list."""
    rows: list[Any] = [request]
    for name in mirror.request_list.split():
        if not all(hasattr(row, name) for row in rows):
            return None
        rows = [item for row in rows for item in getattr(row, name) or ()]
    return rows


def _add_mirrored_list(s: messages.Schema, mirror: Mirror, request: Any, error: _Error, into: dict[str, Any]) -> bool:
    """Add the response's list to `into`; False where no item of it has the error."""
    make = getattr(s, mirror.item)
    items: list[Any] = []
    has_error = False
    for item in _list_of(request, mirror) or ():
        values: dict[str, Any] = {**mirror.fill, **_identities(item, mirror)}
        here, below = error.place in (ALL, mirror.place), False
        inner = mirror.inner
        if inner is not None and (error.place != mirror.place or inner.place == IDENTITY):
            below = _add_mirrored_list(s, inner, item, error, values)
        if here or not below:  # the request names nothing below: the error is here
            values |= {mirror.error: error.code, "error_message": error.message}
        made = make(**values)
        has_error = has_error or below or hasattr(made, mirror.error)
        items.append(made)
    known = (*into.get(mirror.response_list, ()), *items)
    if mirror.once_by:
        by_name = {getattr(item, mirror.once_by): item for item in known}
        known = tuple(by_name[name] for name in sorted(by_name))
    into[mirror.response_list] = known
    return has_error


def _identities(item: Any, mirror: Mirror) -> dict[str, Any]:
    if mirror.key:
        return {mirror.key: item}
    found = {name: getattr(item, name) for name in _IDENTITIES if hasattr(item, name)}
    found |= {to: found[name] for name, to in mirror.renamed.items() if name in found}
    if "partition" in found:
        found["partition_index"] = found["partition"]
    return found
