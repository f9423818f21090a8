"""A billing service: `python billing.py SERVERS careless|careful`.

Both commit no offset before they end, so a service that was killed reads all orders again. The careful one first reads
which orders have a bill.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from harrow_shop import bill_of

READING: dict[str, Any] = {
    "group.id": "billing",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 2000,
    "heartbeat.interval.ms": 300,
    "log_level": 0,
}


def end_of(reader: Consumer, place: TopicPartition) -> int:
    """Return the end of a partition; its leader may be changing."""
    deadline = monotonic() + 30
    while True:
        try:
            return reader.get_watermark_offsets(place, timeout=30)[1]
        except KafkaException:
            if monotonic() > deadline:
                raise


def billed(servers: str) -> set[int]:
    """Return the orders that have a bill."""
    with closing(Consumer({**READING, "bootstrap.servers": servers, "group.id": "audit"})) as reader:
        place = TopicPartition("bills", 0, 0)
        end = end_of(reader, place)
        reader.assign([place])
        found: set[int] = set()
        position = 0
        while position < end:
            record: Any = reader.poll(1)
            if record is not None and record.error() is None:
                found.add(json.loads(record.value())["order"])
                position = record.offset() + 1
        return found


def main(servers: str, manner: str) -> None:
    """Bill each order."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    done = billed(servers) if manner == "careful" else set[int]()
    with closing(Consumer({**READING, "bootstrap.servers": servers})) as reader:
        reader.subscribe(["orders"])
        while True:
            record: Any = reader.poll(0.1)
            if record is None or record.error() is not None:
                continue
            order = json.loads(record.value())
            if order["order"] in done:
                continue
            producer.produce("bills", json.dumps(bill_of(order)))
            producer.flush()
            if manner == "careful":
                done.add(order["order"])


main(*sys.argv[1:])
