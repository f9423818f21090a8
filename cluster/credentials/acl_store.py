"""ACLs in the registry, as Kafka 3.9 stored them in ZooKeeper: written, announced, and followed by every broker.

Owns: the nodes `/kafka-acl/Topic/NAME` (literal patterns) and `/kafka-acl-extended/prefixed/Topic/NAME`, their JSON,
and the notifications in `/kafka-acl-changes` and `/kafka-acl-extended-changes`. The ACLs in memory are those of a
`StandardAuthorizer`.

Invariants:

* A write is conditional on the version that was read, so that concurrent changes of one pattern are all made. A
  notification follows it, and the broker that wrote decides by the new ACLs before `add` and `remove` return.
* One worker follows the notifications, and reads the registry's current state, never the content of a notification.
* A broker serves no client before `start` has read all ACLs.

A `/` in a name, and a `%`, are percent-encoded in the name of the node; in Kafka such a name is not stored.
May fail: RegistryError when the registry is unreachable. A node that is no JSON of ACLs is logged, and changes nothing;
to change it is a KafkaError(unknown_server_error).
Source: Kafka's AclAuthorizer, ZkAclStore, ZkAclChangeStore, AclEntry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, KafkaError
from ..host.seam import Host
from ..metadata.registry_retries import RegistryRetries
from ..registry import BadVersionError, NodeExistsError, NoNodeError, RegistryClient
from ..registry.paths import ACL_CHANGE, ACL_CHANGES, ACLS, EXTENDED_ACL_CHANGES, EXTENDED_ACLS
from ..security.acls import Acl, AclEntry, AclFilter, PatternType, Permission, ResourcePattern, kafka_name
from ..security.standard_authorizer import StandardAuthorizer
from .change_feed import ChangeFollower

__all__ = ["AclStore"]

Named = TypeVar("Named", bound=IntEnum)
Entries = frozenset[AclEntry]
Choice = tuple[AclFilter, list[Acl]]
"""A filter, and the ACLs that it chose."""
_PREFIXED = f"{EXTENDED_ACLS}/prefixed"


class AclStore:
    """The ACLs of the cluster, from one broker's side; `authorizer` decides by them."""

    def __init__(
        self, host: Host, registry: RegistryClient, authorizer: StandardAuthorizer, request_timeout_ms: int
    ) -> None:
        self._host = host
        self._registry = registry
        self._retries = RegistryRetries(host, registry)
        self._authorizer = authorizer
        self._timeout_ms = request_timeout_ms
        self._follower = ChangeFollower(
            host, registry, (ACL_CHANGES, EXTENDED_ACL_CHANGES), self._read, what="ACLs", task="acl-changes"
        )
        self.start, self.session_expired = self._follower.start, self._follower.session_expired

    # ------------------------------------------------------------------ reading

    def chosen(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that a filter chooses."""
        return [acl for acl in self._authorizer.acls() if wanted.matches(acl)]

    async def _read(self, news: list[str] | None) -> None:
        if news is None:
            await self._read_everything()
            return
        changed = dict.fromkeys(pattern for pattern in map(_announced, news) if pattern is not None)
        found = await self._registry.get_many([_path_of(pattern) for pattern in changed])
        for pattern, row in zip(changed, found, strict=True):
            self._take(pattern, "" if row is None else row[0])

    async def _read_everything(self) -> None:
        for root, pattern_type in ((ACLS, PatternType.LITERAL), (_PREFIXED, PatternType.PREFIXED)):
            tree = await self._registry.read_tree(root)
            # taken in before anything else is awaited: a write that follows the read is taken in after it
            found = {_pattern_at(path[len(root) :], pattern_type): data for path, (data, _) in tree.items()}
            known = [row for row in self._authorizer.patterns() if row.pattern_type is pattern_type]
            for gone in (row for row in known if row not in found):
                self._authorizer.replace(gone, ())
            for pattern, data in found.items():
                if pattern is not None:
                    self._take(pattern, data)

    def _take(self, pattern: ResourcePattern, data: str) -> None:
        try:
            entries = entries_of_json(data)
        except (ValueError, KeyError, TypeError) as error:
            self._host.trace.log("error", f"{_path_of(pattern)} is no JSON of ACLs, and is ignored: {error!r}")
            return
        self._authorizer.replace(pattern, entries)

    # ------------------------------------------------------------------ writing

    async def add(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Add ACLs to those of a pattern."""
        added = frozenset(entries)
        await self._change(pattern, lambda before: before | added)

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove the ACLs that filters choose, those among them that other brokers added; returns those of each filter.

        As in Kafka, an ACL that several filters choose is in the result of each.
        """
        await self._retries.until_reachable(self._read_everything, self._timeout_ms)
        removed: list[list[Acl]] = [[] for _ in filters]
        of_pattern: dict[ResourcePattern | None, list[Choice]] = {}
        for choice in zip(filters, removed, strict=True):
            of_pattern.setdefault(choice[0].exact_pattern, []).append(choice)
        for pattern in [*self._authorizer.patterns()]:
            broad = [choice for choice in of_pattern.get(None, ()) if choice[0].matches_pattern(pattern)]
            choices = [*of_pattern.get(pattern, ()), *broad]
            if choices:
                await self._remove_chosen(pattern, choices)
        return removed

    async def _remove_chosen(self, pattern: ResourcePattern, choices: Sequence[Choice]) -> None:
        gone: dict[AclEntry, list[list[Acl]]] = {}

        def kept(before: Entries) -> Entries:
            gone.clear()
            gone.update(_chosen(before, choices))
            return before.difference(gone)

        await self._change(pattern, kept)
        for entry, results in gone.items():
            for found in results:
                found.append(Acl(pattern, entry))

    async def _change(self, pattern: ResourcePattern, change: Callable[[Entries], Entries]) -> None:
        """Replace the ACLs of a pattern by `change` of them, announce it, and decide by them from now on."""
        replace = partial(self._replace, pattern, change)
        before, after = await self._retries.until_reachable(replace, self._timeout_ms)
        # a broker that does not have them was not reached by the announcement of an earlier attempt
        if after != before or after != self._authorizer.entries(pattern):
            root, data = _announcement(pattern)
            announce = partial(self._registry.create, f"{root}/{ACL_CHANGE}", data, sequential=True, make_parents=True)
            await self._retries.until_reachable(announce, self._timeout_ms)
        self._authorizer.replace(pattern, after)

    async def _replace(self, pattern: ResourcePattern, change: Callable[[Entries], Entries]) -> tuple[Entries, Entries]:
        path = _path_of(pattern)
        while True:
            before: Entries = frozenset()
            stat = None
            try:
                data, stat = await self._registry.get(path)
                before = entries_of_json(data)
            except NoNodeError:
                pass
            except (ValueError, KeyError, TypeError) as error:
                raise KafkaError(ErrorCode.unknown_server_error, f"{path} is no JSON of ACLs; delete it") from error
            after = change(before)
            try:
                if after == before:
                    pass
                elif stat is None:
                    await self._registry.create(path, json_of(after), make_parents=True)
                elif after:
                    await self._registry.set(path, json_of(after), stat.version)
                else:
                    await self._registry.delete(path, stat.version)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue  # a concurrent write was first: change its result
            return before, after


def _chosen(entries: Entries, choices: Sequence[Choice]) -> dict[AclEntry, list[list[Acl]]]:
    """The ACLs that filters choose, in a fixed order, each with the results of the filters that choose it."""
    exact: dict[AclEntry | None, list[Choice]] = {}
    for choice in choices:
        exact.setdefault(choice[0].exact_entry, []).append(choice)
    found: dict[AclEntry, list[list[Acl]]] = {}
    for entry in sorted(entries):
        results = [result for _, result in exact.get(entry, ())]
        results += [result for wanted, result in exact.get(None, ()) if wanted.matches_entry(entry)]
        if results:
            found[entry] = results
    return found


# ---------------------------------------------------------------------- texts


def json_of(entries: Iterable[AclEntry]) -> str:
    """The data of a pattern's node."""
    acls = [
        {
            "principal": row.principal,
            "permissionType": kafka_name(row.permission),
            "operation": kafka_name(row.operation),
            "host": row.host,
        }
        for row in sorted(entries)
    ]
    return json.dumps({"version": 1, "acls": acls}, separators=(",", ":"), ensure_ascii=False)


def entries_of_json(data: str) -> Entries:
    """The ACLs in the data of a node; ValueError, KeyError or TypeError for other data."""
    if not data:
        return frozenset()
    return frozenset(
        AclEntry(
            str(row["principal"]),
            str(row["host"]),
            _OPERATIONS[_plain(row["operation"])],
            _PERMISSIONS[_plain(row["permissionType"])],
        )
        for row in json.loads(data)["acls"]
    )


def _announcement(pattern: ResourcePattern) -> tuple[str, str]:
    """Where a change of a pattern is announced, and with which text."""
    if pattern.pattern_type is PatternType.LITERAL:
        return ACL_CHANGES, f"{pattern.type.name}:{pattern.name}"
    fields = {
        "version": 1,
        "resourceType": pattern.type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return EXTENDED_ACL_CHANGES, json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def _announced(data: str) -> ResourcePattern | None:
    """The pattern that a notification names; None for one that cannot be read."""
    try:
        if not data.startswith("{"):
            kind, _, name = data.partition(":")
            return ResourcePattern(_TYPES[_plain(kind)], name)
        fields: Any = json.loads(data)
        prefixed = ResourcePattern(
            _TYPES[_plain(fields["resourceType"])], str(fields["name"]), PatternType[fields["patternType"]]
        )
        return prefixed if prefixed.pattern_type is PatternType.PREFIXED else None
    except (ValueError, KeyError, TypeError):
        return None


def _path_of(pattern: ResourcePattern) -> str:
    root = ACLS if pattern.pattern_type is PatternType.LITERAL else _PREFIXED
    return f"{root}/{kafka_name(pattern.type)}/{_node_of(pattern.name)}"


def _node_of(name: str) -> str:
    encoded = name.replace("%", "%25").replace("/", "%2F")
    return encoded.replace(".", "%2E") if not encoded.strip(".") else encoded


def _pattern_at(path: str, pattern_type: PatternType) -> ResourcePattern | None:
    """The pattern of `/Topic/NAME`; None for another node."""
    _, kind, node = (*path.split("/", 2), "", "")[:3]
    if not node or _plain(kind) not in _TYPES:
        return None
    return ResourcePattern(_TYPES[_plain(kind)], unquote(node), pattern_type)


def _plain(text: object) -> str:
    """Kafka reads its names whatever the case and the underscores."""
    return str(text).replace("_", "").upper()


def _by_name(values: Iterable[Named]) -> Mapping[str, Named]:
    return {_plain(value.name): value for value in values}


_TYPES, _OPERATIONS, _PERMISSIONS = _by_name(ResourceType), _by_name(Operation), _by_name(Permission)
