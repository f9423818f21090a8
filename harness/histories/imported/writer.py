"""Writes an imported history as a run folder, so that the verdict on it is the verdict on any run.

Owns: what the rows of `format.py` say of the operations of a file.

* A send: `ok`, `fail` or `info`. In a transaction that failed it is `fail`; in one of unknown outcome `info`, or what
  it was itself where a reader received a record that only this transaction sent: then the transaction was committed.
* A read has the outcome of its transaction (`ok` without one), and its `invoked_ns` is that of the transaction.
* BREAK: a partition left the assignment or came to it, a seek. REBALANCE: a rebalance; with `subscribe` before each
  operation that reads, because the group may have given the partition to another member and back in between.
* The final read: what `final-read` says, with a complete BOUNDS row (`ok`). Without it the reads of all clients stand
  for it, up to the highest offset that one of them received, and the BOUNDS row is `info`: what is above was not looked
  for.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import run_folder
from ..format import FINAL_READ_CLIENT, HistoryWriter, OperationFunction, OperationType, stable_hash
from .operations import FIRST_NS, UNKNOWN_NS, ImportedRecord, Operation, Place

UNRECORDED = ["replica-logs", "log", "taps", "coordinator-taps", "broker-events", "waiting-requests", "group-states"]
"""What no file of operations has."""
Identity = tuple[Place, bytes | None, bytes | None]


@dataclass(slots=True)
class _Reader:
    """What is known of the position of one process."""

    known: dict[Place, None] = field(default_factory=dict[Place, None])
    """Partitions that it has read, in the order of the first reads."""
    subscribed: bool = False


def write_history(operations: Sequence[Operation], folder: Path, facts: Mapping[str, Any]) -> list[str]:
    """Write the run folder; return the topics. `facts`: what `run.json` keeps of the import."""
    outcomes = transaction_outcomes(operations)
    committed = proved_commits(operations, outcomes)
    with HistoryWriter(folder / run_folder.HISTORY, process="imported") as history:
        _Writer(history, operations, outcomes, committed).write()
    topics = _topics(operations, outcomes)
    _write_final(operations, folder / run_folder.DRAIN)
    body = {
        "schema_version": run_folder.RUN_SCHEMA_VERSION,
        "started_ns": UNKNOWN_NS,
        "topics": topics,
        "unrecorded": UNRECORDED,
        "imported": dict(facts),
    }
    (folder / run_folder.RUN).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return topics


def _topics(operations: Sequence[Operation], outcomes: Mapping[str, OperationType]) -> list[str]:
    """Return the topics that have a record; without any, those of all operations.

    A topic to which only sends without success went has nothing to judge.
    """
    found = {
        place[0]
        for row in operations
        if row.read or row.function == "end" or outcomes.get(row.transaction, row.outcome) is OperationType.OK
        for place in places_of(row)
    }
    named = {place[0] for row in operations for place in (*row.places, *(record.place for record in row.sent))}
    return sorted(found or named)


def places_of(row: Operation) -> set[Place]:
    """Return the partitions of the records of an operation, and of an `end`."""
    named = {record.place for record in (*row.sent, *row.read)}
    return named | set(row.places) if row.function == "end" else named


def transaction_outcomes(operations: Iterable[Operation]) -> dict[str, OperationType]:
    """Return the outcome of each transaction by its name; one that the file does not end is `info`."""
    found: dict[str, OperationType] = {}
    for row in operations:
        if row.transaction:
            found.setdefault(row.transaction, OperationType.INFO)
            if row.function == "txn":
                found[row.transaction] = row.outcome
    return found


def proved_commits(operations: Sequence[Operation], outcomes: Mapping[str, OperationType]) -> set[str]:
    """Return the transactions of unknown outcome of which another process received a record that only they sent."""
    senders: dict[Identity, list[str]] = defaultdict(list)
    for row in operations:
        for record in row.sent:
            senders[_identity(record)].append(row.transaction)
    found: set[str] = set()
    for row in operations:
        for record in row.read:
            names = senders.get(_identity(record), [])
            if len(names) == 1 and names[0] and names[0] != row.transaction:
                found.add(names[0])
    return {name for name in found if outcomes[name] is OperationType.INFO}


def _identity(record: ImportedRecord) -> Identity:
    return record.place, record.key, record.value


class _Writer:
    """Writes the rows of the clients."""

    def __init__(
        self,
        history: HistoryWriter,
        operations: Sequence[Operation],
        outcomes: Mapping[str, OperationType],
        committed: set[str],
    ) -> None:
        self._history = history
        self._operations = operations
        self._outcomes = outcomes
        self._committed = committed
        self._readers: dict[str, _Reader] = defaultdict(_Reader)
        self._begun: dict[str, int] = {}
        self._op = 0
        for row in operations:
            if row.transaction:
                begun = self._begun.setdefault(row.transaction, row.begun_ns)
                self._begun[row.transaction] = min(begun, row.begun_ns)

    def write(self) -> None:
        """Write the sends in the order in which they began, then the reads in the order in which they ended."""
        self._producers()
        for row in sorted(self._operations, key=lambda row: row.order):
            for record in row.sent:
                self._send(row, record)
        for row in self._operations:
            if row.function in ("assign", "subscribe", "seek", "rebalance"):
                self._position(row)
            elif row.function == "commit":
                self._commit(row)
            elif row.function != "final-read":
                self._reads(row)

    def _producers(self) -> None:
        """Write the settings that the file has; a transactional producer is idempotent and uses acks=all."""
        settings: dict[str, dict[str, Any]] = {}
        for row in self._operations:
            if row.function == "producer":
                settings[row.process] = dict(row.settings)
            elif row.transaction and row.sent:
                settings.setdefault(row.process, {"acks": -1, "idempotent": True})
        for process, known in settings.items():
            self._append(
                OperationFunction.CLIENT,
                OperationType.OK,
                process,
                ("", -1),
                known["acks"],
                op=int(known["idempotent"]),
            )

    def _outcome_of_send(self, row: Operation) -> OperationType:
        whole = self._outcomes.get(row.transaction)
        if whole is None:
            return row.outcome
        if whole is OperationType.OK and row.function != "txn":
            return row.outcome
        if whole is OperationType.INFO and row.transaction in self._committed:
            return OperationType.OK if row.function == "txn" else row.outcome
        return whole

    def _send(self, row: Operation, record: ImportedRecord) -> None:
        op = self._next()
        self._append(
            OperationFunction.SEND,
            self._outcome_of_send(row),
            row.process,
            record.place,
            record.offset,
            op=op,
            record=record,
            times=(row.invoked_ns, row.completed_ns),
        )
        self._history.sent.append(self._history.name(f"process {row.process}"), op, record.key, record.value)

    def _reads(self, row: Operation) -> None:
        reader = self._readers[row.process]
        outcome = self._outcomes.get(row.transaction, row.outcome)
        begun: set[Place] = set()
        for record in row.read:
            moved = record.place in row.rebalanced
            if moved or (reader.subscribed and record.place not in begun):
                self._break(row, record.place, OperationFunction.REBALANCE)
            begun.add(record.place)
            reader.known[record.place] = None
            self._append(
                OperationFunction.POLL,
                outcome,
                row.process,
                record.place,
                record.offset,
                op=self._next(),
                record=record,
                times=(self._begun.get(row.transaction, row.begun_ns), row.completed_ns),
            )

    def _position(self, row: Operation) -> None:
        if row.outcome is OperationType.FAIL:
            return
        reader = self._readers[row.process]
        if row.function in ("seek", "rebalance"):
            moved: Iterable[Place] = row.places
        else:
            topics = {topic for topic, partition in row.places if partition < 0}
            kept = {place for place in reader.known if place in row.places or place[0] in topics}
            moved = list(reader.known) if row.to_beginning else [p for p in reader.known if p not in kept]
            reader.subscribed = row.function == "subscribe"
        by_group = row.function in ("subscribe", "rebalance")
        for place in moved:
            self._break(row, place, OperationFunction.REBALANCE if by_group else OperationFunction.BREAK)

    def _commit(self, row: Operation) -> None:
        for place in row.places:
            self._append(
                OperationFunction.COMMIT,
                row.outcome,
                row.process,
                place,
                row.offset,
                op=self._next(),
                times=(row.invoked_ns, row.completed_ns),
            )

    def _break(self, row: Operation, place: Place, function: OperationFunction) -> None:
        times = row.invoked_ns, row.completed_ns
        self._append(function, OperationType.OK, row.process, place, op=self._next(), times=times)

    def _next(self) -> int:
        self._op += 1
        return self._op

    def _append(
        self,
        function: OperationFunction,
        outcome: OperationType,
        process: str,
        place: Place,
        offset: int = -1,
        *,
        op: int,
        record: ImportedRecord | None = None,
        times: tuple[int, int] = (FIRST_NS, FIRST_NS),
    ) -> None:
        assert outcome is not OperationType.INVOKE, f"{function.name} of process {process} is a completion"
        history = self._history
        history.append(
            function,
            outcome,
            history.name(f"process {process}" if process else ""),
            history.name(place[0]),
            place[1],
            offset,
            op,
            stable_hash(record.key) if record else 0,
            stable_hash(record.value) if record else 0,
            invoked_ns=times[0],
            time_ns=times[1],
        )


def _write_final(operations: Sequence[Operation], folder: Path) -> None:
    """Write the final read of each partition with a record or an `end`."""
    ends = {place: row.offset for row in operations if row.function == "end" for place in row.places}
    declared = [row for row in operations if row.function == "final-read"]
    found: dict[Place, dict[int, ImportedRecord]] = defaultdict(dict)
    whole = {record.place for row in declared for record in row.read} | ends.keys()
    for row in (*declared, *operations):
        for record in row.read:
            if row.function == "final-read" or record.place not in whole:
                found[record.place].setdefault(record.offset, record)
    places = {place for row in operations for place in places_of(row) if place[1] >= 0} | whole
    with HistoryWriter(folder, process="drain") as drain:
        client = drain.name(FINAL_READ_CLIENT)
        for place in sorted(places):
            topic, records = drain.name(place[0]), found[place]
            for offset, record in sorted(records.items()):
                drain.append(
                    OperationFunction.POLL,
                    OperationType.OK,
                    client,
                    topic,
                    place[1],
                    offset,
                    offset,
                    stable_hash(record.key),
                    stable_hash(record.value),
                    invoked_ns=FIRST_NS,
                    time_ns=FIRST_NS,
                )
            high = max(ends.get(place, 0), max(records, default=-1) + 1)
            outcome = OperationType.OK if place in whole else OperationType.INFO
            drain.append(OperationFunction.BOUNDS, outcome, client, topic, place[1], high, 0)
