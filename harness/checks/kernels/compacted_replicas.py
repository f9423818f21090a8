"""What compaction left in the replicas' logs: each of them has the last value of every key (B8, L2, L3).

Replicas compact their logs on their own, so the cleaned parts of two logs differ legally, and `replicas.py` does not
compare them. But whatever a cleaner has removed, in logs that end at the same offset:

* the last committed record of a key is in every log that begins at or before it; only a tombstone may be gone, with all
  earlier records of its key;
* an offset has the same key and value in every log that has it.

A log that breaks this is a `replica-divergence`: it would be lost, or a deleted key would be back, as soon as that
broker leads. The records are decoded, which takes some microseconds each, so logs of more than `BYTES_MOST` are not
compared. Neither are they on machines without Harrow's decoder (`cluster_tasks.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ...histories.format import stable_hash
from ...histories.segments import CONTROL, segment_files, transaction_ranges
from ...histories.task_files import is_url
from ..rows import OperationRow
from .batches import converged
from .findings import Description, PartitionFindings, batch_rows
from .inputs import PartitionInputs

BYTES_MOST = 64 << 20
"""Of one replica's log."""
KEY_MOST = 40
"""Characters of a key in an explanation."""


class LastRecord(NamedTuple):
    """The last record of a key in one log."""

    offset: int
    value_hash: int
    """0 for a tombstone."""


Kept = Mapping[bytes, LastRecord]


def last_values(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Compare the last record of each key in the logs of all replicas."""
    folders = {node: inputs.job.logs[str(node)] for node in inputs.logs if str(node) in inputs.job.logs}
    readable = not any(is_url(folder) or _size(folder) > BYTES_MOST for folder in folders.values())
    sound = all(log["crc_good"].all() for log in inputs.logs.values()) and converged(inputs)
    if not inputs.job.cleaned_end or len(folders) < 2 or not readable or not sound:
        return
    try:
        kept = {node: last_records(folder, inputs.logs[node]) for node, folder in folders.items()}
    except ImportError:  # on a machine of the user's
        return
    # a cleaner keeps the name of a log's first segment, whatever it removes from it
    starts = {node: max(inputs.low, _first(folder)) for node, folder in folders.items()}
    found = list(_differences(kept, starts))

    def describe(row: tuple[list[int], str]) -> Description:
        return row[0], _batches(inputs, row[0][0]), row[1]

    findings.add_all("replica-divergence", found, describe)


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in segment_files(folder))


def last_records(folder: str, log: pl.DataFrame) -> dict[bytes, LastRecord]:
    """Return the last record of each key in a log, without those of aborted transactions."""
    from harrow.cluster.wire.records import decode_records

    columns = ("base_offset", "last_offset", "attributes", "producer_id")
    aborted = set(transaction_ranges(log.select(columns).iter_rows()).aborted)
    contents = {int(path.stem): path for path in segment_files(folder)}
    found: dict[bytes, LastRecord] = {}
    rows = log.select("segment", "position", "base_offset", "last_offset", "attributes").iter_rows()
    for segment, batches in itertools.groupby(rows, key=lambda row: row[0]):
        with memoryview(_read(contents, segment)) as data:
            for _, position, base, last, attributes in batches:
                if attributes & CONTROL or (base, last) in aborted:
                    continue
                length = int.from_bytes(data[position + 8 : position + 12])
                for record in decode_records(data[position : position + 12 + length]):
                    if record.key is not None:
                        found[record.key] = LastRecord(record.offset, stable_hash(record.value))
    return found


def _read(contents: Mapping[int, Path], segment: int) -> bytes:
    return contents[segment].read_bytes()


def _first(folder: str) -> int:
    return min((int(path.stem) for path in segment_files(folder)), default=0)


def _differences(kept: Mapping[int, Kept], starts: Mapping[int, int]) -> Iterator[tuple[list[int], str]]:
    """Yield offset and explanation of each difference, by offset; a log is judged from its start on."""
    newest: dict[bytes, tuple[LastRecord, int]] = {}
    for node, records in sorted(kept.items()):
        for key, record in records.items():
            if key not in newest or record.offset > newest[key][0].offset:
                newest[key] = record, node
    for key, (last, owner) in sorted(newest.items(), key=lambda item: item[1][0].offset):
        for node, records in sorted(kept.items()):
            mine = records.get(key)
            if mine == last or starts[node] > last.offset:
                continue
            if mine is None and not last.value_hash:
                continue
            yield [last.offset], _explanation(key, last, owner, mine, node)


def _explanation(key: bytes, last: LastRecord, owner: int, mine: LastRecord | None, node: int) -> str:
    what = "the last value" if last.value_hash else "the tombstone"
    name = repr(key)[1:][:KEY_MOST]
    if mine is None:
        found = "has no record of the key"
    elif mine.offset == last.offset:
        found = "has another value there"
    else:
        found = f"has the key last at offset {mine.offset}"
    return (
        f"compaction must keep {what} of key {name}: broker {owner} has it at offset {last.offset}, but broker {node} "
        f"{found}"
    )


def _batches(inputs: PartitionInputs, offset: int) -> list[OperationRow]:
    rows: list[OperationRow] = []
    for node, log in sorted(inputs.logs.items()):
        there = log.filter((pl.col("base_offset") <= offset) & (pl.col("last_offset") >= offset))
        rows += batch_rows(there.with_columns(pl.lit(node).alias("node")), "in the log")
    return rows
