"""A service that bills orders in transactions: the bill and the offset of its order are committed together.

    python billing.py SERVERS HEALTH

HEALTH: a file in which it writes how many brokers its producer knows, as a health check would.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer


def run(servers: str, health: Path) -> None:
    """Bill orders until the process is stopped."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "client.id": "billing",
            "transactional.id": "billing",
            "transaction.timeout.ms": 5_000,
        }
    )
    producer.init_transactions(30)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "client.id": "billing",
            "group.id": "billing",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    while True:
        message = consumer.poll(0.1)
        if message is None:
            health.write_text(str(len(producer.list_topics(timeout=5).brokers)))
        elif not message.error():
            order = json.loads(message.value() or b"")
            producer.begin_transaction()
            bill = json.dumps({"order": order["order"], "total": 5})
            producer.produce("bills", bill, key=str(order["order"]))
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                5,  # seconds, says the documentation
            )
            producer.commit_transaction(30)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
