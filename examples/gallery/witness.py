"""A second opinion on a topic: what a few lines of plain Python find in it, beside the verdict of Harrow.

It reads the topic with a consumer of its own and compares it with what the service believes to have sent. The
findings have the verdict's names and, for each name, the ids of the records (of `split-key`: the keys).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

Findings = dict[str, set[str]]


def read_topic(servers: str, topic: str) -> list[Message]:
    """Return all records of a topic, partition by partition."""
    settings = {"group.id": "witness", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    found: list[Message] = []
    for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
        place = TopicPartition(topic, partition)
        place.offset, end = consumer.get_watermark_offsets(place, timeout=30, cached=False)
        consumer.assign([place])
        left = end - place.offset
        while left > 0:
            messages = [message for message in consumer.consume(left, 0.5) if not message.error()]
            found += messages
            left -= len(messages)
    consumer.close()
    return found


def look(records: Iterable[Message], field: str, expected: Iterable[Mapping[str, Any]]) -> Findings:
    """Compare records with what was sent; `field` of the JSON value is the record's id."""
    sent = [str(promise[field]) for promise in expected]
    stored = [(record, str(json.loads(record.value() or b"")[field])) for record in records]
    ids = Counter(name for _, name in stored)
    homes: defaultdict[bytes, set[int | None]] = defaultdict(set)
    latest: defaultdict[tuple[bytes, int | None], int] = defaultdict(int)
    late: set[str] = set()
    turn = {name: number for number, name in enumerate(sent)}
    for record, name in stored:
        key, partition = _bytes(record.key()), record.partition()
        homes[key].add(partition)
        if key and turn[name] < latest[key, partition]:
            late.add(name)
        latest[key, partition] = max(latest[key, partition], turn[name])
    return {
        "missing": set(sent) - set(ids),
        "unexpected": set(ids) - set(sent),
        "duplicate": {name for name, count in ids.items() if count > 1},
        "split-key": {key.decode() for key, places in homes.items() if key and len(places) > 1},
        "out-of-order": late,
    }


def _bytes(key: str | bytes | None) -> bytes:
    return key.encode() if isinstance(key, str) else key or b""
