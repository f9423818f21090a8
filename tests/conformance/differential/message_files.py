"""Kafka's own message files, read from the clients' jar: every request and response with its fields by version.

Owns: the jar's place, the parser of the files (JSON with `//` comments), and the types `Message` and `Field`. A
struct of `commonStructs` is put in place of its name, so a `Field` of a struct type always has its fields. Fails with
LookupError when the jar has no such message, and with OSError when there is no jar. Source:
the file `README` in `common/message` of Apache Kafka, which describes the files.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kafka_reference import JARS

FOLDER = "common/message/"
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
NO_VERSION = 32_767


@dataclass(frozen=True, slots=True)
class Range:
    """Versions `low` to `high`, both included; empty when `low > high`."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    @staticmethod
    def parse(text: str) -> Range:
        """Parses `none`, `3`, `2-5` and `4+`."""
        if text == "none":
            return NEVER
        low, dash, high = text.partition("-")
        if text.endswith("+"):
            return Range(int(text[:-1]), NO_VERSION)
        return Range(int(low), int(high) if dash else int(low))


NEVER = Range(1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field: `kind` is Kafka's type (`int32`, `string`, `Struct`, with `[]` before it for an array)."""

    name: str
    kind: str
    versions: Range
    nullable: Range
    tagged: Range
    tag: int | None
    flexible: Range | None
    default: Any
    entity: str
    fields: tuple[Field, ...]

    @property
    def is_array(self) -> bool:
        return self.kind.startswith("[]")

    @property
    def item(self) -> str:
        """The type of the array's items, or the field's own type."""
        return self.kind.removeprefix("[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request, a response or a header."""

    name: str
    key: int
    versions: Range
    flexible: Range
    fields: tuple[Field, ...]


@cache
def messages() -> Mapping[str, Message]:
    """Returns every message of the jar by its name, such as `FetchRequest`."""
    (jar,) = JARS.glob("kafka-clients-*.jar")
    return load(jar)


def load(jar: Path) -> Mapping[str, Message]:
    """Reads the message files of a jar."""
    found: dict[str, Message] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith(FOLDER) and name.endswith(".json"):
                message = parse(archive.read(name).decode())
                found[message.name] = message
    if not found:
        raise LookupError(f"{jar} has no files in {FOLDER}: it is no jar of Kafka's clients")
    return found


def parse(text: str) -> Message:
    """Parses one file."""
    raw = json.loads(COMMENT.sub("", text))
    structs = {each["name"]: each["fields"] for each in raw.get("commonStructs", ())}
    return Message(
        name=raw["name"],
        key=raw.get("apiKey", -1),
        versions=Range.parse(raw["validVersions"]),
        flexible=Range.parse(raw.get("flexibleVersions", "none")),
        fields=_fields(raw.get("fields", []), structs),
    )


def _fields(rows: list[dict[str, Any]], structs: Mapping[str, Any]) -> tuple[Field, ...]:
    return tuple(_field(row, structs) for row in rows)


def _field(row: dict[str, Any], structs: Mapping[str, Any]) -> Field:
    kind = row["type"]
    inner = row.get("fields") or structs.get(kind.removeprefix("[]"), [])
    flexible = row.get("flexibleVersions")
    return Field(
        name=row["name"][0].lower() + row["name"][1:],
        kind=kind,
        versions=Range.parse(row.get("versions") or row["taggedVersions"]),
        nullable=Range.parse(row.get("nullableVersions", "none")),
        tagged=Range.parse(row.get("taggedVersions", "none")),
        tag=row.get("tag"),
        flexible=None if flexible is None else Range.parse(flexible),
        default=_default(kind, row.get("default"), bool(inner)),
        entity=row.get("entityType", ""),
        fields=_fields(inner, structs),
    )


def _default(kind: str, given: Any, is_struct: bool) -> Any:
    """Returns the value of a field that a request does not name."""
    if given == "null":
        return None
    if kind.startswith("[]"):
        return ()
    if is_struct:
        return {}
    if kind == "string":
        return given or ""
    if kind == "bool":
        return given in (True, "true")
    if kind == "uuid":
        return "0" * 32
    if kind in ("bytes", "records"):
        return b""
    if kind == "float64":
        return float(given or 0)
    return int(str(given), 0) if given not in (None, "") else 0
