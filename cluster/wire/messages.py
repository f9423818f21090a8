"""Looks up every message of the protocol by (API key, version): its classes, its decoder and its encoder.

Owns: the look-up of schemas (kio's, and `OWN`: those of `internal.py` for keys 4 to 7 and of `newer_messages.py`),
cached so that a call on a hot path costs one dictionary access; and `Schema`, which lets the same handler serve all
versions of an API:

    s = messages.response(request)
    request.respond(s.MetadataResponse(brokers=..., topics=..., cluster_id=...))

A class of a `Schema` accepts the fields of every version. It drops a field that its own version lacks. A field
that is neither given nor has a default gets the protocol's default (0, "", (), None where nullable).
A class that this version lacks but another version has returns None: the field that would hold it does not exist
in this version either. A class that no version has is a bug in the caller and raises AttributeError.

Fails with `WireError` for an API or version without a schema, and for bytes that do not decode.
"""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..errors import WireError
from .decoding import EPOCH, WireReader, field_shape, neutral, reader
from .internal import INTERNAL
from .kio_imports import (
    KioIndexError,
    api_key_map,
    entity_writer,
    load_request_schema,
    load_response_schema,
    schema_name_map,
)

if TYPE_CHECKING:
    from ..host.seam import Buffer

__all__ = [
    "MessageKind",
    "Schema",
    "decode_response",
    "encode",
    "encode_request",
    "has_schema",
    "milliseconds",
    "preload",
    "request_reader",
    "request_type",
    "response",
    "response_reader",
    "response_type",
    "response_writer",
    "schema",
    "to_milliseconds",
    "versions_known",
    "wall_time",
]

MessageKind = Literal["request", "response"]
Writer = Callable[[io.BytesIO, Any], None]
NEWER: Mapping[tuple[int, int], str] = {
    (18, 5): "ApiVersions",
    (28, 6): "TxnOffsetCommit",
    (35, 5): "DescribeLogDirs",
    (42, 3): "DeleteGroups",
    (88, 1): "StreamsGroupHeartbeat",
    (89, 1): "StreamsGroupDescribe",
    (93, 0): "StreamsGroupTopologyDescriptionUpdate",
}
"""(API key, version) -> the name of the classes in `newer_messages.py`, without Request and Response."""
OWN = frozenset({*INTERNAL, *NEWER})
"""(API key, version) of the messages for which kio has no classes."""
_PRELOADED: dict[int, tuple[int, ...]] = {
    0: (10, 12),
    1: (12, 16, 17),
    2: (7,),
    3: (12,),
    4: (7,),
    5: (4,),
    6: (8,),
    7: (3,),
    8: (9,),
    9: (9,),
    10: (2, 4),
    11: (5, 9),
    12: (3, 4),
    13: (1, 5),
    14: (3, 5),
    18: (0, 3),
    19: (4, 7),
    20: (6,),
    22: (4,),
    23: (2, 4),
}
"""Versions that librdkafka and Harrow's brokers use; every other schema is imported at its first use."""
_ONE_MILLISECOND = timedelta(milliseconds=1)


class Versioned(Protocol):
    """An object with an API key and a version, for example a `Request`."""

    api_key: int
    version: int


@cache
def _own(api_key: int, version: int) -> tuple[type[Any], type[Any]]:
    """Returns the classes of a request and of its response, of which kio has none."""
    if (api_key, version) in INTERNAL:
        return INTERNAL[api_key, version]
    from . import newer_messages

    name = NEWER[api_key, version]
    return getattr(newer_messages, f"{name}Request"), getattr(newer_messages, f"{name}Response")


@cache
def request_type(api_key: int, version: int) -> Any:
    """Returns the class of the request; WireError when the version has no schema."""
    if (api_key, version) in OWN:
        return _own(api_key, version)[0]
    try:
        return load_request_schema(api_key, version)
    except KioIndexError:
        raise WireError(f"no schema for version {version} of API key {api_key}") from None


@cache
def response_type(api_key: int, version: int) -> Any:
    """Returns the class of the response; WireError when the version has no schema."""
    if (api_key, version) in OWN:
        return _own(api_key, version)[1]
    try:
        return load_response_schema(api_key, version)
    except KioIndexError:
        raise WireError(f"no schema for version {version} of API key {api_key}") from None


@cache
def versions_known(api_key: int) -> tuple[int, ...]:
    """Returns the versions that have a schema, in ascending order; empty for an unknown API key."""
    internal = {version for key, version in OWN if key == api_key}
    public = schema_name_map.get(api_key_map.get(api_key, ""), {})
    return tuple(sorted(internal | set(public)))


def has_schema(api_key: int, version: int) -> bool:
    """True when `request_type` and `response_type` find a class."""
    return version in versions_known(api_key)


