"""The delay store that needs nothing beside Kafka: a compacted topic, and timers in memory.

A record that waits is a record of the topic, with its id as the key, in the partition of its input; a tombstone
removes it after it was sent. The owner of a partition of the delay topic owns that partition of the store:
`take_over` reads it completely.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import merge
from itertools import islice

from ..clock import SteadyClock
from ..outbox import Outbox
from ..records import Record, decode, encode
from ..restoring import restored
from ..timing_wheel import TimingWheel


class Waiting:
    """What waits for one partition."""

    def __init__(self, now_ms: int) -> None:
        self._records: dict[bytes, Record] = {}
        self._wheel: TimingWheel[bytes] = TimingWheel(now_ms)
        self.due: list[Record] = []
        """What is due and was not taken yet, the earliest first."""

    def add(self, record: Record) -> None:
        """Add a record."""
        self._records[record.id] = record
        self._wheel.add(record.id, record.due_ms)

    def advance(self, now_ms: int) -> None:
        """Find what is due."""
        self.due += [self._records.pop(found) for found in self._wheel.advance(now_ms)]
        self.due.sort(key=lambda record: record.due_ms)


class EmbeddedStore:
    """See `DelayStore`."""

    def __init__(self, servers: str, topic: str, clock: SteadyClock, client_id: str) -> None:
        self._servers, self._topic, self._clock, self._client_id = servers, topic, clock, client_id
        self._outbox = Outbox(servers, client_id)
        self._partitions: dict[int, Waiting] = {}

    def take_over(self, partitions: Collection[int]) -> None:
        """Read the partitions of the topic."""
        for partition in partitions:
            waiting = Waiting(self._clock.now_ms())
            found = restored(self._servers, self._client_id, self._topic, partition)
            for stored in found.values():
                waiting.add(decode(stored.value or b""))
            self._partitions[partition] = waiting

    def give_up(self, partitions: Collection[int]) -> None:
        """Forget the timers; the records stay in the topic."""
        for partition in partitions:
            self._partitions.pop(partition, None)

    def put(self, records: Sequence[Record]) -> None:
        """Write to the topic, then start the timers."""
        for record in records:
            self._write(record, encode(record))
        self._outbox.settle_all()
        for record in records:
            waiting = self._partitions.get(record.origin[1])
            if waiting is not None:  # else the partition was taken away meanwhile
                waiting.add(record)

    def take(self, now_ms: int, most: int) -> list[Record]:
        """Return what the timers find."""
        for waiting in self._partitions.values():
            waiting.advance(now_ms)
        lists = [waiting.due for waiting in self._partitions.values()]
        taken = list(islice(merge(*lists, key=lambda record: record.due_ms), most))
        ids = {record.id for record in taken}
        for waiting in self._partitions.values():
            waiting.due = [record for record in waiting.due if record.id not in ids]
        return taken

    def remove(self, records: Sequence[Record]) -> None:
        """Write tombstones."""
        for record in records:
            self._write(record, None)
        self._outbox.settle_all()

    def close(self) -> None:
        """End the producer."""
        self._outbox.close()

    def _write(self, record: Record, value: bytes | None) -> None:
        partition = record.origin[1]
        self._outbox.send(Record(topic=self._topic, partition=partition, key=record.id, value=value))
