"""Which inputs are in retry, and which wait behind them: the memory of a transactional worker, in a compacted topic.

For each partition the ledger has the inputs that were received and are neither done nor dead, by offset. Such an
input waits for its next attempt, and the ledger has its attempts and its due time; or, with `--keep-order`, it
waits behind an earlier input of its key, and the ledger has the input itself. The ledger changes in the transaction
that also sends the results and commits the offsets. Hence:

* an input below the committed offset is in the ledger, or done (or dead);
* a record of the retry topic is current if the ledger has its attempts and its due time. Any other is a duplicate;
* the earliest input of a key in the ledger is never one that waits behind another.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .records import Record

BEHIND = "retry_queue-key"
"""The header with the key of an input that waits behind another; the record's own key is the offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One input in the ledger."""

    key: bytes | None
    attempts: int = 0
    due_ms: int = 0
    behind: Record | None = None
    """The input itself, when it waits behind another."""


class Ledger:
    """The inputs in retry of the partitions of one worker. It returns each change as a record for its topic."""

    def __init__(self, topic: str, source: str) -> None:
        self._topic, self._source = topic, source
        self._waits: dict[int, dict[int, Wait]] = {}
        self._by_key: dict[int, defaultdict[bytes, set[int]]] = {}

    def restore(self, partition: int, records: Mapping[bytes, Record]) -> None:
        """Take what the topic has for a partition."""
        self._waits[partition] = {}
        self._by_key[partition] = defaultdict(set)
        for record in records.values():
            offset = int(record.key or b"")
            self._enter(partition, offset, self._read(partition, offset, record))

    def give_up(self, partition: int) -> None:
        """Another worker has this partition."""
        self._waits.pop(partition, None)
        self._by_key.pop(partition, None)

    def is_current(self, record: Record) -> bool:
        """Whether a record of the retry topic is the one that its input waits for."""
        _, partition, offset = record.origin
        wait = self._waits[partition].get(offset)
        return wait is not None and (wait.attempts, wait.due_ms) == (record.attempts, record.due_ms)

    def is_behind(self, record: Record) -> bool:
        """Whether an earlier input of the key is in the ledger."""
        _, partition, offset = record.origin
        if record.key is None or record.value is None:
            return False  # without a value it is a dead letter at once
        return any(found < offset for found in self._by_key[partition].get(record.key, ()))

    def holds(self, record: Record) -> Record:
        """Enter an input that waits behind an earlier one."""
        _, partition, offset = record.origin
        assert record.key is not None
        self._enter(partition, offset, Wait(key=record.key, behind=record))
        change = self._change(partition, offset, record.value)
        return replace(change, headers=(*record.headers, (BEHIND, record.key)))

    def waits(self, delayed: Record) -> Record:
        """Enter an input that was sent to the delay topic."""
        _, partition, offset = delayed.origin
        wait = Wait(key=delayed.key, attempts=delayed.attempts, due_ms=delayed.due_ms)
        self._enter(partition, offset, wait)
        key = None if wait.key is None else base64.b64encode(wait.key).decode()
        return self._change(partition, offset, json.dumps([key, wait.attempts, wait.due_ms]).encode())

    def finishes(self, record: Record) -> list[Record]:
        """Remove an input that has its output, or is dead."""
        _, partition, offset = record.origin
        wait = self._waits[partition].pop(offset, None)
        if wait is None:
            return []
        if wait.key is not None:
            self._by_key[partition][wait.key].discard(offset)
        return [self._change(partition, offset, None)]

    def released(self, record: Record) -> Record | None:
        """Return the next input of the key, when it waited behind one that is finished."""
        _, partition, _ = record.origin
        offsets = self._by_key[partition].get(record.key or b"")
        return self._waits[partition][min(offsets)].behind if offsets else None

    def _enter(self, partition: int, offset: int, wait: Wait) -> None:
        self._waits[partition][offset] = wait
        if wait.key is not None:
            self._by_key[partition][wait.key].add(offset)

    def _read(self, partition: int, offset: int, record: Record) -> Wait:
        key = dict(record.headers).get(BEHIND)
        if key is not None:
            headers = tuple(header for header in record.headers if header[0] != BEHIND)
            held = Record(
                topic=self._source, partition=partition, offset=offset, key=key, value=record.value, headers=headers
            )
            return Wait(key=key, behind=held)
        text, attempts, due_ms = json.loads(record.value or b"")
        return Wait(key=None if text is None else base64.b64decode(text), attempts=attempts, due_ms=due_ms)

    def _change(self, partition: int, offset: int, value: bytes | None) -> Record:
        return Record(topic=self._topic, partition=partition, key=str(offset).encode(), value=value)
