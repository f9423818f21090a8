"""precommitted-read in a history of transactions: a transaction received what it had sent itself (L6).

A reader of committed data receives a record only after its transaction is committed, and an application reads before it
commits. So if transaction A received a record of transaction B, then B was committed before A was. A transaction that
received its own record, or transactions that received records of each other in a circle (Jepsen's G1c without edges of
writes), cannot have been committed in any order: a reader received a record before its transaction was decided.

Only transactions of which the records are known to be theirs count: a record that two operations sent proves nothing.
Each circle is one anomaly, of the records that its transactions received of each other. Linear in the operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ..histories.imported.operations import ImportedRecord, Operation, Place
from .rows import AnomalyRow

Identity = tuple[Place, bytes | None, bytes | None]
Edges = dict[str, dict[str, ImportedRecord]]


def precommitted_reads(operations: Sequence[Operation]) -> list[AnomalyRow]:
    """Return the anomalies."""
    edges = _received(operations)
    lines = {row.transaction: row for row in operations if row.transaction}
    return [_anomaly(circle, edges, lines) for circle in _circles(edges)]


def _received(operations: Iterable[Operation]) -> Edges:
    """Return by reading transaction, the transactions whose records it received, each with one of these records."""
    senders: dict[Identity, set[str]] = defaultdict(set)
    for row in operations:
        for record in row.sent:
            senders[_identity(record)].add(row.transaction)
    edges: Edges = defaultdict(dict)
    for row in operations:
        for record in row.read if row.transaction else ():
            names = senders.get(_identity(record), set())
            if len(names) == 1 and (writer := next(iter(names))):
                edges[row.transaction].setdefault(writer, record)
    return edges


def _identity(record: ImportedRecord) -> Identity:
    return record.place, record.key, record.value


def _circles(edges: Edges) -> list[list[str]]:
    """Return the strongly connected transactions: with an edge to themselves, or groups (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found: list[list[str]] = []
    for start in edges:
        if start in index:
            continue
        work = [(start, iter(edges.get(start, {})))]
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        while work:
            name, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    path.append(other)
                    on_path.add(other)
                    work.append((other, iter(edges.get(other, {}))))
                    break
                if other in on_path:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    at = path.index(name)
                    group = path[at:]
                    del path[at:]
                    on_path.difference_update(group)
                    if len(group) > 1 or name in edges.get(name, {}):
                        found.append(group)
    return found


def _anomaly(circle: Sequence[str], edges: Edges, operations: Mapping[str, Operation]) -> AnomalyRow:
    inside = set(circle)
    received = [
        (reader, writer, record) for reader in circle for writer, record in edges[reader].items() if writer in inside
    ]
    first = received[0][2]
    if len(circle) == 1:
        text = (
            f"the transaction of {_shown(circle[0], operations)} received the record at offset {first.offset} that it "
            "had sent itself, before it was committed"
        )
    else:
        listed = ", ".join(_shown(name, operations) for name in circle)
        text = f"the transactions of {listed} received records of each other: none can have been committed first"
    return AnomalyRow(
        name="precommitted-read",
        topic=first.place[0],
        partition=first.place[1],
        offsets=[record.offset for _, _, record in received if record.place == first.place],
        explanation=text,
    )


def _shown(name: str, operations: Mapping[str, Operation]) -> str:
    row = operations[name]
    return f"process {row.process} (line {row.line} of the file)"
