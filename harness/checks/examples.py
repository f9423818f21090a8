"""The anomalies that a verdict shows: the worst first, with the names of clients, and with keys and values as text.

Kernels return rows with hashes and numbers. `shown_anomalies` makes the verdict's anomalies of them, and adds what the
records contained:

* of a recorded send, from the file that its producer wrote (`histories/sent_contents.py`);
* of a record that a log has, from the log of a replica, for the first `DECODED_MOST` anomalies of each name;
* of any other row with the same hashes, from those.

A record that none of these has (an application's own client sent it, and the brokers lost it) stays without contents.
Nothing is raised: a file that cannot be read has no contents.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from harrow.cluster.errors import HarrowError
from harrow.cluster.wire.batch_header import HEADER, HEADER_SIZE, LOG_OVERHEAD
from harrow.cluster.wire.records import decode_records

from .. import run_folder
from ..histories.format import read_names
from ..histories.row_index import NAMED
from ..histories.segments import SegmentError, segment_files
from ..histories.sent_contents import SUFFIX, SentRecord, sent_records
from .client_names import named
from .known_anomalies import rank
from .record import text_of
from .rows import AnomalyRow, OperationRow
from .verdict import Anomaly

if TYPE_CHECKING:
    from harrow.cluster.wire.records import Record

    Logs = Mapping[tuple[str, int], Mapping[str, str]]
    """Folders of the replicas' logs, by topic-partition and node id."""

DECODED_MOST = 3
IN_THE_LOG = frozenset({"final read", "in the log"})
SHOWN_MOST = 100
"""Anomalies of one name in verdict.json, over all partitions."""
LOG_BYTES_MOST = 1 << 30
"""In longer logs no record is searched for an example."""


def shown_anomalies(
    found: Sequence[AnomalyRow], *, folder: Path, clients: Sequence[str], not_allowed: frozenset[str], logs: Logs
) -> tuple[Anomaly, ...]:
    """Return the anomalies `found` as the verdict shows them: forbidden ones first, then the worst first."""
    ordered = sorted(
        found, key=lambda row: (row.name not in not_allowed, rank(row.name), row.name, row.topic, row.partition)
    )
    shown: list[Anomaly] = []
    seen = Counter[str]()
    for row in ordered:
        seen[row.name] += 1
        if seen[row.name] <= SHOWN_MOST:
            shown.append(_with_clients(row, clients))
    seen.clear()
    add_sent(shown, folder)
    for at, anomaly in enumerate(shown):
        seen[anomaly.name] += 1
        if seen[anomaly.name] <= DECODED_MOST:
            add_logged(anomaly, logs)
            differing = differing_headers(anomaly.rows)
            shown[at] = replace(anomaly, explanation=anomaly.explanation + differing)
    return tuple(shown)


def _with_clients(row: AnomalyRow, clients: Sequence[str]) -> Anomaly:
    return Anomaly(
        name=row.name,
        topic=row.topic,
        partition=row.partition,
        offsets=tuple(row.offsets),
        operations=tuple(_with_client(operation, clients) for operation in row.operations),
        explanation=named(row.explanation, clients),
        records=row.records,
    )


def _with_client(row: OperationRow, clients: Sequence[str]) -> OperationRow:
    """Return the known fields of an operation, with names of clients, groups and members instead of their numbers."""
    present = {name: value for name, value in row.items() if value is not None}
    for name in (NAMED | {"reading_group"}) & present.keys():
        number = present[name]
        if isinstance(number, int) and 0 <= number < len(clients):
            present[name] = clients[number]
    return cast("OperationRow", present)


def add_sent(anomalies: Sequence[Anomaly], folder: Path) -> None:
    """Add `key`, `value` and `headers` to the recorded sends of these anomalies, and to rows with the same hashes."""
    sent = _sent(anomalies, folder)
    for anomaly in anomalies:
        for row in anomaly.rows:
            if record := sent.get(_send(row) or ("", -1)):
                _add_sent(row, record)
        _add_by_hash(anomaly.rows)


def _send(row: OperationRow) -> tuple[str, int] | None:
    """Return the client and the number of a recorded send."""
    return (
        (str(row["client"]), row["op"]) if row.get("operation") == "send" and {"client", "op"} <= row.keys() else None
    )


def add_logged(anomaly: Anomaly, logs: Logs) -> None:
    """Add `key`, `value` and `headers` to those operations of an anomaly whose record a replica's log has."""
    reader = _LogReader(logs.get((anomaly.topic, anomaly.partition), {}))
    for row in anomaly.rows:
        if row.get("operation") in IN_THE_LOG and "value" not in row:
            _add_logged(row, reader)
    _add_by_hash(anomaly.rows)


