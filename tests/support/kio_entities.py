"""Random kio entities of any class, for tests that compare our codecs with kio's."""

from __future__ import annotations

import dataclasses
import io
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from harrow.cluster.wire.decoding import neutral
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

TEXT = st.text(max_size=8)
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "bool": st.booleans(),
    "string": TEXT,
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
    "uuid": st.one_of(st.none(), st.uuids().filter(lambda drawn: drawn != UUID(int=0))),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": st.integers(-1, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(-1, 2**40).map(lambda ms: timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 2**41).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC)),
}


def entities(entity_type: Any) -> st.SearchStrategy[Any]:
    """Returns a strategy for the entities of a class, from its field metadata."""
    fields = {field.name: _values(field) for field in dataclasses.fields(entity_type)}
    return st.builds(entity_type, **fields)


def _values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    inner: Any = field.type
    is_array = optional = False
    if get_origin(inner) is UnionType:
        inner = next(part for part in get_args(inner) if part is not NoneType)
        optional = True
    if get_origin(inner) is tuple:
        inner, is_array = get_args(inner)[0], True
    drawn: st.SearchStrategy[Any]
    is_struct = dataclasses.is_dataclass(inner)
    drawn = entities(inner) if is_struct else PRIMITIVES[field.metadata["kafka_type"]]
    if is_array:
        drawn = st.lists(drawn, max_size=2).map(tuple)
    if optional and "tag" not in field.metadata and field.metadata.get("kafka_type") != "uuid":
        drawn = st.one_of(st.none(), drawn)
    if "tag" in field.metadata:
        missing = field.default is dataclasses.MISSING
        default = neutral(field) if missing else field.default
        drawn = st.one_of(st.just(default), drawn)
    return drawn


def kio_bytes(entity: Any) -> bytes:
    """Encodes an entity with kio."""
    out = io.BytesIO()
    entity_type: Any = entity.__class__
    entity_writer(entity_type)(out, entity)
    return out.getvalue()
