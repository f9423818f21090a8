"""The operations of an imported history: rows with columns, or Jepsen's operation maps, as one kind of value.

`read_operations` pairs invocations with completions and returns one `Operation` for each, in the order of their
completions. A row with the column `topic` is flat: one record, or one partition, with the columns of
`docs/histories.md`. A row without it has Jepsen's form: `f`, and a `value` that lists micro-operations
(`["send", key, [offset, value]]`, `["poll", {key: [[offset, value], …]}]`) or, for `assign` and `subscribe`, keys. A
key of Jepsen's is one partition: here partition 0 of a topic with the key's name.

Pairs: a completion belongs to the last invocation of the same process and `op`; without `op` a process has one
operation at a time. A completion without invocation is complete in itself, and when it began is known only by the
column `invoked`. An invocation without completion has an unknown outcome (`info`).

Times: `time` of every row in nanoseconds of one clock, or of none: then the order of the rows is the order in time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

from ..format import OperationType
from .errors import import_error
from .rows import Row

Place = tuple[str, int]
OUTCOMES = {
    "invoke": OperationType.INVOKE,
    "ok": OperationType.OK,
    "fail": OperationType.FAIL,
    "info": OperationType.INFO,
}
RECORDS = ("send", "poll", "final-read")
PLACES = ("assign", "subscribe", "seek", "rebalance")
FLAT = (*RECORDS, *PLACES, "commit", "end", "txn", "producer")
MICRO = ("send", "poll", "txn")
UNKNOWN_NS = 1
"""The begin of an operation whose file does not say when it began: before all others."""
FIRST_NS = 1_000
"""The earliest time of an imported history: the file's own times are moved there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRecord:
    """A record that was sent or read; `offset` -1: not known, `partition` -1: not known."""

    place: Place
    offset: int = -1
    key: bytes | None = None
    value: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one process did, from its invocation to its completion."""

    line: int
    process: str
    function: str
    outcome: OperationType
    invoked_ns: int
    completed_ns: int
    order: int
    """The place of the invocation among all rows: the order of a process's sends."""
    transaction: str = ""
    """The name of the transaction, unique in the file; empty: none."""
    sent: tuple[ImportedRecord, ...] = ()
    read: tuple[ImportedRecord, ...] = ()
    places: tuple[Place, ...] = ()
    rebalanced: tuple[Place, ...] = ()
    """Partitions whose position may have changed in the middle of the operation."""
    to_beginning: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    offset: int = -1
    """Of `commit` and `end`."""
    flat: bool = False
    part: str = ""
    """Of a row with columns: its `op`; neighbours with the same are one operation."""

    @property
    def begun_ns(self) -> int:
        """When it began; when it ended, where its begin is not known."""
        return self.completed_ns if self.invoked_ns == UNKNOWN_NS else self.invoked_ns


@dataclass(slots=True, kw_only=True)
class ReadHistory:
    """The operations of a file, and how many rows of kinds that are not judged it has, by `f`."""

    operations: list[Operation]
    passed_over: dict[str, int]


def read_operations(rows: Sequence[Row], source: str) -> ReadHistory:
    """Return the operations of the rows. Raises ImportedHistoryError with the line of a row that has no meaning."""
    return _Reader(source, _times(rows, source)).run(rows)


def _times(rows: Sequence[Row], source: str) -> dict[int, int]:
    """Return the time of each row, by its place among the rows."""
    timed = [number for number, row in enumerate(rows) if row.fields.get("time") is not None]
    if not timed:
        return {number: FIRST_NS + number for number in range(len(rows))}
    if len(timed) < len(rows):
        lacking = next(n for n, row in enumerate(rows) if row.fields.get("time") is None)
        raise import_error(
            source,
            rows[lacking].line,
            f"no time, although line {rows[timed[0]].line} has one",
            "give every row the time of one clock in nanoseconds, or none",
        )
    times = [_integer(row, "time", source) for row in rows]
    begins = [_integer(row, "invoked", source) for row in rows if _has(row, "invoked")]
    move = FIRST_NS - min([*times, *begins])
    return {number: at + move for number, at in enumerate(times)} | {-1: move}


