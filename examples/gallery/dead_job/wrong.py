"""Bills orders in a job. The bug: nobody looks at how the job ended, so it dies without a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from confluent_kafka import Consumer, Producer
from shop import Bill, Order


def bill_orders(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Start the job in the background."""
    with ThreadPoolExecutor() as scheduler:
        scheduler.submit(job, servers, make_bill, stop)


def job(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    group = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            bill = make_bill(json.loads(message.value() or b""))
            producer.produce("bills", json.dumps(bill), key=message.key())
            assert producer.flush() == 0
            consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()
