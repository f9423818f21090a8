"""What each program of the retry queue does around its work: arguments, SIGTERM, and a new beginning after an
error.

A program that loses Kafka or its store closes everything, and begins again from what was committed. That is the
same path as after a crash, so that there is one path to get right.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from contextlib import closing
from threading import Event
from typing import Any, Protocol

from confluent_kafka import KafkaException

from .errors import UnavailableError
from .names import Names

PAUSE_S = 0.5
"""How long a program waits after an error."""


class Service(Protocol):
    """The work of a program."""

    def run(self, stop: Event) -> None:
        """Work until `stop` is set."""

    def close(self) -> None:
        """Release the partitions and the connections."""


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments that all programs have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--source", default="orders", help="the topic of the inputs")
    parser.add_argument("--sink", default="bills", help="the topic of the outputs")
    parser.add_argument("--session-timeout-ms", type=int, default=45_000)
    return parser


def names_of(given: argparse.Namespace) -> Names:
    """Return the topics."""
    return Names(source=given.source, sink=given.sink)


def session_of(given: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a consumer's session."""
    session_ms = given.session_timeout_ms
    return {"session.timeout.ms": session_ms, "heartbeat.interval.ms": session_ms // 5}


def servers() -> str:
    """Return the address of the brokers."""
    return os.environ["KAFKA_BOOTSTRAP_SERVERS"]


def run_service(name: str, make: Callable[[], Service]) -> None:
    """Run a service until SIGTERM."""
    stop = Event()

    def end(*_: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    while not stop.is_set():
        try:
            with closing(make()) as service:
                service.run(stop)
        except (KafkaException, UnavailableError) as error:
            print(f"{name}: {error}; it begins again in {PAUSE_S:g} s", flush=True)
            stop.wait(PAUSE_S)
