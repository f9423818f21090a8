"""The registry's operations, their results, and both as JSON.

Owns: the operations, `Stat`, `Created`, `Event`, and their coding. An operation is sent as
`{"op": its name, field: value, …}` without the fields that have their default; results are lists and texts.

May fail: `WireError` from the decoders for anything that is not such an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple

from ..errors import WireError

ANY_VERSION = -1
"""As an expected version: any version matches."""


class Stat(NamedTuple):
    """A node's versions, owner and number of children."""

    version: int
    """Writes since it was created: 0 after create."""
    czxid: int
    """The transaction that created it: distinguishes a node from its successor at the same path."""
    mzxid: int
    """The transaction that wrote it last."""
    ephemeral_owner: int
    """The session that owns it; 0 for a persistent node."""
    children: int
    """The number of its children."""


class Created(NamedTuple):
    """The result of a create: the path (with its number when sequential) and the new node's stat."""

    path: str
    stat: Stat

    @property
    def czxid(self) -> int:
        """The transaction that created it."""
        return self.stat.czxid


class Event(NamedTuple):
    """What a watch reports, once: `kind` is "created", "changed", "deleted" or "children"."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Create:
    """A new node; sequential ones get a ten-digit number behind their path."""

    path: str
    data: str = ""
    ephemeral: bool = field(default=False, kw_only=True)
    sequential: bool = field(default=False, kw_only=True)
    make_parents: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Set:
    """New data for a node whose version is `version`."""

    path: str
    data: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children whose version is `version`."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class DeleteTree:
    """Remove a node and everything below; no error where there is none."""

    path: str


@dataclass(frozen=True, slots=True)
class Check:
    """Nothing but the condition: the node exists and has this version.

    `created`: it is also the node that this transaction created, and not its successor at the same path; 0: any.
    """

    path: str
    version: int = ANY_VERSION
    created: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class Get:
    """Data and stat."""

    path: str
    watch: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Exists:
    """Stat or None; the watch also waits for a node that is not there yet."""

    path: str
    watch: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Children:
    """Names of the nodes directly below, sorted."""

    path: str
    watch: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ReadTree:
    """Data and stat of a node and everything below, by path, at one instant; empty where there is none."""

    path: str


@dataclass(frozen=True, slots=True)
class Multi:
    """All or nothing: one transaction."""

    operations: tuple[Create | Set | Delete | DeleteTree | Check, ...]


WriteOperation = Create | Set | Delete | DeleteTree | Check
ReadOperation = Get | Exists | Children | ReadTree
Operation = WriteOperation | ReadOperation | Multi
Tree = dict[str, tuple[str, Stat]]

_WRITES: tuple[type[Any], ...] = (Create, Set, Delete, DeleteTree, Check)
_NAMES: dict[str, type[Any]] = {
    "create": Create,
    "set": Set,
    "delete": Delete,
    "delete_tree": DeleteTree,
    "check": Check,
    "get": Get,
    "exists": Exists,
    "children": Children,
    "read_tree": ReadTree,
}
_NAME_OF = {kind: name for name, kind in _NAMES.items()}
_FIELDS: dict[type[Any], tuple[tuple[str, type[Any], object], ...]] = {
    kind: tuple((f.name, {"str": str, "int": int, "bool": bool}[str(f.type)], f.default) for f in fields(kind))
    for kind in _NAMES.values()
}


def encode(operation: Operation) -> dict[str, Any]:
    """The operation as a JSON object."""
    if isinstance(operation, Multi):
        return {"op": "multi", "operations": [encode(part) for part in operation.operations]}
    kind = type(operation)
    found: dict[str, Any] = {"op": _NAME_OF[kind]}
    for name, _, default in _FIELDS[kind]:
        value = getattr(operation, name)
        if value != default:
            found[name] = value
    return found


def decode(raw: Mapping[str, Any]) -> Operation:
    """The operation of a JSON object; WireError when the object is not an operation."""
    name = raw.get("op")
    if name == "multi":
        parts = tuple(decode(part) for part in raw.get("operations", ()))
        if not all(isinstance(part, _WRITES) for part in parts):
            raise WireError("a multi holds writes and checks only")
        return Multi(parts)  # type: ignore[arg-type] # the line above has checked it
    kind = _NAMES.get(str(name))
    if kind is None:
        raise WireError(f"the registry knows no operation {name!r}")
    values: dict[str, Any] = {}
    for field_name, field_type, default in _FIELDS[kind]:
        value = raw.get(field_name, default)
        if value is MISSING or type(value) is not field_type:
            raise WireError(f"{name}: {field_name} is {value!r}, not a {field_type.__name__}")
        values[field_name] = value
    result: Operation = kind(**values)
    return result


def result_of(operation: Operation, raw: Any) -> Any:
    """The typed result of `operation` in the server's response."""
    match operation:
        case Create():
            return Created(raw[0], Stat(*raw[1]))
        case Set():
            return Stat(*raw)
        case Get():
            return raw[0], Stat(*raw[1])
        case Exists():
            return None if raw is None else Stat(*raw)
        case Children():
            return raw
        case ReadTree():
            return {path: (data, Stat(*stat)) for path, (data, stat) in raw.items()}
        case Multi(parts):
            return [result_of(part, found) for part, found in zip(parts, raw, strict=True)]
        case Delete() | DeleteTree() | Check():
            return None


def parent_of(path: str) -> str:
    """The path above; the root is its own."""
    return path[: path.rindex("/")] or "/"


def is_path(path: str) -> bool:
    """True for "/" and "/a/b": no empty parts, no slash at the end."""
    return path == "/" or (path.startswith("/") and all(path[1:].split("/")))


def multi_parts(operations: Sequence[WriteOperation]) -> Multi:
    """A multi of any sequence."""
    return Multi(tuple(operations))
