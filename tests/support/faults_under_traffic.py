"""One fault under traffic on real brokers: a producer that must lose nothing, and the rows of the fault."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from harrow import Harrow, Topic
from harrow.faults import Fault
from waiting import until

Acked = Counter[str]
SEND_EVERY_S = 0.01
"""More records would prove no more, and take half a core."""


@contextmanager
def traffic(harrow: Harrow, topic: Topic, record_bytes: int = 0) -> Generator[Acked]:
    """Produce until the block ends; everything is acknowledged by then, or the test fails.

    One request is in flight: a restarted broker knows only the last batch of a producer, Apache Kafka's too, and
    refuses retries of earlier ones (tests/conformance/test_retries_after_a_restart.py).
    """
    acked, stop = Acked(), threading.Event()
    producer = harrow.producer(linger_ms=1, message_timeout_ms=60_000, retry_backoff_ms=20, max_in_flight=1)

    def delivered(error: Any, _: Any) -> None:
        acked["failed" if error else "acknowledged"] += 1

    def send() -> None:
        while not stop.wait(SEND_EVERY_S):
            if len(producer) < 50:
                acked["sent"] += 1
                value = str(acked["sent"]).ljust(record_bytes)
                producer.produce(topic.name, value, on_delivery=delivered)
            producer.poll(0)

    thread = threading.Thread(target=send, name="traffic")
    thread.start()
    try:
        yield acked
    finally:
        stop.set()
        thread.join(30)
        producer.flush(60)
    assert acked["acknowledged"] == acked["sent"], dict(acked)


def lines(harrow: Harrow) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (harrow.folder / "faults.jsonl").read_text().splitlines()]


def run(harrow: Harrow, topic: Topic, fault: Fault, record_bytes: int = 0) -> dict[str, dict[str, Any]]:
    """Let one fault happen under traffic of records with at least `record_bytes`; its lines by event."""
    with traffic(harrow, topic, record_bytes), harrow.chaos(fault) as chaos:
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=120)
    rows = {line["event"]: line for line in lines(harrow)}
    assert list(rows) == ["inject", "effect", "heal", "healed"]
    assert chaos.effects == 1
    assert all(broker.state == "running" for broker in harrow.cluster.brokers.values())
    harrow.cluster.await_converged(60)
    return rows
