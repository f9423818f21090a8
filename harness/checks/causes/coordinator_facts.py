"""What the coordinators' taps show about causes: ends of transactions, commits outside of them, old offsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harrow.cluster.broker_folder import TAP_NAMES, broker_files, node_id_of

from ... import run_folder
from ...histories.coordinator_rows import FILES, OFFSETS, TRANSACTIONS, map_coordinator_rows
from ...histories.format import FINAL_READ_CLIENT, read_names
from ...histories.tap import REPLICA_CLIENT, read_tap
from .evidence import EndedTransactions, OldOffsetRead, PlainCommits, UncommittedReader, UnfinishedTransaction

OFFSET_ROWS_MOST = 200_000
"""Rows of committed offsets that are compared with each other."""


def _rows(folder: Path, what: str, topics: set[str]) -> Iterator[tuple[int, Any, str, list[str]]]:
    """Yield for each broker and each wanted topic the rows, and the names of the file."""
    for path in broker_files(folder / run_folder.CLUSTER, FILES[what]):
        rows = map_coordinator_rows(path, what)
        names = list(read_names(path.with_name(TAP_NAMES)))
        for number, name in enumerate(names):
            if name in topics:
                yield node_id_of(path.parent), rows[rows["topic"] == number], name, names


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetOfGroup:
    """What a coordinator (`node`) committed or read for a group; a row of its tap with names."""

    node: int
    group: str
    topic: str
    client: str
    kind: int
    error: int
    partition: int
    offset: int
    invoked_ns: int
    completed_ns: int

    @property
    def place(self) -> tuple[str, str, int]:
        """The group and the topic-partition."""
        return self.group, self.topic, self.partition


def ended_transactions(folder: Path, topics: set[str], state: int) -> list[EndedTransactions]:
    """Return the transactions in `state` with records of each topic."""
    import numpy as np

    found: dict[tuple[str, str], set[tuple[int, int, int]]] = {}
    times: dict[tuple[str, str], list[int]] = {}
    for _, rows, topic, names in _rows(folder, TRANSACTIONS, topics):
        ended = rows[rows["state"] == state]
        numbers: list[int] = np.unique(ended["transactional_id"]).tolist()
        for number in numbers:
            own = ended[ended["transactional_id"] == number]
            key = (names[number], topic)
            times.setdefault(key, []).extend(own["time_ns"].tolist())
            # several partitions of a transaction have the same time, and so has no other transaction of the id
            found.setdefault(key, set()).update(own[["producer_id", "producer_epoch", "time_ns"]].tolist())
    return [
        EndedTransactions(
            transactional_id=name,
            topic=topic,
            transactions=len(found[name, topic]),
            first_ns=min(times[name, topic]),
            last_ns=max(times[name, topic]),
        )
        for name, topic in sorted(found)
    ]


def unfinished_transactions(folder: Path, topics: set[str]) -> list[UnfinishedTransaction]:
    """Return the transactions without a decision, by the last row of each."""
    import numpy as np
    from harrow.cluster.host.seam import TRANSACTION_ONGOING

    last: dict[tuple[str, str], tuple[int, int]] = {}
    for _, rows, topic, names in _rows(folder, TRANSACTIONS, topics):
        numbers: list[int] = np.unique(rows["transactional_id"]).tolist()
        for number in numbers:
            own = rows[rows["transactional_id"] == number]
            at = int(own["time_ns"].argmax())
            key = (names[number], topic)
            found = (int(own["time_ns"][at]), int(own["state"][at]))
            last[key] = max(last.get(key, (0, 0)), found)
    return [
        UnfinishedTransaction(transactional_id=name, topic=topic, begun_ns=time_ns)
        for (name, topic), (time_ns, state) in sorted(last.items())
        if state == TRANSACTION_ONGOING
    ]


def readers(folder: Path, topics: set[str]) -> set[str]:
    """Return the clients to which a record of a topic was delivered."""
    import numpy as np
    from harrow.cluster.tap.layouts import FETCHED

    found: set[str] = set()
    for path in run_folder.tap_files(folder / run_folder.CLUSTER):
        tap = read_tap(path)
        wanted = [number for number, name in enumerate(tap.names) if name in topics]
        delivered = (tap.rows["kind"] == FETCHED) & np.isin(tap.rows["topic"], wanted)
        found |= {tap.names[number] for number in np.unique(tap.rows["client"][delivered]).tolist()}
    return found


def plain_commits(folder: Path, topics: set[str]) -> list[PlainCommits]:
    """Return the offsets that groups committed outside of transactions."""
    import numpy as np
    from harrow.cluster.host.seam import OFFSET_COMMITTED

    found: dict[tuple[str, str], int] = {}
    for _, rows, topic, names in _rows(folder, OFFSETS, topics):
        plain = rows[(rows["kind"] == OFFSET_COMMITTED) & (rows["producer_id"] < 0)]
        for number, count in zip(*np.unique(plain["group"], return_counts=True), strict=True):
            key = (names[int(number)], topic)
            found[key] = found.get(key, 0) + int(count)
    return [PlainCommits(group=group, topic=topic, commits=count) for (group, topic), count in sorted(found.items())]


def offset_rows(folder: Path, topics: set[str]) -> list[OffsetOfGroup]:
    """Return what coordinators committed and read of each topic."""
    fields = ("kind", "error", "partition", "offset", "invoked_ns", "completed_ns")
    found: list[OffsetOfGroup] = []
    for node, rows, topic, names in _rows(folder, OFFSETS, topics):
        chosen: Any = rows[["group", "client", *fields]][: OFFSET_ROWS_MOST - len(found)]
        values: list[tuple[int, int, int, int, int, int, int, int]] = chosen.tolist()
        found += [
            OffsetOfGroup(
                node=node,
                group=names[group],
                topic=topic,
                client=names[client],
                **dict(zip(fields, of_row, strict=True)),
            )
            for group, client, *of_row in values
        ]
    return found


def old_offset_reads(rows: Iterable[OffsetOfGroup]) -> list[OldOffsetRead]:
    """Return the reads that a coordinator answered with an older offset than another one had committed.

    That one answered for the partition before and after.
    """
    from ..kernels.groups import reads_below_commits

    found: list[OldOffsetRead] = []
    by_partition = sorted(rows, key=lambda row: row.place)
    for (group, topic, partition), of_partition in itertools.groupby(by_partition, lambda row: row.place):
        own = sorted(of_partition, key=lambda row: row.completed_ns)
        last_begun: dict[int, int] = {}
        for row in own:
            last_begun[row.node] = max(row.invoked_ns, last_begun.get(row.node, 0))
        found += [
            OldOffsetRead(
                group=group,
                topic=topic,
                partition=partition,
                client=read.client,
                broker=read.node,
                offset=read.offset,
                time_ns=read.completed_ns,
                other_broker=last.node,
                committed=last.offset,
                committed_ns=last.completed_ns,
            )
            for last, read in reads_below_commits(own)
            if last.node != read.node and last_begun[last.node] > read.completed_ns
        ]
    return found


def uncommitted_readers(folder: Path, topics: set[str]) -> list[UncommittedReader]:
    """Return the clients that fetched uncommitted data, without brokers and the final read."""
    import numpy as np
    from harrow.cluster.tap.layouts import FETCHED, FLAG_READ_COMMITTED

    found: set[tuple[str, str]] = set()
    for path in run_folder.tap_files(folder / run_folder.CLUSTER):
        tap = read_tap(path)
        plain = (tap.rows["kind"] == FETCHED) & ((tap.rows["flags"] & FLAG_READ_COMMITTED) == 0)
        for number, topic in enumerate(tap.names):
            if topic in topics:
                clients = np.unique(tap.rows["client"][plain & (tap.rows["topic"] == number)])
                found |= {(tap.names[client], topic) for client in clients.tolist()}
    return [
        UncommittedReader(client=client, topic=topic)
        for client, topic in sorted(found)
        if client != FINAL_READ_CLIENT and not REPLICA_CLIENT.fullmatch(client)
    ]