def _add_by_hash(operations: Sequence[OperationRow]) -> None:
    known = {_hashes(row): row for row in operations if "value" in row and "value_hash" in row}
    for row in operations:
        same = known.get(_hashes(row))
        if same is None or "value" in row:
            continue
        if "key" in same:
            row["key"] = same["key"]
        row["value"] = same["value"]
        if "headers" in same:
            row["headers"] = same["headers"]


def _hashes(row: OperationRow) -> tuple[str | None, str | None]:
    return row.get("key_hash"), row.get("value_hash")


def _sent(anomalies: Sequence[Anomaly], folder: Path) -> dict[tuple[str, int], SentRecord]:
    wanted = {send for anomaly in anomalies for row in anomaly.rows if (send := _send(row)) is not None}
    found: dict[tuple[str, int], SentRecord] = {}
    for path in run_folder.operation_files(folder / run_folder.HISTORY):
        if len(found) == len(wanted):
            break
        try:
            names = read_names(path.with_suffix(".names"))
            found |= sent_records(path.with_suffix(SUFFIX), names, wanted - found.keys())
        except OSError:
            continue
    return found


def _add_sent(row: OperationRow, record: SentRecord) -> None:
    row["key"] = _text(record.key, cut=record.key_cut)
    row["value"] = _text(record.value, cut=record.value_cut)
    if record.headers:
        row["headers"] = _header_texts(record.headers)


def _text(data: bytes | None, *, cut: bool) -> str:
    if data is None or not cut:
        return text_of(data)
    for missing in range(4):  # the cut may have left a part of a UTF-8 character
        try:
            return text_of(data[: len(data) - missing].decode().encode()).rstrip("…") + "…"
        except UnicodeDecodeError:
            continue
    return text_of(data).rstrip("…") + "…"


def _add_logged(row: OperationRow, reader: _LogReader) -> None:
    """Add the record at the row's offset; of a batch, its first record."""
    offset = _offset(row)
    record = reader.record(offset, row.get("broker")) if offset is not None else None
    if record is not None:
        row["key"], row["value"] = text_of(record.key), text_of(record.value)
        if record.headers:
            row["headers"] = _header_texts(record.headers)


def _header_texts(headers: Iterable[tuple[str, bytes | None]]) -> list[str]:
    """Return each header as name=text."""
    return [f"{name}={text_of(content)}" for name, content in headers]


def differing_headers(operations: Sequence[OperationRow]) -> str:
    """Return which headers a send and the log differ in, at one offset with the same key and value; else nothing.

    A log has a record only once, so its record at the offset of the send is what the send has become.
    """
    sends = [row for row in operations if row.get("operation") == "send" and "value" in row]
    there = [row for row in operations if row.get("operation") in IN_THE_LOG and "value" in row]
    for send in sends:
        for row in there:
            if _offset(row) != _offset(send) or (row["key"], row["value"]) != (send["key"], send["value"]):
                continue
            sent, found = send.get("headers", []), row.get("headers", [])
            if sent != found:
                gone = [text for text in sent if text not in found]
                new = [text for text in found if text not in sent]
                if not gone and not new:
                    return "; the headers differ in their order"
                return f"; the headers differ: sent {_listed(gone)}, in the log {_listed(new)}"
    return ""


def _offset(row: OperationRow) -> int | None:
    return row.get("offset", row.get("base_offset"))


def _listed(headers: Sequence[str]) -> str:
    return ", ".join(headers) or "nothing"


class _LogReader:
    """Reads single records from the replicas' logs of one partition."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = folders

    def record(self, offset: int, broker: int | str | None) -> Record | None:
        """Return the record at `offset` in the log of `broker`, or without one, of any replica."""
        names = [str(broker)] if str(broker) in self._folders else list(self._folders)
        for name in names:
            try:
                record = _record_at(self._folders[name], offset)
            except (HarrowError, OSError, ValueError, IndexError):
                continue
            if record is not None:
                return record
        return None


def _record_at(folder: str, offset: int) -> Record | None:
    try:
        files = segment_files(folder)
    except SegmentError:
        return None
    holding = [path for path in files if int(path.stem) <= offset]
    if not holding or not 0 < os.path.getsize(holding[-1]) <= LOG_BYTES_MOST:
        return None
    with holding[-1].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = 0
        while at + HEADER_SIZE <= len(data):
            fields = HEADER.unpack_from(data, at)
            base, length, delta = fields[0], fields[1], fields[6]
            end = at + length + LOG_OVERHEAD
            if length < HEADER_SIZE - LOG_OVERHEAD or end > len(data):
                return None
            if base <= offset <= base + delta:
                records = decode_records(data[at:end])
                return next((record for record in records if record.offset == offset), None)
            at = end
    return None
