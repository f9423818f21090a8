"""What the codecs use of kio, imported without hypothesis (`cluster/kio_types.py`).

No other module here imports kio, except `newer_messages.py`, which is imported late.
An executor of a Spark cluster reads batches with `records.py` and `batches.py`, and has no kio.
"""

# ruff: noqa: E402 - kio's base types come first

from __future__ import annotations

from .. import kio_types

kio_types.load()

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.serial import entity_writer
from kio.serial.errors import SerialError
from kio.serial.readers import read_datetime_i64, read_nullable_datetime_i64
from kio.static.constants import EntityType

__all__ = [
    "EntityType",
    "ErrorCode",
    "KioIndexError",
    "RequestHeader",
    "ResponseHeader",
    "SerialError",
    "api_key_map",
    "entity_writer",
    "load_request_schema",
    "load_response_schema",
    "read_datetime_i64",
    "read_nullable_datetime_i64",
    "schema_name_map",
]
