"""The records that brokers refused, with their contents (`harrow.cluster.tap.layouts`).

Owns: `read_refused`, which returns nothing where it is not known to be everything: a broker whose tap has no such file
(of an earlier Harrow), a file at its bound, an entry that cannot be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from harrow.cluster.broker_folder import TAP, TAP_NAMES, TAP_REFUSED, broker_files
from harrow.cluster.errors import HarrowError

from .. import run_folder
from .format import read_names


class RefusedRecord(NamedTuple):
    """One record of a refused batch."""

    topic: str
    partition: int
    error: int
    transactional: bool
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_refused(run: Path, topics: Collection[str]) -> list[RefusedRecord] | None:
    """Return the records of these topics that brokers refused, each attempt; None where they are not all known."""
    from harrow.cluster.tap.layouts import REFUSED_BYTES_MOST

    cluster = run / run_folder.CLUSTER
    paths = broker_files(cluster, TAP_REFUSED)
    if {path.parent for path in paths} != {path.parent for path in broker_files(cluster, TAP)}:
        return None
    found: list[RefusedRecord] = []
    for path in paths:
        if path.stat().st_size >= REFUSED_BYTES_MOST:
            return None
        try:
            found += _records(path, topics)
        except (HarrowError, OSError):
            return None
    return found


def _records(path: Path, topics: Collection[str]) -> Iterator[RefusedRecord]:
    from harrow.cluster.tap.layouts import REFUSED_HEAD, REFUSED_MAGIC
    from harrow.cluster.wire.batch_header import headers_in
    from harrow.cluster.wire.records import decode_records

    data = path.read_bytes()
    names = read_names(path.with_name(TAP_NAMES)) if data else []
    at = 0
    while at < len(data):
        if at + REFUSED_HEAD.size > len(data):
            raise HarrowError(f"{path} at byte {at}: an entry is cut off")
        magic, _, topic, partition, error, length = REFUSED_HEAD.unpack_from(data, at)
        at += REFUSED_HEAD.size
        if magic != REFUSED_MAGIC or topic >= len(names) or at + length > len(data):
            raise HarrowError(f"{path} at byte {at}: this is no entry of a refused batch")
        entry = data[at : at + length]
        at += length
        if names[topic] not in topics:
            continue
        begin = 0
        for of in headers_in((entry,)):
            batch = entry[begin : begin + of.size]
            begin += len(batch)
            for record in decode_records(batch):
                yield RefusedRecord(
                    names[topic],
                    partition,
                    error,
                    of.is_transactional,
                    record.timestamp,
                    record.key,
                    record.value,
                    record.headers,
                )
