"""Requests about two resources of each type, of which the client may use one: what each item is answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from authorized_kafka import Authorized, allow, deny
from authorized_requests import OPERATIONS, SUBJECT, Asked, everything, prepare, request_of, requests_of, served
from harrow.cluster.authorizer import CLUSTER, Operation
from harrow.cluster.errors import error_name
from harrow.cluster.security.acls import Acl
from harrow.cluster.wire.api_keys import ApiKey

OTHER = "b-name"
RENAMED = {SUBJECT: OTHER, "fresh": "fresher", "absent": "more-absent"}
_IDENTITIES = ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "key", "topic_id")
_NOT_COMPARED = frozenset(("configs", "brokers", "members", "active_producers", "entries"))
"""Lists about what no permission of an item decides."""

_LEFT_OUT = {
    ApiKey.CREATE_ACLS,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
}
"""Requests that need a permission on the cluster alone: the first changes ACLs, Kafka does not respond to the second
about one producer twice, for the third see `test_acls_as_kafka.py`. The last one Kafka 4.4 leaves without a response
after some of the other requests; alone it responds."""

Items = dict[str, list[str]]
"""A line for each item of a response, with its name and its error, by the request."""


def states() -> Iterator[tuple[str, list[Acl]]]:
    """ACLs that tell the two resources apart."""
    kinds = [kind for kind in OPERATIONS if kind is not CLUSTER.type]
    yield "one is allowed", [allow(kind, Operation.ALL, SUBJECT) for kind in kinds]
    yield "a prefix is allowed", [allow(kind, Operation.ALL, SUBJECT[:2], prefixed=True) for kind in kinds]
    yield "the other is denied", [*everything(), *(deny(kind, Operation.ALL, OTHER) for kind in kinds)]
    of_cluster = everything(but=(CLUSTER.type,))
    yield "the other may not be described", [*of_cluster, *(deny(kind, Operation.DESCRIBE, OTHER) for kind in kinds)]


def _renamed(value: Any, ids: Mapping[str, UUID]) -> Any:
    if isinstance(value, str):
        return RENAMED.get(value, value)
    if value == ids[SUBJECT]:
        return ids[OTHER]
    if issubclass(type(value), tuple):
        return tuple(_renamed(item, ids) for item in value)
    if dataclasses.is_dataclass(value):
        rows = [row.name for row in dataclasses.fields(value)]
        changed: Any = dataclasses.replace
        return changed(value, **{name: _renamed(getattr(value, name), ids) for name in rows})
    return value


def mixed(asked: Asked, ids: Mapping[str, UUID]) -> Any:
    """The request of `request_of`, with a second item in each of its lists, about the other resource."""
    entity = request_of(asked, ids[SUBJECT])
    lists: dict[str, Any] = {}
    for row in dataclasses.fields(entity):
        value: Any = getattr(entity, row.name)
        if issubclass(type(value), tuple):
            lists[row.name] = tuple(dict.fromkeys((*value, *_renamed(value, ids))))
    return dataclasses.replace(entity, **lists)


def items_of(response: Any, names: Mapping[UUID, str], path: str = "") -> Iterator[str]:
    """A line for each item of a response."""
    fields = {row.name: getattr(response, row.name) for row in dataclasses.fields(response)}
    code = fields.get("error_code", fields.get("partition_error_code"))
    values = [value for name in _IDENTITIES if (value := fields.get(name)) is not None]
    identity = [names.get(value, "an id") if isinstance(value, UUID) else value for value in values]
    here = f"{path}{identity}"
    yield here if code is None else f"{here} {error_name(code)}"
    for name, value in fields.items():
        if issubclass(type(value), tuple) and name not in _NOT_COMPARED:
            for item in value:
                if dataclasses.is_dataclass(item):
                    yield from items_of(item, names, f"{here}/{name}")


def mixed_items(broker: Authorized) -> Items:
    """What each request is answered under each of the ACLs."""
    ids = {subject: prepare(broker, subject) for subject in (SUBJECT, OTHER)}
    names = {topic_id: name for name, topic_id in ids.items()}
    found: Items = {}
    versions = {api: row for api, row in served(broker).items() if api not in _LEFT_OUT}
    for state, acls in states():
        broker.give(*acls)
        with broker.client() as link:
            for asked in (row for row in requests_of(versions) if row.kind != "of brokers"):
                request = f"{state}: {asked.api.name} v{asked.version} {asked.kind}".strip()
                response = link.ask(*asked[:2], mixed(asked, ids))
                found[request] = sorted(items_of(response, names))
    return found
