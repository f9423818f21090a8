"""Reads one partition of a compacted topic completely: the last value of each key that has no tombstone.

"Completely": up to the high watermark at the time of the call. Records of transactions that are open there are
waited for: they are committed, or aborted after `transaction.timeout.ms` at the latest.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from .errors import UnavailableError
from .reading import record_of
from .records import Record

RESTORE_S = 60.0
"""How long the partition may yield nothing; then the program begins again."""


def restored(servers: str, client_id: str, topic: str, partition: int) -> dict[bytes, Record]:
    """Return the last records by key. UnavailableError: the partition could not be read to its end."""
    settings = {"bootstrap.servers": servers, "client.id": client_id, "group.id": f"{client_id}-restore"}
    end = _high_watermark(settings, topic, partition)
    reading: dict[str, Any] = {
        **settings,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    consumer = Consumer(reading)
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return _read(consumer, end, f"{topic}-{partition}") if end else {}
    finally:
        consumer.close()


def _high_watermark(settings: dict[str, Any], topic: str, partition: int) -> int:
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10.0)
    finally:
        consumer.close()
    return end


def keep_last(record: Record, found: dict[bytes, Record]) -> None:
    """Put a record of a compacted topic in the place of the last one with its key; a tombstone removes it."""
    assert record.key is not None
    if record.value is None:
        found.pop(record.key, None)
    else:
        found[record.key] = record


def _read(consumer: Consumer, end: int, name: str) -> dict[bytes, Record]:
    found: dict[bytes, Record] = {}
    deadline = time.monotonic() + RESTORE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        offset = message.offset()
        assert offset is not None
        if error is None:
            deadline = time.monotonic() + RESTORE_S
            keep_last(record_of(message), found)
            offset += 1
        elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public name of confluent's
            raise KafkaException(error)
        if offset >= end:
            return found
    raise UnavailableError(f"{name} was not read to its end, {end}, in {RESTORE_S:g} s")