class _Reader:
    """Pairs the rows of one file."""

    def __init__(self, source: str, times: Mapping[int, int]) -> None:
        self._source = source
        self._times = times
        self._open: dict[tuple[str, str], tuple[int, Row]] = {}
        self._found: list[Operation] = []
        self._passed: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def run(self, rows: Sequence[Row]) -> ReadHistory:
        for number, row in enumerate(rows):
            self._row(number, row)
        for number, row in self._open.values():
            self._add(self._operation(number, row, number, row, OperationType.INFO))
        return ReadHistory(operations=self._found, passed_over=self._passed)

    def _add(self, row: Operation) -> None:
        """Add an operation; rows with columns that are parts of one operation become one."""
        before = self._last.get(row.process)
        if before is not None and _together(self._found[before], row):
            first = self._found[before]
            places = (*first.places, *row.places)
            self._found[before] = replace(first, places=places, read=(*first.read, *row.read))
            return
        self._last[row.process] = len(self._found)
        self._found.append(row)

    def _row(self, number: int, row: Row) -> None:
        function, kind = self._text(row, "f"), self._text(row, "type")
        process = self._text(row, "process")
        whole = function in ("txn", "producer") and "value" not in row.fields
        flat = whole or "topic" in row.fields
        if kind not in OUTCOMES:
            self._refuse(row, f"the type is {kind!r}", f"expected one of {', '.join(OUTCOMES)}")
        if flat and function not in FLAT:
            self._refuse(row, f"the operation f is {function!r}", f"expected one of {', '.join(FLAT)}")
        if not flat and function in RECORDS and "value" not in row.fields:
            self._refuse(
                row,
                f"{function} has neither a topic nor a value",
                "give it the columns topic, partition, offset and value, or Jepsen's value: a list of "
                '["send", key, value] and ["poll"]',
            )
        if not flat and function not in (*MICRO, "assign", "subscribe"):
            self._passed[function] = self._passed.get(function, 0) + 1
            return
        who = (process, str(row.fields.get("op", "")))
        if OUTCOMES[kind] is OperationType.INVOKE:
            if who in self._open:
                line = self._open[who][1].line
                self._refuse(
                    row,
                    f"process {process} has an operation that began on line {line} and has not ended",
                    "give operations that overlap a number each, in the column op",
                )
            self._open[who] = number, row
            return
        begun = self._open.pop(who, None)
        if begun is not None and str(begun[1].fields.get("f")) != function:
            self._refuse(
                row,
                f"{function} completes the {begun[1].fields.get('f')} of line {begun[1].line}",
                "expected the same f; give operations that overlap a number each, in the column op",
            )
        self._add(self._operation(*(begun or (-1, row)), number, row, OUTCOMES[kind]))

    def _operation(self, begun: int, first: Row, ended: int, last: Row, outcome: OperationType) -> Operation:
        """Return the operation of two rows; `begun` -1: the completion stands alone."""
        if begun >= 0:
            invoked_ns = self._times[begun]
        elif _has(last, "invoked"):
            invoked_ns = _integer(last, "invoked", self._source) + self._times.get(-1, 0)
        else:
            invoked_ns = UNKNOWN_NS
        process, function = self._text(last, "process"), self._text(last, "f")
        blank = Operation(
            line=last.line,
            process=process,
            function=function,
            outcome=outcome,
            invoked_ns=invoked_ns,
            completed_ns=self._times[ended],
            order=begun if begun >= 0 else ended,
        )
        if invoked_ns > blank.completed_ns:
            self._refuse(last, "it ends before it begins", "check the columns invoked and time")
        merged = Row(last.line, {**first.fields, **{k: v for k, v in last.fields.items() if v is not None}})
        if "topic" in merged.fields or "value" not in merged.fields:
            return self._flat(blank, merged)
        if function in MICRO:
            return self._micro(blank, merged)
        return replace(
            blank,
            places=tuple(self._places(merged, merged.fields["value"])),
            to_beginning=bool(merged.fields.get("seek-to-beginning?")),
        )

    # ---- rows with columns ---------------------------------------------------------------------------

    def _flat(self, blank: Operation, row: Row) -> Operation:
        name = str(row.fields["txn"]) if _has(row, "txn") else ""
        blank = replace(
            blank, transaction=f"{blank.process}/{name}" if name else "", part=str(row.fields.get("op", "")), flat=True
        )
        if blank.function == "txn":
            if not name:
                self._refuse(row, "txn has no name", "name the transaction in the column txn")
            return blank
        if blank.function == "producer":
            return replace(blank, settings=_settings(row, self._source))
        partition = _integer(row, "partition", self._source) if _has(row, "partition") else None
        nothing = blank.function == "poll" and not _has(row, "offset")
        if partition is None and not nothing and blank.function not in ("send", "subscribe"):
            self._refuse(row, f"{blank.function} has no partition", "give it the column partition")
        place = (str(row.fields["topic"]), -1 if partition is None else partition)
        offset = _integer(row, "offset", self._source) if _has(row, "offset") else -1
        if blank.function in ("commit", "end"):
            return replace(blank, places=(place,), offset=offset)
        if blank.function not in RECORDS:
            return replace(blank, places=(place,))
        record = ImportedRecord(
            place=place, offset=offset, key=content(row.fields.get("key")), value=content(row.fields.get("value"))
        )
        if blank.function == "send":
            return replace(blank, sent=(record,))
        if offset < 0:  # a poll that returned nothing
            return blank
        return replace(blank, read=(record,))

    # ---- Jepsen's form -------------------------------------------------------------------------------

    def _micro(self, blank: Operation, row: Row) -> Operation:
        sent: list[ImportedRecord] = []
        read: list[ImportedRecord] = []
        for micro in self._list(row, row.fields["value"]):
            parts = self._list(row, micro)
            if len(parts) == 3 and parts[0] == "send":
                sent.append(self._sent(row, parts[1], parts[2]))
            elif len(parts) in (1, 2) and parts[0] == "poll":
                read += self._read(row, parts[1] if len(parts) == 2 else {})
            else:
                self._refuse(
                    row,
                    f"{parts!r} is no micro-operation",
                    'expected ["send", key, [offset, value]] or ["poll", {key: [[offset, value], …]}]',
                )
        moved: list[Any] = []
        for entry in self._list(row, row.fields.get("rebalance-log", [])):
            moved.extend(entry.get("keys", ()))
        transaction = f"{blank.process}/{blank.order}" if blank.function == "txn" else ""
        return replace(
            blank,
            transaction=transaction,
            sent=tuple(sent),
            read=tuple(read),
            rebalanced=tuple(self._places(row, moved)),
        )

    def _sent(self, row: Row, key: Any, given: Any) -> ImportedRecord:
        place = (str(key), 0)
        if not isinstance(given, list):
            return ImportedRecord(place=place, value=content(given))
        pair = cast("Sequence[Any]", given)
        if len(pair) != 2 or not isinstance(pair[0], int | None):
            self._refuse(row, f"{pair!r} is no [offset, value]", "expected an offset or nil first")
        return ImportedRecord(place=place, offset=-1 if pair[0] is None else pair[0], value=content(pair[1]))

    def _read(self, row: Row, given: Any) -> list[ImportedRecord]:
        if not isinstance(given, dict):
            self._refuse(row, f"a poll returned {given!r}", "expected a map of keys to [offset, value]")
        found: list[ImportedRecord] = []
        for key, pairs in cast("dict[object, Any]", given).items():
            for item in self._list(row, pairs):
                pair = _placed(item)
                if pair is None:
                    self._refuse(row, f"{item!r} is no [offset, value]", "a record read has its offset")
                offset, value = pair
                found.append(ImportedRecord(place=(str(key), 0), offset=offset, value=content(value)))
        return found

    def _places(self, row: Row, keys: Any) -> list[Place]:
        return [(str(key), 0) for key in self._list(row, keys)]

    def _list(self, row: Row, value: Any) -> Sequence[Any]:
        if not isinstance(value, list):
            self._refuse(row, f"{value!r} is no list", "expected Jepsen's form of an operation")
        return cast("Sequence[Any]", value)

    def _text(self, row: Row, name: str) -> str:
        if not _has(row, name):
            self._refuse(
                row, f"no {name}", "every row has process, type and f; the columns begin in the first line of a CSV"
            )
        return str(row.fields[name])

    def _refuse(self, row: Row, problem: str, remedy: str) -> NoReturn:
        raise import_error(self._source, row.line, problem, remedy)


