"""Relations: which outputs a pipeline owes for its inputs (L5). Each is a frozen value.

    identity                      the output is the input: same key, same value
    mapped(f)                     one output for each input: f(record)
    filtered(f)                   the input where f(record) is true, nothing otherwise
    flat_mapped(f)                an output for each item of f(record)
    folded(f, initial)            for each key: state = f(state, record) over its records in log order
    windowed(seconds, f)          for each key and tumbling window: f(window), the window being its records in log order

The functions receive a `Record`, which is a mapping of the fields of its JSON value. They return what the output must
be; `shapes.py` says how it is compared:

* a mapping: the output's JSON value, or its row, has these fields with these values; further fields are ignored;
* a text or bytes: the output's value; a number, True, False, None or a list: the output's JSON value;
* a pair `(key, value)`: the output's record key too;
* the record itself: the same key and the same value.

Functions must be deterministic and free of effects: they run in Spark's tasks, in any order, possibly repeatedly.

`folded` and `windowed` promise a **final** value for each key (and window): a topic shall end with it, a table shall
hold it. Earlier outputs of a key are updates and are not compared. The records of a key are ordered by partition and
offset. Where a key's records lie in several partitions their order is not known; `candidates` gives the results of
several orders, and the verdict is unknown where they differ and the output is none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked
from harrow.cluster.errors import ConfigError, HarrowError

from ..checks.record import Record
from .shapes import is_a

MS = 1000


class NoKeyError(HarrowError):
    """A record has no key, by which a relation groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What a pipeline owes for its inputs."""

    IN_WORDS: ClassVar[str] = "a relation such as identity or mapped(f)"

    @property
    def name(self) -> str:
        """The relation's name, for messages."""
        return type(self).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRelation(Relation):
    """A relation in which the outputs of a record depend on that record only."""

    def outputs(self, record: Record) -> Sequence[Any]:
        """Return what must come out for `record`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(RecordRelation):
    """The output is the input."""

    def outputs(self, record: Record) -> Sequence[Any]:
        """Return the record."""
        return (record,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped(RecordRelation):
    """One output for each input."""

    function: Callable[[Record], Any]

    def outputs(self, record: Record) -> Sequence[Any]:
        """Return the function's result."""
        return (self.function(record),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered(RecordRelation):
    """The inputs for which a predicate holds."""

    predicate: Callable[[Record], object]

    def outputs(self, record: Record) -> Sequence[Any]:
        """Return the record, or nothing."""
        return (record,) if self.predicate(record) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMapped(RecordRelation):
    """Any number of outputs for each input."""

    function: Callable[[Record], Iterable[Any]]

    def outputs(self, record: Record) -> Sequence[Any]:
        """Return the items of the function's result."""
        found: Any = self.function(record)
        if is_a(found, str, bytes, Mapping):
            kind = type(found).__name__
            raise TypeError(f"the function of flat_mapped returned {kind}, expected an iterable of outputs")
        return list(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRelation(Relation):
    """A relation with one final output for each group of records."""

    key: str | Callable[[Record], Any] | None = None

    def group(self, record: Record) -> tuple[Any, ...]:
        """Return the group of a record; its first element is the key."""
        raise NotImplementedError

    def final(self, records: Sequence[Record]) -> Any:
        """Return the final output of a group, whose records are in order."""
        raise NotImplementedError

    def key_of(self, record: Record) -> Any:
        """Return the key of a record: Kafka's record key unless `key=` names a field or a function."""
        if self.key is None:
            if record.key is None:
                raise NoKeyError(
                    f"{record.place} has no record key: give {self.name.lower()}(…, key=), a field or a function"
                )
            return record.key
        return field_of(record, self.key) if isinstance(self.key, str) else self.key(record)

    def candidates(self, records: Sequence[Record]) -> list[Any]:
        """Return the final outputs for several orders of the group's records; the first is that of the log.

        One order when all records lie in one partition. Else also by timestamp, and with the partitions reversed.
        """
        by_log = sorted(records, key=lambda record: (record.partition, record.offset))
        results = [self.final(by_log)]
        if by_log[0].partition != by_log[-1].partition:
            by_time = sorted(by_log, key=lambda r: (r.timestamp_ms, r.partition, r.offset))
            reversed_ = sorted(by_log, key=lambda record: (-record.partition, record.offset))
            results += [self.final(by_time), self.final(reversed_)]
        return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded(KeyedRelation):
    """A running state for each key."""

    function: Callable[[Any, Record], Any]
    initial: Any = None

    def group(self, record: Record) -> tuple[Any, ...]:
        """Return the key."""
        return (self.key_of(record),)

    def final(self, records: Sequence[Record]) -> Any:
        """Return the state after all records. A mutable `initial` is copied for each group."""
        import copy

        state = copy.deepcopy(self.initial)
        for record in records:
            state = self.function(state, record)
        return state


class Window(tuple[Record, ...]):
    """The records of one key in one window, in order; the function of `windowed` receives it."""

    key: Any
    """The key of the window's records: bytes, unless `key=` gives another value."""
    start_ms: int
    """First millisecond of the window, since 1970."""
    end_ms: int
    """First millisecond after the window."""

    @classmethod
    def of(cls, records: Sequence[Record], key: Any, start_ms: int, end_ms: int) -> Window:
        """Return the window with these records."""
        window = cls(records)
        window.key, window.start_ms, window.end_ms = key, start_ms, end_ms
        return window


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed(KeyedRelation):
    """A result for each key and tumbling window."""

    seconds: float
    function: Callable[[Window], Any]
    time: str | Callable[[Record], Any] | None = None

    def group(self, record: Record) -> tuple[Any, ...]:
        """Return the key and the start of the record's window in milliseconds."""
        size_ms = round(self.seconds * MS)
        return self.key_of(record), self._time_ms(record) // size_ms * size_ms

    def _time_ms(self, record: Record) -> int:
        """Return the record's time in milliseconds. `time=` gives a datetime, or seconds since 1970."""
        if self.time is None:
            return record.timestamp_ms
        given = field_of(record, self.time) if isinstance(self.time, str) else self.time(record)
        if isinstance(given, str):
            given = datetime.fromisoformat(given)
        return int((given.timestamp() if isinstance(given, datetime) else float(given)) * MS + 1e-6)

    def final(self, records: Sequence[Record]) -> Any:
        """Return the function's result for the window."""
        key, start_ms = self.group(records[0])
        size_ms = round(self.seconds * MS)
        return self.function(Window.of(records, key, start_ms, start_ms + size_ms))


OWN_RELATIONS = ("identity", "mapped", "filtered", "flat_mapped", "folded", "windowed")
"""The names of Harrow's relations; extensions add others, as subclasses of `RecordRelation` or `KeyedRelation`."""
identity = Identity()
"""The output is the input: same key and same value."""


@checked
def mapped(f: Callable[[Record], Any]) -> Relation:
    """Each input gives the output `f(record)`."""
    return Mapped(function=_function("mapped", f))


@checked
def filtered(f: Callable[[Record], object]) -> Relation:
    """Each input for which `f(record)` is true comes out unchanged; the others do not."""
    return Filtered(predicate=_function("filtered", f))


@checked
def flat_mapped(f: Callable[[Record], Iterable[Any]]) -> Relation:
    """Each input gives an output for each item of `f(record)`."""
    return FlatMapped(function=_function("flat_mapped", f))


@checked
def folded(
    f: Callable[[Any, Record], Any], initial: Any = None, *, key: str | Callable[[Record], Any] | None = None
) -> Relation:
    """For each key the final output is the state after all its records: `state = f(state, record)`.

    `key`: a field or a function of the record; Kafka's record key by default.
    """
    return Folded(function=_function("folded", f), initial=initial, key=key)


@checked
def windowed(
    seconds: float,
    f: Callable[[Window], Any],
    *,
    time: str | Callable[[Record], Any] | None = None,
    key: str | Callable[[Record], Any] | None = None,
) -> Relation:
    """For each key and tumbling window of `seconds` the final output is `f(window)`.

    `time`: a field or function that gives a datetime, an ISO text or seconds since 1970; Kafka's timestamp by default.
    """
    if seconds * MS < 1:
        raise ConfigError(f"windowed({seconds}, …): expected a number of seconds, at least 0.001")
    return Windowed(seconds=seconds, function=_function("windowed", f), time=time, key=key)


def _function(relation: str, given: Any) -> Any:
    if not callable(given):
        raise ConfigError(f"{relation}({given!r}): expected a function of the record, such as a def or a lambda")
    return given


def field_of(fields: Mapping[str, Any], path: str) -> Any:
    """Return the field at a path such as `customer.id`; a field whose own name has the dots comes first."""
    if path in fields:
        return fields[path]
    found: Any = fields
    for name in path.split("."):
        found = found[name]
    return found


def added_relations() -> Mapping[str, Relation]:
    """Return the relations of extensions by name."""
    from ..extensions import added_by_name  # many modules, which no task of Spark needs

    return added_by_name("harrow_relations", lambda value: isinstance(value, Relation), "a Relation", OWN_RELATIONS)
