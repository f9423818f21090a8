"""What a trace event is: a frozen value that knows its name, its row, and how to be read from a row.

Owns: `TraceEvent`, `UnknownEvent`, and the table of all kinds of events by name. A subclass is a frozen, slotted,
keyword-only dataclass with a name in `EVENT`; it is in the table from its definition on, also one of an extension.

A row has a value for each field, in the order of the fields, under the field's name or the one in `KEYS`. A field with
the default None may be absent: None is not written, and a row without the field gives None. A field that a row has and
the class has not (of a later version) is left out. A row without a field that must be there, or with a name that is
not in the table, is an `UnknownEvent`: of another version, or of an extension that is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, cast


class TraceEvent:
    """One thing that happened in a process; subclasses are dataclasses with the fields of their rows."""

    __slots__ = ()
    EVENT: ClassVar[str] = ""
    """The name in traces: `subject.what`; empty: a base of other events."""
    KEYS: ClassVar[Mapping[str, str]] = {}
    """The keys of fields whose name is not their key in rows."""

    def __init_subclass__(cls) -> None:
        if "EVENT" in cls.__dict__:
            known = EVENT_KINDS.get(cls.EVENT)
            # a dataclass with slots is defined twice
            if known is not None and (known.__module__, known.__name__) != (cls.__module__, cls.__name__):
                raise TypeError(f"{cls.__name__}: the trace event {cls.EVENT!r} is {known.__name__} already")
            EVENT_KINDS[cls.EVENT] = cls

    @property
    def event_name(self) -> str:
        """The name in traces."""
        return self.EVENT

    def fields(self) -> dict[str, object]:
        """Return the fields of the row, by key, in order; sequences are tuples."""
        layout = _LAYOUTS.get(type(self)) or _layout(type(self))
        row = dict(zip(layout.keys, layout.values(self), strict=True))
        for key in layout.optional:
            if row[key] is None:
                del row[key]
        return row

    def json_fields(self) -> dict[str, Any]:
        """Return the fields of the row as they are read from JSON: sequences are lists."""
        return {
            key: list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value
            for key, value in self.fields().items()
        }

    @classmethod
    def from_fields(cls, row: dict[str, Any]) -> TraceEvent:
        """Return the event that has these fields; `row` is consumed."""
        layout = _LAYOUTS.get(cls) or _layout(cls)
        try:
            for key in layout.sequences:
                row[key] = tuple(row[key])
            for key, name in layout.renamed:
                row[name] = row.pop(key)
            return layout.make(**row)
        except (KeyError, TypeError):
            known = {key: value for key, value in row.items() if key in layout.names}
        try:
            return layout.make(**known)
        except TypeError:
            return UnknownEvent(name=cls.EVENT, values=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEvent(TraceEvent):
    """An event of a row that no known class reads: of another version, or of an extension that is not imported."""

    name: str
    values: Mapping[str, Any]

    @property
    def event_name(self) -> str:
        """The name in traces."""
        return self.name

    def fields(self) -> dict[str, object]:
        """Return the fields of the row, by key, in order."""
        return dict(self.values)


EVENT_KINDS: dict[str, type[TraceEvent]] = {}
"""The classes of events that are defined, by name."""


class _Layout(NamedTuple):
    """The row of one class of events."""

    names: frozenset[str]
    keys: tuple[str, ...]
    values: Callable[[TraceEvent], tuple[object, ...]]
    make: Callable[..., TraceEvent]
    optional: tuple[str, ...]
    """Keys of fields that may be absent."""
    sequences: tuple[str, ...]
    """Keys of fields that are tuples, which are lists in JSON."""
    renamed: Sequence[tuple[str, str]]
    """Keys and names of fields, where these differ."""


_LAYOUTS: dict[type[TraceEvent], _Layout] = {}


def _layout(kind: type[TraceEvent]) -> _Layout:
    parts = fields(cast("Any", kind))
    names = tuple(part.name for part in parts)
    keys = tuple(kind.KEYS.get(name, name) for name in names)
    layout = _LAYOUTS[kind] = _Layout(
        names=frozenset(names),
        keys=keys,
        values=_values_of(names),
        make=kind,
        optional=tuple(key for key, part in zip(keys, parts, strict=True) if part.default is None),
        sequences=tuple(key for key, part in zip(keys, parts, strict=True) if str(part.type).startswith("tuple[")),
        renamed=[(key, name) for key, name in zip(keys, names, strict=True) if key != name],
    )
    return layout


def _values_of(names: tuple[str, ...]) -> Callable[[TraceEvent], tuple[object, ...]]:
    if len(names) > 1:
        return attrgetter(*names)  # the fastest way to several attributes
    return lambda event: tuple(getattr(event, name) for name in names)
