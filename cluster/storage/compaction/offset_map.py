"""Key → last offset in the dirty part of a log, in bounded memory: the result of pass one of a compaction (B8).

Owns: one dictionary and its bound. Keys of up to 31 bytes are stored themselves, longer keys as a BLAKE2b digest of
32 bytes, so that the two kinds never collide and no key needs more memory. When `is_full`, pass one stops, and the rest
of the dirty part waits for the next round.

`latest_offset`: every record up to it is in the map; a record above it stays, whatever its key.

Source: Kafka's `SkimpyOffsetMap` (MD5 in an open-addressing byte buffer; here the exact keys).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from ..record_spans import RecordSpan

DIGEST_BYTES = 32
ENTRY_BYTES = 192
"""Most bytes of an entry: key object (33 + 32), offset (32), its share of a dictionary that just grew (95)."""

LOAD_FACTOR = 0.9
"""`log.cleaner.io.buffer.load.factor`'s default: the share of the bound that is used."""


class OffsetMap:
    """The offset map of one cleaner; used again for every log."""

    __slots__ = ("_offsets", "entries_max", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = LOAD_FACTOR) -> None:
        self._offsets: dict[bytes, int] = {}
        self.entries_max = max(int(memory_bytes * load_factor) // ENTRY_BYTES, 1)
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """True when no further key may be added."""
        return len(self._offsets) >= self.entries_max

    def put(self, key: bytes, offset: int) -> None:
        """Set the newest offset of `key`; offsets increase from call to call."""
        self._offsets[key if len(key) < DIGEST_BYTES else _digest(key)] = offset

    def put_records(self, spans: Iterable[RecordSpan], base_offset: int, start: int) -> None:
        """Put every record of a batch that has a key and an offset from `start` on."""
        assert base_offset > self.latest_offset, f"batch {base_offset} after offset {self.latest_offset}"
        offsets = self._offsets
        for _, _, delta, key, _ in spans:
            offset = base_offset + delta
            if key is not None and offset >= start:
                offsets[key if len(key) < DIGEST_BYTES else _digest(key)] = offset

    def get(self, key: bytes) -> int:
        """The newest offset of `key` in the dirty part; -1 without one."""
        return self._offsets.get(key if len(key) < DIGEST_BYTES else _digest(key), -1)

    def update_latest_offset(self, offset: int) -> None:
        """All records up to `offset` are in the map."""
        self.latest_offset = max(self.latest_offset, offset)

    def clear(self) -> None:
        """Remove all entries, for the next log."""
        self._offsets.clear()
        self.latest_offset = -1


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()
