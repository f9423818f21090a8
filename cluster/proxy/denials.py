"""Which operations a response of a foreign broker denies: its authorization errors, and the resources with them (A5).

Owns: `OPERATIONS`, by the type of a resource the operation that a broker asks its authorizer for before it gives the
error, and `denied_operations`. It is read while a fault counts the denied operations of a user, and never else.

An error in an item names the resource of the item. An error elsewhere, such as that of a JoinGroup, names the resource
of the request, where the request has one of that type alone; else it is not counted. Not counted are also what a broker
leaves out of a response without an error (Metadata of all topics), the creation of a topic by Metadata, and the topics
of a group that is described, or of a topology (StreamsGroupHeartbeat): no error names them.

May fail: WireError for a response that does not decode.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..errors import ErrorCode
from ..host.seam import RequestFacts
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.topic_ids import UUID

TOPIC, GROUP, TRANSACTIONAL_ID = "TOPIC", "GROUP", "TRANSACTIONAL_ID"
ERRORS: Mapping[str, str] = {
    TOPIC: "topic_authorization_failed",
    GROUP: "group_authorization_failed",
    TRANSACTIONAL_ID: "transactional_id_authorization_failed",
}
"""Kafka's error by the type of the resource."""


def _by_api(**apis: str) -> Mapping[int, str]:
    """The operation of each API, from the names of the APIs of each operation."""
    return {ApiKey[name]: operation for operation, names in apis.items() for name in names.split()}


OPERATIONS: Mapping[str, Mapping[int, str]] = {
    TOPIC: _by_api(
        READ="FETCH OFFSET_COMMIT TXN_OFFSET_COMMIT OFFSET_DELETE DESCRIBE_PRODUCERS SHARE_FETCH SHARE_ACKNOWLEDGE "
        "ALTER_SHARE_GROUP_OFFSETS DELETE_SHARE_GROUP_OFFSETS",
        WRITE="PRODUCE ADD_PARTITIONS_TO_TXN",
        DESCRIBE="METADATA LIST_OFFSETS OFFSET_FETCH OFFSET_FOR_LEADER_EPOCH DESCRIBE_TOPIC_PARTITIONS "
        "CONSUMER_GROUP_HEARTBEAT SHARE_GROUP_HEARTBEAT DESCRIBE_SHARE_GROUP_OFFSETS",
        CREATE="CREATE_TOPICS",
        DELETE="DELETE_TOPICS DELETE_RECORDS",
        ALTER="CREATE_PARTITIONS",
        DESCRIBE_CONFIGS="DESCRIBE_CONFIGS",
        ALTER_CONFIGS="ALTER_CONFIGS INCREMENTAL_ALTER_CONFIGS",
    ),
    GROUP: _by_api(
        READ="JOIN_GROUP SYNC_GROUP HEARTBEAT LEAVE_GROUP OFFSET_COMMIT TXN_OFFSET_COMMIT ADD_OFFSETS_TO_TXN "
        "CONSUMER_GROUP_HEARTBEAT SHARE_GROUP_HEARTBEAT STREAMS_GROUP_HEARTBEAT SHARE_FETCH SHARE_ACKNOWLEDGE "
        "ALTER_SHARE_GROUP_OFFSETS STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE",
        DESCRIBE="FIND_COORDINATOR OFFSET_FETCH DESCRIBE_GROUPS CONSUMER_GROUP_DESCRIBE SHARE_GROUP_DESCRIBE "
        "STREAMS_GROUP_DESCRIBE DESCRIBE_SHARE_GROUP_OFFSETS",
        DELETE="DELETE_GROUPS OFFSET_DELETE DELETE_SHARE_GROUP_OFFSETS",
        DESCRIBE_CONFIGS="DESCRIBE_CONFIGS",
        ALTER_CONFIGS="INCREMENTAL_ALTER_CONFIGS",
    ),
    TRANSACTIONAL_ID: _by_api(
        WRITE="INIT_PRODUCER_ID PRODUCE ADD_PARTITIONS_TO_TXN ADD_OFFSETS_TO_TXN END_TXN TXN_OFFSET_COMMIT",
        DESCRIBE="FIND_COORDINATOR DESCRIBE_TRANSACTIONS",
    ),
}
"""Type of a resource -> API key -> operation. Source: `KafkaApis`; `docs/authorization.md` has what a broker asks."""
_NAMES: Mapping[str, tuple[str, ...]] = {
    TOPIC: ("name", "topic", "topic_name", "topic_id", "resource_name"),
    GROUP: ("group_id", "key", "resource_name"),
    TRANSACTIONAL_ID: ("transactional_id", "key"),
}
"""The fields of an item that name a resource of the type."""
_ERRORS = ("error_code", "partition_error_code")
_INT16 = struct.Struct(">h")
_Name = str | UUID | None


class Answered(NamedTuple):
    """A response, and the request that it answers."""

    api_key: int
    version: int
    response: bytes
    body_at: int
    facts: Callable[[], RequestFacts]
    """What the request is about."""
    topic_name: Callable[[UUID], str | None]


class Denial(NamedTuple):
    """One operation that was denied, by Kafka's names."""

    operation: str
    type: str
    name: str


def denied_operations(answered: Answered) -> Iterator[Denial]:
    """The operations that a response denies, each resource once."""
    entity: Any = None
    for kind, error in ERRORS.items():
        operation = OPERATIONS[kind].get(answered.api_key)
        code = int(ErrorCode[error])
        if operation is None or answered.response.find(_INT16.pack(code), answered.body_at) < 0:
            continue  # most responses have no such error, and need not be decoded
        if entity is None:
            entity = messages.decode_response(answered.api_key, answered.version, answered.response, answered.body_at)
        names = (_resolved(answered, kind, name) for name in _items_with(entity, code, _NAMES[kind], None))
        for name in dict.fromkeys(names):
            if name:
                yield Denial(operation, kind, name)


def _items_with(entity: Any, code: int, fields: tuple[str, ...], within: _Name) -> Iterator[_Name]:
    """The name of each item that has the error, None without a name; `within`: that of the items around it."""
    own: _Name = next(filter(None, (getattr(entity, name, None) for name in fields)), within)
    if any(int(getattr(entity, name, 0) or 0) == code for name in _ERRORS):
        yield own
    for row in dataclasses.fields(entity):
        value: Any = getattr(entity, row.name)
        items: Iterable[Any] = value if issubclass(type(value), tuple) else ()
        for item in items:
            if dataclasses.is_dataclass(item):
                yield from _items_with(item, code, fields, own)


def _resolved(answered: Answered, kind: str, name: _Name) -> str:
    """The name as text, else that of the only resource of the type in the request; empty where there is none."""
    text = answered.topic_name(name) if isinstance(name, UUID) else name
    if text:
        return str(text)
    facts = answered.facts()
    found = {TOPIC: facts.topics, GROUP: facts.groups, TRANSACTIONAL_ID: facts.transactional_ids}[kind]
    return next(iter(found)) if len(found) == 1 else ""
