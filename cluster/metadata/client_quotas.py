"""Client quotas as values: entities, keys, their nodes in the registry, and filters (KIP-546).

Owns: the rules for what an entity and a quota may be, `path_of` and its inverse, `matches`. The nodes and their JSON
are those of Apache Kafka 3.9 in ZooKeeper: `/config/users/U`, `/config/clients/C`, `/config/users/U/clients/C`,
`/config/ips/A`, with `<default>` where no name is given. Names are percent-encoded, so no name can be a path.

May fail: KafkaError(invalid_request) says which rule an entity, a quota or a filter breaks.

Source: Kafka's `ClientQuotaControlManager`, `ClientQuotasImage`, `Sanitizer`.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..errors import ErrorCode, KafkaError
from ..registry.paths import CLIENT_QUOTAS, IP_QUOTAS, USER_QUOTAS
from .java_order import bucket, capacity_of, entries_hash, hash_order
from .node_names import name_of_node, node_of_name

__all__ = [
    "Component",
    "Entity",
    "change_order",
    "checked_filter",
    "checked_quotas",
    "checked_values",
    "entities_in_order",
    "entity_of",
    "entity_of_path",
    "entity_order",
    "matches",
    "part_order",
    "path_of",
    "quota_order",
]

USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = range(3)
_DEFAULT_NAME = "<default>"
_LONG_MAX = 2**63 - 1
_WHOLE = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
_CLIENT_KEYS = frozenset({"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"})
_IP_KEYS = frozenset({"connection_creation_rate"})

Entity = tuple[tuple[str, str | None], ...]
"""`(type, name)` of each part, sorted by type; None is the default entity of the type."""


class Component(NamedTuple):
    """One condition of a filter: entities with this type whose name matches."""

    kind: str
    match_type: int
    match: str | None


def entity_of(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """The entity of a request; a type that is given twice has the last name, as in Kafka."""
    if not parts:
        raise _refused("Invalid empty client quota entity")
    named = dict(parts)
    for kind, name in named.items():
        if kind not in (USER, CLIENT, IP):
            raise _refused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refused(f"Empty {kind} not supported")
    if IP in named and len(named) > 1:
        raise _refused("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    address = named.get(IP)
    if address is not None and not _is_address(address):
        raise _refused(f"{address} is not a valid IP or resolvable host.")
    return tuple(sorted(named.items(), key=lambda part: part[0]))


def checked_quotas(entity: Entity, operations: Sequence[tuple[str, float | None]]) -> dict[str, float | None]:
    """The new values by key, None to remove one; KafkaError for a key or value that the entity cannot have."""
    changes = dict(operations)
    if len(changes) < len(operations):
        raise _refused("A quota key appears more than once for one entity")
    valid = _IP_KEYS if entity[0][0] == IP else _CLIENT_KEYS
    for key, value in changes.items():
        if value is None:
            continue
        if key not in valid:
            raise _refused(f"Invalid configuration key {key}")
        if not math.isfinite(value):
            raise _refused(f"Quota {key} must be a finite number")
        if not value > 0:
            raise _refused(f"Quota {key} must be greater than 0")
        if key in _WHOLE and value > _LONG_MAX:
            raise _refused(f"Proposed value for {key} is too large for a LONG.")
        if key in _WHOLE and not value.is_integer():
            raise _refused(f"{key} cannot be a fractional value.")
    return changes


def checked_values(stored: Mapping[str, str]) -> dict[str, float]:
    """The quotas in a node of the registry, as they were set; other settings of a user (SCRAM) are left out."""
    return {key: float(text) for key, text in stored.items() if key in _CLIENT_KEYS or key in _IP_KEYS}


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


# ----------------------------------------------------------------- the registry


def path_of(entity: Entity) -> str:
    """The node that holds the quotas of an entity."""
    named = dict(entity)
    if IP in named:
        return f"{IP_QUOTAS}/{_encoded(named[IP])}"
    if USER not in named:
        return f"{CLIENT_QUOTAS}/{_encoded(named[CLIENT])}"
    path = f"{USER_QUOTAS}/{_encoded(named[USER])}"
    return f"{path}/clients/{_encoded(named[CLIENT])}" if CLIENT in named else path


def entity_of_path(path: str) -> Entity | None:
    """The inverse of `path_of`; None for a node that lies between."""
    match path.removeprefix("/config/").split("/"):
        case ["ips", name]:
            return ((IP, _decoded(name)),)
        case ["clients", name]:
            return ((CLIENT, _decoded(name)),)
        case ["users", name]:
            return ((USER, _decoded(name)),)
        case ["users", name, "clients", client]:
            return ((CLIENT, _decoded(client)), (USER, _decoded(name)))
        case _:
            return None


def _encoded(name: str | None) -> str:
    return _DEFAULT_NAME if name is None else node_of_name(name)


def _decoded(name: str) -> str | None:
    return None if name == _DEFAULT_NAME else name_of_node(name)


# ----------------------------------------------------------------- filters


def checked_filter(components: Sequence[Component]) -> Mapping[str, Component]:
    """The conditions by type; KafkaError for a filter that is not valid."""
    by_kind: dict[str, Component] = {}
    for row in components:
        if not row.kind:
            raise _refused("Invalid empty entity type.")
        if row.kind in by_kind:
            raise _refused(f"Entity type {row.kind} cannot appear more than once in the filter.")
        if row.kind not in (USER, CLIENT, IP):
            raise KafkaError(ErrorCode.unsupported_version, f"Unsupported entity type {row.kind}")
        _check_match(row)
        by_kind[row.kind] = row
    if IP in by_kind and len(by_kind) > 1:
        raise _refused(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return by_kind


def _check_match(row: Component) -> None:
    if row.match_type not in (EXACT, DEFAULT, ANY):
        raise _refused(f"Unknown match type {row.match_type}")
    if row.match_type == EXACT and row.match is None:
        raise _refused("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if row.match_type != EXACT and row.match is not None:
        name = "MATCH_TYPE_DEFAULT" if row.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise _refused(f"Request specified {name}, but also specified a match string.")


def matches(entity: Entity, wanted: Mapping[str, Component], *, strict: bool) -> bool:
    """True when the entity meets every condition and, with `strict`, has no other type."""
    named = dict(entity)
    if strict and (not wanted or named.keys() != wanted.keys()):
        return False
    for kind, row in wanted.items():
        if kind not in named:
            return False
        if row.match_type == EXACT and named[kind] != row.match:
            return False
        if row.match_type == DEFAULT and named[kind] is not None:
            return False
    return True


# ------------------------------------------------------------------- order


def entities_in_order(stored: Mapping[Entity, Mapping[str, float]]) -> dict[Entity, Mapping[str, float]]:
    """The entities with quotas in the order of Kafka's map (`ClientQuotaEntity.hashCode`)."""
    found = [entity for entity, quotas in stored.items() if quotas]
    return {entity: stored[entity] for entity in entity_order(found)}


def entity_order(entities: Collection[Entity]) -> list[Entity]:
    """These entities in the order of Kafka's map; those whose hashes meet keep their order."""
    capacity = capacity_of(len(entities))
    return sorted(entities, key=lambda entity: bucket(31 + entries_hash(entity), capacity))


def part_order(parts: Mapping[str, str | None]) -> Entity:
    """The parts of an entity in the order of Kafka's map, which begins with a single bucket."""
    names = hash_order(parts, capacity_of(len(parts), least=1))
    return tuple((kind, parts[kind]) for kind in names)


def change_order(keys: Collection[str]) -> list[str]:
    """The keys of changed quotas in the order in which Kafka applies them: that of the map of one request's changes."""
    return hash_order(keys)


def quota_order(keys: Collection[str]) -> list[str]:
    """The keys of an entity's quotas in the order of Kafka's map, which begins with a single bucket.

    Keys whose hashes meet, such as `producer_byte_rate` and `request_percentage` among three, have the order in which
    they were set.
    """
    return hash_order(keys, capacity_of(len(keys), least=1))


def _refused(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, problem)
