"""The history of a simulation: the rows of `format.py`, in memory, with virtual times.

`MemoryHistory` is written like `HistoryWriter`; times are the caller's, operations are numbered from 1 in the order in
which they begin. `completions` and `uncompleted` give rows as `layout.py` lays them out, for the oracle.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from .format import ROW, ROW_DTYPE, OperationFunction, OperationType, stable_hash
from .layout import DRAINED, RECORDED

FIELDS = tuple(name for name, _ in ROW_DTYPE if name not in ("pad", "commit"))


class MemoryHistory:
    """Rows of every client of one simulation; `drained`: those of the final read."""

    def __init__(self, *, drained: bool = False) -> None:
        self.source = DRAINED if drained else RECORDED
        self._rows = bytearray()
        self._ids: dict[str, int] = {}
        self._operations = 0

    def name(self, text: str) -> int:
        """The number of a client or a topic; the same text has the same number."""
        return self._ids.setdefault(text, len(self._ids))

    def next_op(self) -> int:
        """The number of a new operation."""
        self._operations += 1
        return self._operations

    def append(
        self,
        kind: int,
        outcome: int,
        client: int,
        topic: int,
        partition: int,
        offset: int = -1,
        op: int = -1,
        key_hash: int = 0,
        value_hash: int = 0,
        timestamp_ms: int = -1,
        invoked_ns: int = 0,
        time_ns: int = 0,
        error: int = 0,
        flags: int = 0,
    ) -> None:
        """Append one row."""
        assert invoked_ns <= time_ns, f"the operation {op} ended {invoked_ns - time_ns} ns before it began"
        self._rows += ROW.pack(
            kind,
            outcome,
            flags,
            error,
            client,
            partition,
            topic,
            offset,
            op,
            key_hash,
            value_hash,
            timestamp_ms,
            invoked_ns or time_ns,
            time_ns,
            1,
        )

    def rows(self, topic: str, partition: int) -> Iterator[dict[str, Any]]:
        """Every row of one topic-partition, in order, with its `source`."""
        number = self._ids.get(topic, -1)
        for values in ROW.iter_unpack(bytes(self._rows)):
            row = dict(zip(FIELDS, values, strict=False))
            if row["topic"] == number and row["partition"] == partition:
                row["source"] = self.source
                yield row

    def completions(self, topic: str, partition: int) -> list[dict[str, Any]]:
        """Operations that ended, with their outcome."""
        rows = self.rows(topic, partition)
        return [row for row in rows if row["outcome"] != OperationType.INVOKE]

    def uncompleted(self, topic: str, partition: int) -> list[dict[str, Any]]:
        """Sends that never ended: their result is unknown."""
        rows = [row for row in self.rows(topic, partition) if row["kind"] == OperationFunction.SEND]
        ended = {row["op"] for row in rows if row["outcome"] != OperationType.INVOKE}
        return [
            {**row, "outcome": int(OperationType.INFO)}
            for row in rows
            if row["outcome"] == OperationType.INVOKE and row["op"] not in ended
        ]


@functools.lru_cache(maxsize=1 << 16)
def hash_of(value: bytes) -> int:
    """`stable_hash`, remembered: a simulated value is sent, read and found in the log."""
    return stable_hash(value)


def hash_of_key(key: bytes | None) -> int:
    """`hash_of` of a key; 0 for a record without a key."""
    return 0 if key is None else hash_of(key)
