"""A request as a client sends it: API key, version and fields; its frame, and its response. No input or output.

    request = client_request(
        ApiKey.DELETE_RECORDS, 2, timeout=2_000,
        topics=[{"name": "orders", "partitions": [{"partition_index": 0, "offset": 5}]}],
    )
    connection.sendall(request.frame(correlation_id, "billing"))
    response = request.response(frame)

Fields have kio's names. A structure is a dict of its fields, or an entity; an array is any iterable of items; a time
field is a number of milliseconds. `Schema` (`messages.py`) gives the defaults of fields that are not given.
What may fail: TypeError for a field that no version of the request has; WireError for a version without a schema and
for a response that is malformed.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import messages
from .decoding import field_shape
from .headers import encode_request_header, parse_response_header

if TYPE_CHECKING:
    from ..host.seam import Buffer

__all__ = ["SIZE", "ClientRequest", "client_request"]

SIZE = struct.Struct(">i")
"""The number of bytes of a frame, in front of it."""


class ClientRequest(NamedTuple):
    """One request to any broker."""

    api_key: int
    version: int
    entity: Any

    @property
    def name(self) -> str:
        """Kafka's name of the API, `JoinGroup`."""
        name: str = messages.request_type(self.api_key, self.version).__name__
        return name.removesuffix("Request")

    def body(self) -> bytes:
        """The bytes behind the header."""
        return messages.encode_request(self.api_key, self.version, self.entity)

    def frame(self, correlation_id: int, client_id: str) -> bytes:
        """The bytes on a connection, with their size in front."""
        frame = encode_request_header(self.api_key, self.version, correlation_id, client_id) + self.body()
        return SIZE.pack(len(frame)) + frame

    def response(self, frame: Buffer) -> Any:
        """The response in a frame without its size."""
        _, at = parse_response_header(self.api_key, self.version, frame)
        return messages.decode_response(self.api_key, self.version, frame, at)


def client_request(api_key: int, version: int, /, **fields: Any) -> ClientRequest:
    """Return the request with these fields."""
    return ClientRequest(api_key, version, _builder(messages.request_type(api_key, version))(fields))


@cache
def _builder(entity_type: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return what makes an entity of a class from its fields."""
    api_key, version = entity_type.__api_key__, entity_type.__version__
    make = getattr(messages.schema(api_key, version, "request"), entity_type.__name__)
    converters = {field.name: _converter(field) for field in dataclasses.fields(entity_type)}

    def build(given: Mapping[str, Any]) -> Any:
        ready = {name: converters[name](value) for name, value in given.items() if name in converters}
        for name in given.keys() - ready.keys():
            if name not in _fields_of_all_versions(api_key):
                raise TypeError(f"no version of {entity_type.__name__} has a field {name}")
        return make(**ready)

    return build


@cache
def _fields_of_all_versions(api_key: int) -> frozenset[str]:
    """The names of the fields of the request and of its structures."""
    types = [messages.request_type(api_key, version) for version in messages.versions_known(api_key)]
    return frozenset(name for entity_type in types for name in _field_names(entity_type))


def _field_names(entity_type: Any) -> Iterator[str]:
    for field in dataclasses.fields(entity_type):
        yield field.name
        inner, _, _ = field_shape(field.type)
        if dataclasses.is_dataclass(inner):
            yield from _field_names(inner)


def _converter(field: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    inner, is_array, _ = field_shape(field.type)
    structure: Any = inner
    build = _builder(structure) if dataclasses.is_dataclass(inner) else None
    is_time = build is None and field.metadata["kafka_type"].startswith("timedelta")

    def one(value: Any) -> Any:
        if build is not None and isinstance(value, dict):
            return build(cast("dict[str, Any]", value))
        return messages.milliseconds(value) if is_time and isinstance(value, int) else value

    def several(values: Any) -> Any:
        return None if values is None else tuple(map(one, values))

    return several if is_array else one
