"""What the coordinators' taps show about causes: ends of transactions, and commits outside of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harrow.cluster.broker_folder import TAP_NAMES, broker_files

from ... import run_folder
from ...histories.coordinator_rows import FILES, OFFSETS, TRANSACTIONS, map_coordinator_rows
from ...histories.format import FINAL_READ_CLIENT, read_names
from ...histories.recorded_faults import Row
from ...histories.tap import REPLICA_CLIENT, read_tap


def _rows(folder: Path, what: str, topics: set[str]) -> Iterator[tuple[Any, str, list[str]]]:
    """Yield the rows of each wanted topic, the topic and the names of the file."""
    for path in broker_files(folder / run_folder.CLUSTER, FILES[what]):
        rows = map_coordinator_rows(path, what)
        names = list(read_names(path.with_name(TAP_NAMES)))
        for number, name in enumerate(names):
            if name in topics:
                yield rows[rows["topic"] == number], name, names


def ended_transactions(folder: Path, topics: set[str], state: int) -> list[Row]:
    """Return the transactions in `state` with records of each topic: `transactional_id`, `topic`, how many and when."""
    import numpy as np

    found: dict[tuple[str, str], set[tuple[int, int, int]]] = {}
    times: dict[tuple[str, str], list[int]] = {}
    for rows, topic, names in _rows(folder, TRANSACTIONS, topics):
        ended = rows[rows["state"] == state]
        numbers: list[int] = np.unique(ended["transactional_id"]).tolist()
        for number in numbers:
            own = ended[ended["transactional_id"] == number]
            key = (names[number], topic)
            times.setdefault(key, []).extend(own["time_ns"].tolist())
            # several partitions of a transaction have the same time, and so has no other transaction of the id
            found.setdefault(key, set()).update(
                own[["producer_id", "producer_epoch", "time_ns"]].tolist()
            )
    return [
        {
            "transactional_id": name, "topic": topic, "transactions": len(found[name, topic]),
            "first_ns": min(times[name, topic]), "last_ns": max(times[name, topic]),
        }
        for name, topic in sorted(found)
    ]  # fmt: skip


def plain_commits(folder: Path, topics: set[str]) -> list[Row]:
    """Return the offsets that groups committed outside of transactions: `group`, `topic`, `commits`."""
    import numpy as np
    from harrow.cluster.host.seam import OFFSET_COMMITTED

    found: dict[tuple[str, str], int] = {}
    for rows, topic, names in _rows(folder, OFFSETS, topics):
        plain = rows[(rows["kind"] == OFFSET_COMMITTED) & (rows["producer_id"] < 0)]
        for number, count in zip(*np.unique(plain["group"], return_counts=True), strict=True):
            key = (names[int(number)], topic)
            found[key] = found.get(key, 0) + int(count)
    return [
        {"group": group, "topic": topic, "commits": count}
        for (group, topic), count in sorted(found.items())
    ]


def uncommitted_readers(folder: Path, topics: set[str]) -> list[Row]:
    """Return the clients that fetched uncommitted data: `client`, `topic`; without brokers and the final read."""
    import numpy as np
    from harrow.cluster.host.tap import FETCHED, FLAG_READ_COMMITTED

    found: set[tuple[str, str]] = set()
    for path in run_folder.tap_files(folder / run_folder.CLUSTER):
        tap = read_tap(path)
        plain = (tap.rows["kind"] == FETCHED) & ((tap.rows["flags"] & FLAG_READ_COMMITTED) == 0)
        for number, topic in enumerate(tap.names):
            if topic in topics:
                clients = np.unique(tap.rows["client"][plain & (tap.rows["topic"] == number)])
                found |= {(tap.names[client], topic) for client in clients.tolist()}
    return [
        {"client": client, "topic": topic}
        for client, topic in sorted(found)
        if client != FINAL_READ_CLIENT and not REPLICA_CLIENT.fullmatch(client)
    ]