@cache
def request_reader(api_key: int, version: int) -> WireReader:
    """Returns the decoder of a request body: `(buffer, position) -> (request entity, position after it)`."""
    return reader(request_type(api_key, version))


@cache
def response_reader(api_key: int, version: int) -> WireReader:
    """Returns the decoder of a response body: `(buffer, position) -> (response entity, position after it)`."""
    return reader(response_type(api_key, version))


@cache
def request_writer(api_key: int, version: int) -> Writer:
    """Returns kio's encoder of a request body."""
    return entity_writer(request_type(api_key, version))


@cache
def response_writer(api_key: int, version: int) -> Writer:
    """Returns kio's encoder of a response body."""
    return entity_writer(response_type(api_key, version))


def encode(write: Writer, entity: Any) -> bytes:
    """Encodes `entity` with `write` and returns the bytes."""
    out = io.BytesIO()
    write(out, entity)
    return out.getvalue()


def encode_request(api_key: int, version: int, entity: Any) -> bytes:
    """Encodes the body of a request, without its header, for a client of another broker."""
    return encode(request_writer(api_key, version), entity)


def decode_response(api_key: int, version: int, buffer: Buffer, at: int = 0) -> Any:
    """Decodes the response whose body begins at `at`; WireError when it is malformed."""
    return response_reader(api_key, version)(buffer, at)[0]


def milliseconds(number: int) -> timedelta:
    """Returns the value of a time field."""
    return timedelta(milliseconds=number)


def wall_time(since_epoch_ms: int) -> Any:
    """Returns the value of a field with a wall clock time."""
    return EPOCH + timedelta(milliseconds=since_epoch_ms)


def to_milliseconds(value: timedelta) -> int:
    """Returns a time field's value in whole milliseconds."""
    return value // _ONE_MILLISECOND


def _maker(entity_type: Any) -> Callable[..., Any]:
    fields = dataclasses.fields(entity_type)
    names = frozenset(field.name for field in fields)
    fill = {f.name: neutral(f) for f in fields if f.default is dataclasses.MISSING}
    required = frozenset(fill)

    def make(**given: Any) -> Any:
        keys = given.keys()
        if not keys <= names:
            given = {name: value for name, value in given.items() if name in names}
            keys = given.keys()
        if keys >= required:
            return entity_type(**given)
        return entity_type(**{**fill, **given})

    return make


def _drop(**_: Any) -> None:
    """Stands in for a class that this version lacks; returns None."""


class Schema:
    """The classes of a message in one version, each callable with the fields of every version.

    The classes keep kio's names (`schema(3, 1, "response").MetadataResponseTopic`); `Schema.root` is the
    class of the message itself.
    """

    __slots__ = ("__dict__", "api_key", "kind", "root", "version")

    def __init__(self, api_key: int, version: int, kind: MessageKind) -> None:
        self.api_key = api_key
        self.version = version
        self.kind = kind
        of_kind = request_type if kind == "request" else response_type
        top = of_kind(api_key, version)
        self.root: Callable[..., Any] = _maker(top)
        for name, entity_type in _classes(top).items():
            self.__dict__[name] = _maker(entity_type)

    def __getattr__(self, name: str) -> Any:
        """Python calls this for a class that this version lacks."""
        of_kind = request_type if self.kind == "request" else response_type
        for other in versions_known(self.api_key):
            if name in _classes(of_kind(self.api_key, other)):
                self.__dict__[name] = _drop
                return _drop
        raise AttributeError(f"no version of the {self.kind} of API key {self.api_key} has a class {name}")


def _classes(top: Any) -> dict[str, Any]:
    """Returns the entity classes that `top` consists of, by name, `top` included."""
    if (top.__api_key__, top.__version__) in OWN:
        found: dict[str, Any] = {}
        _collect(top, found)
        return found
    return {
        name: value
        for name, value in vars(sys.modules[top.__module__]).items()
        if dataclasses.is_dataclass(value) and value.__module__ == top.__module__
    }


def _collect(entity_type: Any, found: dict[str, Any]) -> None:
    """Add a class and those of its fields, each by its name; a message has no two classes of one name."""
    found[entity_type.__name__] = entity_type
    for field in dataclasses.fields(entity_type):
        inner, _, _ = field_shape(field.type)
        if dataclasses.is_dataclass(inner):
            _collect(inner, found)


@cache
def schema(api_key: int, version: int, kind: MessageKind) -> Schema:
    """Returns the classes of a message in one version."""
    return Schema(api_key, version, kind)


def response(request: Versioned) -> Schema:
    """Returns the classes of the response to `request`, in the request's version."""
    return schema(request.api_key, request.version, "response")


def preload() -> None:
    """Imports the schemas in common use and builds their codecs, so that forked processes share the memory."""
    for api_key, versions in _PRELOADED.items():
        for version in versions:
            request_reader(api_key, version)
            response_writer(api_key, version)
            schema(api_key, version, "response")