def _placed(item: object) -> tuple[int, Any] | None:
    """Return offset and value of a record that was read; None for something else."""
    if not isinstance(item, list):
        return None
    pair = cast("Sequence[Any]", item)
    return (pair[0], pair[1]) if len(pair) == 2 and isinstance(pair[0], int) else None


def _together(first: Operation, row: Operation) -> bool:
    """Return whether two rows of a process are one operation: an assignment of several partitions, or one poll."""
    same = first.flat and row.flat and first.part == row.part and first.function == row.function
    if not same or (first.outcome, first.transaction) != (row.outcome, row.transaction):
        return False
    return row.function in ("assign", "subscribe") or (row.function == "poll" and bool(row.part))


def content(value: Any) -> bytes | None:
    """Return the bytes of a key or value: a text as it is, everything else as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


def _has(row: Row, name: str) -> bool:
    return row.fields.get(name) is not None


def _integer(row: Row, name: str, source: str) -> int:
    value = row.fields[name]
    try:
        number = int(value)
    except (ValueError, TypeError):
        number = None
    if number is None or isinstance(value, bool) or float(number) != float(value):
        raise import_error(source, row.line, f"{name} is {value!r}", "expected a whole number")
    return number


def _settings(row: Row, source: str) -> dict[str, Any]:
    acks = str(row.fields.get("acks", ""))
    idempotent = str(row.fields.get("idempotent", "")).lower()
    if acks not in ("0", "1", "-1", "all") or idempotent not in ("true", "false"):
        raise import_error(
            source,
            row.line,
            f"a producer with acks={acks!r} and idempotent={idempotent!r}",
            "expected acks 0, 1 or all, and idempotent true or false",
        )
    return {"acks": -1 if acks == "all" else int(acks), "idempotent": idempotent == "true"}
