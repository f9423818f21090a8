"""Which inputs are in retry: the memory of a transactional worker, in a compacted topic.

For each partition the ledger has the inputs that failed and are neither done nor dead, by offset, each with the
attempts and the due time of its current wait. It changes in the transaction that also sends the records and
commits the offsets. Hence:

* an input below the committed offset is in the ledger, or done (or dead);
* a record of the retry topic is current if the ledger has its attempts and its due time. Any other is a
  duplicate.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from .records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One input that waits for its next attempt."""

    key: bytes | None
    attempts: int
    due_ms: int

    def as_json(self) -> bytes:
        """Return it as the value of a record."""
        key = None if self.key is None else base64.b64encode(self.key).decode()
        return json.dumps([key, self.attempts, self.due_ms]).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Wait:
        """Read the value of a record."""
        key, attempts, due_ms = json.loads(value)
        return cls(
            key=None if key is None else base64.b64decode(key), attempts=attempts, due_ms=due_ms
        )


class Ledger:
    """The inputs in retry of the partitions of one worker. It returns each change as a record for its topic."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._waits: dict[int, dict[int, Wait]] = {}

    def restore(self, partition: int, values: dict[bytes, bytes]) -> None:
        """Take what the topic has for a partition."""
        self._waits[partition] = {int(key): Wait.from_json(value) for key, value in values.items()}

    def give_up(self, partition: int) -> None:
        """Another worker has this partition."""
        self._waits.pop(partition, None)

    def is_current(self, record: Record) -> bool:
        """Whether a record of the retry topic is the one that its input waits for."""
        _, partition, offset = record.origin
        wait = self._waits[partition].get(offset)
        return wait is not None and (wait.attempts, wait.due_ms) == (record.attempts, record.due_ms)

    def ahead_of(self, record: Record) -> int | None:
        """Return until when an earlier input of the key waits, at least; None: there is none."""
        _, partition, offset = record.origin
        if record.key is None:
            return None
        earlier = [
            wait.due_ms
            for found, wait in self._waits[partition].items()
            if found < offset and wait.key == record.key
        ]
        return max(earlier, default=None)

    def waits(self, delayed: Record) -> Record:
        """Enter an input that was sent to the delay topic."""
        _, partition, offset = delayed.origin
        wait = Wait(key=delayed.key, attempts=delayed.attempts, due_ms=delayed.due_ms)
        self._waits[partition][offset] = wait
        return self._change(partition, offset, wait.as_json())

    def finishes(self, record: Record) -> list[Record]:
        """Remove an input that has its output, or is dead."""
        _, partition, offset = record.origin
        if self._waits[partition].pop(offset, None) is None:
            return []
        return [self._change(partition, offset, None)]

    def _change(self, partition: int, offset: int, value: bytes | None) -> Record:
        return Record(topic=self._topic, partition=partition, key=str(offset).encode(), value=value)
