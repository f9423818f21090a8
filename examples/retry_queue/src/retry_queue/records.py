"""A record on its way through the retry queue, its headers, and its form in a delay store. No Kafka client
here.

The headers have the names of Spring Kafka, and decimal ASCII text as values. Those of the original place are
set at the first failure and never changed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

ATTEMPTS = "retry_topic-attempts"
"""How many attempts were made."""
DUE = "retry_topic-backoff-timestamp"
"""When the next attempt is due, in milliseconds since the epoch."""
TOPIC = "kafka_original-topic"
PARTITION = "kafka_original-partition"
OFFSET = "kafka_original-offset"
REASON = "kafka_exception-message"
OURS = frozenset({ATTEMPTS, DUE, TOPIC, PARTITION, OFFSET, REASON})
REASON_CHARACTERS_MOST = 500

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of a topic, or one to be sent (then without an offset)."""

    topic: str
    partition: int
    """Negative: Kafka's partitioner chooses it by the key."""
    offset: int = -1
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def header(self, name: str) -> str | None:
        """Return a header as text; None without it."""
        found = next((value for header, value in self.headers if header == name), None)
        return None if found is None else found.decode(errors="replace")

    @property
    def attempts(self) -> int:
        """How many attempts were made; 0 for an input."""
        return int(self.header(ATTEMPTS) or 0)

    @property
    def due_ms(self) -> int:
        """When the next attempt is due; 0 for an input."""
        return int(self.header(DUE) or 0)

    @property
    def origin(self) -> tuple[str, int, int]:
        """Topic, partition and offset of the input."""
        topic, partition, offset = self.header(TOPIC), self.header(PARTITION), self.header(OFFSET)
        if topic is None or partition is None or offset is None:
            return self.topic, self.partition, self.offset
        return topic, int(partition), int(offset)

    @property
    def id(self) -> bytes:
        """Identifies the wait of an input for one attempt: no later wait has the same id."""
        _, partition, offset = self.origin
        return f"{partition}-{offset}-{self.attempts}-{self.due_ms}".encode()

    def moved(self, topic: str) -> Record:
        """Return the record for another topic, in the partition of its input."""
        return replace(self, topic=topic, partition=self.origin[1], offset=-1)

    def failed(self, topic: str, *, attempts: int, reason: str, due_ms: int | None) -> Record:
        """Return the record after an attempt, for the delay topic or the dead letters: key and value are
        unchanged.
        """
        source, partition, offset = self.origin
        ours = {
            ATTEMPTS: str(attempts),
            TOPIC: source,
            PARTITION: str(partition),
            OFFSET: str(offset),
            REASON: reason[:REASON_CHARACTERS_MOST],
        }
        if due_ms is not None:
            ours[DUE] = str(due_ms)
        kept = tuple(header for header in self.headers if header[0] not in OURS)
        added = tuple((name, value.encode()) for name, value in ours.items())
        return replace(self.moved(topic), headers=kept + added)

    def replayed(self) -> Record:
        """Return a dead letter as the input that it was: in its topic, without the headers of the retry queue."""
        kept = tuple(header for header in self.headers if header[0] not in OURS)
        return replace(self, topic=self.origin[0], partition=-1, offset=-1, headers=kept)


# ------------------------------------------------------------------------------------- as bytes
# Each field is a length (int32, -1: null) and its bytes: topic, partition, key, value, name and value of each header.


def encode(record: Record) -> bytes:
    """Return a record without its offset as bytes, which are few more than those of its fields."""
    fields = [record.topic.encode(), str(record.partition).encode(), record.key, record.value]
    for name, value in record.headers:
        fields += [name.encode(), value]
    return b"".join(_field(field) for field in fields)


def decode(data: bytes) -> Record:
    """Return the record that `encode` was called with. ValueError for other bytes."""
    fields: list[bytes | None] = []
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise ValueError(f"a stored record ends in a length, at byte {at}")
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size > len(data) - at:
            raise ValueError(f"a stored record ends in a field of {size} bytes, at byte {at}")
        fields.append(None if size < 0 else data[at : at + size])
        at += max(size, 0)
    if len(fields) < 4 or len(fields) % 2:
        raise ValueError(f"a stored record has {len(fields)} fields")
    topic, partition, key, value, *rest = fields
    headers = zip(rest[::2], rest[1::2], strict=True)
    return Record(
        topic=(topic or b"").decode(),
        partition=int(partition or b"-1"),
        key=key,
        value=value,
        headers=tuple(((name or b"").decode(), found) for name, found in headers),
    )


def _field(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
