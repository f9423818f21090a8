"""An application that sends each record until it is acknowledged, whatever its client says meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException
from faults_under_traffic import lines
from harrow import Harrow, Topic
from harrow.faults import Fault
from waiting import until


class App:
    """Sends numbered records, and remembers its errors; `drops`: it does not send again what was refused."""

    def __init__(self, harrow: Harrow, topic: Topic, config: dict[str, Any], *, drops: bool = False) -> None:
        self.errors: set[str] = set()
        self.sent: list[int] = []
        self._drops = drops
        self._again: list[int] = []
        self._topic = topic.name
        given = {"message.timeout.ms": 60_000, "linger.ms": 1, "reconnect.backoff.max.ms": 200, **config}
        self._producer = harrow.producer(
            error_cb=self._failed,
            **{name.replace(".", "_"): value for name, value in given.items()},
        )

    def _failed(self, error: Any) -> None:
        self.errors.add(error.name())

    def _delivered(self, number: int, error: Any) -> None:
        if error is not None:
            self.errors.add(error.name())
            if not self._drops:
                self._again.append(number)

    def _send(self, number: int) -> None:
        def delivered(error: Any, _: Any) -> None:
            self._delivered(number, error)

        try:
            self._producer.produce(self._topic, json.dumps({"id": number}), on_delivery=delivered)
        except KafkaException as error:  # librdkafka knows that the topic cannot be written to
            delivered(error.args[0], None)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(0.01):
            again, self._again = self._again, []
            for number in again:
                self._send(number)
            if len(self._producer) < 50:
                self.sent.append(len(self.sent) + 1)
                self._send(self.sent[-1])
            self._producer.poll(0)
        until(self._all_acknowledged, "every record is acknowledged", timeout_s=60)

    def _all_acknowledged(self) -> bool:
        again, self._again = self._again, []
        for number in again:
            self._send(number)
        self._producer.flush(1)
        return len(self._producer) == 0 and not self._again


@contextmanager
def running(app: App) -> Generator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=app.run, args=(stop,), name="app")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(90)


def run(harrow: Harrow, app: App, fault: Fault) -> dict[str, dict[str, Any]]:
    """Let one fault happen while the application runs; its rows by event."""
    with running(app), harrow.chaos(fault) as chaos:
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=120)
    rows = {line["event"]: line for line in lines(harrow)}
    assert list(rows) == ["inject", "effect", "heal", "healed"]
    return rows
